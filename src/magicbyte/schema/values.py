"""Check and complete values of a message in Kafka's own JSON form.

Keys are the fields' names with a lower-case first letter; bytes and records are base64, a UUID is Kafka's 22 letters of
base64, and omitted fields get their defaults.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from magicbyte.schema.errors import SchemaValueError
from magicbyte.schema.fields import integer_range
from magicbyte.schema.objects import did_you_mean
from magicbyte.schema.tree import INTEGER_BITS, FieldSchema, MessageSchema

Struct = dict[str, Any]
"""A struct's values by the schema's field names, with every field.

bool, int, float and str are Python's, a UUID is 16 bytes, bytes and records are bytes, arrays are lists, structs dicts.
"""

MAX_STRING: Final = 32767
"""The maximum size of a string in UTF-8 bytes, in every version."""

_UUID_BYTES: Final = 16


def parse_json(text: str) -> Any:
    """Parse a JSON text. Raises SchemaValueError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise SchemaValueError(place, expected="JSON", found=error.msg) from None
    except (RecursionError, ValueError) as error:  # nested too deep; or a number that is too long
        raise SchemaValueError("", expected="JSON that can be read", found=str(error)) from None


def read_values(message: MessageSchema, values: object) -> Struct:
    """Return the values of a whole message. Raises SchemaValueError for values that no version can hold."""
    return _struct(message, message.fields, values, "")


def default_of(message: MessageSchema, field: FieldSchema) -> Any:
    """Return the value of an omitted field."""
    if field.null_by_default:
        return None
    if field.type.array:
        return []
    if field.type.struct:
        inner = message.structs[field.type.name]
        return {each.name: default_of(message, each) for each in inner.fields}
    if field.type.name == "uuid":
        return _uuid(field.default, field.json_name)
    return b"" if field.type.name == "bytes" else field.default


def _struct(message: MessageSchema, fields: tuple[FieldSchema, ...], values: object, way: str) -> Struct:
    if not isinstance(values, Mapping):
        raise SchemaValueError(way, expected="an object", found=_shown(values))
    names = {field.json_name: field for field in fields}
    for key in values:
        if key not in names:
            mend = did_you_mean(str(key), names) or f"the fields are {', '.join(names) or 'none'}"
            raise SchemaValueError(way, expected=f"the name of a field ({mend})", found=_shown(key))
    found = {}
    for key, field in names.items():
        inner = f"{way}.{key}" if way else key
        found[field.name] = _value(message, field, values[key], inner) if key in values else default_of(message, field)
    return found


def _value(message: MessageSchema, field: FieldSchema, value: object, way: str) -> Any:
    if value is None:
        if field.nullable_versions.is_empty and field.type.name != "records":
            raise SchemaValueError(way, expected=f"{field.type}, which is never null", found="null")
        return None
    if not field.type.array:
        return _element(message, field, value, way)
    if not isinstance(value, list):
        raise SchemaValueError(way, expected=f"a list, for {field.type}", found=_shown(value))
    return [_element(message, field, item, f"{way}[{index}]") for index, item in enumerate(value)]


def _element(message: MessageSchema, field: FieldSchema, value: object, way: str) -> Any:
    name = field.type.name
    if field.type.struct:
        return _struct(message, message.structs[name].fields, value, way)
    if name == "bool":
        if not isinstance(value, bool):
            raise SchemaValueError(way, expected="true or false", found=_shown(value))
        return value
    if name in INTEGER_BITS:
        lowest, highest = integer_range(name)
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise SchemaValueError(way, expected=f"{name}, {lowest} to {highest}", found=_shown(value))
        return value
    if name == "float64":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SchemaValueError(way, expected="a number", found=_shown(value))
        return value
    if not isinstance(value, str):
        raise SchemaValueError(way, expected=f"a string, for {name}", found=_shown(value))
    if name == "string":
        return _string(value, way)
    return _uuid(value, way) if name == "uuid" else _bytes(value, way)


def _string(value: str, way: str) -> str:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise SchemaValueError(way, expected="a string of whole characters", found=ascii(value[:60])) from None
    if size > MAX_STRING:
        raise SchemaValueError(way, expected=f"at most {MAX_STRING} bytes of UTF-8", found=str(size))
    return value


def _uuid(value: object, way: str) -> bytes:
    raw = b""
    if isinstance(value, str):
        try:
            raw = base64.b64decode(value.rstrip("=") + "==", altchars=b"-_", validate=True)
        except ValueError:  # not base64, or not even ASCII
            raw = b""
    if len(raw) != _UUID_BYTES:
        raise SchemaValueError(way, expected="a UUID as 22 letters of base64", found=_shown(value))
    return raw


def _bytes(value: str, way: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise SchemaValueError(way, expected="base64", found=_shown(value)) from None


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:59] + "…"
