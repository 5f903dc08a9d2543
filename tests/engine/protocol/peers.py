"""Two other implementations of the protocol: kio and kafka-python. Bytes in; plain values and bytes out.

Both see less than Kafka allows: kio has a type for each number (an error code must be known, a time must fit Python's),
neither keeps tagged fields that it does not know. `tamed` makes values that they can hold.
"""

import base64
import dataclasses
import datetime
import enum
import importlib
import io
import pkgutil
import re
import uuid
from functools import cache
from typing import Any, cast

import kafka.protocol
from kafka.protocol.api_message import ApiMessage
from kio.serial import entity_reader, entity_writer

from engine.protocol.interpreter import Values, present
from magicbyte.schema.tree import FieldSchema, MessageSchema

MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
NO_ID = uuid.UUID(int=0)
ERROR_CODES = 90  # from 0 on all of them are known
MILLISECONDS = 1 << 31


# ---- values that the peers can hold


def tamed(schema: MessageSchema, fields: tuple[FieldSchema, ...], version: int, values: Values) -> Values:
    """Return values without unknown fields, with known error codes and with times of some weeks."""
    found = {}
    for field in present(fields, version):
        value = values[field.json_name]
        if field.type.struct and value is not None:
            inner = schema.structs[field.type.name].fields
            if field.type.array:
                value = [tamed(schema, inner, version, each) for each in value]
            else:
                value = tamed(schema, inner, version, value)
        elif field.type.name == "int16" and field.name.endswith("ErrorCode") and not field.type.array:
            value %= ERROR_CODES
        elif field.type.name in ("int32", "int64") and re.search(r"Ms$|Timestamp|Timeout", field.name):
            value = (
                abs(value) % MILLISECONDS
                if not field.type.array
                else [abs(each) % MILLISECONDS for each in value or ()]
            )
        found[field.json_name] = value
    return found


def snake(name: str) -> str:
    """Return a name of the schema as both peers write it."""
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name).lower()


# ---- kio


@cache
def kio_class(name: str, version: int) -> type[Any] | None:
    """Return kio's class for a version of a message, None if it has none."""
    base, kind = name, "data"
    for each in ("Request", "Response"):
        if name.endswith(each):
            base, kind = name.removesuffix(each), each.lower()
    try:
        module = importlib.import_module(f"kio.schema.{snake(base)}.v{version}.{kind}")
    except ModuleNotFoundError:
        return None
    return cast(type[Any], getattr(module, name))


def through_kio(name: str, version: int, data: bytes) -> tuple[Any, bytes] | None:
    """Return what kio reads, in `plain` form, and what it writes of that; None if it has not that version."""
    kind = kio_class(name, version)
    if kind is None:
        return None
    message, size = entity_reader(kind)(data, 0)
    assert size == len(data)
    out = io.BytesIO()
    entity_writer(kind)(out, message)
    return plain(message), out.getvalue()


# ---- kafka-python


@cache
def kafka_python_classes() -> dict[str, Any]:
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            importlib.import_module(module.name)
    return {each.__name__: each for each in ApiMessage.__subclasses__()}


def through_kafka_python(name: str, version: int, data: bytes) -> bytes | None:
    """Return what kafka-python writes of what it read; None if it has not that version."""
    kind = kafka_python_classes().get(name)
    if kind is None or not kind.valid_versions[0] <= version <= kind.valid_versions[1]:
        return None
    return bytes(kind[version].decode(data).encode())


# ---- plain values: dictionaries, lists, numbers, text; bytes and ids as text


def plain(value: Any) -> Any:
    """Return a value of kio in plain form: a null id is None, and no name ends in "_ms", as some of kio's do."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name.removesuffix("_ms").rstrip("_"): plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value // MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, uuid.UUID):
        return str(value)
    return base64.b64encode(value).decode() if isinstance(value, (bytes, memoryview)) else value


def plain_values(schema: MessageSchema, fields: tuple[FieldSchema, ...], version: int, values: Values) -> Any:
    """Return values of the JSON form in the plain form of kio's."""
    found = {}
    for field in present(fields, version):
        value = values[field.json_name]
        elements = value if field.type.array else [value]
        if field.type.struct:
            inner = schema.structs[field.type.name].fields
            elements = [each and plain_values(schema, inner, version, each) for each in elements or ()]
        elif field.type.name == "uuid":
            ids = [uuid.UUID(bytes=base64.urlsafe_b64decode(each + "==")) for each in elements or ()]
            elements = [None if each == NO_ID else str(each) for each in ids]
        found[snake(field.name).removesuffix("_ms")] = (
            None if value is None else [*elements] if field.type.array else elements[0]
        )
    return found
