"""Real brokers start again with what ours left in ZooKeeper; the changes that they cannot read were refused."""

import json
from pathlib import Path

import pytest

from builders import run
from interop.old_readers import CELLS, RESULTS, expected, outcome

IN_CI = ("0.9.0.1", "0.10.0.1")


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.usefixtures("needs_java")
@pytest.mark.parametrize(
    "cell", [pytest.param(each, marks=() if each in IN_CI else pytest.mark.campaign) for each in CELLS]
)
def test_a_real_broker_starts_again_with_what_ours_wrote(cell: str, tmp_path: Path) -> None:
    assert run(outcome(cell, tmp_path), 600) == expected(cell)


@pytest.mark.parametrize("cell", CELLS)
def test_the_committed_results_are_those_expected(cell: str) -> None:
    assert json.loads(RESULTS.read_text())[cell] == expected(cell)
