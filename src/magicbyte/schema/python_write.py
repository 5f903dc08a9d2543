"""The methods that write: `_write`, `_write_each`, `_tags` and `_is_set`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from magicbyte.schema.code import WIDTH, Body, Call, CodeBlock, Statement, also, call, loop, names_in, otherwise, when
from magicbyte.schema.python_struct import NULL_IN_TAG, Struct
from magicbyte.schema.spans import (
    BITS,
    NUMBERS,
    VersionSpan,
    code_of,
    is_fixed,
    is_number,
    is_plain,
    is_view,
    varint_of,
)
from magicbyte.schema.tree import FieldSchema


class Writing(Struct):
    """A struct that is written."""

    def writer(self) -> Body:
        """Return the body of `_write`."""
        head, found = self.fields_writer()
        return (*head, *found) if found else ("pass",)

    def each_writer(self) -> Body:
        """Return the body of `_write_each`: the same in a loop, because a call for each struct takes longer."""
        head, found = self.fields_writer()
        return (*head, loop("self in structs", *found)) if found else ("pass",)

    def fields_writer(self) -> tuple[list[str], list[Statement]]:
        """Return the statements that write the fields, preceded by their preparations."""
        statements = [each for field in self.fields if not field.ignorable for each in self.refusal(field)]
        statements += self.chains([*(partial(self.write_run, run) for run in self.runs), self.write_tags])
        head, names = self.asks_flexible(statements), names_in(statements)
        if "buffer" in names:
            head.append("buffer = out.buffer")
        if "lengths" in names:
            head.append("lengths: tuple[int, ...]")
        return head, statements

    def write_run(self, run: Sequence[FieldSchema], span: VersionSpan) -> Body:
        """Return the statements that write the fields of a run, or a field that stands alone, in a span."""
        fields = [field for field in run if is_plain(field, span)]
        if not all(is_number(field) for field in fields):
            return tuple(each for field in fields for each in self.write_alone(field, span))
        codes = "".join("v" if varint_of(field, span) else "[" if field.type.array else "n" for field in fields)
        if "[" in codes and "v" not in codes and len(codes) > 1:
            return self.write_shape(fields, span)
        found: list[Statement] = []
        for kind, part in groupby(fields, key=lambda each: "n" if is_fixed(each, span) else each.name):
            members = list(part)
            found += [self.pack(members, span)] if kind == "n" else self.write_alone(members[0], span)
        return tuple(found)

    def refusal(self, field: FieldSchema) -> Body:
        """Return the check that a field is not set in versions without it, if there are such versions."""
        has = [span for span in self.spans if span.lowest in field.versions or span.lowest in field.tagged_versions]
        if len(has) == len(self.spans):
            return ()
        differs = self.differs(field)
        if has:
            lowest, highest = self.spans[0].lowest, self.spans[-1].highest
            low, high = has[0].lowest, has[-1].highest
            if high == highest:
                where = f"version < {low}"
            elif low == lowest:
                where = f"version > {high}"
            else:
                where = f"version != {low}" if low == high else f"not {low} <= version <= {high}"
            differs = (also(where, differs),)
        return (when(differs, f'raise absent("{self.attributes[field.name]}")'),)

    def pack(self, fields: Sequence[FieldSchema], span: VersionSpan) -> Call:
        """Return the statement that writes numbers of fixed size."""
        packer = self.module.numbers("".join(code_of(field, span) for field in fields))
        return call(f"buffer += {packer}.pack(", [self.number(field, span) for field in fields], ")")

    def number(self, field: FieldSchema, span: VersionSpan) -> str:
        """Return a number as an expression, checked where its encoding is narrower than its type."""
        value, encoding = f"self.{self.attributes[field.name]}", field.encoding_at(span.lowest)
        if encoding is None or encoding.kind != "fixed" or BITS[encoding.bits] == NUMBERS[field.type.name]:
            return value
        return f'fitting({value}, {encoding.bits}, "{self.attributes[field.name]}")'

    def write_shape(self, fields: Sequence[FieldSchema], span: VersionSpan) -> Body:
        """Return the statements that write numbers and arrays of numbers in one step."""
        codes = "".join(("[" if field.type.array else "") + code_of(field, span) for field in fields)
        shapes = self.module.layout("Shapes", codes, span.flexible)
        arrays = [field for field in fields if field.type.array]
        lengths = [f"len(self.{self.attributes[field.name]})" for field in arrays]
        items: list[str] = []
        for field in fields:
            if field.type.array:
                items.append(f"lengths[{arrays.index(field)}]" + (" + 1" if span.flexible else ""))
                items.append(f"*self.{self.attributes[field.name]}")
            else:
                items.append(self.number(field, span))
        flat = f"lengths = {', '.join(lengths)}" if len(lengths) > 1 else f"lengths = ({lengths[0]},)"
        return Call(flat, "lengths = (", tuple(lengths), ")"), call(f"buffer += {shapes}[lengths](", items, ")")

    def write_alone(self, field: FieldSchema, span: VersionSpan, out: str = "out", buffer: str = "buffer") -> Body:
        """Return the statements that write one field; into `out`, whose buffer is `buffer`."""
        name = self.attributes[field.name]
        value, quoted, flexible = f"self.{name}", f'"{name}"', self.flexible(field, span)
        nullable = span.lowest in field.nullable_versions
        optional = self.is_optional(field)
        if optional and not nullable and not is_view(field):
            value = f"present({value}, {quoted})"
        null = "nullable_" if nullable else ""
        kind = field.type.name
        varint = varint_of(field, span)
        if field.type.array:
            if field.type.struct:
                each = f"{self.struct_name(field)}._write_each"
                return (call("write_structs(", [out, value, flexible, each, "version"], ")"),)
            if varint:
                bits = str(field.encoding_at(span.lowest).bits)  # type: ignore[union-attr]
                return (call("write_array(", [buffer, value, flexible, f"write_{varint}", bits, quoted], ")"),)
            if kind in NUMBERS:
                narrow = code_of(field, span) != NUMBERS[kind]
                check = [f"fitting(each, {field.encoding_at(span.lowest).bits}, {quoted})"] if narrow else []  # type: ignore[union-attr]
                whole = f"[{check[0]} for each in {value}]" if narrow else value
                if narrow and nullable:
                    whole = f"{value} and {whole}"
                return (call("write_numbers(", [buffer, whole, flexible, f'"{code_of(field, span)}"'], ")"),)
            more = [] if kind == "uuid" else [flexible, quoted]
            return (call("write_array(", [buffer, value, flexible, f"write_{kind}", *more], ")"),)
        if field.type.struct:
            if nullable:
                mark = [NULL_IN_TAG] if span.lowest in field.tagged_versions else []
                return (call("write_nullable_struct(", [out, value, "version", *mark], ")"),)
            return (f"{value}._write({out}, version)",)
        if varint:
            bits = str(field.encoding_at(span.lowest).bits)  # type: ignore[union-attr]
            return (call(f"write_{varint}(", [buffer, value, bits, quoted], ")"),)
        if kind in NUMBERS:
            packer = self.module.numbers(code_of(field, span))
            return (f"{buffer} += {packer}.pack({self.number(field, span)})",)
        if kind == "uuid":
            return (f"write_uuid({buffer}, {value})",)
        if is_view(field):
            more = [] if nullable else [quoted]
            return (call(f"write_{null}records(", [out, value, flexible, *more], ")"),)
        return (call(f"write_{null}{kind}(", [buffer, value, flexible, quoted], ")"),)

    def write_tags(self, span: VersionSpan) -> Body:
        """Return the statements that end a struct: its tagged fields, or the check that none is set."""
        if not any(each.flexible for each in self.spans):
            return ()
        if any(span.lowest in field.tagged_versions for field in self.tagged):
            ended = call("write_tags(", ["buffer", "tags", "self.unknown_tags"], ")")
            either = when(("tags", "self.unknown_tags"), ended)
            return "tags = self._tags(version)", either, otherwise("buffer.append(0)")
        if not self.tagged and self.flexible_differs():
            ended = call("write_tags(", ["buffer", "()", "self.unknown_tags", "flexible"], ")")
            return when("self.unknown_tags", ended), CodeBlock("elif", ("flexible",), ("buffer.append(0)",))
        if not span.flexible:
            ended = call("write_tags(", ["buffer", "()", "self.unknown_tags", "flexible=False"], ")")
            return (when("self.unknown_tags", ended),)
        ended = call("write_tags(", ["buffer", "()", "self.unknown_tags"], ")")
        return when("self.unknown_tags", ended), otherwise("buffer.append(0)")

    def tags(self) -> Body:
        """Return the body of `_tags`: the tagged fields that do not have their defaults, as bytes."""
        found: list[Statement] = ["found: list[tuple[int, bytes]] = []"]
        for field in sorted(self.tagged, key=lambda each: each.tag or 0):

            def body(span: VersionSpan, field: FieldSchema = field) -> Body:
                if span.lowest not in field.tagged_versions or not span.flexible:
                    return ()
                inside = self.write_alone(field, span, "part", "part.buffer")
                add = f"found.append(({field.tag}, bytes(part)))"
                writer = f"part = {self.module.imported('Writer')}()"
                return (when(self.differs(field), writer, *inside, add),)

            found += self.chain(body)
        return (*self.asks_flexible(found), *found, "return found")

    def is_set(self) -> Body:
        """Return the body of `_is_set`: whether any field does not have its default."""
        tags = ["len(self.unknown_tags) > 0"] if any(span.flexible for span in self.spans) else []
        parts = [*(each for field in self.fields for each in self.differs(field)), *tags]
        whole = " or ".join(parts) or "False"
        items = (parts[0], *(f"or {part}" for part in parts[1:])) if len(whole) + 12 > WIDTH else (whole,)
        return (Call(f"return {whole}", "return (", items, ")", separator=""),)
