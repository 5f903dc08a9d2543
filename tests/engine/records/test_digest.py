"""Digests of records: what they depend on, and what not."""

import numpy as np
import pytest

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.columns import BytesColumn, HeaderColumns, RecordColumns
from magicbyte.engine.records.digest import Digest, hash_records


def column(cells: list[bytes | None]) -> BytesColumn:
    lengths = [-1 if cell is None else len(cell) for cell in cells]
    ends = np.cumsum(np.maximum(lengths, 0)).tolist()
    starts = [end - max(length, 0) for end, length in zip(ends, lengths, strict=True)]
    return BytesColumn(b"".join(cell or b"" for cell in cells), starts, lengths)


def records(*, offset: int = 0, count: int = 20) -> RecordColumns:
    """Two headers in each second record, a null key in each third."""
    numbers = list(range(offset, offset + count))
    counts = [2 * (number % 2) for number in numbers]
    names = [b"name%d" % (at % 3) for at in range(sum(counts))]
    return RecordColumns(
        numbers,
        [1000 + number if number % 5 else -1 for number in numbers],
        [0] * count,
        column([None if number % 3 == 0 else b"key%d" % number for number in numbers]),
        column([b"value" * number for number in numbers]),
        HeaderColumns(counts, column(names), column([None if at % 4 else b"x" for at in range(len(names))])),
    )


@pytest.mark.parametrize("form", ["plain", "compiled"])
def test_a_digest_does_not_depend_on_order_pieces_or_form(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    hashes = hash_records(records())
    whole = hashes.digest()
    assert whole == Digest(20, 0xF286CE68117CFF1A, 0x43AA69404D944A06, 0xC2DB4149F9765A5F)
    assert hashes.slice(0, 7).digest().plus(hashes.slice(7, 20).digest()) == whole
    assert hashes.take(np.arange(20)[::-1]).digest() == whole


@pytest.mark.parametrize(
    ("field", "part"),
    [("offset", "body"), ("key", "body"), ("value", "body"), ("timestamp", "timestamps"), ("headers", "headers")],
)
def test_a_digest_changes_with_each_field_of_a_record(field: str, part: str) -> None:
    hashes = hash_records(records())
    before = hashes.digest()
    getattr(hashes, field)[7] += 1
    assert getattr(hashes.digest(), part) != getattr(before, part)


def test_headers_in_another_order_have_another_hash_and_no_headers_none() -> None:
    cells = column([b"a", b"b"]), column([b"1", b"2"])
    swapped = column([b"b", b"a"]), column([b"2", b"1"])
    empty = column([None, None])
    one, other = (
        hash_records(RecordColumns([0, 1], [0, 0], [0, 0], empty, empty, HeaderColumns([2, 0], *pair))).headers
        for pair in (cells, swapped)
    )
    assert one[0] != other[0]
    assert one[1] == other[1] == 0


def test_a_cell_that_is_not_in_its_data_is_damage() -> None:
    columns = records()
    columns.key = BytesColumn(b"abc", [0] * 20, [4] * 20)
    with pytest.raises(CorruptRecordError, match="cell"):
        hash_records(columns)
