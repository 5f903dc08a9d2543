import json
import shutil
from pathlib import Path

import pytest

from cli.command import run
from golden_data import checkpoints, log_case
from magicbyte.engine.log.files.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER,
    HIGH_WATERMARK,
    RECOVERY_POINT,
    format_offset_checkpoint,
    parse_offset_checkpoint,
)
from magicbyte.engine.log.files.filesystem import LocalLock

GZIP, TRANSACTIONS, OTHER = "compact-gzip", "txn-compact-none", "basic-none"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory of 3.9.1 as it was closed, whose cleaner knows one of two compacted topics."""
    path = tmp_path / "logs"
    path.mkdir()
    for name in (f"{GZIP}.before", f"{TRANSACTIONS}.before", OTHER):
        case = log_case(f"3.9.1/{name}")
        shutil.copytree(case.partition_dir(), path / f"{case.topic}-{case.partition}")
    stage = next(each for each in checkpoints() if each.id == "3.9.1/clean-shutdown")
    for name, content in stage.files.items():
        (path / name).write_bytes(content)
    points = parse_offset_checkpoint((path / RECOVERY_POINT).read_bytes())
    here = {key: offset for key, offset in points.items() if (path / str(key)).is_dir()}
    (path / RECOVERY_POINT).write_bytes(format_offset_checkpoint(here))
    (path / HIGH_WATERMARK).unlink()
    reached = parse_offset_checkpoint((path / RECOVERY_POINT).read_bytes())
    present = {key: offset for key, offset in reached.items() if (path / str(key)).exists()}
    (path / RECOVERY_POINT).write_bytes(format_offset_checkpoint(present))
    (path / CLEANER).write_text(f"0\n1\n{GZIP} 0 0\n")
    return path


def snapshot(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in path.rglob("*")
        if each.is_file() and each.name != ".lock"
    }


def test_the_topics_that_a_cleaner_knows_are_compacted_and_no_others(logs: Path) -> None:
    before = snapshot(logs)
    done = run("compact", "--in-place", logs)
    assert done.exit_code == 0
    assert "181 superseded, 9 without a key" in done.stdout
    assert done.stdout.endswith("1 partition: 21.0 KiB gone\n")
    after = snapshot(logs)
    changed = {name.partition("/")[0] for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {f"{GZIP}-0", CLEANER}
    assert parse_offset_checkpoint(after[CLEANER]) == {(GZIP, 0): 276}
    assert run("verify", logs, "--deep").exit_code == 0
    assert "nothing to compact below offset 276" in run("compact", "--in-place", logs).stdout


def test_the_compacted_log_equals_that_of_the_real_cleaner(logs: Path) -> None:
    run("compact", "--in-place", logs, "--topic", TRANSACTIONS)
    printed = run("cat", logs / f"{TRANSACTIONS}-0", "--format", "jsonl").stdout.splitlines()
    expected = [each["offset"] for each in log_case(f"3.9.1/{TRANSACTIONS}.after").records()]
    assert [json.loads(line)["offset"] for line in printed] == expected


def test_a_dry_run_says_the_same_and_changes_nothing(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_800_000_000_000_000_000)  # it is in the batches with tombstones
    before = snapshot(logs)
    arguments = ("compact", "--in-place", logs, "--topic", GZIP, "--topic", TRANSACTIONS, "--format", "json")
    said = json.loads(run(*arguments, "--dry-run").stdout)
    assert snapshot(logs) == before
    assert json.loads(run(*arguments).stdout) == {**said, "dryRun": False}
    assert said["savedBytes"] > 30_000
    assert {each["partition"] for each in said["partitions"]} == {f"{GZIP}-0", f"{TRANSACTIONS}-0"}


def test_memory_that_does_not_suffice_means_more_rounds_and_the_same_result(logs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(logs, copy)
    done = json.loads(run("compact", "--in-place", logs, "--dedupe-buffer", "700", "--format", "json").stdout)
    assert len(done["partitions"][0]["rounds"]) > 2
    run("compact", "--in-place", copy)

    def rows(path: Path) -> list[str]:
        return run("cat", path / f"{GZIP}-0", "--format", "jsonl").stdout.splitlines()

    assert rows(logs) == rows(copy) != []


def test_merged_sets_hold_the_same_records(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    shutil.copytree(log_case("0.10.2.2/compact-snappy.before").partition_dir(), folder)
    run("compact", "--in-place", "--drop-unkeyed", folder)
    before = run("cat", folder, "--format", "jsonl").stdout
    sets = len(run("cat", folder, "--batches").stdout.splitlines())
    done = json.loads(run("compact", "--in-place", "--drop-unkeyed", folder, "--merge-sets", "--format", "json").stdout)
    merged = done["partitions"][0]["rounds"][0]["dropped"]["setsMerged"]
    assert run("cat", folder, "--format", "jsonl").stdout == before
    assert len(run("cat", folder, "--batches").stdout.splitlines()) == sets - merged
    assert merged > 5
    assert run("verify", folder, "--deep").exit_code == 0


def test_nothing_is_compacted_unasked(logs: Path) -> None:
    (logs / CLEANER).write_bytes(b"")
    done = run("compact", "--in-place", logs)
    assert done.exit_code == 2
    assert "no partition was compacted before: expected --topic" in done.stderr


def test_a_directory_in_use_or_of_a_killed_broker_is_refused(logs: Path) -> None:
    lock = LocalLock(str(logs / ".lock"))
    assert "a broker is using this log directory" in run("compact", "--in-place", logs).stderr
    lock.release()
    (logs / CLEAN_SHUTDOWN).unlink()
    done = run("compact", "--in-place", logs)
    assert (done.exit_code, "was not shut down cleanly" in done.stderr) == (2, True)


def test_a_damaged_log_is_left_alone_and_the_others_are_compacted(logs: Path) -> None:
    path = logs / f"{GZIP}-0" / "00000000000000000000.log"
    damaged = bytearray(path.read_bytes())
    damaged[200] ^= 1
    path.write_bytes(damaged)
    done = run("compact", "--in-place", logs, "--topic", GZIP, "--topic", TRANSACTIONS)
    assert done.exit_code == 1
    assert f"{GZIP}-0: damaged, not compacted" in done.stdout
    assert "crc" in done.stderr
    assert path.read_bytes() == damaged
    assert f"{TRANSACTIONS}-0: 17.7 KiB of 31.4 KiB gone" in done.stdout
    assert (logs / CLEAN_SHUTDOWN).exists()


@pytest.mark.parametrize("damage", ["a bit", "zeros after the end", "a torn end"])
def test_a_damaged_log_without_indexes_is_not_cut_as_a_broker_would(logs: Path, damage: str) -> None:
    path = max((logs / f"{GZIP}-0").glob("*.log"))
    whole = path.read_bytes()
    found = {"a bit": whole[:200] + b"\xff" + whole[201:], "zeros after the end": whole + bytes(100),
             "a torn end": whole[:-1]}[damage]  # fmt: skip
    path.write_bytes(found)
    for kind in ("index", "timeindex"):
        path.with_suffix(f".{kind}").unlink()
    done = run("compact", "--in-place", logs)
    assert (done.exit_code, path.name in done.stderr) == (1, True)
    assert path.read_bytes() == found


def test_a_dry_run_tells_of_a_damaged_snapshot_and_leaves_it(logs: Path) -> None:
    path = max((logs / f"{TRANSACTIONS}-0").glob("*.snapshot"))
    path.write_bytes(path.read_bytes()[:-1])
    before = snapshot(logs)
    done = run("compact", "--in-place", logs, "--topic", TRANSACTIONS, "--dry-run")
    assert (done.exit_code, "snapshot crc" in done.stderr) == (1, True)
    assert snapshot(logs) == before


@pytest.mark.parametrize("more", [[], ["--in-place", "--out", "new"]])
def test_where_the_result_goes_has_to_be_said(logs: Path, more: list[str]) -> None:
    before = snapshot(logs)
    for command in (["compact"], ["retain", "--bytes", "0"]):
        done = run(*command, logs, *more)
        assert (done.exit_code, "--out" in done.stderr, "--in-place" in done.stderr) == (2, True, True)
    assert snapshot(logs) == before


def test_a_compacted_copy_is_what_compaction_in_place_makes_and_the_log_stays(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_800_000_000_000_000_000)  # it is in the batches with tombstones
    before, out = snapshot(logs), tmp_path / "out"
    said = json.loads(run("compact", logs, "--topic", GZIP, "--out", out, "--format", "json").stdout)
    assert snapshot(logs) == before
    assert [each["path"] for each in said["partitions"]] == [str(out / f"{GZIP}-0")]
    assert run("verify", out, "--deep").exit_code == 0
    assert run("compact", "--in-place", logs, "--topic", GZIP).exit_code == 0
    after = snapshot(logs)
    for name, content in snapshot(out).items():
        if "-0/" in name:
            assert after[name] == content, name
    assert parse_offset_checkpoint((out / CLEANER).read_bytes()) == {(GZIP, 0): 276}
    assert (out / CLEAN_SHUTDOWN).exists()
    assert {each.name for each in out.iterdir() if each.is_dir()} == {f"{GZIP}-0"}


def test_a_copy_is_there_when_it_is_whole_and_names_the_damaged_log(logs: Path, tmp_path: Path) -> None:
    path = logs / f"{GZIP}-0" / "00000000000000000000.log"
    damaged = bytearray(path.read_bytes())
    damaged[200] ^= 1
    path.write_bytes(damaged)
    done = run("compact", logs, "--topic", GZIP, "--topic", TRANSACTIONS, "--out", tmp_path / "out")
    assert (done.exit_code, str(path) in done.stderr) == (1, True)
    assert (tmp_path / "out" / f"{GZIP}-0" / path.name).read_bytes() == damaged
    done = run("retain", logs, "--topic", GZIP, "--bytes", "0", "--out", tmp_path / "retained")
    assert sorted(each.name for each in tmp_path.iterdir()) in (["logs", "out"], ["logs", "out", "retained"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    assert "a new directory" in run("compact", logs, "--out", tmp_path / "full").stderr


def test_records_without_a_key_of_a_log_that_was_never_compacted_go_only_if_asked_for(logs: Path) -> None:
    (logs / CLEANER).write_bytes(b"0\n0\n")
    before = snapshot(logs)
    done = run("compact", "--in-place", logs, "--topic", GZIP)
    assert done.exit_code == 2
    assert "9 records without a key would be removed: --drop-unkeyed" in done.stderr
    assert snapshot(logs) == before
    assert "9 without a key" in run("compact", "--dry-run", logs, "--topic", GZIP).stdout
    assert "9 without a key" in run("compact", "--in-place", logs, "--topic", GZIP, "--drop-unkeyed").stdout
