"""Messages by their schema alone, over plain values: a second implementation that proves the generated one.

It walks the checked tree at each call and shares no code with `engine.protocol`. Values have the form of Kafka's
JSON converters: names in camel case, bytes and records as base64, UUIDs as Kafka's base64 text. Beyond that form, any
struct may have "_unknownTaggedFields", pairs of a tag and base64. A missing field has its default.
"""

import base64
import struct
from collections.abc import Iterator
from typing import Any

from magicbyte.schema.tree import INTEGER_BITS, Encoding, FieldSchema, MessageSchema

Values = dict[str, Any]

UNKNOWN = "_unknownTaggedFields"
LONGEST_STRING = 32767
ZERO_UUID = "A" * 22
SIGNED = {16: ">h", 32: ">i", 64: ">q"}
FORMATS = {
    "bool": ">?", "int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q",
    "float64": ">d",
}  # fmt: skip


class RefusedError(Exception):
    """Values that a version cannot hold, or bytes that are no message."""


# ---- values


def default_of(schema: MessageSchema, field: FieldSchema) -> Any:
    """Return the value that a field has where none is given."""
    if field.null_by_default:
        return None
    if field.type.array:
        return []
    if field.type.struct:
        return {each.json_name: default_of(schema, each) for each in schema.structs[field.type.name].fields}
    if field.type.name in ("bytes", "records"):
        return ""
    if field.default is not None:
        return field.default
    return {"string": "", "bool": False, "float64": 0.0, "uuid": ZERO_UUID}.get(field.type.name, 0)


def present(fields: tuple[FieldSchema, ...], version: int) -> Iterator[FieldSchema]:
    """Return the fields that a struct has in a version, in their order on the wire, tagged ones last."""
    tagged: dict[int, FieldSchema] = {}
    for field in fields:
        if field.tag is not None and version in field.tagged_versions:
            tagged[field.tag] = field
        elif version in field.versions:
            yield field
    for tag in sorted(tagged):
        yield tagged[tag]


def complete(schema: MessageSchema, version: int, values: Values) -> Values:
    """Return the values of a message with every field that the version has, and no other."""
    return complete_struct(schema, schema.fields, version, values)


def complete_struct(
    schema: MessageSchema, fields: tuple[FieldSchema, ...], version: int, values: Values | None
) -> Values | None:
    if values is None:
        return None
    whole: Values = {}
    for field in present(fields, version):
        value = values.get(field.json_name, default_of(schema, field))
        if field.type.struct and value is not None:
            inner = schema.structs[field.type.name].fields
            if field.type.array:
                value = [complete_struct(schema, inner, version, each) for each in value]
            else:
                value = complete_struct(schema, inner, version, value)
        whole[field.json_name] = value
    if values.get(UNKNOWN):
        whole[UNKNOWN] = sorted(list(pair) for pair in values[UNKNOWN])
    return whole


def is_default(schema: MessageSchema, field: FieldSchema, value: Any) -> bool:
    """Say whether a value is the default of its field; a struct is, where all inside are."""
    default = default_of(schema, field)
    if not field.type.struct or field.type.array or value is None or default is None:
        return bool(value == default)
    inner = schema.structs[field.type.name].fields
    return not value.get(UNKNOWN) and all(
        is_default(schema, each, value.get(each.json_name, default_of(schema, each))) for each in inner
    )


# ---- writing


def write(schema: MessageSchema, version: int, values: Values) -> bytes:
    """Return the bytes of a message; raises RefusedError for what the version cannot hold."""
    if version not in schema.valid_versions:
        raise RefusedError(f"{schema.name} has no version {version}")
    out = bytearray()
    write_struct(out, schema, schema.fields, version, values)
    return bytes(out)


def write_struct(
    out: bytearray, schema: MessageSchema, fields: tuple[FieldSchema, ...], version: int, values: Values
) -> None:
    tagged: dict[int, bytes] = {}
    for field in fields:
        value = values.get(field.json_name, default_of(schema, field))
        if version not in field.versions:
            if not field.ignorable and not is_default(schema, field, value):
                raise RefusedError(f"{field.name} is not in version {version}")
        elif field.tag is not None and version in field.tagged_versions:
            if value is None and version not in field.nullable_versions:
                raise RefusedError(f"{field.name} is null")
            if not is_default(schema, field, value):
                payload = bytearray()
                write_field(payload, schema, field, version, value, null_struct=b"\0")
                tagged[field.tag] = bytes(payload)
        else:
            write_field(out, schema, field, version, value)
    unknown = {tag: base64.b64decode(payload) for tag, payload in values.get(UNKNOWN, ())}
    if version in schema.flexible_versions:
        if tagged.keys() & unknown.keys():
            raise RefusedError("an unknown field has the tag of a known one")
        write_uvarint(out, len(tagged) + len(unknown))
        for tag, content in sorted((tagged | unknown).items()):
            write_uvarint(out, tag)
            write_uvarint(out, len(content))
            out += content
    elif unknown:
        raise RefusedError(f"no tagged fields in version {version}")


