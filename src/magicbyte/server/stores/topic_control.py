"""Who decides about topics: a controller that announces them, or this broker in place of a controller."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from magicbyte.engine.cluster import topics
from magicbyte.engine.errors import InvalidTopicError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.sentinels import NO_BROKER

if TYPE_CHECKING:
    from magicbyte.engine.cluster.brokers import RegisteredBroker
    from magicbyte.engine.cluster.image import ClusterImage, PartitionImage, TopicImage
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.replication.state import PartitionOrder
    from magicbyte.server.serving.threads import Threads


class PartitionView(NamedTuple):
    """Leader (`NO_BROKER` if there is none) and leader epoch of a partition; replicas, in-sync and offline ones."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


_LOST: Final = PartitionView(NO_BROKER, -1, (), (), ())
"""A partition without a state yet."""


class TopicControl(Protocol):
    """Who leads partitions, and who creates and deletes their logs."""

    @property
    def deletes_logs(self) -> bool:
        """Whether this broker deletes the logs of a topic by itself, once that is requested."""

    def led_at_once(self, partitions: Collection[int]) -> Collection[int]:
        """Return those of the partitions of a topic that this broker leads without an order of a controller."""

    def own_order(self, image: ClusterImage, key: TopicPartition) -> PartitionOrder | None:
        """Return the order that follows from the image for a partition; None if a controller sends orders.

        Raises UnknownTopicError.
        """

    async def folder_check(self) -> Callable[[str, range], None]:
        """Return a function that raises InvalidTopicError if new partitions of a topic cannot have folders."""

    def leader(self, image: ClusterImage, key: TopicPartition) -> int:
        """Return the live leader of a partition, NO_BROKER if there is none or it is unknown."""

    def unopened(self, topic: str) -> Collection[int]:
        """Return the partitions of a topic that have no leader because their logs cannot be opened here."""

    def all_unopened(self) -> Sequence[TopicPartition]:
        """Return those of all topics."""

    def views(
        self, topic: TopicImage, live: Mapping[int, RegisteredBroker], unopened: Collection[int]
    ) -> Sequence[PartitionView]:
        """Return what is known of the partitions of a topic. `unopened` is the result of that method."""


class AnnouncedTopics:
    """A controller decides: a `TopicControl`. The assigned brokers create and delete logs as it orders."""

    deletes_logs = False

    def led_at_once(self, _partitions: Collection[int]) -> Collection[int]:
        """Return none."""
        return ()

    def own_order(self, _image: ClusterImage, _key: TopicPartition) -> PartitionOrder | None:
        """Return None."""
        return None

    async def folder_check(self) -> Callable[[str, range], None]:
        """Check nothing: the assigned brokers find out. Here may be a folder that is still being deleted."""
        return lambda _topic, _partitions: None

    def leader(self, image: ClusterImage, key: TopicPartition) -> int:
        """Return the leader by the state of a partition, if it is live."""
        partition = image.partition(key)
        if partition is None or partition.known is None:
            return NO_BROKER
        leader = partition.known.state.leader
        return leader if leader in image.brokers else NO_BROKER

    def unopened(self, _topic: str) -> Collection[int]:
        """Return none: the controller elects other leaders for logs that cannot be opened."""
        return ()

    def all_unopened(self) -> Sequence[TopicPartition]:
        """Return none."""
        return ()

    def views(
        self, topic: TopicImage, live: Mapping[int, RegisteredBroker], _unopened: Collection[int]
    ) -> Sequence[PartitionView]:
        """Return the partitions by their states."""
        return [_view(each, live) for each in topic.partitions]


def _view(partition: PartitionImage, live: Collection[int]) -> PartitionView:
    if partition.known is None:
        return _LOST
    state = partition.known.state
    leader = state.leader if state.leader in live else NO_BROKER
    offline = tuple(each for each in partition.replicas if each not in live)
    return PartitionView(leader, state.leader_epoch, partition.replicas, state.isr, offline)


class OwnTopics:
    """This broker decides, and leads each partition whose log it can open: a `TopicControl`.

    A log is created at its first use. `threads` run work on the log directory.
    """

    deletes_logs = True

    def __init__(self, broker_id: int, logs: LogDirectory, threads: Threads) -> None:
        self._broker_id, self._logs, self._threads = broker_id, logs, threads

    def led_at_once(self, partitions: Collection[int]) -> Collection[int]:
        """Return all."""
        return partitions

    def own_order(self, image: ClusterImage, key: TopicPartition) -> PartitionOrder:
        """Return the order to lead in the epoch of the image. Raises UnknownTopicError."""
        return topics.own_order(image, key, self._broker_id)

    async def folder_check(self) -> Callable[[str, range], None]:
        """Return a function that looks for the folders of new partitions in the log directory as it is now."""
        taken = await self._threads.run_short(self._logs.taken_names)

        def check_folders(topic: str, partitions: range) -> None:
            for key in (TopicPartition(topic, partition) for partition in partitions):
                if str(key) in taken:
                    why = (
                        self._logs.offline[key].why
                        if key in self._logs.offline
                        else "created outside the broker since its start"
                    )
                    raise InvalidTopicError(
                        f"partition {key} cannot be created: the log directory has something of that name: {why}"
                    )

        return check_folders

    def leader(self, _image: ClusterImage, _key: TopicPartition) -> int:
        """Return this broker."""
        return self._broker_id

    def unopened(self, topic: str) -> Collection[int]:
        """Return the partitions whose log, or anything with its name, cannot be opened."""
        return {key.partition for key in self._logs.offline if key.topic == topic}

    def all_unopened(self) -> Sequence[TopicPartition]:
        """Return them."""
        return tuple(self._logs.offline)

    def views(
        self, topic: TopicImage, _live: Mapping[int, RegisteredBroker], unopened: Collection[int]
    ) -> Sequence[PartitionView]:
        """Return the partitions as led here, whatever their states say, with the leader epochs of these."""
        epochs = [0 if each.known is None else each.known.state.leader_epoch for each in topic.partitions]
        alone = (self._broker_id,)
        led = {epoch: PartitionView(self._broker_id, epoch, alone, alone, ()) for epoch in set(epochs)}
        lost = {epoch: PartitionView(NO_BROKER, epoch, alone, alone, alone) for epoch in set(epochs)}
        return [lost[epoch] if index in unopened else led[epoch] for index, epoch in enumerate(epochs)]
