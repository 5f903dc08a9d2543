"""Which error codes an answer has: its own, and those of all that it lists, such as partitions."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, TypeAlias

Collect: TypeAlias = Callable[[Any, list[int]], None]
"""Adds the codes of a message to a list, 0 (none) too."""

_code: Final = attrgetter("error_code")
_ROWS: Final = re.compile(r"list\[(\w+)\]")


def codes_of(kind: type) -> Collect | None:
    """Return what finds the error codes of a kind of messages, or of rows in one; None where it has none."""
    module, has_own = vars(sys.modules[kind.__module__]), False
    inner: list[tuple[str, Collect]] = []
    for each in fields(kind):
        rows = _ROWS.match(str(each.type))
        if each.name == "error_code":
            has_own = True
        elif rows and isinstance(row := module.get(rows[1]), type) and (below := codes_of(row)) is not None:
            inner.append((each.name, below))
    if not inner:
        return _own if has_own else None
    collect = _rows(*inner[0]) if len(inner) == 1 else _all(inner)
    return _with_own(collect) if has_own else collect


def _own(message: Any, codes: list[int]) -> None:
    codes.append(message.error_code)


def _with_own(below: Collect) -> Collect:
    def collect(message: Any, codes: list[int]) -> None:
        codes.append(message.error_code)
        below(message, codes)

    return collect


def _all(inner: list[tuple[str, Collect]]) -> Collect:
    collects = [_rows(name, below) for name, below in inner]

    def collect(message: Any, codes: list[int]) -> None:
        for each in collects:
            each(message, codes)

    return collect


def _rows(name: str, below: Collect) -> Collect:
    """Return what goes through a list. It is on the way of each request, which is why plain rows have no call each."""
    if below is _own:

        def collect(message: Any, codes: list[int]) -> None:
            codes.extend(map(_code, getattr(message, name) or ()))
    else:

        def collect(message: Any, codes: list[int]) -> None:
            for row in getattr(message, name) or ():
                below(row, codes)

    return collect
