"""Transactions at our broker, by raw requests: answers, log contents, and the records of readers.

Numbers are those of the checks in spec/transactions.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from builders import run
from magicbyte.access.client import Client
from magicbyte.access.client import transaction_admin as admin
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.errors import BrokerError
from magicbyte.engine.internal_topics import OFFSETS_TOPIC, STATE_TOPIC
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol import APIS, Message
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from magicbyte.engine.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from magicbyte.engine.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest
from magicbyte.engine.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from magicbyte.engine.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import marker_of
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.entry import entries
from magicbyte.engine.transactions import answers
from magicbyte.engine.transactions.answers import FIRST_OF_BROKERS
from magicbyte.engine.transactions.effects import SendMarkers
from magicbyte.engine.transactions.records import TransactionKey, TransactionValue, decode_key, decode_value
from magicbyte.server.broker.broker import Broker
from magicbyte.server.partitions.appends import Appended, NewSet
from magicbyte.server.settings.served import SERVED
from magicbyte.server.settings.topic_config import IDENTICAL
from server.broker.serving import KEEP_ALL, Peer, Running
from server.broker.transacting import (
    NONE,
    Pair,
    add,
    add_offsets,
    begin,
    commit_offset,
    committed,
    end,
    ended,
    found,
    init,
    read,
    send,
)

SETTINGS = {
    **KEEP_ALL,
    "num.partitions": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "5",
}
UNVERIFIED = {"transaction_partition_verification_enable": "false"}
A, B, C = (("t", each) for each in range(3))


@asynccontextmanager
async def serving(folder: Path, **settings: str) -> AsyncIterator[tuple[Broker, Peer]]:
    """Give a broker with a topic, whose coordinator of transactions can be asked, and a connection."""
    given = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
    async with Running(folder, given) as broker:
        peer = await Peer.of(broker)
        if broker.topics.get("t") is None:
            await broker.parts.topic_changes.create("t")
        await found(peer)
        yield broker, peer
        peer.close()


def log_entries(broker: Broker, topic: str, index: int) -> Iterator[RecordBatch]:
    log = broker.replicas.partition(topic, index).log
    data = b"".join(each.log.read_at(0, each.size) for each in log.segments)
    for _, entry in entries(memoryview(data)):
        assert isinstance(entry, RecordBatch)
        yield entry


def states(broker: Broker, key: str = "x") -> list[str]:
    """Return what the log says of an id, record by record: each is a batch as Kafka writes it."""
    told = []
    for batch in log_entries(broker, STATE_TOPIC, partition_for(key, 5)):
        assert (batch.producer_id, batch.base_sequence, batch.record_count, batch.attributes) == (-1, -1, 1, 0)
        (record,) = [record for columns in decode(batch.buffer) for record in columns]
        assert record.key is not None
        of, value = decode_key(record.key), decode_value(decode_key(record.key), record.value)
        assert isinstance(of, TransactionKey)
        assert isinstance(value, TransactionValue)
        assert value.state is not None
        told.append(f"{value.state.label} {value.producer_epoch}")
    return told


def markers(broker: Broker, place: tuple[str, int]) -> list[tuple[str, int]]:
    """Return what the markers of a partition say, with the epochs of their producers."""
    controls = [each for each in log_entries(broker, *place) if each.is_control]
    return [(told.type.name, each.producer_epoch) for each in controls if (told := marker_of(each)) is not None]


async def test_committed_records_are_read_and_aborted_ones_are_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        pair = await begin(peer)
        assert await add(peer, pair, A, B) == [0, 0]
        assert await send(peer, pair, A, 0, b"a", b"b") == (0, 0)
        assert (await read(peer, A)) == ([], 0, [])
        assert (await read(peer, A, committed=False)).values == [b"a", b"b"]
        await ended(peer, pair)
        assert (await read(peer, A)) == ([b"a", b"b"], 3, [])
        assert await add(peer, pair, A) == [0]
        assert await send(peer, pair, A, 2, b"c") == (0, 3)
        await ended(peer, pair, commit=False)
        assert await read(peer, A) == ([b"a", b"b", b"c"], 5, [(pair.producer_id, 3)])
        assert markers(broker, A) == [("COMMIT", 0), ("ABORT", 0)]
        assert markers(broker, B) == [("COMMIT", 0)]
        assert markers(broker, C) == []
        assert states(broker) == [
            "Empty 0", "Ongoing 0", "PrepareCommit 0", "CompleteCommit 0", "Ongoing 0", "PrepareAbort 0",
            "CompleteAbort 0",
        ]  # fmt: skip


async def test_60_61_committed_records_are_read_up_to_the_open_transaction_with_the_aborted_ones_named(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (_, peer):
        pair = await begin(peer)
        for commit in (False, True):
            await add(peer, pair, A)
            await send(peer, pair, A, 0 if not commit else 2, b"a", b"b")
            await ended(peer, pair, commit=commit)
        await add(peer, pair, A)
        await send(peer, pair, A, 4, b"open")
        aborted = [(pair.producer_id, 0)]
        assert await read(peer, A) == ([b"a", b"b", b"a", b"b"], 6, aborted)
        assert (await read(peer, A, offset=1)).aborted == aborted
        assert (await read(peer, A, offset=3)).aborted == []
        assert (await read(peer, A, offset=6)).values == []
        await ended(peer, pair)


async def test_a_transaction_index_that_is_lost_beside_a_clean_shutdown_makes_no_aborted_record_committed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as (_, peer):
        pair = await begin(peer)
        for sequence in range(2):
            await add(peer, pair, A)
            await send(peer, pair, A, sequence, b"a")
            await ended(peer, pair, commit=sequence == 1)
        whole = await read(peer, A)
        assert whole.aborted == [(pair.producer_id, 0)]
    (index,) = (tmp_path / "t-0").glob("*.txnindex")
    content = index.read_bytes()
    index.unlink()
    caplog.clear()
    async with serving(tmp_path) as (_, peer):
        assert await read(peer, A) == whole
        assert await read(peer, A) == whole
        (warning,) = (each for each in caplog.messages if "transaction index" in each)
        assert warning.startswith(f"t-0: a transaction index contradicts the log: {index}")
    assert index.read_bytes() == content


async def test_27_readers_stop_before_a_transaction_whose_end_is_answered_until_its_marker_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as (broker, peer):
        sender, held = broker.transactions._sender, list[SendMarkers]()
        pair = await begin(peer)
        await add(peer, pair, A)
        await send(peer, pair, A, 0, b"a")
        with monkeypatch.context() as patched:
            patched.setattr(sender, "send", held.append)
            assert await end(peer, pair) == 0
            while not held:
                await asyncio.sleep(0.01)
        assert await read(peer, A) == ([], 0, [])
        assert await end(peer, pair) == 51
        sender.send(held[0])
        while (code := await end(peer, pair)) == 51:
            await asyncio.sleep(0.01)
        assert code == 0
        assert await read(peer, A) == ([b"a"], 2, [])


async def test_2_3_4_5_ids_and_epochs_come_from_init_producer_id(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        (code, first), (_, second) = await init(peer), await init(peer)
        assert (code, second) == (0, Pair(first.producer_id, first.epoch + 1))
        plain = [await init(peer, None) for _ in range(2)]
        assert plain[0][1].producer_id != plain[1][1].producer_id
        assert [pair.epoch for _, pair in plain] == [0, 0]
        assert states(broker) == ["Empty 0", "Empty 1"]
        assert (await init(peer, ""))[0] == 42
        assert [(await init(peer, timeout_ms=each))[0] for each in (0, -1, 900_001)] == [50, 50, 50]
        assert (await init(peer, "x", Pair(first.producer_id, -1), version=3))[0] == 42
        assert (await init(peer, None, Pair(-1, 3), version=3)) == (42, NONE)


async def test_11_who_comes_with_the_same_id_fences_the_one_before(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        old = await begin(peer)
        await add(peer, old, A)
        await send(peer, old, A, 0, b"a")
        assert (await init(peer))[0] == 51
        new = await begin(peer)
        assert new == Pair(old.producer_id, 2)
        assert markers(broker, A) == [("ABORT", 1)]
        assert [await end(peer, old, version=each) for each in (1, 2)] == [47, 90]
        assert (await send(peer, old, A, 1, b"b"))[0] == 47
        assert await read(peer, A) == ([b"a"], 2, [(old.producer_id, 0)])


async def test_16_17_19_22_23_partitions_are_added_all_or_none_and_an_end_can_be_repeated(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        pair = await begin(peer)
        assert await end(peer, pair) == 48
        assert await add(peer, pair, A, ("missing", 0)) == [55, 3]
        assert states(broker) == ["Empty 0"]
        assert await add_offsets(peer, pair, "g") == 0
        assert await add(peer, pair, A) == await add(peer, pair, A) == [0]
        described = await peer.ask(
            DescribeTransactionsRequest(transactional_ids=["x", "y"]), 0, DescribeTransactionsResponse
        )
        topics = {each.topic: each.partitions for each in described.transaction_states[0].topics}
        assert topics == {"t": (0,), OFFSETS_TOPIC: (partition_for("g", 2),)}
        assert [each.error_code for each in described.transaction_states] == [0, 105]
        assert states(broker) == ["Empty 0", "Ongoing 0", "Ongoing 0"]
        listed = await peer.ask(ListTransactionsRequest(state_filters=["Foo", "Ongoing"]), 1, ListTransactionsResponse)
        assert (listed.unknown_state_filters, len(listed.transaction_states)) == (["Foo"], 1)
        await ended(peer, pair)
        assert [await end(peer, pair), await end(peer, pair, commit=False)] == [0, 48]


async def test_a_client_adds_no_partition_of_the_brokers_own_topics(tmp_path: Path) -> None:
    """As a real 2.8.2: else anybody could have markers written into the state of all transactions."""

    async with serving(tmp_path) as (_, peer):
        pair = await begin(peer)
        assert await add(peer, pair, A, (STATE_TOPIC, 0), (OFFSETS_TOPIC, 9), ("missing", 0)) == [55, 29, 29, 3]
        assert await add(peer, pair, (STATE_TOPIC, 0)) == [29]
        assert await add(peer, pair, A) == [0]


async def test_36_a_transaction_whose_time_is_up_is_aborted_and_its_producer_fenced(tmp_path: Path) -> None:
    async with serving(tmp_path, **UNVERIFIED) as (broker, peer):
        pair = await begin(peer, timeout_ms=50)
        await send(peer, pair, A, 0, b"a")
        await add(peer, pair, A)  # from here on its time runs
        while (await read(peer, A)).last_stable_offset < 2:
            await asyncio.sleep(0.01)
        assert markers(broker, A) == [("ABORT", 1)]
        assert await end(peer, pair) == 90
        assert await begin(peer) == Pair(pair.producer_id, 2)


async def test_64_to_67_offsets_count_when_their_transaction_commits_over_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        await found(peer, "g", 0)
        pair = await begin(peer)
        assert await add_offsets(peer, pair, "g") == 0
        assert await commit_offset(peer, pair, "g", A, 5) == await commit_offset(peer, pair, "g", A, 7) == 0
        assert await committed(peer) == (-1, 0)
        assert await committed(peer, stable=True) == (-1, 88)
        written = list(log_entries(broker, OFFSETS_TOPIC, partition_for("g", 2)))
        assert [(each.is_transactional, each.base_sequence, each.producer_epoch) for each in written] == [
            (True, 0, 0)
        ] * 2
    async with serving(tmp_path) as (broker, peer):
        await found(peer, "g", 0)
        while (found_now := await committed(peer, stable=True))[1] == 14:
            await asyncio.sleep(0.01)
        assert found_now == (-1, 88)
        await ended(peer, pair)
        assert await committed(peer, stable=True) == (7, 0)
        await add_offsets(peer, pair, "g")
        await commit_offset(peer, pair, "g", A, 9)
        await ended(peer, pair, commit=False)
        assert await committed(peer, stable=True) == (7, 0)


async def test_after_a_restart_in_the_middle_the_transaction_continues(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        pair = await begin(peer)
        await add(peer, pair, A)
        await send(peer, pair, A, 0, b"a")
    async with serving(tmp_path) as (broker, peer):
        while (code := (await send(peer, pair, A, 1, b"b"))[0]) == 5:
            await asyncio.sleep(0.01)
        assert code == 0
        while (codes := await add(peer, pair, B)) == [14]:
            await asyncio.sleep(0.01)
        assert codes == [0]
        await ended(peer, pair)
        assert (await read(peer, A)).values == [b"a", b"b"]
        assert states(broker)[-1] == "CompleteCommit 0"


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("commit", [True, False])
async def test_42_markers_that_were_not_written_before_a_stop_are_written_afterwards(
    commit: bool, written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "COMMIT" if commit else "ABORT"

    async with serving(tmp_path) as (broker, peer):
        sender = broker.transactions._sender
        send_markers = sender.send
        with monkeypatch.context() as patched:
            patched.setattr(
                sender, "send", lambda sent: send_markers(sent._replace(partitions=sent.partitions[:written]))
            )
            pair = await begin(peer)
            await add(peer, pair, A, B)
            await send(peer, pair, A, 0, b"a")
            assert await end(peer, pair, commit=commit) == 0
            while len(markers(broker, A)) < written:
                await asyncio.sleep(0.01)
            assert await end(peer, pair, commit=commit) == 51
    async with serving(tmp_path) as (broker, peer):
        while (code := await end(peer, pair, commit=commit)) in (14, 51):
            await asyncio.sleep(0.01)
        assert code == 0
        assert markers(broker, A) == [(name, 0)] * (1 + written)
        assert markers(broker, B) == [(name, 0)]
        seen = await read(peer, A)
        assert (seen.last_stable_offset, seen.aborted) == (2 + written, [] if commit else [(pair.producer_id, 0)])
        assert states(broker) == ["Empty 0", "Ongoing 0", f"Prepare{name.title()} 0", f"Complete{name.title()} 0"]


async def test_54_a_transactional_batch_needs_the_id_in_its_request(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, peer):
        pair = await begin(peer)
        await add(peer, pair, A)
        assert await send(peer, pair, A, 0, b"a", key=None) == (53, -1)
        assert (await read(peer, A, committed=False)).values == []


async def test_sets_that_are_taken_as_they_are_may_be_of_any_transaction(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        async with broker.runtime.directory:
            await broker.topics.create("copy", 1, 1, {IDENTICAL: "true"})
        pair = Pair(9, 0)
        assert await send(peer, pair, ("copy", 0), 0, b"a", key=None) == (0, 0)
        assert (await read(peer, ("copy", 0))).last_stable_offset == 0


async def test_70_coordinators_of_groups_and_ids_are_found_and_no_others(tmp_path: Path) -> None:
    async with Running(tmp_path, SETTINGS) as broker:
        peer = await Peer.of(broker)
        assert [await found(peer, kind=each) for each in (0, 1, 7)] == [0, 0, 42]
        topic = broker.topics.known(STATE_TOPIC)
        assert (topic.partitions, topic.configs["cleanup.policy"]) == (5, "compact")
        peer.close()


def test_every_version_that_is_served_is_answered(tmp_path: Path) -> None:
    places = [WritableTxnMarkerTopic(name="t", partition_indexes=(0,))]
    requests: list[Message] = [
        InitProducerIdRequest(transactional_id="y", transaction_timeout_ms=1000),
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="y",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=(0,))],
        ),
        AddOffsetsToTxnRequest(transactional_id="y", group_id="g"),
        EndTxnRequest(transactional_id="y"),
        WriteTxnMarkersRequest(markers=[WritableTxnMarker(topics=places)]),
        DescribeTransactionsRequest(transactional_ids=["y"]),
        ListTransactionsRequest(),
    ]

    async def work() -> None:
        async with serving(tmp_path, as_version="4.1") as (broker, peer):
            for request in requests:
                assert request.API_KEY is not None
                for version in broker.runtime.offer.answered[request.API_KEY]:
                    asked = request
                    if isinstance(request, AddPartitionsToTxnRequest) and version >= FIRST_OF_BROKERS:
                        asked = AddPartitionsToTxnRequest(transactions=list(answers.transactions_of(request)))
                    await peer.ask(asked, version, APIS[request.API_KEY].response)
            find = FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"])
            told = await peer.ask(find, 6, FindCoordinatorResponse)
            assert [(each.key, each.error_code, each.node_id) for each in told.coordinators] == [
                ("x", 0, 0),
                ("y", 0, 0),
            ]

    run(work())
    of_transactions = {key for key, served in SERVED.items() if served.module in ("transaction_requests", "producers")}
    assert of_transactions == {request.API_KEY for request in requests}


async def mark(peer: Peer, pair: Pair, *places: tuple[str, int], coordinator_epoch: int = 0) -> list[int]:
    topics = [WritableTxnMarkerTopic(name=name, partition_indexes=(each,)) for name, each in places]
    marker = WritableTxnMarker(
        producer_id=pair.producer_id,
        producer_epoch=pair.epoch,
        transaction_result=False,
        topics=topics,
        coordinator_epoch=coordinator_epoch,
    )
    response = await peer.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
    return [one.error_code for topic in response.markers[0].topics for one in topic.partitions]


async def test_47_48_49_52_74_markers_of_a_coordinator_are_written_unless_they_are_old(tmp_path: Path) -> None:
    async with serving(tmp_path, **UNVERIFIED) as (broker, peer):
        pair = Pair(77, 1)
        assert (await send(peer, pair, A, 0, b"a"))[0] == 0  # a transaction that no coordinator knows
        assert (await read(peer, A)).last_stable_offset == 0
        assert await mark(peer, Pair(77, 0), A) == [47]
        assert await mark(peer, pair, A, ("missing", 0), B, coordinator_epoch=3) == [0, 3, 0]
        assert await mark(peer, pair, A, coordinator_epoch=2) == [52]
        assert (await read(peer, A)).last_stable_offset == 2
        assert [each.base_offset for each in log_entries(broker, *B)] == [0]
        response = await peer.ask(WriteTxnMarkersRequest(), 1, WriteTxnMarkersResponse)
        assert response.markers == []


async def test_many_markers_of_one_request_are_written_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, **UNVERIFIED) as (broker, peer):
        together, append_all = list[int](), broker.appends.append_all

        async def counted(sets: Sequence[NewSet]) -> list[Appended | Exception]:
            together.append(len(sets))
            return await append_all(sets)

        monkeypatch.setattr(broker.appends, "append_all", counted)
        monkeypatch.setattr("magicbyte.server.coordinating.markers.MOST_PARTITIONS", 2)
        assert await mark(peer, Pair(77, 0), A, B, ("missing", 0), A, A) == [0, 0, 3, 0, 0]
        assert together == [2, 1, 1]
        assert [each.base_offset for each in log_entries(broker, *A)] == [0, 1, 2]


async def test_74_our_client_finds_a_hanging_transaction_and_ends_it_and_no_other(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, **UNVERIFIED) as (broker, peer),
        Client(f"127.0.0.1:{broker.ports['PLAINTEXT']}") as client,
    ):
        pair = await begin(peer)
        await add(peer, pair, A)
        await send(peer, pair, A, 0, b"known")
        await send(peer, Pair(4711, 2), B, 0, b"unknown")
        (listed,) = await admin.list_transactions(client)
        assert (listed.transactional_id, listed.producer_id, listed.state) == ("x", pair.producer_id, "Ongoing")
        described = await admin.describe_transaction(client, "x")
        assert (described.producer_epoch, described.partitions) == (0, (TopicPartition(*A),))
        (hanging,) = (await admin.find_hanging(client, ["t"], idle_ms=-1)).transactions
        assert (hanging.topic, hanging.partition, hanging.producer_id) == (*B, 4711)
        with pytest.raises(BrokerError, match="its coordinator knows it"):
            await admin.hanging_at(client, *A, 0)
        await admin.abort_transaction(client, hanging)
        assert (await read(peer, B)).last_stable_offset == 2
        assert not (await admin.find_hanging(client, ["t"], idle_ms=-1)).transactions


async def test_75_a_topic_that_is_gone_needs_no_marker(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, peer):
        pair = await begin(peer)
        await add(peer, pair, A)
        async with broker.runtime.directory:
            await broker.parts.topic_changes.delete(broker.topics.known("t"))
        await ended(peer, pair)
        assert states(broker)[-1] == "CompleteCommit 0"


@pytest.mark.parametrize("form", ["0", "1"])
async def test_52_a_partition_of_an_older_format_cannot_hold_a_marker_and_needs_none(form: str, tmp_path: Path) -> None:
    async with serving(tmp_path, log_message_format_version=form) as (broker, peer):
        assert await mark(peer, Pair(5, 0), A) == [43]
        pair = await begin(peer)
        assert await add(peer, pair, A) == [0]
        assert (await send(peer, pair, A, 0, b"a"))[0] == 43
        await ended(peer, pair)
        assert broker.transactions.coordinator.transactions["x"].state.label == "CompleteCommit"
