"""SipHash-2-4 with 128 bits, a keyed hash: without the key, collisions cannot be constructed.

A primitive for kernels. Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF". Tests have its vectors.
"""

from __future__ import annotations

from typing import Any

from magicbyte.engine.compiled.kernel import Bytes, bounds_checked, machine_body
from magicbyte.engine.compiled.xxh64 import little_endian

_MASK = (1 << 64) - 1
_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D ^ 0xEE, 0x6C7967656E657261, 0x7465646279746573)
_LAST = 0xEE  # xor for the first half of the result; the second half uses another value
_SECOND = 0xDD


def siphash128(data: Bytes, start: int, end: int, key_low: int, key_high: int) -> tuple[int, int]:
    """Return both halves of the hash of the bytes from `start` to `end`, as int64. The key is two int64.

    The caller must have checked that the bytes exist; under NUMBA_BOUNDSCHECK=1 the compiled body checks it again.
    """
    low, high = key_low & _MASK, key_high & _MASK
    a, b, c, d = _INITIAL[0] ^ low, _INITIAL[1] ^ high, _INITIAL[2] ^ low, _INITIAL[3] ^ high
    content = bytes(data[start:end])
    size = len(content)
    padded = content + bytes(7 - size % 8) + bytes((size & 0xFF,))
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        d ^= word
        a, b, c, d = _rounds(a, b, c, d, 2)
        a ^= word
    a, b, c, d = _rounds(a, b, c ^ _LAST, d, 4)
    first = a ^ b ^ c ^ d
    a, b, c, d = _rounds(a, b ^ _SECOND, c, d, 4)
    return _signed(first), _signed(a ^ b ^ c ^ d)


def _rounds(a: int, b: int, c: int, d: int, count: int) -> tuple[int, int, int, int]:
    for _ in range(count):
        a = (a + b) & _MASK
        b = ((b << 13 | b >> 51) & _MASK) ^ a
        a = (a << 32 | a >> 32) & _MASK
        c = (c + d) & _MASK
        d = ((d << 16 | d >> 48) & _MASK) ^ c
        a = (a + d) & _MASK
        d = ((d << 21 | d >> 43) & _MASK) ^ a
        c = (c + b) & _MASK
        b = ((b << 17 | b >> 47) & _MASK) ^ c
        c = (c << 32 | c >> 32) & _MASK
    return a, b, c, d


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


@machine_body(siphash128)
def _siphash() -> Any:
    import numba
    import numpy as np

    load64 = little_endian(64)
    i0, i1, i2, i3 = (np.uint64(word) for word in _INITIAL)
    last, second = np.uint64(_LAST), np.uint64(_SECOND)
    check = bounds_checked()

    @numba.njit(nogil=True)
    def turned(value: Any, bits: Any) -> Any:
        return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))

    @numba.njit(nogil=True)
    def rounded(a: Any, b: Any, c: Any, d: Any) -> Any:
        a += b
        b = turned(b, 13) ^ a
        a = turned(a, 32)
        c += d
        d = turned(d, 16) ^ c
        a += d
        d = turned(d, 21) ^ a
        c += b
        b = turned(b, 17) ^ c
        c = turned(c, 32)
        return a, b, c, d

    def siphash(data: Any, start: Any, end: Any, key_low: Any, key_high: Any) -> Any:
        if check and not 0 <= start <= end <= data.shape[0]:
            raise IndexError("a kernel reached outside its buffer")
        low, high = np.uint64(key_low), np.uint64(key_high)
        a, b, c, d = i0 ^ low, i1 ^ high, i2 ^ low, i3 ^ high
        at, size = start, end - start
        while end - at >= 8:
            word = load64(data, at)
            d ^= word
            a, b, c, d = rounded(a, b, c, d)
            a, b, c, d = rounded(a, b, c, d)
            a ^= word
            at += 8
        word, bits = np.uint64(size & 255) << np.uint64(56), np.uint64(0)
        while at < end:
            word |= np.uint64(data[at]) << bits
            bits += np.uint64(8)
            at += 1
        d ^= word
        a, b, c, d = rounded(a, b, c, d)
        a, b, c, d = rounded(a, b, c, d)
        a ^= word
        c ^= last
        for _ in range(4):
            a, b, c, d = rounded(a, b, c, d)
        first = a ^ b ^ c ^ d
        b ^= second
        for _ in range(4):
            a, b, c, d = rounded(a, b, c, d)
        return np.int64(first), np.int64(a ^ b ^ c ^ d)

    return numba.njit(siphash, nogil=True)
