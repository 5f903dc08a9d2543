"""Python from checked schemas: one readable module for each API, of dataclasses that read and write themselves.

`modules` returns them by file name. They need nothing of the library but `magicbyte.protocol.runtime`. The text is the
same for the same schemas, and as `ruff format` has it at 120 columns.

How a struct becomes code: its versions fall into *spans* in which nothing changes. Fields of numbers and of arrays of
numbers that stand side by side make a *run*, which is packed and unpacked in one step; every other field stands alone.
For each of these the statements of all spans are made; spans with the same statements share a branch of an `if`.
"""

from __future__ import annotations

import base64
import keyword
import re
import struct
import textwrap
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias

from magicbyte.schema.tree import FieldSchema, MessageSchema, StructSchema

WIDTH: Final = 120  # columns
NUMBERS: Final = {
    "bool": "?", "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q", "float64": "d",
}  # fmt: skip
"""The types of fixed size that `struct` knows, and its codes for them."""
BITS: Final = {16: "h", 32: "i", 64: "q"}
NULL_IN_TAG: Final = "null=0"
"""How a null struct is marked in a tagged field: there Kafka writes a varint, elsewhere an int8 of -1."""
LETTERS: Final = {"?": "T", "b": "B", "h": "H", "H": "UH", "i": "I", "I": "UI", "q": "Q", "d": "D", "[": "_"}
TYPES: Final = {"bool": "bool", "float64": "float", "uuid": "UUID", "string": "str", "bytes": "bytes"}
RUNTIME: Final = (
    "NULL_UUID", "Message", "Records", "Rows", "Shapes", "Tags", "Writer", "absent", "fitting", "new", "present",
    "read_array", "read_bytes", "read_nullable_array", "read_nullable_bytes", "read_nullable_numbers",
    "read_nullable_rows", "read_nullable_string", "read_nullable_struct", "read_nullable_structs",
    "read_nullable_varints", "read_nullable_view", "read_numbers", "read_packed", "read_rows", "read_string",
    "read_structs", "read_tags", "read_unknown_tags", "read_unpacked", "read_uuid", "read_varints", "read_view",
    "unknown", "whole", "write_array", "write_bytes", "write_nullable_bytes", "write_nullable_records",
    "write_nullable_string", "write_nullable_struct", "write_numbers", "write_packed", "write_records",
    "write_string", "write_structs", "write_tags", "write_unpacked", "write_uuid",
)  # fmt: skip
"""What modules may import from the runtime, in the order that ruff gives imports."""
TAKEN_ATTRIBUTES: Final = frozenset((
    "bool", "bytes", "dataclass", "encode", "field", "float", "int", "list", "range", "read", "read_at", "self", "size",
    "str", "tuple", "unknown_tags", "write",
))  # fmt: skip
TAKEN_CLASSES: Final = frozenset((*RUNTIME, "ClassVar", "Sequence", "UUID", "None", "True", "False"))


@dataclass(frozen=True, slots=True)
class Span:
    """Versions `lowest` to `highest`, in which a message does not change; `flexible` is its encoding."""

    lowest: int
    highest: int
    flexible: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A statement that may be too long for a line: `flat` is all of it; else `head`, a line for each item, `tail`.

    `separator` ends the lines of items.
    """

    flat: str
    head: str
    items: tuple[str | Call, ...]
    tail: str
    separator: str = ","


@dataclass(frozen=True, slots=True)
class Block:
    """Statements under a line such as `if …:`."""

    head: str
    body: tuple[Statement, ...]


Statement: TypeAlias = "str | Call | Block"
Body: TypeAlias = "tuple[Statement, ...]"


def modules(schemas: Mapping[str, MessageSchema]) -> dict[str, str]:
    """Return the modules of these schemas by file name: one for each API, header, or key and value of a record."""
    found = {}
    for name, messages in groups(schemas).items():
        found[f"{name}.py"] = _Module(messages).text()
    return found


def api_table(schemas: Mapping[str, MessageSchema]) -> str:
    """Return the module that lists the APIs of these schemas by their keys."""
    homes = {message.name: name for name, messages in groups(schemas).items() for message in messages}
    requests = {  # where two have one key, the one that was renamed and went on
        schema.api_key: schema
        for schema in sorted(schemas.values(), key=lambda each: each.valid_versions.highest)
        if schema.type == "request" and schema.api_key is not None
    }
    lines = [
        '"""Kafka\'s APIs by their keys. Generated from the requests in schemas/messages. Do not edit.',
        "",
        "Requests and responses are imported when they are asked for.",
        '"""',
        "",
        "from typing import Final",
        "",
        "from magicbyte.protocol.api import Api",
        "",
        "APIS: Final = {",
    ]
    for key, schema in sorted(requests.items()):
        spans = _spans(schema)
        items = [str(key), f'"{schema.name.removesuffix("Request")}"', f'"{homes[schema.name]}"']
        items += [_range(spans), _range([span for span in spans if span.flexible])]
        if schema.latest_version_unstable:
            items.append("latest_version_unstable=True")
        lines += _lines((_call(f"{key}: Api(", items, "),"),), 4)
    return "\n".join([*lines, "}", ""])


def groups(schemas: Mapping[str, MessageSchema]) -> dict[str, list[MessageSchema]]:
    """Return which messages share a module, by its name: request and response, key and value."""
    found: dict[str, list[MessageSchema]] = {}
    for name in sorted(schemas):
        found.setdefault(snake(_base(schemas[name], schemas)), []).append(schemas[name])
    return found


