"""The one background worker of a log directory: compaction, retention, and files whose delay has passed.

`Maintenance.step` does a bounded piece of work and returns; whoever owns it has the thread and the clock. Sources:
Kafka's LogCleaner, LogCleanerManager and LogManager; the one thread of the Enriched Message Metadata proposal.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.errors import CorruptRecordError
from magicbyte.log.cleaning.compaction import Compaction, CompactionConfig, CompactionReport, damaged_segment, select

if TYPE_CHECKING:
    from magicbyte.log.live.log_directory import LogDirectory
    from magicbyte.log.live.partition_log import PartitionLog
    from magicbyte.ports import Moment, TopicPartition

RETENTION_INTERVAL_MS = 300_000
BACKOFF_MS = 15_000


class Action(enum.Enum):
    """What a step did."""

    COMPACTED = "compacted"
    RETAINED = "retained"
    WAITED = "waited"  # the byte rate is used up
    NOTHING = "nothing"  # is due


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did, to which partition, the bytes that it read and wrote, and when the next one makes sense.

    `next_ms` is of the monotonic clock, as all that this worker waits for.
    """

    action: Action
    partition: TopicPartition | None
    bytes: int
    next_ms: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A compaction that is under way: bytes read and written of about so many."""

    partition: TopicPartition
    done_bytes: int
    total_bytes: int


class Damage(NamedTuple):
    """Damage that keeps a partition from being cleaned: one segment of it (`base_offset`), or all of it (None)."""

    partition: TopicPartition
    base_offset: int | None
    error: CorruptRecordError


@dataclass(slots=True)
class _Running:
    partition: TopicPartition
    compaction: Compaction
    steps: Generator[int, None, None]
    done_bytes: int = 0


class Maintenance:
    """Keeps all logs of a directory compacted or cleaned. Calls are made one at a time, as those of the logs are.

    `results` has the report of each partition's last compaction. `damaged` has by partition and base offset the
    segments that compaction leaves as they are, and `uncleanable` why a partition is left alone: damage, until the next
    start. `met` is told of each damage once. `secret` makes 16 bytes that nobody outside knows. At most
    `bytes_per_second` are read and written, None for as many as can be. It may be changed at any time, as may
    `retention_interval_ms` and `backoff_ms`, the time until it is looked again when nothing was due.
    """

    def __init__(
        self,
        directory: LogDirectory,
        config_of: Callable[[TopicPartition], CompactionConfig],
        *,
        secret: Callable[[], bytes],
        bytes_per_second: float | None = None,
        met: Callable[[Damage], None] = lambda _: None,
    ) -> None:
        self.directory = directory
        self.damaged: dict[TopicPartition, dict[int, CorruptRecordError]] = {}
        self._met = met
        self._told: set[tuple[TopicPartition, int | None]] = set()
        self.results: dict[TopicPartition, CompactionReport] = {}
        self.uncleanable: dict[TopicPartition, CorruptRecordError] = {}
        self._config_of, self._secret, self.bytes_per_second = config_of, secret, bytes_per_second
        self.retention_interval_ms, self.backoff_ms = RETENTION_INTERVAL_MS, BACKOFF_MS
        self._paused: dict[TopicPartition, int] = {}
        self._running: _Running | None = None
        self._allowed_ms = 0.0  # before, the rate is used up
        self._retained_at_ms: int | None = None
        self._looked_at_ms: int | None = None  # when nothing was found to compact

    @property
    def progress(self) -> Progress | None:
        """Return how far the compaction is that is under way."""
        running = self._running
        if running is None:
            return None
        return Progress(running.partition, running.done_bytes, running.compaction.total_bytes)

    def pause(self, partition: TopicPartition) -> None:
        """Leave a partition alone until as many `resume` calls; what was begun of it is abandoned, the log is sound."""
        self._paused[partition] = self._paused.get(partition, 0) + 1
        if self._running is not None and self._running.partition == partition:
            self._abandon()

    def resume(self, partition: TopicPartition) -> None:
        """Take a partition in again. Its log may have been truncated meanwhile."""
        self._paused[partition] -= 1
        if not self._paused[partition]:
            del self._paused[partition]
            self.forget(partition)
        log, known = self.directory.logs.get(partition), self.directory.cleaner_offsets.get(partition)
        if log is not None and known is not None and known > log.log_end_offset:
            self.directory.checkpoint_cleaner(partition, log.log_end_offset)

    def forget(self, partition: TopicPartition) -> None:
        """Forget the damage of a partition, whose log is another one from now on."""
        self.damaged.pop(partition, None)
        self.uncleanable.pop(partition, None)
        self._told = {each for each in self._told if each[0] != partition}

    def uncleanable_bytes(self) -> dict[TopicPartition, int]:
        """Return the bytes that compaction leaves as they are because of damage, of the partitions that have any.

        It may be called while another thread is in a step.
        """
        found = {}
        for partition in self.uncleanable.copy().keys() | self.damaged.copy().keys():
            log, bases = self.directory.logs.get(partition), self.damaged.get(partition, {})
            if log is not None:
                is_whole = partition in self.uncleanable
                sizes = [each.size for each in list(log.segments) if is_whole or each.base_offset in bases]
                if sizes:
                    found[partition] = sum(sizes)
        return found

    def _note(self, partition: TopicPartition, error: CorruptRecordError) -> None:
        """Remember damage that was met outside of a compaction: the segment that it is in, or else the whole log."""
        base = damaged_segment(self.directory[partition].segments, error)
        if base is None:
            self.uncleanable[partition] = error
        else:
            self.damaged.setdefault(partition, {})[base] = error
        self._tell(partition, base, error)

    def _tell(self, partition: TopicPartition, base_offset: int | None, error: CorruptRecordError) -> None:
        if (partition, base_offset) not in self._told:
            self._told.add((partition, base_offset))
            self._met(Damage(partition, base_offset, error))

    def close(self) -> None:
        """Abandon what is under way."""
        self._abandon()

    def _abandon(self) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            with self.directory.health:
                running.steps.close()

    def step(self, budget_bytes: int, now: Moment) -> StepResult:
        """Do what is due, up to about `budget_bytes` read and written (one set of some megabytes at least).

        A damaged segment stays as it is, and all else of its log is compacted; of damage in other files the whole
        partition is left alone. An I/O error takes the directory offline and raises LogDirectoryOfflineError, as every
        other change of it does.
        """
        monotonic_ms = now.monotonic_ms
        if self._retained_at_ms is None or monotonic_ms - self._retained_at_ms >= self.retention_interval_ms:
            self._retained_at_ms = monotonic_ms
            if self.directory.retain(now, self._note):
                return StepResult(Action.RETAINED, None, 0, monotonic_ms)
        self.directory.remove_deleted(monotonic_ms)
        if monotonic_ms < self._allowed_ms:
            return StepResult(Action.WAITED, None, 0, int(self._allowed_ms) + 1)
        if self._running is None and not self._begin(now):
            return StepResult(Action.NOTHING, None, 0, monotonic_ms + self.backoff_ms)
        running = self._running
        assert running is not None
        done = self._go_on(running, budget_bytes)
        if self.bytes_per_second is not None:
            self._allowed_ms = max(self._allowed_ms, monotonic_ms) + 1000 * done / self.bytes_per_second
        return StepResult(Action.COMPACTED, running.partition, done, max(int(self._allowed_ms), monotonic_ms))

    def _begin(self, now: Moment) -> bool:
        """Begin with the log of which the largest part is dirty; say whether there is one that is due."""
        if self._looked_at_ms is not None and now.monotonic_ms - self._looked_at_ms < self.backoff_ms:
            return False
        best: tuple[float, TopicPartition, Compaction] | None = None
        for partition, log in list(self.directory.logs.items()):
            if not log.config.compact or partition in self.uncleanable or partition in self._paused:
                continue
            config, checkpoint = self._config_of(partition), self.directory.cleaner_offsets.get(partition)
            damaged = self._damaged_now(partition, log)
            try:
                with self.directory.health:
                    selection = select(log, checkpoint, config, now.date_ms, damaged=damaged)
            except CorruptRecordError as error:
                self._note(partition, error)
                continue
            if selection.resets:
                self.directory.checkpoint_cleaner(partition, selection.first_dirty)
            if selection.is_due and (best is None or selection.ratio > best[0]):
                compaction = Compaction(log, selection, config, now=now, secret=self._secret(), damaged=damaged)
                best = selection.ratio, partition, compaction
        self._looked_at_ms = None if best is not None else now.monotonic_ms
        if best is not None:
            self._running = _Running(best[1], best[2], best[2].run())
        return best is not None

    def _damaged_now(self, partition: TopicPartition, log: PartitionLog) -> dict[int, CorruptRecordError]:
        """Return the damaged segments of a log, those aside that retention has deleted meanwhile."""
        bases = {each.base_offset for each in log.segments}
        known = self.damaged.setdefault(partition, {})
        for base in known.keys() - bases:
            del known[base]
        return known

    def _go_on(self, running: _Running, budget_bytes: int) -> int:
        try:
            return self._step_of(running, budget_bytes)
        finally:
            for base, error in self.damaged.get(running.partition, {}).items():
                self._tell(running.partition, base, error)

    def _step_of(self, running: _Running, budget_bytes: int) -> int:
        done = 0
        try:
            with self.directory.health:
                for size in running.steps:
                    done += size
                    running.done_bytes += size
                    if done >= budget_bytes:
                        return done
        except CorruptRecordError as error:
            self.uncleanable[running.partition] = error
            self._tell(running.partition, None, error)
            self._running = None
            return done
        self._running = None
        report = running.compaction.report
        self.results[running.partition] = report
        if not report.aborted:
            self.directory.checkpoint_cleaner(running.partition, report.end_offset)
        return done
