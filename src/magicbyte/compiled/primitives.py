"""What kernels are made of: loads, stores and copies. Each has a Python body, for the plain twin, and an LLVM body.

All integers are big-endian. The caller has checked that the bytes are there; under NUMBA_BOUNDSCHECK=1 the compiled
bodies check it again and raise IndexError.
"""

from __future__ import annotations

import itertools
import struct
from typing import Any

from magicbyte.compiled.kernel import Bytes, Int32s, Int64s, MutableBytes, bounds_checked, kernel, machine_body
from magicbyte.wire import checksum

_WORD, _PAIR = struct.Struct("<q").unpack_from, struct.Struct("<H").unpack_from
_I16, _I32, _I64, _U32 = (struct.Struct(">" + code).unpack_from for code in "hiqI")
_PACK_I32, _PACK_I64, _PACK_U32 = (struct.Struct(">" + code).pack_into for code in "iqI")
_CRC_TABLES = 16
_LINE = 64  # bytes of a cache line
IEEE, CASTAGNOLI = 0x04C11DB7, 0x1EDC6F41  # the polynomials of CRC-32 and CRC-32C, without their highest term


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
    """Return the eight bytes at position `at` as a little-endian int64: the first one is its lowest bits."""
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
    """Return what the varint of one or two bytes at `at` says, unsigned, and the position behind it.

    More than 16383 means that it has more bytes than two. Never a call in compiled code.
    """
    code = data[at]
    return (code, at + 1) if code < 128 else ((code & 127) | data[at + 1] << 7, at + 2)


