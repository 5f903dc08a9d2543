"""Render records by a template, in the notation of kcat's -f: `%k: %s\n`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from magicbyte.engine.compiled.kernel import Ints
    from magicbyte.engine.records.columns import BytesColumn, RecordColumns
    from magicbyte.engine.records.text import LineWriter

Part: TypeAlias = str | bytes
"""A column, by its letter, or bytes that are the same in each record."""

FIELDS: Final = "sSkKtpoTh"
_MARK = re.compile(r"%(.?)|\\(x[0-9A-Fa-f]{2}|.?)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def parse_template(text: str) -> list[Part]:
    """Return the parts of a template. Raises ValueError."""
    parts: list[Part] = []
    at = 0
    for mark in _MARK.finditer(text):
        parts.append(_raw(text[at : mark.start()]))
        at = mark.end()
        field, escape = mark[1], mark[2]
        if field == "%":
            parts.append(b"%")
        elif field is not None:
            if not field or field not in FIELDS:
                raise ValueError(f"{mark[0]!r}: expected one of {', '.join(f'%{each}' for each in FIELDS)}, or %%")
            parts.append(field)
        else:
            parts.append(_escaped(escape))
    return [part for part in (*parts, _raw(text[at:])) if part]


def unescape(text: str) -> bytes:
    r"""Return the bytes of a text with escapes: \n, \t, \r, \0, \\ and \xHH stand for one byte. Raises ValueError."""
    parts: list[bytes] = []
    at = 0
    for mark in re.finditer(r"\\(x[0-9A-Fa-f]{2}|.?)", text, re.DOTALL):
        parts += [_raw(text[at : mark.start()]), _escaped(mark[1])]
        at = mark.end()
    return b"".join([*parts, _raw(text[at:])])


def _escaped(escape: str) -> bytes:
    if len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise ValueError(f"'\\{escape}': expected \\n, \\t, \\r, \\0, \\\\ or \\xHH")
    return _ESCAPES[escape]


def _raw(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def templated(parts: Iterable[Part], topic: str, partition: int) -> Callable[[RecordColumns], bytes | memoryview]:
    """Return a renderer of the records of a partition. Nulls are empty, with size -1.

    Its result is valid until its next call.
    """
    from magicbyte.engine.records.text import suits

    wanted = list(parts)
    whose: dict[str, bytes] = {"t": topic.encode(), "p": b"%d" % partition}
    fast = _writer([whose.get(part, part) if isinstance(part, str) else part for part in wanted])

    def cells(part: Part, columns: RecordColumns) -> Iterable[bytes]:
        if isinstance(part, bytes):
            return repeat(part, len(columns))
        return repeat(whose[part], len(columns)) if part in whose else _COLUMNS[part](columns)

    def render(columns: RecordColumns) -> bytes | memoryview:
        if suits(columns):
            return fast().write(columns)
        return b"".join(chain.from_iterable(zip(*(cells(part, columns) for part in wanted), strict=True)))

    return render


def _writer(parts: list[Part]) -> Callable[[], LineWriter]:
    """Return a function that returns a writer of the lines of records without headers, created on demand."""
    from magicbyte.engine.records.text import LineWriter, TextField

    fields: dict[str, TextField | bytes] = {
        "s": TextField.VALUE,
        "S": TextField.VALUE_SIZE,
        "k": TextField.KEY,
        "K": TextField.KEY_SIZE,
        "o": TextField.OFFSET,
        "T": TextField.TIMESTAMP,
        "h": b"",
    }
    return functools.cache(lambda: LineWriter([fields[part] if isinstance(part, str) else part for part in parts]))


def _contents(column: BytesColumn | None) -> list[bytes]:
    assert column is not None, "keys and values were decoded"
    return [cell or b"" for cell in column.cells()]


def _numbers(numbers: Ints) -> list[bytes]:
    return [b"%d" % numbers[at] for at in range(len(numbers))]


def _sizes(column: BytesColumn | None) -> list[bytes]:
    assert column is not None, "keys and values were decoded"
    return _numbers(column.length)


def _headers(columns: RecordColumns) -> list[bytes]:
    if columns.headers is None or not len(columns.headers.key):
        return [b""] * len(columns)
    return [
        b",".join(_raw(name) + b"=" + (b"NULL" if value is None else value) for name, value in headers)
        for headers in columns.headers.rows()
    ]


_COLUMNS: Final[dict[str, Callable[[RecordColumns], list[bytes]]]] = {
    "s": lambda columns: _contents(columns.value),
    "S": lambda columns: _sizes(columns.value),
    "k": lambda columns: _contents(columns.key),
    "K": lambda columns: _sizes(columns.key),
    "o": lambda columns: _numbers(columns.offset),
    "T": lambda columns: _numbers(columns.timestamp),
    "h": _headers,
}
