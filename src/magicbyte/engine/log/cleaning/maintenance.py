"""The background worker of a log directory: compaction, retention, and delayed deletion of files.

`Maintenance.step` does a bounded amount of work and returns; the owner has the thread and the clock. Sources: Kafka's
LogCleaner, LogCleanerManager and LogManager; the single thread of the Enriched Message Metadata proposal.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.cleaning.compaction import (
    Compaction,
    CompactionConfig,
    CompactionReport,
    damaged_segment,
    select,
)

if TYPE_CHECKING:
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.ports import Moment, TopicPartition

RETENTION_INTERVAL_MS = 300_000
BACKOFF_MS = 15_000


class Action(enum.Enum):
    """The action of a step."""

    COMPACTED = "compacted"
    RETAINED = "retained"
    WAITED = "waited"  # because of the byte rate
    NOTHING = "nothing"  # was due


class StepResult(Struct, frozen=True):
    """The result of a step: action, partition, bytes read and written, and the time of the next useful step.

    `next_ms` is by the monotonic clock, as are all waits of this worker.
    """

    action: Action
    partition: TopicPartition | None
    bytes: int
    next_ms: int


class Progress(Struct, frozen=True):
    """The current compaction: bytes read and written so far, and about the total."""

    partition: TopicPartition
    done_bytes: int
    total_bytes: int


class Damage(NamedTuple):
    """Damage that prevents compaction of one segment (`base_offset`) or of a whole partition (None)."""

    partition: TopicPartition
    base_offset: int | None
    error: CorruptRecordError


class _Running(Struct):
    partition: TopicPartition
    compaction: Compaction
    steps: Generator[int, None, None]
    done_bytes: int = 0


class Maintenance:
    """Keep all logs of a directory compacted and within retention. Calls are made one at a time, as those of the logs.

    `results` has the report of each partition's last compaction. `damaged` has by partition and base offset the
    segments that compaction leaves unchanged, and `uncleanable` why a partition is skipped: damage, until the next
    start. `met` is called once for each damage, `contradicted` for an index that look-ups pass over, `corrected` for a
    transaction index that they corrected. `secret` returns 16 secret bytes. At most `bytes_per_second` are read and
    written, None for no limit. It may be changed at any time, as may `retention_interval_ms` and `backoff_ms`, the time
    until the next check when nothing was due.
    """

    def __init__(
        self,
        directory: LogDirectory,
        config_of: Callable[[TopicPartition], CompactionConfig],
        *,
        secret: Callable[[], bytes],
        bytes_per_second: float | None = None,
        met: Callable[[Damage], None] = lambda _: None,
        contradicted: Callable[[TopicPartition, CorruptRecordError], None] = lambda _key, _error: None,
        corrected: Callable[[TopicPartition, CorruptRecordError], None] = lambda _key, _error: None,
    ) -> None:
        self.directory = directory
        self.damaged: dict[TopicPartition, dict[int, CorruptRecordError]] = {}
        self._met, self._contradicted, self._corrected = met, contradicted, corrected
        self._reported: set[tuple[TopicPartition, int | None]] = set()
        self.results: dict[TopicPartition, CompactionReport] = {}
        self.uncleanable: dict[TopicPartition, CorruptRecordError] = {}
        self._config_of, self._secret, self.bytes_per_second = config_of, secret, bytes_per_second
        self.retention_interval_ms, self.backoff_ms = RETENTION_INTERVAL_MS, BACKOFF_MS
        self._paused: dict[TopicPartition, int] = {}
        self._running: _Running | None = None
        self._allowed_ms = 0.0  # until then the byte rate is used up
        self._retained_at_ms: int | None = None
        self._looked_at_ms: int | None = None  # when nothing was found to compact

    @property
    def progress(self) -> Progress | None:
        """Return the progress of the current compaction."""
        running = self._running
        if running is None:
            return None
        return Progress(running.partition, running.done_bytes, running.compaction.total_bytes)

    def pause(self, partition: TopicPartition) -> None:
        """Skip a partition until as many `resume` calls; its current compaction is abandoned, and the log is sound."""
        self._paused[partition] = self._paused.get(partition, 0) + 1
        if self._running is not None and self._running.partition == partition:
            self._abandon()

    def resume(self, partition: TopicPartition) -> None:
        """Include a partition again. Its log may have been truncated meanwhile."""
        self._paused[partition] -= 1
        if not self._paused[partition]:
            del self._paused[partition]
            self.forget(partition)
        log, known = self.directory.logs.get(partition), self.directory.cleaner_offsets.get(partition)
        if log is not None and known is not None and known > log.log_end_offset:
            self.directory.checkpoint_cleaner(partition, log.log_end_offset)

    def forget(self, partition: TopicPartition) -> None:
        """Forget the damage of a partition, whose log has been replaced."""
        self.damaged.pop(partition, None)
        self.uncleanable.pop(partition, None)
        self._reported = {each for each in self._reported if each[0] != partition}

    def uncleanable_bytes(self) -> dict[TopicPartition, int]:
        """Return the bytes that compaction leaves unchanged because of damage, of the partitions that have any.

        It may be called while another thread is in a step.
        """
        sizes_of = {}
        for partition in self.uncleanable.copy().keys() | self.damaged.copy().keys():
            log, bases = self.directory.logs.get(partition), self.damaged.get(partition, {})
            if log is not None:
                is_whole = partition in self.uncleanable
                sizes = [each.size for each in list(log.segments) if is_whole or each.base_offset in bases]
                if sizes:
                    sizes_of[partition] = sum(sizes)
        return sizes_of

    def _note(self, partition: TopicPartition, error: CorruptRecordError) -> None:
        """Record damage found outside a compaction: of the segment that it is in, or else of the whole log."""
        base = damaged_segment(self.directory[partition].segments, error)
        if base is None:
            self.uncleanable[partition] = error
        else:
            self.damaged.setdefault(partition, {})[base] = error
        self._tell(partition, base, error)

    def _tell(self, partition: TopicPartition, base_offset: int | None, error: CorruptRecordError) -> None:
        if (partition, base_offset) not in self._reported:
            self._reported.add((partition, base_offset))
            self._met(Damage(partition, base_offset, error))

    def close(self) -> None:
        """Abandon the current compaction."""
        self._abandon()

    def _abandon(self) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            with self.directory.health:
                running.steps.close()

    def step(self, budget_bytes: int, now: Moment) -> StepResult:
        """Do due work, up to about `budget_bytes` read and written (one set of some megabytes at least).

        A damaged segment stays unchanged, and the rest of its log is compacted; for damage in other files the whole
        partition is skipped. An I/O error takes the directory offline and raises LogDirectoryOfflineError, as in every
        other change.
        """
        monotonic_ms = now.monotonic_ms
        if self._retained_at_ms is None or monotonic_ms - self._retained_at_ms >= self.retention_interval_ms:
            self._retained_at_ms = monotonic_ms
            if self.directory.retain(now, self._note, self._contradicted, self._corrected):
                return StepResult(Action.RETAINED, None, 0, monotonic_ms)
        self.directory.remove_deleted(monotonic_ms)
        retained_next_ms = self._retained_at_ms + self.retention_interval_ms
        if monotonic_ms < self._allowed_ms:
            return StepResult(Action.WAITED, None, 0, min(int(self._allowed_ms) + 1, retained_next_ms))
        if self._running is None and not self._begin(now):
            return StepResult(Action.NOTHING, None, 0, min(monotonic_ms + self.backoff_ms, retained_next_ms))
        running = self._running
        assert running is not None
        done = self._continue(running, budget_bytes)
        if self.bytes_per_second is not None:
            self._allowed_ms = max(self._allowed_ms, monotonic_ms) + 1000 * done / self.bytes_per_second
        return StepResult(Action.COMPACTED, running.partition, done, max(int(self._allowed_ms), monotonic_ms))

    def _begin(self, now: Moment) -> bool:
        """Begin with the log that has the largest dirty ratio; return whether one is due."""
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
        """Return the damaged segments of a log, without those that retention has deleted meanwhile."""
        bases = {each.base_offset for each in log.segments}
        known = self.damaged.setdefault(partition, {})
        for base in known.keys() - bases:
            del known[base]
        return known

    def _continue(self, running: _Running, budget_bytes: int) -> int:
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
