"""Describe each batch, wrapper or single message of a log in the terms of Kafka's dump tool, for `cat --batches`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from msgspec.structs import replace

from magicbyte.engine.codecs import Codec, Lz4Header, decompress
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.reader import DamageHandler, stop_at_damage
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import marker_of
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions, decode_rows
from magicbyte.engine.records.enriched import EnrichedMessage, Tag
from magicbyte.engine.records.entry import Entry, entries, parse_entry
from magicbyte.engine.records.layout import CODEC_MASK, Dialect
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.records.scan import BatchTable

Line = dict[str, Any]

_OFFSETS_ONLY = DecodeOptions(keys=False, values=False, headers=False, verify=False, control=True)


class Chunks(Protocol):
    """A source of entries: a `SegmentReader`, or a partition of a running cluster."""

    def chunks(self, *, first: int = 0, limit: int, on_damage: DamageHandler) -> Iterator[Chunk]:
        """Yield the entries from the one that may hold offset `first` on."""


def list_batches(
    reader: Chunks,
    *,
    first: int = 0,
    end: int | None = None,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
    on_damage: DamageHandler = stop_at_damage,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Line]:
    """Yield a line for each entry with offsets from `first` to below `end`; keys as in the golden batches.jsonl.

    An entry with a wrong checksum or content also has a line; `on_damage` is called after it.
    """
    for chunk in reader.chunks(first=first, limit=limit, on_damage=on_damage):
        for row in range(len(chunk.table)):
            try:
                line, error = describe(chunk, row, limit=limit)
            except CorruptRecordError as wrong:
                on_damage(wrong)
                continue
            if line["lastOffset"] < first:
                continue
            if end is not None and line["baseOffset"] >= end:
                return
            yield line
            if error is not None:
                on_damage(error)
        progress(chunk.table.end)


def describe(chunk: Chunk, row: int, *, limit: int = DEFAULT_MAX_BATCH_BYTES) -> tuple[Line, CorruptRecordError | None]:
    """Return the line of one row of an unmerged `chunk`, and the damage of the entry.

    Raises CorruptRecordError if the header itself is invalid.
    """
    position = int(chunk.table.position[row])
    try:
        line, error = _describe(chunk, row, position, limit)
    except CorruptRecordError as wrong:
        offset = int(chunk.table.offset[row])
        wrong.position = chunk.position + position
        raise wrong.locate(path=chunk.path, offsets=(offset, offset)) from None
    if error is not None:
        error.locate(path=chunk.path, shift=line["position"], offsets=(line["baseOffset"], line["lastOffset"]))
    return line, error


def _describe(chunk: Chunk, row: int, position: int, limit: int) -> tuple[Line, CorruptRecordError | None]:
    table, size = chunk.table, int(chunk.table.size[row])
    entry = parse_entry(table.buffer[position : position + size], table.dialect)
    assert entry is not None, "the scan found it whole"
    line: Line = {"segment": chunk.path.rpartition("/")[2]}
    error: CorruptRecordError | None = None
    try:
        entry.verify()
    except CorruptRecordError as wrong:
        error = wrong
    valid = error is None
    offsets: list[int] = []
    try:
        offsets = _offsets(table, row, entry, limit)
    except CorruptRecordError as wrong:
        wrong.position = 0
        error, offsets = error or wrong, []
    place = {"position": chunk.position + position, "size": size}
    if isinstance(entry, RecordBatch):
        error = _add_batch(line, entry, place, offsets, valid=valid) or error
    else:
        error = _add_message(line, entry, place, offsets, limit, valid=valid) or error
    return line, error


def _offsets(table: BatchTable, row: int, entry: Entry, limit: int) -> list[int]:
    """Return the offsets of all records inside, including control records."""
    if not isinstance(entry, RecordBatch) and not entry.is_wrapper:
        entry.value  # noqa: B018 (raises for lengths that contradict each other)
        return [entry.offset]
    names = ("position", "size", "magic", "attributes", "offset", "count")
    alone = replace(table, **{name: getattr(table, name)[row : row + 1] for name in names})
    found: list[int] = []
    for columns in decode_rows(alone, [0], replace(_OFFSETS_ONLY, limit=limit)):
        found.extend(int(columns.offset[at]) for at in range(len(columns)))
    return found


def _add_batch(
    line: Line, batch: RecordBatch, entry_fields: Line, offsets: list[int], *, valid: bool
) -> CorruptRecordError | None:
    line |= {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.record_count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "deleteHorizonMs": batch.delete_horizon_ms,
        **entry_fields,
        **_common(batch, valid=valid),
        "recordCount": len(offsets),
    }
    _add_offsets(line, offsets)
    try:
        marker = marker_of(batch)
    except CorruptRecordError as error:
        error.position = 0
        return error
    if marker is not None and marker.ends_transaction:
        line["marker"] = {
            "offset": marker.offset,
            "endTxnMarker": marker.type.name,
            "coordinatorEpoch": marker.coordinator_epoch,
        }
    elif marker is not None:
        line["marker"] = {"offset": marker.offset, "controlType": marker.type.name}
    return None


def _add_message(
    line: Line, message: MessageView | EnrichedMessage, place: Line, offsets: list[int], limit: int, *, valid: bool
) -> CorruptRecordError | None:
    first, last = (offsets[0], offsets[-1]) if offsets else (message.offset, message.offset)
    line |= place
    line |= {**_common(message, valid=valid), "recordCount": len(offsets), "lastOffset": last, "baseOffset": first}
    _add_offsets(line, offsets)
    error: CorruptRecordError | None = None
    if offsets:
        inside = _inside(message, limit) if message.is_wrapper else [message]
        line["recordCrcs"] = [each.crc for each in inside]
        bad = []
        for each, offset in zip(inside, offsets, strict=True):
            try:
                each.verify()
            except CorruptRecordError as wrong:
                bad.append(offset)
                error = error or wrong
        if bad:
            line["invalidRecords"] = bad
    if isinstance(message, EnrichedMessage):
        if message.tags:
            line["tags"] = {Tag(tag).name.lower(): value for tag, value in message.tags.items()}
        if message.control_type is not None:
            line["controlType"] = message.control_type.name
    return error


def _common(entry: Entry, *, valid: bool) -> Line:
    number = entry.attributes & CODEC_MASK
    control = isinstance(entry, EnrichedMessage) and entry.is_control
    return {
        "magic": entry.magic,
        "crc": entry.crc,
        "isvalid": valid,
        "timestampType": entry.timestamp_type.label,
        "maxTimestamp": entry.max_timestamp,
        "codec": "none" if control else Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown {number}",
    }


def _add_offsets(line: Line, offsets: list[int]) -> None:
    """Add the offsets inside unless they are all from the first to the last."""
    first, last = line["baseOffset"], line["lastOffset"]
    if len(offsets) != last - first + 1 or offsets != list(range(first, last + 1)):
        line["offsets"] = offsets


def _inside(message: MessageView | EnrichedMessage, limit: int) -> list[Entry]:
    """Return the messages of a wrapper that has been decoded before."""
    assert message.value is not None
    enriched = isinstance(message, EnrichedMessage)
    header = Lz4Header.ANY if message.magic == 0 else Lz4Header.CORRECT
    content = decompress(message.codec, message.value, limit=limit, lz4_header=header)
    return [each for _, each in entries(content, Dialect.ENRICHED if enriched else Dialect.KAFKA)]
