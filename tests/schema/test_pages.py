"""The pages on Kafka's messages: complete, true to the schemas, readable."""

import doctest
import json
import re
from functools import cache

import pytest

from engine.protocol.schemas import ROOT, all_schemas
from magicbyte.schema import check
from magicbyte.schema.pages import Folder, pages

DOCS = ROOT / "docs/protocol"
MOST_BYTES = 1_500_000  # of all pages


@cache
def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def version_rows(name: str) -> dict[int, list[str]]:
    """Return the cells behind each version in the table of versions."""
    rows = re.findall(r"^\| \*\*(\d+)\*\*([^|]*)\|(.*)\|$", page(name), re.MULTILINE)
    return {int(number): [mark.strip(), *(cell.strip() for cell in cells.split("|"))] for number, mark, cells in rows}


def test_every_field_of_every_message_has_a_row_on_a_page() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    parts = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z|^<!--)", text, re.MULTILINE | re.DOTALL))
    alone = dict(re.findall(r"^# (\w+)\n(.*?)(?=^<!--|\Z)", text, re.MULTILINE | re.DOTALL))
    for name, message in all_schemas().items():
        part = parts.get(name) or alone[name]
        for struct in message.structs.values():
            for field in struct.fields:
                assert re.search(rf"^\| (· )+{field.name} \|", part, re.MULTILINE), (name, struct.name, field.name)
        for field in message.fields:
            assert f"\n| {field.name} |" in part, (name, field.name)


def test_the_list_leads_to_every_page() -> None:
    listed = re.findall(r"\]\(([^)#]+\.md)\)", page("messages.md"))
    assert sorted({*listed, "messages.md"}) == sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
    assert len(set(listed)) > 130


def test_all_pages_together_are_not_too_much() -> None:
    assert sum(path.stat().st_size for path in DOCS.rglob("*.md")) < MOST_BYTES


def test_no_word_is_taken_for_a_mark_of_markdown() -> None:
    for path in DOCS.rglob("*.md"):
        if path.name != "README.md":
            text = re.sub(r"<!--.*?-->", "", path.read_text(encoding="utf-8"))
            prose = re.sub(r"`[^`]*`|\]\([^)]*\)|\*\*\d+\*\*|^\* ", "", text, flags=re.MULTILINE)
            assert not re.search(r"[_*<>]", prose), path


def test_headers_follow_flexible_versions_with_two_exceptions() -> None:
    assert [row[2] for row in version_rows("metadata.md").values()] == ["1, 0"] * 9 + ["2, 1"] * 5
    assert [row[2] for row in version_rows("api-versions.md").values()] == ["1, 0"] * 3 + ["2, 0"] * 3
    assert [row[2] for row in version_rows("controlled-shutdown.md").values()] == ["0, 0", "1, 0", "1, 0", "2, 1"]
    assert {row[2] for row in version_rows("sasl-handshake.md").values()} == {"1, 0"}


def test_a_version_tells_which_fields_come_and_go() -> None:
    rows = version_rows("fetch.md")
    assert rows[13][3] == (
        "Request, gone: Topics.Topic, ForgottenTopicsData.Topic; new: Topics.TopicId, ForgottenTopicsData.TopicId. "
        "Response, gone: Responses.Topic; new: Responses.TopicId."
    )
    assert (
        rows[7][3] == "Request, new: SessionId, SessionEpoch, ForgottenTopicsData. Response, new: ErrorCode, SessionId."
    )
    assert version_rows("metadata.md")[1][3].startswith("Request, may be null: Topics. Response, new: Brokers.Rack,")
    assert version_rows("produce.md")[9][:2] == ["flexible", "2.8 and later"]
    assert version_rows("produce.md")[0][:2] == ["deprecated", "0.8.2 to 3.9"]
    assert version_rows("stored/offset-commit.md")[4] == ["", "Flexible from here on. New: topicId."]
    assert list(version_rows("extensions/leader-state.md")) == [0, 7, 10]


def test_every_version_of_an_api_has_a_release_and_something_new() -> None:
    requests = [message for message in all_schemas().values() if message.type == "request"]
    assert len(requests) == 95
    for request in requests:
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", request.name.removesuffix("Request")).lower()
        rows = version_rows(f"{name}.md")
        assert list(rows) == list(request.valid_versions), name
        for version, (_, release, _, news) in rows.items():
            assert re.fullmatch(r"[\d.]+ (to [\d.]+|and later)", release), (name, version)
            assert bool(news) == (version != 0), (name, version)


def test_the_history_names_nothing_but_apis_and_their_versions() -> None:
    history = json.loads((DOCS / "history.json").read_text(encoding="utf-8"))
    for name, api in history.items():
        versions = {str(version) for version in all_schemas()[name + "Request"].valid_versions}
        assert set(api["releases"]) == versions, name
        assert set(api.get("notes", {})) < versions, name
        assert set(api) <= {"releases", "notes"}


def test_encodings_nulls_tags_and_defaults_are_shown_with_their_versions() -> None:
    message, errors = check(
        """{"type": "data", "name": "Reading", "about": "A reading.", "validVersions": "0-3", "flexibleVersions": "2+",
        "fields": [
          {"name": "Id", "type": "int32", "versions": "0+", "encoding": {"0-1": "fixed32", "2+": "packed32"}},
          {"name": "Note", "type": "string", "versions": "1+", "nullableVersions": "2+", "about": "A *note* in a_b."},
          {"name": "Ids", "type": "[]int64", "versions": "3+", "elementEncoding": "unpacked64",
           "taggedVersions": "3+", "tag": 0},
          {"name": "Old", "type": "bool", "versions": "0-1", "default": "true", "ignorable": true}]}"""
    )
    assert message is not None, errors
    (text,) = pages({"Reading": message}, Folder("schemas", "src/meter", "..")).values()
    rows = text.split("|---|---|---|---|---|\n")[1]
    assert rows == (
        "| Id | `int32`, fixed32 in 0-1, packed32 in 2+ | all |  |  |\n"
        "| Note | `string`, null in 2+ | 1+ |  | A `*note*` in `a_b`. |\n"
        "| Ids | `[]int64`, tag 0, unpacked64 | 3+ |  |  |\n"
        "| Old | `bool` | 0-1, ignorable | true |  |\n"
    )
    assert "| **1** | New: Note. |\n" in text
    assert "| **2** flexible | Flexible from here on. Written as packed32: Id; may be null: Note; gone: Old. |" in text
    assert "[`meter.reading`](../src/meter/reading.py)" in text


def test_the_python_of_the_guide_works_as_printed() -> None:
    result = doctest.testfile(str(DOCS / "README.md"), module_relative=False)
    assert result.attempted > 4
    assert result.failed == 0


@pytest.mark.parametrize("name", ["leader-state", "metadata-response-unpacked"])
def test_an_example_of_encodings_says_how_its_integers_are_written(name: str) -> None:
    assert "unpacked32" in page(f"extensions/{name}.md")
