"""Periodic work of a broker: checkpoints, due syncs, compaction, retention.

Invariants:
1. Maintenance holds `Runtime.directory` and `logs_lock` alone, for one step of about STEP_BYTES at a time: appends wait
   that long, and no other task changes a log meanwhile.
2. A log is excluded from maintenance while it is deleted (`without`), so that no step continues in a released log.
3. A due sync runs with `logs_lock` shared, beside appends: it covers the appends before its start.
4. Periodic checkpoints are written with `Runtime.directory` held: no log is created or deleted meanwhile.

Maintenance ends at the first failure of the disk. A crash within a step leaves what the step says: see `log/live/`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import LogDirectoryOfflineError, OutOfDescriptorsError
from magicbyte.engine.log.live.config import FOREVER
from magicbyte.engine.ports import Moment
from magicbyte.engine.printable import logger
from magicbyte.server.partitions.partition import tell_corrected_index
from magicbyte.server.serving.metrics import now_ns
from magicbyte.server.settings import topic_config

if TYPE_CHECKING:
    from magicbyte.engine.errors import CorruptRecordError
    from magicbyte.engine.log.cleaning.compaction import CompactionConfig
    from magicbyte.engine.log.cleaning.maintenance import Damage, Maintenance
    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.log.live.partition_log import Flush, PartitionLog
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.stores.topics import Topics

log = logger(__name__)

STEP_BYTES: Final = 1 << 20  # read and written by a step of maintenance, during which appends wait
_FLUSH_CHECK_MS: Final = 200
_LONGEST_SLEEP_MS: Final = 15_000  # settings may have changed
_SHORTEST_SLEEP_MS: Final = 1000  # if nothing was due


class Background:
    """The background tasks of a running broker."""

    def __init__(self, runtime: Runtime, logs: LogDirectory, topics: Topics) -> None:
        self._runtime, self._logs, self._topics = runtime, logs, topics
        self._maintenance: Maintenance | None = None  # created at the first need
        self._written: dict[str, dict[TopicPartition, int]] = {}

    def start(self) -> None:
        """Start the tasks. They end with the broker's."""
        runtime, config, logs = self._runtime, self._runtime.config, self._logs
        for interval_ms, offset_of, write in (
            (config.log_flush_offset_checkpoint_interval_ms, _recovery_point, logs.checkpoint_recovery_points),
            (config.log_flush_start_offset_checkpoint_interval_ms, _log_start, logs.checkpoint_log_starts),
            (config.replica_high_watermark_checkpoint_interval_ms, _high_watermark, logs.checkpoint_high_watermarks),
        ):
            runtime.spawn(self._checkpoint(interval_ms, offset_of, write))
        runtime.spawn(self._flush())
        runtime.spawn(self._maintain())

    def close(self) -> None:
        """Abandon the current compaction; the log stays unchanged."""
        if self._maintenance is not None:
            self._maintenance.close()

    def config_changed(self) -> None:
        """Apply changed settings."""
        config, maintenance = self._runtime.config, self._maintenance
        if maintenance is None:
            return
        maintenance.bytes_per_second = _rate(config)
        maintenance.retention_interval_ms = config.log_retention_check_interval_ms
        maintenance.backoff_ms = config.log_cleaner_backoff_ms

    @contextlib.contextmanager
    def without(self, keys: Sequence[TopicPartition]) -> Iterator[None]:
        """Exclude logs that are deleted inside the block from maintenance. Later logs of their names are new ones."""
        maintenance = self._maintenance
        if maintenance is None:
            yield
            return
        for key in keys:
            maintenance.pause(key)
        try:
            yield
        finally:
            for key in keys:
                maintenance.resume(key)

    def maintenance(self) -> Maintenance:
        """Return the worker; the first call imports it, which takes a while."""
        if self._maintenance is None:
            from magicbyte.engine.log.cleaning.maintenance import Maintenance

            self._maintenance = Maintenance(
                self._logs,
                self._compaction_of,
                secret=lambda: self._runtime.random.randbytes(16),
                met=_uncleanable,
                contradicted=_contradicted,
                corrected=tell_corrected_index,
            )
            self.config_changed()
        return self._maintenance

    def uncleanable_bytes(self) -> dict[TopicPartition, int]:
        """Return the bytes that compaction leaves unchanged because of damage, by partition."""
        return {} if self._maintenance is None else self._maintenance.uncleanable_bytes()

    def _step(self, now: Moment) -> int:
        """Run a step. Return the delay until the next one, in ms."""
        from magicbyte.engine.log.cleaning.maintenance import Action

        result = self.maintenance().step(STEP_BYTES, now)
        shortest = _SHORTEST_SLEEP_MS if result.action is Action.NOTHING else 0
        return min(max(result.next_ms - now.monotonic_ms, shortest), _LONGEST_SLEEP_MS)

    def _compaction_of(self, key: TopicPartition) -> CompactionConfig:
        topic = self._topics.get(key.topic)
        if topic is None:  # a left-over log of a topic that the cluster no longer has
            return topic_config.resolve({}, self._runtime.config).compaction
        return topic.config.compaction

    async def _checkpoint(
        self, interval_ms: int, offset_of: Callable[[PartitionLog], int], write: Callable[[], None]
    ) -> None:
        """Write one of the directory's checkpoints periodically, if it has changed."""
        known: dict[TopicPartition, int] = {}
        while True:
            await asyncio.sleep(max(interval_ms, 1) / 1000)
            async with self._runtime.directory:
                found = {key: offset_of(each) for key, each in self._logs.logs.items()}
                is_new = found != known and self._logs.health.error is None
                if is_new and await self._tolerant(write):
                    known = found

    async def _flush(self) -> None:
        """Sync the logs whose `flush.ms` has passed."""
        while True:
            await asyncio.sleep(_FLUSH_CHECK_MS / 1000)
            logs = self._logs
            if all(due.config.flush_ms == FOREVER for due in list(logs.logs.values())):
                continue
            for due in logs.flush_due(self._runtime.clock.monotonic_ms()):
                await self._runtime.logs_lock.acquire_shared()  # no log is deleted while it is synced
                try:
                    if due in logs.logs.values() and (flush := due.begin_flush()) is not None:
                        started = now_ns()
                        if await self._tolerant(partial(_sync, due, flush)):
                            self._runtime.metrics.syncs.add([now_ns() - started])
                            due.flushed(flush, self._runtime.clock.monotonic_ms())
                finally:
                    self._runtime.logs_lock.release_shared()

    async def _maintain(self) -> None:
        """Compact and delete step by step; appends wait during a step."""
        runtime = self._runtime
        delay_ms = runtime.config.log_initial_task_delay_ms
        while True:
            await asyncio.sleep(delay_ms / 1000)
            if self._logs.health.error is not None:
                return
            async with runtime.directory, runtime.logs_lock:
                now = Moment.of(runtime.clock)
                try:
                    delay_ms = await runtime.writing.run(self._step, now)
                except LogDirectoryOfflineError:  # it has been logged
                    return
                except OutOfDescriptorsError as error:
                    log.warning("compaction and retention wait: %s", error)
                    delay_ms = _LONGEST_SLEEP_MS

    async def _tolerant(self, work: Callable[[], None]) -> bool:
        """Run work in a thread; return whether it was done.

        A failing disk takes the directory offline, which requests then report. Work that lacks descriptors is retried
        later.
        """
        try:
            await self._runtime.writing.run(work)
        except LogDirectoryOfflineError:  # it has been logged
            return False
        except OutOfDescriptorsError as error:
            log.warning("postponed: %s", error)
            return False
        return True


