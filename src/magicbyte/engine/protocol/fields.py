"""A function for each encoding of a field.

Functions that read take a view of the bytes, a position in it and the field's name (for errors); they return the value
and the position after it. `flexible` selects the form of strings, bytes and arrays: in flexible versions they are
prefixed with an unsigned varint, their length plus one; in others with an int16 (strings) or int32.

Sources: Kafka's message generator; KIP-482 (flexible versions); KIP-625 (packed and unpacked integers).
"""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from magicbyte.engine.errors import ProtocolError, UnsupportedVersionError
from magicbyte.engine.protocol.message import Records, Tags, Writable, Writer, buffers_of, current_allowance, piece_size

T = TypeVar("T")

NULL_UUID: Final = uuid.UUID(int=0)  # what Kafka writes for "no id"


def id_text(value: uuid.UUID) -> str:
    """Return an id as Kafka writes it in text: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


LONGEST_STRING: Final = 0x7FFF  # bytes, in flexible versions too
ONE_BYTE: Final = 0x80  # smaller varints take one byte
EMPTY_STRUCTS: Final = 1000  # elements without bytes that an array may have: they cost their sender nothing

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
FEW_NUMBERS = 17  # arrays of fewer numbers use a prepared Struct
_NUMBERS = {code: [struct.Struct(f">{count}{code}") for count in range(FEW_NUMBERS)] for code in "?bhHiIqd"}


# ---- integers of variable length


def read_uvarint(data: memoryview, at: int, field: str, bits: int = 32) -> tuple[int, int]:
    """Read an unsigned varint of up to `bits` bits. Overlong forms are accepted."""
    value, end, shift = data[at] & 0x7F, at + 1, 7
    while data[end - 1] >= ONE_BYTE and shift < bits:
        value |= (data[end] & 0x7F) << shift
        end += 1
        shift += 7
    if data[end - 1] >= ONE_BYTE or value >> bits:
        found = bytes(data[at:end]).hex()
        raise ProtocolError(field, expected=f"a varint of {bits} bits", found=found, position=at)
    return value, end


def read_packed(data: memoryview, at: int, bits: int, field: str) -> tuple[int, int]:
    """Read a zigzag varint: packed16, packed32 or packed64."""
    value = data[at]
    if value < ONE_BYTE:
        at += 1
    else:
        value, at = read_uvarint(data, at, field, bits)
    return (value >> 1) ^ -(value & 1), at


def read_unpacked(data: memoryview, at: int, bits: int, field: str) -> tuple[int, int]:
    """Read a varint of a two's complement: unpacked16, unpacked32 or unpacked64."""
    value = data[at]
    if value < ONE_BYTE:
        return value, at + 1
    value, at = read_uvarint(data, at, field, bits)
    return value - (value >> (bits - 1) << bits), at


