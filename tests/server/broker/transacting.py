"""What tests ask the transaction coordinator for, over a connection, and how they read what they get."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from magicbyte.access.clock import SystemClock
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from magicbyte.engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import TimestampType
from magicbyte.engine.records.scan import scan
from server.broker.serving import Peer


class Pair(NamedTuple):
    producer_id: int
    epoch: int


NONE = Pair(-1, -1)


async def found(peer: Peer, key: str = "x", kind: int = 1) -> int:
    request = FindCoordinatorRequest(key=key, key_type=kind)
    return (await peer.ask(request, 2, FindCoordinatorResponse)).error_code


async def init(
    peer: Peer, key: str | None = "x", pair: Pair = NONE, *, version: int = 4, timeout_ms: int = 60_000
) -> tuple[int, Pair]:
    """Return the code, and what the producer is now."""
    request = InitProducerIdRequest(
        transactional_id=key, transaction_timeout_ms=timeout_ms, producer_id=pair.producer_id, producer_epoch=pair.epoch
    )
    found = await peer.ask(request, version, InitProducerIdResponse)
    return found.error_code, Pair(found.producer_id, found.producer_epoch)


async def begin(peer: Peer, key: str = "x", **more: int) -> Pair:
    """Return what a producer is now that has no transaction open."""
    while True:
        code, pair = await init(peer, key, **more)
        if code != 51:
            assert code == 0
            return pair
        await asyncio.sleep(0.01)


async def begun(peer: Peer, key: str, **more: int) -> Pair:
    """Return what a producer is now, as soon as its coordinator has loaded its partition and ended its transaction."""
    while (told := await init(peer, key, **more))[0]:
        assert told[0] in (14, 16, 51)
        await asyncio.sleep(0.05)
    return told[1]


async def add(peer: Peer, pair: Pair, *places: tuple[str, int], key: str = "x", version: int = 3) -> list[int]:
    """Return the code of each partition."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=key,
        v3_and_below_producer_id=pair.producer_id,
        v3_and_below_producer_epoch=pair.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=(each,)) for topic, each in places],
    )
    found = await peer.ask(request, version, AddPartitionsToTxnResponse)
    return [
        each.partition_error_code
        for topic in found.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]


async def add_offsets(peer: Peer, pair: Pair, group: str, *, key: str = "x") -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=key, producer_id=pair.producer_id, producer_epoch=pair.epoch, group_id=group
    )
    return (await peer.ask(request, 3, AddOffsetsToTxnResponse)).error_code


async def commit_offset(
    peer: Peer, pair: Pair, group: str, place: tuple[str, int], offset: int, *, key: str = "x", version: int = 3
) -> int:
    part = TxnOffsetCommitRequestPartition(partition_index=place[1], committed_offset=offset)
    request = TxnOffsetCommitRequest(
        transactional_id=key,
        group_id=group,
        producer_id=pair.producer_id,
        producer_epoch=pair.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=place[0], partitions=[part])],
    )
    return (await peer.ask(request, version, TxnOffsetCommitResponse)).topics[0].partitions[0].error_code


async def committed(peer: Peer, group: str = "g", *, stable: bool = False) -> tuple[int, int]:
    """Return the offset that a group has committed of the first partition of topic t, and the code."""
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=(0,))]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)
    response = await peer.ask(request, 7, OffsetFetchResponse)
    if response.error_code:
        return -1, response.error_code
    each = response.topics[0].partitions[0]
    return each.committed_offset, each.error_code


async def end(peer: Peer, pair: Pair, *, commit: bool = True, key: str = "x", version: int = 3) -> int:
    request = EndTxnRequest(
        transactional_id=key, producer_id=pair.producer_id, producer_epoch=pair.epoch, committed=commit
    )
    return (await peer.ask(request, version, EndTxnResponse)).error_code


async def end_and_raise(peer: Peer, pair: Pair, *, commit: bool = True, key: str = "x") -> tuple[int, Pair]:
    """Return the code, and what the producer is in its next transaction (protocol 2)."""
    request = EndTxnRequest(
        transactional_id=key, producer_id=pair.producer_id, producer_epoch=pair.epoch, committed=commit
    )
    found = await peer.ask(request, 5, EndTxnResponse)
    return found.error_code, Pair(found.producer_id, found.producer_epoch)


async def ended(peer: Peer, pair: Pair, *, commit: bool = True, key: str = "x") -> None:
    """End a transaction, as soon as its coordinator knows it, and wait until its markers are written."""
    for waits in ((14, 16), (51,)):
        while (code := await end(peer, pair, commit=commit, key=key)) in waits:
            await asyncio.sleep(0.01)
        assert code == 0


def batch(pair: Pair, sequence: int, *values: bytes, transactional: bool = True) -> bytes:
    now_ms = SystemClock().now_ms()  # markers have no other times: segments do not end between them and the records
    rows = [Record(at, now_ms, TimestampType.CREATE_TIME, b"k", value) for at, value in enumerate(values)]
    header = BatchHeader(
        is_transactional=transactional, producer_id=pair.producer_id, producer_epoch=pair.epoch, base_sequence=sequence
    )
    return bytes(encode_records(rows, Format.V2, header=header))


async def send(
    peer: Peer,
    pair: Pair,
    place: tuple[str, int],
    sequence: int,
    *values: bytes,
    key: str | None = "x",
    version: int = 9,
) -> tuple[int, int]:
    """Return the code, and the offset of the first record."""
    part = PartitionProduceData(index=place[1], records=batch(pair, sequence, *values))
    data = [TopicProduceData(name=place[0], partition_data=[part])]
    request = ProduceRequest(transactional_id=key, acks=-1, timeout_ms=10_000, topic_data=data)
    found = (await peer.ask(request, version, ProduceResponse)).responses[0].partition_responses[0]
    return found.error_code, found.base_offset


class Read(NamedTuple):
    """`values` of the records that a consumer of committed records is given."""

    values: list[bytes]
    last_stable_offset: int
    aborted: list[tuple[int, int]]


async def read(peer: Peer, place: tuple[str, int], *, committed: bool = True, offset: int = 0) -> Read:
    part = FetchPartition(partition=place[1], fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=place[0], partitions=[part])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics, isolation_level=int(committed))
    found = (await peer.ask(request, 11, FetchResponse)).responses[0].partitions[0]
    assert not found.error_code
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
    values = list[bytes]()
    if isinstance(found.records, memoryview) and len(found.records):
        table = scan(found.records)
        for columns in decode(found.records[: table.end]):
            values += [record.value for record in columns if record.value is not None]
    return Read(values, found.last_stable_offset, aborted)
