"""Divide the versions of a message into spans without changes, and its fields into runs of numbers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magicbyte.schema.tree import FieldSchema, MessageSchema, StructSchema

NUMBERS: Final = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d",
}  # fmt: skip
"""The fixed-size types with their `struct` codes."""
BITS: Final = {16: "h", 32: "i", 64: "q"}


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Versions `lowest` to `highest`, in which a message does not change; `flexible` is its encoding."""

    lowest: int
    highest: int
    flexible: bool


def spans_of(message: MessageSchema) -> list[VersionSpan]:
    """Return the spans of a message's versions, lowest first."""
    if message.valid_versions.is_empty:
        return []
    ranges = [message.valid_versions, message.flexible_versions, *(each.versions for each in message.structs.values())]
    for field in all_fields(message):
        ranges += [field.versions, field.nullable_versions, field.tagged_versions]
        ranges += [versions for versions, _ in field.encodings]
        if field.flexible_versions is not None:
            ranges.append(field.flexible_versions)
    edges = {edge for each in ranges if not each.is_empty for edge in (each.lowest, each.highest + 1)}
    starts = sorted(edge for edge in edges if edge in message.valid_versions)
    ends = [start - 1 for start in starts[1:]] + [message.valid_versions.highest]
    return [
        VersionSpan(start, end, start in message.flexible_versions) for start, end in zip(starts, ends, strict=True)
    ]


def all_fields(message: MessageSchema) -> list[FieldSchema]:
    """Return the fields of a message and of its structs."""
    return [*message.fields, *(field for _, fields in owners_of(message) for field in fields)]


def owners_of(message: MessageSchema) -> list[tuple[str, tuple[FieldSchema, ...]]]:
    """Return the structs of a message by name, with their fields."""
    return [(name, each.fields) for name, each in message.structs.items()]


def structs_of(message: MessageSchema) -> list[StructSchema | None]:
    """Return the structs of a message, those inside others first, and None for the message itself."""
    structs: list[StructSchema | None] = []

    def add(fields: Sequence[FieldSchema]) -> None:
        for field in fields:
            schema = message.structs.get(field.type.name) if field.type.struct else None
            if schema is not None and schema not in structs:
                add(schema.fields)
                structs.append(schema)

    add(message.fields)
    for schema in message.structs.values():  # unused common structs
        if schema not in structs:
            add(schema.fields)
            structs.append(schema)
    return [*structs, None]


def runs_of(fields: Sequence[FieldSchema], spans: Sequence[VersionSpan]) -> list[list[FieldSchema]]:
    """Return the fields in wire order: adjacent numbers together, the others alone."""
    runs: list[list[FieldSchema]] = []
    joined = False
    for field in fields:
        in_run = is_number(field) and field.tag is None
        if field.type.array:
            in_run = in_run and not any(
                span.lowest in field.nullable_versions or varint_of(field, span) or is_narrow(field, span)
                for span in spans
            )
        if in_run and joined:
            runs[-1].append(field)
        else:
            runs.append([field])
        joined = in_run
    return runs


def is_plain(field: FieldSchema, span: VersionSpan) -> bool:
    """Return whether a field is on the wire in a span, untagged."""
    return span.lowest in field.versions and span.lowest not in field.tagged_versions


def is_number(field: FieldSchema) -> bool:
    """Return whether a field holds a number, or numbers."""
    return field.type.name in NUMBERS


def is_view(field: FieldSchema) -> bool:
    """Return whether a field's value is a view of the parsed bytes."""
    return field.type.name == "records" or field.zero_copy


def varint_of(field: FieldSchema, span: VersionSpan) -> str:
    """Return "packed" or "unpacked" if a field, or its elements, have such an encoding in a span."""
    encoding = field.encoding_at(span.lowest)
    return "" if encoding is None or encoding.kind == "fixed" else encoding.kind


def is_narrow(field: FieldSchema, span: VersionSpan) -> bool:
    """Return whether a number is encoded in fewer bytes than its type has, in a span."""
    return is_number(field) and code_of(field, span) != NUMBERS[field.type.name]


def is_fixed(field: FieldSchema, span: VersionSpan) -> bool:
    """Return whether a field is a fixed-size number on the wire in a span."""
    return is_number(field) and not field.type.array and is_plain(field, span) and not varint_of(field, span)


def code_of(field: FieldSchema, span: VersionSpan) -> str:
    """Return the code of `struct` for a number of fixed size, or for the elements of an array of such."""
    encoding = field.encoding_at(span.lowest)
    return NUMBERS[field.type.name] if encoding is None or encoding.kind != "fixed" else BITS[encoding.bits]


def least_size(
    message: MessageSchema, fields: Sequence[FieldSchema], span: VersionSpan, inside: tuple[str, ...] = ()
) -> int:
    """Return the least number of bytes that some fields of a struct take."""
    total = 1 if span.flexible else 0
    for field in fields:
        if not is_plain(field, span):
            continue
        if field.type.array:
            total += 1 if span.flexible else 4
        elif field.type.struct:
            name = field.type.name
            if span.lowest in field.nullable_versions:
                total += 1
            elif name not in inside:
                total += least_size(message, message.structs[name].fields, span, (*inside, name))
        else:
            total += least_element_size(field, span)
    return total


def least_element_size(field: FieldSchema, span: VersionSpan) -> int:
    """Return the least number of bytes of a field that is no array, or of an element of one."""
    if is_number(field):
        return 1 if varint_of(field, span) else struct.calcsize(f">{code_of(field, span)}")
    if field.type.name == "uuid":
        return 16
    flexible = span.flexible if field.flexible_versions is None else span.lowest in field.flexible_versions
    return 1 if flexible else 2 if field.type.name == "string" else 4


def encodings_of(field: FieldSchema) -> str:
    """Return the encodings of a field as text."""
    if len(field.encodings) == 1:
        return str(field.encodings[0][1])
    return ", ".join(f"{encoding} in {versions}" for versions, encoding in field.encodings)


def remark_on(field: FieldSchema) -> str:
    """Return the comment beside a field: its properties in the schema, without its description."""
    remarks = [str(field.type), f"versions {field.versions}"]
    if not field.nullable_versions.is_empty:
        remarks.append(
            "nullable" if field.nullable_versions == field.versions else f"nullable {field.nullable_versions}"
        )
    if field.ignorable:
        remarks.append("ignorable")
    if field.tag is not None:
        where = "" if field.tagged_versions == field.versions else f" in {field.tagged_versions}"
        remarks.append(f"tag {field.tag}{where}")
    if field.flexible_versions is not None:
        remarks.append(f"flexible {field.flexible_versions}")
    if field.encodings:
        remarks.append(encodings_of(field))
    return ", ".join(remarks)


def versions_of(message: MessageSchema) -> str:
    """Return the versions of a message as text."""
    if message.valid_versions.is_empty:
        return "no versions"
    word = "version" if message.valid_versions.lowest == message.valid_versions.highest else "versions"
    text = f"{word} {message.valid_versions}"
    return text if message.flexible_versions.is_empty else f"{text}, flexible {message.flexible_versions}"


def range_of(spans: Sequence[VersionSpan]) -> str:
    """Return the versions of some spans as an expression."""
    if not spans:
        return "range(0)"
    lowest, end = spans[0].lowest, spans[-1].highest + 1
    return f"range({end})" if lowest == 0 else f"range({lowest}, {end})"
