"""Values of messages, made from their schema: for each version every field at its default, null, empty, at its bounds
and at random, with unknown tagged fields beside it. The same in every run."""

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

from engine.protocol.interpreter import UNKNOWN, ZERO_UUID, Values, default_of, present
from magicbyte.schema.tree import INTEGER_BITS, FieldSchema, MessageSchema

KINDS = (
    "default", "default inside", "lowest", "highest", "random", "random again",
    "null at 0", "null at 1", "null at 2", "null at 3", "empty at 0", "empty at 1", "empty at 2", "empty at 3",
)  # fmt: skip
"""What most fields of an example are. "null at 1" means: everything that may be null is, arrays of structs and
structs from the second level down; "empty" likewise; the highest integers have the longest strings beside them."""
LETTERS = "abc-XYZ.09 é√𝄞\0"
FIRST_UNKNOWN_TAG = 10_000  # above every known one
EDGES = (0, 1, 2, 3, 126, 127, 128)  # around the length at which a varint of it grows to two bytes


def examples(schema: MessageSchema, version: int, kinds: tuple[str, ...] = KINDS) -> Iterator[Values]:
    """Return messages of every kind for a version, without those that equal an earlier one."""
    seen = set()
    for name in kinds:
        rng = random.Random(f"{schema.name} {version} {name}")
        kind, _, level = name.removesuffix(" again").partition(" at ")
        values = struct_of(schema, schema.fields, version, kind, rng, int(level or 0))
        text = json.dumps(values, sort_keys=True)
        if text not in seen:
            seen.add(text)
            yield values


def struct_of(
    schema: MessageSchema, fields: tuple[FieldSchema, ...], version: int, kind: str, rng: random.Random, level: int
) -> Values:
    values = {field.json_name: value_of(schema, field, version, kind, rng, level) for field in present(fields, version)}
    chance = {"highest": 1, "random": 0.7}.get(kind, 0)
    if version in schema.flexible_versions and rng.random() < chance:
        tags = sorted(rng.sample(range(FIRST_UNKNOWN_TAG, FIRST_UNKNOWN_TAG + 20_000), rng.randrange(1, 3)))
        values[UNKNOWN] = [[tag, blob(rng, rng.randrange(5))] for tag in tags]
    return values


def value_of(schema: MessageSchema, field: FieldSchema, version: int, kind: str, rng: random.Random, level: int) -> Any:
    leaf, nullable = not field.type.struct, version in field.nullable_versions
    if nullable and ((kind == "null" and (leaf or level == 0)) or (kind == "random" and rng.random() < 0.15)):
        return None
    if (kind == "default" and field.type.array) or (kind.startswith("default") and leaf):
        default = default_of(schema, field)
        if default is not None or nullable:
            return default  # the default of records is null even where they must not be
    if not field.type.array:
        inside = level - 1 if kind == "null" and nullable and not leaf else level
        return element_of(schema, field, version, kind, rng, inside)
    if kind == "highest":
        return [element_of(schema, field, version, each, rng, level) for each in ("highest", "random")]
    if kind == "random":
        count = rng.choice((0, 1, 2, 3)) if leaf else rng.choice((1, 1, 2))
    else:
        count = 0 if kind in ("null", "empty") and (leaf or level == 0) else 1
    return [element_of(schema, field, version, kind, rng, level - 1) for _ in range(count)]


def element_of(
    schema: MessageSchema, field: FieldSchema, version: int, kind: str, rng: random.Random, level: int
) -> Any:
    name = field.type.name
    if field.type.struct:
        return struct_of(schema, schema.structs[name].fields, version, kind, rng, level)
    if name in INTEGER_BITS:
        return integer_of(field, version, kind, rng)
    wide = kind in ("highest", "random")
    match name:
        case "bool":
            return kind == "highest" or (kind == "random" and rng.random() < 0.5)
        case "float64":
            bounds = {"lowest": -1.7976931348623157e308, "highest": 1.7976931348623157e308, "random": rng.random()}
            return bounds.get(kind, 0.0)
        case "uuid":
            return uuid_text(rng.randbytes(16)) if wide else ZERO_UUID
        case "string" if kind == "highest":
            return "".join(rng.choices(LETTERS, k=40)) + "a" * rng.choice(EDGES)
        case "string":
            return "".join(rng.choices(LETTERS, k=rng.randrange(1, 9))) if wide else ""
        case _:
            return blob(rng, rng.choice(EDGES) if kind == "highest" else rng.randrange(1, 9)) if wide else ""


def integer_of(field: FieldSchema, version: int, kind: str, rng: random.Random) -> int:
    """Return an integer that the field can have in a version: 0, a bound, or one of any magnitude."""
    bits = INTEGER_BITS[field.type.name]
    encoding = field.encoding_at(version)
    if encoding is not None:
        bits = min(bits, encoding.bits)
    signed = not field.type.name.startswith("u")
    lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if kind == "lowest":
        return lowest
    if kind == "highest":
        return highest
    if kind != "random":
        return 0
    value = rng.getrandbits(rng.randrange(1, bits + 1))
    return max(lowest, min(highest, -value if signed and rng.random() < 0.3 else value))


def uuid_text(data: bytes) -> str:
    """Return a UUID as Kafka prints it."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def blob(rng: random.Random, length: int) -> str:
    return base64.b64encode(rng.randbytes(length)).decode()
