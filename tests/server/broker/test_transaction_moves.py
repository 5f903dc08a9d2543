"""Transactions over several brokers: markers at other leaders, coordinators that end in the middle, lost leaders.

Numbers are those of the checks in spec/transactions.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from magicbyte.access.client import Client
from magicbyte.access.client.admin import delete_topic
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.internal_topics import OFFSETS_TOPIC, STATE_TOPIC
from magicbyte.engine.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import marker_of
from magicbyte.engine.records.entry import entries
from magicbyte.engine.transactions.transaction import Transaction
from magicbyte.server.broker.broker import Broker
from magicbyte.server.coordinating.coordinating import has_partition
from magicbyte.server.stores.znodes.layout import TopicNode, topic_path
from server.broker.clusters import Members, cluster, make, until
from server.broker.serving import Peer
from server.broker.transacting import (
    Pair,
    add,
    add_offsets,
    begin,
    commit_offset,
    committed,
    end,
    ended,
    found,
    read,
    send,
)

A, B, C = (("t", each) for each in range(3))
SETTINGS = {"transaction_state_log_num_partitions": "1"}


@asynccontextmanager
async def transacting(folder: Path, *, factor: int = 3) -> AsyncIterator[Members]:
    """Give three brokers, with a topic of three partitions, each led by another."""
    async with cluster(folder, **SETTINGS) as members, Client(members.bootstrap) as client:
        await make(members, client, factor, partitions=3)
        await until(
            lambda: all(has_partition(each.topics, *C) for each in members.brokers.values())
        )  # whichever broker coordinates
        peer = await Peer.of(members.brokers[1])
        while await found(peer):
            await asyncio.sleep(0.01)
        peer.close()
        yield members


async def coordinator(members: Members) -> tuple[Broker, Peer]:
    """Return who coordinates, as soon as it knows its ids, and a connection to it."""
    await until(
        lambda: (
            len(leaders := members.leaders(STATE_TOPIC)) == 1 and leaders[0].transactions.coordinator.terms.is_active(0)
        )
    )
    broker = members.leader(STATE_TOPIC)
    return broker, await Peer.of(broker)


async def write(members: Members, pair: Pair, place: tuple[str, int], sequence: int, value: bytes) -> None:
    peer = await Peer.of(members.leader(*place))
    assert (await send(peer, pair, place, sequence, value))[0] == 0
    peer.close()


async def values(members: Members, place: tuple[str, int]) -> list[bytes]:
    peer = await Peer.of(members.leader(*place))
    seen = await read(peer, place)
    peer.close()
    return seen.values


def markers(members: Members, place: tuple[str, int]) -> list[int]:
    """Return the coordinator epochs of the markers of a partition."""
    partition = members.replica(members.leader(*place), *place)
    assert partition is not None
    data = b"".join(each.read_at(0, each.size) for segment in partition.log.segments for each in [segment.log])
    batches = [entry for _, entry in entries(memoryview(data)) if isinstance(entry, RecordBatch)]
    told = [marker_of(each) for each in batches if each.is_control]
    return [each.coordinator_epoch for each in told if each is not None and each.coordinator_epoch is not None]


def is_coordinated(members: Members, index: int) -> bool:
    """Whether a partition of the groups has a leader, which knows them."""
    leaders = members.leaders(OFFSETS_TOPIC, index)
    return len(leaders) == 1 and leaders[0].groups.coordinator.terms.is_active(index)


def of(broker: Broker) -> Transaction:
    return broker.transactions.coordinator.transactions["x"]


@pytest.mark.parametrize("awaits_commit", [True, False])
async def test_a_new_coordinator_answers_when_its_records_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, awaits_commit: bool
) -> None:
    """Otherwise, as in Kafka, a partition is added by a record that is lost with the next coordinator."""

    async with transacting(tmp_path) as members:
        for broker in members.brokers.values():
            broker.transactions.kind = broker.transactions.kind._replace(awaits_commit=awaits_commit)
        first, peer = await coordinator(members)
        pair = await begin(peer)
        await until(lambda: members.is_settled(STATE_TOPIC))
        node = await first.membership.store.get(topic_path(STATE_TOPIC))
        replicas = TopicNode.load("", node.data).replicas[0]
        second, last = (members.brokers[each] for each in replicas if each != first.node_id)
        log, copied, behind = (members.replica(each, STATE_TOPIC) for each in (first, second, last))
        assert log is not None
        assert copied is not None
        assert behind is not None
        async with behind.lock:  # it appends nothing, and stays in sync for now
            adding = asyncio.create_task(add(peer, pair, A))
            end_offset = log.log.log_end_offset + 1
            await until(lambda: log.log.log_end_offset == copied.log.log_end_offset == end_offset)
            assert not adding.done()
            await members.kill(first.node_id)
            await asyncio.gather(adding, return_exceptions=True)
            await until(lambda: members.leaders(STATE_TOPIC) == [second])
            asked = await Peer.of(second)
            if not awaits_commit:
                await until(lambda: second.transactions.coordinator.terms.is_active(0))
            assert await add(asked, pair, A) == [14 if awaits_commit else 0]
        while (codes := await add(asked, pair, A)) == [14]:
            await asyncio.sleep(0.01)
        assert codes == [0]
        asked.close()


async def test_28_leaders_of_all_partitions_write_the_markers(tmp_path: Path) -> None:
    async with transacting(tmp_path) as members:
        assert {members.leader("t", index).node_id for index in range(3)} == {1, 2, 3}
        _, peer = await coordinator(members)
        pair = await begin(peer)
        for commit in (True, False):
            assert await add(peer, pair, A, B, C) == [0, 0, 0]
            for place in (A, B):
                await write(members, pair, place, 0 if commit else 1, b"kept" if commit else b"dropped")
            await ended(peer, pair, commit=commit)
        assert [len(markers(members, each)) for each in (A, B, C)] == [2, 2, 2]
        peer.close()
        for place in (A, B):
            reader = await Peer.of(members.leader(*place))
            seen = await read(reader, place)
            assert (seen.values, seen.aborted) == ([b"kept", b"dropped"], [(pair.producer_id, 2)])
            reader.close()


async def test_73_the_leader_tells_of_open_transactions_and_a_follower_that_it_is_none(tmp_path: Path) -> None:
    async with transacting(tmp_path) as members:
        _, peer = await coordinator(members)
        pair = await begin(peer)
        await add(peer, pair, A)
        await write(members, pair, A, 0, b"a")
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=(0,))])
        said = dict[bool, list[tuple[int, list[int]]]]()
        for broker in members.brokers.values():
            asked = await Peer.of(broker)
            (topic,) = (await asked.ask(request, 0, DescribeProducersResponse)).topics
            (part,) = topic.partitions
            starts = [each.current_txn_start_offset for each in part.active_producers]
            said.setdefault(broker is members.leader(*A), []).append((part.error_code, starts))
            asked.close()
        assert said == {True: [(0, [0])], False: [(6, []), (6, [])]}
        await ended(peer, pair)
        peer.close()


async def test_offsets_of_a_group_that_another_broker_coordinates_count_with_the_marker(tmp_path: Path) -> None:
    async with transacting(tmp_path) as members:
        broker, peer = await coordinator(members)
        while await found(peer, "g", 0):
            await asyncio.sleep(0.01)
        await until(lambda: all(is_coordinated(members, index) for index in range(2)))
        group = next(
            name for name in ("g", "h", "i", "j") if members.leader(OFFSETS_TOPIC, partition_for(name, 2)) is not broker
        )
        other = await Peer.of(members.leader(OFFSETS_TOPIC, partition_for(group, 2)))
        pair = await begin(peer)
        for offset, commit in ((7, True), (9, False)):
            assert await add_offsets(peer, pair, group) == 0
            assert await commit_offset(other, pair, group, A, offset) == 0
            assert await committed(other, group, stable=True) == (-1, 88)
            await ended(peer, pair, commit=commit)
            assert await committed(other, group, stable=True) == (7, 0)
        peer.close()
        other.close()


async def test_26_an_end_that_too_few_replicas_would_have_is_not_decided(tmp_path: Path) -> None:
    async with transacting(tmp_path) as members:
        broker, peer = await coordinator(members)
        pair = await begin(peer)
        await add(peer, pair, A)
        others = [number for number in (1, 2, 3) if number != broker.node_id]
        for number in others:
            await members.kill(number)
        await until(lambda: members.isr(STATE_TOPIC) == {broker.node_id})
        assert await end(peer, pair) == 15
        assert of(broker).state.label == "Ongoing"
        await members.start(others[0])
        await until(lambda: len(members.isr(STATE_TOPIC)) == 2)
        await ended(peer, pair)
        peer.close()


async def test_75_a_partition_that_a_recreated_topic_does_not_have_needs_no_marker(tmp_path: Path) -> None:
    async with transacting(tmp_path) as members, Client(members.bootstrap) as client:
        broker, peer = await coordinator(members)
        pair = await begin(peer)
        assert await add(peer, pair, C) == [0]
        await delete_topic(client, "t")
        await until(lambda: broker.metadata.exists(topic_path("t")) is None)  # and no broker has a log of it
        await make(members, client)
        await ended(peer, pair)
        assert of(broker).state.label == "CompleteCommit"
        peer.close()


async def test_a_coordinator_that_is_lost_in_the_middle_is_succeeded_by_one_that_continues(tmp_path: Path) -> None:
    async with transacting(tmp_path) as members:
        broker, peer = await coordinator(members)
        pair = await begin(peer)
        await add(peer, pair, A)
        await write(members, pair, A, 0, b"a")
        peer.close()
        await members.kill(broker.node_id)
        other, peer = await coordinator(members)
        assert other is not broker
        await until(lambda: len(members.leaders(*B)) == 1)
        assert await add(peer, pair, B) == [0]
        await ended(peer, pair)
        assert await values(members, A) == [b"a"]
        peer.close()


async def test_23_41_a_partition_without_a_leader_gets_its_marker_when_it_has_one_from_the_next_coordinator_too(
    tmp_path: Path,
) -> None:
    async with transacting(tmp_path, factor=1) as members:
        first, peer = await coordinator(members)
        pair = await begin(peer)
        place = next(each for each in (A, B, C) if members.leader(*each) is not first)
        lost = members.leader(*place).node_id
        assert await add(peer, pair, place) == [0]
        await write(members, pair, place, 0, b"a")
        await members.kill(lost)
        await until(lambda: members.isr(STATE_TOPIC) == {1, 2, 3} - {lost})
        assert await end(peer, pair) == 0
        assert await end(peer, pair) == 51
        assert of(first).state.label == "PrepareCommit"
        peer.close()
        epoch = first.transactions.coordinator.terms[0].leader_epoch
        await members.stop(first.node_id)
        await members.start(lost)
        second, peer = await coordinator(members)
        await until(lambda: of(second).state.label == "CompleteCommit")
        assert await end(peer, pair) == 0
        (told,) = markers(members, place)
        assert told > epoch
        assert await values(members, place) == [b"a"]
        peer.close()
