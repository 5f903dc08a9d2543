"""Records as Arrow."""

import numpy as np
import pyarrow as pa

from magicbyte.engine.records.columns import RecordColumns, arrow_schema
from magicbyte.engine.records.far_times import FarTimestamps

MOST = 9_223_372_036_854_775  # milliseconds whose microseconds an int64 holds


def timestamps(millis: list[int]) -> list[int | None]:
    """Return what Arrow has, in microseconds. What it cannot hold is counted, and the exact column has all."""
    count = len(millis)
    columns = RecordColumns(
        np.arange(count), np.array(millis, np.int64), np.zeros(count, np.int8), key=None, value=None, headers=None
    )
    schema = pa.schema([arrow_schema(millis=True).field(name) for name in ("timestamp", "timestampMillis")])
    far = FarTimestamps()
    batch = columns.to_arrow(schema, far, topic="t", partition=1)
    found: list[int | None] = batch.column(0).cast(pa.int64()).to_pylist()
    assert batch.column(1).to_pylist() == millis
    assert far.count == found.count(None)
    if far.count:
        at = found.index(None)
        assert f"(t-1, offset {at}: {millis[at]} ms)" in far.text
    return found


def test_timestamps_become_microseconds() -> None:
    assert timestamps([-1, 0, 1_700_000_000_123]) == [-1000, 0, 1_700_000_000_123_000]


def test_timestamps_that_microseconds_cannot_hold_are_null_and_the_others_are_not() -> None:
    longest = [1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63), 1_700_000_000_123_456_789]
    assert timestamps([MOST, *longest, -MOST]) == [MOST * 1000, *[None] * 5, -MOST * 1000]
    assert timestamps([MOST + 1, -MOST - 1]) == [None, None]
