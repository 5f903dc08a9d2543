"""The port of a controller to the metadata: its election, and what it reads, watches and writes in its epoch.

It is not the port of the other brokers (`store.py`). A controller decides by the state that it read or wrote last, each
with a version, not by an image; and of many states that it writes each is written or refused by itself.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from magicbyte.engine.cluster.brokers import ControllerElection, RegisteredBroker
from magicbyte.engine.cluster.image import TopicImage
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.controller import AssignmentChange, StateChange
from magicbyte.engine.replication.state import KnownState


class WatchedPart(enum.Enum):
    """The parts of the metadata that a controller watches."""

    BROKERS = "the registered brokers"
    BROKER = "the registration of a broker"
    TOPICS = "the topics"
    TOPIC = "the partitions of a topic"
    STATE = "the state of a partition that is being reassigned"
    DELETIONS = "topics to delete"
    REASSIGNMENTS = "reassignments of old tools"
    PREFERRED_ELECTION = "preferred elections of old tools"
    ISR_CHANGES = "notices of changed in-sync replicas"
    LOG_DIRECTORY_EVENTS = "notices of failed log directories"
    CONFIG_CHANGES = "notices of changed settings"


PartChanged: TypeAlias = Callable[[WatchedPart, TopicPartition | None], None]
"""Called on the event loop with a part that has changed. Of a topic the partition is -1; other parts have none."""


class ControllerStore(Protocol):
    """The metadata for the controller of one epoch.

    Calls wait for a lost connection: only SessionExpiredError ends a call, and StaleControllerEpochError a change, once
    another controller has been elected. So a deposed controller changes nothing, even if it does not know it yet. A
    read watches, where it says so: its part is read again after a change, which sets the watch again. Unreadable
    content does not affect others: it is missing.
    """

    @property
    def has_moves_of_topics(self) -> bool:
        """Whether each broker, as the next controller, knows the reassignments that are stored with topics."""

    async def brokers(self) -> dict[int, RegisteredBroker]:
        """Return the registered brokers, and watch them."""

    async def topic_names(self) -> list[str]:
        """Return the names of all topics, and watch for new ones."""

    async def topics(self, names: Sequence[str]) -> dict[str, TopicImage]:
        """Return topics without states, and watch them; missing ones are left out."""

    async def states(
        self, partitions: Collection[TopicPartition], part: WatchedPart | None = None
    ) -> dict[TopicPartition, KnownState]:
        """Return the states of partitions that have one; watch them as `part`."""

    async def deletions(self, *, are_enabled: bool) -> list[str]:
        """Return the topics to delete, and watch for more; if deletion is disabled, requests are removed."""

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the reassignments requested by old tools, and watch them."""

    async def preferred_election(self) -> list[TopicPartition] | None:
        """Return the partitions for which old tools request preferred elections, or None; watch for requests."""

    async def isr_changes(self) -> list[TopicPartition]:
        """Return the partitions whose ISRs leaders have changed; delete the notices, and watch for more."""

    async def log_directory_events(self) -> list[int]:
        """Return the brokers with a failed log directory; delete the notices, and watch for more."""

    async def config_changes(self) -> list[str]:
        """Return the topics whose settings have changed since the last call; watch for more."""

    async def unclean(self, topics: Sequence[str]) -> dict[str, bool]:
        """Return `unclean.leader.election.enable` of the topics with their own setting."""

    async def write_states(self, changes: Sequence[StateChange]) -> dict[TopicPartition, KnownState]:
        """Write states that replace the expected versions; return the written ones. Others are refused."""

    async def write_assignments(self, changes: Iterable[AssignmentChange]) -> list[AssignmentChange]:
        """Write the replicas and reassignments of partitions; return those of existing topics."""

    async def give_id(self, topic: str, topic_id: uuid.UUID) -> TopicImage | None:
        """Assign an id to a topic without one; return it, None if it does not exist."""

    async def remove_topic(self, topic: str) -> None:
        """Remove a topic: its states, itself, its settings and the deletion request."""

    async def end_preferred_election(self) -> None:
        """Remove the request for preferred elections."""

    async def put_reassignments(self, wanted: Mapping[TopicPartition, Sequence[int]], *, is_new: bool) -> None:
        """Replace the reassignments requested by old tools; `is_new`: there are none yet."""


class Elections(Protocol):
    """The elections of controllers, in the session of one broker. Raises SessionExpiredError once that has ended."""

    async def stand(self, changed: Callable[[], None]) -> ControllerElection:
        """Become the controller if there is none; return the result, as soon as there is a connection.

        `changed` is called when the controller changes: then stand again. A repeated call by the controller changes
        nothing.
        """

    async def resign(self, election: ControllerElection, *, waits: bool = False) -> None:
        """Resign, if this session is still the controller. Raises NetworkError, or `waits` for a connection."""

    def store_of(self, election: ControllerElection, changed: PartChanged) -> ControllerStore:
        """Return the metadata for the controller that has won an election."""
