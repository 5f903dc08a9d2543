"""The coordinators of a broker: of groups, and of transactions.

Each is created at its first use, so that a start does not wait for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from magicbyte.engine.internal_topics import OFFSETS_TOPIC, STATE_TOPIC

if TYPE_CHECKING:
    from magicbyte.engine.coordination.effects import Marker
    from magicbyte.engine.errors import ErrorCode
    from magicbyte.engine.groups.classic.rules import GroupState
    from magicbyte.server.coordinating.coordinator_services import CoordinatorServices
    from magicbyte.server.coordinating.groups import Groups
    from magicbyte.server.coordinating.markers import MarkerWriter
    from magicbyte.server.coordinating.partition_checks import PartitionChecks
    from magicbyte.server.coordinating.transactions import Transactions
    from magicbyte.server.stores.peers import ClusterPeers


class Coordinators:
    """Both coordinators, by their topics."""

    def __init__(
        self, services: CoordinatorServices, new_producer_id: Callable[[], int], peers: ClusterPeers | None
    ) -> None:
        """`peers`: the other brokers, None without a cluster."""
        self._services, self._new_producer_id, self._peers = services, new_producer_id, peers
        self._groups: Groups | None = None
        self._transactions: Transactions | None = None
        self._partition_checks: PartitionChecks | None = None

    @property
    def groups(self) -> Groups:
        """The group coordinator."""
        if self._groups is None:
            from magicbyte.server.coordinating.groups import Groups

            self._groups = Groups(self._services)
        return self._groups

    @property
    def transactions(self) -> Transactions:
        """The transaction coordinator."""
        if self._transactions is None:
            from magicbyte.server.coordinating.transactions import Transactions

            self._transactions = Transactions(self._services, self._new_producer_id, self.marker_writer, self._peers)
        return self._transactions

    @property
    def marker_writer(self) -> MarkerWriter:
        """Writes the markers of transactions into partitions that this broker leads."""
        from magicbyte.server.coordinating.markers import MarkerWriter

        services = self._services
        return MarkerWriter(
            services.runtime.clock, services.topics, services.replicas, services.appends, self._end_of_offsets
        )

    def _end_of_offsets(self, partition: int, marker: Marker) -> asyncio.Future[ErrorCode]:
        return self.groups.end_transaction(partition, marker)

    @property
    def partition_checks(self) -> PartitionChecks:
        """Asks the coordinators of transactions, here and at other brokers, about partitions."""
        if self._partition_checks is None:
            from magicbyte.server.coordinating.partition_checks import PartitionChecks

            self._partition_checks = PartitionChecks(self._services.runtime, lambda: self.transactions, self._peers)
        return self._partition_checks

    def of(self, topic: str) -> Groups | Transactions | None:
        """Return the coordinator whose topic this is, None for any other topic."""
        if topic == OFFSETS_TOPIC:
            return self.groups
        return self.transactions if topic == STATE_TOPIC else None

    def start(self) -> None:
        """Load existing state: sessions may have expired while the broker was down, and transactions must be
        completed.
        """
        for topic in (OFFSETS_TOPIC, STATE_TOPIC):
            if self._services.topics.get(topic) is not None:
                self.of(topic)

    def topic_deleted(self, topic: str) -> None:
        """Delete the state of a deleted topic."""
        self.groups.topic_deleted(topic)
        if topic == STATE_TOPIC:
            self.transactions.topic_deleted(topic)

    def clock_turned(self) -> None:
        """Reset the timers, after a test has advanced the clock."""
        for each in (self._groups, self._transactions):
            if each is not None:
                each.clock_turned()

    def close(self) -> None:
        """Answer waiting requests; later ones are refused."""
        for each in (self._groups, self._transactions):
            if each is not None:
                each.close()

    def group_states(self) -> Counter[GroupState]:
        """Return the number of groups in each state; none before the coordinator's first use."""
        found = [] if self._groups is None else self._groups.coordinator.groups.values()
        return Counter(each.state for each in found)
