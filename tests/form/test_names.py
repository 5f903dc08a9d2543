"""Names that tell no type and no role, such as `found`, stand for a few lines only; their number only goes down."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from syntax import parsed, sources, walk

RIDDLES: Final = ("each", "found", "part", "place", "said", "told")
FEW_LINES: Final = 6
"""The lines in which a reader still sees where such a name comes from."""
MOST: Final = 8
"""Such names that are used over more lines. Lower it when it is too high."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Loop = ast.For | ast.AsyncFor


def names_in(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def binds(node: ast.AST, name: str) -> bool:
    """Say whether a loop, a comprehension or an inner function has a variable `name` of its own."""
    match node:
        case ast.For(target=target) | ast.AsyncFor(target=target):
            return name in names_in(target)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return any(name in names_in(generator.target) for generator in node.generators)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            arguments = (inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg))
            stored = (inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and is_stored(inner))
            return name in {*arguments, *stored}
    return False


def lines_of(node: ast.AST, name: str) -> Iterator[tuple[int, bool]]:
    """Yield the lines with `name` in `node`, and whether it is bound there; without scopes that rebind it."""
    if isinstance(node, ast.Name) and node.id == name:
        yield node.lineno, is_stored(node)
    elif isinstance(node, ast.arg) and node.arg == name:
        yield node.lineno, True
    for child in ast.iter_child_nodes(node):
        if not binds(child, name):
            yield from lines_of(child, name)


def spans(node: ast.AST) -> dict[str, tuple[int, int]]:
    """Return the first and the last line of each of RIDDLES in `node`, whatever binds it."""
    found: dict[str, tuple[int, int]] = {}
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name, lineno=line) | ast.arg(arg=name, lineno=line) if name in RIDDLES:
                first, last = found.get(name, (line, line))
                found[name] = min(first, line), max(last, line)
    return found


def riddles(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the first line and the name of each variable of RIDDLES that is used over more than FEW_LINES lines."""
    for scope in walk(tree):
        if isinstance(scope, ast.Module | Function | Loop | Comprehension):
            for name, (first, last) in spans(scope).items():
                if last - first >= FEW_LINES and (isinstance(scope, ast.Module | Function) or binds(scope, name)):
                    uses = list(lines_of(scope, name))
                    lines = [line for line, _ in uses]
                    if any(bound for _, bound in uses) and max(lines) - min(lines) >= FEW_LINES:
                        yield min(lines), name


def test_a_riddle_is_found_where_it_is_used_over_many_lines() -> None:
    gap = "\n".join("    pass" for _ in range(FEW_LINES))
    for code in ("def f(part):\n{gap}\n    return part", "def f():\n    found = 1\n{gap}\n    return found",
                 "for each in data:\n{gap}\n    print(each)"):  # fmt: skip
        assert list(riddles(parsed(code.format(gap=gap))))
    assert not list(riddles(parsed("def f():\n    found = 1\n    return found")))
    assert not list(riddles(parsed(f"def f():\n    a = [each for each in b]\n{gap}\n    return [each for each in a]")))


def test_names_without_type_or_role_become_fewer() -> None:
    listed = [f"{path}:{line} {name}" for path, tree in sources().items() for line, name in riddles(tree)]
    assert len(listed) <= MOST, "\n".join(listed)
    assert len(listed) > MOST - 10, f"lower MOST: {len(listed)} are left"
