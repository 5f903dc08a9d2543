"""`magicbyte convert`: its words, its JSON and its exit status. The written logs: tests/engine/log/test_convert.py."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import golden_data
from cli.command import run
from magicbyte.tools.offline.convert import STATE

TXN = golden_data.log_case("3.9.1/txn-none")
ZSTD = golden_data.log_case("4.3.1/basic-zstd")
GZIP = golden_data.log_case("0.10.2.2/basic-gzip")

Json = dict[str, Any]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, case in (("orders-0", TXN), ("orders-1", GZIP)):
        shutil.copytree(case.partition_dir(), tmp_path / "source" / name)
    return tmp_path / "source"


def test_what_was_done_and_lost_is_said(source: Path, tmp_path: Path) -> None:
    result = run("convert", source, "--to", "v1", "--out", tmp_path / "out", "--verify")
    assert result.exit_code == 0
    assert result.stderr == ""
    rows = TXN.batches()
    data = [row for row in rows if not row["isControl"]]
    markers = len(rows) - len(data)
    records = TXN.records()
    with_headers = sum(bool(record["headers"]) for record in records)
    lines = result.stdout.splitlines()
    assert lines[0].startswith("orders-0: ")
    assert lines[0].endswith(f"{len(records)} records converted")
    assert f"  lost: headers of {with_headers} records" in lines
    assert f"  lost: {markers} markers that end transactions" in lines
    assert f"  lost: leader epochs of {len(data)} batches" in lines
    assert any(line.startswith("orders-1: ") and line.endswith("all unchanged") for line in lines)
    assert lines.count("  verified: the same records as in the source") == 2
    assert any(line.startswith("total: 2 of 2 partitions converted") for line in lines)


def test_the_report_as_json_is_that_of_the_library(source: Path, tmp_path: Path) -> None:
    arguments = ("convert", source, "--to", "v0", "--codec", "none", "--out", tmp_path / "out", "--format", "json")
    result = run(*arguments)
    assert result.exit_code == 0
    found: Json = json.loads(result.stdout)
    first, second = found["partitions"]
    assert (first["partition"], first["path"]) == ("orders-0", str(tmp_path / "out" / "orders-0"))
    assert (first["resumed"], first["verified"], first["error"], first["differing"]) == (False, False, None, None)
    assert first["lost"]["timestamps"] == len(TXN.records())
    assert second["records"] == len(GZIP.records())
    for name in ("bytesIn", "bytesOut", "records"):
        assert found["total"][name] == first[name] + second[name]
    state, *partitions = map(json.loads, (tmp_path / "out" / STATE).read_text().splitlines())
    assert state["complete"]
    assert state["conversion"] == {
        "to": "v0", "codec": "none", "fixLz4": False, "kafka": "0.9.0.1", "dialect": None, "newCluster": False,
    }  # fmt: skip
    assert [each["partition"] for each in partitions] == ["orders-0", "orders-1"]
    again: Json = json.loads(run(*arguments).stdout)
    assert all(each.pop("resumed") for each in again["partitions"])
    assert again["total"] == found["total"]


def test_what_was_converted_is_the_same_log_to_diff_and_cat(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("convert", source, "--to", "enriched", "--codec", "lz4", "--out", out).exit_code == 0
    assert run("diff", source, out).exit_code == 0
    options = ("--topic", "orders", "--format", "csv", "--values", "hex")
    before, after = (run("cat", path, *options).stdout.splitlines() for path in (source, out))
    assert [line.split(",")[:3] for line in after] == [line.split(",")[:3] for line in before]
    assert after[0].startswith("topic,partition,offset,")


def test_damage_is_reported_and_leaves_out_one_partition(source: Path, tmp_path: Path) -> None:
    log = min((source / "orders-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1])
    result = run("convert", source, "--to", "v2", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert str(log) in result.stderr
    assert "magicbyte salvage" in result.stderr
    assert "orders-0: not converted" in result.stdout
    assert "total: 1 of 2 partitions converted" in result.stdout
    assert not (tmp_path / "out" / "orders-0").exists()
    assert (tmp_path / "out" / "orders-1").exists()


def test_zstd_below_v2_wants_another_codec(tmp_path: Path) -> None:
    result = run("convert", ZSTD.partition_dir(named=True), "--to", "v1", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "basic-zstd-0: zstd needs magic 2" in result.stderr
    assert "--codec gzip" in result.stderr
    other = run("convert", ZSTD.partition_dir(named=True), "--to", "v1", "--codec", "gzip", "--out", tmp_path / "other")
    assert other.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing option '--to'"),
        (["--to", "v3"], "'v3' is not one of"),
        (["--to", "v1", "--codec", "zstd"], "zstd needs magic 2"),
        (["--to", "v2", "--kafka", "0.9.0.1"], "expected 0.11 or later"),
        (["--to", "v2", "--topic", "users"], "no topic 'users'"),
    ],
)
def test_wrong_use_is_explained_and_writes_nothing(
    source: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    result = run("convert", source, "--out", tmp_path / "out", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_name_gets_one(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    shutil.copytree(GZIP.partition_dir(), folder)
    assert "--as TOPIC-N" in run("convert", folder, "--to", "v2", "--out", tmp_path / "out").stderr
    result = run("convert", folder, "--to", "v2", "--out", tmp_path / "out", "--as", "users-12")
    assert result.exit_code == 0
    assert (tmp_path / "out" / "users-12").exists()
