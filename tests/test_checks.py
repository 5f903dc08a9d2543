"""Every numbered check of docs/evidence/checks.md has a test that is there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from syntax import parsed

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/evidence/checks.md"
NUMBERS = {
    "Appending, and conversion on a fetch": 66,
    "The cleaner": 34,
    "Log, recovery, retention": 34,
    "The enriched dialect": 16,
    "Replication": 16,
    "Migration of a running cluster": 4,
    "Transactions": 82,
    "Security": 86,
    "Metadata of KRaft and of ZooKeeper": 146,
}
"""The last number of each list."""
FIRST = {"Metadata of KRaft and of ZooKeeper": 81}
"""The first number of a list that does not begin with 1."""
NOT_PROVED = {
    "Transactions": {51},
    "Security": {33},
    "Metadata of KRaft and of ZooKeeper": {87, 88, 123, 126, 128, 129, 130, 133},
}
"""Those that the page says are not."""


def rows(section: str) -> list[tuple[list[int], str]]:
    text = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    return [([int(number) for number in numbers.split(", ")], test) for numbers, _, test in lines]


@cache
def functions_of(path: str) -> set[str]:
    tree = parsed((ROOT / path).read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("section", NUMBERS)
def test_every_number_has_one_row(section: str) -> None:
    found = [number for numbers, _ in rows(section) for number in numbers]
    wanted = set(range(FIRST.get(section, 1), NUMBERS[section] + 1)) - NOT_PROVED.get(section, set())
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("section", NUMBERS)
def test_every_row_names_a_test_that_is_there(section: str) -> None:
    for numbers, test in rows(section):
        path, _, name = test.strip("`").partition("::")
        assert name in functions_of(path), (numbers, test)
