"""Render records as lines: jsonl, text and csv. Each renderer converts columns to the lines of all their records.

A renderer is created once per partition. It avoids work per record, because it dominates the time of `cat`.
"""

from __future__ import annotations

import functools
import json
from binascii import b2a_base64
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii as quote
from typing import Any

import click

from magicbyte.engine.printable import printable, readable, time_text
from magicbyte.engine.records.columns import RecordColumns

Renderer = Callable[[RecordColumns], "bytes | memoryview"]
"""Returns the lines of all records, in memory that its next call may reuse."""
Cells = Callable[[list[bytes | None]], list[str]]
Headers = tuple[tuple[str, bytes | None], ...]

_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


# ---- cells of the machine formats, as JSON


def _base64(cells: list[bytes | None]) -> list[str]:
    return ["null" if cell is None else f'"{b2a_base64(cell, newline=False).decode()}"' for cell in cells]


def _hex(cells: list[bytes | None]) -> list[str]:
    return ["null" if cell is None else f'"{cell.hex()}"' for cell in cells]


def _utf8(cells: list[bytes | None]) -> list[str]:
    return ["null" if cell is None else quote(cell.decode(errors="backslashreplace")) for cell in cells]


def _json(cells: list[bytes | None]) -> list[str]:
    return ["null" if cell is None else _as_json(cell) for cell in cells]


def _as_json(cell: bytes) -> str:
    """Return the cell unchanged if it is a JSON document, on one line, else as a JSON string."""
    text = cell.decode(errors="backslashreplace")
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return quote(text)
    # Line ends occur between tokens only: JSON requires escapes inside strings.
    return text.replace("\n", " ").replace("\r", " ")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


CELLS: dict[str, Cells] = {"utf8": _utf8, "json": _json, "base64": _base64, "hex": _hex}
"""The renderers of values, by --values."""

values_option = click.option(
    "--values", type=click.Choice(list(CELLS)), default=None,
    help="How JSON and CSV show bytes: utf8 escapes bytes that are not UTF-8, json embeds JSON documents, base64 "
    "and hex keep every byte.  [default: utf8]",
)  # fmt: skip
DEFAULT_VALUES = "utf8"


# ---- jsonl


def jsonl(values: str, topic: str | None, partition: int | None) -> Renderer:
    """Return a renderer of one JSON object per record, with the same members in `cat` and `consume`."""
    from magicbyte.engine.records.text import LineWriter, TextField, min_max, suits

    cells = CELLS[values]
    start = f'{{"topic": {json.dumps(topic)}, "partition": {json.dumps(partition)}, "offset": '

    @functools.cache
    def writer(kind: int) -> LineWriter:
        middle = f', "timestampType": "{_TYPES[kind]}", "key": '
        return LineWriter([start.encode(), TextField.OFFSET, b', "timestamp": ', TextField.TIMESTAMP,
                           middle.encode(), TextField.QUOTED_KEY, b', "value": ', TextField.QUOTED_VALUE,
                           b', "headers": []}\n'])  # fmt: skip

    def plain(columns: RecordColumns) -> bytes:
        keys, lines_of_values = _cells_of(columns, cells)
        headers = _json_headers(columns, cells)
        rows = zip(*_times(columns), keys, lines_of_values, headers, strict=True)
        return "".join(
            [
                f'{start}{offset}, "timestamp": {timestamp}, "timestampType": "{_TYPES[kind]}", '
                f'"key": {key}, "value": {value}, "headers": {found}}}\n'
                for offset, timestamp, kind, key, value, found in rows
            ]
        ).encode()

    def render(columns: RecordColumns) -> bytes | memoryview:
        if values == "utf8" and suits(columns):
            lowest, highest = min_max(columns.timestamp_type)
            if lowest == highest:
                return writer(lowest).write(columns)
        return plain(columns)

    return render


def _json_headers(columns: RecordColumns, cells: Cells) -> list[str]:
    if columns.headers is None or not len(columns.headers.key):
        return ["[]"] * len(columns)
    return [_one_json_header(headers, cells) for headers in columns.headers.rows()]


def _one_json_header(headers: Headers, cells: Cells) -> str:
    if not headers:
        return "[]"
    values = cells([value for _, value in headers])
    return f"[{', '.join([f'[{quote(name)}, {value}]' for (name, _), value in zip(headers, values, strict=True)])}]"


