"""Primitives of kernels: loads, stores and copies. Each has a Python body for the plain twin, and an LLVM body.

All integers are big-endian. The caller must have checked that the bytes exist; under NUMBA_BOUNDSCHECK=1 the compiled
bodies check it again and raise IndexError.
"""

from __future__ import annotations

import struct
from typing import Any

from magicbyte.engine.compiled.kernel import Bytes, Int64s, MutableBytes, bounds_checked, machine_body

_WORD, _PAIR = struct.Struct("<q").unpack_from, struct.Struct("<H").unpack_from
_I16, _I32, _I64, _U32 = (struct.Struct(">" + code).unpack_from for code in "hiqI")
_PACK_I32, _PACK_I64, _PACK_U32 = (struct.Struct(">" + code).pack_into for code in "iqI")
_LINE = 64  # bytes of a cache line


def load_i16(data: Bytes, at: int) -> int:
    """Return the int16 at position `at`."""
    return int(_I16(data, at)[0])  # type: ignore[arg-type]


def load_u8(data: Bytes, at: int) -> int:
    """Return the byte at position `at`."""
    return data[at]


def load_i32(data: Bytes, at: int) -> int:
    """Return the int32 at position `at`."""
    return int(_I32(data, at)[0])  # type: ignore[arg-type]


def load_u32(data: Bytes, at: int) -> int:
    """Return the uint32 at position `at`."""
    return int(_U32(data, at)[0])  # type: ignore[arg-type]


def load_i64(data: Bytes, at: int) -> int:
    """Return the int64 at position `at`."""
    return int(_I64(data, at)[0])  # type: ignore[arg-type]


def load_i8(data: Bytes, at: int) -> int:
    """Return the int8 at position `at`."""
    value = data[at]
    return value - 256 if value > 127 else value


def load_word(data: Bytes, at: int) -> int:
    """Return the eight bytes at position `at` as a little-endian int64: the first byte is the lowest."""
    return int(_WORD(data, at)[0])  # type: ignore[arg-type]


def load_pair(data: Bytes, at: int) -> int:
    """Return the two bytes at position `at` as a little-endian uint16."""
    return int(_PAIR(data, at)[0])  # type: ignore[arg-type]


def store_i8(out: MutableBytes, at: int, value: int) -> None:
    """Write an int8 at position `at`."""
    out[at] = value & 0xFF


def store_i32(out: MutableBytes, at: int, value: int) -> None:
    """Write an int32 at position `at`."""
    _PACK_I32(out, at, value)


def store_u32(out: MutableBytes, at: int, value: int) -> None:
    """Write a uint32 at position `at`."""
    _PACK_U32(out, at, value)


def store_i64(out: MutableBytes, at: int, value: int) -> None:
    """Write an int64 at position `at`."""
    _PACK_I64(out, at, value)


def short_varint(data: Bytes, at: int) -> tuple[int, int]:
    """Return the unsigned value of the varint of one or two bytes at `at`, and the position after it.

    A value above 16383 means that it has more than two bytes. Always inlined.
    """
    code = data[at]
    return (code, at + 1) if code < 128 else ((code & 127) | data[at + 1] << 7, at + 2)


