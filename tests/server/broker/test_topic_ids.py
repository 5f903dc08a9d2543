"""Topics by id (KIP-516): each request that names them so, as real brokers of 4.1.1, 4.3.1 and 4.4.0 answered.

A test names the rows of the specification's tables: a number alone for one of the sources, R and a number for one of
those that were asked of real brokers.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from magicbyte.engine.cluster import topics
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.protocol.messages import describe_topic_partitions as describe
from magicbyte.engine.protocol.messages import list_offsets, metadata, offset_commit, offset_fetch, produce
from magicbyte.engine.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from magicbyte.engine.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from magicbyte.engine.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from magicbyte.engine.records.encode import Format
from magicbyte.server.broker.broker import Broker
from server.broker.builders import made, records
from server.broker.serving import Peer, Running

UNKNOWN = uuid.UUID(int=0x102030405060708090A0B0C0D0E0F)
BY_ID = 13
LATEST = "4.4"


@asynccontextmanager
async def serving(folder: Path, **topics: int) -> AsyncIterator[tuple[Broker, Peer]]:
    """Run a broker as a release with all versions, with topics of so many partitions."""
    async with Running(folder, {"as.version": LATEST, "auto.create.topics.enable": "false"}) as broker:
        for name, partitions in topics.items():
            await broker.topics.create(name, partitions)
        peer = await Peer.of(broker)
        yield broker, peer
        peer.close()


def id_of(broker: Broker, name: str) -> uuid.UUID:
    return broker.topics.known(name).id


# ---- Metadata


async def ask_metadata(
    peer: Peer, version: int, *topics: tuple[uuid.UUID, str | None]
) -> tuple[int, list[tuple[int, str | None, uuid.UUID, int]]]:
    """Return the code of the response; and of each topic code, name, id and number of partitions."""
    asked = [metadata.MetadataRequestTopic(topic_id=each, name=name) for each, name in topics]
    found = await peer.ask(metadata.MetadataRequest(topics=asked), version, metadata.MetadataResponse)
    return found.error_code, [
        (each.error_code, each.name, each.topic_id, len(each.partitions)) for each in found.topics
    ]


async def test_1_r1_r2_r3_metadata_takes_ids_or_names_and_only_from_version_12_on(folder: Path) -> None:
    async with serving(folder, a=2, b=1) as (broker, peer):
        a, b = id_of(broker, "a"), id_of(broker, "b")
        for version in (12, 13):
            assert await ask_metadata(peer, version, (UNKNOWN, None)) == (0, [(100, None, UNKNOWN, 0)])
            assert await ask_metadata(peer, version, (a, "b"), (a, None)) == (0, [(0, "a", a, 2)])  # R2
            assert await ask_metadata(peer, version, (a, None), (NULL_UUID, "b")) == (0, [(0, "a", a, 2)])
            of_none = await ask_metadata(peer, version, (NULL_UUID, None))  # R1
            assert of_none == (-1 if version == 13 else 0, [(-1, "", NULL_UUID, 0)])
            assert await ask_metadata(peer, version, (NULL_UUID, "b")) == (0, [(0, "b", b, 1)])
        for version in (10, 11):  # 2, R3
            assert await ask_metadata(peer, version, (a, None)) == (0, [(42, "", a, 0)])
            asked = await ask_metadata(peer, version, (NULL_UUID, "b"), (a, "a"))
            assert asked == (0, [(42, "b", NULL_UUID, 0), (42, "a", a, 0)])
            assert await ask_metadata(peer, version, (NULL_UUID, "b")) == (0, [(0, "b", b, 1)])


# ---- Fetch


def asking(*topics: tuple[uuid.UUID, int], session: int = 0, epoch: int = -1, **more: Any) -> FetchRequest:
    """Return a Fetch of partitions from their start, each by the id of its topic."""
    return FetchRequest(
        session_id=session,
        session_epoch=epoch,
        topics=[
            FetchTopic(topic_id=each, partitions=[FetchPartition(partition=index, partition_max_bytes=1 << 20)])
            for each, index in topics
        ],
        **more,
    )


def told(response: FetchResponse) -> list[tuple[uuid.UUID, int, int]]:
    """Return id, partition and code of each partition of a response."""
    return [
        (topic.topic_id, each.partition_index, each.error_code)
        for topic in response.responses
        for each in topic.partitions
    ]


async def send(peer: Peer, version: int, *topics: tuple[uuid.UUID, int], name: str = "") -> list[tuple[int, int, int]]:
    """Produce three records to partitions; return code, base offset and log start offset of each."""
    rows = [
        produce.TopicProduceData(
            name=name,
            topic_id=each,
            partition_data=[produce.PartitionProduceData(index=index, records=made(records(3), Format.V2))],
        )
        for each, index in topics
    ]
    request = produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=rows)
    found = await peer.ask(request, version, produce.ProduceResponse)
    by_place = {
        (topic.topic_id, each.index): (each.error_code, each.base_offset, each.log_start_offset)
        for topic in found.responses
        for each in topic.partition_responses
    }
    return [by_place[each if version >= BY_ID else (NULL_UUID, each[1])] for each in topics]


@pytest.mark.parametrize("version", range(13, 19))
async def test_3_r6_one_unknown_id_does_not_keep_a_fetch_from_reading_the_other_topic(
    folder: Path, version: int
) -> None:
    async with serving(folder, a=1) as (broker, peer):
        a = id_of(broker, "a")
        await send(peer, 13, (a, 0))
        found = await peer.ask(asking((UNKNOWN, 0), (a, 0), (NULL_UUID, 3), (a, 7)), version, FetchResponse)
        assert told(found) == [(UNKNOWN, 0, 100), (a, 0, 0), (NULL_UUID, 3, 100), (a, 7, 3)]
        unknown, good, *_ = [each for topic in found.responses for each in topic.partitions]
        assert (unknown.high_watermark, unknown.last_stable_offset, unknown.log_start_offset) == (-1, -1, -1)
        assert (unknown.aborted_transactions, unknown.records) == ([], b"")
        assert good.high_watermark == 3
        assert good.records
        beyond = asking((a, 0))
        beyond.topics[0].partitions[0].fetch_offset = 99
        (part,) = (await peer.ask(beyond, version, FetchResponse)).responses[0].partitions
        assert (part.error_code, part.aborted_transactions, part.records) == (1, None, b"")


async def test_4_r9_a_topic_that_is_made_again_is_unknown_by_its_old_id_and_another_one_in_a_session(
    folder: Path,
) -> None:
    async with serving(folder, a=1) as (broker, peer):
        old = id_of(broker, "a")
        opened = await peer.ask(asking((old, 0), epoch=0), 13, FetchResponse)
        number = opened.session_id
        assert told(opened) == [(old, 0, 0)]
        await peer.ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=old, name=None)]), 6, DeleteTopicsResponse)
        assert told(await peer.ask(asking(session=number, epoch=1), 13, FetchResponse)) == [(old, 0, 3)]
        created = await peer.ask(
            CreateTopicsRequest(topics=[CreatableTopic(name="a", num_partitions=1, replication_factor=1)]),
            7,
            CreateTopicsResponse,
        )
        new = created.topics[0].topic_id
        assert new == id_of(broker, "a") != old
        assert told(await peer.ask(asking((old, 0)), 13, FetchResponse)) == [(old, 0, 100)]
        for epoch in (2, 3):
            assert told(await peer.ask(asking(session=number, epoch=epoch), 15, FetchResponse)) == [(old, 0, 103)]
        both = await peer.ask(asking((new, 0), session=number, epoch=4), 18, FetchResponse)
        assert sorted(told(both)) == sorted([(old, 0, 103), (new, 0, 0)])
        forgotten = [ForgottenTopic(topic_id=old, partitions=(0, 5))]
        without = asking(session=number, epoch=5, forgotten_topics_data=forgotten)
        assert told(await peer.ask(without, 13, FetchResponse)) == []


async def test_5_r7_a_session_by_id_refuses_requests_by_name_and_stays(folder: Path) -> None:
    async with serving(folder, a=1) as (broker, peer):
        a = id_of(broker, "a")
        number = (await peer.ask(asking((a, 0), epoch=0), 13, FetchResponse)).session_id
        other = await peer.ask(asking(session=number, epoch=1), 12, FetchResponse)
        assert (other.error_code, other.session_id, other.responses) == (106, 0, [])
        assert (await peer.ask(asking(session=number, epoch=1), 18, FetchResponse)).error_code == 0
        assert (await peer.ask(asking(session=number, epoch=1), 13, FetchResponse)).error_code == 71  # R8
        by_name = FetchRequest(session_epoch=0, topics=[FetchTopic(topic="a", partitions=[FetchPartition()])])
        number = (await peer.ask(by_name, 12, FetchResponse)).session_id
        assert (await peer.ask(asking(session=number, epoch=1), 13, FetchResponse)).error_code == 106
        assert (await peer.ask(asking(session=number, epoch=1), 12, FetchResponse)).error_code == 0


async def test_6_an_unknown_id_of_a_session_is_refused_each_time_until_there_is_such_a_topic(folder: Path) -> None:
    async with serving(folder, a=1) as (broker, peer):
        opened = await peer.ask(asking((UNKNOWN, 0), (id_of(broker, "a"), 0), epoch=0), 13, FetchResponse)
        number = opened.session_id
        for epoch in (1, 2):
            found = await peer.ask(asking(session=number, epoch=epoch), 13, FetchResponse)
            assert told(found) == [(UNKNOWN, 0, 100)]
        created = await make(broker, "late", UNKNOWN)
        assert created == UNKNOWN
        await send(peer, 13, (UNKNOWN, 0))
        found = await peer.ask(asking(session=number, epoch=3), 13, FetchResponse)
        assert told(found) == [(UNKNOWN, 0, 0)]
        assert found.responses[0].partitions[0].records


async def make(broker: Broker, name: str, topic_id: uuid.UUID) -> uuid.UUID:
    """Create a topic of one partition with a chosen id; return its id."""
    image = broker.cluster_store.image
    await broker.cluster_store.propose(
        topics.creation(image, name, topic_id, {}, {0: (broker.config.broker_id,)}, [0]), image
    )
    return id_of(broker, name)


@pytest.mark.parametrize("version", [12, 13])
async def test_7_r8_a_session_whose_last_partition_is_forgotten_is_closed(folder: Path, version: int) -> None:
    async with serving(folder, a=1) as (broker, peer):
        a = id_of(broker, "a")
        first = asking((a, 0), epoch=0)
        first.topics[0].topic = "a"
        number = (await peer.ask(first, version, FetchResponse)).session_id
        assert number
        last = asking(
            session=number, epoch=1, forgotten_topics_data=[ForgottenTopic(topic="a", topic_id=a, partitions=(0,))]
        )
        found = await peer.ask(last, version, FetchResponse)
        assert (found.error_code, found.session_id, found.responses) == (0, 0, [])
        assert (await peer.ask(asking(session=number, epoch=2), version, FetchResponse)).error_code == 70


async def test_r8_an_unknown_session_is_a_new_one_at_epoch_0_and_ended_at_epoch_minus_1(folder: Path) -> None:
    async with serving(folder, a=1) as (broker, peer):
        a = id_of(broker, "a")
        number = (await peer.ask(asking((a, 0), session=77, epoch=0), 13, FetchResponse)).session_id
        assert number not in (0, 77)
        ended = await peer.ask(asking((a, 0), session=number), 13, FetchResponse)
        assert (ended.session_id, told(ended)) == (0, [(a, 0, 0)])
        assert (await peer.ask(asking(session=number, epoch=1), 13, FetchResponse)).error_code == 70


async def test_20_the_leader_of_a_partition_is_in_the_response_to_an_old_epoch_from_version_16_on(folder: Path) -> None:
    async with serving(folder, a=1) as (broker, peer):
        a = id_of(broker, "a")
        await broker.topics.raise_leader_epoch("a", 0, 4)
        old = asking((a, 0))
        old.topics[0].partitions[0].current_leader_epoch = 3
        for version in (15, 16, 18):
            found = await peer.ask(old, version, FetchResponse)
            (part,) = found.responses[0].partitions
            assert part.error_code == 74
            leader = (part.current_leader.leader_id, part.current_leader.leader_epoch)
            addresses = [(each.node_id, each.host, each.port) for each in found.node_endpoints]
            here = (broker.config.broker_id, "127.0.0.1", broker.ports["PLAINTEXT"])
            assert (leader, addresses) == ((-1, -1), []) if version == 15 else ((here[0], 4), [here])


async def test_from_version_15_on_the_replica_is_named_in_its_own_field(folder: Path) -> None:
    async with serving(folder, a=1) as (broker, peer):
        asked = asking((id_of(broker, "a"), 0))
        asked.replica_state = ReplicaState(replica_id=9)
        assert [code for *_, code in told(await peer.ask(asked, 15, FetchResponse))] == [9]
        asked.replica_state = ReplicaState()
        asked.replica_id = 9
        assert [code for *_, code in told(await peer.ask(asked, 14, FetchResponse))] == [9]


# ---- Produce


async def test_9_r4_r5_an_unknown_id_is_refused_and_the_other_topics_are_appended_to(folder: Path) -> None:
    async with serving(folder, a=1) as (broker, peer):
        a = id_of(broker, "a")
        sent = await send(peer, 13, (UNKNOWN, 0), (a, 0), (NULL_UUID, 1), (a, 9))
        assert sent == [(100, -1, -1), (0, 0, 0), (100, -1, -1), (3, -1, -1)]
        assert await send(peer, 13, (UNKNOWN, 0)) == [(100, -1, -1)]
        assert await send(peer, 9, (NULL_UUID, 0), name="a") == [(0, 3, 0)]  # 10
        assert await send(peer, 12, (NULL_UUID, 0), name="") == [(3, -1, -1)]


# ---- DeleteTopics


async def delete(peer: Peer, *topics: tuple[str | None, uuid.UUID]) -> list[tuple[int, str | None, uuid.UUID]]:
    rows = [DeleteTopicState(name=name, topic_id=each) for name, each in topics]
    found = await peer.ask(DeleteTopicsRequest(topics=rows, timeout_ms=5000), 6, DeleteTopicsResponse)
    return [(each.error_code, each.name, each.topic_id) for each in found.responses]


async def test_11_r12_a_topic_is_deleted_by_its_id_if_it_is_named_once(folder: Path) -> None:
    async with serving(folder, a=1, b=1) as (broker, peer):
        a = id_of(broker, "a")
        assert await delete(peer, ("a", a)) == [(42, "a", a)]
        assert await delete(peer, (None, NULL_UUID)) == [(42, None, NULL_UUID)]
        assert await delete(peer, (None, UNKNOWN)) == [(100, None, UNKNOWN)]
        assert await delete(peer, ("none", NULL_UUID)) == [(3, "none", NULL_UUID)]
        assert await delete(peer, ("a", NULL_UUID), (None, a)) == [(42, "a", a)]
        assert await delete(peer, (None, a), (None, a)) == [(42, None, a)]
        assert await delete(peer, ("a", NULL_UUID), ("a", NULL_UUID)) == [(42, "a", NULL_UUID)]
        assert broker.topics.names() == ["a", "b"]
        assert await delete(peer, (None, a)) == [(0, "a", a)]
        assert broker.topics.names() == ["b"]


# ---- offsets of groups


def by_group(found: offset_fetch.OffsetFetchResponse) -> list[tuple[uuid.UUID, int, int]]:
    return [
        (topic.topic_id, each.committed_offset, each.error_code)
        for group in found.groups
        for topic in group.topics
        for each in topic.partitions
    ]


async def test_12_13_r10_r11_offsets_are_committed_and_fetched_by_id(folder: Path) -> None:
    async with serving(folder, a=1) as (broker, peer):
        await broker.groups.ensure_topic()
        a = id_of(broker, "a")

        async def commit(*ids: uuid.UUID, partition: int = 0) -> list[tuple[uuid.UUID, int]]:
            part = offset_commit.OffsetCommitRequestPartition(partition_index=partition, committed_offset=7)
            topics = [offset_commit.OffsetCommitRequestTopic(topic_id=each, partitions=[part]) for each in ids]
            request = offset_commit.OffsetCommitRequest(group_id="g", topics=topics)
            found = await peer.ask(request, 10, offset_commit.OffsetCommitResponse)
            return [(topic.topic_id, topic.partitions[0].error_code) for topic in found.topics]

        async def fetch(*ids: uuid.UUID) -> list[tuple[uuid.UUID, int, int]]:
            topics = [offset_fetch.OffsetFetchRequestTopics(topic_id=each, partition_indexes=(0,)) for each in ids]
            group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=topics if ids else None)
            request = offset_fetch.OffsetFetchRequest(groups=[group])
            return by_group(await peer.ask(request, 10, offset_fetch.OffsetFetchResponse))

        assert sorted(await commit(UNKNOWN, a, NULL_UUID)) == sorted([(UNKNOWN, 100), (a, 0), (NULL_UUID, 100)])
        assert await commit(a, partition=9) == [(a, 3)]
        assert sorted(await fetch(UNKNOWN, a)) == sorted([(UNKNOWN, -1, 100), (a, 7, 0)])
        assert await fetch() == [(a, 7, 0)]
        await delete(peer, ("a", NULL_UUID))
        await broker.topics.create("a", 1)
        new = id_of(broker, "a")
        assert await fetch() == []
        assert sorted(await fetch(a, new)) == sorted([(a, -1, 100), (new, -1, 0)])


# ---- ListOffsets


async def test_14_15_r13_special_timestamps_are_refused_below_their_versions(folder: Path) -> None:
    async with serving(folder, a=1) as (_, peer):

        async def offset(version: int, timestamp: int) -> tuple[int, int, int]:
            part = list_offsets.ListOffsetsPartition(timestamp=timestamp)
            topic = list_offsets.ListOffsetsTopic(name="a", partitions=[part])
            request = list_offsets.ListOffsetsRequest(topics=[topic])
            found = await peer.ask(request, version, list_offsets.ListOffsetsResponse)
            (told,) = found.topics[0].partitions
            return told.error_code, told.offset, told.leader_epoch

        assert (await offset(7, -3))[:2] == (0, -1)
        assert [code for version in (7, 8) for code in (await offset(version, -4))[:1]] == [35, 0]
        assert [code for version in (8, 9) for code in (await offset(version, -5))[:1]] == [35, 0]
        assert await offset(9, -5) == (0, -1, -1)
        assert (await offset(10, -6))[0] == 35
        assert await offset(11, -6) == (0, -1, -1)
        assert (await offset(11, -7))[0] == 35


# ---- DescribeTopicPartitions


Page = tuple[list[tuple[str | None, int, list[int]]], tuple[str, int] | None]


async def pages(peer: Peer, names: Sequence[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Page:
    """Return name, code and partitions of each topic, and the next cursor."""
    request = describe.DescribeTopicPartitionsRequest(
        topics=[describe.TopicRequest(name=each) for each in names], response_partition_limit=limit
    )
    if cursor is not None:
        request.cursor = describe.DescribeTopicPartitionsRequestCursor(topic_name=cursor[0], partition_index=cursor[1])
    found = await peer.ask(request, 0, describe.DescribeTopicPartitionsResponse)
    following = found.next_cursor
    return [
        (each.name, each.error_code, [part.partition_index for part in each.partitions]) for each in found.topics
    ], None if following is None else (following.topic_name, following.partition_index)


async def test_16_17_18_r14_r15_r16_topics_are_described_in_pages(folder: Path) -> None:
    async with serving(folder, b=5, a=2) as (_, peer):
        of_a, of_b = ("a", 0, [0, 1]), ("b", 0, [0, 1, 2, 3, 4])
        assert await pages(peer, ["b", "a"], 3) == ([of_a, ("b", 0, [0])], ("b", 1))
        assert await pages(peer, ["a", "b"], 10, ("b", 1)) == ([("b", 0, [1, 2, 3, 4])], None)
        assert await pages(peer, ["b"], 10, ("a", 0)) == ([("b", 42, [])], None)
        assert await pages(peer, ["b"], 10, ("c", 0)) == ([("b", 42, [])], None)
        assert await pages(peer, [], 2) == ([of_a], ("b", 0))
        for limit in (0, -5):
            assert await pages(peer, [], limit) == ([("a", 0, [0])], ("a", 1))
        assert await pages(peer, ["a", "b"], 9, ("b", 5)) == ([("b", 0, [])], None)
        assert await pages(peer, ["a", "b"], 9, ("b", 2**31 - 1)) == ([("b", 0, [])], None)
        assert await pages(peer, ["b", "a", "b"]) == ([of_a, of_b], None)
        assert await pages(peer, ["b"], 10, ("aa", 0)) == ([("b", 42, [])], None)
        assert await pages(peer, ["b"], 10, ("b", -1)) == ([("b", 42, [])], None)
        assert await pages(peer, [], 10, ("aa", 0)) == ([of_b], None)
        assert await pages(peer, [], 10, ("z", 0)) == ([], None)
        assert await pages(peer, ["aa", "a", "no/name"], 2) == ([of_a], ("aa", 0))
        assert await pages(peer, ["a0", "no/name"], 1) == ([("a0", 3, []), ("no/name", 17, [])], None)
        assert await pages(peer, [], 2**31 - 1) == ([of_a, of_b], None)


async def test_a_described_topic_has_its_id_and_the_operations_that_are_allowed(folder: Path) -> None:
    async with serving(folder, a=1) as (broker, peer):
        request = describe.DescribeTopicPartitionsRequest(topics=[describe.TopicRequest(name="a")])
        (topic,) = (await peer.ask(request, 0, describe.DescribeTopicPartitionsResponse)).topics
        assert (topic.topic_id, topic.topic_authorized_operations) == (id_of(broker, "a"), 3576)
        (part,) = topic.partitions
        assert (part.eligible_leader_replicas, part.last_known_elr) == ((), ())
        assert (part.leader_id, part.leader_epoch) == (broker.config.broker_id, 0)
        assert (tuple(part.replica_nodes), tuple(part.isr_nodes)) == ((broker.config.broker_id,),) * 2


async def test_a_page_has_no_more_partitions_than_the_setting_permits(folder: Path) -> None:
    settings = {"as.version": LATEST, "max.request.partition.size.limit": "3"}
    async with Running(folder, settings) as broker:
        await broker.topics.create("a", 5)
        peer = await Peer.of(broker)
        assert await pages(peer, ["a"]) == ([("a", 0, [0, 1, 2])], ("a", 3))
        peer.close()
