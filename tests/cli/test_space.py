"""`magicbyte space`: what it prints, and its options."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import golden_data
from cli.command import run
from engine.log.appended import batch_of
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import TimestampType

CASE = golden_data.log_case("4.3.1/basic-zstd")
TITLES = (
    "topics",
    "largest partitions",
    "age of segments, by their newest record",
    "formats and codecs",
    "sizes of batches",
    "beside the logs",
    "records before compression, and as a multiple of the log",
    "heaviest keys, by bytes of their records",
    "heaviest header names, by bytes of name and value",
)
Json = dict[str, Any]


def space(*arguments: str | Path, status: int = 0) -> Json:
    result = run("space", "--json", *arguments)
    assert result.exit_code == status, result.stderr
    found: Json = json.loads(result.stdout)
    return found


def test_the_text_has_each_section_with_shares() -> None:
    result = run("space", CASE.partition_dir(named=True), "--deep", "--older-than", "1d")
    assert result.exit_code == 0
    text = result.stdout
    for title in TITLES:
        assert f"\n{title}\n" in text
    assert "basic-zstd" in text
    assert "100.0%" in text
    assert "batches whose records are all older" in text


def test_without_deep_nothing_is_decoded(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    content = bytearray(batch_of(0, 1, 3))
    content[-1] ^= 0xFF  # in the last record
    (folder / f"{0:020}.log").write_bytes(content)
    assert space(folder)["contents"] is None
    assert space(folder, "--deep", status=1)["total"]["damage"] == 1


def test_top_limits_the_lists() -> None:
    found = space(CASE.partition_dir(named=True), "--deep", "--top", "3")["contents"]
    assert len(found["keys"]["heaviest"]) == 3
    assert len(found["headers"]["heaviest"]) == 3


def test_a_prefix_of_keys_ends_before_the_first_delimiter() -> None:
    found = space(CASE.partition_dir(named=True), "--deep", "--delimiters", "-", "--top", "1")["contents"]
    (heaviest,) = found["keyPrefixes"]["heaviest"]
    keyed = [record for record in CASE.records() if (record["key"] or "").startswith("a2V5L")]  # key-
    assert (heaviest["text"], heaviest["records"]) == ("key", len(keyed))


def test_a_topic_is_chosen_by_name(tmp_path: Path) -> None:
    for name in ("a-0", "b-0", "b-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").write_bytes(batch_of(0, 1))
    assert {each["topic"] for each in space(tmp_path)["topics"]} == {"a", "b"}
    found = space(tmp_path, "--topic", "b")
    assert [each["topic"] for each in found["topics"]] == ["b"]
    assert found["total"]["partitions"] == 2
    assert "and 1 partition more" in run("space", tmp_path, "--top", "2").stdout


def test_damage_is_reported_with_file_and_position(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    sound = batch_of(0, 1, 3)
    (folder / f"{0:020}.log").write_bytes(sound + b"x" * 70)
    result = run("space", folder)
    assert result.exit_code == 1
    assert f"position {len(sound)}" in result.stderr
    assert "1 batch;" in result.stdout


def test_a_folder_that_a_broker_ignores_is_counted_and_named(tmp_path: Path) -> None:
    for name in ("a-0", f"a-1.{'0' * 32}-delete"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").write_bytes(batch_of(0, 1))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert "a deleted partition that the broker had not removed" in run("space", tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--delimiters", "é"], "expected ASCII characters"),
        (["--top", "0"], "expected a number from 1 to 10000"),
        (["--older-than", "x"], "expected a time such as 7d"),
    ],
)
def test_a_bad_option_is_refused(arguments: list[str], message: str) -> None:
    result = run("space", CASE.partition_dir(named=True), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_page_has_all_sections_and_escapes_keys(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    record = Record(0, 1, TimestampType.CREATE_TIME, b"<script>alert(1)</script>", b"v" * 50)
    (folder / f"{0:020}.log").write_bytes(encode_records([record], Format.V2))
    result = run("space", folder, "--deep", "--html", tmp_path / "space.html")
    assert result.exit_code == 0
    page = (tmp_path / "space.html").read_text()
    for title in ("topics", "formats and codecs", "heaviest keys, by bytes of their records"):
        assert f"<h2>{title}</h2>" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page


def test_a_page_does_not_replace_a_log(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = folder / f"{0:020}.log"
    log.write_bytes(batch_of(0, 1))
    result = run("space", folder, "--html", log)
    assert result.exit_code == 2
    assert log.read_bytes() == batch_of(0, 1)


def test_a_terminal_without_blocks_gets_bars_of_number_signs() -> None:
    line = [sys.executable, "-m", "magicbyte", "space", str(CASE.partition_dir(named=True))]
    result = subprocess.run(line, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=True)
    assert b"####################" in result.stdout