def write_uvarint(buffer: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value >= ONE_BYTE:
        buffer.append(value & 0x7F | ONE_BYTE)
        value >>= 7
    buffer.append(value)


def write_packed(buffer: bytearray, value: int, bits: int, field: str) -> None:
    """Append a zigzag varint. The value must fit into `bits` bits, with its sign."""
    write_uvarint(buffer, (fitting(value, bits, field) << 1) ^ (value >> (bits - 1)))


def write_unpacked(buffer: bytearray, value: int, bits: int, field: str) -> None:
    """Append a varint of the two's complement. The value must fit into `bits` bits, with its sign."""
    write_uvarint(buffer, fitting(value, bits, field) & ((1 << bits) - 1))


def fitting(value: int, bits: int, field: str) -> int:
    """Return `value` if it fits into `bits` bits, with its sign: an encoding may be narrower than the field's type."""
    if not -1 << (bits - 1) <= value < 1 << (bits - 1):
        raise ProtocolError(field, expected=f"a value of {bits} bits", found=value)
    return value


# ---- lengths


def read_length(data: memoryview, at: int, flexible: bool, field: str) -> tuple[int, int]:
    """Read the length of bytes, or the count of an array; -1 stands for null."""
    if flexible:
        length, end = read_uvarint(data, at, field)
        return length - 1, end
    (length,) = _INT32.unpack_from(data, at)
    if length < -1:
        raise ProtocolError(field, expected="a length", found=length, position=at)
    return length, at + 4


def read_count(data: memoryview, at: int, flexible: bool, minimum: int, field: str) -> tuple[int, int]:
    """Read the count of an array, -1 for null.

    That many elements of `minimum` bytes must fit into the remaining bytes. Structs may have no bytes in some version:
    then as many as there are bytes, or `EMPTY_STRUCTS`. Kafka's classes from 3.3 on read none of these.
    """
    if flexible and (count := data[at]) < ONE_BYTE:
        count, end = count - 1, at + 1
    elif flexible:
        count, end = read_length(data, at, flexible, field)
    else:
        end, (count,) = at + 4, _INT32.unpack_from(data, at)
        if count < -1:
            raise ProtocolError(field, expected="a length", found=count, position=at)
    if count * minimum > len(data) - end or (minimum == 0 and count > max(len(data) - end, EMPTY_STRUCTS)):
        most = (len(data) - end) // minimum if minimum else max(len(data) - end, EMPTY_STRUCTS)
        raise ProtocolError(field, expected=f"at most {most} elements", found=count, position=at)
    if count > 0 and (allowance := current_allowance.get()) is not None:
        allowance.take(count, field, at)
    return count, end


def write_length(buffer: bytearray, length: int, flexible: bool) -> None:
    """Append the length of bytes, or the count of an array; -1 for null."""
    if not flexible:
        buffer += _INT32.pack(length)
    elif length < ONE_BYTE - 1:
        buffer.append(length + 1)
    else:
        write_uvarint(buffer, length + 1)


def present(value: T | None, field: str) -> T:
    """Return a value that may not be null here. Raises ProtocolError."""
    if value is None:
        raise ProtocolError(field, expected="not null", found="null")
    return value


# ---- strings, bytes, records, ids


def read_nullable_string(data: memoryview, at: int, flexible: bool, field: str) -> tuple[str | None, int]:
    """Read a string of UTF-8, or null."""
    if flexible:
        if (length := data[at] - 1) < ONE_BYTE - 1:
            start = at + 1
        else:
            length, start = read_length(data, at, True, field)
    else:
        start, (length,) = at + 2, _INT16.unpack_from(data, at)
    if length == -1:
        return None, start
    end = start + length
    if not 0 <= length <= LONGEST_STRING or end > len(data):
        most = min(len(data) - start, LONGEST_STRING)
        raise ProtocolError(field, expected=f"a length up to {most}", found=length, position=at)
    try:
        return str(data[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise ProtocolError(field, expected="UTF-8", found=error.reason, position=start + error.start) from None


def read_string(data: memoryview, at: int, flexible: bool, field: str) -> tuple[str, int]:
    """Read a string of UTF-8."""
    if flexible:
        start, end = at + 1, at + data[at]  # if the length is one byte
        usual = at < end < at + ONE_BYTE
    else:
        start = at + 2
        end = start + _INT16.unpack_from(data, at)[0]
        usual = end >= start
    if usual and end <= len(data):
        try:
            return str(data[start:end], "utf-8"), end
        except UnicodeDecodeError as error:
            raise ProtocolError(field, expected="UTF-8", found=error.reason, position=start + error.start) from None
    value, end = read_nullable_string(data, at, flexible, field)
    if value is None:
        raise ProtocolError(field, expected="not null", found="null", position=at)
    return value, end


def write_string(buffer: bytearray, value: str, flexible: bool, field: str) -> None:
    """Append a string. Raises ProtocolError if it is too long or has surrogates."""
    try:
        raw = value.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError(field, expected="text of Unicode", found=error.reason) from None
    length = len(raw)
    if length > LONGEST_STRING:
        raise ProtocolError(field, expected=f"at most {LONGEST_STRING} bytes", found=length)
    if not flexible:
        buffer += _INT16.pack(length)
    elif length < ONE_BYTE - 1:
        buffer.append(length + 1)
    else:
        write_uvarint(buffer, length + 1)
    buffer += raw


def write_nullable_string(buffer: bytearray, value: str | None, flexible: bool, field: str) -> None:
    """Append a string or null. Raises what `write_string` does."""
    if value is not None:
        write_string(buffer, value, flexible, field)
    elif flexible:
        buffer.append(0)
    else:
        buffer += b"\xff\xff"


def read_nullable_view(data: memoryview, at: int, flexible: bool, field: str) -> tuple[memoryview | None, int]:
    """Read bytes or records, or null, as a view of the data."""
    if not flexible:
        (length,) = _INT32.unpack_from(data, at)
        start = at + 4
    elif (first := data[at]) < ONE_BYTE:
        length, start = first - 1, at + 1
    elif (second := data[at + 1]) < ONE_BYTE:
        length, start = (second << 7) + first - 129, at + 2
    elif (third := data[at + 2]) < ONE_BYTE:
        # 16513: the two continuation bits, and one
        length, start = (third << 14) + (second << 7) + first - 16513, at + 3
    else:
        length, start = read_length(data, at, True, field)
    if length == -1:
        return None, start
    end = start + length
    if length < 0 or end > len(data):
        raise ProtocolError(field, expected=f"a length up to {len(data) - start}", found=length, position=at)
    return data[start:end], end


def read_view(data: memoryview, at: int, flexible: bool, field: str) -> tuple[memoryview, int]:
    """Read bytes or records as a view of the data."""
    value, end = read_nullable_view(data, at, flexible, field)
    return present(value, field), end


def read_nullable_bytes(data: memoryview, at: int, flexible: bool, field: str) -> tuple[bytes | None, int]:
    """Read bytes, or null."""
    value, end = read_nullable_view(data, at, flexible, field)
    return None if value is None else bytes(value), end


def read_bytes(data: memoryview, at: int, flexible: bool, field: str) -> tuple[bytes, int]:
    """Read bytes."""
    if flexible and 0 < (length := data[at]) < ONE_BYTE and (end := at + length) <= len(data):  # the usual case
        return bytes(data[at + 1 : end]), end
    value, end = read_view(data, at, flexible, field)
    return bytes(value), end


def write_bytes(buffer: bytearray, value: bytes, flexible: bool, field: str) -> None:
    """Append bytes."""
    write_length(buffer, len(present(value, field)), flexible)
    buffer += value


def write_nullable_bytes(buffer: bytearray, value: bytes | None, flexible: bool, field: str) -> None:
    """Append bytes or null."""
    if value is None:
        write_length(buffer, -1, flexible)
    else:
        write_bytes(buffer, value, flexible, field)


def write_nullable_records(out: Writer, value: Records | None, flexible: bool) -> None:
    """Append nullable records, without a copy if they are long."""
    buffer = out.buffer
    if isinstance(value, bytes):
        length = len(value)
    elif value is None:
        write_length(buffer, -1, flexible)
        return
    elif isinstance(value, (bytearray, memoryview)):
        length = memoryview(value).nbytes
    else:
        write_length(buffer, sum(map(piece_size, value)), flexible)
        for piece in value:
            out.attach(piece)
        return
    if flexible and length < ONE_BYTE - 1:
        buffer.append(length + 1)
    elif flexible and length < (ONE_BYTE << 7) - 1:
        buffer.append((length + 1) & 0x7F | ONE_BYTE)
        buffer.append((length + 1) >> 7)
    elif flexible and length < (ONE_BYTE << 14) - 1:
        buffer.append((length + 1) & 0x7F | ONE_BYTE)
        buffer.append((length + 1) >> 7 & 0x7F | ONE_BYTE)
        buffer.append((length + 1) >> 14)
    else:
        write_length(buffer, length, flexible)
    out.attach(value)


def write_records(out: Writer, value: Records | None, flexible: bool, field: str) -> None:
    """Append records, without a copy if they are long. Raises ProtocolError for null."""
    if value is None:
        raise ProtocolError(field, expected="not null", found="null")
    write_nullable_records(out, value, flexible)


def as_bytes(value: Records) -> bytes:
    """Return records, or other uncopied bytes, as one copy."""
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else b"".join(buffers_of(value))


def read_uuid(data: memoryview, at: int) -> tuple[uuid.UUID, int]:
    """Read an id; `NULL_UUID` is none."""
    end = at + 16
    if end > len(data):
        raise IndexError
    number = int.from_bytes(data[at:end], "big")
    if not number:
        return NULL_UUID, end
    found = object.__new__(uuid.UUID)  # its constructor takes three times as long
    object.__setattr__(found, "int", number)
    object.__setattr__(found, "is_safe", uuid.SafeUUID.unknown)
    return found, end


def write_uuid(buffer: bytearray, value: uuid.UUID) -> None:
    """Append an id."""
    buffer += value.bytes


# ---- arrays


def read_numbers(data: memoryview, at: int, flexible: bool, code: str, field: str) -> tuple[tuple[Any, ...], int]:
    """Read an array of numbers; `code` is their type code for `struct`."""
    if flexible and 0 < (count := data[at]) <= FEW_NUMBERS and current_allowance.get() is None:  # the usual case
        numbers = _NUMBERS[code][count - 1]
        return numbers.unpack_from(data, at + 1), at + 1 + numbers.size
    values, end = read_nullable_numbers(data, at, flexible, code, field)
    return present(values, field), end


def read_nullable_numbers(
    data: memoryview, at: int, flexible: bool, code: str, field: str
) -> tuple[tuple[Any, ...] | None, int]:
    """Read a nullable array of numbers; `code` is their type code for `struct`."""
    count, start = read_count(data, at, flexible, _NUMBERS[code][1].size, field)
    if count == -1:
        return None, start
    numbers = _NUMBERS[code][count] if count < FEW_NUMBERS else struct.Struct(f">{count}{code}")
    return numbers.unpack_from(data, start), start + numbers.size


def write_numbers(buffer: bytearray, values: Sequence[Any] | None, flexible: bool, code: str) -> None:
    """Append a nullable array of numbers; `code` is their type code for `struct`."""
    if values is None:
        write_length(buffer, -1, flexible)
        return
    count = len(values)
    write_length(buffer, count, flexible)
    numbers = _NUMBERS[code][count] if count < FEW_NUMBERS else struct.Struct(f">{count}{code}")
    buffer += numbers.pack(*values)


def read_array(
    data: memoryview,
    at: int,
    flexible: bool,
    minimum: int,
    field: str,
    read: Callable[..., tuple[T, int]],
    *arguments: Any,
) -> tuple[list[T], int]:
    """Read an array of elements of at least `minimum` bytes, each by `read(data, position, *arguments)`."""
    values, end = read_nullable_array(data, at, flexible, minimum, field, read, *arguments)
    return present(values, field), end


def read_nullable_array(
    data: memoryview,
    at: int,
    flexible: bool,
    minimum: int,
    field: str,
    read: Callable[..., tuple[T, int]],
    *arguments: Any,
) -> tuple[list[T] | None, int]:
    """Read an array of elements of at least `minimum` bytes, each by `read(data, position, *arguments)`; or null."""
    count, at = read_count(data, at, flexible, minimum, field)
    if count == -1:
        return None, at
    values = []
    for _ in range(count):
        value, at = read(data, at, *arguments)
        values.append(value)
    return values, at


def read_structs(
    data: memoryview,
    at: int,
    flexible: bool,
    minimum: int,
    field: str,
    read_each: Callable[[memoryview, int, int, int], tuple[list[T], int]],
    version: int,
) -> tuple[list[T], int]:
    """Read an array of structs of at least `minimum` bytes each."""
    if flexible and data[at] == 1:
        return [], at + 1
    count, end = read_count(data, at, flexible, minimum, field)
    if count == -1:
        raise ProtocolError(field, expected="not null", found="null", position=at)
    return read_each(data, end, count, version)


def read_nullable_structs(
    data: memoryview,
    at: int,
    flexible: bool,
    minimum: int,
    field: str,
    read_each: Callable[[memoryview, int, int, int], tuple[list[T], int]],
    version: int,
) -> tuple[list[T] | None, int]:
    """Read an array of structs of at least `minimum` bytes each, or null."""
    count, end = read_count(data, at, flexible, minimum, field)
    return (None, end) if count == -1 else read_each(data, end, count, version)


def write_array(
    buffer: bytearray, values: Sequence[T] | None, flexible: bool, write: Callable[..., None], *arguments: Any
) -> None:
    """Append an array, each element by `write(buffer, element, *arguments)`, or null."""
    if values is None:
        write_length(buffer, -1, flexible)
        return
    write_length(buffer, len(values), flexible)
    for value in values:
        write(buffer, value, *arguments)


def write_structs(
    out: Writer,
    values: Sequence[T] | None,
    flexible: bool,
    write_each: Callable[[Sequence[T], Writer, int], None],
    version: int,
) -> None:
    """Append an array of structs, or null."""
    length = -1 if values is None else len(values)
    if not flexible:
        out.buffer += _INT32.pack(length)
    elif length < ONE_BYTE - 1:
        out.buffer.append(length + 1)
    else:
        write_uvarint(out.buffer, length + 1)
    if values is not None:
        write_each(values, out, version)


def read_varints(
    data: memoryview,
    at: int,
    flexible: bool,
    bits: int,
    field: str,
    read: Callable[[memoryview, int, int, str], tuple[int, int]],
) -> tuple[tuple[int, ...], int]:
    """Read an array of integers, each by `read`: `read_packed` or `read_unpacked`."""
    values, end = read_nullable_varints(data, at, flexible, bits, field, read)
    return present(values, field), end


def read_nullable_varints(
    data: memoryview,
    at: int,
    flexible: bool,
    bits: int,
    field: str,
    read: Callable[[memoryview, int, int, str], tuple[int, int]],
) -> tuple[tuple[int, ...] | None, int]:
    """Read an array of integers, or null, each by `read`: `read_packed` or `read_unpacked`."""
    values, end = read_nullable_array(data, at, flexible, 1, field, read, bits, field)
    return None if values is None else tuple(values), end


# ---- structs that may be null, tagged fields


def read_nullable_struct(
    data: memoryview,
    at: int,
    version: int,
    field: str,
    read: Callable[[memoryview, int, int], tuple[T, int]],
    null: int = 0xFF,
) -> tuple[T | None, int]:
    """Read a struct after the byte 1, or the byte `null` for null."""
    mark = data[at]
    if mark == 1:
        return read(data, at + 1, version)
    if mark == null:
        return None, at + 1
    raise ProtocolError(field, expected=f"1, or {null} for null", found=mark, position=at)


def write_nullable_struct(out: Writer, value: Writable | None, version: int, null: int = 0xFF) -> None:
    """Append a struct after the byte 1, or the byte `null` for null."""
    if value is None:
        out.buffer.append(null)
    else:
        out.buffer.append(1)
        value._write(out, version)


def read_tags(data: memoryview, at: int) -> tuple[dict[int, memoryview], int]:
    """Read the tagged fields at the end of a struct: their bytes, by tag."""
    count, at = (data[at], at + 1) if data[at] < ONE_BYTE else read_uvarint(data, at, "count of tagged fields")
    if (allowance := current_allowance.get()) is not None:
        allowance.take(count, "tagged fields", at)
    if count * 2 > len(data) - at:
        most = f"at most {(len(data) - at) // 2} elements"
        raise ProtocolError("count of tagged fields", expected=most, found=count, position=at)
    tags: dict[int, memoryview] = {}
    for _ in range(count):
        tag, start = (data[at], at + 1) if data[at] < ONE_BYTE else read_uvarint(data, at, "tag")
        size, start = (
            (data[start], start + 1) if data[start] < ONE_BYTE else read_uvarint(data, start, "size of a tagged field")
        )
        end = start + size
        if end > len(data):
            raise ProtocolError(f"size of tag {tag}", expected=f"up to {len(data) - start}", found=size, position=at)
        if tag in tags:
            raise ProtocolError("tag", expected="each tag once", found=f"tag {tag} twice", position=at)
        tags[tag] = data[start:end]
        at = end
    return tags, at


def whole(payload: memoryview, read: tuple[T, int], field: str) -> T:
    """Return the value read from the bytes of a tagged field, which it must fill."""
    value, end = read
    if end != len(payload):
        raise ProtocolError(field, expected=f"a tagged field of {end} bytes", found=len(payload))
    return value


def unknown(tags: dict[int, memoryview]) -> Tags:
    """Return tagged fields unknown to the schema in the form kept by messages: by tag, copied."""
    return tuple((tag, bytes(tags[tag])) for tag in sorted(tags))


def read_unknown_tags(data: memoryview, at: int) -> tuple[Tags, int]:
    """Read the tagged fields at the end of a struct whose schema has none."""
    if data[at] == 0:
        return (), at + 1
    tags, end = read_tags(data, at)
    return unknown(tags), end


def write_tags(buffer: bytearray, known: Iterable[tuple[int, bytes]], others: Tags, flexible: bool = True) -> None:
    """Append the tagged fields at the end of a struct: those of the schema and the unknown ones, by tag."""
    tags = sorted([*known, *others])
    if not flexible:
        raise UnsupportedVersionError("tagged fields", None)
    write_uvarint(buffer, len(tags))
    last = -1
    for tag, payload in tags:
        if tag <= last:
            raise ProtocolError("unknown_tags", expected="each tag once, and none of the schema's", found=f"tag {tag}")
        last = tag
        write_uvarint(buffer, tag)
        write_uvarint(buffer, len(payload))
        buffer += payload


def absent(field: str) -> UnsupportedVersionError:
    """Return the error for a field that is set, is not ignorable, and does not exist in the version to write."""
    return UnsupportedVersionError(f"field {field}", None)