def _base(schema: MessageSchema, schemas: Mapping[str, MessageSchema]) -> str:
    """Return the name that a message shares with the one it belongs to."""
    for first, second in (("Request", "Response"), ("Key", "Value")):
        for end, other in ((first, second), (second, first)):
            base = schema.name.removesuffix(end)
            if base != schema.name and base and (schema.type == end.lower() or base + other in schemas):
                return base
    return schema.name


def snake(name: str) -> str:
    """Return a name such as `TopicId` as `topic_id`."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name.replace("KRaft", "Kraft"))
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def attributes(fields: Iterable[FieldSchema]) -> dict[str, str]:
    """Return the attributes that hold the fields of a struct, by the fields' names."""
    found: dict[str, str] = {}
    for field in fields:
        name = snake(field.name)
        while name in found.values() or name in TAKEN_ATTRIBUTES or keyword.iskeyword(name):
            name += "_"
        found[field.name] = name
    return found


def class_names(messages: Sequence[MessageSchema]) -> dict[tuple[str, str], str]:
    """Return the classes of the structs in a module, by the names of message and struct.

    A struct keeps its name where no other has it; else its message's name comes before it.
    """
    taken = {message.name for message in messages}
    names = [name for message in messages for name in message.structs]
    found: dict[tuple[str, str], str] = {}
    for message in messages:
        for name in message.structs:
            unique = names.count(name) == 1 and name not in taken and name not in TAKEN_CLASSES
            chosen = name if unique else f"{message.name}{name}"
            while chosen in found.values() or (not unique and chosen in names) or chosen in taken | TAKEN_CLASSES:
                chosen += "_"
            found[message.name, name] = chosen
    return found


class _Module:
    """One module: the classes of some messages, the constants and imports they need."""

    def __init__(self, messages: Sequence[MessageSchema]) -> None:
        self.messages = sorted(messages, key=lambda each: (each.type == "response", each.name))
        self.classes = class_names(self.messages)
        self.constants: dict[str, str] = {}

    def text(self) -> str:
        """Return the whole file."""
        classes = [_Class(self, message, each) for message in self.messages for each in _structs(message)]
        bodies = ["\n".join(each.lines()) for each in classes]
        code = "\n\n\n".join(bodies)
        constants = "\n".join(f"{name} = {value}" for name, value in sorted(self.constants.items()))
        imports = self.imports(f"{constants}\n{code}")
        return "\n".join([*self.docstring(), "", *imports, *(["", constants] if constants else []), "", "", code, ""])

    def docstring(self) -> list[str]:
        """Return the module's docstring: where it comes from, versions, encodings."""
        names = " and ".join(f"{message.name}.json" for message in self.messages)
        said = [f"Generated from {names}. Do not edit: the schema compiler makes it."]
        for message in self.messages:
            about = f"{message.name}: {_versions(message)}"
            if not message.deprecated_versions.is_empty:
                about += f"; deprecated {message.deprecated_versions}"
            if message.latest_version_unstable:
                about += "; the latest one may still change"
            encoded = [
                f"{names[field.name]} is {_encodings(field)}"
                for fields in (message.fields, *(each.fields for each in message.structs.values()))
                for names in [attributes(fields)]
                for field in fields
                if field.encodings
            ]
            said.append("; ".join([about, *encoded]) + (" (KIP-625)." if encoded else "."))
        lines = [line for each in said for line in _wrapped(each, 0)]
        return [f'"""{lines[0]}', "", *lines[1:], '"""', "", "from __future__ import annotations"]

    def imports(self, code: str) -> list[str]:
        """Return the import statements for what `code` uses."""

        code = re.sub(r'""".*?"""|#[^\n]*', "", code, flags=re.DOTALL)

        def used(name: str) -> bool:
            behind = '[":]' if name.islower() else '"'  # a field may have the name of a function
            return re.search(rf"(?<![\w.\"]){name}\b(?!{behind})", code) is not None

        found = ["import struct"] if used("struct.Struct") else []
        if used("Sequence"):
            found.append("from collections.abc import Sequence")
        found.append("from dataclasses import dataclass" + (", field" if "field(default_factory" in code else ""))
        found.append("from typing import ClassVar")
        if used("UUID"):
            found.append("from uuid import UUID")
        names = tuple(name for name in RUNTIME if used(name))
        flat = f"from magicbyte.protocol.runtime import {', '.join(names)}"
        call = Call(flat, "from magicbyte.protocol.runtime import (", names, ")")
        return [*found, "", *_lines((call,), 0)]

    def constant(self, name: str, value: str) -> str:
        """Return the name of a constant of the module, which has this value."""
        self.constants[name] = value
        return name

    def numbers(self, codes: str) -> str:
        """Return the constant that packs and unpacks some numbers."""
        return self.constant(f"_{_letters(codes)}", f'struct.Struct(">{codes}")')

    def layout(self, kind: str, codes: str, flexible: bool) -> str:
        """Return the constant of class `kind`, `Shapes` or `Rows`, for a layout."""
        form = "COMPACT" if flexible else "CLASSIC"
        name = f"_{kind.upper()}_{_letters(codes)}_{form}"
        return self.constant(name, f'{kind}("{codes}", flexible={flexible})')


