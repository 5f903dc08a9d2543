"""The rules that the grammar's page does not show in full, and the tree that a sound file becomes."""

import json
from pathlib import Path
from typing import Any

import pytest

from magicbyte.schema import (
    Encoding,
    FieldType,
    MessageSchema,
    Rule,
    SchemaErrors,
    SourcePlace,
    Versions,
    check,
    load,
    load_directory,
    read,
)
from schema.builders import field
from schema.pages import framed

Json = dict[str, Any]

FRAME: Json = {"type": "data", "name": "Tick", "validVersions": "0-9", "flexibleVersions": "3+"}


def rules(*fields: Json, **keys: object) -> list[str]:
    """Return the rules that a message with these fields breaks, in the order of the file."""
    return [error.rule.value for error in check(json.dumps({**FRAME, "fields": list(fields), **keys}))[1]]


def sound(*fields: Json, **keys: object) -> MessageSchema:
    message, errors = check(json.dumps({**FRAME, "fields": list(fields), **keys}))
    assert errors == []
    assert message is not None
    return message


# ---- KIP-625


@pytest.mark.parametrize(("type_", "bits"), [("int16", 16), ("int32", 32), ("int64", 64)])
def test_without_an_encoding_the_type_says_how_an_integer_is_written(type_: str, bits: int) -> None:
    assert sound(field(type=type_)).fields[0].encodings == ()


def test_a_name_alone_counts_in_all_versions_of_the_field() -> None:
    (only,) = sound(field(versions="2-7", encoding="packed32")).fields
    assert only.encodings == ((Versions(2, 7), Encoding("packed", 32)),)
    assert only.encoding_at(1) is None
    assert only.encoding_at(7) == Encoding("packed", 32)


def test_ranges_that_cover_the_versions_are_taken_in_any_order() -> None:
    (only,) = sound(field(encoding={"10+": "unpacked32", "0-9": "fixed32"})).fields
    assert [str(versions) for versions, _ in only.encodings] == ["0-9", "10+"]
    assert str(only.encoding_at(9)) == "fixed32"
    assert str(only.encoding_at(10)) == "unpacked32"


@pytest.mark.parametrize(
    "type_", ["string", "bool", "int8", "uint16", "uint32", "float64", "uuid", "[]int32", "[]string"]
)
def test_no_other_type_has_an_encoding(type_: str) -> None:
    assert rules(field(type=type_, encoding="packed32")) == ["encoding-type"]


@pytest.mark.parametrize("type_", ["int32", "[]int8", "[]string", "string"])
def test_only_arrays_of_encodable_integers_have_an_element_encoding(type_: str) -> None:
    assert rules(field(type=type_, elementEncoding="packed32")) == ["encoding-type"]


def test_the_elements_of_an_array_are_encoded_as_an_integer_is() -> None:
    (only,) = sound(field(type="[]int64", elementEncoding={"0-4": "fixed64", "5+": "packed32"})).fields
    assert only.type == FieldType("int64", array=True)
    assert str(only.encoding_at(5)) == "packed32"
    assert rules(field(type="[]int16", elementEncoding="packed32")) == ["encoding-bits"]


@pytest.mark.parametrize(
    ("versions", "encoding"),
    [
        ("0+", {"0-3": "fixed32", "5+": "packed32"}),
        ("1+", {"0+": "fixed32"}),
        ("0+", {"0-9": "fixed32", "10-11": "packed32"}),
        ("0-4", {"0+": "fixed32"}),
        ("0+", {}),
    ],
)
def test_gaps_and_excess_are_errors(versions: str, encoding: Json) -> None:
    assert rules(field(versions=versions, encoding=encoding)) == ["encoding-coverage"]


def test_overlapping_ranges_are_reported_even_with_another_between() -> None:
    assert rules(field(encoding={"0-5": "fixed32", "5+": "packed32"})) == ["encoding-overlap"]
    assert rules(field(encoding={"0+": "fixed32", "1-2": "packed32", "4-5": "packed32"})) == ["encoding-overlap"] * 2


@pytest.mark.parametrize(
    "name", ["unsigned32", "packed24", "FIXED32", " fixed32", "Fixed32", "packed8", "", "packed032"]
)
def test_an_unknown_name_is_an_error(name: str) -> None:
    assert rules(field(encoding=name)) == ["encoding-name"]
    assert rules(field(encoding={"0+": name})) == ["encoding-name"]


