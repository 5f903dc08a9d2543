"""What commands print as JSON, compared with docs/reference/json.md by each test of tests/cli.

`run` of cli/command.py calls `check`, which compares where tests/cli/conftest.py has it do so. With the name of a file
in JSON_MEMBERS, members are added to that file instead. `PYTHONPATH=tests python tests/cli/json_members.py FILE` writes
the page from it, where a change of the output is meant.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from magicbyte.cli.main import WRONG_USE

PAGE: Final = Path(__file__).parents[2] / "docs/reference/json.md"
MAPS: Final = {
    "diff": ("partitions[].differing", "partitions[].notHeld"),
    "dump": ("properties",),
    "metadata show": (
        "features",
        "brokers[].features",
        "controllers[].features",
        "settings[].settings",
        "quotas[].entity",
        "quotas[].limits",
        "scramUsers",
    ),
    "migrate rollback": ("spread", "unknown"),
    "migrate status": ("plan.topics[].groups",),
    "plan": ("topics[].groups",),
    "rescue": ("leftOut", "groupsLeftOut"),
}
"""Objects whose members have names of the data, by command."""
OPEN: Final = {
    "dump": ("decodedKey", "decodedPayload", "state"),
    "metadata diff": ("differences[].before", "differences[].after"),
    "metadata history": ("before", "after"),
    "pipeline run": ("formatsAfter", "formatsBefore", "stages", "units[]"),
}
"""Members whose content the page does not list, by command: that of an internal topic, of a stage, of a change."""
COLLECT: Final = "JSON_MEMBERS"
VARIANTS: Final = {
    "cat --batches": ("--batches",),
    "dump --anatomy": ("--anatomy",),
    "topics reassign --cancel": ("--cancel",),
    "topics reassign --execute": ("--execute",),
    "topics reassign --verify": ("--verify", "--wait"),
}
"""What commands print instead with one of these options."""
BY_LINE: Final = (
    "cat",
    "cat --batches",
    "consume",
    "dump",
    "dump --anatomy",
    "metadata history",
    "topics reassign --cancel",
    "topics reassign --execute",
)
"""What prints an object per line."""

ABSENT: Final = "absent"
"""The type of a member that an object may lack."""

PAGES: Final = {"topics elect": "topics-replicas", "topics reassign": "topics-replicas"}
"""The page that explains an output, where that is not the page of the first word."""

Members = dict[str, set[str]]
"""The types of each member, by its path."""


def output_of(name: str, arguments: Sequence[str]) -> str | None:
    """Return the heading on the page for what a command line prints, None if that is no JSON."""
    given = list(arguments)
    forms = [after for option, after in itertools.pairwise(given) if option == "--format"]
    is_json = "--json" in given or (name == "consume" and "-J" in given) or any(each[:4] == "json" for each in forms)
    if not is_json and "--batches" not in given:
        return None
    variants = [each for each, flags in VARIANTS.items() if each.startswith(f"{name} --") and set(flags) & set(given)]
    return (variants or [name])[0]


def documents(output: str, text: str) -> list[Any]:
    """Return the JSON documents in what was printed."""
    if not text.strip():
        return []
    return [json.loads(line) for line in text.splitlines()] if output in BY_LINE else [json.loads(text)]


def members_of(output: str, document: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and type of a document and of all that is in it; of an object with the names that it has."""
    is_map, is_open = (at in paths.get(output, ()) for paths in (MAPS, OPEN))
    if isinstance(document, dict):
        yield at, f"object {'' if is_map or is_open else ' '.join(sorted(document))}"
        for name, value in () if is_open else document.items():
            yield from members_of(output, value, inside(at, "*" if is_map else name))
    elif isinstance(document, list):
        yield at, "list"
        for each in () if is_open else document:
            yield from members_of(output, each, f"{at}[]")
    else:
        kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
        yield at, kinds[type(document)]


def is_variable(output: str, path: str) -> bool:
    """Say whether the names in the object at a path are not fixed."""
    return path in MAPS.get(output, ()) or path in OPEN.get(output, ())


def inside(at: str, name: str) -> str:
    """Return the path of a member of the object at a path."""
    return f"{at}.{name}" if at else name


