"""Brokers that are killed, stopped and cut off lose nothing that they acknowledged, and have it once."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from interop.processes import BadDayError
from interop.run_cluster_kills import PARTITIONS, faults, judge_history, judge_logs, name_of
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import BatchHeader, Format, columns_of, encode
from magicbyte.engine.records.layout import TimestampType
from magicbyte.testing.checker import ClientOperation, Recorder

TESTS = Path(__file__).parent.parent
FIGURES = Path(__file__).with_name("cluster_kill_figures.json")


@pytest.mark.interop
@pytest.mark.parametrize("minutes", [1, pytest.param(2, marks=pytest.mark.campaign)])
def test_nothing_acknowledged_is_lost_or_twice_in_minutes_of_faults(
    needs_java: None, minutes: int, tmp_path: Path
) -> None:
    figures = tmp_path / "figures.json"
    campaign = [sys.executable, "-m", "interop.run_cluster_kills", "--minutes", str(minutes), "--seed", "7"]
    done = subprocess.run(
        [*campaign, "--scratch", tmp_path / "cluster", "--out", figures],
        cwd=TESTS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    (run,) = json.loads(figures.read_text())
    assert run["acknowledged"] > 1000
    assert len(run["faults"]) >= 1 + minutes


def test_a_recorded_run_with_every_fault_has_every_acknowledged_record_once() -> None:
    runs = json.loads(FIGURES.read_text())
    names = {each.__name__ for each in faults(random.Random(1), has_network=True)}
    assert any(names <= each["faults"].keys() for each in runs)
    assert sum(each["seconds"] for each in runs) >= 1800
    for each in runs:
        assert each["acknowledged"] > 30 * each["seconds"]
        assert each["acknowledged"] <= each["read"] == each["logs"]["records"] <= each["acknowledged"] + each["unknown"]


def log_of(values: list[str]) -> bytes:
    """Return the bytes of a log with one batch."""
    columns = columns_of(
        [Record(at, 1, TimestampType.CREATE_TIME, None, f"{each}:x".encode(), ()) for at, each in enumerate(values)]
    )
    return bytes(encode(columns, Format.V2, Codec.NONE, batches=[(len(values), BatchHeader(base_offset=0))]))


def history_of(values: list[str]) -> list[ClientOperation]:
    """Return a history in which values were acknowledged at their places, and were read."""
    recorder = Recorder(lambda: 0)
    for at, value in enumerate(values):
        recorder.send("producer", name_of(0), value).ok(at)
    poll = recorder.poll("reader")
    poll.polled({name_of(0): enumerate(values)})
    poll.ok()
    return recorder.history


def replicas(folder: Path, *logs: list[str]) -> list[Path]:
    """Make log directories in which partition 0 has these records, and others have none."""
    found = [folder / str(number) for number in range(len(logs))]
    for each, values in zip(found, logs, strict=True):
        for partition in range(PARTITIONS):
            (each / name_of(partition)).mkdir(parents=True)
        (each / name_of(0) / "00000000000000000000.log").write_bytes(log_of(values))
    return found


def test_equal_replicas_with_all_that_was_acknowledged_are_sound(tmp_path: Path) -> None:
    folders = replicas(tmp_path, *[["a", "b"]] * 3)
    assert judge_logs(history_of(["a", "b"]), folders)["records"] == 2
    assert judge_history(history_of(["a", "b"]))["acknowledged"] == 2


@pytest.mark.parametrize(
    ("logs", "what"),
    [
        ([["a", "b"], ["a", "b"], ["a"]], "differ"),
        ([["a"]] * 3, "b was acknowledged at 1, and is not there"),
        ([["b", "a"]] * 3, "a was acknowledged at 0, and is not there"),
        ([["a", "b", "a"]] * 3, "twice"),
    ],
)
def test_replicas_that_lack_a_record_or_differ_or_have_it_twice_are_noticed(
    tmp_path: Path, logs: list[list[str]], what: str
) -> None:
    with pytest.raises(BadDayError, match=what):
        judge_logs(history_of(["a", "b"]), replicas(tmp_path, *logs))


def test_a_history_with_an_unread_acknowledged_record_is_noticed() -> None:
    history = history_of(["a", "b"])
    recorder = Recorder(lambda: 0)
    recorder.send("producer", name_of(0), "c").ok(2)
    with pytest.raises(BadDayError, match="unseen"):
        judge_history([*recorder.history, *history])


def test_a_seed_gives_the_same_faults_in_the_same_order() -> None:
    first, again, other = (faults(random.Random(seed), has_network=True) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(set(first)) == len(first) == 17
    assert len(faults(random.Random(1), has_network=False)) == 11
