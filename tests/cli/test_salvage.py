"""`magicbyte salvage`: what it writes and says, and that a rerun continues."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import golden_data
from cli.command import run
from magicbyte.tools.offline import writer as writing
from simulation import damaged_logs

FLIPPED = golden_data.log_case("3.9.1/crash-flip.crashed")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    log = damaged_logs.damaged(3, "nested", 1 << 19, 6)
    damaged_logs.write(tmp_path / "source" / "t-0", log.content)
    damaged_logs.write(tmp_path / "source" / "t-1", log.content[:200_000])
    return tmp_path / "source"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_is_salvaged_verifies_as_sound_and_the_source_stays_as_it_was(source: Path, tmp_path: Path) -> None:
    before = files(source)
    result = run("salvage", source, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert files(source) == before
    assert "lost: " in result.stdout
    checked = run("verify", "--deep", tmp_path / "out")
    assert (checked.exit_code, checked.stdout.count("\n")) == (0, 1)


def test_the_last_batch_of_a_crashed_broker_is_lost_and_nothing_else(tmp_path: Path) -> None:
    result = run(
        "salvage", "--format", "json", "--same-cluster", FLIPPED.partition_dir(named=True), "--out", tmp_path / "out"
    )
    (partition,) = json.loads(result.stdout)["partitions"]
    (loss,) = partition["lost"]
    assert (loss["position"], loss["end"], loss["offsets"]) == (2923, 3442, [54, 59])
    recovered = golden_data.log_case("3.9.1/crash-flip.recovered").segments()
    written = {path.name: path.read_bytes() for path in Path(partition["path"]).glob("*.log")}
    assert {name: content for name, content in written.items() if content} == {
        name: content for name, content in recovered.items() if content
    }


def test_a_sound_log_is_copied_byte_for_byte_with_status_0(tmp_path: Path) -> None:
    for name in ("0.10.2.2/basic-gzip", "3.9.1/compact-none.after2", "2.8.2/trimmed-none"):
        cases = [each for each in golden_data.all_log_cases() if each.id == name]
        for case in cases:
            out = tmp_path / name
            assert run("salvage", "--same-cluster", case.partition_dir(named=True), "--out", out).exit_code == 0
            folder = out / f"{case.topic}-{case.partition}"
            assert {path.name: path.read_bytes() for path in folder.glob("*.log")} == case.segments()


def test_a_run_that_was_interrupted_is_continued_with_the_same_bytes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("salvage", source, "--out", tmp_path / "whole")
    appended = writing.PartitionWriter.append
    calls = []

    def failing(self: writing.PartitionWriter, data: bytes) -> None:
        calls.append(1)
        if self.name == "t-1":
            raise OSError(28, "No space left on device")
        appended(self, data)

    monkeypatch.setattr(writing.PartitionWriter, "append", failing)
    stopped = run("salvage", source, "--out", tmp_path / "out")
    assert stopped.exit_code == 2
    assert "1 of 2 partitions finished" in stopped.stderr
    assert not (tmp_path / "out" / "t-1").exists()
    monkeypatch.undo()
    again = run("salvage", source, "--out", tmp_path / "out")
    assert "t-0: " in again.stdout
    assert "by an earlier run" in again.stdout
    shutil.rmtree(tmp_path / "out" / ".t-1.part", ignore_errors=True)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_a_run_that_is_killed_at_any_moment_is_continued_with_the_same_bytes(tmp_path: Path) -> None:
    log = damaged_logs.damaged(5, "v2", 4 << 20, 10)
    for partition in range(4):
        damaged_logs.write(tmp_path / "source" / f"t-{partition}", log.content[: (4 - partition) << 20])
    run("salvage", tmp_path / "source", "--out", tmp_path / "whole")
    command = [sys.executable, "-m", "magicbyte", "salvage", tmp_path / "source", "--out", tmp_path / "out"]
    for delay in (0.5, 0.7, 0.9):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(delay)
        process.kill()
        process.wait()
    run("salvage", tmp_path / "source", "--out", tmp_path / "out")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_a_directory_with_other_partitions_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "other-0").mkdir(parents=True)
    result = run("salvage", source, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "other-0" in result.stderr
