"""The one worker of a log directory: what it does when, how much at once, and what it leaves alone."""

import errno
from typing import Any

import pytest

from log.compacted import NOW
from magicbyte.errors import LogDirectoryOfflineError
from magicbyte.log.checkpoints import TopicPartition
from magicbyte.log.compaction import CompactionConfig
from magicbyte.log.config import LogConfig
from magicbyte.log.log_directory import LogDirectory, Settings
from magicbyte.log.maintenance import BACKOFF_MS, RETENTION_INTERVAL_MS, Action, Maintenance
from magicbyte.log.partition_log import PartitionLog
from magicbyte.log.record_set import record_set
from magicbyte.records.columns import Record
from magicbyte.records.encode import Format, encode_records
from magicbyte.testing.disk import SimulatedDisk

A, B, EVENTS = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("events", 0)
LOTS = 1 << 40


def append(log: PartitionLog, *keys: int, timestamp: int = NOW) -> None:
    base = log.log_end_offset
    records = [Record(base + at, timestamp, 0, b"%d" % key, bytes(100)) for at, key in enumerate(keys)]
    log.append(record_set(encode_records(records, Format.V2), log.config.rules), NOW)
    log.high_watermark = log.log_end_offset


class World:
    """A directory with two compacted logs, of which one is dirtier, and one that is cleaned by age."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        configs = {
            A: LogConfig(compact=True, delete=False),
            B: LogConfig(compact=True, delete=False),
            EVENTS: LogConfig(retention_ms=1000),
        }
        settings = Settings(config_of=configs.__getitem__, token=lambda: "0" * 32)
        self.directory = LogDirectory.open(self.disk, "/logs", settings, now_ms=NOW)
        for key in configs:
            self.directory.create(key, now_ms=NOW)
        for log, rounds in ((self.directory[A], 4), (self.directory[B], 2)):
            for _ in range(rounds):
                append(log, 1, 2, 3)
                log.roll(NOW)
        append(self.directory[EVENTS], 1, timestamp=NOW - 2000)
        self.directory.checkpoint_cleaner(A, 0)
        self.directory.checkpoint_cleaner(B, 3)

    def maintenance(self, **settings: Any) -> Maintenance:
        return Maintenance(self.directory, lambda _key: CompactionConfig(), secret=lambda: bytes(16), **settings)


def test_it_cleans_by_age_and_then_compacts_the_dirtiest_log_first() -> None:
    world = World()
    worker = world.maintenance()
    assert worker.step(LOTS, NOW).action is Action.RETAINED
    assert world.directory[EVENTS].log_start_offset == 1
    first = worker.step(LOTS, NOW)
    assert (first.action, first.partition) == (Action.COMPACTED, A)
    assert world.directory.cleaner_offsets[A] == 12
    assert worker.results[A].dropped.superseded == 9
    nothing = worker.step(LOTS, NOW)  # half of the other is dirty: not more
    assert (nothing.action, nothing.next_ms) == (Action.NOTHING, NOW + BACKOFF_MS)
    append(world.directory[B], 1)
    world.directory[B].roll(NOW)
    assert worker.step(LOTS, NOW + 1).action is Action.NOTHING
    assert worker.step(LOTS, NOW + BACKOFF_MS).partition == B


def test_a_step_does_no_more_than_its_budget_and_progress_can_be_read() -> None:
    world = World()
    worker = world.maintenance()
    worker.step(1, NOW)
    steps = 0
    while worker.step(1, NOW).action is Action.COMPACTED:
        steps += 1
        progress = worker.progress
        assert progress is None or (progress.partition == A and 0 < progress.done_bytes < 2 * progress.total_bytes)
    assert steps > 8
    assert world.directory.cleaner_offsets[A] == 12


def test_a_byte_rate_is_kept() -> None:
    world = World()
    worker = world.maintenance(bytes_per_second=1000.0)
    worker.step(1, NOW)
    now, done = NOW, 0
    while (result := worker.step(1, now)).action in (Action.COMPACTED, Action.WAITED):
        done += result.bytes
        now = max(now, result.next_ms)
    assert done > 1000
    assert now - NOW >= done  # a byte a millisecond


def test_a_damaged_log_is_left_alone_and_the_others_go_on() -> None:
    world = World()
    world.directory[A].segments[0].log.write_at(100, b"damage")
    append(world.directory[B], 1)
    world.directory[B].roll(NOW)
    worker = world.maintenance()
    worker.step(LOTS, NOW)
    worker.step(LOTS, NOW)
    assert worker.uncleanable.keys() == {A}
    assert worker.step(LOTS, NOW).partition == B
    assert worker.step(LOTS, NOW + RETENTION_INTERVAL_MS).action is Action.NOTHING
    assert world.directory.cleaner_offsets[A] == 0


def test_a_paused_log_is_left_as_it_is_and_a_truncated_one_is_dirty_from_its_end() -> None:
    world = World()
    worker = world.maintenance()
    worker.step(1, NOW)
    worker.step(1, NOW)
    worker.pause(A)
    assert worker.progress is None
    assert not [entry for entry in world.disk.list("/logs/a-0") if "cleaned" in entry.name]
    assert worker.step(LOTS, NOW).action is Action.NOTHING
    world.directory.checkpoint_cleaner(A, 12)
    world.directory[A].truncate_to(6, NOW)
    worker.resume(A)
    assert world.directory.cleaner_offsets[A] == 6


def test_a_failing_disk_takes_the_directory_offline() -> None:
    world = World()
    worker = world.maintenance()
    worker.step(LOTS, NOW)
    world.disk.failures[world.disk.operations + 30] = errno.EIO
    with pytest.raises(LogDirectoryOfflineError):
        worker.step(LOTS, NOW)
    assert world.directory.health.error is not None
    assert world.directory.cleaner_offsets[A] == 0
