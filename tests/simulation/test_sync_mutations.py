"""Syncs and renames of `log/`, one taken out or moved at a time: what misses it is noted, and does miss it."""

import json

import pytest

from simulation.mutations import mutated
from simulation.run_sync_mutations import CHANGES, NOTED, QUICK, cases

MUTATIONS = json.loads(NOTED.read_text())
FOUND = {name: each["foundBy"] for name, each in MUTATIONS.items() if each["foundBy"]}
CASES = {f"{site.name} [{change}]": (site, change) for site, change in cases()}


def test_each_mutation_that_was_tried_is_found_or_has_a_reason() -> None:
    assert all(each["foundBy"] in QUICK or each["reason"] for each in MUTATIONS.values())
    assert len(FOUND) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_sync_or_rename_that_is_not_in_its_place_is_missed(name: str) -> None:
    site, change = CASES[name]
    with mutated(site, CHANGES[change]), pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is: the test fails
        QUICK[FOUND[name]]()
