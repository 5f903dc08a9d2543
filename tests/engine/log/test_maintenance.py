"""The one worker of a log directory: what it does when, how much at once, and what it leaves alone."""

import errno
from typing import Any

import pytest

from engine.log.compacted import NOW
from magicbyte.engine.errors import LogDirectoryOfflineError
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.cleaning.compaction import CompactionConfig
from magicbyte.engine.log.cleaning.maintenance import BACKOFF_MS, Action, Damage, Maintenance
from magicbyte.engine.log.files.indexes import AbortedTransaction
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.log_directory import LogDirectory, Settings
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.testing.disk import SimulatedDisk

A, B, EVENTS = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("events", 0)
LOTS = 1 << 40


def append(log: PartitionLog, *keys: int, timestamp: int = NOW) -> None:
    base = log.log_end_offset
    records = [Record(base + at, timestamp, 0, b"%d" % key, bytes(100)) for at, key in enumerate(keys)]
    log.append(record_set(encode_records(records, Format.V2), log.config.rules), Moment.fixed(NOW))
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
        self._settings = Settings(config_of=configs.__getitem__, token=lambda: "0" * 32)
        self.open()
        for key in configs:
            self.directory.create(key, monotonic_ms=NOW)
        for log, rounds in ((self.directory[A], 4), (self.directory[B], 2)):
            for _ in range(rounds):
                append(log, 1, 2, 3)
                log.roll(NOW)
        append(self.directory[EVENTS], 1, timestamp=NOW - 2000)
        self.directory.checkpoint_cleaner(A, 0)
        self.directory.checkpoint_cleaner(B, 3)

    def open(self) -> None:
        self.directory = LogDirectory.open(self.disk, "/logs", self._settings, monotonic_ms=NOW)

    def restart(self) -> None:
        ends = {key: log.log_end_offset for key, log in self.directory.logs.items()}
        self.directory.close()
        self.open()
        for key, end in ends.items():
            self.directory[key].high_watermark = end

    def maintenance(self, **settings: Any) -> Maintenance:
        return Maintenance(self.directory, lambda _key: CompactionConfig(), secret=lambda: bytes(16), **settings)


def test_it_cleans_by_age_and_then_compacts_the_dirtiest_log_first() -> None:
    world = World()
    worker = world.maintenance()
    assert worker.step(LOTS, Moment.fixed(NOW)).action is Action.RETAINED
    assert world.directory[EVENTS].log_start_offset == 1
    first = worker.step(LOTS, Moment.fixed(NOW))
    assert (first.action, first.partition) == (Action.COMPACTED, A)
    assert world.directory.cleaner_offsets[A] == 12
    assert worker.results[A].dropped.superseded == 9
    nothing = worker.step(LOTS, Moment.fixed(NOW))  # half of the other is dirty: not more
    assert (nothing.action, nothing.next_ms) == (Action.NOTHING, NOW + BACKOFF_MS)
    append(world.directory[B], 1)
    world.directory[B].roll(NOW)
    assert worker.step(LOTS, Moment.fixed(NOW + 1)).action is Action.NOTHING
    assert worker.step(LOTS, Moment.fixed(NOW + BACKOFF_MS)).partition == B


def test_a_step_does_no_more_than_its_budget_and_progress_can_be_read() -> None:
    world = World()
    worker = world.maintenance()
    worker.step(1, Moment.fixed(NOW))
    steps = 0
    while worker.step(1, Moment.fixed(NOW)).action is Action.COMPACTED:
        steps += 1
        progress = worker.progress
        assert progress is None or (progress.partition == A and 0 < progress.done_bytes < 2 * progress.total_bytes)
    assert steps > 8
    assert world.directory.cleaner_offsets[A] == 12


def test_a_byte_rate_is_kept() -> None:
    world = World()
    worker = world.maintenance(bytes_per_second=1000.0)
    worker.step(1, Moment.fixed(NOW))
    now, done = NOW, 0
    while (result := worker.step(1, Moment.fixed(now))).action in (Action.COMPACTED, Action.WAITED):
        done += result.bytes
        now = max(now, result.next_ms)
    assert done > 1000
    assert now - NOW >= done  # a byte a millisecond


def test_retention_is_checked_at_its_own_interval_also_if_the_cleaner_backs_off_for_longer() -> None:
    world = World()
    worker = world.maintenance()
    worker.retention_interval_ms = 300
    while worker.step(LOTS, Moment.fixed(NOW)).action is not Action.NOTHING:
        pass
    assert worker.step(LOTS, Moment.fixed(NOW)).next_ms == NOW + 300
    assert worker.step(LOTS, Moment.fixed(NOW + 300)).next_ms == NOW + 600
    worker.retention_interval_ms = 2 * BACKOFF_MS
    assert worker.step(LOTS, Moment.fixed(NOW + 600)).next_ms == NOW + 600 + BACKOFF_MS


