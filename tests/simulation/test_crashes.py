"""A log directory whose power goes: nothing acknowledged is lost, nothing invented, reordered or there twice.

docs/internals/crash-safety.md says what is promised, and what the recorded run of `run_crashes.py` covered.
"""

import json
from pathlib import Path

import pytest

from builders import first_of
from simulation.crashes import STEPS, World, run
from simulation.run_crashes import KINDS, table

PAGE = Path(__file__).parents[2] / "docs/internals/crash-safety.md"
FIGURES = Path(__file__).with_name("crash_figures.json")


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_every_state_after_a_power_cut_is_recovered(seed: int) -> None:
    world = run(seed, 120, every=17)
    assert world.checked > 100
    assert world.deep > 20


@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (12, 13))])
def test_every_state_after_a_power_cut_is_recovered_while_files_are_closed_and_reopened_all_the_time(seed: int) -> None:
    world = World(seed, every=29, max_open_files=3).run(120)
    assert world.checked > 60


def test_the_work_does_every_kind_of_file_operation_and_every_step() -> None:
    world = run(5, 220, every=10**9)
    assert {kind for kind, _ in world.disk.counted} == set(KINDS)
    idle = {"kill", "power cut", "recreate", "restart"}  # they close, open, delete and create
    done = {name.replace("_", " ") for name in STEPS} - idle | {"open", "close", "create partition", "delete partition"}
    assert {phase for _, phase in world.disk.counted} >= done - {"truncate fully", "truncate far"}
    assert world.disk.operations > 3000


def test_the_page_says_what_the_recorded_run_covered() -> None:
    figures, page = json.loads(FIGURES.read_text()), PAGE.read_text()
    assert "\n".join(table(figures)) in page
    assert f"{figures['total']:,} cuts of {len(figures['seeds'])} seeds" in page
    assert figures["total"] >= 20_000
    assert all(int(name.split("x")[1]) >= 200 for name in figures["seeds"])
    assert {kind for counts in figures["covered"].values() for kind in counts} == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_of([21, 22]))
def test_every_state_after_a_power_cut_at_every_single_operation_is_recovered(seed: int) -> None:
    world = run(seed, 60)
    assert world.checked >= world.disk.operations > 700
