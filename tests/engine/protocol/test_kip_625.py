"""KIP-625's size table: two of its figures are sizes of messages, the third is out of reach of every message."""

import json
import re

import pytest
from hypothesis import given

from builders import tries
from engine.protocol.any_values import message_values
from engine.protocol.generated import codecs, compiled
from engine.protocol.interpreter import Values, integers, write
from engine.protocol.kip_625 import BEST, EXAMPLES, FIXED, VERSION, WORST, Example
from engine.protocol.schemas import ROOT
from magicbyte.engine.protocol.extensions.metadata_response_partitions_unpacked import (
    MetadataResponsePartitionsUnpacked,
)
from magicbyte.engine.protocol.extensions.metadata_response_unpacked import MetadataResponseUnpacked
from magicbyte.engine.protocol.messages.metadata import MetadataResponse
from magicbyte.schema import Encoding, FieldSchema, MessageSchema
from magicbyte.schema.tree import ENCODABLE_BITS, INTEGER_BITS

CLASSES = {each.__name__: each for each in (MetadataResponseUnpacked, MetadataResponsePartitionsUnpacked)}
RESULTS = ROOT / "benchmarks/results"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.name)
def test_a_message_has_the_two_sizes_of_the_document(example: Example) -> None:
    today = codecs()["MetadataResponse"].message(example.best())
    assert isinstance(today, MetadataResponse)
    assert len(today.encode(VERSION)) == today.size(VERSION) == FIXED
    assert len(write(example.fixed_schema, VERSION, example.best())) == FIXED
    proposed = compiled(example.encoded_schema).message(example.best())
    assert len(proposed.encode(VERSION)) == proposed.size(VERSION) == BEST
    assert len(write(example.encoded_schema, VERSION, example.best())) == BEST
    read = CLASSES[example.encoded].read(proposed.encode(VERSION), VERSION)
    assert len(read.topics[0].partitions) == example.partitions
    assert read.encode(VERSION) == proposed.encode(VERSION)


def test_the_worst_case_of_93_partitions_is_54_bytes_and_42_for_each() -> None:
    *_, example = EXAMPLES
    assert len(write(example.encoded_schema, VERSION, example.worst())) == 54 + 93 * 42 == 3960
    assert len(write(example.fixed_schema, VERSION, example.worst())) == FIXED


# ---- why 4026 is out of reach


def excess(fields: tuple[FieldSchema, ...], schema: MessageSchema) -> int:
    """Return the highest that 4 * growth - fixed bytes can be for a struct, growth being what varints add to it.

    An int32 gives 4 * 1 - 4 = 0, an int16 4 * 1 - 2 = 2, and every byte that is no integer gives -1; of those there are
    the lengths and counts of strings and arrays and the count of tagged fields, one byte each at least.
    """
    total = -1  # the count of tagged fields
    for field in fields:
        if VERSION not in field.versions:
            continue
        if field.type.array:
            total -= 1
            element = excess(schema.structs[field.type.name].fields, schema) if field.type.struct else growth_of(field)
            assert element <= 0, "more elements would only lower it"
        elif field.type.name in ENCODABLE_BITS:
            total += growth_of(field)
        else:
            total -= 1
            assert field.type.name in ("string", "bool")
    return total


def growth_of(field: FieldSchema) -> int:
    """Return 4 * growth - fixed bytes of an integer at its longest."""
    bits = next(each for each in (16, 32, 64) if each == ENCODABLE_BITS[field.type.name])
    longest = max(Encoding(kind, bits).max_bytes for kind in ("packed", "unpacked"))
    return 4 * (longest - bits // 8) - bits // 8


def test_no_message_that_takes_3216_bytes_fixed_takes_4026_encoded() -> None:
    schema = EXAMPLES[0].fixed_schema
    for (
        struct
    ) in schema.structs.values():  # where there is an int16, there are more than two bytes that are no integers
        assert excess(struct.fields, schema) < 0, struct.name
    highest = excess(schema.fields, schema)
    assert 4 * (WORST - FIXED) - FIXED > 0 > highest  # what the document's figures would need
    assert (5 * FIXED + highest) // 4 == 4019 < WORST


@tries(150)
@given(values=message_values("MetadataResponse", VERSION))
def test_the_bounds_hold_for_any_message(values: Values) -> None:
    schema = EXAMPLES[0].fixed_schema
    values.pop("_unknownTaggedFields", None)
    fixed = len(write(schema, VERSION, values))
    int16s = sum(field.type.name == "int16" for field, _ in integers(schema, VERSION, values))
    for example in EXAMPLES:
        encoded = len(write(example.encoded_schema, VERSION, values))
        assert encoded <= fixed * 5 / 4
        assert encoded <= fixed * 1.25 + int16s


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.name)
def test_the_worst_case_is_the_longest_form_of_every_encoded_integer(example: Example) -> None:
    worst = len(write(example.encoded_schema, VERSION, example.worst()))
    growth = 0
    for field, _ in integers(example.encoded_schema, VERSION, example.worst()):
        encoding = field.encoding_at(VERSION)
        if encoding is not None:
            growth += encoding.max_bytes - INTEGER_BITS[field.type.name] // 8
    assert worst == FIXED + growth <= FIXED * 1.25


# ---- the results


def test_the_sizes_of_the_benchmark_are_those_of_the_messages() -> None:
    cases = json.loads((RESULTS / "kip_625.json").read_text(encoding="utf-8"))["cases"]
    for example in EXAMPLES:
        rows = cases[example.name]["rows"]
        assert rows["fixed"]["bytes"] == FIXED
        assert rows["variable (best case)"]["bytes"] == BEST
        worst = len(write(example.encoded_schema, VERSION, example.worst()))
        assert rows["variable (worst case)"]["bytes"] == worst
        assert re.search(
            rf"variable \(worst case\) \| {worst} \|", (RESULTS / "kip_625.md").read_text(encoding="utf-8")
        )
