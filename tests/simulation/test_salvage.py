"""Salvage scored against logs whose damage is known: all whole entries, none that is content, none that was changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders import first_of
from fuzz import agreement
from magicbyte.engine.log.files.entry_search import Limits
from magicbyte.engine.records.layout import Dialect
from magicbyte.tools.offline.salvage import plan_segment
from simulation.damage_score import Salvaged, of_salvage
from simulation.damaged_logs import damaged
from simulation.memory import Memory
from simulation.run_damage import table

FIFTY_SEEDS = first_of([range(100, 102), range(102, 150)])
KINDS = ["v2", "nested", "nested-nasty", "messages", "messages-nested", "wrappers", "mixed"]
SEGMENT = Limits(0, 2**31 - 1)


def score(seed: int, kind: str, size: int, damages: int, *, pages: bool = True) -> Salvaged:
    """Return what salvage makes of a damaged log."""
    log = damaged(seed, kind, size, damages, pages=pages)
    return of_salvage(log, plan_segment(Memory(log.content), SEGMENT, Dialect.KAFKA))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_all_whole_entries_come_back_and_no_others(kind: str, seed: int) -> None:
    with agreement.kernels("compiled"):
        scored = score(seed, kind, 6 << 20, 40)
    assert scored.whole > 700
    assert (scored.hidden, scored.missed, scored.alike, scored.wrong) == ([], [], [], [])


# Each of these once went wrong: contents that were taken, and whole entries in pages that lie where others should.
@pytest.mark.parametrize(
    ("seed", "kind"),
    [(106, "nested-nasty"), (127, "messages-nested"), (149, "wrappers"), (165, "mixed"), (308, "nested-nasty"),
     (321, "nested"), (330, "messages-nested"), (362, "nested-nasty"), (383, "v2"), (396, "messages-nested")],
)  # fmt: skip
@pytest.mark.slow
def test_pages_in_wrong_places_cost_nothing_else(seed: int, kind: str) -> None:
    with agreement.kernels("compiled"):
        scored = score(seed, kind, 24 << 20, 100)
    assert (scored.hidden, scored.missed, scored.alike, scored.wrong) == ([], [], [], [])


def test_the_page_has_the_figures_that_were_found() -> None:
    lines = table(json.loads((Path(__file__).parent / "damage_figures.json").read_text()))
    page = (Path(__file__).parents[2] / "docs/internals/salvage.md").read_text()
    assert "\n".join(lines) in page


@pytest.mark.slow
@pytest.mark.parametrize("seeds", FIFTY_SEEDS)
@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_over_fifty_seeds_and_a_hundred_damages(kind: str, pages: bool, seeds: range) -> None:
    with agreement.kernels("compiled"):
        scores = {seed: score(seed, kind, 24 << 20, 100, pages=pages) for seed in seeds}
    assert {seed: each for seed, each in scores.items() if each.missed or each.wrong} == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", first_of(["nested", "v2"]))
def test_the_same_on_a_gibibyte(kind: str) -> None:
    with agreement.kernels("compiled"):
        scored = score(1, kind, 1 << 30, 100)
    assert scored.whole > 50_000
    assert (scored.hidden, scored.missed, scored.alike, scored.wrong) == ([], [], [], [])
