"""Python statements as data, and as lines no longer than `ruff format` makes them."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from magicbyte.engine.printable import printable

WIDTH: Final = 120  # columns


@dataclass(frozen=True, slots=True)
class Call:
    """A statement that may be too long for a line: `flat` is all of it; else `head`, a line for each item, `tail`."""

    flat: str
    head: str
    items: tuple[str | Call, ...]
    tail: str
    separator: str = ","


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """Statements under a line such as `if …:`. `terms`: of a condition, alternatives; of a loop, one."""

    keyword: str
    terms: tuple[str, ...]
    body: Body

    @property
    def head(self) -> str:
        """The line above the statements."""
        return f"{self.keyword} {' or '.join(self.terms)}:" if self.terms else f"{self.keyword}:"


Statement: TypeAlias = "str | Call | CodeBlock"
Body: TypeAlias = "tuple[Statement, ...]"


def when(terms: str | tuple[str, ...], *body: Statement) -> CodeBlock:
    """Return statements under the condition that one of `terms` is true."""
    return CodeBlock("if", (terms,) if isinstance(terms, str) else terms, body)


def otherwise(*body: Statement) -> CodeBlock:
    """Return statements for the case that no earlier condition is true."""
    return CodeBlock("else", (), body)


def loop(each: str, *body: Statement) -> CodeBlock:
    """Return a loop over `each`, such as `item in items`."""
    return CodeBlock("for", (each,), body)


def also(first: str, terms: tuple[str, ...]) -> str:
    """Return the condition that `first` and one of `terms` are true."""
    second = " or ".join(terms)
    return f"{first} and ({second})" if len(terms) > 1 else f"{first} and {second}"


def names_in(body: Iterable[Statement]) -> set[str]:
    """Return the variables of some statements."""
    tree = ast.parse("\n".join(lines(body, 0)))
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def names_read(code: str) -> set[str]:
    """Return the names whose values a module's code uses, not attributes and fields of the same names."""
    return {
        node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def condition(low: int, high: int, lowest: int, left: int) -> str:
    """Return the condition for versions `low` to `high`, given that only `lowest` to `left` reach this line."""
    if high == left:
        return f"version >= {low}"
    if low == lowest:
        return f"version <= {high}"
    return f"version == {low}" if low == high else f"{low} <= version <= {high}"


def quoted(text: str) -> str:
    """Return a string literal with ruff's quotes: double ones unless they need more escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    letters = (each if each in "'\"" else repr(each)[1:-1] for each in text)
    return quote + "".join(f"\\{each}" if each == quote else each for each in letters) + quote


def wrapped(text: str, indent: int, *, hanging: bool = False) -> list[str]:
    """Return text as lines that fit after `indent` columns, safe in a docstring."""
    text = printable(" ".join(text.replace("\\", "\\\\").replace('"""', "'''").split()))
    text = f"{text}." if text.endswith('"') else text
    return textwrap.wrap(
        text, WIDTH - indent - 3, subsequent_indent="    " if hanging else "", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def call(head: str, items: Sequence[str], tail: str) -> Call:
    """Return a call, or a statement of the same form, with these arguments."""
    return Call(f"{head}{', '.join(items)}{tail}", head, tuple(items), tail)


def signature(head: str) -> list[str]:
    """Return the first lines of a method, exploded if they are too long."""
    before, _, rest = head.partition("(")
    inside, _, after = rest.partition(")")
    return lines((Call(head, f"{before}(", tuple(inside.split(", ")), f"){after}"),), 4)


def lines(body: Iterable[Statement], indent: int) -> list[str]:
    """Return statements as lines."""
    made = []
    space = " " * indent
    for statement in body:
        if isinstance(statement, CodeBlock):
            made += [space + statement.head, *lines(statement.body, indent + 4)]
        elif isinstance(statement, Call) and indent + len(statement.flat) > WIDTH:
            made.append(space + statement.head)
            for item in statement.items:
                rows = (
                    lines((Call(f"{item.flat},", item.head, item.items, f"{item.tail},"),), indent + 4)
                    if isinstance(item, Call)
                    else [f"{space}    {item}{statement.separator}"]
                )
                made += rows
            made.append(space + statement.tail)
        else:
            made.append(space + (statement.flat if isinstance(statement, Call) else statement))
    return made
