"""The required rights of each API, and the response without them: a table for the dispatcher, if there is an
authorizer.

Rows that a caller may not name are removed from the request before the handler sees it, and refused in the response.
Source: Kafka's KafkaApis of 2.8; docs/broker/acls.md has the table in words, and the differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from magicbyte.engine.cluster.acls import CLUSTER_NAME, AclOperation, ResourceType
from magicbyte.engine.errors import ErrorCode, ProtocolError
from magicbyte.engine.protocol.messages import alter_partition_reassignments as reassign
from magicbyte.engine.protocol.messages import (
    delete_groups,
    delete_records,
    describe_groups,
    elect_leaders,
    list_offsets,
    offset_commit,
    offset_delete,
    produce,
)
from magicbyte.engine.protocol.messages import describe_producers as producers
from magicbyte.engine.protocol.messages import offset_for_leader_epoch as epochs
from magicbyte.engine.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from magicbyte.engine.protocol.messages.alter_partition import AlterPartitionResponse
from magicbyte.engine.protocol.messages.controlled_shutdown import ControlledShutdownResponse
from magicbyte.engine.protocol.messages.create_acls import AclCreationResult, CreateAclsResponse
from magicbyte.engine.protocol.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from magicbyte.engine.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from magicbyte.engine.protocol.messages.describe_acls import DescribeAclsResponse
from magicbyte.engine.protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from magicbyte.engine.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from magicbyte.engine.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResponse
from magicbyte.engine.protocol.messages.end_txn import EndTxnResponse
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatResponse
from magicbyte.engine.protocol.messages.join_group import JoinGroupResponse
from magicbyte.engine.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from magicbyte.engine.protocol.messages.leave_group import LeaveGroupResponse
from magicbyte.engine.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from magicbyte.engine.protocol.messages.stop_replica import StopReplicaResponse
from magicbyte.engine.protocol.messages.sync_group import SyncGroupResponse
from magicbyte.engine.protocol.messages.update_metadata import UpdateMetadataResponse
from magicbyte.server.apis.rights_special import (
    SPECIAL,
    AuthorizedCaller,
    Need,
    Special,
    is_controller,
    need_of_cluster,
    need_of_group,
    need_of_topic,
)
from magicbyte.server.apis.rights_transactions import OF_TRANSACTIONS, WRITE_ID
from magicbyte.server.coordinating.verification import is_transactional

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.rights_special import RightsServices
    from magicbyte.server.serving.request import Handler, Request

_NOTHING: Final[Mapping[str, Any]] = {}


class PartitionRows(NamedTuple):
    """The partitions in a row of a request and of a response; `number` is "" if a request has plain numbers."""

    asked: str
    number: str
    answered: str
    row: type[Any]
    said_number: str
    values: Mapping[str, Any] = _NOTHING


@dataclass(frozen=True, slots=True)
class ResponseRows:
    """The rows of a request, and of its response. `name` is "" if a request has plain names."""

    asked: str
    name: str
    answered: str
    row: type[Any]
    said_name: str = "name"
    parts: PartitionRows | None = None

    def name_of(self, asked: Any) -> str:
        """Return the name in a row of a request."""
        return str(getattr(asked, self.name) if self.name else asked)

    def refused(self, asked: Any, code: ErrorCode) -> Any:
        """Return the response row of a refused request row."""
        named = {self.said_name: self.name_of(asked)} if self.said_name else {}
        if (parts := self.parts) is None:
            return self.row(**named, error_code=code)
        rows = []
        for each in getattr(asked, parts.asked):
            number = getattr(each, parts.number) if parts.number else each
            rows.append(parts.row(**{parts.said_number: number}, error_code=code, **parts.values))
        return self.row(**named, **{parts.answered: rows})


@dataclass(frozen=True, slots=True)
class RequiredRights:
    """The required rights of one API: `whole` for a request, `each` for its rows; `name` is the field with the name for
    `whole`.

    `top`: the first version with an error code for the whole response, None: none. `values`: other fields of it if all
    is refused.
    """

    response: type[Any]
    whole: Need | None = None
    name: str | None = None
    rows: ResponseRows | None = None
    each: Need | None = None
    top: int | None = 0
    values: Mapping[str, Any] = field(default_factory=dict)

    async def answer(self, request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
        """Return the handler's response for the permitted rows, and refuse the rest."""
        message, rows = request.message, self.rows
        if self.whole is not None:
            name = CLUSTER_NAME if self.name is None else getattr(message, self.name)
            if not caller.may(self.whole, name):
                return self.refuse_all(message, request.version, self.whole.code)
        if self.each is None or rows is None:
            return await handler(request)
        asked = getattr(message, rows.asked)
        allowed, refused = caller.split(self.each, asked, rows.name_of)
        if not refused:
            return await handler(request)
        response = await handler(replace(request, message=replace(message, **{rows.asked: allowed})))
        if response is None:
            raise ProtocolError("a request without an answer", expected="topics that may be written to", found="others")
        getattr(response, rows.answered).extend(rows.refused(each, self.each.code) for each in refused)
        return response

    def refuse_all(self, message: Any, version: int, code: ErrorCode) -> Message:
        """Return the response to a request that is refused as a whole."""
        values = dict(self.values)
        if self.top is not None and version >= self.top:
            values["error_code"] = code
        if (rows := self.rows) is not None:
            values[rows.answered] = [rows.refused(each, code) for each in getattr(message, rows.asked) or ()]
        response: Message = self.response(**values)
        return response


