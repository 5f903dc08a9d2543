"""Which cells of a sweep over releases CI runs: the oldest and the newest; the others are campaigns.

A release at no end of a sweep is run in CI by the tests that `EVERYWHERE` names. Most of them share one broker
for each release.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pytest

EVERYWHERE: Final = ("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.1", "4.3.1")
"""The releases of `test_client.py`, `test_commands.py` and `test_old_readers.py`."""


def is_in_ci(release: str, releases: Iterable[str]) -> bool:
    """Return whether CI runs the cells of a release, of a sweep over `releases`, the oldest first.

    Raises ValueError for one that would then be run nowhere in CI.
    """
    oldest, *_, newest = releases
    if release in (oldest, newest):
        return True
    if release not in EVERYWHERE:
        raise ValueError(f"{release}: no test in CI would run it")
    return False


def cells(releases: Iterable[str]) -> list[Any]:
    """Return the releases of a sweep as parameters, those that CI does not run marked as a campaign."""
    every = tuple(releases)
    return [
        release if is_in_ci(release, every) else pytest.param(release, marks=pytest.mark.campaign) for release in every
    ]