def copy_bytes(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> None:
    """Copy `size` bytes of `data` from position `at` to position `to` of `out`; they do not overlap."""
    out[to : to + size] = data[at : at + size]


def copy_32s(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> None:
    """Copy `size` bytes as `copy_bytes` does, 32 at a time; `data` may be `out`, 32 bytes or more further on.

    At least one such piece is copied. Up to 31 bytes behind both are read and written, too: the caller has room for it.
    """
    for i in range(size):
        out[to + i] = data[at + i]


def copy_cell_ahead(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> None:
    """Copy one byte or more as `copy_bytes` does, in whole pieces of 32 bytes up to 128.

    So up to 128 bytes behind `at` and `to` are read and written: the caller has room for it.
    """
    out[to : to + size] = data[at : at + size]


def copy_16s(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> None:
    """As `copy_32s`, with 16 bytes."""
    for i in range(size):
        out[to + i] = data[at + i]


def prefetch(data: Bytes, start: int, end: int) -> int:
    """Ask memory for the lines from `start` to `end`, which need not exist, without waiting; return where to go on.

    For bytes that will be read some microseconds later, while there is other work to do.
    """
    return end


def prefetch_two(data: Bytes | Int64s, at: int) -> None:
    """As `prefetch`, for the line of position `at`, in bytes, and the one behind it: no loop, and so no branch."""


def as_int64(value: int) -> int:
    """Return `value` wrapped into 64 bits, as Java's long arithmetic does."""
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return value
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def difference(value: int, other: int) -> int:
    """Return `value` - `other` wrapped into 64 bits: compiled code may not presume that it does not overflow."""
    return as_int64(value - other)


def as_index(value: int) -> int:
    """Return `value`, which is not negative, as an index: compiled code then need not count from the array's end."""
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
    """Return `value`, a bit pattern of 64, shifted right with zeros coming in."""
    return (value & 0xFFFFFFFFFFFFFFFF) >> bits


def crc32_of(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC-32 (IEEE) of the bytes from `start` to `end`. `table` is `crc_table(IEEE)`."""
    return checksum.crc32(data[start:end])


def crc32_wide(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """As `crc32_of`, for 4 bytes or more with 64 in front of them in the buffer; never a call in compiled code."""
    return checksum.crc32(data[start:end])


def crc32c_of(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC-32C of the bytes from `start` to `end`. `table` is `crc_table(CASTAGNOLI)`."""
    return checksum.crc32c(data[start:end])


def crc_table(polynomial: int) -> list[int]:
    """Return the 16 tables of 256 int32 (bit patterns) that a compiled CRC needs, one after the other."""
    table, reflected = [], _reflected(polynomial, 32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (reflected if value & 1 else 0)
        table.append(value)
    for at in range(256 * (_CRC_TABLES - 1)):
        previous = table[at]
        table.append((previous >> 8) ^ table[previous & 0xFF])
    return [value - (1 << 32) if value >> 31 else value for value in table]


def _reflected(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


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
                _check_range(context, builder, array, arguments[1], ir.Constant(ir.IntType(64), bits // 8))
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
                _check_range(context, builder, array, arguments[1], ir.Constant(ir.IntType(64), bits // 8))
            place = builder.gep(builder.bitcast(array.data, ir.IntType(8).as_pointer()), [arguments[1]])
            swapped = arguments[2] if bits == 64 else builder.trunc(arguments[2], ir.IntType(bits))
            if bits > 8:
                swapped = builder.bswap(swapped)
            builder.store(swapped, builder.bitcast(place, ir.IntType(bits).as_pointer()), align=1)
            return context.get_dummy_value()

        return nb.void(out, nb.int64, nb.int64), codegen

    return intrinsic(store)


def _check_range(context: Any, builder: Any, array: Any, at: Any, size: Any) -> None:
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

    To 32 bytes it is two moves of 16 where both sides have room for them; to 128 two or four moves of 32, the last
    ones counted from the end, so that they may overlap; else memcpy, whose call takes as long as those moves.
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
                _check_range(context, builder, out_array, to, size)
                _check_range(context, builder, in_array, at, size)
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
                _check_range(context, builder, out_array, to, reach)
                _check_range(context, builder, in_array, at, reach)
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
    """Return the LLVM body of a copy in one to four moves of 32 bytes, and memcpy for what is behind 128."""
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
                _check_range(context, builder, out_array, to, reach)
                _check_range(context, builder, in_array, at, reach)
            target = builder.gep(builder.bitcast(out_array.data, byte.as_pointer()), [to])
            source = builder.gep(builder.bitcast(in_array.data, byte.as_pointer()), [at])

            def move_from(place: int) -> None:
                """Move 32 bytes, and go on if there are more."""
                if place < 128:
                    here = [builder.gep(base, [word(place)]) for base in (source, target)]
                    piece = builder.load(builder.bitcast(here[0], wide.as_pointer()), align=1)
                    builder.store(piece, builder.bitcast(here[1], wide.as_pointer()), align=1)
                    with builder.if_then(builder.icmp_signed(">", size, word(place + 32))):
                        move_from(place + 32)
                else:
                    places = [byte.as_pointer(), byte.as_pointer(), word]
                    memcpy = builder.module.declare_intrinsic("llvm.memcpy", places)
                    rest = [builder.gep(base, [word(place)]) for base in (target, source)]
                    builder.call(memcpy, [*rest, builder.sub(size, word(place)), ir.IntType(1)(0)])

            move_from(0)
            return context.get_dummy_value()

        return nb.void(out, nb.int64, data, nb.int64, nb.int64), codegen

    return intrinsic(copy)


machine_body(copy_32s)(lambda: _copy_pieces(32))
machine_body(copy_16s)(lambda: _copy_pieces(16))


def _in_python(function: Any) -> Any:
    """Return `function` compiled as it stands: for bodies that Numba types well by themselves."""
    import numba

    return numba.njit(function, nogil=True)


def _inlined(function: Any) -> Any:
    """As `_in_python`, without a call of its own, which takes nanoseconds."""
    import numba

    return numba.njit(function, nogil=True, inline="always")


@machine_body(as_int64)
def _as_int64() -> Any:
    return _in_python(lambda value: value)


@machine_body(short_varint)
def _short_varint() -> Any:
    byte = _load(8, signed=False)

    def read(data: Any, at: int) -> tuple[int, int]:
        code = byte(data, at)
        if code < 128:
            return code, at + 1
        return (code & 127) | byte(data, at + 1) << 7, at + 2

    return _inlined(read)


@machine_body(difference)
def _difference() -> Any:
    import numpy as np

    return _in_python(lambda value, other: np.int64(np.uint64(value) - np.uint64(other)))


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
            builder.call(function, [place, number(0), number(3), number(1)])  # to read; all caches; data
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

    return _in_python(lines)


@machine_body(prefetch_two)
def _prefetch_two() -> Any:
    one = _prefetch_line()

    def two(data: Any, at: int) -> None:
        one(data, at)
        one(data, at + _LINE)

    return _inlined(two)


@machine_body(as_index)
def _as_index() -> Any:
    import numpy as np

    return _in_python(lambda value: np.uint64(value))


@machine_body(unzigzag32)
def _unzigzag32() -> Any:
    return _in_python(lambda value: ((value & 0xFFFFFFFF) >> 1) ^ -(value & 1))


@machine_body(shift_right)
def _shift_right() -> Any:
    import numpy as np

    return _in_python(lambda value, bits: np.int64(np.uint64(value) >> np.uint64(bits)))


@machine_body(unzigzag64)
def _unzigzag64() -> Any:
    import numpy as np

    return _in_python(lambda value: np.int64(np.uint64(value) >> np.uint64(1)) ^ -(value & 1))


@machine_body(zigzag64)
def _zigzag64() -> Any:
    return _in_python(lambda value: (value << 1) ^ (value >> 63))


def _first_half(crc: int) -> int:
    """Return the 32 bits of `crc`, bytes reversed, as the upper half of 64, where the first bytes are loaded to."""
    return ((crc & 0xFF) << 56) | ((crc & 0xFF00) << 40) | ((crc & 0xFF0000) << 24) | (((crc >> 24) & 0xFF) << 32)


@kernel
def _crc_by_table(data: Bytes, at: int, end: int, crc: int, table: Int32s) -> int:
    """Go on with the inverted CRC `crc` over the bytes from `at` to `end`: 16, 8, 4 and then 1 at a time."""
    while end - at >= 16:
        a, b = load_i64(data, at) ^ _first_half(crc), load_i64(data, at + 8)
        crc = (
            table[15 * 256 + ((a >> 56) & 0xFF)]
            ^ table[14 * 256 + ((a >> 48) & 0xFF)]
            ^ table[13 * 256 + ((a >> 40) & 0xFF)]
            ^ table[12 * 256 + ((a >> 32) & 0xFF)]
            ^ table[11 * 256 + ((a >> 24) & 0xFF)]
            ^ table[10 * 256 + ((a >> 16) & 0xFF)]
            ^ table[9 * 256 + ((a >> 8) & 0xFF)]
            ^ table[8 * 256 + (a & 0xFF)]
            ^ table[7 * 256 + ((b >> 56) & 0xFF)]
            ^ table[6 * 256 + ((b >> 48) & 0xFF)]
            ^ table[5 * 256 + ((b >> 40) & 0xFF)]
            ^ table[4 * 256 + ((b >> 32) & 0xFF)]
            ^ table[3 * 256 + ((b >> 24) & 0xFF)]
            ^ table[2 * 256 + ((b >> 16) & 0xFF)]
            ^ table[1 * 256 + ((b >> 8) & 0xFF)]
            ^ table[b & 0xFF]
        )
        at += 16
    if end - at >= 8:
        a = load_i64(data, at) ^ _first_half(crc)
        crc = (
            table[7 * 256 + ((a >> 56) & 0xFF)]
            ^ table[6 * 256 + ((a >> 48) & 0xFF)]
            ^ table[5 * 256 + ((a >> 40) & 0xFF)]
            ^ table[4 * 256 + ((a >> 32) & 0xFF)]
            ^ table[3 * 256 + ((a >> 24) & 0xFF)]
            ^ table[2 * 256 + ((a >> 16) & 0xFF)]
            ^ table[1 * 256 + ((a >> 8) & 0xFF)]
            ^ table[a & 0xFF]
        )
        at += 8
    if end - at >= 4:
        a = load_u32(data, at) ^ ((_first_half(crc) >> 32) & 0xFFFFFFFF)
        crc = (
            table[3 * 256 + ((a >> 24) & 0xFF)]
            ^ table[2 * 256 + ((a >> 16) & 0xFF)]
            ^ table[1 * 256 + ((a >> 8) & 0xFF)]
            ^ table[a & 0xFF]
        )
        at += 4
    while at < end:
        crc = ((crc >> 8) & 0xFFFFFF) ^ table[(crc ^ data[at]) & 0xFF]
        at += 1
    return crc & 0xFFFFFFFF


@machine_body(_first_half)
def _first_half_compiled() -> Any:
    return _in_python(_first_half)


@kernel
def _crc_tables_only(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC of the bytes from `start` to `end`: of the polynomial that the table is of."""
    rest: int = _crc_by_table(data, start, end, 0xFFFFFFFF, table)
    return rest ^ 0xFFFFFFFF


def _crc32_narrow(data: Bytes, start: int, end: int) -> int:
    """Return the CRC-32 of the bytes from `start` to `end`: at least 4, and 16 in front of them are in the buffer."""
    return checksum.crc32(data[start:end])


def _crc32c_wide(data: Bytes, start: int, end: int) -> int:
    """As `_crc32c_narrow`, with 64 bytes in front."""
    return checksum.crc32c(data[start:end])


def _crc32c_narrow(data: Bytes, start: int, end: int) -> int:
    """As `_crc32_narrow`, for CRC-32C."""
    return checksum.crc32c(data[start:end])


@kernel
def _crc32_folded(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC-32 of the bytes from `start` to `end`, by carry-less multiplication where that is possible."""
    if start >= 64 and end - start >= 4:
        return crc32_wide(data, start, end, table)
    if start >= 16 and end - start >= 4:
        return _crc32_narrow(data, start, end)
    rest: int = _crc_by_table(data, start, end, 0xFFFFFFFF, table)
    return rest ^ 0xFFFFFFFF


@kernel
def _crc32c_folded(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """As `_crc32_folded`, for CRC-32C."""
    if start >= 64 and end - start >= 4:
        return _crc32c_wide(data, start, end)
    if start >= 16 and end - start >= 4:
        return _crc32c_narrow(data, start, end)
    rest: int = _crc_by_table(data, start, end, 0xFFFFFFFF, table)
    return rest ^ 0xFFFFFFFF


def _power(polynomial: int, exponent: int) -> int:
    """Return x**exponent modulo the polynomial, reflected in 32 bits."""
    value = 1
    for _ in range(exponent):
        value <<= 1
        value ^= polynomial | 1 << 32 if value >> 32 else 0
    return _reflected(value, 32)


def _folding(polynomial: int, bits: int) -> list[int]:
    """Return what the two halves of 128 bits are multiplied with to move them `bits` further."""
    return [_power(polynomial, bits + 32) << 1, _power(polynomial, bits - 32) << 1]


def _reduction(polynomial: int) -> tuple[int, int, int]:
    """Return x**64 modulo the polynomial, it, and x**64 divided by it, all reflected: for the last steps."""
    whole = (1 << 32) | polynomial
    rest, quotient = 1 << 64, 0
    for bit in range(32, -1, -1):
        if rest >> (bit + 32) & 1:
            quotient |= 1 << bit
            rest ^= whole << bit
    return _power(polynomial, 64) << 1, _reflected(whole, 33), _reflected(quotient, 33)


def _fold_body(polynomial: int, parts: int) -> Any:
    """Return the LLVM body of a CRC by carry-less multiplication, in vectors of `parts` (1, 2, 4) times 128 bits.

    The bytes are taken as if zeros stood in front of them, which change nothing, up to a whole number of vectors; so
    the first load begins up to a vector before `start`. What a CRC begins with is added to the first four bytes.

    Source: Gopal, Ozturk, Guilford and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
    (Intel, 2009).
    """
    from llvmlite import ir
    from numba.core import cgutils as untyped
    from numba.extending import intrinsic
    from numba.np import arrayobj

    array_struct: Any = arrayobj.make_array
    cgutils: Any = untyped
    check = bounds_checked()
    byte, word, number = ir.IntType(8), ir.IntType(64), ir.IntType(32)
    narrow, wide = ir.VectorType(word, 2), ir.VectorType(word, 2 * parts)
    width, lanes = 16 * parts, 4
    to_64, reflected, quotient = _reduction(polynomial)
    low_words = narrow([0xFFFFFFFF, 0xFFFFFFFF])
    mask = bytes(width) + b"\xff" * width
    beginning = bytes(width) + b"\xff" * 4 + bytes(2 * width)
    suffix = {1: "", 2: ".256", 4: ".512"}

    def crc(_typing: Any, data: Any, start: Any, end: Any) -> Any:
        from numba import types as nb

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = array_struct(signature.args[0])(context, builder, arguments[0])
            _, start, end = arguments
            source = builder.bitcast(array.data, byte.as_pointer())

            def constant(content: bytes, name: str) -> Any:
                value = ir.Constant(ir.ArrayType(byte, len(content)), bytearray(content))
                return builder.bitcast(cgutils.global_constant(builder.module, name, value), byte.as_pointer())

            def load(place: Any, position: Any) -> Any:
                return builder.load(builder.bitcast(builder.gep(place, [position]), wide.as_pointer()), align=1)

            def multiply(value: Any, by: Any, halves: int) -> Any:
                kind = value.type
                name = f"llvm.x86.pclmulqdq{suffix[kind.count // 2]}"
                function = cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(kind, [kind, kind, byte]), name
                )
                return builder.call(function, [value, by, byte(halves)])

            def both(value: Any, by: Any) -> Any:
                return builder.xor(multiply(value, by, 0x00), multiply(value, by, 0x11))

            def fold(value: Any, vectors: int, more: Any) -> Any:
                return builder.xor(both(value, wide(_folding(polynomial, 8 * width * vectors) * parts)), more)

            def part(value: Any, index: int) -> Any:
                chosen = ir.Constant(ir.VectorType(number, 2), [2 * index, 2 * index + 1])
                return builder.shuffle_vector(value, value, chosen)

            def shifted(value: Any, count: int) -> Any:
                pieces = ir.VectorType(number, 4)
                chosen = ir.Constant(pieces, [index + count // 4 for index in range(4)])
                moved = builder.shuffle_vector(builder.bitcast(value, pieces), pieces([0] * 4), chosen)
                return builder.bitcast(moved, narrow)

            size = builder.sub(end, start)
            vectors = builder.udiv(builder.add(size, word(width - 1)), word(width))
            begin = builder.sub(end, builder.mul(vectors, word(width)))
            if check:
                _check_range(context, builder, array, begin, builder.sub(end, begin))
            skipped = builder.sub(word(width), builder.sub(start, begin))
            first = builder.and_(load(source, begin), load(constant(mask, "crc_mask"), skipped))
            first = builder.xor(first, load(constant(beginning, "crc_beginning"), skipped))
            second = load(constant(beginning, "crc_beginning"), builder.add(skipped, word(width)))
            total = cgutils.alloca_once_value(builder, first)
            at = cgutils.alloca_once_value(builder, builder.add(begin, word(width)))
            with (
                builder.if_then(builder.icmp_unsigned(">", vectors, word(1))),
                builder.if_else(builder.icmp_unsigned("<", vectors, word(2 * lanes))) as (few, many),
            ):
                with few:
                    position = builder.load(at)
                    builder.store(fold(first, 1, builder.xor(load(source, position), second)), total)
                    builder.store(builder.add(position, word(width)), at)
                with many:
                    values = [first, builder.xor(load(source, builder.add(begin, word(width))), second)]
                    values += [load(source, builder.add(begin, word(width * lane))) for lane in range(2, lanes)]
                    places = [cgutils.alloca_once_value(builder, value) for value in values]
                    rounds = builder.udiv(vectors, word(lanes))
                    with cgutils.for_range(builder, builder.sub(rounds, word(1))) as loop:
                        base = builder.add(begin, builder.mul(builder.add(loop.index, word(1)), word(lanes * width)))
                        for lane, place in enumerate(places):
                            more = load(source, builder.add(base, word(width * lane)))
                            builder.store(fold(builder.load(place), lanes, more), place)
                    combined = builder.load(places[0])
                    for place in places[1:]:
                        combined = fold(combined, 1, builder.load(place))
                    builder.store(combined, total)
                    builder.store(builder.add(begin, builder.mul(rounds, word(lanes * width))), at)
            test, again, done = (builder.append_basic_block(f"crc.{name}") for name in ("test", "again", "done"))
            builder.branch(test)
            builder.position_at_end(test)
            position = builder.load(at)
            builder.cbranch(builder.icmp_signed("<", position, end), again, done)
            builder.position_at_end(again)
            builder.store(fold(builder.load(total), 1, load(source, position)), total)
            builder.store(builder.add(position, word(width)), at)
            builder.branch(test)
            builder.position_at_end(done)
            combined = builder.load(total)
            value = part(combined, parts - 1)
            if parts > 1:
                distances = [_folding(polynomial, 128 * (parts - 1 - index)) for index in range(parts - 1)]
                moved = both(combined, wide([*itertools.chain(*distances), 0, 0]))
                for index in range(parts - 1):
                    value = builder.xor(value, part(moved, index))
            by_16 = narrow(_folding(polynomial, 128))
            value = builder.xor(shifted(value, 8), multiply(value, by_16, 0x10))
            value = builder.xor(shifted(value, 4), multiply(builder.and_(value, low_words), narrow([to_64, 0]), 0x00))
            barrett = narrow([reflected, quotient])
            least = multiply(builder.and_(value, low_words), barrett, 0x10)
            least = multiply(builder.and_(least, low_words), barrett, 0x00)
            value = builder.extract_element(builder.xor(value, least), number(0))
            return builder.xor(builder.lshr(value, word(32)), word(0xFFFFFFFF))

        return nb.int64(data, nb.int64, nb.int64), codegen

    return intrinsic(crc)


def _carry_less_parts() -> int:
    """Return how many times 128 bits this machine multiplies without carry at once; 0: it does not."""
    import platform

    from llvmlite import binding

    features = binding.get_host_cpu_features()
    if platform.machine().lower() not in ("x86_64", "amd64") or not features.get("pclmul"):
        return 0
    if not features.get("vpclmulqdq"):
        return 1
    return 4 if features.get("avx512f") else 2


@machine_body(crc32_wide)
def _crc32_wide() -> Any:
    if not (parts := _carry_less_parts()):
        return _crc_tables_only
    body = _fold_body(IEEE, parts)
    return _inlined(lambda data, start, end, _table: body(data, start, end))


machine_body(_crc32_narrow)(lambda: _fold_body(IEEE, 1))
machine_body(_crc32c_wide)(lambda: _fold_body(CASTAGNOLI, _carry_less_parts()))
machine_body(_crc32c_narrow)(lambda: _fold_body(CASTAGNOLI, 1))
machine_body(crc32_of)(lambda: _crc32_folded if _carry_less_parts() else _crc_tables_only)
machine_body(crc32c_of)(lambda: _crc32c_folded if _carry_less_parts() else _crc_tables_only)


def copy_cell(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> None:
    """As `copy_32s`, but from another buffer, and `size` may be -1, too."""
    if size > 0:
        out[to : to + size] = data[at : at + size]


machine_body(copy_cell)(lambda: _copy_pieces(32))
