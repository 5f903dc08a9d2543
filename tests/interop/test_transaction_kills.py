"""Transactions of programs and brokers that are killed: committed records are there once, and no others are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from interop.processes import BadDayError
from interop.run_cluster_kills import judge_history
from interop.run_transaction_kills import judge_values
from interop.transactional_programs import PARTITIONS, SOURCE, TARGET, log_of
from magicbyte.testing.checker import Recorder

TESTS = Path(__file__).parent.parent
FIGURES = Path(__file__).with_name("transaction_kill_figures.json")
ROUNDS = 3


@pytest.mark.interop
def test_committed_records_are_there_once_while_broker_and_programs_are_killed(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    campaign = [sys.executable, "-m", "interop.run_transaction_kills", "--rounds", str(ROUNDS), "--seed", "3"]
    done = subprocess.run(
        [*campaign, "--out", figures],
        cwd=TESTS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=540,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
    (run,) = json.loads(figures.read_text())
    assert sum(run["kills"].values()) == ROUNDS
    assert run["commits"] >= 2 * ROUNDS


def test_a_hundred_rounds_are_recorded_in_which_the_checker_found_nothing() -> None:
    runs = json.loads(FIGURES.read_text())
    assert sum(each["rounds"] for each in runs) >= 100
    kinds = {kind for each in runs for kind in each["kills"]}
    assert kinds == {"broker and write", "broker and copy", "broker and write and copy"}
    for each in runs:
        assert sum(each["kills"].values()) == each["rounds"]
        assert each["commits"] > 2 * each["rounds"]
        assert each["acknowledged"] <= each["read"] <= each["acknowledged"] + each["unknown"]
        assert each["copied"] * 2 == each["read"]


def values_of(source: list[str], target: list[str]) -> dict[str, list[str]]:
    """Return the values of both topics, of which partition 1 has some."""
    empty = {log_of(topic, partition): list[str]() for topic in (SOURCE, TARGET) for partition in range(PARTITIONS)}
    return empty | {log_of(SOURCE, 1): source, log_of(TARGET, 1): target}


def test_a_target_with_each_value_once_in_order_is_sound() -> None:
    assert judge_values(values_of(["0.1", "1.0"], ["0.1/0.1", "1.0/2.7"])) == 2


@pytest.mark.parametrize(
    ("source", "target", "what"),
    [
        (["0.1", "0.2"], ["0.1/0.1"], "target-1 has 1 values, the source 2; the first difference is at 1"),
        (["0.1", "0.2"], ["0.1/0.1", "0.1/0.2", "0.2/0.2"], "target-1 has 3 values"),
        (["0.1", "0.2"], ["0.2/0.1", "0.1/0.1"], "the first difference is at 0"),
        (["0.1", "0.1"], ["0.1/0.1", "0.1/0.1"], "source-1: a value is there twice"),
    ],
)
def test_values_that_are_lost_or_there_twice_or_out_of_order_are_noticed(
    source: list[str], target: list[str], what: str
) -> None:
    with pytest.raises(BadDayError, match=what):
        judge_values(values_of(source, target))


def test_an_aborted_value_that_is_read_is_noticed() -> None:
    recorder = Recorder(lambda: 0)
    transaction = recorder.transaction("write")
    transaction.send("source-0", "0.1")
    transaction.fail()
    poll = recorder.poll("reader")
    poll.polled({"source-0": [(0, "0.1")]})
    poll.ok()
    with pytest.raises(BadDayError, match="G1a"):
        judge_history(recorder.history)
