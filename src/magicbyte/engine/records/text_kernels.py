"""Write records as text: numbers in decimal, keys and values as they are or as JSON strings.

As in records/kernels/: flat buffers, nothing raised, every position checked before it is written.
"""

from __future__ import annotations

from magicbyte.engine.compiled.kernel import Bytes, Int32s, Int64s, MutableBytes, kernel
from magicbyte.engine.compiled.primitives import copy_bytes, load_u8

# ---- steps of a line, STEP integers each: the kind of field, and its two operands
LITERAL = 0  # bytes of `literals`: position, size
INTEGER = 1  # a column of `integers`: its index
KEY = 2  # the key: 0 as it is, 1 as a JSON string or null
VALUE = 3
STEP = 3

LONGEST_INTEGER = 20  # bytes
LONGEST_ESCAPE = 6  # bytes of a JSON string per byte of text
QUOTES = 4  # bytes around a JSON string, or of null


@kernel
def hex_digit(nibble: int) -> int:
    """Return the hexadecimal digit of 0 to 15."""
    return 48 + nibble if nibble < 10 else 87 + nibble


@kernel
def write_unit(out: MutableBytes, at: int, unit: int) -> int:
    """Write a \\u escape of 16 bits."""
    out[at], out[at + 1] = 92, 117
    out[at + 2], out[at + 3] = hex_digit(unit >> 12), hex_digit(unit >> 8 & 15)
    out[at + 4], out[at + 5] = hex_digit(unit >> 4 & 15), hex_digit(unit & 15)
    return at + 6


@kernel
def write_escape(out: MutableBytes, at: int, byte: int) -> int:
    """Write the escape of an ASCII character that cannot appear in a JSON string."""
    short = 0
    if byte == 34 or byte == 92:
        short = byte
    elif byte == 10:
        short = 110
    elif byte == 13:
        short = 114
    elif byte == 9:
        short = 116
    elif byte == 12:
        short = 102
    elif byte == 8:
        short = 98
    if short:
        out[at], out[at + 1] = 92, short
        return at + 2
    return int(write_unit(out, at, byte))


@kernel
def write_code_point(out: MutableBytes, at: int, point: int) -> int:
    """Write a character as one \\u escape, or as two if it exceeds 16 bits."""
    if point < 0x10000:
        return int(write_unit(out, at, point))
    above = point - 0x10000
    at = write_unit(out, at, 0xD800 | above >> 10)
    return int(write_unit(out, at, 0xDC00 | above & 0x3FF))


@kernel
def utf8_width(data: Bytes, at: int, end: int) -> int:
    """Return the size of the character of two or more bytes at `at`; 0 if it is not valid UTF-8."""
    first, second, width = load_u8(data, at), 0, 0
    if at + 1 < end:
        second = load_u8(data, at + 1)
    if 0xC2 <= first <= 0xDF:
        width = 2 if 0x80 <= second <= 0xBF else 0
    elif 0xE0 <= first <= 0xEF:
        low, high = (0xA0 if first == 0xE0 else 0x80), (0x9F if first == 0xED else 0xBF)
        width = 3 if low <= second <= high else 0
    elif 0xF0 <= first <= 0xF4:
        low, high = (0x90 if first == 0xF0 else 0x80), (0x8F if first == 0xF4 else 0xBF)
        width = 4 if low <= second <= high else 0
    if at + width > end:
        return 0
    for later in range(2, width):
        if load_u8(data, at + later) & 0xC0 != 0x80:
            return 0
    return width


@kernel
def code_point(data: Bytes, at: int, width: int) -> int:
    """Return the code point of the valid UTF-8 character of `width` bytes at `at`."""
    point = load_u8(data, at) & (0xFF >> (width + 1))
    for later in range(1, width):
        point = point << 6 | load_u8(data, at + later) & 0x3F
    return point


@kernel
def write_quoted(out: MutableBytes, at: int, data: Bytes, start: int, size: int) -> int:
    """Write a JSON string in ASCII; return the position after it.

    Invalid UTF-8 appears as bytes: a backslash, x, hex.
    """
    if size < 0:
        out[at], out[at + 1], out[at + 2], out[at + 3] = 110, 117, 108, 108  # null
        return at + 4
    out[at] = 34
    at += 1
    begin, end = start, start + size
    while begin < end:
        byte = load_u8(data, begin)
        if (35 <= byte < 127 and byte != 92) or byte == 32 or byte == 33:
            out[at] = byte
            at, begin = at + 1, begin + 1
        elif byte < 128:
            at, begin = write_escape(out, at, byte), begin + 1
        else:
            width = utf8_width(data, begin, end)
            if width == 0:  # \\xHH, a backslash being two in a JSON string
                out[at], out[at + 1], out[at + 2] = 92, 92, 120
                out[at + 3], out[at + 4] = hex_digit(byte >> 4), hex_digit(byte & 15)
                at, begin = at + 5, begin + 1
            else:
                at, begin = write_code_point(out, at, code_point(data, begin, width)), begin + width
    out[at] = 34
    return at + 1


@kernel
def write_cell(out: MutableBytes, at: int, data: Bytes, start: int, size: int, quoted: int) -> int:
    """Write a key or value, and return the position after it.

    For null (`size` -1) write nothing, or null if `quoted`.
    """
    if quoted:
        return int(write_quoted(out, at, data, start, size))
    if size > 0:
        copy_bytes(out, at, data, start, size)
        return at + size
    return at


@kernel
def write_integer(out: MutableBytes, at: int, value: int) -> int:
    """Write an int64 in decimal; return the position after it."""
    rest, last = value // 10, value % 10
    if value < 0:
        out[at] = 45  # -
        at += 1
        last = (10 - last) % 10
        rest = -(rest + 1) if last else -rest
    digits, bound = 1, 1
    while digits < 19 and rest >= bound:
        digits, bound = digits + 1, bound * 10
    end = at + digits
    out[end - 1] = 48 + last
    for back in range(2, digits + 1):
        out[end - back] = 48 + rest % 10
        rest //= 10
    return end


@kernel
def write_rows(
    steps: Int64s,
    literals: Bytes,
    integers: Int64s,
    keys: Bytes,
    key_start: Int32s,
    key_size: Int32s,
    values: Bytes,
    value_start: Int32s,
    value_size: Int32s,
    fixed: int,
    stretch: int,
    out: MutableBytes,
) -> int:
    """Write a line for each record, and return the bytes of all lines; -1 if `out` might be too small.

    Shapes: steps (k * STEP,); integers (m * n,), columns of n one after the other; starts and sizes (n,), -1 for null;
    cells lie within keys and values. `fixed` is the maximum size of a line without key and value; `stretch` the maximum
    growth per byte of these.
    """
    rows, at = len(key_size), 0
    count = len(steps) // STEP
    for row in range(rows):
        cells = max(int(key_size[row]), 0) + max(int(value_size[row]), 0)
        if at + fixed + stretch * cells > len(out):
            return -1
        for step in range(count):
            kind, operand, size = steps[step * STEP], steps[step * STEP + 1], steps[step * STEP + 2]
            if kind == LITERAL:
                copy_bytes(out, at, literals, operand, size)
                at += size
            elif kind == INTEGER:
                at = write_integer(out, at, integers[operand * rows + row])
            elif kind == KEY:
                at = write_cell(out, at, keys, int(key_start[row]), int(key_size[row]), operand)
            else:
                at = write_cell(out, at, values, int(value_start[row]), int(value_size[row]), operand)
    return at
