"""The members of a consumer group, as values: what a member subscribes to, and how far it is with its assignment."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

Partitions: TypeAlias = Mapping[uuid.UUID, tuple[int, ...]]
"""Partitions by topic, sorted; no topic without any."""
Held: TypeAlias = Mapping[uuid.UUID, Mapping[int, int]]
"""Partitions that a member has, by topic, each with the epoch at which it got it."""

JOINING: Final = 0
"""The epoch of a member that joins."""
LEAVING: Final = -1
"""The epoch of a member that leaves."""
AWAY: Final = -2
"""The epoch of a static member that leaves for a while."""


class MemberState(enum.IntEnum):
    """The states of a member, as they are stored."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it must stop owning partitions first
    UNRELEASED_PARTITIONS = 2  # others must stop owning partitions of its target
    UNKNOWN = 127  # of a later release


class ClassicMember(Struct, frozen=True):
    """What a member that uses the classic protocol sent in its JoinGroup: names and metadata of its protocols."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol(self) -> str:
        """The protocol that it prefers, in whose name it gets its assignment."""
        return self.protocols[0][0]


class Subscriber(Struct, frozen=True):
    """The subscription of a member, and what it says about itself. `topics` are sorted. `regex`: "" for none.

    `classic`: of a member that uses the classic protocol.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None

    @property
    def weight(self) -> int:
        """The approximate bytes in memory besides a fixed number."""
        texts = (self.instance_id, self.rack_id, self.client_id, self.client_host, self.regex, self.assignor)
        protocols = () if self.classic is None else self.classic.protocols
        sent = sum(len(name) + len(metadata) for name, metadata in protocols)
        return sum(len(each) for each in texts if each) + sum(len(each) for each in self.topics) + sent


class MemberProgress(Struct, frozen=True):
    """How far a member is with its assignment.

    `assigned` it has; `revoking` it must stop owning. Both are its own: no other member gets them.
    """

    epoch: int = JOINING
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Held = {}
    revoking: Held = {}

    def held(self) -> Iterator[tuple[uuid.UUID, int]]:
        """Yield all partitions that no other member may get."""
        for held in (self.assigned, self.revoking):
            for topic, partitions in held.items():
                for partition in partitions:
                    yield topic, partition


NEW: Final = MemberProgress()
"""Of a member that has just joined."""


def partitions_of(held: Held) -> Partitions:
    """Return the partitions without their epochs."""
    return {topic: tuple(sorted(epochs)) for topic, epochs in held.items() if epochs}
