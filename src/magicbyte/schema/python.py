"""Generate Python from checked schemas: one readable module per API, of structs that read and write themselves.

`modules` returns them by file name. They import `msgspec`, and only `fields`, `message` and `rows` of
`engine.protocol`. The text
is deterministic, and formatted as `ruff format` would at 120 columns.

How a struct becomes code: its versions are divided into *spans* in which nothing changes. Adjacent fields of numbers
and of arrays of numbers form a *run*, which is packed and unpacked in one step; every other field stands alone.
Statements are generated for each of these in all spans; spans with the same statements share a branch of an `if`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magicbyte.schema.code import WIDTH, Call, call, lines, names_read, signature, wrapped
from magicbyte.schema.names import RUNTIME, attributes, message_class, module_name
from magicbyte.schema.python_read import Reading
from magicbyte.schema.python_struct import Constants, Struct
from magicbyte.schema.python_write import Writing
from magicbyte.schema.spans import encodings_of, owners_of, range_of, remark_on, spans_of, structs_of, versions_of
from magicbyte.schema.tree import FieldSchema, MessageSchema, StructSchema


def modules(schemas: Mapping[str, MessageSchema]) -> dict[str, str]:
    """Return the modules of these schemas by file name: one for each API, header, or key and value of a record."""
    found = {}
    for name, messages in groups(schemas).items():
        found[f"{name}.py"] = _Module(messages).text()
    return found


def api_table(schemas: Mapping[str, MessageSchema]) -> str:
    """Return the module that lists the APIs of these schemas by their keys."""
    homes = {message.name: name for name, messages in groups(schemas).items() for message in messages}
    text = [
        '"""Kafka\'s APIs by their keys. Generated from the requests in schemas/messages. Do not edit.',
        "",
        "Requests and responses are imported when they are asked for.",
        '"""',
        "",
        "from typing import Final",
        "",
        "from magicbyte.engine.protocol.api import Api",
        "",
        "APIS: Final = {",
    ]
    for schema in _requests(schemas):
        spans = spans_of(schema)
        key = str(schema.api_key)
        items = [key, f'"{schema.name.removesuffix("Request")}"', f'"{homes[schema.name]}"']
        items += [range_of(spans), range_of([span for span in spans if span.flexible])]
        if schema.latest_version_unstable:
            items.append("latest_version_unstable=True")
        text += lines((call(f"{key}: Api(", items, "),"),), 4)
    return "\n".join([*text, "}", ""])


def api_keys(schemas: Mapping[str, MessageSchema]) -> str:
    """Return the module with the enumeration of the API keys of these schemas."""
    text = [
        '"""The keys of Kafka\'s APIs. Generated from the requests in schemas/messages. Do not edit."""',
        "",
        "from enum import IntEnum",
        "",
        "",
        "class ApiKey(IntEnum):",
        '    """The key of an API, the first field of a request\'s header."""',
        "",
        *(f"    {_api_name(schema)} = {schema.api_key}" for schema in _requests(schemas)),
    ]
    return "\n".join([*text, ""])


def _requests(schemas: Mapping[str, MessageSchema]) -> list[MessageSchema]:
    """Return the requests in the order of their keys; of two with one key, the later one, which was renamed."""
    found = {
        schema.api_key: schema
        for schema in sorted(schemas.values(), key=lambda each: each.valid_versions.highest)
        if schema.type == "request" and schema.api_key is not None
    }
    return [found[key] for key in sorted(found)]


def _api_name(schema: MessageSchema) -> str:
    return module_name(schema.name.removesuffix("Request")).upper()


def groups(schemas: Mapping[str, MessageSchema]) -> dict[str, list[MessageSchema]]:
    """Return the messages of each module by its name: request and response, key and value."""
    found: dict[str, list[MessageSchema]] = {}
    for name in sorted(schemas):
        found.setdefault(module_name(_base(schemas[name], schemas)), []).append(schemas[name])
    return found


