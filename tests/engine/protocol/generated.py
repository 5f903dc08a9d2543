"""Between the plain values of tests and the generated classes; and classes of schemas that no file has."""

import base64
import importlib
import sys
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any
from uuid import UUID

from engine.protocol.interpreter import UNKNOWN, Values, present
from engine.protocol.schemas import SCHEMAS, all_schemas
from magicbyte.schema import FieldSchema, MessageSchema
from magicbyte.schema.names import attributes, class_names
from magicbyte.schema.python import groups, modules
from magicbyte.schema.spans import NUMBERS


class Codec:
    """Reads and writes one message by its generated class, over plain values."""

    def __init__(self, schema: MessageSchema, module: ModuleType, structs: dict[tuple[str, str], str]) -> None:
        self.schema = schema
        self.kind = getattr(module, schema.name)
        self.structs = {struct: getattr(module, structs[schema.name, struct]) for struct in schema.structs}
        self.names = {struct.name: attributes(struct.fields) for struct in schema.structs.values()}
        self.names[schema.name] = attributes(schema.fields)

    def message(self, values: Values) -> Any:
        """Return the message that has these values; what is missing has its default."""
        return self._object(self.kind, self.schema.name, self.schema.fields, values)

    def values(self, message: Any, version: int) -> Values:
        """Return the values of all fields that a version has."""
        return self._values(self.schema.name, self.schema.fields, message, version)

    def write(self, version: int, values: Values) -> bytes:
        return bytes(self.message(values).encode(version))

    def read(self, version: int, data: bytes | memoryview) -> Values:
        return self.values(self.kind.read(data, version), version)

    def _object(self, kind: type[Any], struct: str, fields: tuple[FieldSchema, ...], values: Values) -> Any:
        names = self.names[struct]
        given = {
            names[field.name]: self._field(field, values[field.json_name])
            for field in fields
            if field.json_name in values
        }
        if values.get(UNKNOWN):
            given["unknown_tags"] = tuple((tag, base64.b64decode(content)) for tag, content in values[UNKNOWN])
        return kind(**given)

    def _field(self, field: FieldSchema, value: Any) -> Any:
        if value is None or not field.type.array:
            return self._element(field, value)
        elements = [self._element(field, each) for each in value]
        return tuple(elements) if field.type.name in NUMBERS else elements

    def _element(self, field: FieldSchema, value: Any) -> Any:
        if value is None:
            return None
        if field.type.struct:
            kind, struct = self.structs[field.type.name], self.schema.structs[field.type.name]
            return self._object(kind, struct.name, struct.fields, value)
        if field.type.name == "uuid":
            return UUID(bytes=base64.urlsafe_b64decode(value + "=="))
        return base64.b64decode(value) if field.type.name in ("bytes", "records") else value

    def _values(self, struct: str, fields: tuple[FieldSchema, ...], message: Any, version: int) -> Values:
        names, found = self.names[struct], {}
        for field in present(fields, version):
            value = getattr(message, names[field.name])
            if value is not None and field.type.array:
                found[field.json_name] = [self._plain(field, each, version) for each in value]
            else:
                found[field.json_name] = self._plain(field, value, version)
        if getattr(message, "unknown_tags", ()):
            found[UNKNOWN] = [[tag, base64.b64encode(content).decode()] for tag, content in message.unknown_tags]
        return found

    def _plain(self, field: FieldSchema, value: Any, version: int) -> Any:
        if value is None:
            return None
        if field.type.struct:
            struct = self.schema.structs[field.type.name]
            return self._values(struct.name, struct.fields, value, version)
        if field.type.name == "uuid":
            return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
        return base64.b64encode(value).decode() if field.type.name in ("bytes", "records") else value


@cache
def codecs() -> dict[str, Codec]:
    """Return a codec for each of the project's messages, of the committed code."""
    found: dict[str, Codec] = {}
    for room in ("messages", "records"):
        here = {name: schema for name, schema in all_schemas().items() if (SCHEMAS / room / f"{name}.json").exists()}
        for name, members in groups(here).items():
            package = "stored" if room == "records" else room
            module = importlib.import_module(f"magicbyte.engine.protocol.{package}.{name}")
            structs = class_names(members)
            found |= {member.name: Codec(member, module, structs) for member in members}
    return found


def compiled(schema: MessageSchema) -> Codec:
    """Return a codec for a schema that is no file: its code is made and run here."""
    ((_, text),) = modules({schema.name: schema}).items()
    return loaded([schema], text)[schema.name]


def loaded(schemas: Sequence[MessageSchema], text: str) -> dict[str, Codec]:
    """Return codecs for the messages of one module, whose code is run here."""
    module = ModuleType("compiled")
    sys.modules[module.__name__] = module  # where msgspec looks for the names in annotations
    exec(compile(text, schemas[0].name, "exec"), module.__dict__)
    return {schema.name: Codec(schema, module, class_names(schemas)) for schema in schemas}
