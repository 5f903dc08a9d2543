"""Which partition a key goes to: that of Kafka's own producers, so that records of one key stay together."""

from __future__ import annotations

from typing import Final

_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = (1 << 32) - 1


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key among so many. Source: the default partitioner of Kafka's Java producer."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the hash as a uint32. Source: Austin Appleby's MurmurHash2 for 32 bits; the seed is Kafka's."""
    found = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        found = found * _MULTIPLIER & _MASK ^ word
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    found = (found ^ found >> 13) * _MULTIPLIER & _MASK
    return found ^ found >> 15
