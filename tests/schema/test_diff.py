"""Every kind of change, where it is compatible and where not; and that peers of compatible schemas read each other."""

import copy
import json
import random
from functools import partial
from typing import Any

import pytest

from engine.protocol.interpreter import RefusedError, Values, present, read, write
from engine.protocol.values import examples
from magicbyte.schema import Change, ChangeKind, MessageSchema, check, compare, load_bundled
from schema.builders import checked, field
from schema.random_schemas import random_encoding, random_schema, span

Json = dict[str, Any]

FRAME: Json = {"type": "data", "name": "Tick", "validVersions": "0-2", "flexibleVersions": "1+"}

tick = partial(checked, FRAME)


def told(changes: list[Change]) -> list[tuple[str, str, bool, str]]:
    return [
        (change.field.removeprefix("Tick."), change.kind.value, change.compatible, ",".join(map(str, change.versions)))
        for change in changes
    ]


A, B, C = field("A"), field("B"), field("C")
TAGGED = field("T", versions="1+", taggedVersions="1+", tag=0)

CASES = [
    # what, old fields, new fields, new frame, expected
    ("nothing", [A], [A], {}, []),
    ("about", [A], [field("A", about="more")], {}, []),
    ("new versions", [A], [A], {"validVersions": "0-3"}, [("Tick", "versions-added", True, "3")]),
    ("old versions gone", [A], [A], {"validVersions": "1-2"}, [("Tick", "versions-removed", False, "0")]),
    ("flexible earlier", [A], [A], {"flexibleVersions": "0+"}, [("Tick", "flexible-changed", False, "0")]),
    ("kind of record", [A], [A], {"type": "metadata"}, [("Tick", "message-changed", True, "0-2")]),
    ("a request", [A], [A], {"type": "request", "apiKey": 1}, [("Tick", "message-changed", False, "0-2")] * 2),
    ("name", [A], [A], {"name": "Tock"}, [("Tick", "message-changed", True, "0-2")]),
    ("added", [A], [A, B], {}, [("B", "field-added", False, "0-2")]),
    ("added in the last one", [A], [A, field("B", versions="2+")], {}, [("B", "field-added", False, "2")]),
    (
        "added in a new version", [A], [A, field("B", versions="3+")], {"validVersions": "0-3"},
        [("Tick", "versions-added", True, "3"), ("B", "field-added", True, "3")],
    ),
    ("added with a tag", [A], [A, TAGGED], {}, [("T", "field-added", True, "1-2")]),
    ("removed", [A, B], [A], {}, [("B", "field-removed", False, "0-2")]),
    ("ended", [A, B], [A, field("B", versions="0-1")], {}, [("B", "field-removed", False, "2")]),
    ("begins earlier", [A, field("B", versions="1+")], [A, B], {}, [("B", "field-added", False, "0")]),
    ("a tagged one removed", [A, TAGGED], [A], {}, [("T", "field-removed", True, "1-2")]),
    ("removed where no version has it", [A, field("B", versions="9+")], [A], {}, [("B", "field-removed", True, "")]),
    ("renamed", [A, B], [A, field("Bee")], {}, [("B", "field-renamed", True, "0-2")]),
    ("renamed by case", [A, field("BeeHive")], [A, field("beeHive")], {}, []),
    ("moved", [A, B, C], [C, A, B], {}, [("C", "field-moved", False, "0-2")]),
    (
        "moved past what is not there", [field("A", versions="0-1"), field("B", versions="2+")],
        [field("B", versions="2+"), field("A", versions="0-1")], {}, [],
    ),
    ("other type", [A], [field(type="string")], {}, [("A", "type-changed", False, "0-2")]),
    ("an array", [A], [field(type="[]int32")], {}, [("A", "type-changed", False, "0-2")]),
    ("sign", [A], [field(type="uint32")], {}, [("A", "type-changed", False, "0-2")]),
    ("bytes to records", [field(type="bytes")], [field(type="records")], {}, [
        ("A", "type-changed", True, "0-2")]),
    ("type where no version has it", [field(versions="9+")], [field(versions="9+", type="string")], {}, [
        ("A", "type-changed", True, "")]),
    ("wider", [A], [field(type="int64")], {}, [("A", "widened", False, "0-2")]),
    ("wider in elements", [field(type="[]int32")], [field(type="[]int64")], {}, [("A", "widened", False, "0-2")]),
    (
        "wider in a new version", [A], [field(type="int64", encoding={"0-2": "fixed32", "3+": "fixed64"})],
        {"validVersions": "0-3"}, [("Tick", "versions-added", True, "3"), ("A", "widened", True, "0-2")],
    ),
    (
        "wider too early", [A], [field(type="int64", encoding={"0-1": "fixed32", "2+": "fixed64"})], {},
        [("A", "widened", False, "2")],
    ),
    ("narrower", [field(type="int64")], [A], {}, [("A", "narrowed", False, "0-2")]),
    ("narrower, never that wide", [field(type="int64", encoding="fixed32")], [A], {}, [("A", "narrowed", True, "0-2")]),
    ("fixed to variable", [A], [field(encoding="unpacked32")], {}, [("A", "encoding-changed", False, "0-2")]),
    ("variable to variable", [field(encoding="packed32")], [field(encoding="unpacked32")], {}, [
        ("A", "encoding-changed", False, "0-2")]),
    ("narrower encoding", [field(encoding="packed32")], [field(encoding="packed16")], {}, [
        ("A", "encoding-changed", False, "0-2")]),
    ("the same encoding said out loud", [A], [field(encoding="fixed32")], {}, []),
    (
        "variable in a new version", [A], [field(encoding={"0-2": "fixed32", "3+": "unpacked32"})],
        {"validVersions": "0-3"}, [("Tick", "versions-added", True, "3"), ("A", "encoding-changed", True, "3")],
    ),
    (
        "nullable", [field(type="string")], [field(type="string", nullableVersions="1+")], {},
        [("A", "nullable-changed", False, "1-2")],
    ),
    (
        "nullable no more", [field(type="bytes", nullableVersions="0+")], [field(type="bytes", nullableVersions="2+")],
        {}, [("A", "nullable-changed", False, "0-1")],
    ),
    ("flexible override", [field(type="string")], [field(type="string", flexibleVersions="2+")], {}, [
        ("A", "flexible-changed", False, "1")]),
    ("tagged", [A, field("T", versions="1+")], [A, TAGGED], {}, [("T", "tag-changed", False, "1-2")]),
    (
        "tag of another", [TAGGED], [field("U", type="string", versions="1+", taggedVersions="1+", tag=0)], {},
        [("T", "field-removed", True, "1-2"), ("U", "field-added", True, "1-2"), ("U", "tag-reused", False, "1-2")],
    ),
    ("default", [A], [field(default=5)], {}, [("A", "default-changed", True, "0-2")]),
    ("default of a tagged one", [TAGGED], [{**TAGGED, "default": 5}], {}, [("T", "default-changed", False, "1-2")]),
    ("ignorable", [A], [field(ignorable=True)], {}, [("A", "ignorable-changed", True, "0-2")]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "old", "new", "frame", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_change_is_reported(what: str, old: list[Json], new: list[Json], frame: Json, expected: list[Any]) -> None:
    changes = compare(tick(*old), tick(*new, **frame))
    assert told(changes) == expected
    assert all(change.reason for change in changes)


def test_fields_of_structs_are_compared_in_the_versions_that_have_the_struct() -> None:
    def holding(struct: str, *fields: Json) -> MessageSchema:
        return tick({"name": "S", "type": f"[]{struct}", "versions": "1+", "fields": list(fields)})

    key = field("Key", mapKey=True)
    assert told(compare(holding("Part", A), holding("Part", A, B))) == [("S.B", "field-added", False, "1-2")]
    assert told(compare(holding("Part", A), holding("Piece", A))) == [("S", "struct-renamed", True, "1-2")]
    assert told(compare(holding("Part", field("Key")), holding("Part", key))) == [
        ("S.Key", "map-key-changed", True, "1-2")
    ]


def test_the_newest_version_is_free_while_it_is_unstable() -> None:
    old, new = field("A"), field("A", encoding={"0-1": "fixed32", "2+": "packed32"})
    request = {"type": "request", "apiKey": 9}
    stable, unstable = tick(old, **request), tick(old, **request, latestVersionUnstable=True)
    assert told(compare(stable, tick(new, **request))) == [("A", "encoding-changed", False, "2")]
    assert told(compare(unstable, tick(new, **request))) == []


def test_every_kind_of_change_is_in_a_test() -> None:
    seen = {kind for case in CASES for _, kind, _, _ in case[4]} | {"struct-renamed", "map-key-changed"}
    assert seen == {kind.value for kind in ChangeKind}


def test_a_schema_is_compatible_with_itself() -> None:
    for name in ("FetchRequest", "MetadataResponse", "ApiVersionsResponse"):
        assert compare(load_bundled(name), load_bundled(name)) == []


# ---- against what is on the wire


@pytest.mark.parametrize("seed", range(60))
def test_peers_of_compatible_schemas_read_each_other(seed: int) -> None:
    rng = random.Random(seed)
    one = random_schema(rng)
    for _ in range(8):
        other = changed(rng, one)
        old, new = check(json.dumps(one))[0], check(json.dumps(other))[0]
        assert old is not None
        if new is None:
            continue
        misread = [version for version in old.valid_versions & new.valid_versions if not understand(old, new, version)]
        if all(change.compatible for change in compare(old, new)):
            assert misread == []
        for version in misread:
            assert any(not change.compatible and version in versions for change in compare(old, new)
                       for versions in change.versions)  # fmt: skip


def changed(rng: random.Random, schema: Json) -> Json:
    """Return a schema with a change or two, which may break the rules."""
    schema = copy.deepcopy(schema)
    for _ in range(rng.randrange(1, 3)):
        fields = rng.choice(list(structs(schema)))
        if not fields:
            continue
        chosen = rng.choice(fields)
        lowest, _, highest = str(schema["validVersions"]).partition("-")
        match rng.randrange(9):
            case 0:
                fields.remove(chosen)
            case 1:
                fields.insert(rng.randrange(len(fields) + 1), field("Extra", versions=span(rng.randrange(8))))
            case 2:
                rng.shuffle(fields)
            case 3:
                chosen["type"] = rng.choice(["int16", "int32", "int64", "[]int32", "string", "bytes", "uint16"])
            case 4 if chosen["type"] in {"int16", "int32", "int64"}:
                chosen["encoding"] = random_encoding(rng, chosen["type"], chosen["versions"])
            case 5:
                chosen["nullableVersions"] = span(rng.randrange(7))
            case 6:
                chosen["versions"] = span(rng.randrange(7))
            case 7:
                schema["validVersions"] = f"{lowest}-{int(highest or lowest) + 1}"
            case _:
                chosen.pop("encoding", None)
    return schema


def structs(schema: Json) -> Any:
    """Yield the lists of fields of a schema, its own first."""
    yield schema["fields"]
    for each in [*schema["fields"], *schema.get("commonStructs", [])]:
        if "fields" in each:
            yield from structs(each)


def understand(old: MessageSchema, new: MessageSchema, version: int) -> bool:
    """Return whether what each writes in a version is read by the other with the same values."""
    for writer, reader in ((old, new), (new, old)):
        for values in examples(writer, version):
            data = write(writer, version, values)
            try:
                seen, end = read(reader, version, data)
            except RefusedError:
                return False
            if end != len(data) or not alike(writer, reader, version, values, seen):
                return False
    return True


def alike(writer: MessageSchema, reader: MessageSchema, version: int, values: Values, seen: Values) -> bool:
    """Return whether the plain fields that both have are the same, in the message itself."""
    known = {each.json_name: each for each in present(reader.fields, version)}
    return all(
        seen[each.json_name] == values[each.json_name]
        for each in present(writer.fields, version)
        if each.json_name in known and not each.type.struct
    )