def _uncleanable(damage: Damage) -> None:
    """Log what is no longer compacted, and what to do."""
    if damage.base_offset is None:
        what, remedy = "the partition is not cleaned until the next start", "`magicbyte rebuild-index`"
    else:
        what, remedy = "compaction skips this segment, and keeps the tombstones after it", "`magicbyte salvage`"
    log.error(
        "%s: uncleanable: %s; %s; stop the broker and run %s, or copy the partition from another replica",
        damage.partition, damage.error, what, remedy,
    )  # fmt: skip


def _contradicted(key: TopicPartition, error: CorruptRecordError) -> None:
    """Log an index that is damaged, and what to do; reads work without it."""
    log.error("%s: an index is damaged, and reads of its segment are slower: %s; stop the broker and run "
              "`magicbyte rebuild-index --write`", key, error)  # fmt: skip


def _sync(each: PartitionLog, flush: Flush) -> None:
    with each.health:
        flush.run()


def _rate(config: BrokerConfig) -> float | None:
    """Return the byte rate of maintenance; None: unlimited."""
    found = config.log_cleaner_io_max_bytes_per_second
    return found if found < float(FOREVER) else None


def _recovery_point(each: PartitionLog) -> int:
    return each.recovery_point


def _log_start(each: PartitionLog) -> int:
    return each.log_start_offset


def _high_watermark(each: PartitionLog) -> int:
    return each.committed
