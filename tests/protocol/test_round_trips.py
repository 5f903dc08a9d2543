"""What is written is read back, whatever the values: as the schemas are, and with random encodings of the integers."""

import base64
import dataclasses
import random
from functools import cache
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magicbyte.protocol.runtime import Writer
from magicbyte.schema import Encoding, FieldSchema, MessageSchema, StructSchema, Versions
from magicbyte.schema.tree import ENCODABLE_BITS, INTEGER_BITS
from protocol.generated import Codec, codecs, compiled
from protocol.interpreter import UNKNOWN, Values, present, read, write
from protocol.schemas import all_schemas, versions
from protocol.values import examples

KINDS: tuple[Literal["fixed", "packed", "unpacked"], ...] = ("fixed", "packed", "unpacked")
BITS: tuple[Literal[16, 32, 64], ...] = (16, 32, 64)


# ---- encodings put on the fields of the project's own schemas


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


@pytest.mark.parametrize("part", range(8))
def test_every_version_reads_back_with_random_encodings_on_its_integers(part: int) -> None:
    for name in sorted(all_schemas())[part::8]:
        codec = encoded_codec(name)
        for version in codec.schema.valid_versions:
            for values in examples(codec.schema, version):
                message = codec.message(values)
                data = bytes(message.encode(version))
                assert data == write(codec.schema, version, values), (name, version, values)
                assert message.size(version) == len(data), (name, version, values)
                assert codec.read(version, data) == values, (name, version)


# ---- any values at all


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


@settings(max_examples=500)
@given(data=st.data(), encodings=st.booleans())
def test_any_values_read_back_in_any_version(data: st.DataObject, encodings: bool) -> None:
    name, version = data.draw(st.sampled_from(versions()))
    values = data.draw(message_values(name, version, encodings=encodings))
    codec = encoded_codec(name) if encodings else codecs()[name]
    message = codec.message(values)
    out = Writer()
    message.write(out, version)
    assert bytes(out) == b"".join(out.buffers()) == write(codec.schema, version, values)
    assert message.size(version) == len(bytes(out))
    assert codec.read(version, bytes(out)) == values
    assert read(codec.schema, version, bytes(out)) == (values, len(bytes(out)))