def write_field(
    out: bytearray, schema: MessageSchema, field: FieldSchema, version: int, value: Any, null_struct: bytes = b"\xff"
) -> None:
    """Write a field. A null struct is -1 in its place, and 0 in the tagged section, where Kafka has a varint for it."""
    flexible = is_flexible(schema, field, version)
    if value is None:
        if version not in field.nullable_versions:
            raise RefusedError(f"{field.name} is null in version {version}")
        if field.type.struct and not field.type.array:
            out += null_struct
        elif flexible:
            out += b"\0"
        else:
            out += b"\xff\xff" if field.type.name == "string" and not field.type.array else b"\xff\xff\xff\xff"
    elif field.type.array:
        write_length(out, len(value), ">i", flexible)
        for element in value:
            write_element(out, schema, field, version, element)
    else:
        if field.type.struct and version in field.nullable_versions:
            out += b"\x01"
        write_element(out, schema, field, version, value)


def write_element(out: bytearray, schema: MessageSchema, field: FieldSchema, version: int, value: Any) -> None:
    """Write a value that is not null: of the field, or of one element."""
    name = field.type.name
    if field.type.struct:
        write_struct(out, schema, schema.structs[name].fields, version, value)
    elif name == "string":
        content = value.encode()
        if len(content) > LONGEST_STRING:
            raise RefusedError(f"{field.name} has {len(content)} bytes")
        write_length(out, len(content), ">h", is_flexible(schema, field, version))
        out += content
    elif name in ("bytes", "records"):
        content = base64.b64decode(value)
        write_length(out, len(content), ">i", is_flexible(schema, field, version))
        out += content
    elif name == "uuid":
        out += base64.urlsafe_b64decode(value + "==")
    elif (encoding := field.encoding_at(version)) is not None:
        write_encoded(out, encoding, value)
    else:
        try:
            out += struct.pack(FORMATS[name], value)
        except struct.error as error:
            raise RefusedError(f"{field.name}: {error}") from error


def write_encoded(out: bytearray, encoding: Encoding, value: int) -> None:
    """Write an integer as KIP-625 says; it has to lie in the signed range of the encoding's bits."""
    bits = encoding.bits
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise RefusedError(f"{value} does not fit {bits} bits")
    if encoding.kind == "fixed":
        out += struct.pack(SIGNED[bits], value)
    elif encoding.kind == "packed":
        write_uvarint(out, value << 1 if value >= 0 else ~(value << 1))
    else:
        write_uvarint(out, value & (1 << bits) - 1)


def write_length(out: bytearray, length: int, old: str, flexible: bool) -> None:
    if flexible:
        write_uvarint(out, length + 1)
    else:
        out += struct.pack(old, length)


