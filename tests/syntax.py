"""Python's syntax trees."""

import ast
import functools
import gc
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src/magicbyte"
GENERATED = ("messages", "stored", "extensions")
HOUSES = ("engine", "access", "server", "tools")


def parsed(code: str) -> ast.Module:
    """The tree of `code`, made without the garbage collector.

    A collection may end a task whose error was never retrieved; asyncio logs its traceback, and `traceback` parses code
    to do so. Python 3.11 has one count of the depth for all parsers: one that runs inside another leaves the outer one
    with a SystemError (https://github.com/python/cpython/issues/106905).
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(code)
    finally:
        if enabled:
            gc.enable()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The tree of a file, parsed once by a process; do not change it.

    It stays, so it is hidden from the garbage collector, which would look at its nodes again and again.
    """
    tree = parsed(path.read_text("utf-8"))
    gc.freeze()
    return tree


@functools.cache
def walk(node: ast.AST) -> tuple[ast.AST, ...]:
    """What `ast.walk` gives, found once by a process: for trees that many tests look at; do not change them."""
    found = [node]
    for each in found:  # it grows meanwhile
        for value in vars(each).values():
            if isinstance(value, list):
                found += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return tuple(found)


@functools.cache
def sources() -> dict[str, ast.Module]:
    """The trees of the modules of `src/` that are written by hand, by path from the room on; do not change them."""
    paths = (path for path in SOURCE.rglob("*.py") if path.parent.name not in GENERATED)
    return {from_room(path): tree_of(path) for path in sorted(paths)}


def from_room(path: Path) -> str:
    """The path of a module without its house: no two rooms have one name."""
    parts = path.relative_to(SOURCE).parts
    return "/".join(parts[1:] if parts[0] in HOUSES and parts[1] != "__init__.py" else parts)
