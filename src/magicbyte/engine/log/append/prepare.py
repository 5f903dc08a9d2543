"""The first two phases of an append: validate a set, and assign its offsets. Pure: no clock, file or state.

`prepare` does both for a produced set, which is stored as it is, rebuilt or refused. `prepare_own` assigns the offsets
of a set that the broker itself encoded. `prepare_unchanged` validates a set whose leader assigned the offsets. The
third phase is `PartitionLog.append`, which takes the result of each; `server/partitions/appends.py` has all five.
docs/internals/append.md has the rules as tables. Sources: KIP-31, KIP-32, KIP-57, the Enriched Message Metadata
proposal; Kafka's UnifiedLog and LogValidator.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import AppendRefusedError, BatchTooLargeError, CorruptRecordError, ErrorCode
from magicbyte.engine.log.append.record_set import AppendOrigin, RecordSet, record_set
from magicbyte.engine.log.append.reencode import rebuild
from magicbyte.engine.log.append.rules import ALL_ROOM, KEPT_ROOM, AppendRules, Request, Room
from magicbyte.engine.log.append.sets import ProducedSet, too_large, validate
from magicbyte.engine.log.append.stamp import can_stay, stamp
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import ATTRIBUTES_AT, CODEC_MASK, OFFSET, Dialect, TimestampType

NOTHING_STORED = -1
_LAST_OFFSET = (1 << 63) - 1
_CODEC_AT = ATTRIBUTES_AT + 1
# globals, because access to an enum member takes three look-ups
_APPEND_TIME, _ENRICHED, _V2 = TimestampType.LOG_APPEND_TIME, Format.ENRICHED, Format.V2
_CLIENT, _COORDINATOR = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR
_OFFSETS = DecodeOptions(keys=False, values=False, headers=False, control=True)


def prepare(
    records: memoryview,
    rules: AppendRules,
    *,
    next_offset: int,
    now_ms: int,
    leader_epoch: int,
    request_version: int | None = None,
    dialect: Dialect = Dialect.KAFKA,
    is_ours: bool = False,
    has_room: bool = True,
) -> RecordSet:
    """Return the set that a leader writes for the produced set `records`, whose first record gets `next_offset`.

    `request_version` is that of the Produce request, or None for the broker's own records, which may contain control
    batches. `dialect` is that of `records`. `is_ours`: `records` is in writable memory without another user: headers
    are changed in place, not in copies. Producer sequences are checked by ProducerChecks, not here. `has_room`: whether
    there is memory for a set that decompresses to the maximum of the rules.

    Raises AppendRefusedError, with a code that this version of the request knows, without side effects. Without
    `has_room`, this and `PartitionLog.append` of the set raise RoomNeeded for one that exceeds the kept scratch memory.
    """
    request = Request(request_version)
    produced = validate(records, rules, request, now_ms, dialect, has_room=has_room)
    if not produced.parts:
        return _nothing()
    stored = _assign(produced, rules, request, next_offset, now_ms, leader_epoch, is_ours=is_ours)
    stored.origin = _CLIENT if request.is_client else _COORDINATOR
    if not has_room:
        stored.room = KEPT_ROOM
    elif not stored.rebuilt:  # in another format it may be larger than the produced set
        stored.room = Room(rules.max_decompressed_bytes)
    return stored


def prepare_own(
    records: memoryview,
    rules: AppendRules,
    *,
    next_offset: int,
    now_ms: int,
    leader_epoch: int,
    has_room: bool = True,
) -> RecordSet:
    """Return the set that a leader writes for `records`, which this broker has encoded a moment ago.

    As `prepare` does; but batches that are stored as they are need no look inside, and no checksum. `records` is in
    writable memory without another user.
    """
    keeps_codec = rules.codec is None or records[_CODEC_AT] & CODEC_MASK == rules.codec  # all of a set have one
    if not keeps_codec or rules.format is not _V2 or rules.timestamp_type is _APPEND_TIME:
        return prepare(records, rules, next_offset=next_offset, now_ms=now_ms, leader_epoch=leader_epoch, is_ours=True,
                       has_room=has_room)  # fmt: skip
    batches, position, size, last_offset = list[RecordBatch](), 0, len(records), next_offset - 1
    stored = RecordSet([records], size, next_offset, last_offset, origin=_COORDINATOR)
    while position < size:
        batch = RecordBatch(records[position:] if position else records)
        if batch.size > rules.max_message_bytes:
            raise too_large(f"size of an entry: expected <= {rules.max_message_bytes}, found {batch.size}")
        position += batch.size
        if position < size:
            batch.buffer = batch.buffer[: batch.size]
        batch.place(next_offset, leader_epoch)
        last_offset, timestamp = batch.last_offset, batch.max_timestamp
        if timestamp > stored.max_timestamp:
            stored.max_timestamp, stored.max_timestamp_offset = timestamp, last_offset
        next_offset = batch.next_offset
        batches.append(batch)
    stored.last_offset = last_offset
    if size > rules.segment_bytes:
        raise _too_large_set(size, rules)
    stored.batches, stored.first_timestamp = batches, batches[0].max_timestamp
    return stored


def _too_large_set(size: int, rules: AppendRules) -> AppendRefusedError:
    why = f"size of a set: expected <= {rules.segment_bytes}, found {size}"
    return AppendRefusedError(ErrorCode.RECORD_LIST_TOO_LARGE, why)


def _assign(
    produced: ProducedSet,
    rules: AppendRules,
    request: Request,
    next_offset: int,
    now_ms: int,
    leader_epoch: int,
    *,
    is_ours: bool,
) -> RecordSet:
    """Return a validated set with its offsets and timestamps: in place, or rebuilt in the format of the rules."""
    if can_stay(produced, rules):
        stored = stamp(produced, rules, request, next_offset, now_ms, leader_epoch, is_ours=is_ours)
    else:
        codec = produced.codec if rules.codec is None else rules.codec
        if codec is Codec.ZSTD and rules.format is not Format.V2:
            raise AppendRefusedError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs magic 2")
        stored = rebuild(produced, codec, rules, request, next_offset, now_ms, leader_epoch)
        stored.compressed = int(codec is not Codec.NONE)
        _check_entries(stored, rules)
    stored.size = sum(map(len, stored.pieces))
    if stored.size > rules.segment_bytes:
        raise _too_large_set(stored.size, rules)
    if rules.timestamp_type is _APPEND_TIME or rules.format is _ENRICHED:
        stored.log_append_time = now_ms
    stored.decompressed = produced.decompressed
    return stored


def _check_entries(stored: RecordSet, rules: AppendRules) -> None:
    """Check the size limit again, because rebuilt entries may have grown."""
    for buffer in stored.pieces:
        for _, entry in entries(buffer, rules.format.dialect):
            if entry.size > rules.max_message_bytes:
                raise too_large(f"size of an entry: expected <= {rules.max_message_bytes}, stored {entry.size}")


def prepare_unchanged(
    records: memoryview,
    rules: IndexRules,
    *,
    next_offset: int,
    dialect: Dialect = Dialect.KAFKA,
    room: Room = ALL_ROOM,
) -> RecordSet:
    """Return the set of the whole entries of `records`, fetched from a leader: offsets, formats, codecs are unchanged.

    Its first offset is that in the first header; in a wrapper's header that is the last of its offsets. An incomplete
    entry at the end is left out. The set of no entries has no pieces. `room`: for wrappers whose header has not their
    last offset. Raises CorruptRecordError unless every checksum holds, and offsets ascend from `next_offset` or a later
    one: then the follower must not continue. Raises RoomNeeded.
    """
    walk = entries(records, dialect)
    last = next_offset - 1
    for position, entry in walk:
        end = position + entry.size
        try:
            entry.verify()
            begin = entry.offset if not isinstance(entry, RecordBatch) else entry.base_offset
            stop = entry.last_offset if entry.last_offset is not None else _last_offset(records[position:end], room)
        except CorruptRecordError as error:
            raise error.locate(shift=position) from None
        if begin <= last or not begin <= stop < _LAST_OFFSET:  # the next offset is a signed 64-bit number, too
            expected, wrong = (f">= {last + 1}", begin) if begin <= last else (f"{begin} to {_LAST_OFFSET - 1}", stop)
            gap = CorruptRecordError("offset of a fetched entry", expected=expected, found=wrong, position=position)
            raise gap.locate(offsets=(begin, stop))
        last = stop
    if not walk.position:
        return _nothing()
    unchanged = record_set(records[: walk.position], rules, dialect, room)
    unchanged.first_offset = OFFSET.read(records)
    return unchanged


def _nothing() -> RecordSet:
    return RecordSet([], 0, NOTHING_STORED, NOTHING_STORED)


def _last_offset(wrapper: memoryview, room: Room) -> int:
    """Return the last offset of an enriched wrapper, which is known only after decompression."""
    options = replace(_OFFSETS, limit=room.limit)
    try:
        offsets: Any = [columns.offset for columns in decode(wrapper, options, dialect=Dialect.ENRICHED)]
    except BatchTooLargeError as error:
        raise room.exceeded(error) from None
    return int(max(max(each) for each in offsets))
