"""Rewrite sets for another cluster: closed, with a new header around the same compressed bytes, or decompressed.

A set stays closed if the target stores its format and its header contains everything needed. Headers become a
producer's: offsets from 0, no leader epoch, no transaction, CreateTime, the mirror's producer id and sequence. Damaged
data never gets a valid checksum: either it is verified before a new one is computed, or the new one is derived from the
old one (records/forward.py), and the target detects the damage. Sources: Enriched Message Metadata, shallow mirroring;
Kafka's LogValidator.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.access.client.fetch import ClosedSets, offset_behind
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import UnsupportedForMessageFormatError
from magicbyte.engine.log.append.reencode import joined
from magicbyte.engine.protocol.message import Records
from magicbyte.engine.records.batch import RecordBatch, batch_attributes
from magicbyte.engine.records.columns import RecordColumns
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import BatchHeader, Format, encode
from magicbyte.engine.records.enriched import EnrichedMessage, Tag
from magicbyte.engine.records.entry import Entry, entries, parse_entry
from magicbyte.engine.records.forward import NO_LIMIT, Forwarded, forward_batches
from magicbyte.engine.records.layout import CONTROL_BIT, DELETE_HORIZON_BIT, Dialect, TimestampType
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.records.transactions import CommittedFilter, batch_facts
from magicbyte.engine.sentinels import NO_TIMESTAMP
from magicbyte.engine.wire.checksum import crc32c

_BEFORE: Final = struct.Struct(">qiibI")  # offset, length, leader epoch, magic, CRC
_COVERED: Final = struct.Struct(">hiqqqhii")  # the header fields covered by the CRC
_CODECS: Final = (1 << len(Codec)) - 1
_NOT_CLOSED: Final = CONTROL_BIT | DELETE_HORIZON_BIT  # batches with one of these bits are decompressed, or left out
RUN_BYTES: Final = 512 << 10  # of plain messages in one request


class ProducerIdentity(NamedTuple):
    """The producer id and epoch of batches, and the sequence number of the next record."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1

    def behind(self, records: int) -> ProducerIdentity:
        """Return the identity after `records` more records; the sequence wraps from 2147483647 to 0."""
        if self.producer_id < 0:
            return self
        return ProducerIdentity(self.producer_id, self.epoch, self.sequence + records & 0x7FFFFFFF)

    def begun(self) -> ProducerIdentity:
        """Return the identity for a partition without sent records."""
        return self if self.producer_id < 0 else self._replace(sequence=0)


NO_PRODUCER: Final = ProducerIdentity()


class Storage(NamedTuple):
    """The format that a topic of the target stores, and whether it supports zstd.

    `append_time`: batches with LogAppendTime are decompressed, so that their records keep the time that consumers of
    the source see. Closed, they show the producer's times again.
    """

    format: Format
    zstd: bool = True
    append_time: bool = False

    def __str__(self) -> str:
        return "enriched" if self.format is Format.ENRICHED else f"magic {self.format.magic}"


class Parcel(Struct):
    """The content of one request: a batch, a wrapper, or a run of plain messages, as bytes of the source.

    `end` is its end in the fetched bytes, `entry` its first entry. Of its records those with offsets from `first` to
    before `next_offset` are sent. `why` it must be decompressed; None: it stays closed.
    """

    data: memoryview
    end: int
    entry: Entry
    first: int
    next_offset: int
    why: str | None

    @property
    def dialect(self) -> Dialect:
        """Of the source."""
        return Dialect.ENRICHED if isinstance(self.entry, EnrichedMessage) else Dialect.KAFKA

    @property
    def form(self) -> Format:
        """The format of the source."""
        return Format.ENRICHED if isinstance(self.entry, EnrichedMessage) else Format(str(self.entry.magic))


class Made(NamedTuple):
    """A rewritten parcel: a set of `magic` and `codec` with `records` records, -1 for a closed wrapper."""

    data: Records
    magic: int
    codec: Codec
    records: int