_ACT: Final = need_of_cluster(AclOperation.CLUSTER_ACTION)
_READ_GROUP: Final = need_of_group(AclOperation.READ)
_PRODUCED: Final = ResponseRows(
    "topic_data",
    "name",
    "responses",
    produce.TopicProduceResponse,
    parts=PartitionRows(
        "partition_data",
        "index",
        "partition_responses",
        produce.PartitionProduceResponse,
        "index",
        {"base_offset": -1},
    ),
)
_COMMITTED: Final = ResponseRows(
    "topics",
    "name",
    "topics",
    offset_commit.OffsetCommitResponseTopic,
    parts=PartitionRows(
        "partitions", "partition_index", "partitions", offset_commit.OffsetCommitResponsePartition, "partition_index"
    ),
)

RULES: Final[Mapping[int, RequiredRights]] = {
    0: RequiredRights(produce.ProduceResponse, rows=_PRODUCED, each=need_of_topic(AclOperation.WRITE), top=None),
    2: RequiredRights(
        list_offsets.ListOffsetsResponse,
        rows=ResponseRows(
            "topics",
            "name",
            "topics",
            list_offsets.ListOffsetsTopicResponse,
            parts=PartitionRows(
                "partitions",
                "partition_index",
                "partitions",
                list_offsets.ListOffsetsPartitionResponse,
                "partition_index",
                {"timestamp": -1, "offset": -1},
            ),
        ),
        each=need_of_topic(AclOperation.DESCRIBE),
        top=None,
    ),
    4: RequiredRights(LeaderAndIsrResponse, _ACT),
    5: RequiredRights(StopReplicaResponse, _ACT),
    6: RequiredRights(UpdateMetadataResponse, _ACT),
    7: RequiredRights(ControlledShutdownResponse, _ACT),
    8: RequiredRights(
        offset_commit.OffsetCommitResponse,
        _READ_GROUP,
        "group_id",
        _COMMITTED,
        need_of_topic(AclOperation.READ),
        top=None,
    ),
    11: RequiredRights(JoinGroupResponse, _READ_GROUP, "group_id", values={"generation_id": -1}),
    12: RequiredRights(HeartbeatResponse, _READ_GROUP, "group_id"),
    13: RequiredRights(LeaveGroupResponse, _READ_GROUP, "group_id"),
    14: RequiredRights(SyncGroupResponse, _READ_GROUP, "group_id"),
    15: RequiredRights(
        describe_groups.DescribeGroupsResponse,
        rows=ResponseRows("groups", "", "groups", describe_groups.DescribedGroup, "group_id"),
        each=need_of_group(AclOperation.DESCRIBE),
        top=None,
    ),
    21: RequiredRights(
        delete_records.DeleteRecordsResponse,
        rows=ResponseRows(
            "topics",
            "name",
            "topics",
            delete_records.DeleteRecordsTopicResult,
            parts=PartitionRows(
                "partitions",
                "partition_index",
                "partitions",
                delete_records.DeleteRecordsPartitionResult,
                "partition_index",
                {"low_watermark": -1},
            ),
        ),
        each=need_of_topic(AclOperation.DELETE),
        top=None,
    ),
    26: RequiredRights(EndTxnResponse, WRITE_ID, "transactional_id"),
    29: RequiredRights(DescribeAclsResponse, need_of_cluster(AclOperation.DESCRIBE)),
    30: RequiredRights(
        CreateAclsResponse,
        need_of_cluster(AclOperation.ALTER),
        rows=ResponseRows("creations", "", "results", AclCreationResult, ""),
        top=None,
    ),
    31: RequiredRights(
        DeleteAclsResponse,
        need_of_cluster(AclOperation.ALTER),
        rows=ResponseRows("filters", "", "filter_results", DeleteAclsFilterResult, ""),
        top=None,
    ),
    35: RequiredRights(DescribeLogDirsResponse, need_of_cluster(AclOperation.DESCRIBE)),
    37: RequiredRights(
        CreatePartitionsResponse,
        rows=ResponseRows("topics", "name", "results", CreatePartitionsTopicResult),
        each=need_of_topic(AclOperation.ALTER),
        top=None,
    ),
    42: RequiredRights(
        delete_groups.DeleteGroupsResponse,
        rows=ResponseRows("groups_names", "", "results", delete_groups.DeletableGroupResult, "group_id"),
        each=need_of_group(AclOperation.DELETE),
        top=None,
    ),
    43: RequiredRights(
        elect_leaders.ElectLeadersResponse,
        need_of_cluster(AclOperation.ALTER),
        rows=ResponseRows(
            "topic_partitions",
            "topic",
            "replica_election_results",
            elect_leaders.ReplicaElectionResult,
            "topic",
            PartitionRows("partitions", "", "partition_result", elect_leaders.PartitionResult, "partition_id"),
        ),
        top=1,
    ),
    45: RequiredRights(
        reassign.AlterPartitionReassignmentsResponse,
        need_of_cluster(AclOperation.ALTER),
        rows=ResponseRows(
            "topics",
            "name",
            "responses",
            reassign.ReassignableTopicResponse,
            parts=PartitionRows(
                "partitions", "partition_index", "partitions", reassign.ReassignablePartitionResponse, "partition_index"
            ),
        ),
    ),
    46: RequiredRights(ListPartitionReassignmentsResponse, need_of_cluster(AclOperation.DESCRIBE)),
    47: RequiredRights(
        offset_delete.OffsetDeleteResponse,
        need_of_group(AclOperation.DELETE),
        "group_id",
        ResponseRows(
            "topics",
            "name",
            "topics",
            offset_delete.OffsetDeleteResponseTopic,
            parts=PartitionRows(
                "partitions",
                "partition_index",
                "partitions",
                offset_delete.OffsetDeleteResponsePartition,
                "partition_index",
            ),
        ),
        need_of_topic(AclOperation.READ),
    ),
    48: RequiredRights(
        DescribeClientQuotasResponse, need_of_cluster(AclOperation.DESCRIBE_CONFIGS), values={"entries": None}
    ),
    50: RequiredRights(DescribeUserScramCredentialsResponse, need_of_cluster(AclOperation.DESCRIBE)),
    56: RequiredRights(AlterPartitionResponse, _ACT),
    61: RequiredRights(
        producers.DescribeProducersResponse,
        rows=ResponseRows(
            "topics",
            "name",
            "topics",
            producers.TopicResponse,
            parts=PartitionRows("partition_indexes", "", "partitions", producers.PartitionResponse, "partition_index"),
        ),
        each=need_of_topic(AclOperation.READ),
        top=None,
    ),
    67: RequiredRights(AllocateProducerIdsResponse, _ACT),
}
"""By API key; others are in `SPECIAL`, or free for every client: `FREE`."""

