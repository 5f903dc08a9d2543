"""Which partition a group, or a transactional id, belongs to, and with it which broker coordinates it."""

from __future__ import annotations

import struct
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
STATE_TOPIC: Final = "__transaction_state"
_LOWEST: Final = -(1 << 31)


def java_hash(text: str) -> int:
    """Return what Java's String.hashCode does: an int32 over the units of UTF-16."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for (unit,) in struct.iter_unpack(">H", units):
        found = (31 * found + unit) & 0xFFFF_FFFF
    return found - (found >> 31 << 32)


def partition_for(name: str, partitions: int) -> int:
    """Return the partition of a group or transactional id.

    Kafka takes the absolute value of the hash, 0 for the int32 that has none.
    """
    found = java_hash(name)
    return 0 if found == _LOWEST else abs(found) % partitions