def write_uvarint(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def is_flexible(schema: MessageSchema, field: FieldSchema, version: int) -> bool:
    versions = schema.flexible_versions if field.flexible_versions is None else field.flexible_versions
    return version in versions


# ---- reading


class Source:
    """Bytes and a position in them."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, length: int) -> bytes:
        if not 0 <= length <= self.left:
            raise RefusedError(f"{length} bytes at {self.at} of {len(self.data)}")
        self.at += length
        return self.data[self.at - length : self.at]

    def fixed(self, format_: str) -> Any:
        return struct.unpack(format_, self.take(struct.calcsize(format_)))[0]

    def uvarint(self, bits: int = 32) -> int:
        """Read LEB128 of at most so many bits, with no bit set beyond them."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if value >> bits:
                raise RefusedError(f"more than {bits} bits at {self.at}")
            if byte < 0x80:
                return value
            if shift >= bits:
                raise RefusedError(f"a number that does not end at {self.at}")


def read(schema: MessageSchema, version: int, data: bytes) -> tuple[Values, int]:
    """Return the values of the message at the start of `data`, and how many bytes it has; raises RefusedError."""
    if version not in schema.valid_versions:
        raise RefusedError(f"{schema.name} has no version {version}")
    source = Source(data)
    return read_struct(source, schema, schema.fields, version), source.at


def read_struct(source: Source, schema: MessageSchema, fields: tuple[FieldSchema, ...], version: int) -> Values:
    values: Values = {}
    tagged: dict[int, FieldSchema] = {}
    for field in present(fields, version):
        if field.tag is not None and version in field.tagged_versions:
            tagged[field.tag] = field
            values[field.json_name] = default_of(schema, field)
            if field.type.struct and not field.type.array:
                inner = schema.structs[field.type.name].fields
                values[field.json_name] = complete_struct(schema, inner, version, values[field.json_name])
        else:
            values[field.json_name] = read_field(source, schema, field, version)
    if version not in schema.flexible_versions:
        return values
    unknown, seen = [], set()
    for _ in range(source.uvarint()):
        tag, content = source.uvarint(), Source(source.take(source.uvarint()))
        if tag in seen:
            raise RefusedError(f"tag {tag} twice")
        seen.add(tag)
        if tag in tagged:
            values[tagged[tag].json_name] = read_field(content, schema, tagged[tag], version, null_struct=0)
            if content.left:
                raise RefusedError(f"{content.left} bytes behind the tagged field {tag}")
        else:
            unknown.append([tag, base64.b64encode(content.data).decode()])
    if unknown:
        values[UNKNOWN] = sorted(unknown)
    return values


def read_field(source: Source, schema: MessageSchema, field: FieldSchema, version: int, null_struct: int = -1) -> Any:
    nullable = version in field.nullable_versions
    if field.type.array:
        length = read_length(source, ">i", is_flexible(schema, field, version), nullable)
        if length is None:
            return None
        if length > source.left:
            raise RefusedError(f"{length} elements in {source.left} bytes")
        return [read_element(source, schema, field, version, nullable=False) for _ in range(length)]
    if field.type.struct and nullable:
        mark = source.fixed(">b")
        if mark == null_struct:
            return None
        if mark != 1:
            raise RefusedError(f"{field.name}: neither null nor a struct: {mark}")
    return read_element(source, schema, field, version, nullable=nullable)


def read_element(source: Source, schema: MessageSchema, field: FieldSchema, version: int, *, nullable: bool) -> Any:
    name = field.type.name
    if field.type.struct:
        return read_struct(source, schema, schema.structs[name].fields, version)
    if name in ("string", "bytes", "records"):
        old = ">h" if name == "string" else ">i"
        length = read_length(source, old, is_flexible(schema, field, version), nullable)
        if length is None:
            return None
        content = source.take(length)
        if name != "string":
            return base64.b64encode(content).decode()
        if length > LONGEST_STRING:
            raise RefusedError(f"a string of {length} bytes")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise RefusedError(f"{field.name}: {error}") from error
    if name == "uuid":
        return base64.urlsafe_b64encode(source.take(16)).decode().rstrip("=")
    if (encoding := field.encoding_at(version)) is not None:
        return read_encoded(source, encoding)
    return source.take(1) != b"\0" if name == "bool" else source.fixed(FORMATS[name])


def read_encoded(source: Source, encoding: Encoding) -> int:
    bits = encoding.bits
    if encoding.kind == "fixed":
        return int(source.fixed(SIGNED[bits]))
    raw = source.uvarint(bits)
    if encoding.kind == "packed":
        return raw >> 1 ^ -(raw & 1)
    return raw - (1 << bits) if raw >> bits - 1 else raw


def read_length(source: Source, old: str, flexible: bool, nullable: bool) -> int | None:
    length = source.uvarint() - 1 if flexible else int(source.fixed(old))
    if length >= 0:
        return length
    if length == -1 and nullable:
        return None
    raise RefusedError(f"a length of {length} at {source.at}")


# ---- where integers are: for the table of KIP-625


def integers(schema: MessageSchema, version: int, values: Values) -> Iterator[tuple[FieldSchema, int]]:
    """Return every integer of a message, elements of arrays included, with its field."""
    yield from integers_of_struct(schema, schema.fields, version, values)


def integers_of_struct(
    schema: MessageSchema, fields: tuple[FieldSchema, ...], version: int, values: Values
) -> Iterator[tuple[FieldSchema, int]]:
    for field in present(fields, version):
        value = values.get(field.json_name, default_of(schema, field))
        elements = value if field.type.array else [value]
        for element in elements or ():
            if field.type.struct and element is not None:
                yield from integers_of_struct(schema, schema.structs[field.type.name].fields, version, element)
            elif field.type.name in INTEGER_BITS:
                yield field, element
