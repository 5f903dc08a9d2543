"""Generated messages in the JSON of Kafka's tools: names in camel case, ids and bytes as base64."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from magicbyte.engine.protocol.fields import id_text

_NAMES: Final = {"kraft_version": "kRaftVersion", "kraft_version_feature": "kRaftVersionFeature"}
_LEAST_PLAIN: Final = 1e-3
_LEAST_SCIENTIFIC: Final = 1e7


def fields_of(message: Struct, tagged: Collection[str] = (), absent: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a message, by Kafka's names.

    `tagged`: fields that are omitted if they have their default. `absent`: those that the version does not have. Both
    are names of Python attributes, of nested structs too. Source: Kafka's generated `JsonConverter` classes.
    """
    shown, defaults = {}, type(message)()
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name == "unknown_tags" or name in absent:
            continue
        if name in tagged and value == getattr(defaults, name):
            continue
        shown[_camel(name)] = _cell(value, tagged, absent)
    return shown


def _cell(value: Any, tagged: Collection[str], absent: Collection[str]) -> Any:
    if isinstance(value, Struct):
        return fields_of(value, tagged, absent)
    if isinstance(value, (list, tuple)):
        return [_cell(each, tagged, absent) for each in value]
    if isinstance(value, UUID):
        return id_text(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes | memoryview) else value


def _camel(name: str) -> str:
    return _NAMES.get(name) or re.sub(r"_(.)", lambda found: found[1].upper(), name)


def json_text(value: Any) -> str:
    """Return JSON without spaces, as Java's Jackson writes it: other characters than ASCII stay, floats as in Java."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(name)}:{json_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return _java_double(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _java_double(value: float) -> str:
    """Return a double as Java's `Double.toString` does."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}[repr(value)]
    if value == 0 or _LEAST_PLAIN <= abs(value) < _LEAST_SCIENTIFIC:
        plain = format(Decimal(repr(value)), "f")
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent + len(digits) - 1}"