class _Class:
    """The dataclass of a message or of one of its structs."""

    def __init__(self, module: _Module, message: MessageSchema, schema: StructSchema | None) -> None:
        self.module = module
        self.message = message
        self.schema = schema
        self.fields = message.fields if schema is None else schema.fields
        self.name = message.name if schema is None else module.classes[message.name, schema.name]
        self.attributes = attributes(self.fields)
        self.spans = [
            span for span in _spans(message) if schema is None or span.lowest in schema.versions
        ]  # fmt: skip
        self.tagged = [field for field in self.fields if field.tag is not None]
        self.runs = _runs(self.fields, self.spans)

    # ---- the class

    def lines(self) -> list[str]:
        """Return the class, without line ends."""
        found = ["@dataclass(slots=True, kw_only=True)"]
        found.append(f"class {self.name}(Message):" if self.schema is None else f"class {self.name}:")
        found += [f"    {line}".rstrip() for line in self.docstring()]
        if self.schema is None:
            found += ["", *self.message_constants()]
        declared = [line for field in self.fields for line in self.declaration(field)]
        if any(span.flexible for span in self.spans):
            declared.append("    unknown_tags: Tags = ()")
        if declared:
            found += ["", *declared]
        if self.spans:
            if self.schema is None or self.stands_alone():
                found += ["", "    def _write(self, out: Writer, version: int) -> None:", *_lines(self.writer(), 8)]
            if self.is_element():
                each = _signature(
                    f"def _write_each(structs: Sequence[{self.name}], out: Writer, version: int) -> None:"
                )
                found += ["", "    @staticmethod", *each, *_lines(self.each_writer(), 8)]
            at = "data: memoryview, at: int"
            if self.schema is None or self.stands_alone():
                one = _signature(f"def _read({at}, version: int) -> tuple[{self.name}, int]:")
                found += ["", "    @staticmethod", *one, *_lines(self.reader(), 8)]
            if self.is_element():
                each = _signature(f"def _read_each({at}, count: int, version: int) -> tuple[list[{self.name}], int]:")
                found += ["", "    @staticmethod", *each, *_lines(self.each_reader(), 8)]
            if self.tagged:
                found += ["", "    def _tags(self, version: int) -> list[tuple[int, bytes]]:", *_lines(self.tags(), 8)]
            if self.is_default():
                found += ["", "    def _is_set(self) -> bool:", *_lines(self.is_set(), 8)]
            if self.row_layouts():
                many = _signature(f"def _read_many({at}, most: int, version: int) -> tuple[list[{self.name}], int]:")
                found += ["", "    @staticmethod", *many, *_lines(self.rows_reader(), 8)]
        return found

    def docstring(self) -> list[str]:
        """Return the docstring: what it is, and what each field means."""
        about = self.message.about if self.schema is None else self.schema.about
        about = about or (self.whereabouts() if self.schema else f"The {self.message.type} {self.name}.")
        head = _wrapped(about, 4)
        fields = [
            line
            for field in self.fields
            if field.about
            for line in _wrapped(f"{self.attributes[field.name]}: {field.about}", 4, hanging=True)
        ]
        if len(head) == 1 and not fields and len(head[0]) + 10 <= WIDTH:
            return [f'"""{head[0]}"""']
        return [f'"""{head[0]}', *head[1:], *(["", *fields] if fields else []), '"""']

    def whereabouts(self) -> str:
        """Return which field has this struct as its type, where the schema does not say what it is."""
        assert self.schema is not None
        for name, fields in ((self.message.name, self.message.fields), *_owners(self.message)):
            for field in fields:
                if field.type.struct and field.type.name == self.schema.name:
                    owner = self.module.classes.get((self.message.name, name), name)
                    kind = "An element" if field.type.array else "The value"
                    return f"{kind} of `{attributes(fields)[field.name]}` in {owner}."
        return f"A struct of {self.message.name}."

    def message_constants(self) -> list[str]:
        """Return the class constants of a message."""
        valid, flexible = _range(self.spans), _range([span for span in self.spans if span.flexible])
        found = [] if self.message.api_key is None else [f"    API_KEY: ClassVar[int | None] = {self.message.api_key}"]
        found.append(f"    VALID_VERSIONS: ClassVar[range] = {valid}")
        found.append(f"    FLEXIBLE_VERSIONS: ClassVar[range] = {flexible}")
        return found

    def declaration(self, field: FieldSchema) -> list[str]:
        """Return the lines that declare a field, with its type, versions and the like as a comment."""
        name, default = self.attributes[field.name], self.default(field)
        if default == "[]":
            default = "field(default_factory=list)"
        elif field.type.struct and default != "None":
            default = f"field(default_factory={self.struct_name(field)})"
        line = f"    {name}: {self.annotation(field)} = {default}"
        comment = f"# {_remark(field)}"
        return [f"{line}  {comment}"] if len(line) + 2 + len(comment) <= WIDTH else [f"    {comment}", line]

    def annotation(self, field: FieldSchema) -> str:
        """Return the Python type of a field."""
        element = self.struct_name(field) if field.type.struct else TYPES.get(field.type.name, "int")
        if _is_view(field):
            element = "Records"
        if field.type.array:
            element = f"tuple[{element}, ...]" if field.type.name in NUMBERS else f"list[{element}]"
        optional = field.null_by_default or any(span.lowest in field.nullable_versions for span in self.spans)
        return f"{element} | None" if optional else element

    def struct_name(self, field: FieldSchema) -> str:
        """Return the class of a field whose type is a struct, or an array of one."""
        return self.module.classes.get((self.message.name, field.type.name), "")

    def default(self, field: FieldSchema) -> str:
        """Return the default of a field as an expression."""
        if field.null_by_default:
            return "None"
        if field.type.array:
            return "()" if field.type.name in NUMBERS else "[]"
        if field.type.struct:
            return f"{self.struct_name(field)}()"
        if field.type.name == "bytes":
            return 'b""'
        if field.type.name == "uuid":
            number = uuid.UUID(bytes=base64.urlsafe_b64decode(f"{field.default}=="))
            return f'UUID("{number}")' if number.int else "NULL_UUID"
        if isinstance(field.default, float):
            text = repr(field.default)
            return text if text[-1].isdigit() else f'float("{text}")'
        return _quoted(field.default) if isinstance(field.default, str) else str(field.default)

    def differs(self, field: FieldSchema) -> str:
        """Return the condition that a field does not have its default."""
        value, default = f"self.{self.attributes[field.name]}", self.default(field)
        nullable = self.annotation(field).endswith("| None")
        if default == "None":
            return f"{value} is not None"
        if default in ("()", "[]", 'b""'):
            return f"{value} is None or len({value}) > 0" if nullable else f"len({value}) > 0"
        if default in ("True", "False"):
            return value if default == "False" else f"not {value}"
        if field.type.struct:
            return f"{value} is None or {value}._is_set()" if nullable else f"{value}._is_set()"
        return f"{value} != {default}"

    # ---- writing

    def writer(self) -> Body:
        """Return the body of `_write`."""
        head, found = self.fields_writer()
        return (*head, *found) if found else ("pass",)

    def each_writer(self) -> Body:
        """Return the body of `_write_each`: the same in a loop, since a call for each struct takes longer."""
        head, found = self.fields_writer()
        return (*head, Block("for self in structs:", tuple(found))) if found else ("pass",)

    def fields_writer(self) -> tuple[list[str], list[Statement]]:
        """Return the statements that write the fields, and those that must stand before them."""
        found = [each for field in self.fields if not field.ignorable for each in self.refusal(field)]
        found += self.chains([*(partial(self.write_run, run) for run in self.runs), self.write_tags])
        text = repr(found)
        head = [f"flexible = version >= {self.first_flexible()}"] if self.mixed(text) else []
        if "buffer" in text:
            head.append("buffer = out.buffer")
        if text.count("'lengths = ") > 1:
            head.append("lengths: tuple[int, ...]")
        return head, found

    def write_run(self, run: Sequence[FieldSchema], span: Span) -> Body:
        """Return the statements that write the fields of a run, or a field that stands alone, in a span."""
        fields = [field for field in run if _is_plain(field, span)]
        if not all(_is_number(field) for field in fields):
            return tuple(each for field in fields for each in self.write_alone(field, span))
        codes = "".join("v" if _varint(field, span) else "[" if field.type.array else "n" for field in fields)
        if "[" in codes and "v" not in codes and len(codes) > 1:
            return self.write_shape(fields, span)
        found: list[Statement] = []
        for kind, part in groupby(fields, key=lambda each: "n" if _is_fixed(each, span) else each.name):
            members = list(part)
            found += [self.pack(members, span)] if kind == "n" else self.write_alone(members[0], span)
        return tuple(found)

    def refusal(self, field: FieldSchema) -> Body:
        """Return the check that a field is not set in versions that do not have it, if there are such."""
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
            differs = f"{where} and ({differs})" if " or " in differs else f"{where} and {differs}"
        return (Block(f"if {differs}:", (f'raise absent("{self.attributes[field.name]}")',)),)

    def pack(self, fields: Sequence[FieldSchema], span: Span) -> Call:
        """Return the statement that writes numbers of fixed size."""
        packer = self.module.numbers("".join(_code(field, span) for field in fields))
        return _call(f"buffer += {packer}.pack(", [self.number(field, span) for field in fields], ")")

    def number(self, field: FieldSchema, span: Span) -> str:
        """Return a number as an expression, checked where its encoding is narrower than its type."""
        value, encoding = f"self.{self.attributes[field.name]}", field.encoding_at(span.lowest)
        if encoding is None or encoding.kind != "fixed" or BITS[encoding.bits] == NUMBERS[field.type.name]:
            return value
        return f'fitting({value}, {encoding.bits}, "{self.attributes[field.name]}")'

    def write_shape(self, fields: Sequence[FieldSchema], span: Span) -> Body:
        """Return the statements that write numbers and arrays of numbers in one step."""
        codes = "".join(("[" if field.type.array else "") + _code(field, span) for field in fields)
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
        return Call(flat, "lengths = (", tuple(lengths), ")"), _call(f"buffer += {shapes}[lengths](", items, ")")

    def write_alone(self, field: FieldSchema, span: Span, out: str = "out", buffer: str = "buffer") -> Body:
        """Return the statements that write one field; into `out`, whose buffer is `buffer`."""
        name = self.attributes[field.name]
        value, quoted, flexible = f"self.{name}", f'"{name}"', self.flexible(field, span)
        nullable = span.lowest in field.nullable_versions
        optional = self.annotation(field).endswith("| None")
        if optional and not nullable and not _is_view(field):
            value = f"present({value}, {quoted})"
        null = "nullable_" if nullable else ""
        kind = field.type.name
        varint = _varint(field, span)
        if field.type.array:
            if field.type.struct:
                each = f"{self.struct_name(field)}._write_each"
                return (_call("write_structs(", [out, value, flexible, each, "version"], ")"),)
            if varint:
                bits = str(field.encoding_at(span.lowest).bits)  # type: ignore[union-attr]
                return (_call("write_array(", [buffer, value, flexible, f"write_{varint}", bits, quoted], ")"),)
            if kind in NUMBERS:
                narrow = _code(field, span) != NUMBERS[kind]
                check = [f"fitting(each, {field.encoding_at(span.lowest).bits}, {quoted})"] if narrow else []  # type: ignore[union-attr]
                whole = f"[{check[0]} for each in {value}]" if narrow else value
                if narrow and nullable:
                    whole = f"{value} and {whole}"
                return (_call("write_numbers(", [buffer, whole, flexible, f'"{_code(field, span)}"'], ")"),)
            more = [] if kind == "uuid" else [flexible, quoted]
            return (_call("write_array(", [buffer, value, flexible, f"write_{kind}", *more], ")"),)
        if field.type.struct:
            if nullable:
                mark = [NULL_IN_TAG] if span.lowest in field.tagged_versions else []
                return (_call("write_nullable_struct(", [out, value, "version", *mark], ")"),)
            return (f"{value}._write({out}, version)",)
        if varint:
            bits = str(field.encoding_at(span.lowest).bits)  # type: ignore[union-attr]
            return (_call(f"write_{varint}(", [buffer, value, bits, quoted], ")"),)
        if kind in NUMBERS:
            packer = self.module.numbers(_code(field, span))
            return (f"{buffer} += {packer}.pack({self.number(field, span)})",)
        if kind == "uuid":
            return (f"write_uuid({buffer}, {value})",)
        if _is_view(field):
            more = [] if nullable else [quoted]
            return (_call(f"write_{null}records(", [out, value, flexible, *more], ")"),)
        return (_call(f"write_{null}{kind}(", [buffer, value, flexible, quoted], ")"),)

    def write_tags(self, span: Span) -> Body:
        """Return the statements that end a struct: its tagged fields, or the check that none is set."""
        if not any(each.flexible for each in self.spans):
            return ()
        if any(span.lowest in field.tagged_versions for field in self.tagged):
            call = _call("write_tags(", ["buffer", "tags", "self.unknown_tags"], ")")
            condition = Block("if tags or self.unknown_tags:", (call,))
            return "tags = self._tags(version)", condition, Block("else:", ("buffer.append(0)",))
        if not self.tagged and self.flexible_differs():
            call = _call("write_tags(", ["buffer", "()", "self.unknown_tags", "flexible"], ")")
            return Block("if self.unknown_tags:", (call,)), Block("elif flexible:", ("buffer.append(0)",))
        if not span.flexible:
            call = _call("write_tags(", ["buffer", "()", "self.unknown_tags", "flexible=False"], ")")
            return (Block("if self.unknown_tags:", (call,)),)
        call = _call("write_tags(", ["buffer", "()", "self.unknown_tags"], ")")
        return Block("if self.unknown_tags:", (call,)), Block("else:", ("buffer.append(0)",))

    def tags(self) -> Body:
        """Return the body of `_tags`: the tagged fields that do not have their defaults, as bytes."""
        found: list[Statement] = ["found: list[tuple[int, bytes]] = []"]
        for field in sorted(self.tagged, key=lambda each: each.tag or 0):

            def body(span: Span, field: FieldSchema = field) -> Body:
                if span.lowest not in field.tagged_versions or not span.flexible:
                    return ()
                inside = self.write_alone(field, span, "part", "part.buffer")
                add = f"found.append(({field.tag}, bytes(part)))"
                return (Block(f"if {self.differs(field)}:", ("part = Writer()", *inside, add)),)

            found += self.chain(body)
        head = [f"flexible = version >= {self.first_flexible()}"] if self.mixed(repr(found)) else []
        return (*head, *found, "return found")

    def is_default(self) -> bool:
        """Return whether a field of the message has this struct as its default: writing asks whether it is set."""
        return any(not field.type.array and not field.null_by_default for field in self.users())

    def is_set(self) -> Body:
        """Return the body of `_is_set`: whether any field does not have its default."""
        tags = ["len(self.unknown_tags) > 0"] if any(span.flexible for span in self.spans) else []
        conditions = [*(self.differs(field) for field in self.fields), *tags]
        whole = " or ".join(conditions) or "False"
        parts = [part for each in conditions for part in ([each] if '"' in each else each.split(" or "))]
        items = (parts[0], *(f"or {part}" for part in parts[1:])) if len(whole) + 12 > WIDTH else (whole,)
        return (Call(f"return {whole}", "return (", items, ")", separator=""),)

    # ---- reading

    def reader(self) -> Body:
        """Return the body of `_read`."""
        flexible, found = self.fields_reader()
        return (f"self = new({self.name})", *flexible, *found, "return self, at")

    def each_reader(self) -> Body:
        """Return the body of `_read_each`: the same in a loop, since a call for each struct takes longer."""
        flexible, found = self.fields_reader()
        loop = Block("for _ in range(count):", (f"self = new({self.name})", *found, "found.append(self)"))
        return (*flexible, f"found: list[{self.name}] = []", loop, "return found, at")

    def fields_reader(self) -> tuple[list[str], list[Statement]]:
        """Return the statements that read the fields, and those that must stand before them."""
        found = self.chains([*(partial(self.read_run, run) for run in self.runs), self.read_tags])
        return [f"flexible = version >= {self.first_flexible()}"] if self.mixed(repr(found)) else [], found

    def is_element(self) -> bool:
        """Return whether there are arrays of this struct."""
        return any(field.type.array for field in self.users())

    def stands_alone(self) -> bool:
        """Return whether it is not only an element of arrays."""
        return not self.is_element() or any(not field.type.array for field in self.users())

    def users(self) -> list[FieldSchema]:
        """Return the fields of the message that have this struct as their type, or arrays of it."""
        name = None if self.schema is None else self.schema.name
        return [field for field in _all_fields(self.message) if field.type.struct and field.type.name == name]

    def read_run(self, run: Sequence[FieldSchema], span: Span) -> Body:
        """Return the statements that read the fields of a run, or a field that stands alone, in a span."""
        found: list[Statement] = []
        there = [field for field in run if _is_plain(field, span)]
        for kind, part in groupby(there, key=lambda each: "n" if _is_fixed(each, span) else each.name):
            members = list(part)
            if kind == "n":
                codes = "".join(_code(field, span) for field in members)
                found.append(self.unpack(members, f"{self.module.numbers(codes)}.unpack_from(data, at)"))
                found.append(f"at += {struct.calcsize('>' + codes)}")
            else:
                found.append(self.read_alone(members[0], span))
        return (*found, *(self.reset(field) for field in run if field not in there))

    def unpack(self, fields: Sequence[FieldSchema], value: str) -> Call:
        """Return the assignment of a tuple to fields."""
        targets = tuple(f"self.{self.attributes[field.name]}" for field in fields)
        flat = f"{', '.join(targets)} = {value}" if len(targets) > 1 else f"({targets[0]},) = {value}"
        return Call(flat, "(", targets, f") = {value}")

    def reset(self, field: FieldSchema) -> str:
        """Return the assignment of a field's default."""
        return f"self.{self.attributes[field.name]} = {self.default(field)}"

    def read_alone(self, field: FieldSchema, span: Span) -> Call:
        """Return the statement that reads one field."""
        name = self.attributes[field.name]
        function, arguments = self.read_call(field, span, "data", "at")
        return _call(f"self.{name}, at = {function}(", arguments, ")")

    def read_call(self, field: FieldSchema, span: Span, data: str, at: str) -> tuple[str, list[str]]:
        """Return function and arguments of the expression that reads a field, with the position after it."""
        quoted, flexible = f'"{self.attributes[field.name]}"', self.flexible(field, span)
        null = "nullable_" if span.lowest in field.nullable_versions else ""
        kind, varint = field.type.name, _varint(field, span)
        if field.type.array and field.type.struct:
            element = _Class(self.module, self.message, self.message.structs[kind])
            minimum = str(max(1, min((_size(self.message, element.fields, each) for each in element.spans), default=1)))
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
                return f"read_{null}numbers", [data, at, flexible, f'"{_code(field, span)}"', quoted]
            minimum = str(_element_size(field, span))
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
        return f"read_{null}{'view' if _is_view(field) else kind}", [data, at, flexible, quoted]

    def read_tags(self, span: Span) -> Body:
        """Return the statements that read the end of a struct."""
        known = [field for field in self.tagged if span.lowest in field.tagged_versions]
        if not span.flexible:
            return ("self.unknown_tags = ()",) if any(each.flexible for each in self.spans) else ()
        if not known:
            return ("self.unknown_tags, at = read_unknown_tags(data, at) if data[at] else ((), at + 1)",)
        by_tag = sorted(known, key=lambda each: each.tag or 0)
        blocks = [Block(f"if {field.tag} in tags:", self.read_tagged(field, span)) for field in by_tag]
        some = Block("if data[at]:", ("tags, at = read_tags(data, at)", *blocks, "self.unknown_tags = unknown(tags)"))
        return some, Block("else:", ("self.unknown_tags, at = (), at + 1",))

    def read_tagged(self, field: FieldSchema, span: Span) -> Body:
        """Return the statements that read a tagged field."""
        name, pop = self.attributes[field.name], f"part = tags.pop({field.tag})"
        if field.type.name in NUMBERS and not field.type.array and not _varint(field, span):
            code = _code(field, span)
            unpack = f"{self.module.numbers(code)}.unpack_from(part)[0]"
            value = _call("(", [unpack, str(struct.calcsize(f">{code}"))], ")")
        else:
            function, arguments = self.read_call(field, span, "part", "0")
            value = _call(f"{function}(", arguments, ")")
        head, end = f"self.{name} = whole(", f'"{name}"'
        return pop, Call(f"{head}part, {value.flat}, {end})", head, ("part", value, end), ")")

    # ---- many structs in one step

    def row_layouts(self) -> dict[Span, str]:
        """Return the layouts of the spans in which structs of this kind can be read in rows."""
        if not self.is_element():
            return {}
        found = {}
        for span in self.spans:
            there = [field for field in self.fields if _is_plain(field, span)]
            numbers = all(_is_number(field) and not _varint(field, span) for field in there)
            arrays = [field for field in there if field.type.array]
            nullable = any(span.lowest in field.nullable_versions for field in arrays)
            if numbers and not nullable and len(arrays) < len(there):
                found[span] = "".join(("[" if field.type.array else "") + _code(field, span) for field in there)
        return found

    def rows_reader(self) -> Body:
        """Return the body of `_read_many`."""
        layouts = self.row_layouts()
        flexible = any(span.flexible for span in self.spans)

        def body(span: Span) -> Body:
            if span not in layouts:
                return ()
            rows = self.module.layout("Rows", layouts[span], span.flexible)
            fields = [field for field in self.fields if _is_plain(field, span)]
            numbers = [field for field in fields if not field.type.array]
            arrays = [f"self.{self.attributes[field.name]}" for field in fields if field.type.array]
            if arrays:
                targets = tuple(f"self.{self.attributes[field.name]}" for field in numbers)
                first = Call(f"({', '.join(targets)}{',' if len(targets) == 1 else ''})", "(", targets, ")")
                assign = Call(f"{', '.join((first.flat, *arrays))} = row", "(", (first, *arrays), ") = row")
            else:
                assign = self.unpack(numbers, "row")
            resets = [self.reset(field) for field in self.fields if field not in fields]
            end = ["self.unknown_tags = ()"] if flexible else []
            loop = Block("for row in rows:", (f"self = new({self.name})", assign, *resets, *end, "found.append(self)"))
            return f"rows, at = {rows}.read(data, at, most)", loop

        return (f"found: list[{self.name}] = []", *self.chain(body), "return found, at")

    # ---- versions

    def mixed(self, text: str) -> bool:
        """Return whether code with this text needs to know if the version is flexible."""
        return self.flexible_differs() and re.search(r"\bflexible\b(?!=)", text) is not None

    def flexible_differs(self) -> bool:
        """Return whether some versions are flexible and others not."""
        return len({span.flexible for span in self.spans}) > 1

    def first_flexible(self) -> int:
        """Return the lowest flexible version."""
        return min(span.lowest for span in self.spans if span.flexible)

    def flexible(self, field: FieldSchema, span: Span) -> str:
        """Return whether a field is in flexible form, as an expression."""
        if field.flexible_versions is not None:
            return str(span.lowest in field.flexible_versions)
        return "flexible" if self.flexible_differs() else str(span.flexible)

    def chains(self, bodies: Iterable[Callable[[Span], Body]]) -> list[Statement]:
        """Return the statements of some chains; those that follow each other and have the same conditions are one."""
        found: list[Statement] = []
        last: list[Statement] = []
        for body in bodies:
            made = self.chain(body)
            heads = [each.head for each in made if isinstance(each, Block)]
            if len(heads) == len(made) > 0 and heads == [each.head for each in last if isinstance(each, Block)]:
                pairs = zip(last, made, strict=True)
                made = [
                    Block(a.head, a.body + b.body) for a, b in pairs if isinstance(a, Block) and isinstance(b, Block)
                ]
                del found[-len(last) :]
            found += made
            last = made
        return found

    def chain(self, body: Callable[[Span], Body]) -> list[Statement]:
        """Return the statements of all spans, under conditions on the version where they differ. Newest first."""
        parts: list[tuple[int, int, Body]] = []
        for span in self.spans:
            made = body(span)
            if parts and parts[-1][2] == made:
                parts[-1] = (parts[-1][0], span.highest, made)
            else:
                parts.append((span.lowest, span.highest, made))
        if len(parts) == 1:
            return list(parts[0][2])
        found: list[Statement] = []
        lowest, left = parts[0][0], parts[-1][1]  # the highest version for which there is no branch yet
        for low, high, made in reversed(parts):
            if not made:
                continue
            word = "elif" if found else "if"
            if low == lowest and high == left:
                only = made[0] if len(made) == 1 else None
                if isinstance(only, Block) and only.head.startswith("if "):
                    found.append(Block(f"el{only.head}", only.body))
                else:
                    found.append(Block("else:", made))
            else:
                found.append(Block(f"{word} {_condition(low, high, lowest, left)}:", made))
            left = low - 1 if high == left else left
        if len(found) == 1 and isinstance(whole := found[0], Block) and len(whole.body) == 1:
            inner = whole.body[0]
            if isinstance(inner, Block):  # two conditions become one
                second = inner.head.removeprefix("if ").removesuffix(":")
                second = f"({second})" if " or " in second else second
                return [Block(f"{whole.head.removesuffix(':')} and {second}:", inner.body)]
        return found


