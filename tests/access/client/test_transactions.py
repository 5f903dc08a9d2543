"""Our producer in transactions, with our broker: what readers of committed records get, whatever fails."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

import pytest

from builders import run, valued
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.client import TRANSACTION
from magicbyte.access.client.fetch import FetchOptions, read_records
from magicbyte.access.client.groups import Committed, committed_offsets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions
from magicbyte.access.client.transactions import TransactionalProducer
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, ErrorCode, UnknownOutcomeError, UnsupportedVersionError
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from magicbyte.testing import Broker

INPUT = ("input", 0)
SECONDS = 60


def on_a_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """Run a test as a task of a loop of its own."""

    @functools.wraps(test)
    def run_test(*arguments: object, **named: object) -> None:
        run(test(*arguments, **named), SECONDS)

    return run_test


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}) as broker:
        run(_make_input(broker))
        yield broker


async def _make_input(broker: Broker) -> None:
    async with Client(broker.bootstrap_servers) as client:
        await create_topic(client, NewTopic(INPUT[0]))


@contextlib.asynccontextmanager
async def topic(broker: Broker, name: str, **options: int) -> AsyncIterator[Client]:
    """Give a client, and make a topic of two partitions."""
    async with Client(broker.bootstrap_servers, backoff_ms=1, **options) as client:
        await create_topic(client, NewTopic(name, 2))
        yield client


async def read(client: Client, name: str, *, committed: bool = True) -> list[list[bytes | None]]:
    """Return the values of each partition, for readers of committed records or for all."""
    found = []
    for partition in (0, 1):
        start, end = await bounds(client, name, partition)
        options = FetchOptions(committed=committed)
        columns = read_records(client, name, partition, start, end, options)
        found.append([record.value async for each in columns for record in each])
    return found


async def settled(client: Client, name: str) -> None:
    """Wait until no transaction of the topic is open: a coordinator answers before it has written its markers."""
    producer = await TransactionalProducer.begin(client, f"behind-{name}")
    async with producer.transaction():
        for partition in (0, 1):
            await producer.send(name, partition, valued(b"last"))
    for partition in (0, 1):
        options = FetchOptions(committed=True)
        async for columns in read_records(client, name, partition, 0, None, options):
            if any(record.value == b"last" for record in columns):
                break


def without_last(found: list[list[bytes | None]]) -> list[list[bytes | None]]:
    return [[value for value in values if value != b"last"] for values in found]


@on_a_loop
async def test_committed_records_are_read_and_aborted_ones_are_not(broker: Broker) -> None:
    async with topic(broker, "both") as client:
        producer = await TransactionalProducer.begin(client, "both")
        for number, end in enumerate([producer.commit, producer.abort] * 2):
            value = b"%d" % number
            options = ProduceOptions(list(Codec)[number])
            await asyncio.gather(*(producer.send("both", at, valued(value, value), options) for at in (0, 1, 0)))
            await end()
        await settled(client, "both")
        assert without_last(await read(client, "both")) == [[b"0"] * 4 + [b"2"] * 4, [b"0"] * 2 + [b"2"] * 2]
        everything = without_last(await read(client, "both", committed=False))
        assert [len(values) for values in everything] == [16, 8]


@on_a_loop
async def test_a_transaction_without_anything_in_it_asks_for_nothing(broker: Broker) -> None:
    async with topic(broker, "nothing") as client:
        producer = await TransactionalProducer.begin(client, "nothing")
        with broker.fault("EndTxn", times=None, disconnect="before") as fault:
            await producer.commit()
            await producer.abort()
        assert not fault.hits


@on_a_loop
async def test_offsets_of_a_group_are_committed_with_the_records_or_not_at_all(broker: Broker) -> None:
    async with topic(broker, "offsets") as client:
        producer = await TransactionalProducer.begin(client, "offsets")
        async with producer.transaction():
            await producer.send("offsets", 0, valued(b"1"))
            await producer.commit_offsets("g", {INPUT: Committed(5, "told")})

        async def fail() -> None:
            async with producer.transaction():
                await producer.commit_offsets("g", {INPUT: Committed(7)})
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        while (found := await committed_offsets(client, "g", [INPUT])) == {}:
            await asyncio.sleep(0.01)  # until the marker is written
        assert found == {INPUT: Committed(5, "told")}


@pytest.mark.parametrize("lost", ["before", "after"])
@pytest.mark.parametrize(
    "api",
    [
        "FindCoordinator",
        "InitProducerId",
        "AddPartitionsToTxn",
        "Produce",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
    ],
)
@on_a_loop
async def test_a_request_or_an_answer_that_is_lost_loses_no_record_and_doubles_none(
    api: str, lost: str, broker: Broker
) -> None:
    name = f"{api}-{lost}"
    async with topic(broker, name) as client:
        with broker.fault(api, disconnect="before" if lost == "before" else "after") as fault:
            producer = await TransactionalProducer.begin(client, name)
            for number in range(3):
                async with producer.transaction():
                    await producer.send(name, 0, valued(b"%d" % number))
                    await producer.send(name, 0, valued(b"%d+" % number))
                    await producer.commit_offsets(name, {INPUT: Committed(number)})
        assert fault.hits == 1
        await settled(client, name)
        assert without_last(await read(client, name, committed=False)) == [[b"0", b"0+", b"1", b"1+", b"2", b"2+"], []]
        assert without_last(await read(client, name)) == [[b"0", b"0+", b"1", b"1+", b"2", b"2+"], []]


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
                                  ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE])  # fmt: skip
@on_a_loop
async def test_refusals_that_may_pass_are_asked_again(code: ErrorCode, broker: Broker) -> None:
    name = code.name
    async with topic(broker, name) as client:
        with contextlib.ExitStack() as faults:
            for api in ("InitProducerId", "AddOffsetsToTxn", "EndTxn"):
                faults.enter_context(broker.fault(api, error=code, times=2))
            producer = await TransactionalProducer.begin(client, name)
            async with producer.transaction():
                await producer.commit_offsets(name, {INPUT: Committed(1)})
                await producer.send(name, 1, valued(b"1"))
        await settled(client, name)
        assert without_last(await read(client, name)) == [[], [b"1"]]


@on_a_loop
async def test_a_refusal_that_stays_ends_after_a_time_and_says_what_to_do(broker: Broker) -> None:
    async with topic(broker, "stays", retry_ms=50) as client:
        with (
            broker.fault("InitProducerId", error=ErrorCode.CONCURRENT_TRANSACTIONS, times=None),
            pytest.raises(BrokerError, match="markers of the previous transaction are still not written"),
        ):
            await TransactionalProducer.begin(client, "stays")
        with pytest.raises(BrokerError, match="above the brokers' transaction"):
            await TransactionalProducer.begin(client, "stays", timeout_ms=2_000_000_000)


@on_a_loop
async def test_a_successor_fences_and_what_was_open_is_aborted(broker: Broker) -> None:
    async with topic(broker, "fenced") as client:
        old = await TransactionalProducer.begin(client, "fenced")
        await old.send("fenced", 0, valued(b"old"))
        new = await TransactionalProducer.begin(client, "fenced")
        async with new.transaction():
            await new.send("fenced", 0, valued(b"new"))
        with pytest.raises(BrokerError, match="another producer began with this transactional id") as refused:
            await old.commit()
        assert refused.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        await old.abort()
        with pytest.raises(BrokerError, match="another producer began with this transactional id"):
            await old.send("fenced", 0, valued(b"old again"))
        await settled(client, "fenced")
        assert without_last(await read(client, "fenced")) == [[b"new"], []]


@on_a_loop
async def test_a_fenced_producer_leaves_its_block_with_the_error_from_inside(broker: Broker) -> None:
    async with topic(broker, "left") as client:
        old = await TransactionalProducer.begin(client, "left")

        async def fail() -> None:
            async with old.transaction():
                await old.send("left", 0, valued(b"old"))
                await TransactionalProducer.begin(client, "left")
                await old.send("left", 1, valued(b"old"))

        with pytest.raises(BrokerError, match="another producer began"):
            await fail()
        with pytest.raises(BrokerError, match="another producer began"):
            await old.send("left", 0, valued(b"old"))


@on_a_loop
async def test_after_a_failure_a_transaction_can_only_be_aborted_and_the_next_one_has_a_new_epoch(
    broker: Broker,
) -> None:
    async with topic(broker, "failed") as client:
        producer = await TransactionalProducer.begin(client, "failed")
        await producer.send("failed", 0, valued(b"lost"))
        with pytest.raises(BrokerError) as refused:
            await producer.send("failed", 1, valued(bytes(3 << 20)))
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        for work in (producer.commit(), producer.send("failed", 0, valued(b"lost"))):
            with pytest.raises(BrokerError, match="it can only be aborted"):
                await work
        await producer.abort()
        async with producer.transaction():
            for partition in (0, 1):
                await producer.send("failed", partition, valued(b"kept"))
        await settled(client, "failed")
        assert without_last(await read(client, "failed")) == [[b"kept"], [b"kept"]]


@on_a_loop
async def test_without_any_answer_it_is_said_that_the_end_is_not_known(broker: Broker) -> None:
    async with topic(broker, "unknown", retry_ms=0) as client:
        producer = await TransactionalProducer.begin(client, "unknown")
        await producer.send("unknown", 0, valued(b"1"))
        with (
            broker.fault("EndTxn", disconnect="after"),
            pytest.raises(UnknownOutcomeError, match="either all of it is committed, or nothing"),
        ):
            await producer.commit()
        with pytest.raises(UnknownOutcomeError):
            await producer.send("unknown", 0, valued(b"2"))


@pytest.mark.parametrize("lost", ["before", "after"])
@on_a_loop
async def test_a_copy_of_a_lost_end_that_comes_late_does_not_end_the_next_transaction(
    lost: str, broker: Broker
) -> None:
    """KAFKA-17754: in one epoch the coordinator could not tell the two apart."""
    name = f"late-{lost}"
    async with topic(broker, name) as client:
        producer = await TransactionalProducer.begin(client, name)
        late = EndTxnRequest(
            transactional_id=name,
            producer_id=producer._producer_id,
            producer_epoch=producer._epoch,
            committed=True,
        )
        with broker.fault("EndTxn", disconnect="before" if lost == "before" else "after"):
            async with producer.transaction():
                await producer.send(name, 0, valued(b"1"))
        await producer.send(name, 0, valued(b"2"))
        coordinator = await client.coordinator(name, TRANSACTION)
        refused = await client.ask(coordinator, late, EndTxnResponse, versions=range(4))
        assert refused.error_code == ErrorCode.PRODUCER_FENCED
        await producer.abort()
        await settled(client, name)
        assert without_last(await read(client, name)) == [[b"1"], []]


@on_a_loop
async def test_a_topic_in_an_older_format_is_refused_with_kafkas_code_and_what_to_do(broker: Broker) -> None:
    async with topic(broker, "newer") as client:
        await create_topic(client, NewTopic("older", 1, configs={"message.format.version": "0.10.2"}))
        producer = await TransactionalProducer.begin(client, "older")
        with pytest.raises(BrokerError, match="which hold no transactions") as refused:
            async with producer.transaction():
                await producer.send("older", 0, valued(b"1"))
        assert refused.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("release", ["0.11.0", "2.4"])
@on_a_loop
async def test_brokers_that_cannot_renew_an_epoch_need_a_new_producer_after_a_failure(release: str) -> None:
    async with Broker({"as.version": release}) as broker, topic(broker, "renewed") as client:
        producer = await TransactionalProducer.begin(client, "renewed")
        with broker.fault("EndTxn", disconnect="after"):
            async with producer.transaction():
                await producer.send("renewed", 0, valued(b"1"))
        async with producer.transaction():  # which a lost answer alone does not ask for
            await producer.send("renewed", 0, valued(b"2"))
        with pytest.raises(BrokerError):
            async with producer.transaction():
                await producer.send("renewed", 0, valued(bytes(3 << 20)))
        with pytest.raises(UnsupportedVersionError, match="InitProducerId"):
            await producer.send("renewed", 0, valued(b"3"))
        producer = await TransactionalProducer.begin(client, "renewed")
        async with producer.transaction():
            await producer.send("renewed", 0, valued(b"4"))
        await settled(client, "renewed")
        assert without_last(await read(client, "renewed")) == [[b"1", b"2", b"4"], []]


@on_a_loop
async def test_brokers_before_0_11_have_no_transactions() -> None:
    async with Broker({"as.version": "0.10.2"}) as broker, Client(broker.bootstrap_servers) as client:
        with pytest.raises(UnsupportedVersionError):
            await TransactionalProducer.begin(client, "too old")


@on_a_loop
async def test_a_send_that_is_cancelled_leaves_a_transaction_that_is_aborted(broker: Broker) -> None:
    async with topic(broker, "cancelled") as client:
        producer = await TransactionalProducer.begin(client, "cancelled")
        await producer.send("cancelled", 0, valued(b"1"))
        with broker.fault("Produce", disconnect="before", times=None) as fault:
            sending = asyncio.create_task(producer.send("cancelled", 0, valued(b"2")))
            while not fault.hits:
                await asyncio.sleep(0.01)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
        with pytest.raises(BrokerError, match="it can only be aborted"):
            await producer.commit()
        await producer.abort()
        await settled(client, "cancelled")
        assert without_last(await read(client, "cancelled")) == [[], []]