@pytest.mark.parametrize("value", [32, None, True, ["packed32"]])
def test_what_is_neither_a_name_nor_ranges_is_an_error(value: object) -> None:
    assert rules(field(encoding=value)) == ["encoding-form"]
    assert rules(field(encoding={"0+": value})) == ["encoding-form"]


@pytest.mark.parametrize("text", ["", "none", "0..", "5-3", "-1", "0-99999", "a+"])
def test_a_range_that_is_none_or_no_range_is_an_error(text: str) -> None:
    assert rules(field(encoding={text: "fixed32"})) == ["encoding-range"]


@pytest.mark.parametrize(
    ("type_", "name", "fits"),
    [
        ("int16", "packed32", False),
        ("int32", "fixed64", False),
        ("int64", "packed16", True),
        ("int64", "fixed64", True),
    ],
)
def test_an_encoding_has_at_most_the_bits_of_its_type(type_: str, name: str, fits: bool) -> None:
    assert rules(field(type=type_, encoding=name)) == ([] if fits else ["encoding-bits"])


def test_doubled_range_texts_are_noticed_even_with_one_name() -> None:
    encoding = '{"0-1": "fixed32", "2+": "fixed32", "2+": "fixed32"}'
    text = framed(f'{{"name": "A", "type": "int32", "versions": "0+", "encoding": {encoding}}}\n')
    _, errors = check(text)
    assert [(error.rule, error.warning) for error in errors] == [(Rule.DUPLICATE_KEY, False)]


def test_the_faulty_examples_of_the_document_are_all_reported_in_one_run() -> None:
    text = framed(
        '{ "name": "LeaderId", "type": "int32", "versions": "0+", "entityType": "brokerId",\n'
        '  "encoding": { "0-9": "fixed32", "10+": "unsigned32" } },\n'
        '{ "name": "tooSmall", "type": "int64",\n'
        '  "encoding": { "0-1": "fixed32", "2+", "2+": "fixed64"} }\n'
    )
    message, errors = check(text, "kip.json")
    assert message is None
    assert [(error.line, error.rule.value, error.mend) for error in errors] == [
        (3, "encoding-name", 'did you mean "unpacked32"?'),
        (4, "missing-key", 'write "versions": "0+", or the versions that have the field'),
        (5, "json", "give the key a value or remove it"),
    ]


def test_an_encoding_goes_with_all_else_that_an_integer_may_have() -> None:
    tagged = field(name="T", tag=0, taggedVersions="3+", versions="3+", encoding="packed32", default=-1, ignorable=True)
    inner = field(name="Id", mapKey=True, entityType="brokerId", encoding="unpacked32")
    assert sound(tagged, {"name": "S", "type": "[]Source", "versions": "0+", "fields": [inner]}).fields[0].default == -1


# ---- the tree


def test_a_sound_file_becomes_a_tree() -> None:
    text = """// the first comment
    {"apiKey": "3", "type": "request", "name": "TickRequest", "validVersions": "0-5", "flexibleVersions": "2+",
     "deprecatedVersions": "0", "listeners": ["broker"], "latestVersionUnstable": true, /* and now */ "fields": [
      {"name": "Sources", "type": "[]Source", "versions": "1+", "about": "Where from.", "fields": [
        {"name": "Id", "type": "int32", "versions": "1+", "mapKey": "true"}]},
      {"name": "last", "type": "Part", "versions": "2+", "nullableVersions": "2+", "default": "null",
       "taggedVersions": "2+", "tag": 0}],
     "commonStructs": [
      {"name": "Part", "versions": "2+", "fields": [{"name": "By", "type": "bytes", "versions": "2+"}]}]}
    """
    message, errors = check(text, "tick.json")
    assert errors == []
    assert message is not None
    assert (message.api_key, message.type, message.name, message.path) == (3, "request", "TickRequest", "tick.json")
    assert (str(message.valid_versions), str(message.flexible_versions)) == ("0-5", "2+")
    assert (str(message.deprecated_versions), message.listeners) == ("0", ("broker",))
    assert message.latest_version_unstable
    assert list(message.structs) == ["Source", "Part"]
    assert message.structs["Source"].versions == Versions.parse("1+")
    sources, last = message.fields
    assert sources.type == FieldType("Source", array=True, struct=True)
    assert (sources.json_name, sources.about, sources.place) == (
        "sources",
        "Where from.",
        SourcePlace("tick.json", 4, 7),
    )
    assert message.structs["Source"].fields[0].map_key
    assert (last.tag, str(last.tagged_versions), last.default, last.null_by_default) == (0, "2+", None, True)