def _condition(low: int, high: int, lowest: int, left: int) -> str:
    """Return the condition for versions `low` to `high`, where only `lowest` to `left` can come this far."""
    if high == left:
        return f"version >= {low}"
    if low == lowest:
        return f"version <= {high}"
    return f"version == {low}" if low == high else f"{low} <= version <= {high}"


# ---- what schemas say


def _spans(message: MessageSchema) -> list[Span]:
    """Return the spans of a message's versions, lowest first."""
    if message.valid_versions.is_empty:
        return []
    ranges = [message.valid_versions, message.flexible_versions, *(each.versions for each in message.structs.values())]
    for field in _all_fields(message):
        ranges += [field.versions, field.nullable_versions, field.tagged_versions]
        ranges += [versions for versions, _ in field.encodings]
        if field.flexible_versions is not None:
            ranges.append(field.flexible_versions)
    edges = {edge for each in ranges if not each.is_empty for edge in (each.lowest, each.highest + 1)}
    starts = sorted(edge for edge in edges if edge in message.valid_versions)
    ends = [start - 1 for start in starts[1:]] + [message.valid_versions.highest]
    return [Span(start, end, start in message.flexible_versions) for start, end in zip(starts, ends, strict=True)]


def _all_fields(message: MessageSchema) -> list[FieldSchema]:
    return [*message.fields, *(field for _, fields in _owners(message) for field in fields)]


