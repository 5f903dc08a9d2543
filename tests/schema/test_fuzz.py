"""Whatever a file holds, it is checked: a tree or errors, in a bounded time, and never an exception."""

import json
import random
import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import tries
from magicbyte.schema import MessageSchema, SchemaError, bundled, check
from magicbyte.schema.scan import MAX_CHARACTERS, MAX_DEPTH, SourceText, Value, scan
from schema.random_schemas import random_schema

PARTS = st.sampled_from(
    ["{", "}", "[", "]", ",", ":", '"', "//", "/*", "*/", "\\", "\\u", "\\ud800", "null", "true", "-", "1e9", "0+",
     "none", '"fields"', '"encoding"', '"type"', '"[]', '"tag": 0', "\n", "\0", "\ufeff", "٣", "9" * 30]
)  # fmt: skip


@cache
def real_files() -> tuple[str, ...]:
    """Return what some of Kafka's files hold, the ones that use most of the language among them."""
    names = ("FetchRequest", "MetadataResponse", "ApiVersionsResponse", "AddPartitionsToTxnRequest", "RequestHeader")
    kafka = tuple(bundled()[name].read_text(encoding="utf-8") for name in names)
    return (*kafka, *(json.dumps(random_schema(random.Random(seed)), indent=1) for seed in range(10)))


def is_reported(outcome: tuple[MessageSchema | None, list[SchemaError]]) -> bool:
    """Return whether a check came to what it may: a tree or an error, and every error whole."""
    message, errors = outcome
    assert all(each.line > 0 and each.column > 0 and each.expected and each.found and each.mend for each in errors)
    assert errors == sorted(errors)
    assert all(isinstance(str(each), str) for each in errors)
    return (message is None) == any(not each.warning for each in errors)


@given(text=st.text(max_size=200))
def test_errors_in_any_text_are_reported(text: str) -> None:
    assert is_reported(check(text))


@given(parts=st.lists(PARTS, max_size=60))
def test_errors_in_any_parts_of_the_language_are_reported(parts: list[str]) -> None:
    assert is_reported(check("".join(parts)))


@tries(300)
@given(data=st.data())
def test_errors_in_a_real_file_with_parts_removed_doubled_or_inserted_are_reported(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(real_files()))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 40)))
        other = data.draw(st.one_of(st.just(""), PARTS, st.just(text[start:end] * 2), st.text(max_size=5)))
        text = text[:start] + other + text[end:]
    assert is_reported(check(text))


@tries(300)
@given(data=st.data())
def test_errors_in_a_real_file_with_other_values_are_reported(data: st.DataObject) -> None:
    """Mutates the values, not the text, so that what is checked lies behind the JSON."""
    schema = json.loads(data.draw(st.sampled_from(real_files())))
    words = ["0+", "3-1", "none", "int64", "[]int32", "[]Topic", "Topics", "packed32", "-1", "0x7f", "null"]
    plain_values = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
    values = st.one_of(plain_values, st.builds(list), st.builds(dict), st.sampled_from(words))
    for _ in range(data.draw(st.integers(1, 4))):
        objects = [schema, *objects_in(schema.get("fields", [])), *objects_in(schema.get("commonStructs", []))]
        chosen = data.draw(st.sampled_from(objects))
        key = data.draw(st.sampled_from([*sorted(chosen), "tag", "taggedVersions", "encoding", "default", "type"]))
        chosen[key] = data.draw(values)
    assert is_reported(check(json.dumps(schema)))


def objects_in(value: object) -> list[dict[str, object]]:
    if isinstance(value, list):
        return [found for item in value for found in objects_in(item)]
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in objects_in(item))]
    return []


@pytest.mark.parametrize("text", ["[" * 200_000, '{"fields": [' * 100_000, "/*" * 200_000, '"' + "\\u0041" * 100_000])
def test_deep_and_endless_texts_end(text: str) -> None:
    assert is_reported(check(text))


def test_a_large_file_full_of_errors_is_checked_in_seconds() -> None:
    unknown = [{"name": f"A{at}", "type": f"Missing{at}", "versions": "0+"} for at in range(3000)]
    known = [{"name": f"B{at}", "type": f"Struct{at}", "versions": "0+", "fields": []} for at in range(3000)]
    schema = {"type": "data", "name": "T", "validVersions": "0", "flexibleVersions": "0+", "fields": unknown + known}
    start = time.process_time()
    _, errors = check(json.dumps(schema))
    assert len(errors) == 3000
    assert time.process_time() - start < 10


def test_the_depth_and_the_length_of_a_file_are_bounded() -> None:
    assert [each.rule for each in check("[" * MAX_DEPTH + "]" * MAX_DEPTH)[1]] == ["json"]
    assert [each.rule for each in check("[" * (MAX_DEPTH + 1))[1]] == ["size"]
    assert [each.rule for each in check(" " * (MAX_CHARACTERS + 1))[1]] == ["size"]


@given(value=st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
))  # fmt: skip
def test_json_is_scanned_as_the_library_reads_it(value: object) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        found, errors = scan(SourceText(text, "x.json"))
        assert errors == []
        assert plain(found) == value


def plain(value: Value | None) -> object:
    """Return what the library makes of the same text."""
    assert value is not None
    match value.kind:
        case "object":
            return {member.key: plain(member.value) for member in value.members}
        case "array":
            return [plain(item) for item in value.items]
        case "string":
            return value.text
        case _:
            return json.loads(value.text)


def test_every_key_and_value_has_its_place() -> None:
    source = SourceText('// one\n{"a":\r\n  [1, /* two\n */ "é"], "b": {}}', "x.json")
    found, errors = scan(source)
    assert errors == []
    assert found is not None
    first, second = found.members
    places = [found.at, first.at, *(item.at for item in first.value.items), second.at, second.value.at]
    assert [(source.place(at).line, source.place(at).column) for at in places] == [
        (2, 1), (2, 2), (3, 4), (4, 5), (4, 11), (4, 16),
    ]  # fmt: skip
