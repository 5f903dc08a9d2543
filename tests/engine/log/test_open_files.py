"""Descriptors of logs: bounded, shared, given up and taken again; their lack passes and takes nothing offline."""

from __future__ import annotations

import contextlib
import errno
import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.log.appended import batch_of
from engine.log.builders import fill
from magicbyte.engine.errors import ErrorCode, LogDirectoryOfflineError, OutOfDescriptorsError
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.health import Health
from magicbyte.engine.log.files.open_files import RESERVE, OpenFiles
from magicbyte.engine.log.live.log_directory import LogDirectory, Settings
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import TopicPartition, WritableFileSystem
from magicbyte.testing.disk import SimulatedDisk, SimulatedFile
from topic_settings import log_config

NOW = 1_700_000_000_000
CONFIG = log_config({"segment.bytes": "500", "segment.index.bytes": "240", "index.interval.bytes": "0"})
KEYS = [TopicPartition("topic", index) for index in range(20)]


def open_logs(files: WritableFileSystem, path: str = "/logs", limit: int = 16) -> LogDirectory:
    settings = Settings(config_of=lambda _key: CONFIG, token=lambda: "0" * 32, max_open_files=limit)
    return LogDirectory.open(files, path, settings, monotonic_ms=NOW)


def content(log: PartitionLog) -> bytes:
    """Return all that can be read of a log."""
    parts = [log.read(segment.base_offset, 1 << 20) for segment in log.segments]
    return b"".join(each.read() for each in parts if each is not None)


class Counted(SimulatedDisk):
    """A disk that knows how many descriptors were in use at once."""

    most = 0

    def take_descriptor(self, path: str) -> None:
        super().take_descriptor(path)
        self.most = max(self.most, self.descriptors)


def test_partitions_beyond_the_limit_are_written_read_closed_and_opened_with_no_more_descriptors_than_it() -> None:
    disk = Counted()
    wide = open_logs(SimulatedDisk(), limit=10_000)
    directory = open_logs(disk)
    for key in KEYS:
        for each in (directory, wide):
            each.create(key, monotonic_ms=NOW)
    for count in (3, 7, 20):
        for key in KEYS:
            for each in (directory, wide):
                fill(each[key], count, NOW)
    assert directory.files.descriptors <= 16
    assert wide.files.descriptors > 20 * 3
    for key in KEYS:
        assert content(directory[key]) == content(wide[key])
        directory[key].flush(NOW)
    directory.close()
    directory = open_logs(disk)
    assert directory.was_clean
    for key in KEYS:
        assert not directory[key].loaded.recovered
        assert content(directory[key]) == content(wide[key])
    directory.release()
    assert disk.most <= 16 + RESERVE + 4  # what is opened, or read, at that moment
    assert disk.descriptors == 0


def test_a_file_that_was_written_is_durable_before_it_is_closed_for_another() -> None:
    disk = SimulatedDisk()
    directory = open_logs(disk, limit=1)
    for key in KEYS[:3]:
        fill(directory.create(key, monotonic_ms=NOW), 2, NOW)
    closed = [each.log for key in KEYS[:3] for each in directory[key].segments if not each.log.is_open]
    assert len(closed) >= 2
    for file in closed:
        assert not file.is_dirty
        for seed in range(20):
            left = dict(disk.after_a_cut(seed).walk())
            assert file.path not in left or left[file.path] == file.read_at(0, file.size)