def _owners(message: MessageSchema) -> list[tuple[str, tuple[FieldSchema, ...]]]:
    return [(name, each.fields) for name, each in message.structs.items()]


def _structs(message: MessageSchema) -> list[StructSchema | None]:
    """Return the structs of a message, those inside others first, and None for the message itself."""
    found: list[StructSchema | None] = []

    def add(fields: Sequence[FieldSchema]) -> None:
        for field in fields:
            schema = message.structs.get(field.type.name) if field.type.struct else None
            if schema is not None and schema not in found:
                add(schema.fields)
                found.append(schema)

    add(message.fields)
    for schema in message.structs.values():  # common structs that nobody uses
        if schema not in found:
            add(schema.fields)
            found.append(schema)
    return [*found, None]


def _runs(fields: Sequence[FieldSchema], spans: Sequence[Span]) -> list[list[FieldSchema]]:
    """Return the fields as they stand on the wire: neighbours of numbers together, the others alone."""
    found: list[list[FieldSchema]] = []
    joined = False
    for field in fields:
        in_run = _is_number(field) and field.tag is None
        if field.type.array:
            in_run = in_run and not any(
                span.lowest in field.nullable_versions or _varint(field, span) or _is_narrow(field, span)
                for span in spans
            )
        if in_run and joined:
            found[-1].append(field)
        else:
            found.append([field])
        joined = in_run
    return found