@pytest.mark.parametrize(
    ("type_", "default", "value"),
    [
        ("int8", "-128", -128),
        ("int32", "0x7fffffff", 2**31 - 1),
        ("int64", -5, -5),
        ("uint16", "0xffff", 65535),
        ("uint32", "4294967295", 2**32 - 1),
        ("bool", True, True),
        ("bool", "TRUE", True),
        ("float64", "1.5e3", 1500.0),
        ("string", "null", "null"),
        ("string", "", ""),
        ("uuid", "AAAAAAAAAAAAAAAAAAAAAQ==", "AAAAAAAAAAAAAAAAAAAAAQ"),
        ("int32", None, 0),
        ("string", None, ""),
        ("uuid", None, "A" * 22),
    ],
)
def test_a_default_is_read_by_its_type(type_: str, default: object, value: object) -> None:
    keys = {"nullableVersions": "0+"} if default == "null" else {}
    (only,) = sound(field(type=type_, default=default, **keys)).fields
    assert only.default == (None if default == "null" else value)
    assert only.null_by_default is (default == "null")


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("int8", "128"), ("uint16", "-1"), ("int32", "0x100000000"), ("int32", "1.0"), ("int32", "ten"),
        ("bool", "yes"), ("int64", "1e3"), ("float64", "NaN"), ("float64", "1e999"), ("uuid", "AAAA"), ("uuid", "é"),
        ("bytes", "AAAA"),
        ("[]int32", "[]"), ("string", "null"), ("int32", "١"),
    ],
)  # fmt: skip
def test_a_default_that_does_not_fit_is_an_error(type_: str, default: str) -> None:
    assert rules(field(type=type_, default=default)) == ["default"]


def test_records_are_null_by_default() -> None:
    assert sound(field(type="records")).fields[0].null_by_default
    assert not sound(field(type="bytes")).fields[0].null_by_default


def test_a_message_without_versions_needs_no_more_than_its_name() -> None:
    message, errors = check('{"apiKey": 4, "type": "request", "name": "GoneRequest", "validVersions": "none"}')
    assert errors == []
    assert message is not None
    assert message.valid_versions.is_empty
    assert message.fields == ()


def test_versions_default_to_the_tagged_ones() -> None:
    (only,) = sound({"name": "A", "type": "int32", "taggedVersions": "4+", "tag": 0}).fields
    assert only.versions == Versions.parse("4+")


# ---- rules between fields and structs


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ({"tag": -1, "taggedVersions": "3+"}, "tag"),
        ({"tag": 0, "taggedVersions": "4+", "nullableVersions": "5+", "type": "string"}, "tag"),
        ({"tag": 0, "taggedVersions": "4+", "versions": "5+"}, "tag"),
        ({"tag": 0, "taggedVersions": "4+", "type": "records"}, "tag"),
        ({"tag": 0, "taggedVersions": "4+", "type": "string", "flexibleVersions": "none"}, "tag"),
        ({"tag": 0, "taggedVersions": "11+"}, "no-version"),
        ({"type": "[]records"}, "type"),
        ({"type": "[]"}, "type"),
        ({"type": ""}, "type"),
        ({"versions": ""}, "versions"),
        ({"nullableVersions": "x"}, "versions"),
        ({"name": "1st"}, "name"),
        ({"name": ""}, "name"),
        ({"about": 5}, "value"),
        ({"mapKey": "yes"}, "value"),
        ({"type": "Nobody"}, "unknown-struct"),
    ],
)
def test_a_broken_rule_of_a_field_is_reported(keys: Json, rule: str) -> None:
    assert rules(field(**keys)) == [rule]


def test_a_map_key_is_not_tagged() -> None:
    key = field(name="Id", mapKey=True, tag=0, taggedVersions="3+", versions="3+")
    assert rules({"name": "S", "type": "[]Source", "versions": "3+", "fields": [key]}) == ["map-key"]


