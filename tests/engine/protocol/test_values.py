"""The examples that all comparisons use have in them what they promise; the interpreter reads back what it wrote."""

import random
from collections import defaultdict
from typing import Any

from engine.protocol.interpreter import UNKNOWN, Values, default_of, present, read, write
from engine.protocol.schemas import all_schemas, versions
from engine.protocol.values import examples
from magicbyte.schema.tree import INTEGER_BITS, FieldSchema, MessageSchema

Seen = dict[tuple[str, str], list[Any]]  # by struct and field


def gather(
    schema: MessageSchema, struct: str, fields: tuple[FieldSchema, ...], version: int, values: Values, seen: Seen
) -> None:
    seen[struct, UNKNOWN].append(values.get(UNKNOWN))
    for field in present(fields, version):
        value = values[field.json_name]
        seen[struct, field.name].append(value)
        if field.type.struct:
            for each in (value or []) if field.type.array else [value] if value is not None else []:
                gather(schema, field.type.name, schema.structs[field.type.name].fields, version, each, seen)


def fields_of(
    schema: MessageSchema, struct: str, fields: tuple[FieldSchema, ...], version: int
) -> dict[tuple[str, str], FieldSchema]:
    found = {}
    for field in present(fields, version):
        found[struct, field.name] = field
        if field.type.struct:
            found |= fields_of(schema, field.type.name, schema.structs[field.type.name].fields, version)
    return found


def test_each_field_is_once_at_its_default_and_not_null_empty_and_at_its_bounds_in_every_version() -> None:
    for name, version in versions():
        schema = all_schemas()[name]
        seen: Seen = defaultdict(list)
        for values in examples(schema, version):
            gather(schema, name, schema.fields, version, values, seen)
        for where, field in fields_of(schema, name, schema.fields, version).items():
            found, label = seen[where], (name, version, *where)
            assert any(value != default_of(schema, field) for value in found), label
            assert (None in found) == (version in field.nullable_versions), label
            if field.type.array:
                assert [] in found, label
                assert any(value and len(value) > 1 for value in found), label
            elif field.type.name in INTEGER_BITS:
                bits, signed = INTEGER_BITS[field.type.name], not field.type.name.startswith("u")
                bounds = {-(1 << bits - 1), (1 << bits - 1) - 1} if signed else {0, (1 << bits) - 1}
                assert bounds | {default_of(schema, field)} <= set(found), label
            elif field.type.name in ("string", "bytes", "records"):
                assert "" in found, label
        if version in schema.flexible_versions:
            for struct in {struct for struct, _ in seen}:
                assert any(seen[struct, UNKNOWN]), (name, version, struct)


def test_what_the_interpreter_writes_it_reads_back() -> None:
    for name, version in versions():
        for values in examples(all_schemas()[name], version):
            data = write(all_schemas()[name], version, values)
            assert read(all_schemas()[name], version, data) == (values, len(data))


def test_examples_are_the_same_in_every_run() -> None:
    schema = all_schemas()["MetadataResponse"]
    random.seed(1)
    first = list(examples(schema, 9))
    random.seed(2)
    assert list(examples(schema, 9)) == first
