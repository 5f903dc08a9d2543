"""Protocol 2 of transactions (KIP-890): a Java producer goes by it, and a real broker and ours are asked the same.

What is compared: the answers, step by step, and the records of `__transaction_state`, but for their times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from interop import jvm
from interop.test_transactional_clients import PATIENCE_S, VALUES, values
from interop.test_transactional_clients import committed as committed_by
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.internal_topics import STATE_TOPIC
from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.transactions.answers import codes_of
from magicbyte.engine.transactions.records import TransactionKey, TransactionValue, decode_value
from magicbyte.engine.transactions.transaction import by_topic, places_of
from magicbyte.testing import Broker, Cluster
from server.broker.serving import Peer
from server.broker.transacting import (
    NONE,
    Pair,
    add,
    add_offsets,
    commit_offset,
    committed,
    end,
    end_and_raise,
    found,
    init,
    read,
    send,
)

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

RELEASE = "4.1"
REAL = "4.3.1"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
A, B = ("t", 0), ("t", 1)
NOT_YET = {ErrorCode(each) for each in (3, 5, 6, 13, 14, 15, 16, 19, 51)}
"""Answers after which a client asks again: how often they come depends on how quick the broker is."""

Said = tuple[str, object]


@pytest.mark.parametrize("release", [RELEASE, "3.9"])
@pytest.mark.parametrize("brokers", [1, 3])
def test_a_java_producer_goes_by_the_protocol_of_the_release_and_carries_over_exactly_once(
    release: str, brokers: int
) -> None:
    settings = {**SETTINGS, "as.version": release}
    with Broker(settings) if brokers == 1 else Cluster(brokers, settings) as served:
        address, numbers = served.bootstrap_servers, range(1, brokers + 1)
        filler = Producer({"bootstrap.servers": address})
        for value in VALUES:
            filler.produce("from", value, partition=0)
        assert filler.flush(PATIENCE_S) == 0
        jvm.run("Transfer", address, "from", "to", "g", "transfer", str(len(VALUES)), version=REAL)
        assert values(address, "to") == VALUES
        assert len(values(address, "to", "read_uncommitted")) > len(VALUES)
        assert committed_by(address, "g") == len(VALUES)
        members = [served] if isinstance(served, Broker) else [served.brokers[each] for each in numbers]
        asked = {
            (each.api_key, each.version)
            for member in members
            for each in member.served.metrics.asked
            if each.api_key != 24 or each.version < 4  # what leaders ask coordinators
        }
    if release == RELEASE:
        assert {(0, 13), (26, 5), (28, 5)} <= asked
        assert not {key for key, _ in asked} & {24, 25}, "partitions join by their records"
    else:
        assert {(0, 11), (24, 3), (25, 4), (26, 4), (28, 4)} <= asked
        assert not asked & {(0, 12), (0, 13), (26, 5), (28, 5)}


class Script:
    """Asks a broker, and notes what it says. Producer ids are numbered as they appear."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.said = peer, list[Said]()
        self.ids: dict[int, int] = {-1: -1}

    def pair(self, pair: Pair) -> tuple[int, int]:
        return self.ids.setdefault(pair.producer_id, len(self.ids)), pair.epoch

    async def step(self, what: str, ask: Callable[[], Awaitable[object]]) -> Pair:
        """Ask until there is an answer; note it, and return the pair in it."""
        while True:
            told = await ask()
            code = told[0] if isinstance(told, tuple | list) else told
            if code not in NOT_YET:
                break
            await asyncio.sleep(0.02)
        found = Pair(-1, -1)
        if isinstance(told, tuple) and isinstance(told[1], Pair):
            found, told = told[1], (told[0], *self.pair(told[1]))
        self.said.append((what, told))
        return found

    async def init(self, what: str, pair: Pair = NONE) -> Pair:
        return await self.step(what, lambda: init(self.peer, "x", pair, version=5))

    async def end(self, what: str, pair: Pair, *, commit: bool = True, key: str = "x") -> Pair:
        return await self.step(what, lambda: end_and_raise(self.peer, pair, commit=commit, key=key))

    async def send(
        self, what: str, pair: Pair, place: tuple[str, int], sequence: int, *, version: int = 12, key: str = "x"
    ) -> None:
        await self.step(what, lambda: send(self.peer, pair, place, sequence, b"v", version=version, key=key))

    async def offsets(self, what: str, *, count: bool) -> None:
        """Note the committed offset; `count`: once those of a transaction whose marker is written do."""

        async def work() -> tuple[int, int]:
            offset, code = await committed(self.peer, stable=True)
            while count and code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                await asyncio.sleep(0.02)
                offset, code = await committed(self.peer, stable=True)
            return code, offset

        await self.step(what, work)

    async def ask(self, what: str, pair: Pair, *places: tuple[str, int], verify: bool) -> None:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id="x",
            producer_id=pair.producer_id,
            producer_epoch=pair.epoch,
            verify_only=verify,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=(index,)) for topic, index in places],
        )

        async def work() -> list[int]:
            request = AddPartitionsToTxnRequest(transactions=[transaction])
            (told,) = (await self.peer.ask(request, 5, AddPartitionsToTxnResponse)).results_by_transaction
            return [int(each) for each in codes_of(told).values()]

        await self.step(what, work)


