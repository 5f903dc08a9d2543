"""The requests about groups and their offsets.

Offsets of version 0, which old consumers store in ZooKeeper, are in the metadata tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.acls import AclOperation, ResourceType
from magicbyte.engine.errors import ErrorCode, MetadataError
from magicbyte.engine.groups.offsets import refused_in_transaction
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.first_versions import OFFSET_FETCH_OF_GROUPS, OFFSET_FETCH_WITH_CODE
from magicbyte.engine.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from magicbyte.engine.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerDescribed
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from magicbyte.engine.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from magicbyte.engine.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatResponse
from magicbyte.engine.protocol.messages.join_group import JoinGroupResponse
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupResponse
from magicbyte.engine.protocol.messages.list_groups import ListGroupsRequest
from magicbyte.engine.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from magicbyte.engine.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from magicbyte.engine.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from magicbyte.engine.protocol.messages.sync_group import SyncGroupResponse
from magicbyte.engine.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from magicbyte.server.apis.member_rights import DescribeRights, HeartbeatRights, subscribed_topics
from magicbyte.server.coordinating.verification import offsets_refusal
from magicbyte.server.serving.authorization import (
    GROUP_REFUSED,
    READ_GROUP,
    TOPIC_REFUSED,
    AuthorizedCaller,
    RowRights,
    WholeRight,
    id_refusal,
    need_of_group,
    need_of_topic,
)
from magicbyte.server.serving.routes import FEW, MANY, MIB, ONE_NAME, Route
from magicbyte.server.serving.topic_ids import UNKNOWN_ID, RowsById, named
from magicbyte.server.stores.znodes import consumer_offsets

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Handler, Request

log = logger(__name__)

_ZOOKEEPER: Final = 0  # version of OffsetCommit and OffsetFetch
_FIRST_BY_ID: Final = 10  # of OffsetCommit and OffsetFetch
_FIRST_TRANSACTIONAL_BY_ID: Final = 6
_TREE_STEPS: Final = 20  # for a look-up in the metadata tree


async def answer(broker: BrokerParts, request: Request[Any]) -> Message:
    """Answer a request that is handled by the coordinator."""
    return await broker.coordinators.groups.ask(request)


async def consumer_heartbeat(broker: BrokerParts, request: Request[ConsumerGroupHeartbeatRequest]) -> Message:
    """Answer a heartbeat. Its patterns of topic names match those that the member may describe."""
    may_describe = None
    if broker.authorizer is not None:
        caller = AuthorizedCaller(broker.authorizer, request.connection)
        may_describe = partial(caller.may, need_of_topic(AclOperation.DESCRIBE))
    return await broker.coordinators.groups.ask(request, may_describe)


async def offset_commit(broker: BrokerParts, request: Request[OffsetCommitRequest]) -> Message:
    """Store offsets: with the coordinator or, in version 0, in the metadata tree."""
    if request.version > _ZOOKEEPER:
        return await broker.coordinators.groups.ask(request)
    message = request.message
    topics = []
    async for topic in request.turns.over(message.topics):
        answers = []
        async for each in request.turns.over(topic.partitions):
            code = await _commit_to_tree(broker, message.group_id, topic.name, each)
            answers.append(OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return OffsetCommitResponse(topics=topics)


async def commit_in_transaction(broker: BrokerParts, request: Request[TxnOffsetCommitRequest]) -> Message:
    """Store offsets as part of a transaction that their partition has joined, or joins by it."""
    if code := await offsets_refusal(broker.verification, request):
        return refused_in_transaction(request.message, request.version, code)
    return await broker.coordinators.groups.ask(request)


async def _commit_to_tree(
    broker: BrokerParts, group: str, topic: str, partition: OffsetCommitRequestPartition
) -> ErrorCode:
    index = partition.partition_index
    if not _is_node_name(group):
        return ErrorCode.INVALID_GROUP_ID
    if await broker.replicas.known_partition(topic, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len((partition.committed_metadata or "").encode()) > broker.runtime.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    key, commit = TopicPartition(topic, index), consumer_offsets.commit
    try:
        async with broker.runtime.directory:
            await broker.runtime.writing.run(commit, broker.metadata, group, key, partition.committed_offset)
    except MetadataError as error:
        broker.runtime.complaints.line(log, "the metadata tree", "offsets", "%s", error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


async def offset_fetch(broker: BrokerParts, request: Request[OffsetFetchRequest]) -> Message:
    """Return offsets: the coordinator's or, in version 0, those in the metadata tree."""
    if request.version > _ZOOKEEPER:
        return await broker.coordinators.groups.ask(request)
    message = request.message
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                await _fetch_from_tree(broker, message.group_id, topic.name, each)
                async for each in request.turns.over(topic.partition_indexes, _TREE_STEPS)
            ],
        )
        async for topic in request.turns.over(message.topics or ())
    ]
    return OffsetFetchResponse(topics=topics)


