"""Notes which tests execute which places: a plugin of pytest, and what `tools/mutate.py` calls at each place.

It is copied into the package, so that processes that tests start find it. They read from a file which test runs.
"""

import builtins
import contextlib
import json
from pathlib import Path
from typing import Any

RESULTS = ""
"""The folder of the results; set in the copy."""

_test: list[str] = []
"""The test that runs in this process, or the file of the one that is set up; empty where pytest does not run."""
_noted: set[tuple[int, str]] = set()
_seconds: dict[str, float] = {}
_failed: set[str] = set()


def mutation_probe(number: int) -> None:
    """Note that the test that runs now executes the change of this number."""
    test = _test[0] if _test else ""
    if not test:
        with contextlib.suppress(OSError):
            test = (Path(RESULTS) / "current").read_text()
    if test and (number, test) not in _noted:
        _noted.add((number, test))
        with open(f"{RESULTS}/hits", "a") as hits:  # one short write: lines of several processes do not mix
            hits.write(f"{number} {test}\n")


def _now_runs(test: str) -> None:
    _test[:] = [test]
    with open(f"{RESULTS}/next", "w") as current:
        current.write(test)
    Path(f"{RESULTS}/next").rename(f"{RESULTS}/current")


def pytest_runtest_setup(item: Any) -> None:
    """Fixtures serve other tests of the file too."""
    _now_runs(item.nodeid.partition("::")[0])


def pytest_runtest_call(item: Any) -> None:
    """From here on it is this test."""
    _now_runs(item.nodeid)


def pytest_runtest_teardown(item: Any) -> None:
    """As for the set-up."""
    _now_runs(item.nodeid.partition("::")[0])


def pytest_runtest_logreport(report: Any) -> None:
    """Keep the seconds of a test, or that it fails or is skipped."""
    if report.outcome != "passed":
        _failed.add(report.nodeid)
    elif report.when == "call":
        _seconds[report.nodeid] = report.duration


def pytest_sessionfinish() -> None:
    """Write the seconds of the tests that pass."""
    passed = {test: taken for test, taken in _seconds.items() if test not in _failed}
    Path(f"{RESULTS}/passed").write_text(json.dumps(passed))


vars(builtins)["mutation_probe"] = mutation_probe
