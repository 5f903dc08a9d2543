"""XXH64, a 64-bit hash for digests: the xxhash library in the plain twins, LLVM code in compiled kernels."""

from __future__ import annotations

from typing import Any

import xxhash

from magicbyte.engine.compiled.kernel import Bytes, bounds_checked, machine_body

_PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def xxh64_of(data: Bytes, start: int, end: int, seed: int) -> int:
    """Return the XXH64 of the bytes from `start` to `end` as an int64. `seed` must not be negative.

    The caller must have checked that the bytes exist; under NUMBA_BOUNDSCHECK=1 the compiled body checks it again.
    """
    found: int = xxhash.xxh64_intdigest(data[start:end], seed)
    return found - (1 << 64) if found >> 63 else found


def little_endian(bits: int) -> Any:
    """Return an intrinsic that loads an unsigned integer from a position, without a bounds check."""
    from llvmlite import ir
    from numba.extending import intrinsic
    from numba.np import arrayobj

    array_struct: Any = arrayobj.make_array

    def load(_typing: Any, data: Any, _at: Any) -> Any:
        from numba import types as nb

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = array_struct(signature.args[0])(context, builder, arguments[0])
            place = builder.gep(builder.bitcast(array.data, ir.IntType(8).as_pointer()), [arguments[1]])
            value = builder.load(builder.bitcast(place, ir.IntType(bits).as_pointer()), align=1)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return nb.uint64(data, nb.int64), codegen

    return intrinsic(load)


@machine_body(xxh64_of)
def _xxh64() -> Any:
    import numba
    import numpy as np

    load32, load64 = little_endian(32), little_endian(64)
    p1, p2, p3, p4, p5 = (np.uint64(prime) for prime in _PRIMES)
    check = bounds_checked()

    @numba.njit(nogil=True)
    def turned(value: Any, bits: Any) -> Any:
        return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))

    @numba.njit(nogil=True)
    def with_word(lane: Any, word: Any) -> Any:
        return turned(lane + word * p2, 31) * p1

    @numba.njit(nogil=True)
    def with_lane(found: Any, lane: Any) -> Any:
        return (found ^ with_word(np.uint64(0), lane)) * p1 + p4

    def xxh64(data: Any, start: Any, end: Any, seed: Any) -> Any:
        if check and not 0 <= start <= end <= data.shape[0]:
            raise IndexError("a kernel reached outside its buffer")
        at, own = start, np.uint64(seed)
        if end - at >= 32:
            a, b, c, d = own + p1 + p2, own + p2, own, own - p1
            while end - at >= 32:
                a, b = with_word(a, load64(data, at)), with_word(b, load64(data, at + 8))
                c, d = with_word(c, load64(data, at + 16)), with_word(d, load64(data, at + 24))
                at += 32
            digest = turned(a, 1) + turned(b, 7) + turned(c, 12) + turned(d, 18)
            digest = with_lane(with_lane(with_lane(with_lane(digest, a), b), c), d)
        else:
            digest = own + p5
        digest += np.uint64(end - start)
        while end - at >= 8:
            digest = turned(digest ^ with_word(np.uint64(0), load64(data, at)), 27) * p1 + p4
            at += 8
        if end - at >= 4:
            digest = turned(digest ^ (load32(data, at) * p1), 23) * p2 + p3
            at += 4
        while at < end:
            digest = turned(digest ^ (np.uint64(data[at]) * p5), 11) * p1
            at += 1
        digest = (digest ^ (digest >> np.uint64(33))) * p2
        digest = (digest ^ (digest >> np.uint64(29))) * p3
        return np.int64(digest ^ (digest >> np.uint64(32)))

    return numba.njit(xxh64, nogil=True)
