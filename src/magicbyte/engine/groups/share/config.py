"""The settings of share groups."""

from __future__ import annotations

from msgspec import Struct


class ShareConfig(Struct, frozen=True, kw_only=True):
    """The settings `group.share.*` of the group coordinator, with Kafka's names and defaults. Times in ms.

    `is_enabled`: whether the feature `share.version` has a level; otherwise requests are refused.
    `has_assignment_dates`: whether a new group begins at epoch 1, and assignments are an interval apart (4.3).
    `closes_empty`: whether the assignment of a group that becomes empty reaches its last epoch (4.4).
    """

    is_enabled: bool = True
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    max_size: int = 200
    initialize_retry_ms: int = 30_000
    has_assignment_dates: bool = True
    closes_empty: bool = True

    @property
    def first_epoch(self) -> int:
        """The epoch of a group without a record of it."""
        return 1 if self.has_assignment_dates else 0
