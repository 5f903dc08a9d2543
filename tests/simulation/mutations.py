"""Finds the statements of `log/` and `offline/` that an order on the disk or trust in a file hangs on, and changes one.

A site is a statement of its own that calls `sync`, `rename` or their like, or an `if` that ends in `raise`: a check. It
is named by its function, so that lines may move. A mutated function is compiled from its module's source and put in
place by its code alone: each reference to the function calls the mutated one.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import magicbyte
from syntax import parsed

PACKAGE = Path(magicbyte.__file__).parent
MODULES = [
    path
    for room in ("engine/log", "tools/offline")
    for path in sorted((PACKAGE / room).rglob("*.py"))
    if path.stem != "__init__"
]
PATHS = {path.stem: path for path in MODULES}
"""By name: the modules that write logs."""
assert len(PATHS) == len(MODULES), "two modules of one name: a site would not say which it is in"
SYNCS = ("sync", "sync_by", "sync_directory", "fsync")
RENAMES = ("rename", "replace")
CHECK = "check"
_ON_DISK = {
    *SYNCS,
    *RENAMES,
    "create",
    "delete",
    "make_directory",
    "write_at",
    "truncate",
    "put_file",
    "_put",
    "unlink",
}
_ON_DISK |= {"mkdir", "rmtree", "copyfile", "put", "put_empty", "replace_file"}
_ON_DISK |= {"truncate_start", "truncate_end", "delete_renamed"}
"""Calls whose order among each other a crash can show."""


@dataclass(frozen=True)
class Site:
    """A statement in a function; `number` tells it from equal ones there, in their order."""

    module: str
    function: str
    text: str
    number: int

    @property
    def kind(self) -> str:
        return kind_of(parsed(self.text).body[0])

    @property
    def name(self) -> str:
        line = self.text.partition("\n")[0]
        return f"{self.module}.{self.function}: {line}" + (f" ({self.number})" if self.number > 1 else "")


def kind_of(statement: ast.AST) -> str:
    """Return the name of what a statement calls that is a call and nothing else; CHECK for one that may raise."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name))):
            return str(name)
        case ast.If(body=[*_, ast.Raise()], orelse=[]):
            return CHECK
    return ""


def sites(*kinds: str, modules: Iterable[str] | None = None) -> list[Site]:
    """Return the statements of these kinds in all modules, or in some."""
    names = sorted(PATHS) if modules is None else sorted(set(modules))
    return [site for name in names for site, _ in _found_in(name, kinds)]


@functools.cache
def _found_in(module: str, kinds: tuple[str, ...]) -> list[tuple[Site, ast.stmt]]:
    return _sites_in(_tree(module), module, kinds)


@functools.cache
def _tree(module: str) -> ast.Module:
    """Return a module's tree, which is not to be changed."""
    return parsed(PATHS[module].read_text())


def _sites_in(tree: ast.AST, module: str, kinds: tuple[str, ...]) -> list[tuple[Site, ast.stmt]]:
    found: list[tuple[Site, ast.stmt]] = []
    seen: dict[tuple[str, str], int] = {}
    for function, statement in _statements(tree, ""):
        if kind_of(statement) in kinds:
            text = ast.unparse(statement)
            line = text.partition("\n")[0]
            seen[function, line] = seen.get((function, line), 0) + 1
            found.append((Site(module, function, text, seen[function, line]), statement))
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
    """Do nothing where the statement was."""
    block, at = _place(tree, statement)
    block[at] = ast.copy_location(ast.Pass(), statement)


@functools.lru_cache(maxsize=32)
def _nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return all nodes of a tree that is not changed yet."""
    return tuple(ast.walk(tree))


def _parents(tree: ast.AST, statement: ast.stmt, kind: type[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a kind that a statement lies in, the outermost first."""
    first, end = statement.lineno, statement.end_lineno or 0
    above = (each for each in _nodes(tree) if isinstance(each, kind) and each is not statement)
    return [each for each in above if each.lineno <= first and end <= (each.end_lineno or 0)]


def _place(tree: ast.Module, statement: ast.stmt) -> tuple[list[Any], int]:
    for node in _nodes(tree):
        for value in vars(node).values():
            if isinstance(value, list) and any(each is statement for each in value):
                return value, next(at for at, each in enumerate(value) if each is statement)
    raise AssertionError(statement)


@contextlib.contextmanager
def mutated(site: Site, change: Change = taken_out) -> Iterator[None]:
    """Run the block with the function of `site` changed."""
    path = PATHS[site.module]
    module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    tree = parsed(path.read_text())
    (statement,) = [each for found, each in _sites_in(tree, site.module, (site.kind,)) if found == site]
    change(tree, statement)
    code = _code_of(compile(ast.fix_missing_locations(tree), str(path), "exec"), site.function)
    function = _function_of(module, site.function)
    before, function.__code__ = function.__code__, code
    try:
        yield
    finally:
        function.__code__ = before


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
    """Swap the statement with the next one: its loop, if there is one, is moved with it."""
    block, at = _place(tree, (_parents(tree, statement, ast.For) or [statement])[0])
    block[at : at + 2] = reversed(block[at : at + 2])


def moved_before_the_last(tree: ast.Module, statement: ast.stmt) -> None:
    """Swap the statement with the one before it."""
    block, at = _place(tree, (_parents(tree, statement, ast.For) or [statement])[0])
    block[at - 1 : at + 1] = reversed(block[at - 1 : at + 1])


def applies(site: Site, change: str) -> bool:
    """Say whether a site can be changed so: a loop to reverse, a neighbour that does something on the disk as well."""
    tree = _tree(site.module)
    statement = next(each for found, each in _found_in(site.module, (site.kind,)) if found == site)
    loops = _parents(tree, statement, ast.For)
    block, at = _place(tree, loops[0] if loops else statement)
    match change:
        case "loop reversed":
            return bool(loops)
        case "behind the next":
            return at + 1 < len(block) and _is_on_disk(block[at + 1])
        case "before the last":
            return at > 0 and _is_on_disk(block[at - 1])
    return True


def _is_on_disk(statement: ast.stmt) -> bool:
    calls = (each.func for each in ast.walk(statement) if isinstance(each, ast.Call))
    names = {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in calls}
    return bool(names & _ON_DISK)