def _base(schema: MessageSchema, schemas: Mapping[str, MessageSchema]) -> str:
    """Return the common part of the names of a message and its counterpart."""
    for first, second in (("Request", "Response"), ("Key", "Value")):
        for end, other in ((first, second), (second, first)):
            base = schema.name.removesuffix(end)
            if base != schema.name and base and (schema.type == end.lower() or base + other in schemas):
                return base
    return schema.name


class _Module:
    """One module: the classes of some messages, the constants and imports they need."""

    def __init__(self, messages: Sequence[MessageSchema]) -> None:
        self.messages = sorted(messages, key=lambda each: (each.type == "response", each.name))
        self.constants = Constants(self.messages)

    def text(self) -> str:
        """Return the whole file."""
        classes = [_Class(self.constants, message, each) for message in self.messages for each in structs_of(message)]
        bodies = ["\n".join(each.lines()) for each in classes]
        code = "\n\n\n".join(bodies)
        constants = "\n".join(f"{name} = {value}" for name, value in sorted(self.constants.values.items()))
        imports = self.imports(f"{constants}\n{code}")
        own = [  # Python reserves the name, so that only `getattr` can ask for it, as for every message
            f'globals()["{message.name}"] = {message_class(message.name)}'
            for message in self.messages
            if message_class(message.name) != message.name
        ]
        head = [*self.docstring(), "", *imports, *(["", constants] if constants else [])]
        return "\n".join([*head, "", "", code, *(["", "", *own] if own else []), ""])

    def docstring(self) -> list[str]:
        """Return the module's docstring: where it comes from, versions, encodings."""
        names = " and ".join(f"{message.name}.json" for message in self.messages)
        sentences = [f"Generated from {names}. Do not edit: the schema compiler makes it."]
        for message in self.messages:
            about = f"{message.name}: {versions_of(message)}"
            if not message.deprecated_versions.is_empty:
                about += f"; deprecated {message.deprecated_versions}"
            if message.latest_version_unstable:
                about += "; the latest one may still change"
            encoded = [
                f"{names[field.name]} is {encodings_of(field)}"
                for fields in (message.fields, *(each.fields for each in message.structs.values()))
                for names in [attributes(fields)]
                for field in fields
                if field.encodings
            ]
            sentences.append("; ".join([about, *encoded]) + (" (KIP-625)." if encoded else "."))
        text = [line for each in sentences for line in wrapped(each, 0)]
        return [f'"""{text[0]}', "", *text[1:], '"""', "", "from __future__ import annotations"]

    def imports(self, code: str) -> list[str]:
        """Return the import statements for what `code` uses."""
        used = names_read(code)

        def clauses(*offered: str) -> tuple[str, ...]:
            pairs = ((name, self.constants.imported(name)) for name in offered)
            return tuple(name if own == name else f"{name} as {own}" for name, own in pairs if own in used)

        statements = ["import struct"] if "struct" in used else []
        statements += [f"from collections.abc import {clause}" for clause in clauses("Sequence")]
        statements += [f"from uuid import {clause}" for clause in clauses("UUID")]
        names = clauses("Struct", "field")
        library = [f"from msgspec import {', '.join(names)}"] if names else []
        calls = []
        for module, offered in RUNTIME.items():
            if names := clauses(*offered):
                start = f"from magicbyte.engine.protocol.{module} import "
                calls.append(Call(start + ", ".join(names), f"{start}(", names, ")"))
        return [line for block in (statements, library) if block for line in (*block, "")] + lines(calls, 0)