def test_of_a_damaged_log_all_but_the_damaged_segment_is_compacted() -> None:
    world = World()
    log = world.directory[A]
    damaged = log.segments[1]
    damaged.log.write_at(100, b"damage")
    content = damaged.log.read_at(0, damaged.size)
    append(world.directory[B], 1)
    world.directory[B].roll(NOW)
    met: list[Damage] = []
    worker = world.maintenance(met=met.append)
    while worker.step(LOTS, Moment.fixed(NOW)).action is not Action.NOTHING:
        pass
    assert world.directory.cleaner_offsets == {A: 12, B: 7}
    assert [each.size for each in log.segments] == [0, len(content), log.segments[2].size, 0]
    assert (damaged.names.suffix, damaged.log.read_at(0, len(content))) == ("", content)
    assert [(each.partition, each.base_offset) for each in met] == [(A, 3)]
    assert met[0].error.path == "/logs/a-0/00000000000000000003.log"
    assert met[0].error.position == 0
    assert worker.uncleanable_bytes() == {A: len(content)}
    for _ in range(3):
        append(log, 1, 2, 3)
        log.roll(NOW)
    worker.step(LOTS, Moment.fixed(NOW + BACKOFF_MS))
    assert world.directory.cleaner_offsets[A] == 21
    assert len(met) == 1  # it is known
    assert log.size < 3 * len(content)


def test_a_damaged_log_becomes_as_small_as_its_sound_twin_but_for_the_damaged_segment() -> None:
    world = World()
    logs = [world.directory[A], world.directory[B]]
    for log, rounds in zip(logs, (56, 58), strict=True):
        for _ in range(rounds):
            append(log, 1, 2, 3)
            log.roll(NOW)
    written = logs[0].size
    assert written == logs[1].size
    damaged = logs[0].segments[0]
    damaged.log.write_at(100, b"damage")
    worker = world.maintenance()
    while worker.step(LOTS, Moment.fixed(NOW)).action is not Action.NOTHING:
        pass
    left, twin = (log.size for log in logs)
    assert left - twin == damaged.size  # before, a log with damage was not compacted
    assert written > 20 * left


def test_damage_that_shows_in_the_second_pass_alone_is_set_aside_as_well() -> None:
    world = World()
    log, worker = world.directory[A], world.maintenance()
    while worker.step(LOTS, Moment.fixed(NOW)).action is not Action.NOTHING:
        pass
    (clean, _) = log.segments
    clean.log.write_at(100, b"damage")
    content = clean.log.read_at(0, clean.size)
    for _ in range(4):
        append(log, 1, 2, 3)
        log.roll(NOW)
    worker.step(LOTS, Moment.fixed(NOW + BACKOFF_MS))
    assert worker.damaged[A].keys() == {0}
    assert worker.damaged[A][0].path == "/logs/a-0/00000000000000000000.log"  # not by the name that it was written by
    assert log.segments[0].log.read_at(0, clean.size) == content
    assert sum(each.size for each in log.segments[1:]) < 2 * len(content)


def test_damage_in_a_header_that_selection_or_retention_reads_ends_neither_for_other_logs() -> None:
    world = World()
    world.restart()  # so that the first timestamps of segments are not known
    world.directory[A].segments[0].log.write_at(8, bytes(4))
    worker = world.maintenance()
    append(world.directory[B], 1)
    world.directory[B].roll(NOW)
    while worker.step(LOTS, Moment.fixed(NOW)).action is not Action.NOTHING:
        pass
    assert world.directory[EVENTS].log_start_offset == 1
    assert world.directory.cleaner_offsets[B] == 7
    worker.step(LOTS, Moment.fixed(NOW + BACKOFF_MS))
    assert worker.damaged[A].keys() == {0}
    assert world.directory.cleaner_offsets[A] == 12


def test_damage_in_another_file_leaves_the_partition_unchanged_and_is_reported_once() -> None:
    world = World()
    damaged = next(each for each in world.directory[A].segments if each.base_offset == 3)
    damaged.indexes.append_aborted(AbortedTransaction(9, 7, 3, 4, 5))  # of an unknown version
    append(world.directory[B], 1)
    world.directory[B].roll(NOW)
    met: list[Damage] = []
    worker = world.maintenance(met=met.append)
    while worker.step(LOTS, Moment.fixed(NOW)).action is not Action.NOTHING:
        pass
    assert [(each.partition, each.base_offset) for each in met] == [(A, None)]
    assert worker.uncleanable.keys() == {A}
    assert worker.uncleanable_bytes() == {A: world.directory[A].size}
    assert world.directory.cleaner_offsets == {A: 0, B: 7}


def test_a_paused_log_is_unchanged_and_a_truncated_one_is_dirty_from_its_end() -> None:
    world = World()
    worker = world.maintenance()
    worker.step(1, Moment.fixed(NOW))
    worker.step(1, Moment.fixed(NOW))
    worker.pause(A)
    assert worker.progress is None
    assert not [entry for entry in world.disk.list("/logs/a-0") if "cleaned" in entry.name]
    assert worker.step(LOTS, Moment.fixed(NOW)).action is Action.NOTHING
    world.directory.checkpoint_cleaner(A, 12)
    world.directory[A].truncate_to(6, NOW)
    worker.resume(A)
    assert world.directory.cleaner_offsets[A] == 6


def test_a_failing_disk_takes_the_directory_offline() -> None:
    world = World()
    worker = world.maintenance()
    worker.step(LOTS, Moment.fixed(NOW))
    world.disk.failures[world.disk.operations + 30] = errno.EIO
    with pytest.raises(LogDirectoryOfflineError):
        worker.step(LOTS, Moment.fixed(NOW))
    assert world.directory.health.error is not None
    assert world.directory.cleaner_offsets[A] == 0
