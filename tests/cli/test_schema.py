"""The schema compiler's commands: outputs as JSON, exit statuses, and what is said of bad input."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.command import run

Json = dict[str, Any]

FRAME: Json = {"type": "data", "name": "Tick", "validVersions": "0-1", "flexibleVersions": "1+"}
ID: Json = {"name": "Id", "type": "int32", "versions": "0+"}


def save(path: Path, *fields: Json, **keys: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**FRAME, "fields": list(fields), **keys}), encoding="utf-8")
    return path


@pytest.fixture
def tick(tmp_path: Path) -> Path:
    return save(tmp_path / "Tick.json", ID)


@pytest.fixture
def values(tmp_path: Path) -> Path:
    path = tmp_path / "values.jsonl"
    path.write_text('{"id": 5}\n', encoding="utf-8")
    return path


def test_check_reads_files_and_folders_and_folders_inside(tmp_path: Path, tick: Path) -> None:
    save(tmp_path / "inner" / "Bad.json", {**ID, "encoding": "unsigned32"})
    (tmp_path / "notes.md").write_text("no schema")
    result = run("schema", "check", tmp_path, "--format", "json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (report["files"], report["errors"]) == (2, 1)
    (finding,) = report["findings"]
    assert finding["path"] == str(tmp_path / "inner" / "Bad.json")
    assert finding["rule"] == "encoding-name"
    assert finding["field"] == "Tick.Id"
    assert run("schema", "check", tick).stdout == "no errors in 1 file\n"


def test_a_warning_is_printed_and_no_failure(tmp_path: Path, tick: Path) -> None:
    tick.write_text(tick.read_text().replace('"versions": "0+"', '"versions": "0+", "versions": "0+"'))
    result = run("schema", "check", tick)
    assert result.exit_code == 0
    assert ": warning: duplicate-key in Tick.Id\n" in result.stdout
    assert result.stdout.endswith("no errors in 1 file, 1 warning\n")


def test_the_project_s_own_schemas_are_sound() -> None:
    schemas = Path(__file__).parents[2] / "schemas"
    result = run("schema", "check", *(schemas / each for each in ("messages", "records", "extensions")))
    assert result.exit_code == 0
    assert result.stdout.startswith("no errors in ")


def test_size_compares_today_with_what_is_proposed(tmp_path: Path, tick: Path, values: Path) -> None:
    proposed = save(tmp_path / "new" / "Tick.json", {**ID, "encoding": "packed32"})
    result = run(
        "schema", "size", tick, "--version", "1", "--values", values, "--proposed", proposed, "--format", "json"
    )
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "message": "Tick",
        "version": 1,
        "bytes": 5,
        "fields": [
            {"field": "", "type": "Tick", "form": "message", "values": 1, "bytes": 1},
            {"field": "Id", "type": "int32", "form": "fixed32", "values": 1, "bytes": 4},
        ],
        "proposed": {
            "version": 1,
            "bytes": 2,
            "fields": [
                {"field": "", "type": "Tick", "form": "message", "values": 1, "bytes": 1},
                {"field": "Id", "type": "int32", "form": "packed32", "values": 1, "bytes": 1},
            ],
        },
    }


def test_the_messages_that_come_along_are_known_by_name(values: Path) -> None:
    values.write_text('{"throttleTimeMs": 7}')
    result = run("schema", "size", "HeartbeatResponse", "--version", "1", "--values", values)
    assert result.stdout.startswith("HeartbeatResponse version 1: 6 bytes\n")
    assert run("schema", "diff", "HeartbeatResponse", "HeartbeatResponse").stdout == "compatible: 0 changes\n"


def test_diff_says_so_by_its_exit_status(tmp_path: Path, tick: Path) -> None:
    new = save(tmp_path / "new" / "Tick.json", ID, {**ID, "name": "More"})
    result = run("schema", "diff", tick, new, "--format", "json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["compatible"] is False
    (change,) = report["changes"]
    assert (change["field"], change["change"], change["versions"]) == ("Tick.More", "field-added", ["0-1"])
    assert run("schema", "diff", tick, tick, "--format", "json").exit_code == 0


def test_advice_as_json(tick: Path, values: Path) -> None:
    report = json.loads(run("schema", "advise", tick, "--samples", values, "--format", "json").stdout)
    assert (report["version"], report["samples"], report["bytes"], report["saved"]) == (1, 1, 5, 3)
    assert report["fields"] == [
        {
            "field": "Id",
            "type": "int32",
            "values": 1,
            "lowest": 5,
            "highest": 5,
            "today": "fixed32",
            "best": "unpacked32",
            "bytes": {"fixed32": 4, "unpacked32": 1, "packed32": 1},
            "saved": 3,
            "worstGrowth": 1,
        }
    ]
    assert json.loads(run("schema", "advise", tick, "--samples", values, "--version", "0", "--format", "json").stdout)[
        "bytes"
    ] == 4  # fmt: skip


def test_generated_code_is_kept_fresh(tmp_path: Path, tick: Path) -> None:
    out, schemas = tmp_path / "out", tmp_path / "schemas"
    schemas.mkdir()
    tick.rename(schemas / "Tick.json")
    arguments = ("schema", "generate", schemas, "--out", out)
    assert run(*arguments, "--check").exit_code == 1
    assert not out.exists()
    assert run(*arguments).stdout == f"written: {out / 'tick.py'}\n1 schema, 1 module, 1 changed\n"
    assert run(*arguments, "--check").exit_code == 0
    (out / "mine.py").write_text("# not generated\n")
    save(schemas / "Tick.json", {**ID, "type": "int64"})
    assert f"stale: {out / 'tick.py'}\n" in run(*arguments, "--check").stdout
    save(schemas / "Tick.json", ID, name="Tock")
    assert run(*arguments).stdout.splitlines()[:2] == [f"removed: {out / 'tick.py'}", f"written: {out / 'tock.py'}"]
    assert sorted(path.name for path in out.iterdir()) == ["mine.py", "tock.py"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("schema", "check", "EMPTY"), "has no .json file"),
        (("schema", "check", "nowhere.json"), "does not exist"),
        (("schema", "generate", "EMPTY", "--out", "EMPTY"), "has no .json file"),
        (("schema", "size", "TICK", "--version", "1", "--values", "EMPTY"), "is a directory"),
        (("schema", "size", "TICK", "--version", "2", "--values", "VALUES"), "version of Tick, 0-1, found 2"),
        (("schema", "size", "TICK", "--version", "1", "--values", "TICK"), "the name of a field"),
        (("schema", "size", "TICK", "--version", "1", "--values", "VALUES", "--proposed-version", "1"), "--proposed"),
        (("schema", "size", "HeartbeatRespond", "--version", "1", "--values", "VALUES"), '"HeartbeatResponse"'),
        (("schema", "size", "nowhere.json", "--version", "1", "--values", "VALUES"), "nowhere.json"),
        (("schema", "size", "BAD", "--version", "1", "--values", "VALUES"), "encoding-name"),
        (("schema", "advise", "TICK", "--samples", "BINARY"), "expected UTF-8, found the byte 0xff"),
        (("schema", "advise", "TICK", "--samples", "NOTHING"), "has no sample"),
        (("schema", "advise", "TICK", "--samples", "CUT"), "line 2: line 1, column 8: expected JSON"),
        (("schema", "chekc", "TICK"), "No such command"),
    ],
)
def test_wrong_use_is_refused_in_a_line_or_two(
    arguments: tuple[str, ...], said: str, tmp_path: Path, tick: Path, values: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary").write_bytes(b'{"id": 5}\n\xff')
    (tmp_path / "nothing").write_text("\n \n")
    (tmp_path / "cut").write_text('{"id": 5}\n{"id": \n')
    names = {
        "TICK": tick, "VALUES": values, "EMPTY": tmp_path / "empty", "BINARY": tmp_path / "binary",
        "NOTHING": tmp_path / "nothing", "CUT": tmp_path / "cut",
        "BAD": save(tmp_path / "bad" / "Bad.json", {**ID, "encoding": "unsigned32"}),
    }  # fmt: skip
    result = run(*(names.get(each, each) for each in arguments))
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_what_is_assumed_for_a_file_of_an_old_kafka_is_said_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    path = tmp_path / "files" / "Tick.json"
    path.write_text('{"type": "data", "name": "Tick", "validVersions": "0", "fields": []}')
    compared = run("schema", "diff", path, path)
    assert (compared.exit_code, compared.stdout) == (0, "compatible: 0 changes\n")
    assert '"none" is assumed, as by Kafka 2.3 to 2.8' in compared.stderr
    made = run("schema", "generate", tmp_path / "files", "--out", tmp_path / "code")
    assert made.exit_code == 0
    assert "warning: 1 warning" in made.stderr