def parcels(found: ClosedSets, start: int, storage: Storage, *, at_boundary: bool) -> Iterator[Parcel]:
    """Yield the parcels of `found` for a reader of committed records, from the offset `start` on.

    `at_boundary`: no set extends over `start`. Ends at the last stable offset. Raises CorruptRecordError.
    """
    for each in pieces(found, start, storage, at_boundary=at_boundary):
        assert isinstance(each, Parcel), "none is made without an identity"
        yield each


def pieces(
    sets: ClosedSets,
    start: int,
    storage: Storage,
    *,
    at_boundary: bool,
    whose: Callable[[], ProducerIdentity] | None = None,
) -> Iterator[Parcel | Forwarded]:
    """Yield as `parcels`, but rewrite closed batches for `whose` immediately, many at a time.

    `whose` is called when the identity is needed: it must include everything yielded before.
    """
    stable = sets.last_stable_offset
    committed = CommittedFilter(sets.aborted, stable) if stable >= 0 else None
    run: Parcel | None = None
    row = 0
    while row < len(sets.table):
        if run is not None and sets.table.magic[row] == 2:
            yield run  # so that `whose` includes it
            run = None
        if whose is not None and (closed := _closed_batches(sets, row, start, storage, whose)) is not None:
            yield closed
            row, start, at_boundary = row + len(closed.rows), closed.following, True
            continue
        position = int(sets.table.position[row])
        data = sets.data[position : position + int(sets.table.size[row])]
        entry = parse_entry(data, sets.table.dialect)
        assert entry is not None, "the scan has seen all of it"
        following = behind(sets, row, entry)
        if committed is not None and following > stable:
            break
        facts = batch_facts(entry)
        wanted = not facts.is_control if committed is None else committed.delivers(facts)
        if wanted and entry.record_count != 0:
            why = _why(entry, start, storage, at_boundary=at_boundary)
            parcel = Parcel(data, position + len(data), entry, start, following, why)
            joined = None if run is None else _joined(run, parcel, sets.data)
            if run is not None and joined is None:
                yield run
            run = joined or parcel
        start, at_boundary, row = following, True, row + 1
    if run is not None:
        yield run


def _closed_batches(
    sets: ClosedSets, row: int, start: int, storage: Storage, whose: Callable[[], ProducerIdentity]
) -> Forwarded | None:
    """Return the closed batches from a row on, rewritten for `whose`; None if the row must be handled individually."""
    table = sets.table
    if storage.format is not Format.V2 or table.magic[row] != 2 or table.attributes[row] & _NOT_CLOSED:
        return None
    codecs = _CODECS if storage.zstd else _CODECS & ~(1 << Codec.ZSTD)
    stable = sets.last_stable_offset if sets.last_stable_offset >= 0 else NO_LIMIT
    closed = forward_batches(
        table,
        row,
        start,
        stable,
        codecs,
        whose(),
        transactional=not sets.aborted,
        append_time=not storage.append_time,
    )
    return closed if closed.rows else None


def behind(sets: ClosedSets, row: int, entry: Entry) -> int:
    """Return the offset after an entry of the fetched sets. Raises CorruptRecordError.

    The header of an enriched wrapper may lack it after compaction: then it is where the next entry begins.
    """
    if entry.next_offset is not None:
        return entry.next_offset
    if row + 1 < len(sets.table):
        return int(sets.table.offset[row + 1])
    return offset_behind(sets.table, row, sets.high_watermark)


def behind_all(found: ClosedSets) -> int:
    """Return the offset after all fetched sets, which must not be empty. Raises CorruptRecordError."""
    row = len(found.table) - 1
    last = parse_entry(found.data[found.table.position[row] :], found.table.dialect)
    assert last is not None, "the scan has seen all of it"
    return behind(found, row, last)


