"""Collect the error codes in a response: its own, and those of its rows, such as partitions."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

Collect: TypeAlias = Callable[[Any, list[int]], None]
"""Add the codes of a message to a list, including 0 (none)."""

_OWN: Final = frozenset({"error_code", "partition_error_code"})
_ROWS: Final = re.compile(r"list\[(\w+)\]")


def codes_of(kind: type[Struct]) -> Collect | None:
    """Return a collector of the error codes of a message or row class; None if it has none."""
    return _QUICK.get(kind.__name__) or _collector_of(kind)


def _collector_of(kind: type[Struct]) -> Collect | None:
    module, own = vars(sys.modules[kind.__module__]), ""
    inner: list[tuple[str, Collect]] = []
    for field in kind.__struct_fields__:
        rows = _ROWS.match(kind.__annotations__[field])
        if field in _OWN:
            own = field
        elif rows and isinstance(row := module.get(rows[1]), type) and (below := _collector_of(row)) is not None:
            inner.append((field, below))

    def collect(message: Any, codes: list[int]) -> None:
        if own:
            codes.append(getattr(message, own))
        for name, below in inner:
            for row in getattr(message, name) or ():
                below(row, codes)

    return collect if own or inner else None


def _of_produce(message: Any, codes: list[int]) -> None:
    for topic in message.responses:
        for part in topic.partition_responses:
            codes.append(part.error_code)  # noqa: PERF401 (there is one, mostly: a call for all takes longer)


def _of_fetch(message: Any, codes: list[int]) -> None:
    codes.append(message.error_code)
    for topic in message.responses:
        for part in topic.partitions:
            codes.append(part.error_code)  # noqa: PERF401 (there is one, mostly: a call for all takes longer)


_QUICK: Final[Mapping[str, Collect]] = {"ProduceResponse": _of_produce, "FetchResponse": _of_fetch}
"""Collectors of the most frequent responses of a broker, which take a third of the time."""
