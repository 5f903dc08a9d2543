"""FindCoordinator: the coordinator of a group, or of a transactional id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import ErrorCode, MagicbyteError
from magicbyte.engine.groups.partitioning import partition_for
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from magicbyte.server.stores.cluster_view import NOBODY

if TYPE_CHECKING:
    from magicbyte.server.coordinating.coordinators import Coordinators
    from magicbyte.server.serving.request import Request, UnboundHandler
    from magicbyte.server.stores.cluster_view import ClusterView

_MANY_KEYS: Final = 4  # version of FindCoordinator from which a request has several keys
_GROUP, _TRANSACTION = 0, 1


@dataclass(frozen=True, slots=True)
class FindCoordinatorServices:
    """The parts of the broker that FindCoordinator uses."""

    cluster_view: ClusterView
    coordinators: Coordinators


async def find_coordinator(
    services: FindCoordinatorServices, request: Request[FindCoordinatorRequest]
) -> FindCoordinatorResponse:
    """Return the coordinators of groups or of transactional ids. Their topic is created if needed."""
    message, coordinators = request.message, services.coordinators
    code, why, topic, partitions = ErrorCode.NONE, None, "", 0
    many = request.version >= _MANY_KEYS
    keys = message.coordinator_keys if many else [message.key]
    if message.key_type not in (_GROUP, _TRANSACTION):
        code, why = ErrorCode.INVALID_REQUEST, f"coordinators of type {message.key_type} are not known"
    else:
        try:
            kept = await (
                coordinators.groups if message.key_type == _GROUP else coordinators.transactions
            ).ensure_topic()
            topic, partitions = kept.name, kept.partitions
        except MagicbyteError as error:
            code, why = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
    answers = [
        _coordinator_of(services, request, key, topic, partitions)
        if partitions
        else Coordinator(key=key, node_id=NOBODY, host="", port=-1, error_code=code, error_message=why)
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
    services: FindCoordinatorServices, request: Request[FindCoordinatorRequest], key: str, topic: str, partitions: int
) -> Coordinator:
    """Return the leader of the partition of `key`."""
    place = TopicPartition(topic, partition_for(key, partitions))
    member = services.cluster_view.coordinator(request.connection.listener, place)
    if member is None:
        code, why = ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{place}, the partition of {key}, has no leader"
        return Coordinator(key=key, node_id=NOBODY, host="", port=-1, error_code=code, error_message=why)
    return Coordinator(key=key, node_id=member.id, host=member.host, port=member.port, error_message=None)


HANDLERS: Final[Mapping[type, UnboundHandler]] = {FindCoordinatorRequest: find_coordinator}
