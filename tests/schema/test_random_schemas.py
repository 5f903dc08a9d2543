"""Random whole schemas: compiled, written, read, measured, compared with the interpreter; broken ones are refused."""

import copy
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import tries
from engine.protocol.generated import Codec, compiled
from engine.protocol.interpreter import UNKNOWN, RefusedError, Values, read, write
from engine.protocol.values import examples
from magicbyte.engine.errors import ProtocolError, UnsupportedVersionError
from magicbyte.schema import MessageSchema, Rule, check
from magicbyte.schema.python import modules
from magicbyte.schema.sizes import measure
from schema.random_schemas import Json, random_schema

SEEDS = range(150)


def tree(schema: Json) -> MessageSchema:
    message, errors = check(json.dumps(schema), "random.json")
    assert message is not None, errors
    return message


def check_message(codec: Codec, version: int, values: Values) -> None:
    """Read after write is the identity, the size is the length, and the interpreter has the same bytes."""
    schema = codec.schema
    message = codec.message(values)
    data = bytes(message.encode(version))
    assert data == write(schema, version, values)
    assert len(data) == message.size(version)
    if UNKNOWN not in repr(values):
        assert len(data) == measure(schema, version, values).bytes
    assert codec.read(version, data) == values
    assert read(schema, version, data) == (values, len(data))


@pytest.mark.parametrize("first", SEEDS[::10])
def test_messages_of_random_schemas_read_back_as_the_interpreter_says(first: int) -> None:
    for seed in range(first, first + 10):
        codec = compiled(tree(random_schema(random.Random(seed))))
        for version in codec.schema.valid_versions:
            for values in examples(codec.schema, version):
                check_message(codec, version, values)


@tries(60)
@given(rng=st.randoms(use_true_random=False))
def test_a_random_schema_compiles_and_its_messages_read_back(rng: random.Random) -> None:
    codec = compiled(tree(random_schema(rng)))
    for version in codec.schema.valid_versions:
        for values in examples(codec.schema, version, ("random", "highest", "null at 0")):
            check_message(codec, version, values)


def test_what_a_version_cannot_hold_is_refused_where_the_interpreter_refuses() -> None:
    refused = 0
    for seed in SEEDS[::3]:
        codec = compiled(tree(random_schema(random.Random(seed))))
        for version in codec.schema.valid_versions:
            for values in examples(codec.schema, version, ("highest", "lowest", "null at 0", "random")):
                for other in codec.schema.valid_versions:
                    try:
                        expected = write(codec.schema, other, values)
                    except RefusedError:
                        refused += 1
                        with pytest.raises((ProtocolError, UnsupportedVersionError)):
                            codec.write(other, values)
                    else:
                        assert codec.write(other, values) == expected, (seed, version, other, values)
    assert refused > 100


def test_the_code_of_random_schemas_is_formatted_and_names_nothing_that_is_not_there_or_not_used(
    tmp_path: Path,
) -> None:
    for seed in SEEDS:
        (text,) = modules({"": tree(random_schema(random.Random(seed)))}).values()
        (tmp_path / f"m{seed}.py").write_text(text, encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["format", "--check", "--line-length=120"], ["check", "--isolated", "--select=F401,F811,F821"]):
        done = subprocess.run([*ruff, *command, tmp_path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


# ---- broken schemas


def fields_of(schema: Json) -> Iterator[Json]:
    """Return every field, of inline structs too."""
    for field in schema.get("fields", []):
        yield field
        yield from fields_of(field)


def integers(schema: Json) -> list[Json]:
    return [field for field in fields_of(schema) if field["type"] in ("int16", "int32", "int64")]


def others(schema: Json) -> list[Json]:
    return [field for field in fields_of(schema) if field["type"] in ("string", "bool", "int8", "uint16", "uuid")]


def on_integer(encoding: object) -> Callable[[Json, random.Random], bool]:
    """Return what gives an integer field of the first version this encoding."""

    def breaks(schema: Json, rng: random.Random) -> bool:
        found = [field for field in integers(schema) if field["versions"] == "0+"]
        if found:
            rng.choice(found)["encoding"] = encoding
        return bool(found)

    return breaks


def encode_what_is_no_integer(schema: Json, rng: random.Random) -> bool:
    found = others(schema)
    if found:
        rng.choice(found)["encoding"] = "fixed32"
    return bool(found)


def encode_with_too_many_bits(schema: Json, rng: random.Random) -> bool:
    found = [field for field in integers(schema) if field["type"] != "int64"]
    if found:
        rng.choice(found)["encoding"] = "packed64"
    return bool(found)


def put_a_hole_between_tags(schema: Json, rng: random.Random) -> bool:
    found = [field for field in fields_of(schema) if "tag" in field]
    if found:
        rng.choice(found)["tag"] += 7
    return bool(found)


def forget_the_versions(schema: Json, rng: random.Random) -> bool:
    found = [field for field in fields_of(schema) if "tag" not in field]
    del rng.choice(found)["versions"]
    return True


def make_a_number_nullable(schema: Json, rng: random.Random) -> bool:
    found = integers(schema)
    if found:
        rng.choice(found)["nullableVersions"] = "0+"
    return bool(found)


def misspell_a_type(schema: Json, rng: random.Random) -> bool:
    rng.choice(list(fields_of(schema)))["type"] = "int23"
    return True


def name_a_field_twice(schema: Json, rng: random.Random) -> bool:
    schema["fields"].append(copy.deepcopy(schema["fields"][0]))
    return True


FAULTS: dict[str, tuple[Rule, Callable[[Json, random.Random], bool]]] = {
    "an encoding of a string": (Rule.ENCODING_TYPE, encode_what_is_no_integer),
    "too many bits": (Rule.ENCODING_BITS, encode_with_too_many_bits),
    "a gap between ranges": (Rule.ENCODING_COVERAGE, on_integer({"0": "fixed16", "2+": "packed16"})),
    "no range at all": (Rule.ENCODING_COVERAGE, on_integer({})),
    "ranges that overlap": (Rule.ENCODING_OVERLAP, on_integer({"0-2": "fixed16", "2+": "packed16"})),
    "the name of the document's example": (Rule.ENCODING_NAME, on_integer("unsigned32")),
    "a name in capitals": (Rule.ENCODING_NAME, on_integer({"0+": "FIXED16"})),
    "a number for a name": (Rule.ENCODING_FORM, on_integer(16)),
    "an empty range": (Rule.ENCODING_RANGE, on_integer({"none": "fixed16", "0+": "fixed16"})),
    "a hole between tags": (Rule.TAG, put_a_hole_between_tags),
    "no versions": (Rule.MISSING_KEY, forget_the_versions),
    "a nullable number": (Rule.NULLABLE, make_a_number_nullable),
    "an unknown type": (Rule.TYPE, misspell_a_type),
    "one name for two fields": (Rule.SAME_NAME, name_a_field_twice),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_random_schema_is_reported_with_rule_and_position(fault: str) -> None:
    rule, breaks = FAULTS[fault]
    told = 0
    for seed in range(60):
        rng = random.Random(seed)
        schema = random_schema(rng)
        if not breaks(schema, rng):
            continue
        text = json.dumps(schema, indent=1)
        message, errors = check(text, "broken.json")
        assert message is None
        assert rule in [error.rule for error in errors], (seed, errors)
        for error in errors:
            assert error.path == "broken.json"
            assert 1 <= error.column <= len(text.splitlines()[error.line - 1]) + 1
            assert error.mend
        told += 1
    assert told >= 10
