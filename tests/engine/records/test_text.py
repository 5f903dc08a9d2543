"""Lines of many records: what the kernels write is what Python's own json and formatting give, for any bytes at all."""

import json
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.records import text_kernels as kernels
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import columns_of
from magicbyte.engine.records.text import LineWriter, Part, TextField

INT64S = st.integers(-(1 << 63), (1 << 63) - 1)
# Bytes at the borders of what UTF-8 allows, more often than chance would have them.
EDGES = bytes.fromhex(
    "00 08 09 0a 0c 0d 1f 20 21 22 23 5c 2f 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff"
)
TEXTS = st.one_of(
    st.binary(max_size=40), st.text(max_size=20).map(str.encode), st.lists(st.sampled_from(EDGES)).map(bytes)
)
CELLS = st.none() | TEXTS
ROWS = st.lists(st.tuples(INT64S, INT64S, CELLS, CELLS), min_size=1, max_size=8)


def quoted(cell: bytes | None) -> bytes:
    return b"null" if cell is None else json.dumps(cell.decode(errors="backslashreplace")).encode()


def expected(rows: list[tuple[int, int, bytes | None, bytes | None]]) -> bytes:
    return b"".join(
        b"<%d %d %d %d %b %b %b %b>\n"
        % (offset, time, size_of(key), size_of(value), key or b"", value or b"", quoted(key), quoted(value))
        for offset, time, key, value in rows
    )


def size_of(cell: bytes | None) -> int:
    return -1 if cell is None else len(cell)


PARTS: list[Part] = [
    b"<", TextField.OFFSET, b" ", TextField.TIMESTAMP, b" ", TextField.KEY_SIZE, b" ", TextField.VALUE_SIZE, b" ",
    TextField.KEY, b" ", TextField.VALUE, b" ", TextField.QUOTED_KEY, b" ", TextField.QUOTED_VALUE, b">\n",
]  # fmt: skip


@given(rows=ROWS)
def test_lines_are_those_of_python(rows: list[tuple[int, int, bytes | None, bytes | None]]) -> None:
    columns = columns_of([Record(offset, time, 0, key, value) for offset, time, key, value in rows])
    assert bytes(LineWriter(PARTS).write(columns)) == expected(rows)


@given(rows=ROWS)
def test_the_plain_twin_writes_the_same_lines(rows: list[tuple[int, int, bytes | None, bytes | None]]) -> None:
    texts = [[row[2] for row in rows], [row[3] for row in rows]]
    sizes = [[size_of(cell) for cell in cells] for cells in texts]
    columns: list[Any] = []
    for cells, of in zip(texts, sizes, strict=True):
        starts = [sum(max(size, 0) for size in of[:at]) for at in range(len(rows))]
        columns += [b"".join(cell or b"" for cell in cells), starts, of]
    steps = [
        kernels.LITERAL,
        0,
        1,
        kernels.INTEGER,
        1,
        0,
        kernels.KEY,
        1,
        0,
        kernels.LITERAL,
        1,
        1,
        kernels.VALUE,
        0,
        0,
    ]
    integers = [number for of in (0, 1) for row in rows for number in [row[of]]]
    fixed, stretch = 2 + kernels.LONGEST_INTEGER + kernels.QUOTES, kernels.LONGEST_ESCAPE + 1
    out = bytearray(fixed * len(rows) + stretch * sum(max(size, 0) for of in sizes for size in of))
    end = kernels.write_rows.py_func(steps, b"<>", integers, *columns, fixed, stretch, out)
    assert bytes(out[:end]) == b"".join(b"<%d%b>%b" % (row[1], quoted(row[2]), row[3] or b"") for row in rows)


@given(cell=CELLS)
def test_the_plain_twin_quotes_as_python_does(cell: bytes | None) -> None:
    out = bytearray(6 * len(cell or b"") + kernels.QUOTES)
    size = -1 if cell is None else len(cell)
    end = kernels.write_quoted.py_func(out, 0, cell or b"", 0, size)
    assert bytes(out[:end]) == quoted(cell)


@given(value=INT64S)
def test_the_plain_twin_writes_integers_as_python_does(value: int) -> None:
    out = bytearray(kernels.LONGEST_INTEGER)
    assert bytes(out[: kernels.write_integer.py_func(out, 0, value)]) == b"%d" % value


def test_every_pair_of_bytes_is_quoted_as_python_does() -> None:
    pairs = [bytes((first, second)) for first in range(256) for second in range(256)]
    columns = columns_of([Record(0, 0, 0, None, pair) for pair in pairs])
    found = bytes(LineWriter([TextField.QUOTED_VALUE, b"\n"]).write(columns)).splitlines()
    assert found == [quoted(pair) for pair in pairs]


def test_every_character_is_quoted_as_python_does() -> None:
    text = "".join(chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000).encode()
    columns = columns_of([Record(0, 0, 0, None, text)])
    assert bytes(LineWriter([TextField.QUOTED_VALUE]).write(columns)) == quoted(text)


def test_a_writer_is_used_again_for_records_of_any_number() -> None:
    writer = LineWriter([TextField.OFFSET, b","])
    for count in (1, 1000, 3):
        columns = columns_of([Record(at, 0, 0, None, None) for at in range(count)])
        assert bytes(writer.write(columns)) == b"".join(b"%d," % at for at in range(count))


@pytest.mark.parametrize("compiled", [False, True])
def test_nothing_is_written_beyond_the_room_there_is(compiled: bool) -> None:
    out, cells = np.zeros(10, np.uint8), np.frombuffer(b"four", np.uint8)
    write = kernels.write_rows if compiled else kernels.write_rows.py_func
    starts, sizes = np.zeros(2, np.int32), np.full(2, 4, np.int32)
    none, nulls = np.zeros(0, np.uint8), np.full(2, -1, np.int32)
    steps = np.array([kernels.VALUE, 0, 0], np.int64)
    end = write(steps, none, np.zeros(0, np.int64), none, starts, nulls, cells, starts, sizes, 0, 1, out[:7])
    assert end == -1
    assert bytes(out) == b"four" + bytes(6)
