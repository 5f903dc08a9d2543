"""A log directory at work on a disk that loses what was not synced, and what must hold whenever the power goes.

The ledgers keep what was appended, apart from the log's own code; after each cut the directory is opened again and read
to the end. A cut is thought of within every file operation, on a copy of the disk: the work itself continues, and now
and then on the disk after a cut, or as another process after its own was killed.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable

from engine.log.appended import batch_of
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.cleaning.compaction import CompactionConfig
from magicbyte.engine.log.cleaning.maintenance import Maintenance
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import parse_file
from magicbyte.engine.log.files.open_files import DEFAULT_LIMIT
from magicbyte.engine.log.live.group_commit import GroupCommit
from magicbyte.engine.log.live.log_directory import Identity, LogDirectory, Settings
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.testing.disk import SimulatedDisk
from simulation.ledger import (
    RETENTION_MS,
    Batch,
    BrokenError,
    Ledger,
    content_of,
    enriched_set,
    expect,
    keyed_batch,
    known_of,
    marker,
    plain_batch,
    verify_log,
)
from topic_settings import log_config

PATH = "/data"
START_MS = 1_700_000_000_000
SMALL = {
    "segment.bytes": "1100",
    "index.interval.bytes": "200",
    "segment.index.bytes": "480",
    "file.delete.delay.ms": "3000",
    "retention.ms": str(RETENTION_MS),
}
PLAIN, CUT, COMPACTED, ENRICHED, MERGED = (
    TopicPartition(name, 0) for name in ("plain", "cut", "compacted", "enriched", "merged")
)
CONFIGS = {
    "plain": log_config(SMALL),
    "cut": log_config({**SMALL, "log.head.truncation": "true"}),
    "compacted": log_config({**SMALL, "cleanup.policy": "compact"}),
    "enriched": log_config({**SMALL, "message.format.version": "enriched"}),
    "merged": log_config({**SMALL, "message.format.version": "enriched", "cleanup.policy": "compact"}),
}
COMPACTION = CompactionConfig(min_cleanable_ratio=0.1, delete_retention_ms=20_000, dedupe_buffer_bytes=240)
IDEMPOTENT = range(100, 130)  # producers enough for a snapshot of several sectors
TRANSACTIONAL = 7


def open_directory(disk: SimulatedDisk, seed: int = 0, max_open_files: int = DEFAULT_LIMIT) -> LogDirectory:
    rng = random.Random(seed)
    settings = Settings(
        config_of=lambda key: CONFIGS[key.topic],
        token=lambda: f"{rng.getrandbits(128):032x}",
        identity=Identity(1),
        max_open_files=max_open_files,
    )
    return LogDirectory.open(disk, PATH, settings, monotonic_ms=disk.now_ms)


class World:
    """A directory at work. Within each file operation whose number is a multiple of `every` it looks at `cuts` cuts.

    `within`: only operations in whose kind and path this regular expression is found. `max_open_files`: of the
    directory at work.
    """

    def __init__(
        self, seed: int, *, every: int = 1, cuts: int = 1, within: str = "", max_open_files: int = DEFAULT_LIMIT
    ) -> None:
        self.seed, self.every, self.cuts, self.within = seed, every, cuts, within
        self.max_open_files = max_open_files
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.disk.now_ms = START_MS
        self.disk.observer = self.observe
        self.ledgers: dict[TopicPartition, Ledger] = {}
        self.checked = 0
        self.deep = 0  # cuts within a recovery
        self.directory: LogDirectory | None = None  # while there is none open
        self.maintenance: Maintenance
        self.dead: list[object] = []  # processes that were killed: kept, so that they do not tidy up

    # ---- cuts

    def observe(self, kind: str, path: str) -> None:
        if self.disk.operations % self.every or not re.search(self.within, f"{kind} {path}"):
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
            noted = recovery_points(disk)
            if again < 0.2:  # the power goes again while the log is recovered
                counting = disk.after_a_cut(seed)
                open_directory(counting).release()
                at = random.Random(seed).randint(1, max(counting.operations, 1))
                disk = _cut_within(disk, at, seed)
                self.deep += 1
            self.verify(disk, noted, goes_on=again > 0.85)
        except Exception as error:
            raise BrokenError(
                f"seed {self.seed}, operation {self.disk.operations} ({self.disk.phase}: {where}), "
                f"cut {seed}: {error!r}"
            ) from error

    def verify(self, disk: SimulatedDisk, noted: dict[TopicPartition, int], *, goes_on: bool) -> None:
        """See that every log is what its ledger says. `noted`: the offsets up to which it was said to be durable.

        `goes_on`: and that it can be appended to, closed, and opened again without a recovery.
        """
        directory = open_directory(disk)
        for key, ledger in self.ledgers.items():
            if key not in directory.logs:
                expect(ledger.maybe_gone or not ledger.batches, f"{key} is gone")
                continue
            if ledger.longer is None and not ledger.maybe_gone:
                ledger.durable = max(ledger.durable, noted.get(key, 0))
            verify_log(directory.logs[key], ledger, disk.now_ms)
            if directory.was_clean and ledger.closed is not None:
                expect(
                    known_of(directory.logs[key]) == ledger.closed,
                    f"{key} was closed, and forgot producers or transactions",
                )
        for key in directory.logs:
            expect(key in self.ledgers, f"{key} came back")
        if goes_on:
            self.verify_life(disk, directory)
        else:
            directory.release()

    def verify_life(self, disk: SimulatedDisk, directory: LogDirectory) -> None:
        kept = {key: (content_of(log), log.log_end_offset) for key, log in directory.logs.items()}
        for key, log in directory.logs.items():
            put(log, new_batch(random.Random(key.topic), key, log.log_end_offset, 99, disk.now_ms), disk.now_ms)
        directory.close()
        directory = open_directory(disk)
        expect(directory.was_clean, "the mark of a clean end")
        for key, log in directory.logs.items():
            expect(not log.loaded.recovered, f"{key} was closed, and is recovered")
            expect(content_of(log)[:-1] == kept[key][0], f"{key} is another after it was closed")
        directory.release()

    # ---- the work

    def run(self, steps: int) -> World:
        self.open()
        for key in (PLAIN, CUT, COMPACTED, ENRICHED, MERGED):
            self.create(key)
        for name in self.random.choices(list(STEPS), list(STEPS.values()), k=steps):
            self.disk.now_ms += self.random.choice((10, 200, 2_000, 15_000))
            key = self.random.choice(list(self.ledgers))
            self.disk.phase = name.replace("_", " ")
            getattr(self, name)(key)
        self.disk.phase = "close"
        self.close()
        return self

    def open(self) -> None:
        self.disk.phase = "open"
        self.directory = open_directory(self.disk, self.random.randrange(1 << 30), self.max_open_files)
        self.maintenance = Maintenance(self.directory, lambda _key: COMPACTION, secret=lambda: bytes(16))

    def log(self, key: TopicPartition) -> PartitionLog:
        assert self.directory is not None
        return self.directory[key]

    def create(self, key: TopicPartition) -> None:
        self.disk.phase = "create partition"
        assert self.directory is not None
        self.ledgers[key] = Ledger(key, is_compacted=CONFIGS[key.topic].compact, maybe_gone=True)
        self.directory.create(key, monotonic_ms=self.disk.now_ms)
        self.ledgers[key].maybe_gone = False

    def append(self, key: TopicPartition) -> None:
        ledger, log = self.ledgers[key], self.log(key)
        for _ in range(self.random.randint(1, 4)):
            ledger.epoch += self.random.random() < 0.1
            timestamp = self.disk.now_ms - (0 if key == ENRICHED else self.random.choice((0, 0, 500, 5_000, 30_000)))
            if key == PLAIN and self.random.random() < 0.4:
                made = self.transactional(ledger, log.log_end_offset, timestamp)
            else:
                made = new_batch(self.random, key, log.log_end_offset, ledger.epoch, timestamp)
            ledger.batches.append(made)
            put(log, made, self.disk.now_ms)

    def transactional(self, ledger: Ledger, base: int, timestamp: int) -> Batch:
        """Data of the one transactional producer, or the end of its transaction."""
        epoch = ledger.epoch
        if ledger.in_transaction and self.random.random() < 0.5:
            return marker(base, epoch, timestamp, TRANSACTIONAL, commits=self.random.random() < 0.6)
        content = batch_of(
            base, timestamp, 2, producer_id=TRANSACTIONAL, producer_epoch=0, base_sequence=base % 1000, attributes=16,
            partition_leader_epoch=epoch,
        )  # fmt: skip
        return Batch(base, base + 1, content, timestamp, epoch, transaction="data")

    def flush(self, key: TopicPartition) -> None:
        log, ledger = self.log(key), self.ledgers[key]
        log.flush(self.disk.now_ms)
        ledger.durable = log.log_end_offset
        log.high_watermark = ledger.high_watermark = log.log_end_offset

    def group_commit(self, key: TopicPartition) -> None:
        """Several append, one sync is for all of them; who comes later is not answered, and neither is who was cut."""
        group: GroupCommit[tuple[TopicPartition, int]] = GroupCommit()

        def append(each: TopicPartition) -> None:
            self.append(each)
            group.wait(self.log(each), (each, self.log(each).log_end_offset))

        waiting = self.random.sample(list(self.ledgers), k=2)
        for each in waiting:
            append(each)
        begun = group.begin()
        append(key)
        if self.random.random() < 0.4:
            self.truncate(waiting[0])
            self.append(waiting[0])
        assert self.directory is not None
        with self.directory.health:
            begun.run()
        for each, end in group.end(begun, self.disk.now_ms).durable:
            self.ledgers[each].durable = max(self.ledgers[each].durable, end)

    def roll(self, key: TopicPartition) -> None:
        self.log(key).roll(self.disk.now_ms)

    def retention(self, key: TopicPartition) -> None:
        """Retention of all logs; half of the time just after what a broker does every minute."""
        assert self.directory is not None
        if self.random.random() < 0.5:
            for each in self.ledgers:
                self.flush(each)
            self.checkpoints(key)
        self.directory.retain(Moment.fixed(self.disk.now_ms), _no_damage)

    def remove_deleted(self, key: TopicPartition) -> None:
        assert self.directory is not None
        self.directory.remove_deleted(self.disk.now_ms)

    def delete_records(self, key: TopicPartition) -> None:
        log, ledger = self.log(key), self.ledgers[key]
        if ledger.is_compacted or log.high_watermark <= log.log_start_offset:
            return
        assert self.directory is not None
        offset = self.random.randint(log.log_start_offset, log.high_watermark)
        ledger.start = max(ledger.start, offset)
        log.delete_records(offset)
        self.directory.checkpoint_log_starts()

    def truncate(self, key: TopicPartition) -> None:
        log = self.log(key)
        low = max(log.log_start_offset, log.log_end_offset - 12)
        self.truncate_to(key, low)

    def truncate_far(self, key: TopicPartition) -> None:
        self.truncate_to(key, self.log(key).log_start_offset)

    def truncate_to(self, key: TopicPartition, low: int) -> None:
        """Truncate to an offset from `low` on. Of a compacted log no record is cut that others may have gone for."""
        log, ledger = self.log(key), self.ledgers[key]
        low = max(low, log.high_watermark, ledger.high_watermark) if ledger.is_compacted else low
        offset = self.random.randint(low, max(low, log.log_end_offset))
        cut = next((at for at, each in enumerate(ledger.batches) if each.last >= offset), len(ledger.batches))
        ledger.longer = ledger.batches
        ledger.batches = ledger.batches[:cut]
        ledger.durable = min(ledger.durable, offset)
        ledger.high_watermark = min(ledger.high_watermark, offset)
        self.maintenance.pause(key)
        log.truncate_to(offset, self.disk.now_ms)
        ledger.longer = None
        self.maintenance.resume(key)
        expect(log.log_end_offset <= max(offset, low), "truncated to another offset")

    def truncate_fully(self, key: TopicPartition) -> None:
        log, ledger = self.log(key), self.ledgers[key]
        offset = log.log_end_offset + self.random.randrange(3)
        ledger.longer, ledger.batches, ledger.durable, ledger.maybe_gone = ledger.batches, [], 0, True
        self.maintenance.pause(key)
        log.truncate_fully(offset, self.disk.now_ms)
        self.ledgers[key] = Ledger(key, is_compacted=ledger.is_compacted, start=offset, epoch=ledger.epoch)
        self.maintenance.resume(key)

    def compact(self, key: TopicPartition) -> None:
        """Let the worker continue: to the end of a compaction, or not. Segments are small enough to be put together."""
        for each in (COMPACTED, MERGED):
            log, ledger = self.log(each), self.ledgers[each]
            if self.random.random() < 0.4:
                log.roll(self.disk.now_ms)
            ledger.cleaned_to = max(ledger.cleaned_to, min(log.high_watermark, log.active.base_offset))
        self.maintenance.step(self.random.choice((1, 1 << 20)), Moment.fixed(self.disk.now_ms))

    def checkpoints(self, key: TopicPartition) -> None:
        assert self.directory is not None
        self.directory.checkpoint_recovery_points()
        self.directory.checkpoint_high_watermarks()
        self.directory.checkpoint_log_starts()

    def recreate(self, key: TopicPartition) -> None:
        assert self.directory is not None
        self.disk.phase = "delete partition"
        self.ledgers[key].maybe_gone = True
        self.maintenance.pause(key)
        self.directory.delete(key, monotonic_ms=self.disk.now_ms)
        del self.ledgers[key]
        self.create(key)
        self.maintenance.resume(key)

    # ---- ends and new beginnings

    def close(self) -> dict[TopicPartition, int]:
        """Close the directory; return where the logs ended."""
        assert self.directory is not None
        self.maintenance.close()
        for each, ledger in self.ledgers.items():
            ledger.closed = known_of(self.directory.logs[each])
        self.directory.close()
        for each, ledger in self.ledgers.items():
            ledger.durable = max(ledger.durable, self.directory.logs[each].log_end_offset)
        return self.ends()

    def ends(self) -> dict[TopicPartition, int]:
        assert self.directory is not None
        return {each: log.log_end_offset for each, log in self.directory.logs.items()}

    def restart(self, key: TopicPartition) -> None:
        """Close the directory and open it; half of the time with an empty segment in the log with producers."""
        if self.random.random() < 0.5:
            self.roll(PLAIN)
        ends = self.close()
        self.directory = None
        self.reopen(lambda ledger, end: ledger.end <= end <= ends[ledger.key])  # less where it ended with a hole

    def kill(self, key: TopicPartition) -> None:
        """The process dies, nothing is lost that it has written, and nothing more is safe than before."""
        ends = self.ends()
        self.die()
        self.reopen(lambda ledger, end: ledger.end <= end <= ends[ledger.key])

    def power_cut(self, key: TopicPartition) -> None:
        """The power goes, and this time the work continues on the remaining disk."""
        self.die()
        old, seed = self.disk, self.seed * 1_000_003 + self.disk.operations * 101 + 99
        disk = old.after_a_cut(seed)
        self.check(disk.after_a_cut(seed), seed, "for good")
        self.disk = disk
        disk.operations, disk.counted, disk.observer = old.operations, old.counted, self.observe
        disk.failures = old.failures
        self.reopen(lambda ledger, end: end >= ledger.least_end())

    def die(self) -> None:
        assert self.directory is not None
        self.dead += [self.directory, self.maintenance]
        self.directory.release()
        self.directory = None

    def reopen(self, ends_well: Callable[[Ledger, int], bool]) -> None:
        """Open the directory, and continue with its logs.

        High watermarks are those of the checkpoint, as in Kafka: a truncation below one is not noted there.
        """
        self.open()
        for each, ledger in self.ledgers.items():
            end = self.log(each).log_end_offset
            ledger.high_watermark = max(ledger.high_watermark, self.log(each).high_watermark)
            expect(ends_well(ledger, end), f"{each} ends at {end} after a new start, {ledger.end} by the ledger")
            ledger.batches = [batch for batch in ledger.batches if batch.base < end]
            ledger.durable = min(ledger.durable, end)


STEPS = {
    "append": 40,
    "flush": 8,
    "group_commit": 5,
    "roll": 4,
    "retention": 8,
    "remove_deleted": 4,
    "delete_records": 4,
    "truncate": 4,
    "truncate_far": 1,
    "truncate_fully": 1,
    "compact": 10,
    "checkpoints": 4,
    "recreate": 2,
    "restart": 2,
    "kill": 2,
    "power_cut": 2,
}
"""How often each step is taken, of all."""


def _no_damage(_key: TopicPartition, error: CorruptRecordError) -> None:
    raise error


def new_batch(rng: random.Random, key: TopicPartition, base: int, epoch: int, timestamp: int) -> Batch:
    """What is appended to a log, but for transactions."""
    if key in (ENRICHED, MERGED):
        return enriched_set(rng, base, timestamp)
    if key == COMPACTED:
        return keyed_batch(rng, base, epoch, timestamp)
    producer = rng.choice(IDEMPOTENT) if key == PLAIN else -1
    return plain_batch(base, epoch, timestamp, rng.randrange(5), rng.choice((1, 30, 120, 600)), producer)


def put(log: PartitionLog, batch: Batch, now_ms: int) -> None:
    log.append(record_set(batch.content, log.config.rules, log.config.dialect), Moment.fixed(now_ms))


def recovery_points(disk: SimulatedDisk) -> dict[TopicPartition, int]:
    """The offsets below which all is durable, as the checkpoint on the disk says."""
    try:
        return parse_file(disk, f"{PATH}/{checkpoints.RECOVERY_POINT}", checkpoints.parse_offset_checkpoint)
    except FileNotFoundError:
        return {}


class _Cut(BaseException):
    """The power goes."""


def _cut_within(disk: SimulatedDisk, at: int, seed: int) -> SimulatedDisk:
    """Open the directory, and let the power go at the operation `at`; return the disk after that."""

    def observe(_kind: str, _path: str) -> None:
        if disk.operations >= at:
            raise _Cut

    disk.observer = observe
    with contextlib.suppress(_Cut):
        open_directory(disk).release()
    disk.observer = None
    return disk.after_a_cut(seed + 1)


def run(seed: int, steps: int = 200, *, every: int = 1, cuts: int = 1, within: str = "") -> World:
    """Do the work of one seed; raise BrokenError at the first cut after which something does not hold."""
    return World(seed, every=every, cuts=cuts, within=within).run(steps)
