"""docs/reference/json.md has a section for each output, what is printed has its members, and the check can fail."""

from pathlib import Path

import click
import pytest

from cli import json_members
from cli.command import run
from cli.json_members import VARIANTS, check, documents, output_of, page_members
from pages import LEAVES

OFFLINE = {
    "cat": ["cat LOGS --json"],
    "cat --batches": ["cat LOGS --batches --on-damage skip"],
    "compact": ["compact WHOLE --topic crash-flip --drop-unkeyed --out NEW --json"],
    "convert": ["convert LOGS/kafka-0.8.2.2 --to v2 --out NEW --json"],
    "diff": ["diff WHOLE DAMAGED --on-damage skip --json"],
    "doctor": ["doctor LOGS DAMAGED --json"],
    "inventory": ["inventory LOGS --deep --json"],
    "retain": ["retain WHOLE --out NEW --older-than 1d --json"],
    "rescue": ["rescue DAMAGED --to NEW --json"],
    "salvage": ["salvage DAMAGED --out NEW --json"],
    "space": ["space LOGS --deep --older-than 1d --json"],
    "verify": ["verify LOGS --json"],
}  # fmt: skip
"""Command lines for the bundled logs, by output."""


def outputs() -> set[str]:
    """Return what the page has to have: each command that prints JSON, and what it prints instead with an option."""
    found = set()
    for words, command in LEAVES.items():
        flags = {flag for each in command.params if isinstance(each, click.Option) for flag in each.opts}
        name = " ".join(words)
        found |= {name} if "--json" in flags else set()
        found |= {each for each in VARIANTS if each.startswith(f"{name} --")}
    return found


def test_the_page_has_each_command_that_prints_json_and_no_other() -> None:
    assert page_members().keys() == outputs()


def test_a_section_names_the_page_that_explains_it() -> None:
    text = json_members.PAGE.read_text(encoding="utf-8")
    assert text == text.partition("### `")[0] + "\n".join(json_members.written(page_members()))


@pytest.mark.parametrize("output", OFFLINE)
def test_bundled_logs_are_described_with_the_members_of_the_page(output: str, tmp_path: Path) -> None:
    assert run("tour", "--unpack", tmp_path / "tour").exit_code == 0
    logs = tmp_path / "tour/logs"
    damaged = next(logs.glob("*/crash-flip-0"))
    assert run("salvage", damaged, "--out", tmp_path / "whole").exit_code == 1
    places = {"LOGS": logs, "DAMAGED": damaged, "WHOLE": tmp_path / "whole",
              "NEW": tmp_path / "new"}  # fmt: skip
    for line in OFFLINE[output]:
        words = line.split()
        for name, place in places.items():
            words = [str(place) + each.removeprefix(name) if each.startswith(name) else each for each in words]
        result = run(*words)  # which compares members and types
        assert result.exit_code in (0, 1), result.stderr
        assert documents(output, result.stdout)


def test_a_member_that_the_page_does_not_have_or_that_is_missing_is_noticed() -> None:
    known = '[{"topic": "a", "partitions": 1, "replicas": 1, "internal": false}]'
    check("topics list", ["--json"], 0, known)
    for changed in (known.replace("internal", "external"), known.replace("1,", '"1",'), '[{"topic": "a"}]', "{}"):
        with pytest.raises(AssertionError, match="topics list: "):
            check("topics list", ["--json"], 0, changed)
    check("topics list", [], 0, "TEXT")
    assert output_of("topics list", ["--format", "text"]) is None