def _is_plain(field: FieldSchema, span: Span) -> bool:
    """Return whether a field stands on the wire in a span, untagged."""
    return span.lowest in field.versions and span.lowest not in field.tagged_versions


def _is_number(field: FieldSchema) -> bool:
    return field.type.name in NUMBERS


def _is_view(field: FieldSchema) -> bool:
    """Return whether a field holds a view of the bytes that were read."""
    return field.type.name == "records" or field.zero_copy


def _varint(field: FieldSchema, span: Span) -> str:
    """Return "packed" or "unpacked" if a field, or its elements, are such integers in a span."""
    encoding = field.encoding_at(span.lowest)
    return "" if encoding is None or encoding.kind == "fixed" else encoding.kind


def _is_narrow(field: FieldSchema, span: Span) -> bool:
    return _is_number(field) and _code(field, span) != NUMBERS[field.type.name]


def _is_fixed(field: FieldSchema, span: Span) -> bool:
    """Return whether a field is a number of fixed size on the wire in a span."""
    return _is_number(field) and not field.type.array and _is_plain(field, span) and not _varint(field, span)


def _code(field: FieldSchema, span: Span) -> str:
    """Return the code of `struct` for a number of fixed size, or for the elements of an array of such."""
    encoding = field.encoding_at(span.lowest)
    return NUMBERS[field.type.name] if encoding is None or encoding.kind != "fixed" else BITS[encoding.bits]