def end_of(found: ClosedSets, start: int, end: int) -> int:
    """Return the next offset after the sets fetched from `start` on, including markers and aborted sets:

    `end` at most.
    """
    return max(start, min(behind_all(found), end)) if len(found.table) else start


def _joined(run: Parcel, parcel: Parcel, data: memoryview) -> Parcel | None:
    """Return two parcels as one, if they consist of plain messages that may be joined."""
    if isinstance(run.entry, RecordBatch) or isinstance(parcel.entry, RecordBatch):
        return None
    begin = run.end - len(run.data)
    if (
        run.entry.is_wrapper
        or parcel.entry.is_wrapper
        or run.entry.magic != parcel.entry.magic
        or parcel.end - begin > RUN_BYTES
    ):
        return None
    return replace(run, data=data[begin : parcel.end], end=parcel.end, next_offset=parcel.next_offset)


def _why(entry: Entry, first: int, storage: Storage, *, at_boundary: bool) -> str | None:
    """Return why an entry cannot stay closed, or None."""
    if isinstance(entry, EnrichedMessage):
        return _why_enriched(entry, first, storage)
    if storage.format is Format.ENRICHED or entry.magic != storage.format.magic:
        return f"magic {entry.magic} where the target stores {storage}"
    if entry.codec is Codec.ZSTD and not storage.zstd:
        return "zstd, which the target does not know"
    if isinstance(entry, MessageView):
        return "it may begin before the log does" if entry.is_wrapper and not at_boundary else None
    if entry.base_offset < first:
        return "it begins before the log does"
    if entry.last_offset_delta != entry.record_count - 1:
        return "its offsets have holes"
    if storage.append_time and entry.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return "its records have the time of the append"
    return None if entry.delete_horizon_ms is None else "it has a delete horizon"


def _why_enriched(entry: EnrichedMessage, first: int, storage: Storage) -> str | None:
    """Return why an enriched entry cannot stay closed: it can only with the tag that no inner message has a key."""
    if storage.format is not Format.ENRICHED:
        return f"enriched where the target stores {storage}"
    if not entry.non_keyed:
        return "it may have keys" if entry.is_wrapper else "it is not compressed"
    if entry.num_messages is None:
        return "it has no message count"
    if entry.base_offset < first:
        return "it begins before the log does"
    unknown = entry.unknown_tags
    if Tag.HONOR_SHIP not in entry.tags and len(unknown) and unknown[0] < Tag.HONOR_SHIP:
        return "its tags have no room for another one"
    return None


def forward(
    parcel: Parcel,
    storage: Storage,
    identity: ProducerIdentity = NO_PRODUCER,
    skip: int = 0,
    records: RecordColumns | None = None,
    *,
    transactional: bool = False,
) -> Made:
    """Rewrite a parcel without its first `skip` records, which the target already has.

    With `records`, some of the parcel's, these are encoded instead. `transactional`: as part of a transaction of
    `identity`. Raises CorruptRecordError for a failing checksum; UnsupportedForMessageFormatError for record headers
    that the target cannot hold, and for a closed set of which a part must be skipped.
    """
    if records is not None or parcel.why is not None:
        records = records_of(parcel) if records is None else records
        return _opened(records, parcel.entry.codec, storage, identity, skip, transactional=transactional)
    if isinstance(parcel.entry, EnrichedMessage):
        assert parcel.entry.num_messages is not None, "else it is opened"
        made = Made(closed_enriched(parcel.entry), 1, parcel.entry.codec, parcel.entry.num_messages)
    elif isinstance(parcel.entry, RecordBatch):
        data = closed_batch(parcel.entry, identity, transactional=transactional)
        made = Made(data, 2, parcel.entry.codec, parcel.entry.record_count)
    else:
        made = _closed_messages(parcel)
    if 0 < skip < made.records:
        raise UnsupportedForMessageFormatError(
            f"a compressed set of {made.records} records, of which the target has {skip}"
        )
    return made