FREE: Final = frozenset({17, 18, 36})
_EPOCHS: Final = RequiredRights(
    epochs.OffsetForLeaderEpochResponse,
    rows=ResponseRows(
        "topics",
        "topic",
        "topics",
        epochs.OffsetForLeaderTopicResult,
        "topic",
        PartitionRows("partitions", "partition", "partitions", epochs.EpochEndOffset, "partition"),
    ),
    each=need_of_topic(AclOperation.DESCRIBE),
    top=None,
)
_PRODUCE, _DESCRIBE_GROUPS, _LEADER_EPOCHS, _CREATE_PARTITIONS = 0, 15, 23, 37


async def answer(services: RightsServices, key: int, request: Request[Any], handler: Handler) -> Message | None:
    """Return the handler's response as far as the connection is authorized."""
    caller = AuthorizedCaller(services, request.connection)
    if key in FREE or (key == _CREATE_PARTITIONS and not is_controller(services.cluster_view)):
        return await handler(request)
    if (special := SPECIAL_OF_KEY.get(key)) is not None:
        return await special(request, handler, caller)
    return await RULES[key].answer(request, handler, caller)


async def _leader_epochs(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Allow brokers to ask about all topics, consumers about those that they may describe."""
    if caller.may(_ACT, CLUSTER_NAME):
        return await handler(request)
    return await _EPOCHS.answer(request, handler, caller)


async def _described_groups(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Describe groups, with the authorized operations if requested."""
    response: Any = await RULES[_DESCRIBE_GROUPS].answer(request, handler, caller)
    if request.message.include_authorized_operations:
        for each in response.groups:
            if each.error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED:
                each.authorized_operations = caller.operations(ResourceType.GROUP, each.group_id)
    answered: Message = response
    return answered


async def _produced(request: Request[Any], handler: Handler, caller: AuthorizedCaller) -> Message | None:
    """Append transactional sets only for those who may use the transactional id."""
    message, name = request.message, request.message.transactional_id
    sets = (part.records for topic in message.topic_data for part in topic.partition_data)
    if name is not None and not caller.may(WRITE_ID, name) and any(is_transactional(each) for each in sets):
        if not message.acks:
            raise ProtocolError("a request without an answer", expected="an id that may be used", found="another")
        return RULES[_PRODUCE].refuse_all(message, request.version, WRITE_ID.code)
    return await RULES[_PRODUCE].answer(request, handler, caller)


SPECIAL_OF_KEY: Final[Mapping[int, Special]] = {
    **SPECIAL,
    **OF_TRANSACTIONS,
    _PRODUCE: _produced,
    _DESCRIBE_GROUPS: _described_groups,
    _LEADER_EPOCHS: _leader_epochs,
}
