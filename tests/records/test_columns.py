"""Records as Arrow."""

import numpy as np
import pyarrow as pa

from magicbyte.records.columns import RecordColumns, arrow_schema

MOST = 9_223_372_036_854_775  # milliseconds whose microseconds an int64 holds


def timestamps(millis: list[int]) -> list[int | None]:
    """Return what Arrow has, in microseconds."""
    count = len(millis)
    columns = RecordColumns(
        np.arange(count), np.array(millis, np.int64), np.zeros(count, np.int8), key=None, value=None, headers=None
    )
    schema = pa.schema([arrow_schema().field("timestamp")])
    found: list[int | None] = columns.to_arrow(schema).column(0).cast(pa.int64()).to_pylist()
    return found


def test_timestamps_become_microseconds() -> None:
    assert timestamps([-1, 0, 1_700_000_000_123]) == [-1000, 0, 1_700_000_000_123_000]


def test_timestamps_that_microseconds_cannot_hold_are_null_and_the_others_are_not() -> None:
    longest = [1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63), 1_700_000_000_123_456_789]
    assert timestamps([MOST, *longest, -MOST]) == [MOST * 1000, *[None] * 5, -MOST * 1000]
    assert timestamps([MOST + 1, -MOST - 1]) == [None, None]
