"""The partition of a group or transactional id, which determines its coordinator."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from typing import Final

_LOWEST: Final = -(1 << 31)
_LOW_32: Final = 0xFFFF_FFFF


def java_hash(text: str) -> int:
    """Return the result of Java's String.hashCode: an int32 over UTF-16 code units."""
    units: Sequence[int] = text.encode("latin-1") if text.isascii() else _units(text)
    found: int = sum(map(mul, reversed(units), _powers(len(units).bit_length()))) & _LOW_32
    return found - (found >> 31 << 32)


@lru_cache
def _powers(bits: int) -> tuple[int, ...]:
    """Return the first `2**bits` powers of 31, modulo 2**32."""
    found = [1]
    while len(found) < 1 << bits:
        found.append(31 * found[-1] & _LOW_32)
    return tuple(found)


def _units(text: str) -> tuple[int, ...]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(encoded) // 2}H", encoded)


@lru_cache(maxsize=256)  # few, as a name may have 32 KB
def partition_for(name: str, partitions: int) -> int:
    """Return the partition of a group or transactional id.

    Kafka takes the absolute value of the hash, and 0 for the int32 without one.
    """
    found = java_hash(name)
    return 0 if found == _LOWEST else abs(found) % partitions
