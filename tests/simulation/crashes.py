"""A log directory at work on a disk that loses what was not synced, and what must hold whenever the power goes.

The ledger keeps what was appended, apart from the log's own code; after each cut the directory is opened again and read
to the end. A cut is thought of within every file operation, on a copy of the disk: the work itself goes on.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field

from log.appended import batch_of
from magicbyte.errors import OffsetOutOfRangeError
from magicbyte.log.checkpoints import TopicPartition
from magicbyte.log.config import LogConfig
from magicbyte.log.log_directory import Identity, LogDirectory, Settings
from magicbyte.log.partition_log import PartitionLog
from magicbyte.log.producer_state import ProducerStates
from magicbyte.log.reader import read_chunks
from magicbyte.log.record_set import record_set
from magicbyte.records.batch import build_batch
from magicbyte.records.control import ControlType, build_marker
from magicbyte.records.enriched import Tag, build_enriched_message, encode_tags
from magicbyte.records.entry import entries
from magicbyte.records.layout import Dialect
from magicbyte.testing.disk import SimulatedDisk

PATH = "/data"
START_MS = 1_700_000_000_000
RETENTION_MS = 60_000
SMALL = {
    "segment.bytes": "1100",
    "index.interval.bytes": "200",
    "segment.index.bytes": "480",
    "file.delete.delay.ms": "3000",
    "retention.ms": str(RETENTION_MS),
}
PLAIN, CUT, COMPACTED, ENRICHED = (TopicPartition(name, 0) for name in ("plain", "cut", "compacted", "enriched"))
CONFIGS = {
    "plain": LogConfig.of(SMALL),
    "cut": LogConfig.of({**SMALL, "log.head.truncation": "true"}),
    "compacted": LogConfig.of({**SMALL, "cleanup.policy": "compact"}),
    "enriched": LogConfig.of({**SMALL, "message.dialect": "enriched"}),
}


@dataclass(frozen=True)
class Batch:
    """One appended batch, or message: `key` is what compaction goes by."""

    base: int
    last: int
    content: bytes
    timestamp: int
    epoch: int
    key: int
    is_marker: bool = False


@dataclass
class Ledger:
    """What one log must hold. `batches` in order; while it is truncated, `longer` is what it may hold as well.

    All below `durable` must survive. A batch may be missing that is `superseded`; at the head one that is old, or below
    `start`, and below the high watermark.
    """

    key: TopicPartition
    batches: list[Batch] = field(default_factory=list)
    longer: list[Batch] | None = None
    durable: int = 0
    start: int = 0
    high_watermark: int = 0
    superseded: set[int] = field(default_factory=set)
    maybe_gone: bool = False  # it is being made, or deleted

    @property
    def end(self) -> int:
        return max((each.last + 1 for each in self.batches if each.base not in self.superseded), default=0)

    def may_be_cut_off(self, batch: Batch, now_ms: int) -> bool:
        old = self.key != COMPACTED and batch.timestamp < now_ms - RETENTION_MS
        return batch.last < self.high_watermark and (old or batch.last < self.start)


class BrokenError(AssertionError):
    """Something that must hold after a crash does not."""


def open_directory(disk: SimulatedDisk, seed: int = 0) -> LogDirectory:
    rng = random.Random(seed)
    settings = Settings(
        config_of=lambda key: CONFIGS[key.topic],
        token=lambda: f"{rng.getrandbits(128):032x}",
        identity=Identity(1),
    )
    return LogDirectory.open(disk, PATH, settings, now_ms=disk.now_ms)


class World:
    """A directory at work. `check_at`: called within each file operation; the default looks at `cuts` cuts there."""

    def __init__(self, seed: int, *, every: int = 1, cuts: int = 1) -> None:
        self.seed, self.every, self.cuts = seed, every, cuts
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.disk.now_ms = START_MS
        self.ledgers: dict[TopicPartition, Ledger] = {}
        self.checked = 0
        self.deep = 0  # cuts within a recovery
        self.sequences: dict[TopicPartition, int] = {}
        self.open_transaction: dict[TopicPartition, bool] = {}
        self.is_checking = False
        self.disk.observer = self.observe
        self.directory: LogDirectory | None = None  # while there is none open

    # ---- cuts

    def observe(self, kind: str, path: str) -> None:
        if self.disk.operations % self.every:
            return
        for key, log in self.directory.logs.items() if self.directory is not None else ():
            ledger = self.ledgers.get(key)
            if ledger is not None and ledger.longer is None:
                ledger.durable = max(ledger.durable, log.recovery_point)
        for cut in range(self.cuts):
            seed = self.seed * 1_000_003 + self.disk.operations * 101 + cut
            self.check(self.disk.after_a_cut(seed), seed, f"{kind} {path}")

    def check(self, disk: SimulatedDisk, seed: int, where: str) -> None:
        """Open what a cut left, and see that it is what it must be."""
        self.checked += 1
        again = random.Random(seed).random()
        try:
            if again < 0.25:  # the power goes again while the log is mended
                counting = disk.after_a_cut(seed)
                open_directory(counting).release()
                at = random.Random(seed).randint(1, max(counting.operations, 1))
                disk = _cut_within(disk, at, seed)
                self.deep += 1
            self.verify(disk)
        except Exception as error:
            raise BrokenError(
                f"seed {self.seed}, operation {self.disk.operations} ({self.disk.phase}: {where}), "
                f"cut {seed}: {error!r}"
            ) from error

    def verify(self, disk: SimulatedDisk) -> None:
        directory = open_directory(disk)
        for key, ledger in self.ledgers.items():
            if key not in directory.logs:
                expect(ledger.maybe_gone or not ledger.batches, f"{key} is gone")
                continue
            self.verify_log(directory.logs[key], ledger)
        for key in directory.logs:
            expect(key in self.ledgers, f"{key} came back")
        kept = {key: (content_of(log), log.log_end_offset) for key, log in directory.logs.items()}
        for key, log in directory.logs.items():  # life goes on
            batch = next_batch(key, log.log_end_offset, 99, disk.now_ms, key_number=1, padding=1)
            log.append(record_set(batch.content, log.config.rules, log.config.dialect), disk.now_ms)
        directory.close()
        directory = open_directory(disk)
        expect(directory.was_clean, "the mark of a clean end")
        for key, log in directory.logs.items():
            expect(not log.loaded.recovered, f"{key} was closed, and is recovered")
            expect(content_of(log)[:-1] == kept[key][0], f"{key} is another after it was closed")
        directory.release()

    def verify_log(self, log: PartitionLog, ledger: Ledger) -> None:
        found = content_of(log)
        whole = ledger.batches if ledger.longer is None else ledger.longer
        at = 0
        by_content = {(batch.base, batch.content): number for number, batch in enumerate(whole)}
        present = []
        for offset, content in found:
            number = by_content.get((offset, content))
            expect(number is not None, f"{log.folder}: offset {offset} was never appended")
            assert number is not None
            expect(number >= at, f"{log.folder}: offset {offset} is out of order")
            present.append(number)
            at = number + 1
        there = set(present)
        in_head = True
        for number, batch in enumerate(whole):
            if number in there:
                in_head = False
                continue
            if number < at and not in_head:
                expect(batch.base in ledger.superseded, f"{log.folder}: a hole at {batch.base}")
            elif batch.last < ledger.durable:
                gone = batch.base in ledger.superseded or (in_head and ledger.may_be_cut_off(batch, self.disk.now_ms))
                expect(gone, f"{log.folder}: lost {batch.base} to {batch.last}, durable up to {ledger.durable}")
            elif in_head and at:
                gone = batch.base in ledger.superseded or ledger.may_be_cut_off(batch, self.disk.now_ms)
                expect(gone, f"{log.folder}: a hole in front, at {batch.base}")
        end = whole[present[-1]].last + 1 if present else log.segments[0].base_offset
        expect(log.log_end_offset >= end, f"{log.folder}: ends at {log.log_end_offset}, data at {end}")
        survivors = [each for each in whole if each.last < ledger.durable and each.base not in ledger.superseded]
        least = survivors[-1].last + 1 if survivors else 0
        expect(log.log_end_offset >= least, f"{log.folder}: ends at {log.log_end_offset}, before {least}")
        kept = [whole[number] for number in present]
        verify_lookups(log, kept)
        if log.config.dialect is Dialect.KAFKA:
            verify_producers(log, kept)
            verify_epochs(log, [batch for batch in kept if batch.base >= ledger.start])

    # ---- the work

    def run(self, steps: int) -> World:
        self.phase("open")
        self.directory = open_directory(self.disk, self.seed)
        for key in (PLAIN, CUT, COMPACTED, ENRICHED):
            self.create(key)
        names = list(STEPS)
        weights = [STEPS[name] for name in names]
        for name in self.random.choices(names, weights, k=steps):
            self.disk.now_ms += self.random.choice((10, 200, 2_000, 15_000))
            key = self.random.choice(list(self.ledgers))
            self.phase(name.replace("_", " "))
            getattr(self, name)(key)
        self.phase("close")
        self.close(None)
        return self

    def phase(self, name: str) -> None:
        self.disk.phase = name

    def log(self, key: TopicPartition) -> PartitionLog:
        return self.directory[key]

    def create(self, key: TopicPartition) -> None:
        self.phase("create partition")
        self.ledgers[key] = Ledger(key, maybe_gone=True)
        self.sequences[key] = 0
        self.open_transaction[key] = False
        self.directory.create(key, now_ms=self.disk.now_ms)
        self.ledgers[key].maybe_gone = False

    def append(self, key: TopicPartition) -> None:
        ledger, log = self.ledgers[key], self.log(key)
        for _ in range(self.random.randint(1, 4)):
            epoch = log.epochs.entries[-1].epoch if log.epochs.entries else 0
            epoch += self.random.random() < 0.1
            made = self.new_batch(key, log.log_end_offset, epoch)
            ledger.batches.append(made)
            log.append(record_set(made.content, log.config.rules, log.config.dialect), self.disk.now_ms)

    def new_batch(self, key: TopicPartition, base: int, epoch: int) -> Batch:
        how = self.random.random()
        now = self.disk.now_ms
        timestamp = now - self.random.choice((0, 0, 0, 500, 5_000))
        number, padding = self.random.randrange(5), self.random.choice((1, 30, 120, 600))
        if key != PLAIN or how < 0.5:
            return next_batch(key, base, epoch, timestamp if key != ENRICHED else now, number, padding)
        if self.open_transaction[key] and how < 0.75:
            self.open_transaction[key] = False
            kind = ControlType.ABORT if how < 0.65 else ControlType.COMMIT
            content = build_marker(
                kind, base_offset=base, timestamp=timestamp, producer_id=7, producer_epoch=0, coordinator_epoch=0,
                partition_leader_epoch=epoch,
            )  # fmt: skip
            return Batch(base, base, bytes(content), timestamp, epoch, -1, is_marker=True)
        self.open_transaction[key] = True
        sequence = self.sequences[key]
        self.sequences[key] += 2
        content = batch_of(
            base, timestamp, 2, producer_id=7, producer_epoch=0, base_sequence=sequence, attributes=16,
            partition_leader_epoch=epoch,
        )  # fmt: skip
        return Batch(base, base + 1, content, timestamp, epoch, -1)

    def flush(self, key: TopicPartition) -> None:
        log, ledger = self.log(key), self.ledgers[key]
        log.flush(self.disk.now_ms)
        ledger.durable = log.log_end_offset
        log.high_watermark = ledger.high_watermark = log.log_end_offset

    def roll(self, key: TopicPartition) -> None:
        self.log(key).roll(self.disk.now_ms)

    def retention(self, key: TopicPartition) -> None:
        self.directory.retain(self.disk.now_ms)

    def remove_deleted(self, key: TopicPartition) -> None:
        self.directory.remove_deleted(self.disk.now_ms)

    def delete_records(self, key: TopicPartition) -> None:
        log, ledger = self.log(key), self.ledgers[key]
        if key == COMPACTED or log.high_watermark <= log.log_start_offset:
            return
        offset = self.random.randint(log.log_start_offset, log.high_watermark)
        ledger.start = max(ledger.start, offset)
        log.delete_records(offset)
        self.directory.checkpoint_log_starts()

    def truncate(self, key: TopicPartition) -> None:
        log = self.log(key)
        low = max(log.log_start_offset, log.log_end_offset - 12)
        self.truncate_to(key, self.random.randint(low, log.log_end_offset))

    def truncate_far(self, key: TopicPartition) -> None:
        log = self.log(key)
        self.truncate_to(key, self.random.randint(log.log_start_offset, log.log_end_offset))

    def truncate_to(self, key: TopicPartition, offset: int) -> None:
        log, ledger = self.log(key), self.ledgers[key]
        cut = next((at for at, each in enumerate(ledger.batches) if each.last >= offset), len(ledger.batches))
        ledger.longer = ledger.batches
        ledger.batches = ledger.batches[:cut]
        ledger.durable = min(ledger.durable, offset)
        ledger.high_watermark = min(ledger.high_watermark, offset)
        if any(each.key == -1 for each in ledger.longer[cut:]):
            self.open_transaction[key] = False
        log.truncate_to(offset, self.disk.now_ms)
        ledger.superseded -= {each.base for each in ledger.longer[cut:]}
        ledger.longer = None
        if offset < log.log_end_offset:
            raise BrokenError("truncated to another offset")

    def truncate_fully(self, key: TopicPartition) -> None:
        log, ledger = self.log(key), self.ledgers[key]
        offset = log.log_end_offset + self.random.randrange(3)
        ledger.longer, ledger.batches, ledger.durable = ledger.batches, [], 0
        ledger.superseded = {each.base for each in ledger.longer}
        self.open_transaction[key] = False
        ledger.maybe_gone = True
        log.truncate_fully(offset, self.disk.now_ms)
        ledger.longer, ledger.start, ledger.superseded, ledger.maybe_gone = None, offset, set(), False
        ledger.high_watermark = 0

    def compact(self, key: TopicPartition) -> None:
        """Let the batches of the closed segments go that a later one of them with the same key stands for."""
        key = COMPACTED
        log, ledger = self.log(key), self.ledgers[key]
        old = log.segments[:-1][-3:]
        if not old:
            return
        first, end = old[0].base_offset, log.active.base_offset
        inside = [each for each in ledger.batches if first <= each.base < end and each.base not in ledger.superseded]
        latest = {each.key: each.base for each in inside}
        gone = {each.base for each in inside if latest[each.key] != each.base}
        ledger.superseded |= gone
        made = log.new_segment(first)
        for each in inside:
            if each.base not in gone:
                made.append(record_set(each.content, log.config.rules))
        log.replace(old, [made], self.disk.now_ms)
        self.directory.checkpoint_cleaner(key, end)

    def checkpoints(self, key: TopicPartition) -> None:
        self.directory.checkpoint_recovery_points()
        self.directory.checkpoint_high_watermarks()
        self.directory.checkpoint_log_starts()

    def recreate(self, key: TopicPartition) -> None:
        ledger = self.ledgers[key]
        ledger.maybe_gone = True
        self.phase("delete partition")
        self.directory.delete(key, now_ms=self.disk.now_ms)
        del self.ledgers[key]
        self.create(key)

    def close(self, key: TopicPartition | None) -> None:
        self.directory.close()
        for each, ledger in self.ledgers.items():
            ledger.durable = max(ledger.durable, self.directory.logs[each].log_end_offset)

    def restart(self, key: TopicPartition) -> None:
        self.close(None)
        ends = {each: log.log_end_offset for each, log in self.directory.logs.items()}
        self.directory = None
        self.phase("open")
        self.directory = open_directory(self.disk, self.random.randrange(1 << 30))
        for each, log in self.directory.logs.items():
            ledger = self.ledgers[each]
            ledger.durable = min(ledger.durable, log.log_end_offset)
            whole = ledger.end <= log.log_end_offset <= ends[each]  # less where it ended with a hole
            expect(whole, f"{each} ends at {log.log_end_offset} after a restart, {ends[each]} before")
            ledger.batches = [batch for batch in ledger.batches if batch.base < log.log_end_offset]
            ledger.superseded = {base for base in ledger.superseded if base < log.log_end_offset}


STEPS = {
    "append": 40,
    "flush": 12,
    "roll": 4,
    "retention": 8,
    "remove_deleted": 4,
    "delete_records": 4,
    "truncate": 4,
    "truncate_far": 1,
    "truncate_fully": 1,
    "compact": 6,
    "checkpoints": 4,
    "recreate": 2,
    "restart": 3,
}
"""How often each step is taken, of all."""


class _Cut(BaseException):
    """The power goes."""


def _cut_within(disk: SimulatedDisk, at: int, seed: int) -> SimulatedDisk:
    """Open the directory, and let the power go at the operation `at`; return the disk behind that."""

    def observe(_kind: str, _path: str) -> None:
        if disk.operations >= at:
            raise _Cut

    disk.observer = observe
    with contextlib.suppress(_Cut):
        open_directory(disk).release()
    disk.observer = None
    return disk.after_a_cut(seed + 1)


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenError(what)


def next_batch(key: TopicPartition, base: int, epoch: int, timestamp: int, key_number: int, padding: int) -> Batch:
    """A batch, or enriched message, of one record."""
    name, value = bytes([key_number]), bytes([base % 251]) * padding
    if key == ENRICHED:
        tags = encode_tags({Tag.TIMESTAMP: timestamp})
        content = build_enriched_message(base, name, value, seconds=timestamp // 1000, tags=tags)
        return Batch(base, base, content, timestamp, 0, key_number)
    record = varint(0) + varint(0) + varint(1) + name + varint(len(value)) + value + b"\0"
    record = b"\0" + record
    section = varint(len(record)) + record
    content = build_batch(
        section, base_offset=base, last_offset_delta=0, base_timestamp=timestamp, max_timestamp=timestamp,
        record_count=1, partition_leader_epoch=epoch,
    )  # fmt: skip
    return Batch(base, base, content, timestamp, epoch, key_number)


def varint(number: int) -> bytes:
    number <<= 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def content_of(log: PartitionLog) -> list[tuple[int, bytes]]:
    """First offset and bytes of every batch, read as a consumer reads: slice after slice."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 700)
        if part is None:
            break
        last = offset
        for _, entry in entries(part.read(), log.config.dialect):
            base = getattr(entry, "base_offset", None)
            base = entry.offset if base is None else base
            found.append((base, bytes(entry.buffer)))
            last = entry.last_offset if entry.last_offset is not None else base
        expect(last >= offset, f"{log.folder}: read from {offset} gave up to {last}")
        offset = last + 1
    return found


