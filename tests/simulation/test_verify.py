"""Verify scored against logs whose damage is known: every damaged region found, no whole entry called damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import first_of
from fuzz import agreement
from magicbyte.engine.log.files.directory import discover
from magicbyte.tools.offline.findings import Depth
from magicbyte.tools.offline.verify import verify
from simulation.damage_score import Verified, of_verify
from simulation.damaged_logs import damaged, write

FIFTY_SEEDS = first_of([range(100, 102), range(102, 150)])
KINDS = ["v2", "nested", "nested-nasty", "messages", "messages-nested", "wrappers", "mixed"]


def score(folder: Path, seed: int, kind: str, size: int, damages: int, *, pages: bool = True) -> Verified:
    """Return what verify says of a damaged log."""
    log = damaged(seed, kind, size, damages, pages=pages)
    write(folder, log.content)
    return of_verify(log, verify(discover([str(folder)]), depth=Depth.QUICK))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_every_damaged_region_is_found_and_no_sound_entry_blamed(tmp_path: Path, kind: str, seed: int) -> None:
    with agreement.kernels("compiled"):
        scored = score(tmp_path / "t-0", seed, kind, 6 << 20, 40)
    assert (scored.unreported, scored.blamed) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("seeds", FIFTY_SEEDS)
@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_over_fifty_seeds_and_a_hundred_damages(tmp_path: Path, kind: str, pages: bool, seeds: range) -> None:
    with agreement.kernels("compiled"):
        for seed in seeds:
            folder = tmp_path / f"t-{seed}"
            scored = score(folder, seed, kind, 24 << 20, 100, pages=pages)
            assert (scored.unreported, scored.blamed) == ([], []), seed
            next(folder.iterdir()).unlink()
