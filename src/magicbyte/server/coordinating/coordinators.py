"""The coordinators of a broker, by their topics: of groups, of transactions, and of states of share groups.

Each is created at its first use, so that a start does not wait for it. A further coordinator is a row of `_makers`, and
a property for its handlers ([decision 0022](../../../../docs/decisions/0022-coordinators.md)).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from magicbyte.engine.internal_topics import OFFSETS_TOPIC, SHARE_TOPIC, STATE_TOPIC

if TYPE_CHECKING:
    from magicbyte.engine.coordination.effects import Marker
    from magicbyte.engine.errors import ErrorCode
    from magicbyte.engine.groups.classic.rules import GroupState
    from magicbyte.server.coordinating.coordinating import Coordinating
    from magicbyte.server.coordinating.coordinator_services import CoordinatorServices
    from magicbyte.server.coordinating.groups import Groups
    from magicbyte.server.coordinating.markers import MarkerWriter
    from magicbyte.server.coordinating.partition_checks import PartitionChecks
    from magicbyte.server.coordinating.share_states import ShareStateClient, ShareStates
    from magicbyte.server.coordinating.transactions import Transactions
    from magicbyte.server.stores.peers import Peers


class Coordinators:
    """The coordinators, by their topics."""

    def __init__(
        self, services: CoordinatorServices, new_producer_id: Callable[[], int], peers: Callable[[], Peers]
    ) -> None:
        self._services, self._new_producer_id, self._peers = services, new_producer_id, peers
        self._makers: dict[str, Callable[[], Coordinating[Any]]] = {
            OFFSETS_TOPIC: self._make_groups,
            STATE_TOPIC: self._make_transactions,
            SHARE_TOPIC: self._make_share_states,
        }
        self._made: dict[str, Any] = {}
        self._partition_checks: PartitionChecks | None = None
        self._share_state_client: ShareStateClient | None = None

    def of(self, topic: str) -> Coordinating[Any] | None:
        """Return the coordinator whose topic this is, None for any other topic."""
        made: Coordinating[Any] | None = self._made.get(topic)
        if made is None and (make := self._makers.get(topic)) is not None:
            made = self._made[topic] = make()
        return made

    def of_kind(self, key_type: int) -> Coordinating[Any]:
        """Return the coordinator of a type of keys, as FindCoordinator numbers them."""
        return (self.groups, self.transactions, self.share_states)[key_type]

    def suspend(self) -> None:
        """Stop coordinating until a controller orders it again: it may have elected others meanwhile.

        An old leader that still answers loses nothing: what it appends is not acknowledged without the in-sync
        replicas. But an old coordinator would answer with offsets that are committed no more.
        """
        for made in self._made.values():
            made.suspend()

    @property
    def groups(self) -> Groups:
        """The group coordinator."""
        if OFFSETS_TOPIC not in self._made:
            self.of(OFFSETS_TOPIC)
        made: Groups = self._made[OFFSETS_TOPIC]
        return made

    def _make_groups(self) -> Groups:
        from magicbyte.server.coordinating.groups import Groups

        return Groups(self._services, lambda: self.share_state_client)

    @property
    def share_states(self) -> ShareStates:
        """The share coordinator."""
        if SHARE_TOPIC not in self._made:
            self.of(SHARE_TOPIC)
        made: ShareStates = self._made[SHARE_TOPIC]
        return made

    def _make_share_states(self) -> ShareStates:
        from magicbyte.server.coordinating.share_states import ShareStates

        return ShareStates(self._services)

    @property
    def share_state_client(self) -> ShareStateClient:
        """Asks the share coordinators, here and at other brokers."""
        if self._share_state_client is None:
            from magicbyte.server.coordinating.share_states import ShareStateClient

            self._share_state_client = ShareStateClient(
                self._services.runtime, lambda: self.share_states, self._peers()
            )
        return self._share_state_client

    @property
    def transactions(self) -> Transactions:
        """The transaction coordinator."""
        if STATE_TOPIC not in self._made:
            self.of(STATE_TOPIC)
        made: Transactions = self._made[STATE_TOPIC]
        return made

    def _make_transactions(self) -> Transactions:
        from magicbyte.server.coordinating.transactions import Transactions

        return Transactions(self._services, self._new_producer_id, self.marker_writer, self._peers())

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

            self._partition_checks = PartitionChecks(self._services.runtime, lambda: self.transactions, self._peers())
        return self._partition_checks

    def start(self) -> None:
        """Load existing state: sessions may have expired while the broker was down, and transactions must be
        completed.
        """
        for topic in self._makers:
            if self._services.topics.get(topic) is not None:
                self.of(topic)

    def topic_deleted(self, topic: str) -> None:
        """Delete the state of a deleted topic."""
        for coordinator in self._made.values():
            coordinator.topic_deleted(topic)

    def clock_turned(self) -> None:
        """Reset the timers, after a test has advanced the clock."""
        for coordinator in self._made.values():
            coordinator.clock_turned()

    def close(self) -> None:
        """Answer waiting requests; later ones are refused."""
        for coordinator in self._made.values():
            coordinator.close()

    def group_states(self) -> Counter[GroupState]:
        """Return the number of classic groups in each state; none before the coordinator's first use."""
        if OFFSETS_TOPIC not in self._made:
            return Counter()
        coordinator = self.groups.coordinator
        return Counter(group.state for name, group in coordinator.groups.items() if name not in coordinator.consumers)
