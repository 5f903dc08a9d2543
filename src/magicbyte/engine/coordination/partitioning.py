"""The partition of a group or transactional id, which determines its coordinator."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

_LOWEST: Final = -(1 << 31)


def java_hash(text: str) -> int:
    """Return the result of Java's String.hashCode: an int32 over UTF-16 code units."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for (unit,) in struct.iter_unpack(">H", units):
        found = (31 * found + unit) & 0xFFFF_FFFF
    return found - (found >> 31 << 32)


@lru_cache(maxsize=256)  # few, as a name may have 32 KB
def partition_for(name: str, partitions: int) -> int:
    """Return the partition of a group or transactional id.

    Kafka takes the absolute value of the hash, and 0 for the int32 without one.
    """
    found = java_hash(name)
    return 0 if found == _LOWEST else abs(found) % partitions
