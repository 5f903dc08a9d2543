"""Requests that name topics by id, and the outcomes: the same steps for a real broker and for ours."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Final

from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.protocol.messages import describe_topic_partitions as describe
from magicbyte.engine.protocol.messages import fetch, list_offsets, metadata, offset_commit, offset_fetch, produce
from magicbyte.engine.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from magicbyte.engine.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from magicbyte.engine.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from magicbyte.engine.records.encode import Format
from server.broker.builders import made, records
from server.broker.serving import Peer

UNKNOWN: Final = uuid.UUID(int=0x102030405060708090A0B0C0D0E0F)


class Talk:
    """A connection, and the outcome of each step so far: ids by the names of their topics."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.ids: dict[str, uuid.UUID] = {"?": UNKNOWN, "0": NULL_UUID}
        self.outcomes: list[tuple[str, object]] = []

    def name(self, topic_id: uuid.UUID) -> str:
        return next((name for name, each in self.ids.items() if each == topic_id), "other")

    def note(self, step: str, outcome: object) -> None:
        self.outcomes.append((step, outcome))

    async def create(self, name: str, partitions: int) -> None:
        topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)]
        told = await self.peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=9000), 7, CreateTopicsResponse)
        self.ids[name] = told.topics[0].topic_id
        async with asyncio.timeout(30):
            while not await self.is_led(name, partitions):
                await asyncio.sleep(0.05)

    async def is_led(self, name: str, partitions: int) -> bool:
        parts = [list_offsets.ListOffsetsPartition(timestamp=-1, partition_index=each) for each in range(partitions)]
        topic = list_offsets.ListOffsetsTopic(name=name, partitions=parts)
        request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])
        told = await self.peer.ask(request, 7, list_offsets.ListOffsetsResponse)
        return not any(each.error_code for each in told.topics[0].partitions)

    async def metadata(self, version: int, *topics: tuple[str, str | None]) -> None:
        asked = [metadata.MetadataRequestTopic(topic_id=self.ids[each], name=name) for each, name in topics]
        told = await self.peer.ask(metadata.MetadataRequest(topics=asked), version, metadata.MetadataResponse)
        rows = sorted((str(each.name), each.error_code, self.name(each.topic_id), len(each.partitions))
                      for each in told.topics)  # fmt: skip
        self.note(f"metadata {version} {topics}", (told.error_code, rows))

    async def fetch(self, version: int, *topics: str, session: int = 0, epoch: int = -1, **more: Any) -> int:
        parts = [fetch.FetchPartition(partition_max_bytes=1000)]
        asked = [fetch.FetchTopic(topic_id=self.ids[each], topic=each, partitions=parts) for each in topics]
        gone = [fetch.ForgottenTopic(topic_id=self.ids[each], topic=each, partitions=(0,))
                for each in more.get("forget", ())]  # fmt: skip
        request = fetch.FetchRequest(
            session_id=session, session_epoch=epoch, topics=asked, forgotten_topics_data=gone, min_bytes=1
        )
        told = await self.peer.ask(request, version, fetch.FetchResponse)
        rows = [
            (self.name(topic.topic_id), each.error_code, each.high_watermark, each.log_start_offset,
             each.aborted_transactions, None if each.records is None else len(each.records))
            for topic in told.responses for each in topic.partitions
        ]  # fmt: skip
        kind = 0 if told.session_id == 0 else "same" if told.session_id == session else "new"
        self.note(f"fetch {version} {topics} {epoch}", (told.error_code, kind, sorted(rows, key=str)))
        return told.session_id

    async def produce(self, *topics: tuple[str, int]) -> None:
        rows = [
            produce.TopicProduceData(
                topic_id=self.ids[name],
                partition_data=[produce.PartitionProduceData(index=index, records=made(records(3), Format.V2))],
            )
            for name, index in topics
        ]
        request = produce.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=rows)
        told = await self.peer.ask(request, 13, produce.ProduceResponse)
        outcome = [
            (self.name(topic.topic_id), each.index, each.error_code, each.base_offset, each.log_append_time_ms,
             each.log_start_offset)
            for topic in told.responses for each in topic.partition_responses
        ]  # fmt: skip
        self.note(f"produce {topics}", sorted(outcome))

    async def delete(self, *topics: tuple[str | None, str]) -> None:
        rows = [DeleteTopicState(name=name, topic_id=self.ids[each]) for name, each in topics]
        told = await self.peer.ask(DeleteTopicsRequest(topics=rows, timeout_ms=9000), 6, DeleteTopicsResponse)
        outcome = sorted((each.error_code, str(each.name), self.name(each.topic_id)) for each in told.responses)
        self.note(f"delete {topics}", outcome)

    async def describe(self, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        request = describe.DescribeTopicPartitionsRequest(
            topics=[describe.TopicRequest(name=each) for each in names], response_partition_limit=limit
        )
        if cursor is not None:
            request.cursor = describe.DescribeTopicPartitionsRequestCursor(
                topic_name=cursor[0], partition_index=cursor[1]
            )
        told = await self.peer.ask(request, 0, describe.DescribeTopicPartitionsResponse)
        following = told.next_cursor
        self.note(f"describe {names} {limit} {cursor}", (
            [(each.name, each.error_code, self.name(each.topic_id), each.topic_authorized_operations,
              [(part.partition_index, part.error_code, tuple(part.eligible_leader_replicas or ()))
               for part in each.partitions])
             for each in told.topics],
            following and (following.topic_name, following.partition_index),
        ))  # fmt: skip

    async def offsets(self, *topics: str) -> None:
        part = offset_commit.OffsetCommitRequestPartition(committed_offset=2)
        rows = [offset_commit.OffsetCommitRequestTopic(topic_id=self.ids[each], partitions=[part]) for each in topics]
        request = offset_commit.OffsetCommitRequest(group_id="g", topics=rows)
        told = await self.peer.ask(request, 10, offset_commit.OffsetCommitResponse)
        codes = sorted((self.name(each.topic_id), each.partitions[0].error_code) for each in told.topics)
        self.note(f"commit {topics}", codes)

    async def committed(self, *topics: str) -> None:
        rows = [offset_fetch.OffsetFetchRequestTopics(topic_id=self.ids[each], partition_indexes=(0,))
                for each in topics]  # fmt: skip
        group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=rows if topics else None)
        request = offset_fetch.OffsetFetchRequest(groups=[group])
        told = await self.peer.ask(request, 10, offset_fetch.OffsetFetchResponse)
        (found,) = told.groups
        rows_told = sorted(
            (self.name(each.topic_id), each.partitions[0].committed_offset, each.partitions[0].error_code)
            for each in found.topics
        )
        self.note(f"committed {topics}", (found.error_code, rows_told))

    async def time(self, version: int, timestamp: int) -> None:
        topic = list_offsets.ListOffsetsTopic(
            name="b", partitions=[list_offsets.ListOffsetsPartition(timestamp=timestamp, partition_index=4)]
        )
        request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])
        told = await self.peer.ask(request, version, list_offsets.ListOffsetsResponse)
        (part,) = told.topics[0].partitions
        self.note(
            f"offset {version} {timestamp}", (part.error_code, part.offset)
        )  # a real broker begins an epoch at once

    async def cluster(self, cluster_id: str | None, node: int) -> None:
        request = ApiVersionsRequest(
            client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node
        )
        told = await self.peer.ask(request, 5, ApiVersionsResponse)
        self.note(f"versions {cluster_id} {node}", (told.error_code, bool(told.api_keys)))


