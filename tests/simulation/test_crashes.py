"""A log directory whose power goes: nothing acknowledged is lost, nothing invented, reordered or there twice.

docs/crash-safety.md says what is promised, and what the recorded run of `run_crashes.py` covered.
"""

import pytest

from simulation.crashes import run


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_a_power_cut_leaves_is_mended(seed: int) -> None:
    world = run(seed, 120, every=17)
    assert world.checked > 60
    assert world.deep > 5


def test_the_work_does_every_kind_of_file_operation_and_every_step() -> None:
    world = run(5, 200, every=10**9)
    kinds = {kind for kind, _ in world.disk.counted}
    assert kinds == {"create", "write", "truncate", "sync", "rename", "delete", "make directory", "sync directory"}
    assert len({phase for _, phase in world.disk.counted}) >= 12
    assert world.disk.operations > 2000


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 22])
def test_whatever_a_power_cut_leaves_is_mended_at_every_single_operation(seed: int) -> None:
    world = run(seed, 100)
    assert world.checked == world.disk.operations > 900
