"""Rebuild a produced set: decode its records and encode them again, if format, codec or inner offsets must change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magicbyte.engine.codecs import Codec
from magicbyte.engine.compiled.kernel import Ints
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError
from magicbyte.engine.log.append.record_set import RecordSet
from magicbyte.engine.log.append.rules import AppendRules, Request
from magicbyte.engine.log.append.sets import ProducedSet, columns_of_part, too_large
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import BytesColumn, HeaderColumns, RecordColumns
from magicbyte.engine.records.encode import BatchHeader, Format, RowWriter
from magicbyte.engine.records.layout import TimestampType

_APPEND_TIME = TimestampType.LOG_APPEND_TIME


def rebuild(
    produced: ProducedSet,
    codec: Codec,
    rules: AppendRules,
    request: Request,
    next_offset: int,
    now_ms: int,
    leader_epoch: int,
) -> RecordSet:
    """Return the records in the format of the rules: one batch or wrapper, or plain messages if `codec` is NONE.

    Offsets continue from `next_offset`; timestamps are the producer's or the append time, as the rules say; other
    header fields of a batch of magic 2 are kept. Raises AppendRefusedError if the result is too large.
    """
    columns = joined([each for part in produced.parts for each in columns_of_part(part, produced.dialect)])
    count = len(columns)
    target, broker_time = rules.format, rules.format is Format.ENRICHED or rules.timestamp_type is _APPEND_TIME
    times, kind = columns.timestamp, TimestampType.CREATE_TIME
    if broker_time:
        kind = _APPEND_TIME
        if target is not Format.V2:  # which keeps the producer's timestamps, as deltas
            times = _same(columns, now_ms)
    offsets = _same(columns, next_offset, step=1)
    new = RecordColumns(offsets, times, _same(columns, kind), columns.key, columns.value, columns.headers)
    header = BatchHeader(
        timestamp_type=kind,
        max_timestamp=now_ms if broker_time else None,
        partition_leader_epoch=leader_epoch,
        **_producer_of(produced),
    )
    writer = RowWriter(new, target)
    try:
        data = writer.write(writer.batch(0, count), codec, [header])
    except BatchTooLargeError as error:
        raise too_large(error) from None
    except CorruptRecordError as error:
        raise request.illegal(error) from None
    stored = RecordSet([data], 0, next_offset, next_offset + count - 1, rebuilt=True)
    if target is Format.V2:
        stored.batches = (batch := RecordBatch(data),)
        stored.first_timestamp = batch.max_timestamp
    if target is not Format.V0:
        _note_time(stored, new, codec, rules, now_ms if broker_time else None)
    return stored


def _same(columns: RecordColumns, value: int, *, step: int = 0) -> Ints:
    """Return `value` for each record, increased by `step` each time, in the form of the columns."""
    count = len(columns)
    if isinstance(columns.offset, list):
        return [value + step * at for at in range(count)]
    import numpy as np

    return np.full(count, value, np.int64) + step * np.arange(count)


def _producer_of(found: ProducedSet) -> dict[str, Any]:
    batch = found.parts[0].view
    if not isinstance(batch, RecordBatch):
        return {}
    return {
        "is_transactional": batch.is_transactional,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
    }


def _note_time(stored: RecordSet, columns: RecordColumns, codec: Codec, rules: AppendRules, now_ms: int | None) -> None:
    """Store the largest timestamp, and its offset for the time index."""
    times: Any = columns.timestamp
    first, last = stored.first_offset, stored.last_offset
    latest = max(times) if now_ms is None else now_ms
    if rules.format is Format.ENRICHED:
        stored.time(int(latest), last)
        return
    if rules.format is Format.V1 and codec is Codec.NONE:
        at = 0 if now_ms is not None else [int(time) for time in times].index(int(latest))
        stored.time(int(latest), first + at)
    else:
        stored.time(int(latest), last)


def joined(pieces: Sequence[RecordColumns]) -> RecordColumns:
    """Return the records of all pieces, decoded with keys, values and headers, as one."""
    if len(pieces) == 1:
        return pieces[0]
    headers = [each.headers for each in pieces if each.headers is not None]
    return RecordColumns(
        _flat([each.offset for each in pieces]),
        _flat([each.timestamp for each in pieces]),
        _flat([each.timestamp_type for each in pieces]),
        _cells([each.key for each in pieces]),
        _cells([each.value for each in pieces]),
        HeaderColumns(
            _flat([each.count for each in headers]),
            _cells([each.key for each in headers]),
            _cells([each.value for each in headers]),
        ),
    )


def _flat(columns: Sequence[Any]) -> list[int]:
    return [int(number) for column in columns for number in column]


def _cells(columns: Sequence[BytesColumn | None]) -> BytesColumn:
    data, start, length = bytearray(), [], []
    for column in columns:
        assert column is not None, "they were asked for"
        begin, starts, lengths = len(data), _flat([column.start]), _flat([column.length])
        data += memoryview(column.data)
        start += [begin + at for at in starts[: len(lengths)]]
        length += lengths
    return BytesColumn(bytes(data), start, length)
