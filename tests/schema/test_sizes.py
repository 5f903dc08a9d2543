"""Sizes of JSON values: those of Kafka's own classes, the tables of the specification, and what is refused."""

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.generated import compiled
from engine.protocol.golden_messages import golden_messages
from engine.protocol.interpreter import UNKNOWN, write
from engine.protocol.schemas import all_schemas
from engine.protocol.values import examples
from magicbyte.schema import Encoding, MessageSchema, SchemaValueError, bundled, check, load_bundled, measure
from magicbyte.schema.sizes import encoded_size
from magicbyte.schema.values import parse_json
from schema.builders import checked, field
from schema.random_schemas import random_schema

Json = dict[str, Any]

FRAME: Json = {"type": "data", "name": "Tick", "validVersions": "0-9", "flexibleVersions": "3+"}

tick = partial(checked, FRAME)


def metadata_response(partitions: int, isr: int) -> Json:
    """Return a MetadataResponse of one topic; `isr` of its partitions have two replicas in sync, the others one."""
    return {
        "brokers": [{"nodeId": node, "host": host, "port": 9092} for node, host in enumerate("ab")],
        "controllerId": 0,
        "clusterAuthorizedOperations": 0 if isr < partitions else -(2**31),
        "topics": [
            {
                "name": "t1" if isr < partitions else "test",
                "topicAuthorizedOperations": 0 if isr < partitions else -(2**31),
                "partitions": [
                    {"partitionIndex": at, "leaderId": at % 2, "leaderEpoch": 0, "replicaNodes": [0, 1],
                     "isrNodes": [0, 1] if at < isr else [0]}
                    for at in range(partitions)
                ],
            }
        ],
    }  # fmt: skip


def unpacked(source: Path, *, only: str | None = None) -> MessageSchema:
    """Return a schema with every int16 and int32 unpacked, or those of the struct `only`."""

    def encode(struct: Json, inside: bool) -> None:
        for each in struct["fields"]:
            name, array = each["type"].removeprefix("[]"), each["type"].startswith("[]")
            if inside and name in {"int16", "int32"}:
                each["elementEncoding" if array else "encoding"] = f"unpacked{name[3:]}"
            if "fields" in each:
                encode(each, inside or name == only)

    schema = json.loads(source.read_text(encoding="utf-8"))
    encode(schema, only is None)
    message, errors = check(json.dumps(schema))
    assert message is not None, errors
    return message


def test_every_golden_message_has_the_size_that_kafka_wrote() -> None:
    checked = 0
    for golden in golden_messages():
        if UNKNOWN not in json.dumps(golden.values):  # of which no schema knows
            size = measure(all_schemas()[golden.name], golden.version, golden.values)
            assert size.bytes == len(golden.data), (golden.name, golden.version)
            assert size.bytes == sum(row.bytes for row in size.fields.values())
            checked += 1
    assert checked > 3000


@pytest.mark.parametrize("seed", range(20))
def test_sizes_of_random_schemas_with_random_encodings_are_those_of_the_written_bytes(seed: int) -> None:
    message, errors = check(json.dumps(random_schema(random.Random(seed))))
    assert message is not None, errors
    generated = compiled(message)
    for version in message.valid_versions:
        for values in examples(message, version):
            if UNKNOWN not in json.dumps(values):
                size = measure(message, version, values).bytes
                assert size == generated.message(values).size(version)
                assert size == len(write(message, version, values))


def test_the_two_exact_messages_of_kip_625_have_its_sizes() -> None:
    """93 partitions with their integers unpacked, and 100 with all integers of the message: 3216 and 1170 bytes."""
    source = bundled()["MetadataResponse"]
    today = load_bundled("MetadataResponse")
    for values, proposed in (
        (metadata_response(93, 93), unpacked(source, only="MetadataResponsePartition")),
        (metadata_response(100, 41), unpacked(source)),
    ):
        assert measure(today, 9, values).bytes == 3216
        assert measure(proposed, 9, values).bytes == 1170


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("exponent", range(0, 64, 7))
def test_a_varint_takes_a_byte_more_for_every_seven_bits(bits: Any, exponent: int) -> None:
    size = exponent // 7
    if exponent < bits:
        assert encoded_size((1 << exponent) - 1, Encoding("unpacked", bits)) == max(size, 1)
        if exponent:
            assert encoded_size((1 << exponent - 1) - 1, Encoding("packed", bits)) == size
            assert encoded_size(-(1 << exponent - 1), Encoding("packed", bits)) == size
    if exponent < bits - 1:
        assert encoded_size(1 << exponent, Encoding("unpacked", bits)) == size + 1
        if exponent:
            assert encoded_size(1 << exponent - 1, Encoding("packed", bits)) == size + 1