async def _fetch_from_tree(broker: BrokerParts, group: str, topic: str, index: int) -> OffsetFetchResponsePartition:
    offset, key = None, TopicPartition(topic, index)
    if _is_node_name(group) and await broker.replicas.known_partition(topic, index) is not None:
        offset = await broker.runtime.reading.run(consumer_offsets.committed, broker.metadata, group, key)
    if offset is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
    return OffsetFetchResponsePartition(partition_index=index, committed_offset=offset)


def _is_node_name(group: str) -> bool:
    return group not in ("", ".", "..") and "/" not in group and "\0" not in group


def _refuse_commits(response: OffsetCommitResponse, asked: OffsetCommitRequestTopic, code: ErrorCode) -> None:
    parts = [
        OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
        for each in asked.partitions
    ]
    response.topics.append(OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=parts))


def _commits_refused(request: Request[OffsetCommitRequest]) -> OffsetCommitResponse:
    response = OffsetCommitResponse()
    for topic in request.message.topics:
        _refuse_commits(response, topic, GROUP_REFUSED)
    return response


_COMMITTED: Final[RowRights[OffsetCommitRequest, OffsetCommitRequestTopic, OffsetCommitResponse]] = RowRights(
    need_of_topic(AclOperation.READ),
    rows=lambda message: message.topics,
    name=lambda topic: topic.name,
    only=lambda message, topics: replace(message, topics=topics),
    refuse=_refuse_commits,
    whole=WholeRight(READ_GROUP, _commits_refused, lambda message: message.group_id),
)
_COMMITTED_BY_ID: Final[RowsById[OffsetCommitRequest, OffsetCommitRequestTopic, OffsetCommitResponse]] = RowsById(
    _FIRST_BY_ID,
    rows=lambda message: message.topics,
    only=lambda message, topics: replace(message, topics=topics),
    answered=lambda response: response.topics,
    parts=lambda topic: topic.partitions,
    refused=lambda part: OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=UNKNOWN_ID),
    refusal=lambda topic, parts: OffsetCommitResponseTopic(topic_id=topic.topic_id, partitions=parts),
)


def _refuse_deletions(response: OffsetDeleteResponse, asked: OffsetDeleteRequestTopic, code: ErrorCode) -> None:
    parts = [
        OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
        for each in asked.partitions
    ]
    response.topics.append(OffsetDeleteResponseTopic(name=asked.name, partitions=parts))


def _deletions_refused(request: Request[OffsetDeleteRequest]) -> OffsetDeleteResponse:
    response = OffsetDeleteResponse(error_code=GROUP_REFUSED)
    for topic in request.message.topics:
        _refuse_deletions(response, topic, GROUP_REFUSED)
    return response


_DELETED: Final[RowRights[OffsetDeleteRequest, OffsetDeleteRequestTopic, OffsetDeleteResponse]] = RowRights(
    need_of_topic(AclOperation.READ),
    rows=lambda message: message.topics,
    name=lambda topic: topic.name,
    only=lambda message, topics: replace(message, topics=topics),
    refuse=_refuse_deletions,
    whole=WholeRight(need_of_group(AclOperation.DELETE), _deletions_refused, lambda message: message.group_id),
)


def _refuse_description(response: ConsumerGroupDescribeResponse, group: str, code: ErrorCode) -> None:
    response.groups.append(ConsumerDescribed(group_id=group, error_code=code))


_CONSUMERS_DESCRIBED: Final[RowRights[ConsumerGroupDescribeRequest, str, ConsumerGroupDescribeResponse]] = RowRights(
    need_of_group(AclOperation.DESCRIBE),
    rows=lambda message: message.group_ids,
    name=str,
    only=lambda message, groups: replace(message, group_ids=groups),
    refuse=_refuse_description,
)
_GROUPS_DELETED: Final[RowRights[DeleteGroupsRequest, str, DeleteGroupsResponse]] = RowRights(
    need_of_group(AclOperation.DELETE),
    rows=lambda message: message.groups_names,
    name=str,
    only=lambda message, groups: replace(message, groups_names=groups),
    refuse=lambda response, group, code: response.results.append(DeletableGroupResult(group_id=group, error_code=code)),
)
_DESCRIBED: Final[RowRights[DescribeGroupsRequest, str, DescribeGroupsResponse]] = RowRights(
    need_of_group(AclOperation.DESCRIBE),
    rows=lambda message: message.groups,
    name=str,
    only=lambda message, groups: replace(message, groups=groups),
    refuse=lambda response, group, code: response.groups.append(DescribedGroup(group_id=group, error_code=code)),
)