def page_members() -> dict[str, Members]:
    """Return what the page says, by output."""
    sections = re.findall(r"^### `([^`]+)`$.*?^```text\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return {
        name: {path: set(kinds.split(" | ")) for path, kinds in (line.split(maxsplit=1) for line in lines.splitlines())}
        for name, lines in sections
    }


_PAGE: dict[str, Members] = {}
is_checking = False
"""Whether `check` compares, not only collects."""


def check(name: str, arguments: Sequence[str], status: int, printed: str) -> None:
    """Fail if a command printed a member that the page does not have, or of another type."""
    output = output_of(name, arguments)
    if output is None or status > WRONG_USE or "--help" in arguments or "--values" in arguments:
        return  # --values json has JSON inside of the members
    if not (is_checking or COLLECT in os.environ):
        return
    found = {pair for document in documents(output, printed) for pair in members_of(output, document)}
    if COLLECT in os.environ:
        with Path(os.environ[COLLECT]).open("a") as file:
            file.writelines(f"{json.dumps([output, *pair])}\n" for pair in sorted(found))
        return
    if not _PAGE:
        _PAGE.update(page_members())
    known = _PAGE[output]
    for path, kind in sorted(found):
        bare, _, names = kind.partition(" ")
        is_container = bare in starts(path) and any(is_inside(each, path, bare) for each in known)
        is_number = bare == "integer" and "number" in known.get(path, ())
        assert is_container or is_number or bare in known.get(path, ()), (
            f"{output}: {path or 'the whole'} is of type {bare}"
        )
        if bare == "object" and not is_variable(output, path):
            missing = {each for each in names_in(known, path) if ABSENT not in known.get(inside(path, each), ())}
            assert missing <= set(names.split()), f"{output}: {path or 'the whole'} lacks members"


def names_in(members: Iterable[str], path: str) -> set[str]:
    """Return the names of the members of the object at a path."""
    start = f"{path}." if path else ""
    found = {each[len(start) :] for each in members if each.startswith(start) and each != path}
    return {re.split(r"[.\[]", each)[0] for each in found} - {""}


def written(found: dict[str, Members]) -> Iterator[str]:
    """Yield the section of each output."""
    for output, members in found.items():
        kept = {path: kinds for path, kinds in members.items() if not is_implied(path, kinds, members)}
        width = max(map(len, kept))
        command = PAGES.get(output.partition(" --")[0], output.partition(" ")[0])
        yield f"### `{output}`\n\n[{command}](../commands/{command}.md) says what the members mean.\n\n```text"
        yield from (f"{path:<{width}}  {' | '.join(sorted(kinds))}" for path, kinds in kept.items())
        yield "```\n"


def is_implied(path: str, kinds: set[str], members: Members) -> bool:
    """Say whether the members inside of an object or a list show what it is."""
    return len(kinds) == 1 and any(
        is_inside(each, path, kind) for kind in kinds & starts(path).keys() for each in members
    )


def starts(path: str) -> dict[str, str]:
    """Return how the paths of members begin, by the type of what they are in."""
    return {"object": f"{path}." if path else "", "list": f"{path}[]"}


def is_inside(member: str, path: str, kind: str) -> bool:
    """Say whether a member is in the object or the list at a path."""
    is_of_list = member.removeprefix(path).startswith("[]")
    return member.startswith(starts(path)[kind]) and member != path and is_of_list == (kind == "list")


def collected_in(lines: Iterable[str]) -> dict[str, Members]:
    """Return the members of what was collected, by output."""
    found: dict[str, Members] = {}
    always: dict[tuple[str, str], set[str]] = {}
    for line in lines:
        output, path, kind = json.loads(line)
        bare, is_object, names = kind.partition(" ")
        found.setdefault(output, {}).setdefault(path, set()).add(bare)
        if is_object:
            always[output, path] = always.get((output, path), set(names.split())) & set(names.split())
    for (output, path), names in always.items():
        if not is_variable(output, path):
            for each in names_in(found[output], path) - names:
                found[output][inside(path, each)].add(ABSENT)
    return {output: dict(sorted(found[output].items())) for output in sorted(found)}


if __name__ == "__main__":
    head, _, _ = PAGE.read_text("utf-8").partition("### `")
    collected = collected_in(Path(sys.argv[1]).read_text().splitlines())
    PAGE.write_text(head + "\n".join(written(collected)), encoding="utf-8")
