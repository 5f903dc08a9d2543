"""Read and write the committed offsets of groups without being a member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from magicbyte.access.client.client import BrokerNode, Client
from magicbyte.engine.errors import BrokerError, ErrorCode, UnsupportedVersionError
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

TopicPartition: TypeAlias = tuple[str, int]

_FETCH: Final = range(1, 8)  # version 0 is ZooKeeper's; from 8 on a request has many groups
_FETCH_ALL: Final = range(2, 8)
STABLE: Final = range(7, 8)  # versions of OffsetFetch that report open transactions
_COMMIT: Final = range(1, 10)  # from version 10 on topics have ids instead of names
_ZOOKEEPER: Final = range(1)


class Committed(NamedTuple):
    """A committed offset, that of the next record to read. `leader_epoch` -1: unknown."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


async def committed_offsets(
    client: Client,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    zookeeper: bool = False,
    stable: bool = False,
) -> dict[TopicPartition, Committed]:
    """Return a group's committed offsets for `partitions`, without those that have none; None: for all.

    `stable`: wait for transactions with offsets of the group to end, which brokers from 2.5 on report.

    `zookeeper`: the offsets that old consumers committed to ZooKeeper, which brokers before 4.0 return. If `partitions`
    is None, brokers before 0.10.2 are asked for every existing partition. Raises BrokerError.
    """
    if partitions is None and (zookeeper or not await _tells_all(client, group)):
        partitions = [(name, index) for name, topic in (await client.topics()).items() for index in topic.partitions]
    topics = None if partitions is None else [
        OffsetFetchRequestTopic(name=topic, partition_indexes=tuple(indexes))
        for topic, indexes in by_topic(partitions).items()
    ]  # fmt: skip

    async def ask(node: BrokerNode) -> dict[TopicPartition, Committed]:
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)
        versions = _ZOOKEEPER if zookeeper else _FETCH if topics is not None else _FETCH_ALL
        if stable:
            versions = STABLE
        response = await client.ask(node, request, OffsetFetchResponse, versions=versions)
        if response.error_code:
            raise BrokerError(f"offsets of group {group}", response.error_code, broker=str(node))
        committed = {}
        for topic in response.topics:
            for partition in topic.partitions:
                # A missing offset is an error for ZooKeeper, and from 0.8.2 for unknown partitions.
                if partition.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                    what = f"offset of group {group} in {topic.name}-{partition.partition_index}"
                    raise BrokerError(what, partition.error_code, broker=str(node))
                if partition.committed_offset >= 0:
                    place = Committed(
                        partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
                    )
                    committed[topic.name, partition.partition_index] = place
        return committed

    return await client.at_coordinator(group, ask)


async def zookeeper_offsets(client: Client, group: str) -> dict[TopicPartition, Committed]:
    """Return a group's offsets in ZooKeeper; {} if brokers have none. Raises BrokerError."""
    try:
        return await committed_offsets(client, group, None, zookeeper=True)
    except UnsupportedVersionError:
        return {}
    except BrokerError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:  # KRaft, before 4.0
            return {}
        raise


async def commit_offsets(
    client: Client, group: str, offsets: Mapping[TopicPartition, Committed], *, zookeeper: bool = False
) -> None:
    """Commit offsets of a group, which must have no members, as a consumer that assigns partitions itself.

    If it raises BrokerError, some of them may be committed. `zookeeper`: as old consumers do.
    """
    versions = _ZOOKEEPER if zookeeper else _COMMIT

    async def ask(node: BrokerNode) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[topic, index].offset,
                        committed_leader_epoch=offsets[topic, index].leader_epoch,
                        committed_metadata=offsets[topic, index].metadata,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ]
        request = OffsetCommitRequest(group_id=group, topics=topics)
        response = await client.ask(node, request, OffsetCommitResponse, versions=versions)
        for topic in response.topics:
            for each in topic.partitions:
                if each.error_code:
                    what = f"commit of group {group} in {topic.name}-{each.partition_index}"
                    raise BrokerError(what, each.error_code, broker=str(node))

    await client.at_coordinator(group, ask)


async def _tells_all(client: Client, group: str) -> bool:
    """Return whether a group's coordinator returns all offsets without a list of partitions."""

    async def look(node: BrokerNode) -> bool:
        return (await client.connection(node)).versions.latest(APIS[ApiKey.OFFSET_FETCH], _FETCH_ALL) is not None

    return await client.at_coordinator(group, look)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of partitions by topic."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
