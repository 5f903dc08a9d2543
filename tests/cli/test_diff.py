"""`magicbyte diff`: its words, its JSON and its exit status. What differs: tests/engine/log/test_diff.py."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import golden_data
from cli.command import run
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.convert import convert
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.entry import entries

CASE = golden_data.log_case("3.9.1/basic-none")
OTHER = golden_data.log_case("3.9.1/basic-gzip")

Json = dict[str, Any]


def folder(tmp_path: Path, case: golden_data.Case, name: str = "orders-0") -> Path:
    target = tmp_path / name
    shutil.copytree(case.partition_dir(), target)
    return target


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.log"))


def without_last_batch(path: Path) -> int:
    """Cut the last batch off a folder's last segment; return its offset."""
    log = segments(path)[-1]
    position, entry = list(entries(log.read_bytes()))[-1]
    log.write_bytes(log.read_bytes()[:position])
    assert isinstance(entry, RecordBatch)
    return entry.base_offset


def test_the_same_records_are_said_to_be_the_same(tmp_path: Path) -> None:
    result = run("diff", CASE.partition_dir(), folder(tmp_path, CASE))
    assert result.exit_code == 0
    assert result.stdout == "same: 240 records in 1 partition compared: offset, key, value, timestamps, headers\n"
    assert result.stderr == ""


def test_what_the_other_format_has_no_place_for_is_said(tmp_path: Path) -> None:
    converted = folder(tmp_path, CASE)
    for log in segments(converted):
        log.write_bytes(b"".join(convert(log.read_bytes(), Format.V1)))
    headers = sum(bool(record["headers"]) for record in CASE.records())
    result = run("diff", CASE.partition_dir(), converted)
    assert result.exit_code == 0
    place = "for which the other side's format has no place"
    assert result.stdout.splitlines()[1:] == [f"  not compared: headers of {headers} records, {place}"]
    assert run("diff", CASE.partition_dir(), converted, "--ignore", "headers, timestamps").stdout == (
        "same: 240 records in 1 partition compared: offset, key, value\n"
    )


def test_a_difference_is_shown_with_both_records(tmp_path: Path) -> None:
    cut = folder(tmp_path, CASE)
    first = without_last_batch(cut)
    result = run("diff", CASE.partition_dir(), cut)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    count = 240 - first
    assert lines[0] == f"orders-0: {count} {'record differs' if count == 1 else 'records differ'}"
    assert lines[1].startswith(f"  offset{'s' if count > 1 else ''} {first}")
    assert lines[1].endswith(": only in a")
    assert lines[2].startswith("    a")
    assert lines[-1].startswith(f"different: {first} records in 1 partition compared")


def test_many_differences_are_counted_and_a_few_described() -> None:
    result = run("diff", CASE.partition_dir(), OTHER.partition_dir(), "--limit", 2, "--format", "json")
    assert result.exit_code == 1
    found: Json = json.loads(result.stdout)
    (partition,) = found["partitions"]
    assert not found["same"]
    assert not partition["same"]
    assert sum(partition["differing"].values()) == 240
    assert len(partition["differences"]) == 2
    first = partition["differences"][0]
    assert first["firstOffset"] == 0
    record = CASE.records()[0]
    assert first["a"]["timestamp"] == record["timestamp"]
    assert partition["a"]["digest"] != partition["b"]["digest"]
    text = run("diff", CASE.partition_dir(), OTHER.partition_dir(), "--limit", 0).stdout
    assert "and 240 more (--limit)" in text


def test_partitions_of_one_side_only_are_named(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for path, names in ((a, ("orders-0", "users-0")), (b, ("orders-0", "items-3"))):
        for name in names:
            folder(path, CASE, name)
    result = run("diff", a, b)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[:2] == [f"items-3: only in {b / 'items-3'}", f"users-0: only in {a / 'users-0'}"]
    assert run("diff", a, b, "--topic", "orders").exit_code == 0


def test_damage_ends_it_and_with_skip_does_not(tmp_path: Path) -> None:
    damaged = folder(tmp_path, CASE)
    log = segments(damaged)[0]
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)
    result = run("diff", CASE.partition_dir(), damaged)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "damage" in result.stderr
    result = run("diff", CASE.partition_dir(), damaged, "--on-damage", "skip", "--ignore", "timestamps,headers")
    assert result.exit_code == 1
    assert "only in a" in result.stdout
    assert "damage" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ignore", "offsets"], "expected some of timestamps, headers, control"),
        (["--dialect-a", "x"], "'kafka', 'enriched'"),
        (["--topic", "none"], "no topic 'none'"),
    ],
)
def test_wrong_use_is_explained(arguments: list[str], said: str) -> None:
    result = run("diff", CASE.partition_dir(named=True), CASE.partition_dir(named=True), *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_path_that_holds_no_log_is_wrong_use(tmp_path: Path) -> None:
    result = run("diff", CASE.partition_dir(), tmp_path)
    assert result.exit_code == 2
    assert "found no log" in result.stderr
