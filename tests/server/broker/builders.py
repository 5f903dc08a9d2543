"""Records, requests and decoded responses for tests of the broker."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from magicbyte.engine.codecs import Codec
from magicbyte.engine.protocol import Message
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.fields import NULL_UUID
from magicbyte.engine.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from magicbyte.engine.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.scan import scan
from server.broker.serving import Peer

TIME = 1_700_000_000_000
FORMATS = [Format.V0, Format.V1, Format.V2]
PRODUCE_VERSION = {Format.V0: 1, Format.V1: 2, Format.V2: 9, Format.ENRICHED: 2}


def records(count: int, size: int = 100) -> list[Record]:
    """Return records with keys and values derived from their offsets. `size`: bytes of a value."""
    return [Record(at, TIME + at, 0, b"key %d" % at, (b"value %d " % at * size)[:size]) for at in range(count)]


def made(found: Sequence[Record], form: Format, codec: Codec = Codec.NONE) -> bytes:
    """Encode records as sets in a format."""
    return bytes(encode_records(found, form, codec=codec))


async def produce(peer: Peer, topic: str, data: bytes, form: Format) -> PartitionProduceResponse:
    """Produce a set to partition 0 in the Produce version of its format. Return the partition's response."""
    part = PartitionProduceData(index=0, records=data)
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[part])])
    response = await peer.ask(request, PRODUCE_VERSION[form], ProduceResponse)
    return response.responses[0].partition_responses[0]


def asking(topic: str, offset: int, *, limit: int = 1 << 20, wait_ms: int = 0, **more: Any) -> FetchRequest:
    """Return a Fetch request for partition 0. `more`: other fields of the request or the partition."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
    for name in ("current_leader_epoch",):
        if name in more:
            setattr(part, name, more.pop(name))
    topics = [FetchTopic(topic=topic, partitions=[part])]
    return FetchRequest(**{"max_wait_ms": wait_ms, "min_bytes": 1, "topics": topics} | more)


async def fetch(peer: Peer, version: int, request: FetchRequest) -> PartitionData:
    """Fetch one partition. Return its part of the response."""
    return (await peer.ask(request, version, FetchResponse)).responses[0].partitions[0]


def read(data: PartitionData) -> list[Record]:
    """Decode the records of a Fetch response."""
    assert isinstance(data.records, memoryview)
    table = scan(data.records)
    assert table.damage is None
    return [record for columns in decode(data.records[: table.end]) for record in columns]


def name_by_id(message: Message, ids: Mapping[str, uuid.UUID]) -> None:
    """Set the ids of the topics that a request names, for the versions that name them by id alone."""
    holders: list[Any] = [message, *getattr(message, "groups", ())]
    for holder in holders:
        for row in getattr(holder, "topic_data", None) or getattr(holder, "topics", None) or ():
            if hasattr(row, "topic_id"):
                row.topic_id = ids.get(row.topic if hasattr(row, "topic") else row.name, NULL_UUID)


BY_ID = {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.TXN_OFFSET_COMMIT}
"""Requests whose later versions name topics by id alone."""


async def commit(peer: Peer, offset: int) -> int:
    """Commit an offset of group `g` in partition t-0; return the code."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    return (await peer.ask(request, 2, OffsetCommitResponse)).topics[0].partitions[0].error_code


async def committed(peer: Peer) -> tuple[int, list[int]]:
    """Return the code and the offsets of group `g`."""
    answer = await peer.ask(OffsetFetchRequest(group_id="g", topics=None), 5, OffsetFetchResponse)
    return answer.error_code, [each.committed_offset for topic in answer.topics for each in topic.partitions]


def short_message(size: int) -> bytes:
    """Return a message of magic 1 with a valid checksum, but the size of magic 0."""
    content = bytes((1, 0)) + b"\xff" * (size - 6)
    return struct.pack(">qiI", 0, size, zlib.crc32(content)) + content
