"""CRC-32 and CRC-32C for kernels: by carry-less multiplication if the processor has it, else by tables."""

from __future__ import annotations

import itertools
from typing import Any

from magicbyte.engine.compiled import shipped
from magicbyte.engine.compiled.kernel import Bytes, Int32s, bounds_checked, kernel, machine_body
from magicbyte.engine.compiled.primitives import check_range, in_python, inlined, load_i64, load_u32
from magicbyte.engine.wire import checksum

_CRC_TABLES = 16
IEEE, CASTAGNOLI = 0x04C11DB7, 0x1EDC6F41  # the polynomials of CRC-32 and CRC-32C, without their highest term


def crc32_of(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC-32 (IEEE) of the bytes from `start` to `end`. `table` is `crc_table(IEEE)`."""
    return checksum.crc32(data[start:end])


def crc32_wide(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC-32 as `crc32_of` does, for at least 4 bytes with 64 before them in the buffer. Always inlined."""
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


def _first_half(crc: int) -> int:
    """Return the 32 bits of `crc`, bytes reversed, as the upper half of 64 bits, into which the first bytes are
    loaded.
    """
    return ((crc & 0xFF) << 56) | ((crc & 0xFF00) << 40) | ((crc & 0xFF0000) << 24) | (((crc >> 24) & 0xFF) << 32)


@kernel
def _crc_by_table(data: Bytes, at: int, end: int, crc: int, table: Int32s) -> int:
    """Continue the inverted CRC `crc` over the bytes from `at` to `end`: 16, 8, 4 and then 1 at a time."""
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
    return in_python(_first_half)


@kernel
def _crc_tables_only(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC of the bytes from `start` to `end` for the polynomial of `table`."""
    rest: int = _crc_by_table(data, start, end, 0xFFFFFFFF, table)
    return rest ^ 0xFFFFFFFF


def _crc32_narrow(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC-32 of at least 4 bytes from `start` to `end`; the buffer must have 16 bytes before them."""
    return checksum.crc32(data[start:end])


def _crc32c_wide(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC-32C as `_crc32c_narrow` does, with 64 bytes before `start`."""
    return checksum.crc32c(data[start:end])


def _crc32c_narrow(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC-32C as `_crc32_narrow` does the CRC-32."""
    return checksum.crc32c(data[start:end])


@kernel
def _crc32_folded(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC-32 of the bytes from `start` to `end`, by carry-less multiplication where possible."""
    if start >= 64 and end - start >= 4:
        return crc32_wide(data, start, end, table)
    if start >= 16 and end - start >= 4:
        return _crc32_narrow(data, start, end, table)
    rest: int = _crc_by_table(data, start, end, 0xFFFFFFFF, table)
    return rest ^ 0xFFFFFFFF


@kernel
def _crc32c_folded(data: Bytes, start: int, end: int, table: Int32s) -> int:
    """Return the CRC-32C as `_crc32_folded` does the CRC-32."""
    if start >= 64 and end - start >= 4:
        return _crc32c_wide(data, start, end, table)
    if start >= 16 and end - start >= 4:
        return _crc32c_narrow(data, start, end, table)
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
    """Return the factors of the two halves of 128 bits that move them `bits` further."""
    return [_power(polynomial, bits + 32) << 1, _power(polynomial, bits - 32) << 1]


def _reduction(polynomial: int) -> tuple[int, int, int]:
    """Return the constants of the last reduction: x**64 mod P, P, and x**64 div P, all reflected."""
    whole = (1 << 32) | polynomial
    rest, quotient = 1 << 64, 0
    for bit in range(32, -1, -1):
        if rest >> (bit + 32) & 1:
            quotient |= 1 << bit
            rest ^= whole << bit
    return _power(polynomial, 64) << 1, _reflected(whole, 33), _reflected(quotient, 33)


def _fold_body(polynomial: int, parts: int) -> Any:
    """Return the LLVM body of a CRC by carry-less multiplication, in vectors of `parts` (1, 2, 4) times 128 bits.

    The input is extended to whole vectors by zeros before its start, which do not change the CRC; so the first load
    begins up to a vector before `start`. The initial CRC value is added to the first four bytes.

    Source: Gopal, Ozturk, Guilford and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ (Intel,
    2009).
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
                check_range(context, builder, array, begin, builder.sub(end, begin))
            # The folding loop takes whole vectors only. Leading zeros do not change a CRC without its initial value, so
            # the input is extended to the left: the first vector is loaded from up to a vector before `start`, and a
            # mask clears these bytes. The initial value (all ones) is then added to the first four bytes proper,
            # wherever they are in the first two vectors. That costs two loads from a table instead of a loop over the
            # remaining bytes, which short messages would not amortize.
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
    """Return how many 128-bit lanes the processor's carry-less multiplication has; 0 without that instruction.

    For the target processor of the machine code: this one, or that of the shipped code being made.
    """
    import platform

    from llvmlite import binding

    if shipped.made_for is not None:
        return shipped.made_for.carry_less
    features = binding.get_host_cpu_features()
    if platform.machine().lower() not in ("x86_64", "amd64") or not features.get("pclmul"):
        return 0
    if not features.get("vpclmulqdq"):
        return 1
    return 4 if features.get("avx512f") else 2


def _folding_body(polynomial: int, most: int) -> Any:
    """Return the machine form of a CRC in vectors of at most `most` lanes, or by tables if there is no such
    instruction.
    """
    parts = min(most, _carry_less_parts())
    if not parts:
        return _crc_tables_only
    body = _fold_body(polynomial, parts)
    return inlined(lambda data, start, end, _table: body(data, start, end))


machine_body(crc32_wide)(lambda: _folding_body(IEEE, 4))
machine_body(_crc32_narrow)(lambda: _folding_body(IEEE, 1))
machine_body(_crc32c_wide)(lambda: _folding_body(CASTAGNOLI, 4))
machine_body(_crc32c_narrow)(lambda: _folding_body(CASTAGNOLI, 1))
machine_body(crc32_of)(lambda: _crc32_folded if _carry_less_parts() else _crc_tables_only)
machine_body(crc32c_of)(lambda: _crc32c_folded if _carry_less_parts() else _crc_tables_only)
