"""The shape of the house: sizes of files and classes of `src/`, one home for a rule, one class for a name."""

from __future__ import annotations

import ast
from pathlib import Path

from syntax import parsed

SOURCE = Path(__file__).parents[1] / "src/magicbyte"
GENERATED = ("messages", "stored", "extensions")
MOST_LINES, MOST_METHODS = 700, 30


def modules() -> dict[str, str]:
    paths = (path for path in SOURCE.rglob("*.py") if path.parent.name not in GENERATED)
    return {path.relative_to(SOURCE).as_posix(): path.read_text() for path in paths}


def test_no_file_has_more_than_700_lines() -> None:
    lengths = {name: len(text.splitlines()) for name, text in modules().items()}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_no_class_has_more_than_30_methods() -> None:
    found = {}
    for name, text in modules().items():
        for each in ast.walk(parsed(text)):
            if isinstance(each, ast.ClassDef):
                methods = sum(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in each.body)
                if methods > MOST_METHODS:
                    found[f"{name} {each.name}"] = methods
    assert found == {}


def names_in(tree: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}


def test_one_module_says_where_an_entry_of_each_magic_ends() -> None:
    least = {"RECORD_BATCH_MINIMUM", "V1_MINIMUM"}
    homes = {name for name, text in modules().items() if least <= names_in(parsed(text))}
    assert homes == {"records/layout.py", "records/kernels/framing.py"}


def test_files_are_walked_over_by_one_generator_and_behind_damage_by_one_loop() -> None:
    """What else takes size fields in a loop does so in memory, by the rule of `framing`, or after a walk by it."""
    homes = {
        name
        for name, text in modules().items()
        if not name.startswith("records/") and {"SIZE", "SIZE_AT", "_SIZE_AND_MAGIC"} & names_in(parsed(text))
        for each in ast.walk(parsed(text))
        if isinstance(each, ast.While) and {"SIZE", "SIZE_AT", "unpack"} & names_in(each)
    }
    assert homes == {"log/files/heads.py", "log/files/resync.py", "log/append/index_kernels.py"}


TWINS = "of `groups/` and of `transactions/`, two coordinators of one make, each imported by its room"
IN_TWO_FILES = {
    **dict.fromkeys(("Coordinator", "Loading"), TWINS),
    "Answer": "of a page of HTTP, and of a coordinator's request",
    "Store": "of keys and certificates, and an effect of transactions",
    "Broker": "the public name of a broker in tests, and the broker itself",
    "Part": "of record sets while `log/append` has two forms of them",
    "Request": "of the broker, and of the rules of one version of Produce in `log/append`",
}
"""Names of classes that stand in two files, with the reason. No other does, so that a name tells what it means."""


def test_no_class_name_stands_in_two_files() -> None:
    homes: dict[str, set[str]] = {}
    for name, text in modules().items():
        for each in ast.walk(parsed(text)):
            if isinstance(each, ast.ClassDef):
                homes.setdefault(each.name, set()).add(name)
    assert {name: files for name, files in homes.items() if len(files) > 1 and name not in IN_TWO_FILES} == {}
    assert {name for name in IN_TWO_FILES if len(homes.get(name, ())) < 2} == set()
