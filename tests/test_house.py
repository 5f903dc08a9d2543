"""The shape of the house: how large a file and a class of `src/` may be, and that a rule has one home."""

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