def verify_lookups(log: PartitionLog, kept: list[Batch]) -> None:
    """Each offset and timestamp is found where it is, whatever the indexes say."""
    for batch in kept[:: max(len(kept) // 6, 1)]:
        if batch.last < log.log_start_offset:
            continue
        part = log.read(max(batch.base, log.log_start_offset), 1)
        expect(part is not None and part.read() == batch.content, f"{log.folder}: {batch.base} read is another")
        later = [each for each in kept if each.timestamp >= batch.timestamp and each.last >= log.log_start_offset]
        found = log.offset_for_timestamp(batch.timestamp)
        first = later[0]
        expect(
            found == (first.timestamp, max(first.base, log.log_start_offset)),
            f"{log.folder}: timestamp {batch.timestamp} found at {found}, it is at {first.base}",
        )
    for outside in (log.log_start_offset - 1, log.log_end_offset + 1):
        try:
            log.read(outside, 1)
        except OffsetOutOfRangeError:
            continue
        raise BrokenError(f"{log.folder}: {outside} is out of range")


def verify_producers(log: PartitionLog, kept: list[Batch]) -> None:
    """What is known of producers is what the batches in the log say, at least."""
    states: ProducerStates = log.config.rules.producer_states()
    for segment in log.segments:
        for chunk in read_chunks(segment.log, end=segment.size):
            states.append(chunk.table)
    known = {each.producer_id: each for each in log.producers.snapshot().producers}
    for each in states.snapshot().producers:
        mine = known.get(each.producer_id)
        expect(mine is not None, f"{log.folder}: producer {each.producer_id} is forgotten")
        assert mine is not None
        if each.last_offset >= 0:
            expect(mine.last_offset == each.last_offset, f"{log.folder}: producer's last {mine} is {each}")
            expect(mine.last_sequence == each.last_sequence, f"{log.folder}: producer's last {mine} is {each}")
        if each.current_txn_first_offset < 0 <= mine.current_txn_first_offset:
            raise BrokenError(f"{log.folder}: a transaction is open that has ended: {mine}")
        if each.current_txn_first_offset >= 0 > mine.current_txn_first_offset:
            raise BrokenError(f"{log.folder}: an open transaction is forgotten: {each}")


def verify_epochs(log: PartitionLog, kept: list[Batch]) -> None:
    """The epoch of each batch is that of the last entry that begins at it or before."""
    known = log.epochs.entries
    for batch in kept:
        if batch.base < log.log_start_offset:
            continue
        at = [each.epoch for each in known if each.start_offset <= batch.base]
        expect(bool(at) and at[-1] == batch.epoch, f"{log.folder}: {batch.base} is of epoch {batch.epoch}: {known}")
    expect(all(each.start_offset <= log.log_end_offset for each in known), f"{log.folder}: epochs {known}")


def run(seed: int, steps: int = 200, *, every: int = 1, cuts: int = 1) -> World:
    """Do the work of one seed; raise BrokenError at the first cut behind which something does not hold."""
    return World(seed, every=every, cuts=cuts).run(steps)