def _size(message: MessageSchema, fields: Sequence[FieldSchema], span: Span, inside: tuple[str, ...] = ()) -> int:
    """Return the least number of bytes that some fields of a struct take."""
    total = 1 if span.flexible else 0
    for field in fields:
        if not _is_plain(field, span):
            continue
        if field.type.array:
            total += 1 if span.flexible else 4
        elif field.type.struct:
            name = field.type.name
            if span.lowest in field.nullable_versions:
                total += 1
            elif name not in inside:
                total += _size(message, message.structs[name].fields, span, (*inside, name))
        else:
            total += _element_size(field, span)
    return total


def _element_size(field: FieldSchema, span: Span) -> int:
    """Return the least number of bytes of a field that is no array, or of an element of one."""
    if _is_number(field):
        return 1 if _varint(field, span) else struct.calcsize(f">{_code(field, span)}")
    if field.type.name == "uuid":
        return 16
    flexible = span.flexible if field.flexible_versions is None else span.lowest in field.flexible_versions
    return 1 if flexible else 2 if field.type.name == "string" else 4


def _encodings(field: FieldSchema) -> str:
    """Return the encodings of a field as text."""
    if len(field.encodings) == 1:
        return str(field.encodings[0][1])
    return ", ".join(f"{encoding} in {versions}" for versions, encoding in field.encodings)


