"""The requests about groups and their offsets.

Offsets of version 0, which old consumers store in ZooKeeper, are in the metadata tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magicbyte.engine.errors import ErrorCode, MetadataError
from magicbyte.engine.groups.coordinator import ANSWERED
from magicbyte.engine.groups.offsets import refused_in_transaction
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from magicbyte.engine.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from magicbyte.server.coordinating.verification import VerificationServices, offsets_refusal
from magicbyte.server.metadata import layout

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore
    from magicbyte.engine.protocol import Message
    from magicbyte.server.coordinating.coordinators import Coordinators
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.serving.request import Request, UnboundHandler
    from magicbyte.server.serving.runtime import Runtime

log = logger(__name__)

_ZOOKEEPER: Final = 0  # version of OffsetCommit and OffsetFetch
_TREE_STEPS: Final = 20  # for a look-up in the metadata tree


@dataclass(frozen=True, slots=True)
class GroupServices:
    """The parts of the broker that these requests use."""

    runtime: Runtime
    metadata: MetadataStore
    replicas: Replicas
    coordinators: Coordinators
    verification: VerificationServices


async def answer(services: GroupServices, request: Request[Any]) -> Message:
    """Answer a request that is handled by the coordinator."""
    return await services.coordinators.groups.ask(request)


async def offset_commit(services: GroupServices, request: Request[OffsetCommitRequest]) -> Message:
    """Store offsets: with the coordinator or, in version 0, in the metadata tree."""
    if request.version > _ZOOKEEPER:
        return await services.coordinators.groups.ask(request)
    message = request.message
    topics = []
    async for topic in request.turns.over(message.topics):
        answers = []
        async for each in request.turns.over(topic.partitions):
            code = await _commit_to_tree(services, message.group_id, topic.name, each)
            answers.append(OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return OffsetCommitResponse(topics=topics)


async def commit_in_transaction(services: GroupServices, request: Request[TxnOffsetCommitRequest]) -> Message:
    """Store offsets as part of a transaction that their partition has joined, or joins by it."""
    if code := await offsets_refusal(services.verification, request):
        return refused_in_transaction(request.message, request.version, code)
    return await services.coordinators.groups.ask(request)


async def _commit_to_tree(
    services: GroupServices, group: str, topic: str, partition: OffsetCommitRequestPartition
) -> ErrorCode:
    index = partition.partition_index
    if not _is_node_name(group):
        return ErrorCode.INVALID_GROUP_ID
    if await services.replicas.known_partition(topic, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len((partition.committed_metadata or "").encode()) > services.runtime.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    path, data = layout.consumer_offset_path(group, topic, index), str(partition.committed_offset).encode()
    metadata = services.metadata

    def commit() -> None:
        if metadata.exists(path) is None:
            metadata.create(path, data, parents=True)
        else:
            metadata.set(path, data)

    try:
        async with services.runtime.directory:
            await services.runtime.writing.run(commit)
    except MetadataError as error:
        services.runtime.complaints.line(log, "the metadata tree", "offsets", "%s", error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


async def offset_fetch(services: GroupServices, request: Request[OffsetFetchRequest]) -> Message:
    """Return offsets: the coordinator's or, in version 0, those in the metadata tree."""
    if request.version > _ZOOKEEPER:
        return await services.coordinators.groups.ask(request)
    message = request.message
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                await _fetch_from_tree(services, message.group_id, topic.name, each)
                async for each in request.turns.over(topic.partition_indexes, _TREE_STEPS)
            ],
        )
        async for topic in request.turns.over(message.topics or ())
    ]
    return OffsetFetchResponse(topics=topics)


async def _fetch_from_tree(services: GroupServices, group: str, topic: str, index: int) -> OffsetFetchResponsePartition:
    node = None
    if _is_node_name(group) and await services.replicas.known_partition(topic, index) is not None:
        path = layout.consumer_offset_path(group, topic, index)
        node = await services.runtime.reading.run(services.metadata.exists, path)
    if node is None or not node.data.isdigit():
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
    return OffsetFetchResponsePartition(partition_index=index, committed_offset=int(node.data))


def _is_node_name(group: str) -> bool:
    return group not in ("", ".", "..") and "/" not in group and "\0" not in group


HANDLERS: Final[Mapping[type, UnboundHandler]] = {
    **dict.fromkeys(ANSWERED, answer),
    TxnOffsetCommitRequest: commit_in_transaction,
    OffsetCommitRequest: offset_commit,
    OffsetFetchRequest: offset_fetch,
}
