"""The parts of a broker that handlers use."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from magicbyte.server.coordinating.topic_changes import TopicChanges
from magicbyte.server.serving.shared_answers import SharedAnswers

if TYPE_CHECKING:
    from magicbyte.engine.cluster.store import ClusterStore
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.ports import MetadataStore
    from magicbyte.server.apis.sessions import Sessions
    from magicbyte.server.apis.share_sessions import ShareSessions
    from magicbyte.server.coordinating.coordinators import Coordinators
    from magicbyte.server.coordinating.shared_partitions import SharedPartitions
    from magicbyte.server.coordinating.verification import VerificationServices
    from magicbyte.server.partitions.appends import Appends
    from magicbyte.server.partitions.background import Background
    from magicbyte.server.partitions.replicas import Replicas
    from magicbyte.server.partitions.throttles import ReplicationThrottle
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.authorizer import Authorizer
    from magicbyte.server.stores.cluster_view import ClusterView
    from magicbyte.server.stores.membership import Membership
    from magicbyte.server.stores.producer_ids import ProducerIds
    from magicbyte.server.stores.topics import Topics


@dataclass(frozen=True, eq=False)
class BrokerParts:
    """The parts of a broker that its handlers use: their first parameter.

    `authorizer` is None if everything is allowed.
    """

    runtime: Runtime
    cluster_id: str
    metadata: MetadataStore
    cluster_store: ClusterStore
    logs: LogDirectory
    topics: Topics
    cluster_view: ClusterView
    membership: Membership
    replicas: Replicas
    appends: Appends
    coordinators: Coordinators
    background: Background
    sessions: Sessions
    leader_throttle: ReplicationThrottle
    authorizer: Authorizer | None

    @cached_property
    def topic_changes(self) -> TopicChanges:
        """Creates and deletes topics."""
        return TopicChanges(self.runtime, self.topics, self.replicas, self.coordinators, self.background)

    @cached_property
    def shared_partitions(self) -> SharedPartitions:
        """The records that share groups have in flight here."""
        from magicbyte.server.coordinating.shared_partitions import SharedPartitions

        return SharedPartitions(self.runtime, self.replicas, self.coordinators.share_state_client)

    @cached_property
    def share_sessions(self) -> ShareSessions:
        """The sessions of members of share groups. The records of one whose connection ends are released."""
        from magicbyte.server.apis.share_sessions import ShareSessions

        loop, most = asyncio.get_running_loop(), self.runtime.config.group_share_max_share_sessions

        def soon(call: Callable[[], None]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the broker has stopped
                loop.call_soon_threadsafe(call)

        return ShareSessions(most, lambda ended: self.shared_partitions.release(*ended.key, ended.partitions), soon)

    @cached_property
    def producer_ids(self) -> ProducerIds:
        """Gives producer ids."""
        from magicbyte.server.stores.producer_ids import ProducerIds

        return ProducerIds.of(self.cluster_store, self.runtime, self.logs)

    @cached_property
    def shared_answers(self) -> SharedAnswers:
        """The answers that follow from the cluster's image."""
        return SharedAnswers()

    @property
    def shares_answers(self) -> bool:
        """Whether an answer may be the same for all clients: without rights and throttle times of their own."""
        return self.authorizer is None and not self.runtime.quotas.is_limiting

    @cached_property
    def verification(self) -> VerificationServices:
        """Verifies transactions with their coordinators."""
        from magicbyte.server.coordinating.verification import VerificationServices

        return VerificationServices(self.runtime, self.replicas, self.coordinators)
