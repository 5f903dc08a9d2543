"""How far a run of all tests is: files, tests and the time that is left, a line for each tenth. ./test asks for it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

LINES = 10


class TimeLeft:
    """Counts tests that have ended. `clock` returns seconds, `say` gets each line."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._left: Counter[str] = Counter()
        self._files = self._count = self._done = self._said = 0
        self._began = 0.0

    def begin(self, ids: Sequence[str]) -> None:
        """Take the ids of the tests that will run. Other processes have the same ones."""
        if not self._count:
            self._left = Counter(each.partition("::")[0] for each in ids)
            self._files, self._count, self._began = len(self._left), len(ids), self._clock()

    def end(self, test: str) -> None:
        """Take the id of a test that has ended."""
        file = test.partition("::")[0]
        self._done += 1
        self._left[file] -= 1
        if self._left[file] <= 0:
            del self._left[file]
        if self._count >= LINES and self._done * LINES // self._count > self._said and self._done < self._count:
            self._said = self._done * LINES // self._count
            left = (self._clock() - self._began) * (self._count - self._done) / self._done
            self._say(
                f"{self._done:,} of {self._count:,} tests, {self._files - len(self._left)} of {self._files} files; "
                f"about {int(left) // 60} min {int(left) % 60} s left"
            )

    # ---- hooks of pytest, and of xdist in the process that has the others run

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Take the tests of a run in one process."""
        if session.items:
            self.begin([each.nodeid for each in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """Take the tests of a run in several processes."""
        self.begin(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test at its end."""
        if report.when == "teardown":
            self.end(report.nodeid)
