"""What was appended to a log, kept apart from the log's own code, and whether a log that was opened again is that.

There are two kinds: logs whose batches stay as they were, which are compared byte for byte, and compacted ones, which
are compared record for record, and by what they say of each key.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import OffsetOutOfRangeError
from magicbyte.engine.log.files.indexes import AbortedTransaction
from magicbyte.engine.log.files.producer_state import ProducerStates
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.log.live.lookups import aborted_transactions, offset_for_timestamp
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.batch import RecordBatch, build_batch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.enriched import Tag, build_enriched_message, build_enriched_wrapper, encode_tags
from magicbyte.engine.records.extent import last_offsets
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import scan

RETENTION_MS = 60_000
Keyed = tuple[int, bytes | None, bytes | None]  # offset, key, value
Known = tuple[dict[int, tuple[int, int]], list[AbortedTransaction]]  # producers: last sequence number and offset


class BrokenError(AssertionError):
    """Something that must hold after a crash does not."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenError(what)


@dataclass(frozen=True)
class Batch:
    """One appended batch, marker or message. `transaction`: whether it is of one, or ends one."""

    base: int
    last: int
    content: bytes
    timestamp: int
    epoch: int
    records: tuple[Keyed, ...] = ()
    transaction: str = ""


@dataclass
class Ledger:
    """What one log must hold. `batches` in order; while it is truncated, `longer` is what it may hold as well.

    All below `durable` must survive. At the head a batch may be missing that is old, or below `start`, and below the
    high watermark. Of a compacted log records below `cleaned_to` may be missing that later ones of their key stand for.
    """

    key: TopicPartition
    is_compacted: bool = False
    batches: list[Batch] = field(default_factory=list)
    longer: list[Batch] | None = None
    durable: int = 0
    start: int = 0
    high_watermark: int = 0
    cleaned_to: int = 0
    epoch: int = 0  # of the leader, which never goes back
    maybe_gone: bool = False  # it is being made, deleted, or emptied
    closed: Known | None = None  # what it knew when it was closed

    @property
    def whole(self) -> list[Batch]:
        return self.batches if self.longer is None else self.longer

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    @property
    def in_transaction(self) -> bool:
        """Whether the last transaction is open."""
        return next((each.transaction == "data" for each in reversed(self.batches) if each.transaction), False)

    def may_be_cut_off(self, batch: Batch, now_ms: int) -> bool:
        old = not self.is_compacted and batch.timestamp < now_ms - RETENTION_MS
        return batch.last < self.high_watermark and (old or batch.last < self.start)

    def least_end(self) -> int:
        """Where the log must end at least."""
        return max((each.last + 1 for each in self.whole if each.last < self.durable), default=0)


# ---- what is appended


def plain_batch(base: int, epoch: int, timestamp: int, key_number: int, padding: int, producer: int = -1) -> Batch:
    """A batch of one record, of an idempotent producer or of none. Made without the encoder, which is slow for one."""
    name, value = bytes([key_number]), bytes([base % 251]) * padding
    record = b"\0" + varint(0) + varint(0) + varint(1) + name + varint(len(value)) + value + b"\0"
    section = varint(len(record)) + record
    said = {} if producer < 0 else {"producer_id": producer, "producer_epoch": 0, "base_sequence": base % 1000}
    content = build_batch(
        section, base_offset=base, last_offset_delta=0, base_timestamp=timestamp, max_timestamp=timestamp,
        record_count=1, partition_leader_epoch=epoch, **said,
    )  # fmt: skip
    return Batch(base, base, content, timestamp, epoch, ((base, name, value),))


def varint(number: int) -> bytes:
    number <<= 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def marker(base: int, epoch: int, timestamp: int, producer: int, *, commits: bool) -> Batch:
    content = build_marker(
        ControlType.COMMIT if commits else ControlType.ABORT, base_offset=base, timestamp=timestamp,
        producer_id=producer, producer_epoch=0, coordinator_epoch=0, partition_leader_epoch=epoch,
    )  # fmt: skip
    return Batch(base, base, bytes(content), timestamp, epoch, transaction="end")


def some_records(rng: random.Random, base: int, timestamp: int) -> list[Record]:
    """One to four records of few keys; some are tombstones."""
    return [
        Record(base + at, timestamp, 0, bytes([rng.randrange(6)]),
               None if rng.random() < 0.15 else bytes([rng.randrange(256)]) * rng.choice((1, 30, 150)))
        for at in range(rng.randint(1, 4))
    ]  # fmt: skip


def keyed_batch(rng: random.Random, base: int, epoch: int, timestamp: int) -> Batch:
    """A batch of several records, compressed or not, of an idempotent producer or of none."""
    records = some_records(rng, base, timestamp)
    producer = rng.choice((-1, 3, 4))
    header = BatchHeader(
        partition_leader_epoch=epoch, producer_id=producer, producer_epoch=min(producer, 0),
        base_sequence=base % 1000 if producer >= 0 else -1,
    )  # fmt: skip
    codec = rng.choice((Codec.NONE, Codec.NONE, Codec.LZ4))
    content = encode_records(records, Format.V2, codec, header=header)
    return Batch(base, base + len(records) - 1, content, timestamp, epoch, keyed(records))