def test_a_sync_that_fails_when_a_file_is_closed_for_another_takes_the_directory_offline_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    directory = open_logs(disk, limit=1_000)
    for key in KEYS[:3]:
        fill(directory.create(key, monotonic_ms=NOW), 2, NOW)
    disk.failures = dict.fromkeys(range(disk.operations, disk.operations + 99), errno.EIO)
    flush = directory[KEYS[0]].begin_flush()
    assert flush is not None
    with caplog.at_level(logging.WARNING):
        assert directory.files.shrink(100) > 0
        with pytest.raises(OSError, match="Input/output"):
            flush.run()
        for key in KEYS[:3]:
            with pytest.raises(LogDirectoryOfflineError, match="offline since"):
                fill(directory[key], 1, NOW)
    (line,) = caplog.messages
    assert line.startswith("log directory /logs is offline: Input/output error (EIO), at /logs/topic-")
    assert "What to do: check the disk" in line


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_fails_inside_a_request_is_one_line_with_directory_file_and_what_to_do(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    directory = open_logs(disk)
    fill(directory.create(KEYS[0], monotonic_ms=NOW), 1, NOW)
    disk.failures[disk.operations + 1] = number
    for _ in range(3):
        with pytest.raises(LogDirectoryOfflineError):
            fill(directory[KEYS[0]], 1, NOW)
    (record,) = caplog.records
    assert record.levelno == logging.CRITICAL
    assert record.message.startswith("log directory /logs is offline: ")
    assert f"({errno.errorcode[number]}), at /logs/topic-0/{0:020}.log" in record.message
    assert "What to do: " in record.message


# ---- none left


def test_without_a_descriptor_nothing_is_changed_and_with_one_all_operations_continue() -> None:
    disk = SimulatedDisk()
    directory = open_logs(disk)
    for key in KEYS[:2]:
        fill(directory.create(key, monotonic_ms=NOW), 3, NOW)
    before = {key: content(directory[key]) for key in KEYS[:2]}
    directory.files.shrink(100)
    disk.most_descriptors = 0  # a closed descriptor goes to another user at once
    directory.files.close()
    for change in (
        lambda: fill(directory[KEYS[0]], 1, NOW),
        lambda: directory[KEYS[0]].roll(NOW),
        lambda: directory[KEYS[1]].truncate_fully(0, NOW),
        lambda: directory.create(KEYS[5], monotonic_ms=NOW),
        lambda: directory.delete(KEYS[0], monotonic_ms=NOW),
        directory.checkpoint_recovery_points,
        lambda: directory.retain(NOW, lambda _key, _error: None),
        lambda: content(directory[KEYS[0]]),
    ):
        with pytest.raises(OutOfDescriptorsError) as found:
            change()
        assert found.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert directory.health.error is None
    assert directory.files.refused > 0
    disk.most_descriptors = 100
    assert {key: content(directory[key]) for key in KEYS[:2]} == before
    fill(directory[KEYS[0]], 1, NOW)
    fill(directory.create(KEYS[5], monotonic_ms=NOW), 1, NOW)
    directory.close()
    directory = open_logs(disk)
    assert [directory[key].log_end_offset for key in (*KEYS[:2], KEYS[5])] == [4, 3, 1]


@pytest.mark.parametrize("seed", range(6))
def test_a_lack_of_descriptors_at_any_moment_loses_nothing_and_takes_nothing_offline(seed: int) -> None:
    rng, disk = random.Random(seed), SimulatedDisk(seed)
    directory = open_logs(disk, limit=rng.choice((2, 8, 30)))
    ends: dict[TopicPartition, int] = {}
    refused = 0
    for _ in range(300):
        key = rng.choice(KEYS[:6])
        disk.most_descriptors = disk.descriptors + rng.choice((0, 0, 1, 2, 100))
        for _ in range(rng.choice((0, 0, 0, RESERVE))):  # sockets take what the log has kept
            with contextlib.suppress(IndexError):
                directory.files._reserve.pop()
        try:
            if key not in directory.logs:
                directory.create(key, monotonic_ms=NOW)
                ends[key] = 0
            else:
                what = rng.randrange(8)
                if what == 0:
                    directory[key].roll(NOW)
                elif what == 1:
                    directory.files.shrink(rng.randint(1, 9))
                elif what == 2:
                    directory.checkpoint_recovery_points()
                else:
                    fill(directory[key], 1, NOW)
                    ends[key] += 1
        except OutOfDescriptorsError:
            refused += 1
        assert directory.health.error is None
        assert all(directory[each].log_end_offset == end for each, end in ends.items())
    assert refused > 5
    disk.most_descriptors = 1 << 30
    if seed % 2:
        directory.close()
    else:
        directory.release()
    directory = open_logs(disk)
    assert {each: directory[each].log_end_offset for each in ends} == ends
    for each, end in ends.items():
        assert content(directory[each]) == b"".join(
            bytes(record_set(batch_of(offset, NOW), CONFIG.rules).pieces[0]) for offset in range(end)
        )


# ---- names that change


def test_a_closed_file_is_opened_under_the_name_that_it_has_by_then(tmp_path: Path) -> None:
    files = OpenFiles(LocalFiles(), Health(str(tmp_path)), limit=100)
    (tmp_path / "a").mkdir()
    file = files.create(f"{tmp_path}/a/log")
    file.write_at(0, b"first")
    files.shrink(9)
    assert not file.is_open
    files.rename(f"{tmp_path}/a/log", f"{tmp_path}/a/log.deleted")
    other = files.create(f"{tmp_path}/a/log")
    other.write_at(0, b"second")
    files.shrink(9)
    files.rename(f"{tmp_path}/a", f"{tmp_path}/a.gone")
    assert (file.read_at(0, 9), other.read_at(0, 9)) == (b"first", b"second")
    assert file.path == f"{tmp_path}/a.gone/log.deleted"
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_at(0, 1)


def test_a_file_whose_name_goes_stays_open_until_it_is_let_go_of(tmp_path: Path) -> None:
    files = OpenFiles(LocalFiles(), Health(str(tmp_path)), limit=100)
    file = files.create(f"{tmp_path}/log")
    file.write_at(0, b"here")
    files.delete(f"{tmp_path}/log")
    assert files.shrink(9) == 0
    assert file.read_at(0, 9) == b"here"
    file.close()
    assert files.descriptors == 0


def test_a_slice_can_be_read_though_its_file_was_closed_for_another() -> None:
    disk = SimulatedDisk()
    directory = open_logs(disk)
    fill(directory.create(KEYS[0], monotonic_ms=NOW), 3, NOW)
    directory.files.shrink(99)
    slices = [directory[KEYS[0]].read(0, 1 << 20) for _ in range(900)]
    assert len({id(each.file) for each in slices if each is not None}) == 1
    directory.files.shrink(99)
    assert slices[0] is not None
    assert isinstance(slices[0].file, SimulatedFile)
    before = disk.descriptors
    assert slices[0].read() == content(directory[KEYS[0]])
    directory.files.shrink(99)
    slices.clear()
    assert disk.descriptors == before - 1


# ---- a writer and a concurrent close


class Meanwhile(SimulatedDisk):
    """A disk on which something happens within each write, and within each sync."""

    def __init__(self) -> None:
        super().__init__()
        self.within: list[object] = []

    def error(self, kind: str, path: str) -> OSError | None:
        if kind in ("write", "sync") and self.within and callable(work := self.within.pop()):
            work()
        return super().error(kind, path)


def test_a_file_is_not_closed_while_it_is_written() -> None:
    disk = Meanwhile()
    files = OpenFiles(disk, Health("/"), limit=9)
    file = files.create("/log")
    closed: list[int] = []
    disk.within.append(lambda: closed.append(files.shrink(9)))
    file.write_at(0, b"x")
    assert closed == [0]
    assert (file.is_open, file.is_dirty) == (True, True)


def test_writes_during_the_sync_before_a_close_are_synced_later() -> None:
    disk = Meanwhile()
    files = OpenFiles(disk, Health("/"), limit=9)
    file = files.create("/log")
    file.write_at(0, b"x")
    disk.within.append(lambda: file.write_at(1, b"y"))
    assert files.shrink(9) == 1
    assert (file.is_open, file.is_dirty) == (True, True)
    file.sync()
    assert not file.is_dirty


def test_a_sync_waits_for_the_file_itself_while_another_closes_it() -> None:
    disk = Meanwhile()
    files = OpenFiles(disk, Health("/"), limit=9)
    file = files.create("/log")
    file.write_at(0, b"x")
    done: list[int] = []

    def also_sync() -> None:
        file.sync()
        done.append(disk.counted["sync", ""])

    disk.within.append(also_sync)
    files.shrink(9)
    assert done == [1]  # it is durable when `sync` returns, before the other sync is over


def test_a_sync_waits_for_the_file_itself_though_it_was_opened_and_closed_again_meanwhile() -> None:
    disk = Meanwhile()
    files = OpenFiles(disk, Health("/"), limit=9, reserve=0)
    file = files.create("/log")
    file.write_at(0, b"x")
    done: list[int] = []

    def opened_closed_and_synced() -> None:
        file.read_at(0, 1)
        files.shrink(9)
        file.sync()
        done.append(disk.counted["sync", ""])

    disk.within.append(opened_closed_and_synced)
    files.shrink(9)
    assert done == [1]
    files.shrink(9)
    assert disk.descriptors == 0


def test_a_sync_in_the_midst_of_a_write_does_not_make_the_write_durable() -> None:
    disk = Meanwhile()
    files = OpenFiles(disk, Health("/"), limit=9)
    file = files.create("/log")
    files.sync_directory("/")
    disk.within.append(file.sync)
    file.write_at(0, b"x")
    assert files.shrink(9) == 1
    assert all(dict(disk.after_a_cut(seed).walk()) == {"/log": b"x"} for seed in range(20))


def test_a_sync_that_failed_is_not_followed_by_one_that_does_not() -> None:
    disk = SimulatedDisk()
    files = OpenFiles(disk, Health("/", tells=False), limit=9)
    file = files.create("/log")
    file.write_at(0, b"x")
    disk.failures[disk.operations + 1] = errno.EIO
    for _ in range(2):  # the system reports it once
        with pytest.raises(OSError, match="Input/output"):
            file.sync()


class Opening(SimulatedDisk):
    """A disk on which something happens once, before a file is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Callable[[], object]] = []

    def edit(self, path: str) -> SimulatedFile:
        while self.before:
            self.before.pop()()
        return super().edit(path)


def test_a_file_that_is_let_go_of_while_it_is_opened_keeps_no_descriptor() -> None:
    disk = Opening()
    files = OpenFiles(disk, Health("/"), limit=9, reserve=0)
    file = files.create("/log")
    files.shrink(9)
    disk.before.append(file.close)
    file.opened()
    assert (files.descriptors, disk.descriptors) == (0, 0)


def test_two_that_open_a_file_at_once_share_one_descriptor() -> None:
    disk = Opening()
    files = OpenFiles(disk, Health("/"), limit=9, reserve=0)
    file = files.create("/log")
    files.shrink(9)
    first: list[object] = []
    disk.before.append(lambda: first.append(file.opened()))
    assert file.opened() is first[0]
    assert disk.descriptors == 1


def test_a_file_without_a_name_is_never_taken_for_the_one_that_has_its_name_now() -> None:
    disk = SimulatedDisk()
    files = OpenFiles(disk, Health("/"), limit=9)
    file, other = files.create("/a"), files.create("/b")
    file.write_at(0, b"a")
    other.write_at(0, b"b")
    files.shrink(9)
    files.rename("/b", "/a")
    with pytest.raises(FileNotFoundError):
        file.read_at(0, 1)
    assert other.read_at(0, 1) == b"b"


def test_a_file_that_loses_its_name_while_it_is_written_stays_open() -> None:
    disk = Meanwhile()
    files = OpenFiles(disk, Health("/"), limit=9)
    file = files.create("/log")
    disk.within.append(lambda: files.delete("/log"))
    file.write_at(0, b"x")
    assert files.shrink(9) == 0
    assert file.read_at(0, 1) == b"x"
