"""docs/internals/groups.md: its diagram and its tables are those of the code."""

import re
from pathlib import Path

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.groups.classic.rules import (
    ALLOWED,
    COMMIT_REPLY,
    GROUP_NOT_STORED,
    HEARTBEAT_REPLY,
    OFFSETS_NOT_STORED,
    SYNC_REPLY,
    TRANSITIONS,
    GroupState,
)
from magicbyte.engine.groups.config import StoredVersions
from magicbyte.engine.protocol import APIS
from magicbyte.server.settings.served import SERVED

PAGE = (Path(__file__).parents[3] / "docs/internals/groups.md").read_text(encoding="utf-8")


def code(reply: ErrorCode | None) -> str:
    return "waits" if reply is None else str(int(reply))


def table(first: str, rows: list[list[str]]) -> str:
    """Draw a table whose head begins with `first`, as it must stand on the page."""
    head = next(line for line in PAGE.splitlines() if line.startswith(f"| {first} |"))
    rule = "|" + "---|" * (head.count("|") - 1)
    return "\n".join([head, rule, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def test_the_diagram_has_the_transitions() -> None:
    lines = ["stateDiagram-v2", f"    [*] --> {GroupState.EMPTY.value}"]
    lines += [f"    {each.source.value} --> {each.target.value}: {each.event}" for each in TRANSITIONS]
    lines += [f"    {GroupState.DEAD.value} --> [*]"]
    assert re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL) == ["\n".join(lines) + "\n"]
    assert len(ALLOWED) == len(TRANSITIONS)


def test_the_tables_have_the_replies() -> None:
    states = [state for state in GroupState if state in HEARTBEAT_REPLY]
    rows = [
        [state.value, code(HEARTBEAT_REPLY[state]), code(SYNC_REPLY[state]), code(COMMIT_REPLY[state])]
        for state in states
    ]
    assert table("State", rows) in PAGE
    failed = [
        [f"{int(each)} {each.name}", code(OFFSETS_NOT_STORED.get(each, each)), code(GROUP_NOT_STORED[each])]
        for each in sorted(GROUP_NOT_STORED)
    ]
    assert table("The append fails with", failed) in PAGE


def test_the_versions_are_those_that_are_served() -> None:
    served = [
        [APIS[key].name, f"{each.versions[0]}-{each.versions[-1]}" if len(each.versions) > 1 else "0"]
        for key, each in SERVED.items()
        if each.module in ("group_requests", "find_coordinator")
    ]
    assert table("API", served) in PAGE


def test_the_stored_versions_are_those_of_the_code() -> None:
    lines = {"0.9": (0, 9), "0.10.1": (0, 10, 1), "2.0": (2, 0), "2.1": (2, 1), "2.3": (2, 3)}
    rows = []
    for name, line in lines.items():
        found = StoredVersions.of(line)
        expiry = "of each offset" if found.expires_by_commit else "of the group"
        rows.append([name, str(found.group_value), str(found.offset_value), expiry])
    assert table("From version", rows) in PAGE
