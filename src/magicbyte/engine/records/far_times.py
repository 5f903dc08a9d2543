"""Timestamps of records, in milliseconds, as timestamps in microseconds, which cannot hold all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Int64s = np.ndarray[Any, np.dtype[np.int64]]

MILLIS_COLUMN = "timestampMillis"
"""The column with timestamps as stored, in milliseconds: every timestamp fits."""
_MOST_MILLIS = ((1 << 63) - 1) // 1000


class FarTimestamps(Struct):
    """Count the timestamps that int64 cannot hold in microseconds: those beyond the years -290308 and 294247, for
    instance nanoseconds that were produced as milliseconds.

    They become null, so that the other columns stay readable. Who makes such a column reports `text`, or fails with it.
    """

    count: int = 0
    first: str = ""

    @property
    def text(self) -> str:
        """The number of timestamps and the first of them, for messages."""
        what = "1 timestamp is" if self.count == 1 else f"{self.count} timestamps are"
        return f"{what} beyond the range of microseconds ({self.first})"

    def micros(self, millis: Int64s, offset: Int64s, topic: str | None, partition: int | None) -> pa.Array:
        """Return timestamps (ms) as an Arrow array of timestamps in microseconds, without a time zone.

        Shapes: millis, offset (n,). `offset`, `topic` and `partition` name the record in `text`.
        """
        import numpy as np
        import pyarrow as pa

        beyond = (millis > _MOST_MILLIS) | (millis < -_MOST_MILLIS)
        rows = np.flatnonzero(beyond)
        if len(rows) and not self.count:
            name = "" if topic is None else f"{topic}-{partition}, "
            self.first = f"{name}offset {offset[rows[0]]}: {millis[rows[0]]} ms"
        self.count += len(rows)
        return pa.array(millis * 1000, mask=beyond if len(rows) else None).cast(pa.timestamp("us"))
