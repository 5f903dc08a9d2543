"""`magicbyte rebuild-index`: its words, its JSON, its exit status, and what it writes where."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from cli.command import run
from golden_data import log_case

CASE = log_case("3.9.1/txn-none")
LAST = "00000000000000000138"


def folder(tmp_path: Path, name: str = "orders-0") -> Path:
    return Path(shutil.copytree(CASE.partition_dir(), tmp_path / "log" / name))


def files(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir()}


def test_files_that_are_right_are_said_to_be_the_same(tmp_path: Path) -> None:
    path = folder(tmp_path)
    result = run("rebuild-index", path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0] == "orders-0: as Kafka 4.3 writes it, which the files there show"
    assert result.stdout.splitlines()[2] == (
        "  00000000000000000031   9.1 KiB  same: .index, .timeindex, .txnindex, .snapshot"
    )
    assert result.stdout.splitlines()[-1] == "6 segments, 0 files wrong or missing"
    assert run("rebuild-index", path, "--kafka", "3.9.1").stdout.startswith("orders-0: as Kafka 3.9.1 writes it\n")


def test_without_a_word_about_it_nothing_is_written(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / f"{LAST}.index").write_bytes(b"12345678")
    (path / f"{LAST}.timeindex").unlink()
    before = files(path)
    result = run("rebuild-index", path)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-2:] == [
        f"  {LAST}   2.3 KiB  different: .index; missing: .timeindex; "
        "same: .txnindex, .snapshot, 00000000000000000161.snapshot, leader-epoch-checkpoint",
        "6 segments, 2 files wrong or missing; nothing was written: --write puts them in their place, "
        "--out DIR elsewhere",
    ]
    assert files(path) == before


def test_write_puts_right_what_differs_and_a_second_run_finds_nothing(tmp_path: Path) -> None:
    path = folder(tmp_path)
    before = files(path)
    (path / f"{LAST}.index").write_bytes(b"12345678")
    (path / f"{LAST}.timeindex").unlink()
    result = run("rebuild-index", path.parent, "--write")
    assert result.exit_code == 0
    assert "written: .index, .timeindex\n" in result.stdout
    assert result.stdout.endswith("6 segments, 2 files wrong or missing; 2 files written\n")
    assert files(path) == before
    assert run("rebuild-index", path).exit_code == 0


def test_out_gets_all_files_and_the_log_stays_as_it_is(tmp_path: Path) -> None:
    path = folder(tmp_path)
    kinds = "index", "snapshot", "epoch"
    right = {name: content for name, content in files(path).items() if any(kind in name for kind in kinds)}
    for name in right:
        (path / name).unlink()
    before = files(path)
    result = run("rebuild-index", path, "--kafka", "3.9.1", "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert files(path) == before
    made = files(tmp_path / "out" / "orders-0")
    assert made.keys() == right.keys()
    for name in right:
        assert name.endswith("snapshot") or made[name] == right[name]


def test_json_names_each_file_with_state_and_sizes(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / f"{LAST}.timeindex").unlink()
    result = run("rebuild-index", path, "--format", "json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["total"] == {"segments": 6, "wrong": 1, "written": 0}
    (partition,) = report["partitions"]
    assert [partition[name] for name in ("topic", "partition", "kafka", "recognised")] == ["orders", 0, "4.3", True]
    assert partition["segments"][-1]["baseOffset"] == 138
    assert partition["segments"][-1]["files"][:2] == [
        {"name": f"{LAST}.index", "state": "same", "bytes": 0, "foundBytes": 0, "written": False},
        {"name": f"{LAST}.timeindex", "state": "missing", "bytes": 12, "foundBytes": None, "written": False},
    ]


def test_damage_of_the_log_is_reported_and_other_partitions_are_rebuilt(tmp_path: Path) -> None:
    path = folder(tmp_path)
    folder(tmp_path, "orders-1")
    log = path / "00000000000000000059.log"
    log.write_bytes(log.read_bytes()[:-5])
    report = json.loads(run("rebuild-index", path.parent, "--format", "json").stdout)
    assert [each["damage"] and each["damage"]["what"] for each in report["partitions"]] == ["end of the log", None]
    result = run("rebuild-index", path.parent, "--write")
    assert result.exit_code == 1
    assert "  00000000000000000053 " in result.stdout
    assert "magicbyte: cut short: " in result.stderr
    assert "00000000000000000059.log, position" in result.stderr
    assert "orders-1: as Kafka 4.3 writes it" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--kafka", "0.7.0"], "Kafka 0.7.0: expected a version of 0.8.0 to 4.4, such as 3.9.1"),
        (["--write", "--out", "elsewhere"], "--write and --out: expected one of them"),
        (["--index-interval", "much"], "expected 1 to 2147483647 bytes"),
    ],
)
def test_wrong_use_is_refused(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    result = run("rebuild-index", folder(tmp_path), *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_single_segment_is_not_enough(tmp_path: Path) -> None:
    result = run("rebuild-index", folder(tmp_path) / f"{LAST}.log")
    assert result.exit_code == 2
    assert "expected a partition folder" in result.stderr


def test_out_is_not_the_log_itself(tmp_path: Path) -> None:
    path = folder(tmp_path)
    result = run("rebuild-index", path, "--out", path.parent)
    assert result.exit_code == 2
    assert "expected a path that does not contain" in result.stderr


def test_two_partitions_of_one_name_cannot_both_go_below_out(tmp_path: Path) -> None:
    paths = [folder(tmp_path / name) for name in ("one", "two")]
    result = run("rebuild-index", *paths, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "orders-0 is there 2 times" in result.stderr


def test_a_store_can_be_read_but_not_written_to(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    for name, content in files(CASE.partition_dir()).items():
        store.pipe_file(f"/rebuild/orders-0/{name}", content)
    assert run("rebuild-index", "memory://rebuild/orders-0").exit_code == 0
    result = run("rebuild-index", "memory://rebuild/orders-0", "--write")
    assert result.exit_code == 2
    assert "expected a local folder to write to" in result.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs fcntl")
def test_a_log_directory_in_use_is_not_written_to(tmp_path: Path) -> None:
    path = folder(tmp_path)
    lock = path.parent / ".lock"
    lock.touch()
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"held\n"
        result = run("rebuild-index", path, "--write")
        broker.communicate()
    assert result.exit_code == 2
    assert "a broker is using this log directory" in result.stderr
    assert run("rebuild-index", path, "--write").exit_code == 0