def copy_bytes(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> None:
    """Copy `size` bytes of `data` from position `at` to position `to` of `out`, without overlap."""
    out[to : to + size] = data[at : at + size]


def copy_32s(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> None:
    """Copy `size` bytes as `copy_bytes` does, 32 at a time; `data` may be `out` if they are at least 32 bytes apart.

    At least one such piece is copied. Up to 31 bytes past both ends are read and written: the caller provides the room.
    """
    for i in range(size):
        out[to + i] = data[at + i]


def copy_cell_ahead(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> None:
    """Copy one byte or more as `copy_bytes` does, in whole pieces of 32 bytes up to 128.

    Up to 128 bytes from `at` and `to` on are read and written: the caller provides the room.
    """
    out[to : to + size] = data[at : at + size]


def copy_16s(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> None:
    """Copy as `copy_32s` does, with pieces of 16 bytes."""
    for i in range(size):
        out[to + i] = data[at + i]


def copy_cell(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> None:
    """Copy as `copy_32s` does, but from another buffer; `size` may also be -1."""
    if size > 0:
        out[to : to + size] = data[at : at + size]


def prefetch(data: Bytes, start: int, end: int) -> int:
    """Prefetch the cache lines from `start` to `end`, which need not exist, and return the position to continue at.

    For bytes that are read some microseconds later, while there is other work to do.
    """
    return end


def prefetch_two(data: Bytes | Int64s, at: int) -> None:
    """Prefetch the cache line at position `at` (in bytes) and the next one, without a loop and so without a branch."""


def as_int64(value: int) -> int:
    """Return `value` wrapped into 64 bits, as Java's long arithmetic does."""
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return value
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def difference(value: int, other: int) -> int:
    """Return `value` - `other` wrapped into 64 bits, without the compiler assuming that it does not overflow."""
    return as_int64(value - other)


def as_index(value: int) -> int:
    """Return the nonnegative `value` as an index, so that compiled code does not handle indexes from the array's
    end.
    """
    return value


def unzigzag32(value: int) -> int:
    """Return the int32 that the low 32 bits of `value` encode: 0, 1, 2, 3 stand for 0, -1, 1, -2."""
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1)


def unzigzag64(value: int) -> int:
    """Return the int64 that the low 64 bits of `value` encode."""
    value &= 0xFFFFFFFFFFFFFFFF
    return (value >> 1) ^ -(value & 1)


def zigzag64(value: int) -> int:
    """Return the zigzag code of an int64, 0 to 2**64 - 1 (as a bit pattern in compiled code)."""
    return ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF


def shift_right(value: int, bits: int) -> int:
    """Return the 64-bit pattern `value` shifted right, filled with zeros."""
    return (value & 0xFFFFFFFFFFFFFFFF) >> bits


def _load(bits: int, *, signed: bool, little: bool = False) -> Any:
    """Return the LLVM body of a load: unaligned, and a byte swap unless it is `little`-endian."""
    from llvmlite import ir
    from numba.extending import intrinsic
    from numba.np import arrayobj

    array_struct: Any = arrayobj.make_array

    check = bounds_checked()

    def load(_typing: Any, data: Any, at: Any) -> Any:
        from numba import types as nb

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = array_struct(signature.args[0])(context, builder, arguments[0])
            if check:
                check_range(context, builder, array, arguments[1], ir.Constant(ir.IntType(64), bits // 8))
            place = builder.gep(builder.bitcast(array.data, ir.IntType(8).as_pointer()), [arguments[1]])
            value = builder.load(builder.bitcast(place, ir.IntType(bits).as_pointer()), align=1)
            if bits > 8 and not little:
                value = builder.bswap(value)
            return value if bits == 64 else (builder.sext if signed else builder.zext)(value, ir.IntType(64))

        return nb.int64(data, nb.int64), codegen

    return intrinsic(load)


def _store(bits: int) -> Any:
    """Return the LLVM body of a big-endian store."""
    from llvmlite import ir
    from numba.extending import intrinsic
    from numba.np import arrayobj

    array_struct: Any = arrayobj.make_array

    check = bounds_checked()

    def store(_typing: Any, out: Any, at: Any, value: Any) -> Any:
        from numba import types as nb

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = array_struct(signature.args[0])(context, builder, arguments[0])
            if check:
                check_range(context, builder, array, arguments[1], ir.Constant(ir.IntType(64), bits // 8))
            place = builder.gep(builder.bitcast(array.data, ir.IntType(8).as_pointer()), [arguments[1]])
            swapped = arguments[2] if bits == 64 else builder.trunc(arguments[2], ir.IntType(bits))
            if bits > 8:
                swapped = builder.bswap(swapped)
            builder.store(swapped, builder.bitcast(place, ir.IntType(bits).as_pointer()), align=1)
            return context.get_dummy_value()

        return nb.void(out, nb.int64, nb.int64), codegen

    return intrinsic(store)


def check_range(context: Any, builder: Any, array: Any, at: Any, size: Any) -> None:
    """Raise IndexError unless the `size` bytes at position `at` lie inside the array."""
    end = builder.add(at, size)
    outside = builder.or_(
        builder.icmp_signed("<", at, at.type(0)),
        builder.or_(builder.icmp_signed("<", size, at.type(0)), builder.icmp_signed(">", end, array.nitems)),
    )
    with builder.if_then(outside, likely=False):
        context.call_conv.return_user_exc(builder, IndexError, ("a kernel reached outside its buffer",))


machine_body(load_i8)(lambda: _load(8, signed=True))
machine_body(load_i16)(lambda: _load(16, signed=True))
machine_body(load_u8)(lambda: _load(8, signed=False))
machine_body(load_i32)(lambda: _load(32, signed=True))
machine_body(load_u32)(lambda: _load(32, signed=False))
machine_body(load_i64)(lambda: _load(64, signed=True))
machine_body(load_word)(lambda: _load(64, signed=True, little=True))
machine_body(load_pair)(lambda: _load(16, signed=False, little=True))
machine_body(store_i8)(lambda: _store(8))
machine_body(store_i32)(lambda: _store(32))
machine_body(store_u32)(lambda: _store(32))
machine_body(store_i64)(lambda: _store(64))


@machine_body(copy_bytes)
def _copy() -> Any:
    """Return the LLVM body of a copy.

    Up to 32 bytes it is two moves of 16, if both sides have room for them; up to 128 two or four moves of 32, of which
    the last ones count from the end and may overlap the others; else memcpy, whose call takes as long as those moves.
    """
    from llvmlite import ir
    from numba.extending import intrinsic
    from numba.np import arrayobj

    array_struct: Any = arrayobj.make_array

    check = bounds_checked()
    byte, word = ir.IntType(8), ir.IntType(64)

    def copy(_typing: Any, out: Any, to: Any, data: Any, at: Any, size: Any) -> Any:
        from numba import types as nb

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            out_array = array_struct(signature.args[0])(context, builder, arguments[0])
            in_array = array_struct(signature.args[2])(context, builder, arguments[2])
            to, at, size = arguments[1], arguments[3], arguments[4]
            if check:
                check_range(context, builder, out_array, to, size)
                check_range(context, builder, in_array, at, size)
            target = builder.gep(builder.bitcast(out_array.data, byte.as_pointer()), [to])
            source = builder.gep(builder.bitcast(in_array.data, byte.as_pointer()), [at])

            def piece(base: Any, place: Any, width: int) -> Any:
                return builder.bitcast(builder.gep(base, [place]), ir.VectorType(word, width // 8).as_pointer())

            def move(width: int, *places: Any) -> None:
                loaded = [builder.load(piece(source, place, width), align=1) for place in places]
                for each, place in zip(loaded, places, strict=True):
                    builder.store(each, piece(target, place, width), align=1)

            def from_end(distance: int) -> Any:
                return builder.sub(size, word(distance))

            # Most cells are short, and a call of memcpy takes as long as three or four vector moves. Two moves of 16
            # bytes cover up to 32 bytes without a branch on the size, if the buffers have the room. For up to 128 bytes
            # the first moves count from the start and the last ones from the end, so that they overlap in the middle,
            # again without a loop. All loads come before the stores of a step, so an overlap of the moves themselves
            # does no harm.
            reach = word(32)
            short = builder.and_(
                builder.icmp_signed("<=", size, reach),
                builder.and_(
                    builder.icmp_signed("<=", builder.add(to, reach), out_array.nitems),
                    builder.icmp_signed("<=", builder.add(at, reach), in_array.nitems),
                ),
            )
            with builder.if_else(short) as (then, otherwise):
                with then:
                    move(16, word(0), word(16))
                with otherwise:
                    medium = builder.icmp_unsigned("<=", from_end(33), word(128 - 33))
                    with builder.if_else(medium) as (then, otherwise):
                        with then:
                            with builder.if_then(builder.icmp_signed(">", size, word(64))):
                                move(32, word(32), from_end(64))
                            move(32, word(0), from_end(32))
                        with otherwise:
                            memcpy = builder.module.declare_intrinsic(
                                "llvm.memcpy", [byte.as_pointer(), byte.as_pointer(), word]
                            )
                            builder.call(memcpy, [target, source, size, ir.IntType(1)(0)])
            return context.get_dummy_value()

        return nb.void(out, nb.int64, data, nb.int64, nb.int64), codegen

    return intrinsic(copy)


def _copy_pieces(width: int) -> Any:
    """Return the LLVM body of a copy in pieces of `width` bytes."""
    from llvmlite import ir
    from numba.core import cgutils as untyped
    from numba.extending import intrinsic
    from numba.np import arrayobj

    array_struct: Any = arrayobj.make_array
    cgutils: Any = untyped
    check = bounds_checked()
    byte, word, wide = ir.IntType(8), ir.IntType(64), ir.VectorType(ir.IntType(64), width // 8)

    def copy(_typing: Any, out: Any, to: Any, data: Any, at: Any, size: Any) -> Any:
        from numba import types as nb

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            out_array = array_struct(signature.args[0])(context, builder, arguments[0])
            in_array = array_struct(signature.args[2])(context, builder, arguments[2])
            to, at, size = arguments[1], arguments[3], arguments[4]
            if check:
                reach = builder.and_(builder.add(size, word(width - 1)), word(-width))
                check_range(context, builder, out_array, to, reach)
                check_range(context, builder, in_array, at, reach)
            target = builder.gep(builder.bitcast(out_array.data, byte.as_pointer()), [to])
            source = builder.gep(builder.bitcast(in_array.data, byte.as_pointer()), [at])

            def move(place: Any) -> None:
                piece = builder.load(builder.bitcast(builder.gep(source, [place]), wide.as_pointer()), align=1)
                builder.store(piece, builder.bitcast(builder.gep(target, [place]), wide.as_pointer()), align=1)

            move(word(0))
            with (
                builder.if_then(builder.icmp_signed(">", size, word(width))),
                cgutils.for_range_slice(builder, word(width), size, word(width)) as (place, _),
            ):
                move(place)
            return context.get_dummy_value()

        return nb.void(out, nb.int64, data, nb.int64, nb.int64), codegen

    return intrinsic(copy)


@machine_body(copy_cell_ahead)
def _copy_cell_ahead() -> Any:
    """Return the LLVM body of a copy in one to four moves of 32 bytes, and memcpy for the bytes after 128."""
    from llvmlite import ir
    from numba.extending import intrinsic
    from numba.np import arrayobj

    array_struct: Any = arrayobj.make_array
    check = bounds_checked()
    byte, word, wide = ir.IntType(8), ir.IntType(64), ir.VectorType(ir.IntType(64), 4)

    def copy(_typing: Any, out: Any, to: Any, data: Any, at: Any, size: Any) -> Any:
        from numba import types as nb

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            out_array = array_struct(signature.args[0])(context, builder, arguments[0])
            in_array = array_struct(signature.args[2])(context, builder, arguments[2])
            to, at, size = arguments[1], arguments[3], arguments[4]
            if check:
                reach = builder.select(builder.icmp_signed(">", size, word(128)), size, word(128))
                check_range(context, builder, out_array, to, reach)
                check_range(context, builder, in_array, at, reach)
            target = builder.gep(builder.bitcast(out_array.data, byte.as_pointer()), [to])
            source = builder.gep(builder.bitcast(in_array.data, byte.as_pointer()), [at])

            def move_from(skipped: int) -> None:
                """Move 32 bytes, and continue if there are more."""
                if skipped < 128:
                    here = [builder.gep(base, [word(skipped)]) for base in (source, target)]
                    piece = builder.load(builder.bitcast(here[0], wide.as_pointer()), align=1)
                    builder.store(piece, builder.bitcast(here[1], wide.as_pointer()), align=1)
                    with builder.if_then(builder.icmp_signed(">", size, word(skipped + 32))):
                        move_from(skipped + 32)
                else:
                    places = [byte.as_pointer(), byte.as_pointer(), word]
                    memcpy = builder.module.declare_intrinsic("llvm.memcpy", places)
                    rest = [builder.gep(base, [word(skipped)]) for base in (target, source)]
                    builder.call(memcpy, [*rest, builder.sub(size, word(skipped)), ir.IntType(1)(0)])

            move_from(0)
            return context.get_dummy_value()

        return nb.void(out, nb.int64, data, nb.int64, nb.int64), codegen

    return intrinsic(copy)


machine_body(copy_32s)(lambda: _copy_pieces(32))
machine_body(copy_16s)(lambda: _copy_pieces(16))
machine_body(copy_cell)(lambda: _copy_pieces(32))


def in_python(function: Any) -> Any:
    """Return `function` compiled as it is: for bodies that Numba compiles well by itself."""
    import numba

    return numba.njit(function, nogil=True)


def inlined(function: Any) -> Any:
    """Return `function` as `in_python` does, always inlined, because a call takes nanoseconds."""
    import numba

    return numba.njit(function, nogil=True, inline="always")


@machine_body(as_int64)
def _as_int64() -> Any:
    return in_python(lambda value: value)


@machine_body(short_varint)
def _short_varint() -> Any:
    byte = _load(8, signed=False)

    def read(data: Any, at: int) -> tuple[int, int]:
        code = byte(data, at)
        if code < 128:
            return code, at + 1
        return (code & 127) | byte(data, at + 1) << 7, at + 2

    return inlined(read)


@machine_body(difference)
def _difference() -> Any:
    import numpy as np

    return in_python(lambda value, other: np.int64(np.uint64(value) - np.uint64(other)))


def _prefetch_line() -> Any:
    """Return the LLVM body of a prefetch of one line, to all caches."""
    from llvmlite import ir
    from numba.core import cgutils as untyped
    from numba.extending import intrinsic
    from numba.np import arrayobj

    array_struct: Any = arrayobj.make_array
    cgutils: Any = untyped
    byte, number = ir.IntType(8), ir.IntType(32)

    def ask(_typing: Any, data: Any, at: Any) -> Any:
        from numba import types as nb

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = array_struct(signature.args[0])(context, builder, arguments[0])
            place = builder.gep(builder.bitcast(array.data, byte.as_pointer()), [arguments[1]])
            kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), number, number, number])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            builder.call(function, [place, number(0), number(3), number(1)])  # read access; into all caches; data
            return context.get_dummy_value()

        return nb.void(data, at), codegen

    return intrinsic(ask)


@machine_body(prefetch)
def _prefetch() -> Any:
    one = _prefetch_line()

    def lines(data: Any, start: int, end: int) -> int:
        while start < end:
            one(data, start)
            start += _LINE
        return start

    return in_python(lines)


@machine_body(prefetch_two)
def _prefetch_two() -> Any:
    one = _prefetch_line()

    def two(data: Any, at: int) -> None:
        one(data, at)
        one(data, at + _LINE)

    return inlined(two)


@machine_body(as_index)
def _as_index() -> Any:
    import numpy as np

    return in_python(lambda value: np.uint64(value))


@machine_body(unzigzag32)
def _unzigzag32() -> Any:
    return in_python(lambda value: ((value & 0xFFFFFFFF) >> 1) ^ -(value & 1))


@machine_body(shift_right)
def _shift_right() -> Any:
    import numpy as np

    return in_python(lambda value, bits: np.int64(np.uint64(value) >> np.uint64(bits)))


@machine_body(unzigzag64)
def _unzigzag64() -> Any:
    import numpy as np

    return in_python(lambda value: np.int64(np.uint64(value) >> np.uint64(1)) ^ -(value & 1))


@machine_body(zigzag64)
def _zigzag64() -> Any:
    return in_python(lambda value: (value << 1) ^ (value >> 63))