def _remark(field: FieldSchema) -> str:
    """Return the comment beside a field: what the schema says of it, apart from what it means."""
    found = [str(field.type), f"versions {field.versions}"]
    if not field.nullable_versions.is_empty:
        found.append("nullable" if field.nullable_versions == field.versions else f"nullable {field.nullable_versions}")
    if field.ignorable:
        found.append("ignorable")
    if field.tag is not None:
        where = "" if field.tagged_versions == field.versions else f" in {field.tagged_versions}"
        found.append(f"tag {field.tag}{where}")
    if field.flexible_versions is not None:
        found.append(f"flexible {field.flexible_versions}")
    if field.encodings:
        found.append(_encodings(field))
    return ", ".join(found)


def _versions(message: MessageSchema) -> str:
    if message.valid_versions.is_empty:
        return "no versions"
    word = "version" if message.valid_versions.lowest == message.valid_versions.highest else "versions"
    text = f"{word} {message.valid_versions}"
    return text if message.flexible_versions.is_empty else f"{text}, flexible {message.flexible_versions}"


# ---- text


def _range(spans: Sequence[Span]) -> str:
    if not spans:
        return "range(0)"
    lowest, end = spans[0].lowest, spans[-1].highest + 1
    return f"range({end})" if lowest == 0 else f"range({lowest}, {end})"


def _letters(codes: str) -> str:
    return "".join(LETTERS[code] for code in codes)


def _quoted(text: str) -> str:
    """Return a string literal, in the quotes that ruff takes: double ones unless they need more escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    letters = (each if each in "'\"" else repr(each)[1:-1] for each in text)
    return quote + "".join(f"\\{each}" if each == quote else each for each in letters) + quote


def _wrapped(text: str, indent: int, *, hanging: bool = False) -> list[str]:
    """Return text as lines that fit behind `indent` columns, safe in a docstring."""
    text = " ".join(text.replace("\\", "\\\\").replace('"""', "'''").split())
    text = f"{text}." if text.endswith('"') else text
    return textwrap.wrap(
        text, WIDTH - indent - 3, subsequent_indent="    " if hanging else "", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _call(head: str, items: Sequence[str], tail: str) -> Call:
    return Call(f"{head}{', '.join(items)}{tail}", head, tuple(items), tail)


def _signature(head: str) -> list[str]:
    """Return the first lines of a method, exploded if they are too long."""
    before, _, rest = head.partition("(")
    inside, _, after = rest.partition(")")
    return _lines((Call(head, f"{before}(", tuple(inside.split(", ")), f"){after}"),), 4)


def _lines(body: Iterable[Statement], indent: int) -> list[str]:
    """Return statements as lines."""
    found = []
    space = " " * indent
    for each in body:
        if isinstance(each, Block):
            found += [space + each.head, *_lines(each.body, indent + 4)]
        elif isinstance(each, Call) and indent + len(each.flat) > WIDTH:
            found.append(space + each.head)
            for item in each.items:
                lines = (
                    _lines((Call(f"{item.flat},", item.head, item.items, f"{item.tail},"),), indent + 4)
                    if isinstance(item, Call)
                    else [f"{space}    {item}{each.separator}"]
                )
                found += lines
            found.append(space + each.tail)
        else:
            found.append(space + (each.flat if isinstance(each, Call) else each))
    return found
