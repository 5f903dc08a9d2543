"""Start and end of a partition, and offsets by timestamp (ListOffsets)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from magicbyte.access.client.client import BrokerNode, only
from magicbyte.access.client.source import Source
from magicbyte.engine.errors import BrokerError, NetworkError
from magicbyte.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3  # needs brokers from 3.0 on

_VERSIONS = range(10)  # later ones let the broker wait for remote storage


class ListedOffset(NamedTuple):
    """A partition's response. `offset` is None if no record is late enough; `timestamp` is the record's, in ms.

    `timestamp` is None for LATEST and EARLIEST, and from brokers before 0.10.1. These know only the modification times
    of segments. Their offset is the start of the last segment that was written before the requested time.
    """

    offset: int | None
    timestamp: int | None


async def list_offset(
    client: Source, topic: str, partition: int, timestamp: int, *, committed: bool = False
) -> ListedOffset:
    """Return the offset of the first record at or after `timestamp` (ms), or LATEST, EARLIEST, MAX_TIMESTAMP.

    LATEST is the high watermark; with `committed` the last stable offset. Raises BrokerError and NetworkError.
    """

    async def ask(node: BrokerNode) -> ListedOffset:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
        )
        versions = _VERSIONS[2:] if committed else _VERSIONS
        response = await client.ask(node, request, ListOffsetsResponse, versions=versions)
        answer = only(only(response.topics, "topics").partitions, "partitions")
        if answer.error_code:
            raise BrokerError(f"offsets of {topic}-{partition}", answer.error_code, broker=str(node))
        if answer.old_style_offsets:
            return ListedOffset(answer.old_style_offsets[0], None)
        return ListedOffset(
            answer.offset if answer.offset >= 0 else None, answer.timestamp if answer.timestamp >= 0 else None
        )

    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    return await client.at_leader(topic, partition, ask)


async def ends(
    client: Source, partitions: Iterable[tuple[str, int]], *, committed: bool = False
) -> dict[tuple[str, int], int]:
    """Return LATEST of many partitions, as `offsets_now`."""
    return await offsets_now(client, partitions, LATEST, committed=committed)


async def offsets_now(
    client: Source, partitions: Iterable[tuple[str, int]], timestamp: int, *, committed: bool = False
) -> dict[tuple[str, int], int]:
    """Return EARLIEST or LATEST of many partitions, with one request to each broker that leads some of them.

    Partitions without a leader, or whose leader does not respond, are left out.
    """
    led: dict[BrokerNode, dict[str, list[int]]] = {}
    for topic, partition in partitions:
        with contextlib.suppress(BrokerError, NetworkError):
            node = await client.leader(topic, partition)
            led.setdefault(node, {}).setdefault(topic, []).append(partition)
    found = await asyncio.gather(
        *(_offsets_at(client, node, topics, timestamp, committed) for node, topics in led.items())
    )
    return {partition: offset for each in found for partition, offset in each.items()}


async def _offsets_at(
    client: Source, node: BrokerNode, topics: Mapping[str, list[int]], timestamp: int, committed: bool
) -> dict[tuple[str, int], int]:
    asked = [
        ListOffsetsTopic(
            name=name, partitions=[ListOffsetsPartition(partition_index=at, timestamp=timestamp) for at in each]
        )
        for name, each in topics.items()
    ]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=asked)
    versions = _VERSIONS[2:] if committed else _VERSIONS
    try:
        response = await client.ask(node, request, ListOffsetsResponse, versions=versions)
    except (BrokerError, NetworkError):
        for name in topics:
            client.forget(name)
        return {}
    offsets = {}
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code:
                client.forget(topic.name)
            else:
                offset = each.old_style_offsets[0] if each.old_style_offsets else each.offset
                offsets[topic.name, each.partition_index] = offset
    return offsets


async def bounds(client: Source, topic: str, partition: int) -> tuple[int, int]:
    """Return the log start offset and the high watermark of a partition."""
    start = await list_offset(client, topic, partition, EARLIEST)
    end = await list_offset(client, topic, partition, LATEST)
    assert start.offset is not None, "every partition has a start"
    assert end.offset is not None, "every partition has an end"
    return start.offset, end.offset
