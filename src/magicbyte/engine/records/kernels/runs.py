"""Runs: the ranges of bytes with records in them that the decoding kernels take.

A run is RUN integers: a v2 batch's records, a wrapper's inner messages, or a row of plain messages. Kernels take many
runs in one flat array, run after run.
"""

from __future__ import annotations

from magicbyte.engine.compiled.kernel import Bytes, Int64s, kernel
from magicbyte.engine.compiled.primitives import load_i8, load_i16, load_i32, load_i64
from magicbyte.engine.records.layout import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_ATTRIBUTES_AT,
    RECORD_COUNT_AT,
    V1_TIMESTAMP_AT,
)

# ---- fields of a run
START = 0
END = 1
COUNT = 2  # v2: the record count of the header. Messages: set by `measure_messages`
OFFSET = 3  # v2: base offset. Wrapper: its offset. Plain messages: unused
BASE_TIMESTAMP = 4  # v2
TYPE = 5  # timestamp type of the batch or wrapper; OWN for plain messages
TIMESTAMP = 6  # the append time of the batch or wrapper; enriched: the wrapper's timestamp
MAGIC = 7
LAST = 8  # messages: offset field of the last one, set by `measure_messages`
CHECK = 8  # v2: the CRC-32C that the last 40 header bytes and the records must have; -1: not verified
HONOR = 9  # enriched wrapper: whether relative offsets are valid
RUN = 10

OWN = 2  # as TYPE: each message has its own
NO_TYPE = -1
LOG_APPEND = 1


def run_of(
    start: int,
    end: int,
    *,
    magic: int,
    kind: int,
    count: int = 0,
    offset: int = 0,
    base_timestamp: int = 0,
    timestamp: int = 0,
    check: int = 0,
    honor: int = 0,
) -> list[int]:
    """Return one run as a list. `start` -1 and `end` 0 mean "not decompressed yet".

    `kind` is the TYPE; `count` 0 makes `measure_messages` count; the other parameters are named as the fields.
    """
    return [start, end, count, offset, base_timestamp, kind, timestamp, magic, check, honor]


@kernel
def set_batch_run(runs: Int64s, run: int, data: Bytes, at: int, start: int, end: int, check: int) -> None:
    """Set the run at index `run` to the records from `start` to `end` of the v2 batch whose header is at `at`.

    `check`: see CHECK. The records may lie in another buffer than the header.
    """
    runs[run + START], runs[run + END], runs[run + COUNT] = start, end, load_i32(data, at + RECORD_COUNT_AT)
    runs[run + OFFSET], runs[run + BASE_TIMESTAMP] = load_i64(data, at), load_i64(data, at + BASE_TIMESTAMP_AT)
    runs[run + TYPE] = (load_i16(data, at + ATTRIBUTES_AT) >> 3) & 1
    runs[run + TIMESTAMP] = load_i64(data, at + MAX_TIMESTAMP_AT)
    runs[run + MAGIC], runs[run + CHECK], runs[run + HONOR] = 2, check, 0


@kernel
def set_wrapper_run(runs: Int64s, run: int, data: Bytes, at: int, magic: int, start: int, end: int) -> None:
    """Set the run at index `run` to the content of the wrapper of magic 0 or 1 at `at`, not counted yet."""
    runs[run + START], runs[run + END], runs[run + COUNT] = start, end, 0
    runs[run + OFFSET], runs[run + BASE_TIMESTAMP] = load_i64(data, at), 0
    runs[run + TYPE], runs[run + TIMESTAMP] = NO_TYPE, -1
    if magic == 1:
        runs[run + TYPE] = (load_i8(data, at + MESSAGE_ATTRIBUTES_AT) >> 3) & 1
        runs[run + TIMESTAMP] = load_i64(data, at + V1_TIMESTAMP_AT)
    runs[run + MAGIC], runs[run + LAST], runs[run + HONOR] = magic, 0, 1
