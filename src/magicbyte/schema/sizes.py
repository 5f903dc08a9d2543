"""Compute the bytes of each field of a message in a version, from values in Kafka's JSON form.

An independent implementation of the rules of generated code: it must equal `size()` there, field by field.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from magicbyte.schema.errors import SchemaValueError
from magicbyte.schema.tree import (
    ENCODABLE_BITS,
    FIXED_SIZES,
    Encoding,
    FieldSchema,
    MessageSchema,
)
from magicbyte.schema.values import Struct, default_of, read_values


@dataclass(slots=True)
class FieldSize:
    """The bytes of all values of one field. `way` is its path through the structs; `form` names its encoding.

    For an array or struct, only the bytes besides its fields: the count, the byte that distinguishes null, and the
    tagged section's count. `values` is how often the field, or an element of an array of integers, was written.
    """

    way: str
    type: str
    form: str
    values: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class MessageSize:
    """The bytes of a message: in total, and by field in the order of writing; `""` is the message itself."""

    bytes: int
    fields: dict[str, FieldSize]

    def to_json(self, version: int, proposed: tuple[int, MessageSize] | None = None) -> dict[str, Any]:
        """Return the JSON form for `version`, beside a proposed schema's version and size."""
        report: dict[str, Any] = {"version": version, "bytes": self.bytes}
        report["fields"] = [
            {"field": each.way, "type": each.type, "form": each.form, "values": each.values, "bytes": each.bytes}
            for each in self.fields.values()
        ]
        if proposed is not None:
            report["proposed"] = proposed[1].to_json(proposed[0])
        return report


def measure(message: MessageSchema, version: int, values: object) -> MessageSize:
    """Return the size of a message with `values` in `version`, without a header.

    Raises SchemaValueError for values that cannot be written in that version, and for an invalid version.
    """
    check_version(message, version)
    meter = _Meter(message, version)
    size = meter.struct(message.fields, read_values(message, values), "", "")
    return MessageSize(size, meter.rows)


def check_version(message: MessageSchema, version: int) -> None:
    """Raise SchemaValueError unless the message has that version."""
    if version not in message.valid_versions:
        expected = f"a version of {message.name}, {message.valid_versions}"
        raise SchemaValueError("version", expected=expected, found=str(version))


def encoded_size(value: int, encoding: Encoding) -> int:
    """Return the bytes of an integer. Raises ValueError if it has more bits than the encoding."""
    half = 1 << (encoding.bits - 1)
    if not -half <= value < half:
        raise ValueError(f"{encoding.bits} bits, {-half} to {half - 1}")
    if encoding.kind == "fixed":
        return encoding.bits // 8
    if encoding.kind == "packed":
        return _varint(2 * value if value >= 0 else -2 * value - 1)
    return _varint(value & (1 << encoding.bits) - 1)


def encoding_of(field: FieldSchema, version: int) -> Encoding | None:
    """Return the encoding of a field's integers in `version`; None for types without encodings."""
    bits = ENCODABLE_BITS.get(field.type.name)
    return None if bits is None else field.encoding_at(version) or Encoding("fixed", bits)


def integers(message: MessageSchema, version: int, values: object) -> Iterator[tuple[str, FieldSchema, int]]:
    """Yield every int16, int32 and int64 written in `version`: the path of its field, the field, the value."""
    check_version(message, version)
    meter = _Meter(message, version)
    meter.struct(message.fields, read_values(message, values), "", "")
    yield from meter.integers


def _varint(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))


class _Meter:
    """Adds up the bytes of one message in one version."""

    def __init__(self, message: MessageSchema, version: int) -> None:
        self.message, self.version = message, version
        self.flexible = version in message.flexible_versions
        self.rows: dict[str, FieldSize] = {"": FieldSize("", message.name, "message", 1)}
        self.integers: list[tuple[str, FieldSchema, int]] = []

    def struct(self, fields: tuple[FieldSchema, ...], values: Struct, way: str, at: str) -> int:
        """Return the bytes of a struct. `way` names its row; `at` is its path in the values, for errors."""
        size, tags = 0, 0
        for field in fields:
            value = values[field.name]
            inner = f"{way}.{field.name}" if way else field.name
            here = f"{at}.{field.json_name}" if at else field.json_name
            if self.version not in field.versions:
                self._check_absent(field, value, here)
            elif self.version not in field.tagged_versions:
                size += self._field(field, value, inner, here)
            elif value != default_of(self.message, field):
                tags += 1
                payload = self._field(field, value, inner, here)
                assert field.tag is not None, "the rules say so"
                size += payload + self._add(inner, _varint(field.tag) + _varint(payload))
        return size + (self._add(way, _varint(tags)) if self.flexible else 0)

    def _check_absent(self, field: FieldSchema, value: Any, at: str) -> None:
        if not field.ignorable and value != default_of(self.message, field):
            expected = f"its default in version {self.version}, which has no such field and it is not ignorable"
            raise SchemaValueError(at, expected=expected, found="another value")

    def _field(self, field: FieldSchema, value: Any, way: str, at: str) -> int:
        if way not in self.rows:
            self.rows[way] = FieldSize(way, str(field.type), self._form(field))
        row = self.rows[way]
        if value is None:
            if self.version not in field.nullable_versions:
                raise SchemaValueError(
                    at, expected=f"a value: {field.type} is not null in version {self.version}", found="null"
                )
            row.values += 1
            return self._add(way, self._null(field))
        if field.type.array:
            size = self._add(way, self._length(len(value), 4))
            for index, item in enumerate(value):
                row.values += 1
                size += self._one(field, item, way, f"{at}[{index}]")
            return size
        row.values += 1
        marker = field.type.struct and self.version in field.nullable_versions
        return self._one(field, value, way, at) + (self._add(way, 1) if marker else 0)

    def _one(self, field: FieldSchema, value: Any, way: str, at: str) -> int:
        """Return the bytes of a value, or of an element of an array, that is not null."""
        name = field.type.name
        if field.type.struct:
            return self.struct(self.message.structs[name].fields, value, way, at)
        encoding = encoding_of(field, self.version)
        if encoding is not None:
            self.integers.append((way, field, value))
            try:
                return self._add(way, encoded_size(value, encoding))
            except ValueError as error:
                raise SchemaValueError(at, expected=f"{error}, for {encoding}", found=str(value)) from None
        if name in FIXED_SIZES:
            return self._add(way, FIXED_SIZES[name])
        raw = len(value.encode()) if name == "string" else len(value)
        return self._add(way, raw + self._length(raw, 2 if name == "string" else 4, field))

    def _form(self, field: FieldSchema) -> str:
        encoding = encoding_of(field, self.version)
        if encoding is not None:
            return str(encoding)
        return "struct" if field.type.struct else field.type.name

    def _null(self, field: FieldSchema) -> int:
        if field.type.struct and not field.type.array:
            return 1
        return self._length(-1, 2 if str(field.type) == "string" else 4, field)

    def _length(self, length: int, fixed: int, field: FieldSchema | None = None) -> int:
        """Return the bytes of a length or count, -1 for null, that takes `fixed` bytes in a version not flexible."""
        override = field.flexible_versions if field is not None else None
        flexible = self.flexible if override is None else self.version in override
        return _varint(length + 1) if flexible else fixed

    def _add(self, way: str, size: int) -> int:
        self.rows[way].bytes += size
        return size
