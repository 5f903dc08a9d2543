"""The shape of the house: how large a file and a class of `src/` may be."""

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