def closed_batch(
    batch: RecordBatch, identity: ProducerIdentity = NO_PRODUCER, *, transactional: bool = False
) -> Records:
    """Return a batch with a producer's header, and the bytes of its records as a view.

    The max timestamp is kept: for a batch with LogAppendTime the target corrects it.
    """
    batch.verify()
    records = batch.records_section
    covered = _COVERED.pack(
        batch_attributes(batch.codec, is_transactional=transactional), batch.last_offset_delta, batch.base_timestamp,
        batch.max_timestamp, *identity, batch.record_count,
    )  # fmt: skip
    crc = crc32c(records, crc32c(covered))
    return [_BEFORE.pack(0, batch.batch_length, -1, 2, crc) + covered, records]


def closed_message(message: MessageView, first: int) -> bytes:
    """Return a message or wrapper as a producer sends it. `first`: the offset after the preceding entry.

    A wrapper gets the offset that its last message has without gaps, or a higher one: the target renumbers the content
    if that is wrong (KIP-31), and would refuse a lower one.
    """
    message.verify()
    copy = MessageView(memoryview(bytearray(message.buffer)))
    copy.set_offset(message.offset - first if message.is_wrapper else 0)
    if message.magic == 1:
        copy.set_max_timestamp(TimestampType.CREATE_TIME, message.timestamp)
    return bytes(copy.buffer)


def closed_enriched(wrapper: EnrichedMessage) -> Records:
    """Return an enriched wrapper as a producer sends it: the target assigns offsets by position.

    Unknown tags are kept. The compressed bytes are a view.
    """
    wrapper.verify()
    return [bytes(wrapper.stamped(0, NO_TIMESTAMP, honor_ship=False)), wrapper.body]


def _closed_messages(parcel: Parcel) -> Made:
    assert isinstance(parcel.entry, MessageView), "of Kafka's formats"
    pieces, count, first = [], 0, parcel.first
    for _, message in entries(parcel.data):
        assert isinstance(message, MessageView), "of the magic of the first one"
        pieces.append(closed_message(message, first))
        first, count = message.next_offset, count + 1
    records = -1 if parcel.entry.is_wrapper else count
    codec = parcel.entry.codec
    return Made(b"".join(pieces), parcel.entry.magic, codec, records)


def records_of(parcel: Parcel) -> RecordColumns:
    """Return the requested records of a parcel. Raises CorruptRecordError."""
    columns = joined(list(decode(parcel.data, dialect=parcel.dialect)))
    return columns.slice(bisect_left(columns.offset, parcel.first), len(columns))


def _opened(
    records: RecordColumns,
    codec: Codec,
    storage: Storage,
    identity: ProducerIdentity,
    skip: int,
    *,
    transactional: bool,
) -> Made:
    """Return records as one set in the target's format, with `codec` if it supports that."""
    total, target = len(records), storage.format
    columns = records.slice(min(skip, total), total)
    if target is not Format.V2 and columns.headers is not None and len(columns.headers.key):
        raise UnsupportedForMessageFormatError(f"record headers, which magic {target.magic} cannot hold")
    if codec is Codec.ZSTD and not (storage.zstd and target is Format.V2):
        codec = Codec.GZIP
    header = BatchHeader(
        is_transactional=transactional,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=identity.sequence,
    )
    batches = [(len(columns), header)] if len(columns) else []
    numbered = _numbered(columns, timed=target is not Format.ENRICHED)
    return Made(encode(numbered, target, codec, batches=batches), target.magic, codec, total)


def _numbered(columns: RecordColumns, *, timed: bool) -> RecordColumns:
    """Return records with a producer's offsets. Their timestamps stay those that the source's consumers see.

    Not `timed`: they have none, because brokers set them.
    """
    count = len(columns)
    kinds = [int(TimestampType.CREATE_TIME)] * count
    times = columns.timestamp if timed else [NO_TIMESTAMP] * count
    return replace(columns, offset=list(range(count)), timestamp=times, timestamp_type=kinds)