async def converse(script: Script) -> None:
    """Go through what producers of both protocols may ask, retries and late requests included."""
    peer = script.peer
    first = await script.init("a new id")
    stranger = Pair(first.producer_id + 500_000, 0)
    await script.end("commit of nothing", first)
    second = await script.end("abort of nothing", first, commit=False)
    await script.end("abort of nothing, again", first, commit=False)
    await script.end("commit in place of that abort", first)
    await script.end("commit of nothing, aborted before", second)
    await script.send("a partition joins with a gap", second, A, 3)
    await script.send("a partition joins", second, A, 0)
    await script.send("the same batch", second, A, 0)
    await script.send("the next batch", second, A, 1)
    await script.send("another partition joins", second, B, 0)
    await script.send("an older epoch", first, A, 0)
    await script.send("a later epoch", Pair(second.producer_id, 9), A, 0)
    await script.send("another producer", stranger, A, 0)
    await script.send("another name", second, ("u", 0), 0, key="unknown")
    await script.ask("who is in", second, A, B, ("u", 0), verify=True)
    await script.ask("who is in, older epoch", first, A, verify=True)
    await script.ask("who is in, unknown partition", second, A, ("missing", 0), verify=True)
    await script.end("a late end", first)
    await script.end("an early end", Pair(second.producer_id, 9))
    await script.end("another producer's end", stranger)
    await script.end("an end of an unknown name", second, key="unknown")
    await script.end("an end without a name", second, key="")
    third = await script.end("commit", second)
    await script.end("commit, whose answer was lost", second)
    await script.end("abort in place of that commit", second, commit=False)
    await script.end("two ends", third)
    await script.send("records that come late", second, A, 2)
    await script.send("records that come again", second, A, 0)
    await script.step("offsets join", lambda: commit_offset(peer, third, "g", A, 5, version=5))
    await script.offsets("offsets are pending", count=False)
    fourth = await script.end("commit of offsets", third)
    await script.end("commit of offsets, again", third)
    await script.offsets("offsets count", count=True)
    await script.step("late offsets", lambda: commit_offset(peer, third, "g", A, 6, version=5))
    await script.send("a transaction that is to be fenced", fourth, A, 0)
    fifth = await script.init("fenced by its owner", fourth)
    await script.send("records of the fenced one", fourth, A, 1)
    await script.end("commit of the fenced one", fourth)
    await script.end("abort of the fenced one", fourth, commit=False)
    sixth = await script.init("a successor")
    await script.init("a successor's retry", fifth)
    await script.send("of protocol 1, not added", sixth, A, 0, version=11)
    await script.send("of protocol 1, not added, before there was a code", sixth, A, 0, version=9)
    await script.step("of protocol 1, added", lambda: add(peer, sixth, A))
    await script.send("of protocol 1", sixth, A, 0, version=11)
    await script.step("of protocol 1, offsets not added", lambda: commit_offset(peer, sixth, "g", A, 7, version=4))
    await script.step("of protocol 1, offsets added", lambda: add_offsets(peer, sixth, "g"))
    await script.step("of protocol 1, offsets", lambda: commit_offset(peer, sixth, "g", A, 7, version=4))
    await script.step("of protocol 1, commit", lambda: end(peer, sixth, version=4))
    await script.step("of protocol 1, commit again", lambda: end(peer, sixth, version=4))
    await script.step("of protocol 1, abort", lambda: end(peer, sixth, commit=False, version=4))
    await script.send("of protocol 1, the same batch", sixth, A, 0, version=11)
    await script.ask("a broker adds", sixth, A, verify=False)
    await script.step("what a broker added, commit of protocol 1", lambda: end(peer, sixth, version=4))
    await script.step("what a broker added, commit again", lambda: end(peer, sixth, version=4))
    script.said.append(("committed records", (await read(peer, A))._replace(aborted=[])))


async def features(peer: Peer) -> list[Said]:
    software = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    said = list[Said]()
    for version in (3, 4):
        told = await peer.ask(software, version, ApiVersionsResponse)
        named = [each for each in told.supported_features if each.name == "transaction.version"]
        said += [(f"supported {version}", (each.min_version, each.max_version)) for each in named]
        levels = [each for each in told.finalized_features if each.name == "transaction.version"]
        said += [(f"finalized {version}", (each.min_version_level, each.max_version_level)) for each in levels]
    return said


async def stored(peer: Peer, ids: dict[int, int]) -> list[Said]:
    """Return the records of `__transaction_state`, without their times, and their versions."""
    said = list[Said]()
    for raw in (await read(peer, (STATE_TOPIC, 0), committed=False)).values:
        value = decode_value(TransactionKey("x"), raw)
        assert isinstance(value, TransactionValue)
        named = {name: ids.get(getattr(value, name), -2) for name in ("producer_id", "previous_producer_id")}
        places = value.partitions and by_topic(places_of(value))  # Kafka's order is that of a hash table
        value = value._replace(
            **named, partitions=places, last_update_timestamp=0, start_timestamp=min(value.start_timestamp, 0)
        )
        said.append((f"record {len(said)}", value))
    return said


def conversation(address: str) -> list[Said]:
    async def work() -> list[Said]:
        host, _, port = address.rpartition(":")
        async with Client(address) as client:
            for topic, partitions in (("t", 2), ("u", 1)):
                await create_topic(client, NewTopic(topic, partitions))
        peer = Peer(await SocketStream.connect(host, int(port)))
        for kind, key in enumerate(("g", "x")):
            while await found(peer, key, kind):
                await asyncio.sleep(0.05)
        script = Script(peer)
        await converse(script)
        said = [*script.said, *await features(peer), *await stored(peer, script.ids)]
        peer.close()
        return said

    return asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_a_real_broker_and_ours_say_and_store_the_same(tmp_path: Path) -> None:
    given = [f"{name}={value}" for name, value in SETTINGS.items()]
    with jvm.broker(REAL, tmp_path, *given) as state:
        theirs = conversation(state["bootstrap"])
    with Broker({**SETTINGS, "as.version": RELEASE}) as broker:
        mine = conversation(broker.bootstrap_servers)
    assert dict(mine) == dict(theirs)
    assert len(mine) == len(theirs)
