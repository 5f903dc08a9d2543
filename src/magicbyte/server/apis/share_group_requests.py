"""The requests about share groups, and those of brokers about the stored states of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.acls import AclOperation
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages import delete_share_group_state as deletion
from magicbyte.engine.protocol.messages import initialize_share_group_state as initialization
from magicbyte.engine.protocol.messages import read_share_group_state as reading
from magicbyte.engine.protocol.messages import read_share_group_state_summary as summary
from magicbyte.engine.protocol.messages import share_group_describe as description
from magicbyte.engine.protocol.messages import write_share_group_state as writing
from magicbyte.engine.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatResponse,
)
from magicbyte.server.apis.member_rights import DescribeRights, HeartbeatRights, subscribed_topics
from magicbyte.server.serving.authorization import (
    ACT,
    CLUSTER_REFUSED,
    RowRights,
    WholeRight,
    need_of_group,
)
from magicbyte.server.serving.routes import MANY, MIB, Route

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Request


async def ask_group_coordinator(broker: BrokerParts, request: Request[Any]) -> Message:
    """Answer a request that is handled by the group coordinator."""
    return await broker.coordinators.groups.ask(request)


async def ask_share_coordinator(broker: BrokerParts, request: Request[Any]) -> Message:
    """Answer a request that is handled by the share coordinator."""
    return await broker.coordinators.share_states.ask(request)


def _refuse_description(response: description.ShareGroupDescribeResponse, group: str, code: ErrorCode) -> None:
    response.groups.append(description.DescribedGroup(group_id=group, error_code=code))


_DESCRIBED: Final[RowRights[description.ShareGroupDescribeRequest, str, description.ShareGroupDescribeResponse]] = (
    RowRights(
        need_of_group(AclOperation.DESCRIBE),
        rows=lambda message: message.group_ids,
        name=str,
        only=lambda message, groups: replace(message, group_ids=groups),
        refuse=_refuse_description,
    )
)


def _refused(kind: Any, topic_of: Any, result_of: Any) -> WholeRight[Any]:
    """Return the right of brokers, without which each row is refused with CLUSTER_AUTHORIZATION_FAILED (31)."""

    def refusal(request: Request[Any]) -> Message:
        results = [
            topic_of(
                topic_id=topic.topic_id,
                partitions=[
                    result_of(partition=each.partition, error_code=CLUSTER_REFUSED) for each in topic.partitions
                ],
            )
            for topic in request.message.topics
        ]
        response: Message = kind(results=results)
        return response

    return WholeRight(ACT, refusal)


ROUTES: Final = (
    Route(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        range(2),
        ask_group_coordinator,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=HeartbeatRights(ShareGroupHeartbeatResponse),
    ),
    Route(
        ApiKey.SHARE_GROUP_DESCRIBE,
        range(2),
        ask_group_coordinator,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=DescribeRights(_DESCRIBED, description.DescribedGroup, subscribed_topics),
    ),
    Route(
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        range(1),
        ask_share_coordinator,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_refused(
            initialization.InitializeShareGroupStateResponse,
            initialization.InitializeStateResult,
            initialization.PartitionResult,
        ),
        of_brokers=True,
    ),
    Route(
        ApiKey.READ_SHARE_GROUP_STATE,
        range(1),
        ask_share_coordinator,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_refused(reading.ReadShareGroupStateResponse, reading.ReadStateResult, reading.PartitionResult),
        of_brokers=True,
    ),
    Route(
        ApiKey.WRITE_SHARE_GROUP_STATE,
        range(2),
        ask_share_coordinator,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_refused(writing.WriteShareGroupStateResponse, writing.WriteStateResult, writing.PartitionResult),
        of_brokers=True,
    ),
    Route(
        ApiKey.DELETE_SHARE_GROUP_STATE,
        range(1),
        ask_share_coordinator,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_refused(deletion.DeleteShareGroupStateResponse, deletion.DeleteStateResult, deletion.PartitionResult),
        of_brokers=True,
    ),
    Route(
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        range(2),
        ask_share_coordinator,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_refused(
            summary.ReadShareGroupStateSummaryResponse, summary.ReadStateSummaryResult, summary.PartitionResult
        ),
        of_brokers=True,
    ),
)
