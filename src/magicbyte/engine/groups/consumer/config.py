"""The settings of consumer groups, and what differs between releases."""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct

UNIFORM: Final = "uniform"
RANGE: Final = "range"


class MigrationPolicy(enum.Enum):
    """Whether groups with members are converted: from the classic protocol, and to it."""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def mixes(self) -> bool:
        """Whether a group may have members of both protocols."""
        return self is not MigrationPolicy.DISABLED

    @property
    def upgrades(self) -> bool:
        """Whether a group becomes a consumer group with the first member that uses its protocol."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether a group becomes a classic group when the last member that uses the consumer protocol leaves."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ConsumerConfig(Struct, frozen=True, kw_only=True):
    """The settings `group.consumer.*`, with Kafka's names and defaults. Times in ms. Groups may have their own.

    `is_enabled`: whether the feature `group.version` has a level; otherwise requests are refused. Of releases:
    `keeps_assignment_epochs`: whether records hold the epochs at which members got partitions, a new group begins at
    epoch 1, and assignments are an interval apart (4.3). `closes_empty`: whether the assignment of a group that becomes
    empty reaches its last epoch, and a changed assignor is a reason for a new assignment (4.4). `names_missing_group`:
    whether OffsetCommit 9 by a member of an unknown group gets GROUP_ID_NOT_FOUND (4.0).
    """

    is_enabled: bool = True
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    regex_refresh_interval_ms: int = 600_000
    max_size: int = 0x7FFF_FFFF
    assignors: tuple[str, ...] = (UNIFORM, RANGE)
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    keeps_assignment_epochs: bool = True
    closes_empty: bool = True
    names_missing_group: bool = False

    @property
    def first_epoch(self) -> int:
        """The epoch of a group without a record of it."""
        return 1 if self.keeps_assignment_epochs else 0