# ---- csv


CSV_HEAD = b"topic,partition,offset,timestamp,timestampType,key,value,headers\n"
"""The line of column names."""


def csv(values: str, topic: str | None, partition: int | None) -> Renderer:
    """Return a renderer of csv rows. A null is an empty field, an empty key or value is `""`; headers are JSON."""
    cells = CELLS[values]
    start = f"{'' if topic is None else topic},{'' if partition is None else partition},"

    def render(columns: RecordColumns) -> bytes:
        keys, lines_of_values = _cells_of(columns, _csv_cells(values))
        headers = ['"' + line.replace('"', '""') + '"' for line in _json_headers(columns, cells)]
        rows = zip(*_times(columns), keys, lines_of_values, headers, strict=True)
        return "".join(
            [
                f"{start}{offset},{timestamp},{_TYPES[kind]},{key},{value},{found}\n"
                for offset, timestamp, kind, key, value, found in rows
            ]
        ).encode()

    return render


def _csv_cells(values: str) -> Cells:
    def texts(cells: Iterable[bytes | None]) -> list[str]:
        decoded = (None if cell is None else cell.decode(errors="backslashreplace") for cell in cells)
        return ["" if text is None else '"' + text.replace('"', '""') + '"' for text in decoded]

    def bare(cells: list[bytes | None]) -> list[str]:
        return ["" if line == "null" else line for line in CELLS[values](cells)]

    return bare if values in ("base64", "hex") else texts


# ---- text


def text(topic: str | None, partition: int | None, *, named: bool) -> Renderer:
    """Return a renderer of readable lines: offset, time, key, value, headers, separated by tabs.

    `named`: the name of the partition comes first.
    """
    start = f"{'-' if topic is None else printable(topic)}-{'' if partition is None else partition}\t" if named else ""

    def render(columns: RecordColumns) -> bytes:
        keys, values = _cells_of(columns, _readable_cells)
        offsets, timestamps, _ = _times(columns)
        times = [time_text(timestamp) for timestamp in timestamps]
        headers: Iterable[str] = [""] * len(columns)
        if columns.headers is not None and len(columns.headers.key):
            headers = map(_readable_headers, columns.headers.rows())
        rows = zip(offsets, times, keys, values, headers, strict=True)
        lines = [f"{start}{offset}\t{at}\t{key}\t{value}{found}\n" for offset, at, key, value, found in rows]
        return "".join(lines).encode()

    return render


def _readable_cells(cells: list[bytes | None]) -> list[str]:
    return [readable(cell) for cell in cells]


def _readable_headers(headers: Headers) -> str:
    if not headers:
        return ""
    return "\t" + ", ".join(f"{readable(name.encode())}={readable(value)}" for name, value in headers)


def many(count: int, what: str) -> str:
    """Return a count with its noun: 1 record, 2 records."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def ended_text(count: int) -> str:
    """Return the note on transactions that were open at the end of a log for a new cluster."""
    ended = many(count, "open transaction")
    return f"ended: {ended}, by ABORT markers after the last record (not with --same-cluster)"


def size_text(size: float) -> str:
    """Return a size with its unit and about three digits."""
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 100 else f"{size:.1f} {_UNITS[unit]}"


def table_lines(rows: list[list[str]], left: set[int]) -> list[str]:
    """Return the lines of a table, with columns as wide as needed, and those in `left` aligned left.

    Cells are escaped by `printable`.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        padded = [cell.ljust(width) if at in left else cell.rjust(width) for at, (cell, width) in enumerate(cells)]
        lines.append("  ".join(padded).rstrip())
    return lines


# ---- columns


def _times(columns: RecordColumns) -> tuple[list[int], list[int], list[int]]:
    return _list(columns.offset), _list(columns.timestamp), _list(columns.timestamp_type)


def _list(column: Any) -> list[int]:
    return column if isinstance(column, list) else column.tolist()


def _cells_of(columns: RecordColumns, cells: Cells) -> tuple[list[str], list[str]]:
    assert columns.key is not None, "keys were decoded"
    assert columns.value is not None, "values were decoded"
    return cells(columns.key.cells()), cells(columns.value.cells())
