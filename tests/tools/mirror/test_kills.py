"""Kills of the mirror and of both brokers: some runs, and what many of them came to, see docs/commands/mirror.md."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.mirror import kills

RECORDED = [kills.RESULTS, kills.KAFKA_RESULTS]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[kills.Ours, kills.Ours]]:
    folder = tmp_path_factory.mktemp("kills")
    with kills.running(kills.Ours(folder / "source"), kills.Ours(folder / "target")) as pair:
        yield pair


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 5, 7, 1002])
def test_whatever_is_killed_nothing_is_lost_and_groups_continue_at_their_offsets(
    brokers: tuple[kills.Ours, kills.Ours], tmp_path: Path, seed: int
) -> None:
    kills.check(kills.Run(seed, *brokers, tmp_path / "log", kills.FORMATS).run())


@pytest.mark.parametrize("results", RECORDED, ids=lambda each: each.stem)
def test_the_recorded_runs_add_up_and_kept_all_promises(results: Path) -> None:
    recorded: dict[str, Any] = json.loads(results.read_text())
    assert kills.totals(recorded["outcomes"]) == recorded["totals"]
    assert len({each["seed"] for each in recorded["outcomes"]}) == recorded["totals"]["runs"]
    for each in recorded["outcomes"]:
        kills.check(kills.Outcome(**each))


def test_the_figures_in_the_documents_are_the_recorded_ones() -> None:
    text = kills.PAGE.read_text(encoding="utf-8")
    assert text.split(kills.BEGIN)[1].split(kills.END)[0] == kills.table()
