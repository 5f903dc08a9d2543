"""Syncs, renames and checks of `log/`, one taken out or moved at a time: a quick simulation is noted that misses it."""

import json
import sys

import pytest

from simulation.run_sync_mutations import BROKEN, CANNOT_BE_MISSED, NOTED, QUICK, cases

FOUND_BY = json.loads(NOTED.read_text())


def test_each_sync_check_and_place_of_a_rename_is_missed_by_a_quick_simulation() -> None:
    known = {name for name, simulation in FOUND_BY.items() if simulation in QUICK} | CANNOT_BE_MISSED.keys()
    differs = cases().keys() ^ known
    assert not differs, "run `PYTHONPATH=tests python -m simulation.run_sync_mutations --only TEXT` for them"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="recorded.py reads /proc")
@pytest.mark.parametrize("name", sorted(FOUND_BY))
def test_a_sync_rename_or_check_that_is_not_in_its_place_is_missed(name: str) -> None:
    with cases()[name](), pytest.raises(BROKEN):
        QUICK[FOUND_BY[name]]()