def test_a_struct_has_the_name_of_no_other_and_not_the_messages() -> None:
    one = {"name": "S", "type": "[]Tick", "versions": "0+", "fields": [field()]}
    assert rules(one) == ["same-struct"]
    common = {"name": "Part", "versions": "0+", "fields": [field()]}
    assert rules(field(type="Part"), commonStructs=[common, common]) == ["same-struct"]
    assert rules(field(type="Part", fields=[field()]), commonStructs=[common]) == ["same-struct"]


def test_structs_inside_each_other_are_reported_wherever_the_circle_is_entered() -> None:
    structs = [
        {"name": "Left", "versions": "0+", "fields": [field(type="[]Right")]},
        {"name": "Right", "versions": "0+", "fields": [field(type="Left")]},
    ]
    assert rules(field(type="Left"), commonStructs=structs) == ["recursive-struct"]


def test_many_structs_that_share_others_are_checked_in_no_time() -> None:
    structs = [
        {"name": f"S{at}", "versions": "0+", "fields": [field(name=name, type=f"S{at + 1}") for name in "ABC"]}
        for at in range(40)
    ]
    structs.append({"name": "S40", "versions": "0+", "fields": []})
    assert rules(field(type="S0"), commonStructs=structs) == []


def test_a_common_struct_is_used_in_a_version_that_it_has() -> None:
    common = {"name": "Part", "versions": "5+", "fields": []}
    assert rules(field(type="Part", versions="0-4"), commonStructs=[common]) == ["no-version"]


def test_inline_structs_may_stand_inside_common_ones() -> None:
    inner = {"name": "In", "type": "Inner", "versions": "0+", "fields": [field()]}
    message = sound(field(type="Part"), commonStructs=[{"name": "Part", "versions": "0+", "fields": [inner]}])
    assert set(message.structs) == {"Part", "Inner"}


def test_the_flexible_versions_of_a_string_can_be_fewer() -> None:
    assert sound(field(type="string", flexibleVersions="none")).fields[0].flexible_versions == Versions.NONE
    assert sound(field(type="bytes", flexibleVersions="5+")).fields[0].flexible_versions == Versions.parse("5+")


def test_valid_versions_have_an_end() -> None:
    assert rules(validVersions="0+") == ["versions"]


def test_a_file_of_an_old_kafka_passes_with_a_warning_that_says_what_was_assumed() -> None:
    text = json.dumps({"type": "data", "name": "Tick", "validVersions": "0-2", "fields": [field()]})
    message, errors = check(text + "\n]}\n")
    assert message is not None
    assert message.flexible_versions == Versions.NONE
    assert [(error.warning, error.mend.partition(",")[0]) for error in errors] == [
        (True, '"none" is assumed'),
        (True, "the rest is ignored"),
    ]


def test_a_flexible_range_that_cannot_be_read_is_not_assumed_to_be_none() -> None:
    assert rules(field(type="string", flexibleVersions="5+"), flexibleVersions="many") == ["versions"]


def test_a_request_needs_an_api_key() -> None:
    assert rules(type="request") == ["missing-key"]
    assert rules(type="request", apiKey=40000) == ["api-key"]


# ---- files


def test_all_errors_of_a_folder_come_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**FRAME, "fields": []}))
    (tmp_path / "b.json").write_text(json.dumps({**FRAME, "fields": [field(type="long")]}))
    (tmp_path / "c.json").write_text(json.dumps({**FRAME, "fields": [], "about": ""}))
    (tmp_path / "notes.txt").write_text("not a schema")
    with pytest.raises(SchemaErrors) as raised:
        load_directory(tmp_path)
    assert [(Path(error.path).name, error.rule.value) for error in raised.value.errors] == [
        ("b.json", "type"),
        ("c.json", "same-name"),
    ]
    (tmp_path / "b.json").unlink()
    (tmp_path / "c.json").unlink()
    assert list(load_directory(tmp_path)) == ["Tick"]


def test_a_file_that_is_not_utf_8_is_reported_with_the_position(tmp_path: Path) -> None:
    path = tmp_path / "tick.json"
    path.write_bytes(b'{"type":\n "d\xe9t"}')
    message, (error,) = read(path)
    assert message is None
    assert (error.line, error.column, error.found) == (2, 4, "the byte 0xe9")
    with pytest.raises(SchemaErrors, match=r"tick.json:2:4: json: expected UTF-8"):
        load(path)