def enriched_set(rng: random.Random, base: int, timestamp: int) -> Batch:
    """An enriched message, or a wrapper of several."""
    records = some_records(rng, base, timestamp)
    if len(records) == 1:
        tags = encode_tags({Tag.TIMESTAMP: timestamp})
        content = build_enriched_message(
            base, records[0].key, records[0].value, seconds=timestamp // 1000, tags=tags
        )  # fmt: skip
    else:
        inner = b"".join(build_enriched_message(at, each.key, each.value) for at, each in enumerate(records))
        content = build_enriched_wrapper(
            rng.choice((Codec.LZ4, Codec.SNAPPY)), inner, num_messages=len(records), non_keyed=False,
            start_offset=base, seconds=timestamp // 1000, timestamp_ms=timestamp,
        )  # fmt: skip
    return Batch(base, base + len(records) - 1, content, timestamp, 0, keyed(records))


def keyed(records: Iterable[Record]) -> tuple[Keyed, ...]:
    return tuple((each.offset, each.key, None if each.value is None else bytes(each.value)) for each in records)


# ---- what is found


def content_of(log: PartitionLog) -> list[tuple[int, bytes]]:
    """First offset and bytes of every batch, read as a consumer reads: slice after slice."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 700)
        if part is None:
            break
        content = part.read()
        table = scan(memoryview(content), dialect=log.config.dialect)
        for row in range(len(table)):
            position = int(table.position[row])
            found.append((int(table.offset[row]), content[position : position + int(table.size[row])]))
        last = int(last_offsets(table)[-1])
        expect(last >= offset, f"{log.folder}: read from {offset} gave up to {last}")
        offset = last + 1
    return found


def verify_log(log: PartitionLog, ledger: Ledger, now_ms: int) -> None:
    """See that what is in the log is what the ledger says, as far as a crash leaves that no choice."""
    least = ledger.least_end()
    expect(log.log_end_offset >= least, f"{log.folder}: ends at {log.log_end_offset}, before {least}")
    for segment, following in itertools.pairwise(log.segments):
        apart = segment.end_offset() <= following.base_offset
        expect(apart, f"{log.folder}: {segment.base_offset} reaches into {following.base_offset}")
    kept = content_of(log)
    if ledger.is_compacted:
        verify_compacted(log, ledger, kept)
    else:
        verify_batches(log, ledger, kept, now_ms)
    if log.config.dialect is Dialect.KAFKA:
        batches = [RecordBatch(memoryview(content)) for _, content in kept]
        verify_producers(log)
        verify_epochs(log, [(each.base_offset, each.partition_leader_epoch) for each in batches], ledger.start)


def verify_batches(log: PartitionLog, ledger: Ledger, kept: Sequence[tuple[int, bytes]], now_ms: int) -> None:
    """Each batch is there byte for byte, but for a head that was due and a tail that was not durable."""
    whole, at = ledger.whole, 0
    by_content = {(batch.base, batch.content): number for number, batch in enumerate(whole)}
    present = []
    for offset, content in kept:
        number = by_content.get((offset, content))
        expect(number is not None, f"{log.folder}: offset {offset} was never appended")
        assert number is not None
        expect(number >= at, f"{log.folder}: offset {offset} is out of order")
        present.append(number)
        at = number + 1
    first = present[0] if present else len(whole)
    expect(present == list(range(first, first + len(present))), f"{log.folder}: a hole behind {whole[:first][-1:]}")
    for number, batch in enumerate(whole):
        if first <= number < first + len(present):
            continue
        if batch.last < ledger.durable or number < first < len(whole):
            cut_off = number < first and ledger.may_be_cut_off(batch, now_ms)
            expect(cut_off, f"{log.folder}: lost {batch.base} to {batch.last}, durable up to {ledger.durable}")
    end = whole[present[-1]].last + 1 if present else log.segments[0].base_offset
    expect(log.log_end_offset >= end, f"{log.folder}: ends at {log.log_end_offset}, data at {end}")
    verify_lookups(log, [(each.base, each.last, each.timestamp) for each in (whole[number] for number in present)])


def verify_compacted(log: PartitionLog, ledger: Ledger, kept: Sequence[tuple[int, bytes]]) -> None:
    """Each record is one that was appended, none is missing but for later ones, and every key has its latest value."""
    said = {offset: (key, value) for batch in ledger.whole for offset, key, value in batch.records}
    data = memoryview(b"".join(content for _, content in kept))
    decoded = decode(data, DecodeOptions(control=True), dialect=log.config.dialect)
    records = [record for columns in decoded for record in columns]
    found = keyed(records)
    offsets = [offset for offset, _, _ in found]
    expect(offsets == sorted(set(offsets)), f"{log.folder}: out of order, or twice: {offsets}")
    for offset, key, value in found:
        expect(said.get(offset) == (key, value), f"{log.folder}: offset {offset} was never appended like this")
    end, there = log.log_end_offset, set(offsets)
    missing = [offset for offset in said if ledger.cleaned_to <= offset < end and offset not in there]
    expect(ledger.maybe_gone or not missing, f"{log.folder}: lost {missing}, compacted up to {ledger.cleaned_to}")
    wanted = latest_values((offset, *said[offset]) for offset in sorted(said) if offset < end)
    expect(ledger.maybe_gone or latest_values(found) == wanted, f"{log.folder}: keys have other values than the latest")
    verify_lookups(log, [(each.offset, each.offset, each.timestamp) for each in records])


def latest_values(records: Iterable[Keyed]) -> dict[bytes | None, bytes]:
    """The state of each key for a reader of all records in their order."""
    known: dict[bytes | None, bytes] = {}
    for _, key, value in records:
        known.pop(key, None)
        if value is not None:
            known[key] = value
    return known


def verify_lookups(log: PartitionLog, kept: Sequence[tuple[int, int, int]]) -> None:
    """Offsets and timestamps are found where they are, whatever the indexes say: of each segment the latest, and more.

    `kept`: first and last offset, and timestamp, of what can be read.
    """
    start = log.log_start_offset
    kept = [each for each in kept if each[1] >= start]
    chosen = set(kept[:1] + kept[-1:] + kept[len(kept) // 2 :][:1])
    for segment, end in zip(log.segments, [*(each.base_offset for each in log.segments[1:]), 1 << 62], strict=True):
        inside = [each for each in kept if segment.base_offset <= each[0] < end]
        chosen.update(sorted(inside, key=lambda each: each[2])[-1:])
    for base, last, timestamp in chosen:
        offset = max(base, start)
        part = log.read(offset, 1)
        table = scan(memoryview(b"" if part is None else part.read()), dialect=log.config.dialect)
        holds = len(table) == 1 and int(table.offset[0]) <= offset and int(last_offsets(table)[0]) >= last
        expect(holds, f"{log.folder}: {offset} is not found")
        first = next(each for each in kept if each[2] >= timestamp)
        found = offset_for_timestamp(log, timestamp)
        expect(
            found == (first[2], max(first[0], start)),
            f"{log.folder}: timestamp {timestamp} found at {found}, it is at {first[0]}",
        )
    for outside in (start - 1, log.log_end_offset + 1):
        try:
            log.read(outside, 1)
        except OffsetOutOfRangeError:
            continue
        raise BrokenError(f"{log.folder}: {outside} is out of range")


def verify_producers(log: PartitionLog) -> None:
    """What is known of producers is what the batches in the log say, at least.

    A compacted log may have lost a producer's last batch but one, and then by a crash the last: a snapshot tells more.
    """
    states: ProducerStates = log.config.rules.producer_states()
    for segment in log.segments:
        for chunk in read_chunks(segment.log, end=segment.size):
            states.append(chunk.table)
    known = {each.producer_id: each for each in log.producers.snapshot().producers}
    for each in states.snapshot().producers:
        mine = known.get(each.producer_id)
        expect(mine is not None, f"{log.folder}: producer {each.producer_id} is forgotten")
        assert mine is not None
        if each.last_offset >= 0 and not (log.config.compact and mine.last_offset > each.last_offset):
            expect(mine.last_offset == each.last_offset, f"{log.folder}: producer's last {mine} is {each}")
            expect(mine.last_sequence == each.last_sequence, f"{log.folder}: producer's last {mine} is {each}")
        if each.current_txn_first_offset < 0 <= mine.current_txn_first_offset:
            raise BrokenError(f"{log.folder}: a transaction is open that has ended: {mine}")
        if each.current_txn_first_offset >= 0 > mine.current_txn_first_offset:
            raise BrokenError(f"{log.folder}: an open transaction is forgotten: {each}")


def known_of(log: PartitionLog) -> Known:
    """Return what a log knows of producers, whether it still holds their records or not, and of transactions."""
    producers = {
        each.producer_id: (each.last_sequence, each.last_offset) for each in log.producers.snapshot().producers
    }
    return producers, aborted_transactions(log, 0, log.log_end_offset)


def verify_epochs(log: PartitionLog, batches: Iterable[tuple[int, int]], start: int) -> None:
    """The epoch of each batch is that of the last entry that begins at it or before."""
    known = log.epochs.entries
    for base, epoch in batches:
        if base < max(log.log_start_offset, start):
            continue
        at = [each.epoch for each in known if each.start_offset <= base]
        expect(bool(at) and at[-1] == epoch, f"{log.folder}: {base} is of epoch {epoch}: {known}")
    expect(all(each.start_offset <= log.log_end_offset for each in known), f"{log.folder}: epochs {known}")
