"""The common part of generating code that writes and reads a struct: names, defaults, and conditions on versions."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from magicbyte.schema.code import Body, CodeBlock, Statement, also, condition, names_in, otherwise, quoted, when
from magicbyte.schema.names import attributes, class_names, imported, message_class
from magicbyte.schema.spans import (
    NUMBERS,
    VersionSpan,
    all_fields,
    code_of,
    is_number,
    is_plain,
    is_view,
    runs_of,
    spans_of,
    varint_of,
)
from magicbyte.schema.tree import FieldSchema, MessageSchema, StructSchema

NULL_IN_TAG: Final = "null=0"
"""The mark of a null struct in a tagged field: there Kafka writes a varint, elsewhere an int8 of -1."""
LETTERS: Final = {"?": "T", "b": "B", "h": "H", "H": "UH", "i": "I", "I": "UI", "q": "Q", "d": "D", "[": "_"}
TYPES: Final = {"bool": "bool", "float64": "float", "string": "str", "bytes": "bytes"}


class Constants:
    """The names that the classes of a module share: `classes` by message and struct, and constants by their values."""

    def __init__(self, messages: Sequence[MessageSchema]) -> None:
        self._messages = messages
        self.classes = class_names(messages)
        self.values: dict[str, str] = {}

    def imported(self, name: str) -> str:
        """Return the name by which the module's code uses something that it imports."""
        return imported(name, self._messages)

    def constant(self, name: str, value: str) -> str:
        """Return the name of a constant of the module, which has this value."""
        self.values[name] = value
        return name

    def numbers(self, codes: str) -> str:
        """Return the constant that packs and unpacks some numbers."""
        return self.constant(f"_{letters_of(codes)}", f'struct.Struct(">{codes}")')

    def layout(self, kind: str, codes: str, flexible: bool) -> str:
        """Return the constant of class `kind`, `Shapes` or `Rows`, for a layout."""
        form = "COMPACT" if flexible else "CLASSIC"
        name = f"_{kind.upper()}_{letters_of(codes)}_{form}"
        return self.constant(name, f'{self.imported(kind)}("{codes}", flexible={flexible})')


def letters_of(codes: str) -> str:
    """Return codes of `struct` as letters that a name may have."""
    return "".join(LETTERS[code] for code in codes)


