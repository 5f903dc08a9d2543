"""Any values of any message for Hypothesis, and random encodings (KIP-625) put on the integers of the schemas."""

import base64
import dataclasses
import random
from functools import cache
from typing import Any, Literal

from hypothesis import strategies as st

from engine.protocol.generated import Codec, compiled
from engine.protocol.interpreter import UNKNOWN, Values, present
from engine.protocol.schemas import all_schemas
from magicbyte.schema import Encoding, FieldSchema, MessageSchema, StructSchema, Versions
from magicbyte.schema.tree import ENCODABLE_BITS, INTEGER_BITS

KINDS: tuple[Literal["fixed", "packed", "unpacked"], ...] = ("fixed", "packed", "unpacked")
BITS: tuple[Literal[16, 32, 64], ...] = (16, 32, 64)


def encoded(schema: MessageSchema, rng: random.Random) -> MessageSchema:
    """Return a schema with a random encoding for each range of versions of each integer field."""

    def fields(of: tuple[FieldSchema, ...]) -> tuple[FieldSchema, ...]:
        return tuple(dataclasses.replace(each, encodings=encodings(each)) for each in of)

    def encodings(field: FieldSchema) -> tuple[tuple[Versions, Encoding], ...]:
        bits = ENCODABLE_BITS.get(field.type.name)
        if bits is None or rng.random() < 0.2:
            return ()
        # the default has to fit, for it is written where no value is given
        number = field.default if isinstance(field.default, int) else 0
        fitting = [each for each in BITS if each <= bits and -(1 << each - 1) <= number < 1 << each - 1]
        lowest, highest = field.versions.lowest, field.versions.highest
        middle = rng.randrange(lowest, min(highest, lowest + 5) + 1)
        ranges = [Versions(lowest, middle), Versions(middle + 1, highest)] if middle < highest else [field.versions]
        return tuple((each, Encoding(rng.choice(KINDS), rng.choice(fitting))) for each in ranges)

    structs = {
        name: StructSchema(name, struct.versions, fields(struct.fields), struct.about)
        for name, struct in schema.structs.items()
    }
    return dataclasses.replace(schema, structs=structs, fields=fields(schema.fields))


@cache
def encoded_codec(name: str) -> Codec:
    return compiled(encoded(all_schemas()[name], random.Random(name)))


@cache
def message_values(name: str, version: int, *, encodings: bool = False) -> st.SearchStrategy[Values]:
    schema = encoded_codec(name).schema if encodings else all_schemas()[name]
    return struct_values(schema, schema.fields, version)


def struct_values(schema: MessageSchema, fields: tuple[FieldSchema, ...], version: int) -> st.SearchStrategy[Values]:
    given_ = {field.json_name: field_values(schema, field, version) for field in present(fields, version)}
    if version not in schema.flexible_versions:
        return st.fixed_dictionaries(given_)
    unknown = st.dictionaries(st.integers(10_000, 2**31 - 1), st.binary(max_size=5), min_size=1, max_size=3).map(
        lambda tags: [[tag, base64.b64encode(content).decode()] for tag, content in sorted(tags.items())]
    )
    return st.fixed_dictionaries(given_, optional={UNKNOWN: unknown})


def field_values(schema: MessageSchema, field: FieldSchema, version: int) -> st.SearchStrategy[Any]:
    element = element_values(schema, field, version)
    values = st.lists(element, max_size=3) if field.type.array else element
    return st.none() | values if version in field.nullable_versions else values


def element_values(schema: MessageSchema, field: FieldSchema, version: int) -> st.SearchStrategy[Any]:
    name = field.type.name
    if field.type.struct:
        return struct_values(schema, schema.structs[name].fields, version)
    if name in INTEGER_BITS:
        encoding, bits = field.encoding_at(version), INTEGER_BITS[name]
        bits = bits if encoding is None else min(bits, encoding.bits)
        signed = not name.startswith("u")
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else st.integers(0, (1 << bits) - 1)
    return {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "string": st.text(max_size=200),
        "uuid": st.binary(min_size=16, max_size=16).map(lambda raw: base64.urlsafe_b64encode(raw).decode()[:22]),
    }.get(name, st.binary(max_size=200).map(lambda raw: base64.b64encode(raw).decode()))