async def outcomes(port: int) -> list[tuple[str, object]]:
    """Return the outcomes of all steps with the broker at a port, which has no topics of the names a, b and c."""
    peer = Peer(await SocketStream.connect("127.0.0.1", port))
    talk = Talk(peer)
    await talk.create("a", 2)
    await talk.create("b", 5)
    for version in (10, 11, 12, 13):
        for topics in (
            [("?", None)], [("a", "b"), ("a", None)], [("a", None), ("0", "b")], [("0", None)], [("0", "b")],
            [("0", "none")], [("0", "b"), ("a", "a")],
        ):  # fmt: skip
            await talk.metadata(version, *topics)
    await talk.produce(("?", 0), ("a", 0), ("0", 1), ("b", 9))
    for version in range(13, 19):
        await talk.fetch(version, "?", "a", "0")
    number = await talk.fetch(13, "a", "?", epoch=0)
    await talk.fetch(12, session=number, epoch=1)
    await talk.fetch(14, session=number, epoch=1)
    await talk.fetch(14, session=number, epoch=1)
    await talk.create("c", 1)
    await talk.fetch(14, "c", session=number, epoch=2)
    await talk.offsets("?", "c", "0")
    await talk.committed("?", "c")
    await talk.committed()
    await talk.delete((None, "c"))
    await talk.fetch(14, session=number, epoch=3)
    talk.ids["old"] = talk.ids.pop("c")
    await talk.create("c", 1)
    await talk.fetch(14, session=number, epoch=4)
    await talk.fetch(14, "c", session=number, epoch=5)
    await talk.fetch(14, session=number, epoch=6, forget=("a", "?", "old", "c"))
    await talk.fetch(14, session=number, epoch=7)
    await talk.fetch(14, "old")
    await talk.committed("old", "c")
    await talk.committed()
    for names, limit, cursor in (
        (["b", "a"], 3, None), (["a", "b"], 10, ("b", 1)), (["b"], 10, ("a", 0)), ([], 2, None), (["a"], 0, None),
        (["a", "b"], 9, ("b", 5)), (["b", "a", "b"], 9, None), (["b"], 9, ("aa", 0)), (["b"], 9, ("b", -1)),
        (["none", "no/name", "a"], 9, None), (["aa", "a"], 2, None),
    ):  # fmt: skip
        await talk.describe(names, limit, cursor)
    for version, timestamp in ((7, -3), (7, -4), (8, -4), (8, -5), (9, -5), (10, -6), (11, -6), (11, -7), (11, -1)):
        await talk.time(version, timestamp)
    for both in ((None, -1), (None, 77), ("another", -1), ("", 0), ("another", 0)):
        await talk.cluster(*both)
    for key in (38, 39, 40, 41):
        told = await peer.ask(APIS[key].request(), APIS[key].versions[-1], APIS[key].response)
        talk.note(APIS[key].name, told.error_code)  # type: ignore[attr-defined]
    for twice in ([("a", "a")], [(None, "0")], [(None, "?")], [("none", "0")], [("a", "0"), (None, "a")],
                  [(None, "a"), (None, "a")], [("a", "0"), ("a", "0")], [("a", "0")]):  # fmt: skip
        await talk.delete(*twice)
    peer.close()
    return talk.outcomes
