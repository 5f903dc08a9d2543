"""The settings of the group coordinator."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from magicbyte.engine.coordination.deadlines import DAY_MS
from magicbyte.engine.groups.consumer.config import ConsumerConfig
from magicbyte.engine.groups.share.config import ShareConfig
from magicbyte.engine.releases import EMPTY_GROUPS, GROUP_VALUES, OFFSET_VALUES, OFFSETS_EXPIRE_WITH_GROUP


class StoredVersions(NamedTuple):
    """The versions of the stored values for an `inter.broker.protocol.version`.

    `keeps_empty_groups`: a group without members has a value. Before 0.10.1 it has a tombstone: those versions do not
    allow a null protocol or leader, and a broker that reads such a value stops loading.
    """

    group_value: int
    offset_value: int
    expires_by_commit: bool
    keeps_empty_groups: bool = True

    @classmethod
    def of(cls, protocol_version: tuple[int, ...]) -> StoredVersions:
        """Return the versions of a protocol version such as (0, 10, 2) or (2, 1), in its last stage."""
        group = next((value for value, first in GROUP_VALUES.items() if protocol_version >= first), 0)
        offset = next((value for value, first in OFFSET_VALUES.items() if protocol_version >= first), 1)
        return cls(group, offset, protocol_version < OFFSETS_EXPIRE_WITH_GROUP, protocol_version >= EMPTY_GROUPS)

    @property
    def has_static_members(self) -> bool:
        """Whether a group's record can hold static members."""
        return self.group_value >= 3


def needed_protocol(group_value: int, offset_value: int) -> tuple[int, ...]:
    """Return the first protocol version whose brokers can read these value versions; () for any."""
    group = next((first for value, first in GROUP_VALUES.items() if group_value >= value), ())
    offset = OFFSET_VALUES[3] if offset_value >= 2 else ()
    return max(group, offset)


LATEST = StoredVersions(3, 3, expires_by_commit=False)


class GroupConfig(Struct, frozen=True, kw_only=True):
    """The coordinator's settings, with Kafka's names and defaults (`group.min.session.timeout.ms` ...).

    Times in ms. `stored` has the versions of stored records, and whether each offset has an expiration time of its own,
    as before 2.0. `consumer`: of groups of the consumer protocol. `share`: of share groups.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 0x7FFF_FFFF
    metadata_max_bytes: int = 128 << 20
    offsets_partitions: int = 50
    offsets_retention_ms: int = 7 * DAY_MS
    offset_metadata_max_bytes: int = 4096
    stored: StoredVersions = LATEST
    consumer: ConsumerConfig = ConsumerConfig()
    share: ShareConfig = ShareConfig()
