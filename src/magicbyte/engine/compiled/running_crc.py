"""Compute CRCs of any parts of a long byte sequence from the CRCs of its prefixes, reading each byte once.

CRC(AB) is CRC(A), shifted by the length of B, xor CRC(B); so CRC(B) follows from the other two. A shift by n bytes is a
multiplication with x^8n modulo the polynomial. Source: zlib's crc32_combine.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import crc32c as _crc32c

from magicbyte.engine.compiled.checksums import CASTAGNOLI, IEEE
from magicbyte.engine.wire.checksum import Buffer

_LOW_BITS = 11
_ONE = 1 << 31  # x^0, reflected


class CrcKind:
    """One of the two CRCs: how to continue it from a value, and how to shift it over bytes."""

    def __init__(self, polynomial: int, resume: Callable[[Buffer, int], int]) -> None:
        self._reflected = int(f"{polynomial:032b}"[::-1], 2)
        self._low: list[int] = []  # x^8n for n below 2^11, and for its multiples
        self._high: list[int] = [_ONE]
        self.resume = resume
        """Return the CRC of data whose prefix has the CRC in the second argument and whose rest is the first
        argument.
        """

    def part(self, before: int, whole: int, size: int) -> int:
        """Return the CRC of `size` bytes, given the CRC of the bytes before them and the CRC of both together."""
        return self._times(before, self._moved(size)) ^ whole

    def _moved(self, size: int) -> int:
        """Return x^(8 size) modulo the polynomial."""
        if not self._low:
            power = _ONE
            for _ in range(1 << _LOW_BITS):
                self._low.append(power)
                for _ in range(8):
                    power = (power >> 1) ^ (self._reflected if power & 1 else 0)
            self._high.append(power)
        high = size >> _LOW_BITS
        while len(self._high) <= high:
            self._high.append(self._times(self._high[-1], self._high[1]))
        return self._times(self._low[size & ((1 << _LOW_BITS) - 1)], self._high[high])

    def _times(self, one: int, other: int) -> int:
        """Return the product of two polynomials modulo ours, all reflected."""
        product = 0
        while one:
            if one & _ONE:
                product ^= other
            one = (one << 1) & 0xFFFFFFFF
            other = (other >> 1) ^ (self._reflected if other & 1 else 0)
        return product


CRC32: Final = CrcKind(IEEE, zlib.crc32)
CRC32C: Final = CrcKind(CASTAGNOLI, _crc32c.crc32c)