async def _authorized_offset_fetch(
    _broker: BrokerParts, request: Request[OffsetFetchRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Return offsets with group Describe (30) of topics with topic Describe (29)."""
    message, version = request.message, request.version
    if version < OFFSET_FETCH_OF_GROUPS:
        if not caller.has(AclOperation.DESCRIBE, ResourceType.GROUP, message.group_id):
            each_code = GROUP_REFUSED if version < OFFSET_FETCH_WITH_CODE else None
            topics = [] if each_code is None else _offsets_refused(message.topics or (), each_code)
            return OffsetFetchResponse(error_code=GROUP_REFUSED, topics=topics)
        allowed, refused = _describable(caller, message.topics)
        response: Any = await handler(replace(request, message=replace(message, topics=allowed)))
        if allowed is None:
            response.topics = _describable(caller, response.topics)[0]
        response.topics = [*response.topics, *_offsets_refused(refused, TOPIC_REFUSED)]
        first: Message = response
        return first
    groups, no_groups, withheld = [], [], dict[str, list[Any]]()
    for group in message.groups:
        if caller.has(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            allowed, withheld[group.group_id] = _describable(caller, group.topics)
            groups.append(replace(group, topics=allowed))
        else:
            no_groups.append(group)
    response = OffsetFetchResponse()
    if groups:
        response = await handler(replace(request, message=replace(message, groups=groups)))
    all_of = {each.group_id for each in groups if each.topics is None}
    for told in response.groups:
        if told.group_id in all_of:
            told.topics = _describable(caller, told.topics)[0]
        told.topics = [*told.topics, *map(_topic_offsets_refused, withheld.get(told.group_id, ()))]
    response.groups = [*response.groups, *map(_group_refused, no_groups)]
    answered: Message = response
    return answered


class _FetchedById:
    """OffsetFetch with topics by id. A group whose offsets are all asked for is answered without those of no topic."""

    first: Final = _FIRST_BY_ID

    async def __call__(self, broker: BrokerParts, request: Request[OffsetFetchRequest], handle: Handler, /) -> Message:
        """Return the offsets of topics; ids without one are refused with UNKNOWN_TOPIC_ID."""
        message, topics = request.message, broker.topics
        groups, unknown = [], dict[str, list[OffsetFetchRequestTopics]]()
        for group in message.groups:
            if group.topics is None:
                groups.append(group)
                continue
            known, unknown[group.group_id] = await named(topics, group.topics, request.turns)
            groups.append(replace(group, topics=known))
        response: Any = await handle(replace(request, message=replace(message, groups=groups)))
        for answered_group in response.groups:
            if answered_group.error_code:
                continue
            answered_group.topics = [each for each in answered_group.topics if topics.get(each.name) is not None]
            for each in answered_group.topics:
                each.topic_id = topics.known(each.name).id
            for topic in unknown.get(answered_group.group_id, ()):
                parts = [
                    _offset_refused(index, UNKNOWN_ID) async for index in request.turns.over(topic.partition_indexes)
                ]
                answered_group.topics.append(OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=parts))
        answered: Message = response
        return answered


def _describable(caller: AuthorizedCaller, topics: Any) -> tuple[Any, list[Any]]:
    """Return the topics that may be described, and the others; None stands for all, and stays None."""
    if topics is None:
        return None, []
    need = need_of_topic(AclOperation.DESCRIBE)
    return caller.split(need, topics, lambda each: str(each.name))


def _offsets_refused(topics: Iterable[Any], code: ErrorCode) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def _offset_refused(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=code)


def _topic_offsets_refused(asked: Any) -> OffsetFetchResponseTopics:
    parts = [_offset_refused(index, TOPIC_REFUSED) for index in asked.partition_indexes]
    return OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id, partitions=parts)


def _group_refused(asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=GROUP_REFUSED)


async def _authorized_list_groups(
    _broker: BrokerParts, request: Request[ListGroupsRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """List all groups with cluster Describe, otherwise those with group Describe."""
    response: Any = await handler(request)
    if not caller.has(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        response.groups = [
            each for each in response.groups if caller.has(AclOperation.DESCRIBE, ResourceType.GROUP, each.group_id)
        ]
    answered: Message = response
    return answered


async def _authorized_describe_groups(
    broker: BrokerParts, request: Request[DescribeGroupsRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Describe groups with group Describe (30)."""
    response: Any = await _DESCRIBED(broker, request, handler, caller)
    if request.message.include_authorized_operations:
        for each in response.groups:
            if each.error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED:
                each.authorized_operations = caller.operations(ResourceType.GROUP, each.group_id)
    answered: Message = response
    return answered


async def _authorized_commit_offsets(
    _broker: BrokerParts, request: Request[TxnOffsetCommitRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Commit with transactional id Write (53), group Read (30), topic Read (29)."""
    message = request.message
    if code := id_refusal(caller, message.transactional_id, message.group_id):
        return TxnOffsetCommitResponse(topics=[_not_committed(each, code) for each in message.topics])
    allowed, refused = caller.split(need_of_topic(AclOperation.READ), message.topics, lambda each: str(each.name))
    response: Any = TxnOffsetCommitResponse()
    if allowed or not refused:
        response = await handler(replace(request, message=replace(message, topics=allowed)))
    response.topics = [*response.topics, *(_not_committed(each, TOPIC_REFUSED) for each in refused)]
    answered: Message = response
    return answered


def _not_committed(asked: Any, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    parts = [
        TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
        for each in asked.partitions
    ]
    return TxnOffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=parts)


_COMMITTED_BY_ID_IN_TRANSACTION: Final[
    RowsById[TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic, TxnOffsetCommitResponse]
] = RowsById(
    _FIRST_TRANSACTIONAL_BY_ID,
    rows=lambda message: message.topics,
    only=lambda message, topics: replace(message, topics=topics),
    answered=lambda response: response.topics,
    parts=lambda topic: topic.partitions,
    refused=lambda part: TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=UNKNOWN_ID),
    refusal=lambda topic, parts: TxnOffsetCommitResponseTopic(topic_id=topic.topic_id, partitions=parts),
)


def _topics_of_consumers(group: ConsumerDescribed) -> set[str]:
    """Return the names of the topics that members of a described group have, or subscribe to."""
    assigned = {
        topic.topic_name
        for member in group.members
        for each in (member.assignment, member.target_assignment)
        for topic in each.topic_partitions
    }
    return assigned | subscribed_topics(group)


ROUTES: Final = (
    Route(
        ApiKey.OFFSET_COMMIT,
        range(11),
        offset_commit,
        most_bytes=16 * MIB,
        most_elements=MANY,
        rights=_COMMITTED,
        by_id=_COMMITTED_BY_ID,
    ),
    Route(
        ApiKey.OFFSET_FETCH,
        range(11),
        offset_fetch,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_authorized_offset_fetch,
        by_id=_FetchedById(),
    ),
    Route(
        ApiKey.JOIN_GROUP,
        range(10),
        answer,
        most_bytes=8 * MIB,
        most_elements=FEW,
        rights=WholeRight(
            READ_GROUP,
            lambda _: JoinGroupResponse(error_code=GROUP_REFUSED, generation_id=-1),
            lambda message: message.group_id,
        ),
    ),
    Route(
        ApiKey.HEARTBEAT,
        range(5),
        answer,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=WholeRight(
            READ_GROUP, lambda _: HeartbeatResponse(error_code=GROUP_REFUSED), lambda message: message.group_id
        ),
    ),
    Route(
        ApiKey.LEAVE_GROUP,
        range(6),
        answer,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=WholeRight(
            READ_GROUP, lambda _: LeaveGroupResponse(error_code=GROUP_REFUSED), lambda message: message.group_id
        ),
    ),
    Route(
        ApiKey.SYNC_GROUP,
        range(6),
        answer,
        most_bytes=16 * MIB,
        most_elements=MANY,
        rights=WholeRight(
            READ_GROUP, lambda _: SyncGroupResponse(error_code=GROUP_REFUSED), lambda message: message.group_id
        ),
    ),
    Route(
        ApiKey.DESCRIBE_GROUPS,
        range(7),
        answer,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_authorized_describe_groups,
    ),
    Route(
        ApiKey.LIST_GROUPS,
        range(6),
        answer,
        most_bytes=ONE_NAME,
        most_elements=FEW,
        rights=_authorized_list_groups,
    ),
    Route(
        ApiKey.TXN_OFFSET_COMMIT,
        range(7),
        commit_in_transaction,
        most_bytes=16 * MIB,
        most_elements=MANY,
        rights=_authorized_commit_offsets,
        by_id=_COMMITTED_BY_ID_IN_TRANSACTION,
    ),
    Route(
        ApiKey.DELETE_GROUPS,
        range(4),
        answer,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_GROUPS_DELETED,
    ),
    Route(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        range(2),
        consumer_heartbeat,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=HeartbeatRights(ConsumerGroupHeartbeatResponse),
    ),
    Route(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        range(2),
        answer,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=DescribeRights(_CONSUMERS_DESCRIBED, ConsumerDescribed, _topics_of_consumers),
    ),
    Route(
        ApiKey.OFFSET_DELETE,
        range(1),
        answer,
        most_bytes=8 * MIB,
        most_elements=MANY,
        rights=_DELETED,
    ),
)