@pytest.mark.parametrize(("bits", "most"), [(16, 3), (32, 5), (64, 10)])
def test_the_largest_values_take_the_most_bytes(bits: Any, most: int) -> None:
    for kind in ("packed", "unpacked"):
        assert encoded_size(-(1 << bits - 1), Encoding(kind, bits)) == most
        assert Encoding(kind, bits).max_bytes == most
    assert encoded_size(-1, Encoding("unpacked", bits)) == most
    assert encoded_size(-1, Encoding("fixed", bits)) == bits // 8


def test_a_narrower_encoding_refuses_what_it_cannot_hold_even_where_the_field_is_ignorable() -> None:
    message = tick(field(type="int64", ignorable=True, encoding={"0-1": "fixed32", "2+": "fixed64"}))
    assert measure(message, 2, {"a": 2**31}).bytes == 8
    assert measure(message, 1, {"a": -(2**31)}).bytes == 4
    with pytest.raises(SchemaValueError, match=r"a: expected 32 bits, -2147483648 to 2147483647, for fixed32"):
        measure(message, 1, {"a": 2**31})
    with pytest.raises(SchemaValueError, match=r"unpacked32, found 2147483648"):
        measure(tick(field(type="int64", encoding="unpacked32")), 0, {"a": 2**31})


def test_a_tagged_field_counts_with_its_encoded_size() -> None:
    message = tick(field(versions="3+", taggedVersions="3+", tag=0, encoding="packed32"))
    assert measure(message, 3, {}).bytes == 1  # no field is tagged
    assert measure(message, 3, {"a": 1}).bytes == 1 + 1 + 1 + 1
    assert measure(message, 3, {"a": 2**31 - 1}).bytes == 1 + 1 + 1 + 5


def test_what_a_version_lacks_must_have_its_default_or_be_ignorable() -> None:
    fields = field(versions="1+", default=-1), field(name="B", versions="1+", ignorable=True)
    assert measure(tick(*fields), 0, {"a": -1, "b": 9}).bytes == 0
    with pytest.raises(SchemaValueError, match=r"a: expected its default in version 0"):
        measure(tick(*fields), 0, {"a": 9})


def test_null_needs_a_nullable_version() -> None:
    message = tick(field(type="string", nullableVersions="1+"), field(name="B", type="records"))
    assert measure(message, 1, {"a": None, "b": ""}).bytes == 2 + 4
    assert measure(message, 3, {"a": None, "b": ""}).bytes == 1 + 1 + 1
    with pytest.raises(SchemaValueError, match=r"a: expected a value"):
        measure(message, 0, {"a": None, "b": ""})
    with pytest.raises(SchemaValueError, match=r"b: expected a value"):
        measure(message, 1, {"a": None})


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("bool", 1), ("int8", 128), ("int8", -129), ("uint16", -1), ("uint32", 2**32), ("int32", "5"),
        ("int32", True), ("int32", 1.5), ("float64", "1"), ("float64", False), ("string", 5), ("string", "a" * 32768),
        ("string", "\ud800"), ("string", None), ("uuid", "AAAA"), ("uuid", 5), ("bytes", "%"), ("bytes", "é"),
        ("bytes", [1]), ("[]int32", 5),
        ("[]int32", [None]), ("[]int32", {"a": 1}), ("[]int16", [0, 40000]),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_reported_with_its_path(type_: str, value: object) -> None:
    with pytest.raises(SchemaValueError, match=r"^a(\[[0-9]\])?: expected "):
        measure(tick(field(type=type_)), 0, {"a": value})


def test_names_are_those_of_the_fields() -> None:
    message = tick({"name": "S", "type": "[]Source", "versions": "0+", "fields": [field(name="NodeId")]})
    with pytest.raises(SchemaValueError, match=r's\[1\]: expected the name of a field \(did you mean "nodeId"\?\)'):
        measure(message, 0, {"s": [{"nodeId": 1}, {"NodeID": 1}]})
    with pytest.raises(SchemaValueError, match=r"the message: expected an object, found \[\]"):
        measure(message, 0, [])
    with pytest.raises(SchemaValueError, match=r"version: expected a version of Tick, 0-9, found 10"):
        measure(message, 10, {})


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "9" * 5000, '{"a" 1}'])
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(SchemaValueError, match=r"expected JSON"):
        parse_json(text)
