"""Time has one source, `access/clock.py`: dates for stored values, the monotonic clock for deadlines."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from magicbyte.access.clock import SystemClock
from syntax import parsed, tree_of, walk

SOURCE = Path(__file__).parent.parent / "src/magicbyte"
ONLY_PLACE = SOURCE / "access/clock.py"
DATES = {
    "time": {"time", "time_ns", "ctime", "clock_gettime", "clock_gettime_ns"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
OF_NOW = {"gmtime", "localtime", "strftime"}  # of `time`: they read the clock unless they are given a time


def date_readings(tree: ast.AST) -> Iterator[int]:
    """Yield the lines on which a wall clock is read, or its reader is imported by name."""
    for node in walk(tree):
        match node:
            case ast.ImportFrom(module="time", names=names) if {each.name for each in names} & (DATES["time"] | OF_NOW):
                yield node.lineno
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name):
                if name in DATES.get(owner, ()):
                    yield node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr=name), args=given) if name in OF_NOW:
                if len(given) < (2 if name == "strftime" else 1):
                    yield node.lineno


def intervals_of_dates(tree: ast.AST) -> Iterator[int]:
    """Yield the lines on which a fresh date is added to, subtracted from, or compared."""
    for node in walk(tree):
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            parts = [node.left, node.right]
        elif isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        for each in parts:
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "now_ms":
                yield each.lineno


SOUGHT = re.compile(r"\b(time|datetime|date|now_ms)\b")
"""Every reading and every interval has one of these names: modules without them are not parsed."""


@functools.cache
def modules() -> dict[Path, ast.Module]:
    return {path: tree_of(path) for path in SOURCE.rglob("*.py") if SOUGHT.search(path.read_text())}


def test_only_one_module_asks_the_machine_for_a_date() -> None:
    found = {
        f"{path.relative_to(SOURCE)}:{line}"
        for path, tree in modules().items()
        if path != ONLY_PLACE
        for line in date_readings(tree)
    }
    assert found == set(), "ask a `ports.Clock` for dates, and `time.monotonic` for intervals"
    assert list(date_readings(modules()[ONLY_PLACE]))


def test_no_interval_or_deadline_is_counted_from_a_date() -> None:
    found = {
        f"{path.relative_to(SOURCE)}:{line}" for path, tree in modules().items() for line in intervals_of_dates(tree)
    }
    assert found == set(), "deadlines are counted by `Clock.monotonic_ms`"


@pytest.mark.parametrize(
    "code",
    [
        "time.time()",
        "x = time.time_ns",
        "from time import time_ns",
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "datetime.date.today()",
        "time.gmtime()",
        "time.strftime('%Y')",
        "time.clock_gettime(0)",
    ],
)
def test_a_reading_of_the_wall_clock_is_noticed(code: str) -> None:
    assert SOUGHT.search(code)
    assert list(date_readings(parsed(code))) == [1]


@pytest.mark.parametrize("code", ["time.monotonic()", "time.gmtime(0)", "time.strftime('%Y', t)", "time.sleep(1)"])
def test_what_reads_no_wall_clock_is_let_pass(code: str) -> None:
    assert not list(date_readings(parsed(code)))


@pytest.mark.parametrize("code", ["clock.now_ms() - begun", "due < self.clock.now_ms()", "clock.now_ms() + 5"])
def test_an_interval_of_dates_is_noticed(code: str) -> None:
    assert SOUGHT.search(code)
    assert list(intervals_of_dates(parsed(code))) == [1]


def test_the_clocks_of_this_machine_count_ms() -> None:
    clock = SystemClock()
    first = clock.monotonic_ms()
    assert clock.now_ms() > 1_600_000_000_000
    assert 0 <= clock.monotonic_ms() - first < 600_000
