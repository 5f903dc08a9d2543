"""A log directory whose power goes: nothing acknowledged is lost, nothing invented, reordered or there twice.

docs/crash-safety.md says what is promised, and what the recorded run of `run_crashes.py` covered.
"""

import pytest

from simulation.crashes import STEPS, run
from simulation.run_crashes import KINDS


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_a_power_cut_leaves_is_mended(seed: int) -> None:
    world = run(seed, 120, every=17)
    assert world.checked > 100
    assert world.deep > 20


def test_the_work_does_every_kind_of_file_operation_and_every_step() -> None:
    world = run(5, 220, every=10**9)
    assert {kind for kind, _ in world.disk.counted} == set(KINDS)
    idle = {"kill", "power cut", "recreate", "restart"}  # they close, open, delete and create
    done = {name.replace("_", " ") for name in STEPS} - idle | {"open", "close", "create partition", "delete partition"}
    assert {phase for _, phase in world.disk.counted} >= done - {"truncate fully", "truncate far"}
    assert world.disk.operations > 3000


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 22])
def test_whatever_a_power_cut_leaves_is_mended_at_every_single_operation(seed: int) -> None:
    world = run(seed, 60)
    assert world.checked >= world.disk.operations > 700
