"""FindCoordinator: the coordinator of a group, of a transactional id, or of a state of a share group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from magicbyte.engine.cluster.acls import CLUSTER_NAME, AclOperation, ResourceType
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.errors import ErrorCode, MagicbyteError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.server.serving.authorization import (
    ACT,
    GROUP_REFUSED,
    ID_REFUSED,
    AuthorizedCaller,
    Need,
)
from magicbyte.server.serving.routes import MANY, MIB, Route

if TYPE_CHECKING:
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.broker_parts import BrokerParts
    from magicbyte.server.serving.request import Handler, Request

_MANY_KEYS: Final = 4  # version of FindCoordinator from which a request has several keys
_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_FIRST_WITH_SHARE: Final = 6


async def find_coordinator(broker: BrokerParts, request: Request[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    """Return the coordinators of groups, transactional ids or states. Their topic is created if needed."""
    message, coordinators = request.message, broker.coordinators
    code, why, topic, partitions = ErrorCode.NONE, None, "", 0
    many = request.version >= _MANY_KEYS
    keys = message.coordinator_keys if many else [message.key]
    kinds = (_GROUP, _TRANSACTION, _SHARE) if request.version >= _FIRST_WITH_SHARE else (_GROUP, _TRANSACTION)
    if message.key_type not in kinds:
        code, why = ErrorCode.INVALID_REQUEST, f"coordinators of type {message.key_type} are not known"
    else:
        try:
            kept = await coordinators.of_kind(message.key_type).ensure_topic()
            topic, partitions = kept.name, kept.partitions
        except MagicbyteError as error:
            code, why = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
    answers = [
        _coordinator_of(broker, request, key, topic, partitions)
        if partitions
        else Coordinator(key=key, node_id=NO_BROKER, host="", port=-1, error_code=code, error_message=why)
        async for key in request.turns.over(dict.fromkeys(keys))
    ]
    if many:
        return FindCoordinatorResponse(coordinators=answers)
    (only,) = answers
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator_of(
    broker: BrokerParts, request: Request[FindCoordinatorRequest], key: str, topic: str, partitions: int
) -> Coordinator:
    """Return the leader of the partition of `key`."""
    place = TopicPartition(topic, partition_for(key, partitions))
    member = broker.cluster_view.coordinator(request.connection.listener, place)
    if member is None:
        code, why = ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{place}, the partition of {key}, has no leader"
        return Coordinator(key=key, node_id=NO_BROKER, host="", port=-1, error_code=code, error_message=why)
    return Coordinator(key=key, node_id=member.id, host=member.host, port=member.port, error_message=None)


async def _authorized_find_coordinator(
    _broker: BrokerParts, request: Request[FindCoordinatorRequest], handler: Handler, caller: AuthorizedCaller
) -> Message | None:
    """Return coordinators with group Describe (30) or transactional id Describe (53), of states with ClusterAction."""
    message = request.message
    kind, code = ResourceType.GROUP, GROUP_REFUSED
    if message.key_type == _TRANSACTION:
        kind, code = ResourceType.TRANSACTIONAL_ID, ID_REFUSED
    need = Need(AclOperation.DESCRIBE, kind, code)
    if message.key_type == _SHARE:
        if caller.may(ACT, CLUSTER_NAME):
            return await handler(request)
        refused_keys = [
            Coordinator(key=each, node_id=-1, port=-1, error_code=ACT.code) for each in message.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=refused_keys)
    if request.version < _MANY_KEYS:
        if caller.may(need, message.key):
            return await handler(request)
        return FindCoordinatorResponse(error_code=code, node_id=-1, port=-1)
    allowed, refused = caller.split(need, message.coordinator_keys, str)
    response: Any = FindCoordinatorResponse()  # without calling the handler, which would create a missing offsets topic
    if allowed:
        response = await handler(replace(request, message=replace(message, coordinator_keys=allowed)))
    response.coordinators = [
        *response.coordinators,
        *(Coordinator(key=each, node_id=-1, port=-1, error_code=code) for each in refused),
    ]
    answered: Message = response
    return answered


ROUTES: Final = (
    Route(
        ApiKey.FIND_COORDINATOR,
        range(7),
        find_coordinator,
        most_bytes=4 * MIB,
        most_elements=MANY,
        rights=_authorized_find_coordinator,
    ),
)
