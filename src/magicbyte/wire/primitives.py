"""What kernels are made of: loads, stores and copies. Each has a Python body, for the plain twin, and an LLVM body.

All integers are big-endian. The caller has checked that the bytes are there; under NUMBA_BOUNDSCHECK=1 the compiled
bodies check it again and raise IndexError.
"""

from __future__ import annotations

import struct
from typing import Any

from magicbyte.wire import checksum
from magicbyte.wire.kernel import Bytes, Int32s, MutableBytes, bounds_checked, kernel, machine_body

_I16, _I32, _I64, _U32 = (struct.Struct(">" + code).unpack_from for code in "hiqI")
_PACK_I32, _PACK_I64, _PACK_U32 = (struct.Struct(">" + code).pack_into for code in "iqI")
_CRC_TABLES = 16


def load_i16(data: Bytes, at: int) -> int:
    """Return the int16 at position `at`."""
    return int(_I16(data, at)[0])  # type: ignore[arg-type]


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


def copy_bytes(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> None:
    """Copy `size` bytes of `data` from position `at` to position `to` of `out`; they do not overlap."""
    out[to : to + size] = data[at : at + size]


def as_int64(value: int) -> int:
    """Return `value` wrapped into 64 bits, as Java's long arithmetic does."""
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return value
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


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
    """Return the CRC-32 (IEEE) of the bytes from `start` to `end`. `table` is `crc32_table()`."""
    return checksum.crc32(data[start:end])


def crc32_table() -> list[int]:
    """Return the 16 tables of 256 int32 (bit patterns) that the compiled CRC-32 needs, one after the other."""
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        table.append(value)
    for at in range(256 * (_CRC_TABLES - 1)):
        previous = table[at]
        table.append((previous >> 8) ^ table[previous & 0xFF])
    return [value - (1 << 32) if value >> 31 else value for value in table]


def _load(bits: int, *, signed: bool) -> Any:
    """Return the LLVM body of a big-endian load: one unaligned load and a byte swap."""
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
            if bits > 8:
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
machine_body(load_i32)(lambda: _load(32, signed=True))
machine_body(load_u32)(lambda: _load(32, signed=False))
machine_body(load_i64)(lambda: _load(64, signed=True))
machine_body(store_i8)(lambda: _store(8))
machine_body(store_i32)(lambda: _store(32))
machine_body(store_u32)(lambda: _store(32))
machine_body(store_i64)(lambda: _store(64))


@machine_body(copy_bytes)
def _copy() -> Any:
    """Return the LLVM body of a copy: two 16-byte moves when both sides have room for them, else memcpy."""
    from llvmlite import ir
    from numba.extending import intrinsic
    from numba.np import arrayobj

    array_struct: Any = arrayobj.make_array

    check = bounds_checked()
    byte, word, wide = ir.IntType(8), ir.IntType(64), ir.VectorType(ir.IntType(64), 2)

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
                    for step in (0, 16):
                        piece = builder.load(
                            builder.bitcast(builder.gep(source, [word(step)]), wide.as_pointer()), align=1
                        )
                        builder.store(
                            piece, builder.bitcast(builder.gep(target, [word(step)]), wide.as_pointer()), align=1
                        )
                with otherwise:
                    memcpy = builder.module.declare_intrinsic(
                        "llvm.memcpy", [byte.as_pointer(), byte.as_pointer(), word]
                    )
                    builder.call(memcpy, [target, source, size, ir.IntType(1)(0)])
            return context.get_dummy_value()

        return nb.void(out, nb.int64, data, nb.int64, nb.int64), codegen

    return intrinsic(copy)


def _in_python(function: Any) -> Any:
    """Return `function` compiled as it stands: for bodies that Numba types well by themselves."""
    import numba

    return numba.njit(function, nogil=True)


@machine_body(as_int64)
def _as_int64() -> Any:
    return _in_python(lambda value: value)


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


@kernel
def _crc32_by_16(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC-32 of the bytes from `start` to `end`, sixteen at a time, each through its own table."""
    crc, at = 0xFFFFFFFF, start
    while end - at >= 16:
        a, b = load_i64(data, at), load_i64(data, at + 8)
        a ^= ((crc & 0xFF) << 56) | ((crc & 0xFF00) << 40) | ((crc & 0xFF0000) << 24) | (((crc >> 24) & 0xFF) << 32)
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
    while at < end:
        crc = ((crc >> 8) & 0xFFFFFF) ^ table[(crc ^ data[at]) & 0xFF]
        at += 1
    return (crc ^ 0xFFFFFFFF) & 0xFFFFFFFF


machine_body(crc32_of)(lambda: _crc32_by_16)