class Struct:
    """A message or one of its structs, and the decisions about its code: names, defaults, conditions on versions."""

    def __init__(self, module: Constants, message: MessageSchema, schema: StructSchema | None) -> None:
        self.module = module
        self.message = message
        self.schema = schema
        self.fields = message.fields if schema is None else schema.fields
        self.name = message_class(message.name) if schema is None else module.classes[message.name, schema.name]
        self.attributes = attributes(self.fields)
        self.spans = [
            span for span in spans_of(message) if schema is None or span.lowest in schema.versions
        ]  # fmt: skip
        self.tagged = [field for field in self.fields if field.tag is not None]
        self.runs = runs_of(self.fields, self.spans)

    def annotation(self, field: FieldSchema) -> str:
        """Return the Python type of a field."""
        element = self.struct_name(field) if field.type.struct else TYPES.get(field.type.name, "int")
        if is_view(field) or field.type.name == "uuid":
            element = self.module.imported("Records" if is_view(field) else "UUID")
        if field.type.array:
            element = f"tuple[{element}, ...]" if field.type.name in NUMBERS else f"list[{element}]"
        return f"{element} | None" if self.is_optional(field) else element

    def is_optional(self, field: FieldSchema) -> bool:
        """Return whether a field may be None."""
        return field.null_by_default or any(span.lowest in field.nullable_versions for span in self.spans)

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
            return f'{self.module.imported("UUID")}("{number}")' if number.int else "NULL_UUID"
        if isinstance(field.default, float):
            text = repr(field.default)
            return text if text[-1].isdigit() else f'float("{text}")'
        return quoted(field.default) if isinstance(field.default, str) else str(field.default)

    def differs(self, field: FieldSchema) -> tuple[str, ...]:
        """Return conditions of which one is true if a field does not have its default."""
        value, default = f"self.{self.attributes[field.name]}", self.default(field)
        none = (f"{value} is None",) if self.is_optional(field) else ()
        if default == "None":
            return (f"{value} is not None",)
        if default in ("()", "[]", 'b""'):
            return (*none, f"len({value}) > 0")
        if default in ("True", "False"):
            return (value if default == "False" else f"not {value}",)
        if field.type.struct:
            return (*none, f"{value}._is_set()")
        return (f"{value} != {default}",)

    def is_default(self) -> bool:
        """Return whether a field of the message has this struct as its default: then writing tests whether it is
        set.
        """
        return any(not field.type.array and not field.null_by_default for field in self.users())

    def is_element(self) -> bool:
        """Return whether there are arrays of this struct."""
        return any(field.type.array for field in self.users())

    def stands_alone(self) -> bool:
        """Return whether it is used other than as an element of arrays."""
        return not self.is_element() or any(not field.type.array for field in self.users())

    def users(self) -> list[FieldSchema]:
        """Return the fields of the message that have this struct as their type, or arrays of it."""
        name = None if self.schema is None else self.schema.name
        return [field for field in all_fields(self.message) if field.type.struct and field.type.name == name]

    def row_layouts(self) -> dict[VersionSpan, str]:
        """Return the layouts of the spans in which structs of this kind can be read in rows."""
        if not self.is_element():
            return {}
        layouts = {}
        for span in self.spans:
            there = [field for field in self.fields if is_plain(field, span)]
            numbers = all(is_number(field) and not varint_of(field, span) for field in there)
            arrays = [field for field in there if field.type.array]
            nullable = any(span.lowest in field.nullable_versions for field in arrays)
            if numbers and not nullable and len(arrays) < len(there):
                layouts[span] = "".join(("[" if field.type.array else "") + code_of(field, span) for field in there)
        return layouts

    def asks_flexible(self, body: Iterable[Statement]) -> list[str]:
        """Return the statement that sets `flexible` for the version, if some of `body` uses it."""
        asks = self.flexible_differs() and "flexible" in names_in(body)
        return [f"flexible = version >= {self.first_flexible()}"] if asks else []

    def flexible_differs(self) -> bool:
        """Return whether some versions are flexible and others not."""
        return len({span.flexible for span in self.spans}) > 1

    def first_flexible(self) -> int:
        """Return the lowest flexible version."""
        return min(span.lowest for span in self.spans if span.flexible)

    def flexible(self, field: FieldSchema, span: VersionSpan) -> str:
        """Return whether a field is in flexible form, as an expression."""
        if field.flexible_versions is not None:
            return str(span.lowest in field.flexible_versions)
        return "flexible" if self.flexible_differs() else str(span.flexible)

    def chains(self, bodies: Iterable[Callable[[VersionSpan], Body]]) -> list[Statement]:
        """Return the statements of some chains; adjacent ones with the same conditions are merged."""
        statements: list[Statement] = []
        last: list[Statement] = []
        for body in bodies:
            made = self.chain(body)
            heads = [each.head for each in made if isinstance(each, CodeBlock)]
            if len(heads) == len(made) > 0 and heads == [each.head for each in last if isinstance(each, CodeBlock)]:
                pairs = zip(last, made, strict=True)
                made = [
                    CodeBlock(a.keyword, a.terms, a.body + b.body)
                    for a, b in pairs
                    if isinstance(a, CodeBlock) and isinstance(b, CodeBlock)
                ]
                del statements[-len(last) :]
            statements += made
            last = made
        return statements

    def chain(self, body: Callable[[VersionSpan], Body]) -> list[Statement]:
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
        statements: list[Statement] = []
        lowest, left = parts[0][0], parts[-1][1]  # the highest version without a branch so far
        for low, high, made in reversed(parts):
            if not made:
                continue
            if low == lowest and high == left:
                only = made[0] if len(made) == 1 else None
                if isinstance(only, CodeBlock) and only.keyword == "if":
                    statements.append(CodeBlock("elif", only.terms, only.body))
                else:
                    statements.append(otherwise(*made))
            else:
                statements.append(
                    CodeBlock("elif" if statements else "if", (condition(low, high, lowest, left),), made)
                )
            left = low - 1 if high == left else left
        if len(statements) == 1 and isinstance(whole := statements[0], CodeBlock) and len(whole.body) == 1:
            inner = whole.body[0]
            if isinstance(inner, CodeBlock) and inner.keyword == "if":  # two conditions become one
                return [when(also(whole.terms[0], inner.terms), *inner.body)]
        return statements
