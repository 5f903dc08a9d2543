"""Append a set in place: set a few fields in a copy of each header, and leave the other bytes where they are."""

from __future__ import annotations

from magicbyte.engine.compiled.checksums import IEEE
from magicbyte.engine.compiled.kernel import worth_compiling
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.append.record_set import RecordSet
from magicbyte.engine.log.append.rules import AppendRules, Request
from magicbyte.engine.log.append.sets import ProducedPart, ProducedSet
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.enriched import EnrichedMessage, Tag
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.layout import RECORD_BATCH_OVERHEAD, Dialect, TimestampType
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.records.stamp_kernels import stamp_messages

_FEW = 64  # messages, up to which each is written as a view of the produced bytes
_LARGE = 4096  # bytes from which a view is cheaper than a copy
_APPEND_TIME, _ENRICHED = TimestampType.LOG_APPEND_TIME, Format.ENRICHED


def can_stay(produced: ProducedSet, rules: AppendRules) -> bool:
    """Return whether the set can be appended in place: same format and codec, and inner offsets 0, 1, 2…"""
    target, parts = rules.format, produced.parts
    if not produced.has_format(target):
        return False
    if produced.is_control:
        return True
    if target is _ENRICHED:
        return rules.codec is None or all(part.codec is rules.codec for part in parts)
    codec = produced.codec if rules.codec is None else rules.codec
    if codec is not produced.codec:
        return False
    if not codec or parts[0].magic == 2:
        return True
    return len(parts) == 1 and parts[0].magic == 1 and parts[0].survey.out_of_order < 0


def stamp(
    produced: ProducedSet,
    rules: AppendRules,
    request: Request,
    next_offset: int,
    now_ms: int,
    leader_epoch: int,
    *,
    is_ours: bool = False,
) -> RecordSet:
    """Return the set unchanged but for offsets from `next_offset` on and the timestamps of this append.

    `is_ours`: the produced bytes are in writable memory of the broker: headers are changed there if that is faster.
    """
    stored = RecordSet([], 0, next_offset, next_offset - 1)
    append_time = rules.timestamp_type is _APPEND_TIME
    for produced_part in produced.parts:
        if isinstance(produced_part.view, RecordBatch):
            _stamp_batch(stored, produced_part, produced_part.view, rules, now_ms, leader_epoch, is_ours=is_ours)
        elif produced.dialect is Dialect.ENRICHED:
            _stamp_enriched(stored, produced_part, request, now_ms)
        elif isinstance(produced_part.view, MessageView):
            timestamp = now_ms if append_time else produced_part.survey.latest
            stored.last_offset += produced_part.survey.records
            _stamp_message(stored, produced_part.view, stored.last_offset, rules.timestamp_type, timestamp)
        elif produced_part.survey.records > _FEW and len(produced_part.data) < produced_part.survey.records * _LARGE:
            _stamp_row(stored, produced_part, rules, now_ms, is_ours=is_ours)
        else:
            for _, entry in entries(produced_part.data):
                assert isinstance(entry, MessageView)
                timestamp = now_ms if append_time else entry.timestamp
                stored.last_offset += 1
                _stamp_message(stored, entry, stored.last_offset, rules.timestamp_type, timestamp)
    return stored


def _stamp_message(stored: RecordSet, message: MessageView, offset: int, kind: TimestampType, timestamp: int) -> None:
    head = message.stamped(offset, kind, timestamp)
    _add(stored, head, message.buffer[len(head) :])
    if message.magic:
        stored.time(timestamp, offset)


def _stamp_row(stored: RecordSet, produced: ProducedPart, rules: AppendRules, now_ms: int, *, is_ours: bool) -> None:
    """Append many small plain messages as one copy, because two buffers for each would cost more.

    If the bytes are ours, there is no copy either.
    """
    first, survey = stored.next_offset, produced.survey
    append_time = rules.timestamp_type is _APPEND_TIME
    form = form_for(compiled=worth_compiling(len(produced.data)))
    data = produced.data if is_ours else memoryview(bytearray(produced.data))
    form.form(stamp_messages)(form.bytes_of(data), first, now_ms, int(append_time), form.crc_table(IEEE))
    stored.pieces.append(data)
    stored.last_offset += survey.records
    if produced.magic:
        stored.time(now_ms if append_time else survey.latest, first if append_time else first + survey.latest_at)


def _stamp_batch(
    stored: RecordSet,
    produced: ProducedPart,
    batch: RecordBatch,
    rules: AppendRules,
    now_ms: int,
    leader_epoch: int,
    *,
    is_ours: bool,
) -> None:
    first, survey = stored.next_offset, produced.survey
    append_time = rules.timestamp_type is _APPEND_TIME
    timestamp = now_ms if append_time else survey.latest
    head = batch.stamped(first, leader_epoch, rules.timestamp_type, timestamp)
    if is_ours:
        batch.buffer[:RECORD_BATCH_OVERHEAD] = head
        stored.pieces.append(batch.buffer)
    else:
        stored.pieces += memoryview(head), batch.buffer[RECORD_BATCH_OVERHEAD:]
    stored.last_offset += survey.records
    stored.first_timestamp, stored.batches = timestamp, (batch,)
    stored.time(timestamp, stored.last_offset)


def _stamp_enriched(stored: RecordSet, part: ProducedPart, request: Request, now_ms: int) -> None:
    for _, entry in entries(part.data, Dialect.ENRICHED):
        assert isinstance(entry, EnrichedMessage)
        first = stored.next_offset
        stored.last_offset += part.survey.records if entry.is_wrapper else 1
        ignore = entry.honor_ship and part.survey.out_of_order >= 0 if entry.is_wrapper else False
        try:
            head = entry.stamped(first, now_ms, honor_ship=False if ignore else None)
            has_milliseconds = Tag.TIMESTAMP in entry.tags
        except CorruptRecordError as error:
            raise request.damaged(error) from None
        _add(stored, head, entry.body)
        stored.time(now_ms if has_milliseconds else now_ms // 1000 * 1000, stored.last_offset)


def _add(stored: RecordSet, head: bytes | bytearray, rest: memoryview) -> None:
    """Add an entry: its header, and the bytes after it."""
    stored.pieces.append(memoryview(head))
    if len(rest):
        stored.pieces.append(rest)
