"""The answers of a broker that is a cluster by itself to requests that controllers answer.

It leads all partitions that can be led.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from magicbyte.engine.errors import ErrorCode, UnknownBrokerError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.election import ElectionType

if TYPE_CHECKING:
    from magicbyte.engine.replication.controller import IsrAnswer, IsrWish
    from magicbyte.engine.replication.reassignment import OngoingMove
    from magicbyte.server.stores.topic_control import OwnTopics
    from magicbyte.server.stores.topics import Topics


class LoneController:
    """The only broker as the controller: a `ControllerRequests`."""

    unclean_elections = 0

    def __init__(self, broker_id: int, topics: Topics, control: OwnTopics) -> None:
        self._broker_id, self._topics, self._control = broker_id, topics, control

    def _has(self, key: TopicPartition) -> bool:
        topic = self._topics.get(key.topic)
        return topic is not None and 0 <= key.partition < topic.partitions

    def settings_changed(self) -> None:
        """Do nothing: no election depends on a setting."""

    async def check_broker(self, broker_id: int, _broker_epoch: int) -> None:
        """Raise UnknownBrokerError for another broker."""
        if broker_id != self._broker_id:
            raise UnknownBrokerError(f"broker {broker_id} is not registered")

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Return no partition: none is to be handed over."""
        await self.check_broker(broker_id, broker_epoch)
        return []

    async def elect(
        self, kind: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether it has its leader, or cannot have one."""
        failure = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if kind is ElectionType.PREFERRED:
            failure = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if partitions is None:
            return dict.fromkeys(self._topics.offline(), failure)
        results = dict[TopicPartition, ErrorCode]()
        for key in partitions:
            results[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if self._has(key):
                is_offline = key.partition in self._control.unopened(key.topic)
                results[key] = failure if is_offline else ErrorCode.ELECTION_NOT_NEEDED
        return results

    async def reassign(
        self,
        wanted: Mapping[TopicPartition, Sequence[int] | None],
        *,
        keeps_factor: bool = False,  # noqa: ARG002
    ) -> dict[TopicPartition, tuple[ErrorCode, str]]:
        """Return the errors of reassignments to anything but this broker."""
        own, faults = [self._broker_id], dict[TopicPartition, tuple[ErrorCode, str]]()
        for key, targets in wanted.items():
            if not self._has(key):
                faults[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist"
            elif targets is None:
                faults[key] = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned"
            elif list(targets) != own:
                faults[key] = ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"expected {own}, the only broker"
        return faults

    async def reassignments(self) -> dict[TopicPartition, tuple[tuple[int, ...], OngoingMove]]:
        """Return none."""
        return {}

    async def alter_partitions(
        self, broker_id: int, _broker_epoch: int, _wishes: Mapping[TopicPartition, IsrWish]
    ) -> dict[TopicPartition, IsrAnswer]:
        """Raise UnknownBrokerError: no broker leads a partition with followers."""
        raise UnknownBrokerError(f"broker {broker_id} follows no partition")