class _Class(Struct):
    """The class of a message or of one of its structs."""

    def __init__(self, module: Constants, message: MessageSchema, schema: StructSchema | None) -> None:
        super().__init__(module, message, schema)
        self.writing = Writing(module, message, schema)
        self.reading = Reading(module, message, schema)

    def lines(self) -> list[str]:
        """Return the class, without line ends."""
        imported = self.module.imported
        base = imported("Message" if self.schema is None else "Struct")
        made = lines((call(f"class {self.name}(", [base, "gc=False", "kw_only=True"], "):"),), 0)
        made += [f"    {line}".rstrip() for line in self.docstring()]
        if self.schema is None:
            made += ["", *self.message_constants()]
        declared = [line for field in self.fields for line in self.declaration(field)]
        if any(span.flexible for span in self.spans):
            declared.append(f"    unknown_tags: {imported('Tags')} = ()")
        if declared:
            made += ["", *declared]
        if self.spans:
            if self.schema is None or self.stands_alone():
                made += [
                    "",
                    f"    def _write(self, out: {imported('Writer')}, version: int) -> None:",
                    *lines(self.writing.writer(), 8),
                ]
            if self.is_element():
                arguments = f"structs: {imported('Sequence')}[{self.name}], out: {imported('Writer')}, version: int"
                head = signature(f"def _write_each({arguments}) -> None:")
                made += ["", "    @staticmethod", *head, *lines(self.writing.each_writer(), 8)]
            at = "data: memoryview, at: int"
            if self.schema is None or self.stands_alone():
                one = signature(f"def _read({at}, version: int) -> tuple[{self.name}, int]:")
                made += ["", "    @staticmethod", *one, *lines(self.reading.reader(), 8)]
            if self.is_element():
                head = signature(f"def _read_each({at}, count: int, version: int) -> tuple[list[{self.name}], int]:")
                made += ["", "    @staticmethod", *head, *lines(self.reading.each_reader(), 8)]
            if self.tagged:
                made += [
                    "",
                    "    def _tags(self, version: int) -> list[tuple[int, bytes]]:",
                    *lines(self.writing.tags(), 8),
                ]
            if self.is_default():
                made += ["", "    def _is_set(self) -> bool:", *lines(self.writing.is_set(), 8)]
            if self.row_layouts():
                many = signature(f"def _read_many({at}, most: int, version: int) -> tuple[list[{self.name}], int]:")
                made += ["", "    @staticmethod", *many, *lines(self.reading.rows_reader(), 8)]
        return made

    def docstring(self) -> list[str]:
        """Return the docstring: the struct's purpose, and the meaning of each field."""
        about = self.message.about if self.schema is None else self.schema.about
        about = about or (self.whereabouts() if self.schema else f"The {self.message.type} {self.name}.")
        head = wrapped(about, 4)
        fields = [
            line
            for field in self.fields
            if field.about
            for line in wrapped(f"{self.attributes[field.name]}: {field.about}", 4, hanging=True)
        ]
        if len(head) == 1 and not fields and len(head[0]) + 10 <= WIDTH:
            return [f'"""{head[0]}"""']
        return [f'"""{head[0]}', *head[1:], *(["", *fields] if fields else []), '"""']

    def whereabouts(self) -> str:
        """Return which field has this struct as its type, for structs without a description."""
        assert self.schema is not None
        for name, fields in ((self.message.name, self.message.fields), *owners_of(self.message)):
            for field in fields:
                if field.type.struct and field.type.name == self.schema.name:
                    owner = self.module.classes.get((self.message.name, name), name)
                    kind = "An element" if field.type.array else "The value"
                    return f"{kind} of `{attributes(fields)[field.name]}` in {owner}."
        return f"A struct of {self.message.name}."

    def message_constants(self) -> list[str]:
        """Return the class constants of a message."""
        valid, flexible = range_of(self.spans), range_of([span for span in self.spans if span.flexible])
        found = [] if self.message.api_key is None else [f"    API_KEY = {self.message.api_key}"]
        return [*found, f"    VALID_VERSIONS = {valid}", f"    FLEXIBLE_VERSIONS = {flexible}"]

    def declaration(self, field: FieldSchema) -> list[str]:
        """Return the lines that declare a field, with its type, versions and the like as a comment."""
        name, default = self.attributes[field.name], self.default(field)
        if default == "[]":
            default = f"{self.module.imported('field')}(default_factory=list)"
        elif field.type.struct and default != "None":
            default = f"{self.module.imported('field')}(default_factory={self.struct_name(field)})"
        line = f"    {name}: {self.annotation(field)} = {default}"
        comment = f"# {remark_on(field)}"
        return [f"{line}  {comment}"] if len(line) + 2 + len(comment) <= WIDTH else [f"    {comment}", line]
