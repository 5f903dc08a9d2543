"""The methods that read: `_read`, `_read_each` and `_read_many`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Final

from magicbyte.schema.code import Body, Call, Statement, call, loop, otherwise, when
from magicbyte.schema.python_struct import NULL_IN_TAG, Struct
from magicbyte.schema.spans import (
    NUMBERS,
    VersionSpan,
    code_of,
    is_fixed,
    is_plain,
    is_view,
    least_element_size,
    least_size,
    varint_of,
)
from magicbyte.schema.tree import FieldSchema

_OF_ROWS: Final = frozenset({"at", "data", "found", "most", "row", "rows", "self", "version"})
"""The variables of `_read_many`."""


class Reading(Struct):
    """A struct that is read."""

    def reader(self) -> Body:
        """Return the body of `_read`."""
        flexible, found = self.fields_reader()
        return (f"self = {self.name}()", *flexible, *found, "return self, at")

    def each_reader(self) -> Body:
        """Return the body of `_read_each`: the same in a loop, because a call for each struct takes longer."""
        flexible, found = self.fields_reader()
        each = loop("_ in range(count)", f"self = {self.name}()", *found, "found.append(self)")
        return (*flexible, f"found: list[{self.name}] = []", each, "return found, at")

    def fields_reader(self) -> tuple[list[str], list[Statement]]:
        """Return the statements that read the fields, preceded by their preparations."""
        found = self.chains([*(partial(self.read_run, run) for run in self.runs), self.read_tags])
        return self.asks_flexible(found), found

    def read_run(self, run: Sequence[FieldSchema], span: VersionSpan) -> Body:
        """Return the statements that read the fields of a run, or a field that stands alone, in a span."""
        statements: list[Statement] = []
        there = [field for field in run if is_plain(field, span)]
        for kind, part in groupby(there, key=lambda each: "n" if is_fixed(each, span) else each.name):
            members = list(part)
            if kind == "n":
                codes = "".join(code_of(field, span) for field in members)
                statements.append(self.unpack(members, f"{self.module.numbers(codes)}.unpack_from(data, at)"))
                statements.append(f"at += {struct.calcsize('>' + codes)}")
            else:
                statements.append(self.read_alone(members[0], span))
        return (*statements, *(self.reset(field) for field in run if field not in there))

    def unpack(self, fields: Sequence[FieldSchema], value: str) -> Call:
        """Return the assignment of a tuple to fields."""
        targets = tuple(f"self.{self.attributes[field.name]}" for field in fields)
        flat = f"{', '.join(targets)} = {value}" if len(targets) > 1 else f"({targets[0]},) = {value}"
        return Call(flat, "(", targets, f") = {value}")

    def reset(self, field: FieldSchema) -> str:
        """Return the assignment of a field's default."""
        return f"self.{self.attributes[field.name]} = {self.default(field)}"

    def read_alone(self, field: FieldSchema, span: VersionSpan) -> Call:
        """Return the statement that reads one field."""
        name = self.attributes[field.name]
        function, arguments = self.read_call(field, span, "data", "at")
        return call(f"self.{name}, at = {function}(", arguments, ")")

    def read_call(self, field: FieldSchema, span: VersionSpan, data: str, at: str) -> tuple[str, list[str]]:
        """Return function and arguments of the expression that reads a field, with the position after it."""
        quoted, flexible = f'"{self.attributes[field.name]}"', self.flexible(field, span)
        null = "nullable_" if span.lowest in field.nullable_versions else ""
        kind, varint = field.type.name, varint_of(field, span)
        if field.type.array and field.type.struct:
            element = Struct(self.module, self.message, self.message.structs[kind])
            sizes = (least_size(self.message, element.fields, each) for each in element.spans)
            minimum = str(min(sizes, default=1))
            if span in element.row_layouts():
                return f"read_{null}rows", [data, at, flexible, minimum, quoted, element.name, "version"]
            return f"read_{null}structs", [data, at, flexible, minimum, quoted, f"{element.name}._read_each", "version"]
        if varint:
            bits = str(field.encoding_at(span.lowest).bits)  # type: ignore[union-attr]
            if field.type.array:
                return f"read_{null}varints", [data, at, flexible, bits, quoted, f"read_{varint}"]
            return f"read_{varint}", [data, at, bits, quoted]
        if field.type.array:
            if kind in NUMBERS:
                return f"read_{null}numbers", [data, at, flexible, f'"{code_of(field, span)}"', quoted]
            minimum = str(least_element_size(field, span))
            read = "view" if kind == "records" else kind
            more = [] if kind == "uuid" else [flexible, quoted]
            return f"read_{null}array", [data, at, flexible, minimum, quoted, f"read_{read}", *more]
        if field.type.struct:
            struct_name = self.struct_name(field)
            if null:
                mark = [NULL_IN_TAG] if span.lowest in field.tagged_versions else []
                return "read_nullable_struct", [data, at, "version", quoted, f"{struct_name}._read", *mark]
            return f"{struct_name}._read", [data, at, "version"]
        if kind == "uuid":
            return "read_uuid", [data, at]
        return f"read_{null}{'view' if is_view(field) else kind}", [data, at, flexible, quoted]

    def read_tags(self, span: VersionSpan) -> Body:
        """Return the statements that read the end of a struct."""
        known = [field for field in self.tagged if span.lowest in field.tagged_versions]
        if not span.flexible:
            return ("self.unknown_tags = ()",) if any(each.flexible for each in self.spans) else ()
        if not known:
            return ("self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)",)
        by_tag = sorted(known, key=lambda each: each.tag or 0)
        blocks = [when(f"{field.tag} in tags", *self.read_tagged(field, span)) for field in by_tag]
        some = when("data[at]", "tags, at = read_tags(data, at)", *blocks, "self.unknown_tags = unknown(tags)")
        return some, otherwise("self.unknown_tags, at = (), at + 1")

    def read_tagged(self, field: FieldSchema, span: VersionSpan) -> Body:
        """Return the statements that read a tagged field."""
        name, pop = self.attributes[field.name], f"part = tags.pop({field.tag})"
        if field.type.name in NUMBERS and not field.type.array and not varint_of(field, span):
            code = code_of(field, span)
            unpack = f"{self.module.numbers(code)}.unpack_from(part)[0]"
            value = call("(", [unpack, str(struct.calcsize(f">{code}"))], ")")
        else:
            function, arguments = self.read_call(field, span, "part", "0")
            value = call(f"{function}(", arguments, ")")
        head, end = f"self.{name} = whole(", f'"{name}"'
        return pop, Call(f"{head}part, {value.flat}, {end})", head, ("part", value, end), ")")

    def local(self, field: FieldSchema) -> str:
        """Return the variable for a field in `_read_many`: its attribute's name, unless the function uses that."""
        name = attribute = self.attributes[field.name]
        while name in _OF_ROWS or name == self.name or (name != attribute and name in self.attributes.values()):
            name += "_"
        return name

    def rows_reader(self) -> Body:
        """Return the body of `_read_many`.

        A constructor with all values takes less than one without values, followed by assignments.
        """
        layouts = self.row_layouts()

        def body(span: VersionSpan) -> Body:
            if span not in layouts:
                return ()
            rows = self.module.layout("Rows", layouts[span], span.flexible)
            fields = [field for field in self.fields if is_plain(field, span)]
            numbers = tuple(self.local(field) for field in fields if not field.type.array)
            arrays = [self.local(field) for field in fields if field.type.array]
            first = f"{', '.join(numbers)}{',' if len(numbers) == 1 else ''}"
            if arrays:
                targets = Call(f"({first})", "(", numbers, ")")
                assign = Call(f"{', '.join((targets.flat, *arrays))} = row", "(", (targets, *arrays), ") = row")
            else:
                assign = Call(f"{first} = row" if len(numbers) > 1 else f"({first}) = row", "(", numbers, ") = row")
            values = [f"{self.attributes[field.name]}={self.local(field)}" for field in fields]
            each = loop("row in rows", assign, call(f"self = {self.name}(", values, ")"), "found.append(self)")
            return f"rows, at = {rows}.read(data, at, most)", each

        return (f"found: list[{self.name}] = []", *self.chain(body), "return found, at")
