"""Verify scored against logs whose damage is known: every damaged region found, no whole entry called damaged."""

from __future__ import annotations

import bisect
from pathlib import Path

import pytest

from fuzz import agreement
from magicbyte.log.directory import discover
from magicbyte.log.verify import Depth, verify
from simulation.damaged_logs import damaged, write

KINDS = ["v2", "nested", "nested-nasty", "messages", "messages-nested", "wrappers", "mixed"]


def score(folder: Path, seed: int, kind: str, size: int, damages: int, *, pages: bool = True) -> tuple[list, list]:
    """Return the damaged regions that no finding touches, and the findings of damage that touch an untouched entry.

    Where blocks were moved, which entries are called out of order, and which not, is a matter of view.
    """
    log = damaged(seed, kind, size, damages, pages=pages)
    write(folder, log.content)
    found = [each for each in verify(discover([str(folder)]), depth=Depth.QUICK) if each.position is not None]
    missed = [
        region
        for region in log.regions
        if not any(each.position < region[1] and region[0] < each.end for each in found)
    ]
    starts = [start for start, _ in log.untouched]
    false = []
    for each in (one for one in found if one.what != "offset"):
        at = bisect.bisect_left(starts, each.end) - 1
        if at >= 0 and log.untouched[at][1] > each.position:
            false.append(each)
    return missed, false


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_every_damaged_region_is_found_and_no_sound_entry_blamed(tmp_path: Path, kind: str, seed: int) -> None:
    with agreement.kernels("compiled"):
        assert score(tmp_path / "t-0", seed, kind, 6 << 20, 40) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_over_fifty_seeds_and_a_hundred_damages(tmp_path: Path, kind: str) -> None:
    with agreement.kernels("compiled"):
        for seed in range(100, 150):
            folder = tmp_path / f"t-{seed}"
            assert score(folder, seed, kind, 24 << 20, 100, pages=False) == ([], []), seed
            next(folder.iterdir()).unlink()
