"""Finds the calls in the code of `log/` that an order on the disk hangs on, and takes one out while a test runs.

A site is a statement of its own that calls `sync`, `sync_directory` or `rename`. It is named by its function, so that
lines may move. A mutated function is compiled from its module's source and put in place by its code alone: whoever has
the function has the mutated one.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import magicbyte.log

FOLDER = Path(magicbyte.log.__file__).parent
SYNCS = ("sync", "sync_directory")
_HOOK = "_what_a_mutation_calls"


@dataclass(frozen=True)
class Site:
    """A call in a function of `log/`; `number` tells it from equal ones there, in their order."""

    module: str
    function: str
    call: str
    number: int

    @property
    def call_name(self) -> str:
        return called(ast.parse(self.call).body[0])

    @property
    def name(self) -> str:
        return f"{self.module}.{self.function}: {self.call}" + (f" ({self.number})" if self.number > 1 else "")


def called(statement: ast.AST) -> str:
    """Return the name of what a statement calls that is a call and nothing else."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name))):
            return str(name)
    return ""


def sites(*names: str) -> list[Site]:
    """Return the calls of these names in all of `log/`."""
    return [
        site
        for path in sorted(FOLDER.glob("*.py"))
        for site, _ in _sites_in(ast.parse(path.read_text()), path.stem, names)
    ]


def _sites_in(tree: ast.AST, module: str, names: tuple[str, ...]) -> list[tuple[Site, ast.stmt]]:
    found: list[tuple[Site, ast.stmt]] = []
    seen: dict[tuple[str, str], int] = {}
    for function, statement in _statements(tree, ""):
        if called(statement) in names:
            call = ast.unparse(statement)
            seen[function, call] = seen.get((function, call), 0) + 1
            found.append((Site(module, function, call, seen[function, call]), statement))
    return found


def _statements(tree: ast.AST, function: str) -> Iterator[tuple[str, ast.stmt]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.stmt):
            yield function, child
        inner = function
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{function}.{child.name}" if function else child.name
        yield from _statements(child, inner)


Change = Callable[[ast.Module, ast.stmt], None]


def taken_out(tree: ast.Module, statement: ast.stmt) -> None:
    """Call the hook where the statement was."""
    block, at = _place(tree, statement)
    block[at] = ast.copy_location(ast.parse(f"{_HOOK}()").body[0], statement)


def _parents(tree: ast.AST, statement: ast.stmt, kind: type[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a kind that a statement lies in, the outermost first."""
    return [each for each in ast.walk(tree) if isinstance(each, kind) and statement in list(ast.walk(each))[1:]]


def _place(tree: ast.Module, statement: ast.stmt) -> tuple[list[Any], int]:
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and any(each is statement for each in value):
                return value, next(at for at, each in enumerate(value) if each is statement)
    raise AssertionError(statement)


@contextlib.contextmanager
def mutated(site: Site, change: Change = taken_out, hook: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Run the block with the function of `site` changed; `hook` is called where a call was taken out."""
    module = importlib.import_module(f"magicbyte.log.{site.module}")
    path = FOLDER / f"{site.module}.py"
    tree = ast.parse(path.read_text())
    (statement,) = [each for found, each in _sites_in(tree, site.module, (site.call_name,)) if found == site]
    change(tree, statement)
    code = _code_of(compile(ast.fix_missing_locations(tree), str(path), "exec"), site.function)
    function = _function_of(module, site.function)
    before, function.__code__ = function.__code__, code
    setattr(module, _HOOK, hook)
    try:
        yield
    finally:
        function.__code__ = before
        delattr(module, _HOOK)


def _code_of(code: types.CodeType, function: str) -> types.CodeType:
    for name in function.split("."):
        code = next(each for each in code.co_consts if isinstance(each, types.CodeType) and each.co_name == name)
    return code


def _function_of(module: types.ModuleType, function: str) -> types.FunctionType:
    found: Any = module
    for name in function.split("."):
        found = vars(found)[name]
    if isinstance(found, classmethod | staticmethod):
        found = found.__func__
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    assert isinstance(found, types.FunctionType), found
    return found


def order_reversed(tree: ast.Module, statement: ast.stmt) -> None:
    """Let the innermost loop around the statement go the other way round."""
    loop = _parents(tree, statement, ast.For)[-1]
    assert isinstance(loop, ast.For)
    loop.iter = ast.copy_location(ast.parse(f"reversed(list({ast.unparse(loop.iter)}))", mode="eval").body, loop.iter)


def moved_behind_the_next(tree: ast.Module, statement: ast.stmt) -> None:
    """Let what comes next happen first: the statement's loop, if there is one, is moved with it."""
    block, at = _place(tree, (_parents(tree, statement, ast.For) or [statement])[0])
    block[at : at + 2] = reversed(block[at : at + 2])


def moved_before_the_last(tree: ast.Module, statement: ast.stmt) -> None:
    """Let what comes before it happen behind it."""
    block, at = _place(tree, (_parents(tree, statement, ast.For) or [statement])[0])
    block[at - 1 : at + 1] = reversed(block[at - 1 : at + 1])


def applies(site: Site, change: str) -> bool:
    """Say whether a site can be changed so: a loop that can be reversed, a neighbour to change places with."""
    tree = ast.parse((FOLDER / f"{site.module}.py").read_text())
    statement = next(each for found, each in _sites_in(tree, site.module, (site.call_name,)) if found == site)
    loops = _parents(tree, statement, ast.For)
    block, at = _place(tree, loops[0] if loops else statement)
    match change:
        case "loop reversed":
            return bool(loops)
        case "behind the next":
            return at + 1 < len(block)
        case "before the last":
            return at > 0
    return True
