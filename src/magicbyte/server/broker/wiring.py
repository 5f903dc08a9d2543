"""Select the parts of a broker that the handlers of each module use: the only place that sees all of them.

A module's services are created at its first request, because the module is imported then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magicbyte.server.coordinating.topic_changes import TopicChanges

if TYPE_CHECKING:
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.ports import MetadataStore
    from magicbyte.engine.protocol import Message
    from magicbyte.server.apis.sessions import Sessions
    from magicbyte.server.coordinating.coordinators import Coordinators
    from magicbyte.server.coordinating.verification import VerificationServices
    from magicbyte.server.partitions.appends import Appends
    from magicbyte.server.partitions.background import Background
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.partitions.throttles import ReplicationThrottle
    from magicbyte.server.serving.dispatch import Guard
    from magicbyte.server.serving.request import Handler, Request
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.authorizer import Authorizer
    from magicbyte.server.stores.cluster import ProducerIds
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.controller import ControllerService
    from magicbyte.server.stores.membership import Membership
    from magicbyte.server.stores.metadata_cache import MetadataCache
    from magicbyte.server.stores.topics import Topics


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """All parts of a broker that is about to listen.

    `cache` and `membership` are None for a broker that is a cluster by itself, `authorizer` if everything is allowed.
    `controller` returns the candidate, None until it exists.
    """

    runtime: Runtime
    cluster_id: str
    metadata: MetadataStore
    logs: LogDirectory
    topics: Topics
    cluster_view: ClusterView
    cache: MetadataCache | None
    membership: Membership | None
    controller: Callable[[], ControllerService | None]
    replicas: Replicas
    appends: Appends
    coordinators: Coordinators
    background: Background
    producer_ids: ProducerIds
    sessions: Sessions
    leader_throttle: ReplicationThrottle
    authorizer: Authorizer | None
    config_changed: Callable[[], None]

    @property
    def topic_changes(self) -> TopicChanges:
        """Creates and deletes topics."""
        return TopicChanges(self.runtime, self.topics, self.replicas, self.coordinators, self.background)

    @property
    def verification(self) -> VerificationServices:
        """Verifies transactions with their coordinators."""
        from magicbyte.server.coordinating.verification import VerificationServices

        return VerificationServices(self.runtime, self.replicas, self.coordinators)

    @property
    def guard(self) -> Guard | None:
        """Answers requests as far as their senders may; None if everything is allowed."""
        if self.authorizer is None:
            return None
        from magicbyte.server.apis.rights_special import RightsServices

        services = RightsServices(self.runtime.config, self.authorizer, self.topics, self.cluster_view)

        def guard(key: int, request: Request[Any], handler: Handler) -> Awaitable[Message | None]:
            from magicbyte.server.apis.rights import answer  # at the first request: a start does not wait for it

            return answer(services, key, request, handler)

        return guard

    def services_of(self, module: str) -> Any:
        """Return the services for the handlers of a module in this room."""
        return _SERVICES[module](self)


def _metadata(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.metadata import MetadataServices

    return MetadataServices(
        parts.runtime, parts.topics, parts.cluster_view, parts.cache, parts.topic_changes, parts.cluster_id
    )


def _find_coordinator(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.find_coordinator import FindCoordinatorServices

    return FindCoordinatorServices(parts.cluster_view, parts.coordinators)


def _producers(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.producers import ProducerServices

    return ProducerServices(parts.runtime, parts.producer_ids, parts.coordinators)


def _produce(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.produce import ProduceServices

    return ProduceServices(parts.runtime, parts.topics, parts.replicas, parts.appends, parts.verification)


def _fetch(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.fetch import FetchServices

    return FetchServices(parts.runtime, parts.topics, parts.replicas, parts.sessions, parts.leader_throttle)


def _offsets(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.offsets import OffsetServices

    return OffsetServices(parts.runtime, parts.topics, parts.replicas)


def _group_requests(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.group_requests import GroupServices

    return GroupServices(parts.runtime, parts.metadata, parts.replicas, parts.coordinators, parts.verification)


def _transaction_requests(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.transaction_requests import TransactionServices

    coordinators = parts.coordinators
    return TransactionServices(parts.runtime, parts.topics, coordinators, coordinators.marker_writer)


def _admin_topics(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.admin_topics import TopicServices

    return TopicServices(
        parts.runtime,
        parts.topics,
        parts.replicas,
        parts.cluster_view,
        parts.cache,
        parts.coordinators,
        parts.topic_changes,
    )


def _admin_configs(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.admin_configs import ConfigServices

    return ConfigServices(parts.runtime, parts.topics, parts.metadata, parts.config_changed)


def _admin_cluster(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.admin_cluster import ClusterServices

    return ClusterServices(parts.runtime, parts.logs, parts.replicas, parts.cluster_view, parts.cache, parts.cluster_id)


def _admin_quotas(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.admin_quotas import QuotaServices

    return QuotaServices(parts.runtime, parts.metadata)


def _admin_scram(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.admin_scram import ScramServices

    return ScramServices(parts.runtime, parts.metadata)


def _cluster_requests(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.cluster_requests import ReplicaServices

    return ReplicaServices(
        parts.runtime, parts.topics, parts.replicas, parts.coordinators, parts.cache, parts.membership
    )


def _controller_requests(parts: BrokerParts) -> Any:
    from magicbyte.server.apis.controller_requests import ControllerServices

    return ControllerServices(parts.runtime, parts.topics, parts.producer_ids, parts.controller)


_SERVICES: Final[Mapping[str, Callable[[BrokerParts], Any]]] = {
    "admin_acls": lambda parts: parts.authorizer,
    "admin_cluster": _admin_cluster,
    "admin_configs": _admin_configs,
    "admin_quotas": _admin_quotas,
    "admin_scram": _admin_scram,
    "admin_topics": _admin_topics,
    "cluster_requests": _cluster_requests,
    "controller_requests": _controller_requests,
    "fetch": _fetch,
    "find_coordinator": _find_coordinator,
    "group_requests": _group_requests,
    "login_requests": lambda _parts: None,
    "metadata": _metadata,
    "offsets": _offsets,
    "produce": _produce,
    "producers": _producers,
    "transaction_requests": _transaction_requests,
    "api_versions": lambda parts: parts.runtime.offer,
}
"""By module of the handlers, as in `versions.SERVED`."""
