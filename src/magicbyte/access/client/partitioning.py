"""The partition of a key, chosen as by Kafka's own producers, so that records of one key stay together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

    from magicbyte.engine.records.columns import BytesColumn

_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = (1 << 32) - 1
_POSITIVE: Final = 0x7FFF_FFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key. Source: the default partitioner of Kafka's Java producer."""
    return (murmur2(key) & _POSITIVE) % partitions


def partitions_of(keys: BytesColumn, partitions: int) -> np.ndarray[Any, Any]:
    """Return the partition of each key as `partition_of` does, -1 for null. Shape: (n,) int64."""
    import numpy as np

    length = np.asarray(keys.length, np.int64)
    start = np.asarray(keys.start, np.int64)[: len(length)]
    data = np.frombuffer(keys.data, np.uint8) if len(keys.data) else np.empty(0, np.uint8)
    multiplier = np.uint32(_MULTIPLIER)
    digest = np.uint32(_SEED) ^ np.maximum(length, 0).astype(np.uint32)
    for at in range(0, int(length.max(initial=0)) & ~3, 4):
        rows = np.flatnonzero(length >= at + 4)
        word = data[(start[rows] + at)[:, None] + np.arange(4)].view("<u4").ravel() * multiplier
        digest[rows] = digest[rows] * multiplier ^ (word ^ word >> np.uint32(24)) * multiplier
    tail = np.maximum(length, 0) & 3
    for byte in (2, 1, 0):
        rows = np.flatnonzero(tail > byte)
        digest[rows] ^= data[(start + (length & ~3) + byte)[rows]].astype(np.uint32) << np.uint32(8 * byte)
    digest = np.where(tail > 0, digest * multiplier, digest)
    digest = (digest ^ digest >> np.uint32(13)) * multiplier
    digest ^= digest >> np.uint32(15)
    return np.where(length < 0, -1, (digest & np.uint32(_POSITIVE)).astype(np.int64) % partitions)


def murmur2(data: bytes) -> int:
    """Return the hash as a uint32. Source: Austin Appleby's MurmurHash2 for 32 bits; the seed is Kafka's."""
    digest = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        digest = digest * _MULTIPLIER & _MASK ^ word
    if whole < len(data):
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    digest = (digest ^ digest >> 13) * _MULTIPLIER & _MASK
    return digest ^ digest >> 15
