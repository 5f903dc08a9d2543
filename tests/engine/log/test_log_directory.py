"""A log directory: whose it is, who may have it, what it says of its logs, and what a failing disk does to it."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import IO

import pytest
from msgspec.structs import replace

from engine.log.builders import fill
from magicbyte.engine.errors import (
    ErrorCode,
    InvalidConfigError,
    LogDirectoryError,
    LogDirectoryOfflineError,
    UnknownTopicError,
)
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.filesystem import LocalFiles, is_locked
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.live.config import FOREVER
from magicbyte.engine.log.live.log_directory import Identity, LogDirectory, Settings
from magicbyte.engine.ports import TopicPartition, WritableFile, WritableFileSystem
from magicbyte.engine.records.layout import Dialect
from magicbyte.testing.disk import SimulatedDisk
from topic_settings import log_config

NOW = 1_700_000_000_000
FILES = LocalFiles()
A, B = TopicPartition("a", 0), TopicPartition("b", 3)
TOKEN = "0123456789abcdef" * 2
CONFIG = log_config({"segment.bytes": "500", "segment.index.bytes": "240", "file.delete.delay.ms": "1000"})


def open_logs(files: WritableFileSystem, path: str | Path, identity: Identity | None = None) -> LogDirectory:
    settings = Settings(config_of=lambda _key: CONFIG, token=lambda: TOKEN, identity=identity)
    return LogDirectory.open(files, str(path), settings, monotonic_ms=NOW)


def offsets(path: Path, name: str) -> dict[TopicPartition, int]:
    return checkpoints.parse_offset_checkpoint((path / name).read_bytes())


def test_a_closed_directory_has_kafkas_files_and_is_opened_as_it_was(tmp_path: Path) -> None:
    directory = open_logs(FILES, tmp_path / "logs", Identity(7, "cluster"))
    for key, count in ((A, 30), (B, 5)):
        log = directory.create(key, monotonic_ms=NOW, topic_id=uuid.UUID(int=key.partition))
        fill(log, count, NOW)
        log.high_watermark = count - 1
    directory[A].delete_records(3)
    directory.close()
    path = tmp_path / "logs"
    assert {each.name for each in path.iterdir()} == {
        *("a-0", "b-3", ".lock", "meta.properties", ".kafka_cleanshutdown"),
        *("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"),
    }
    assert offsets(path, checkpoints.RECOVERY_POINT) == {A: 30, B: 5}
    assert offsets(path, checkpoints.HIGH_WATERMARK) == {A: 29, B: 4}
    assert offsets(path, checkpoints.LOG_START) == {A: 3}
    assert checkpoints.parse_meta_properties((path / "meta.properties").read_bytes()).node_id == 7
    assert (path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    found = {each.name: each for each in discover([str(path)])}
    metadata = found["b-3"].metadata()
    assert metadata is not None
    assert metadata.topic_id == uuid.UUID(int=3)
    directory = open_logs(FILES, path, Identity(7, "cluster"))
    assert directory.was_clean
    assert not (path / ".kafka_cleanshutdown").exists()
    log = directory[A]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.recovery_point) == (3, 29, 30, 30)
    assert log.loaded.recovered == []
    directory.release()


def test_a_directory_that_was_not_closed_is_recovered_from_the_recovery_point_on(tmp_path: Path) -> None:
    directory = open_logs(FILES, tmp_path)
    log = directory.create(A, monotonic_ms=NOW)
    fill(log, 30, NOW)
    directory.checkpoint_recovery_points()
    directory.release()
    directory = open_logs(FILES, tmp_path)
    assert not directory.was_clean
    assert directory[A].loaded.recovered == [log.active.base_offset]
    assert directory[A].log_end_offset == 30
    directory.release()


@pytest.mark.parametrize(
    ("identity", "complaint"), [(Identity(8, "cluster"), "broker 8, found 7"), (Identity(7, "x"), "cluster x")]
)
def test_the_directory_of_another_broker_is_refused(tmp_path: Path, identity: Identity, complaint: str) -> None:
    open_logs(FILES, tmp_path, Identity(7, "cluster")).close()
    with pytest.raises(LogDirectoryError, match=complaint):
        open_logs(FILES, tmp_path, identity)
    open_logs(FILES, tmp_path, Identity(7, "cluster")).close()


def test_a_second_one_is_refused_in_this_process_and_in_another(tmp_path: Path) -> None:
    directory = open_logs(FILES, tmp_path)
    with pytest.raises(LogDirectoryError, match="another process is using"):
        open_logs(FILES, tmp_path)
    program = (
        "import sys\nfrom magicbyte.engine.log.files.filesystem import LocalFiles, is_locked\n"
        "from pathlib import Path\n"
        "assert is_locked(Path(sys.argv[1]))\n"
        "try: LocalFiles().lock(sys.argv[1])\nexcept BlockingIOError: sys.exit(3)\n"
    )
    if os.name != "nt":
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path / ".lock")], timeout=60, check=False)
        assert done.returncode == 3
    assert is_locked(tmp_path / ".lock")
    directory.close()
    assert not is_locked(tmp_path / ".lock")


def test_a_lock_that_a_thread_is_taking_is_refused_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    lock_file, refused = fcntl.lockf, []

    def taken_meanwhile(file: IO[bytes], how: int) -> None:
        try:
            FILES.lock(str(tmp_path / ".lock"))
        except BlockingIOError as error:
            refused.append(error)
        lock_file(file, how)

    monkeypatch.setattr(fcntl, "lockf", taken_meanwhile)
    lock = FILES.lock(str(tmp_path / ".lock"))
    assert len(refused) == 1
    lock.release()
    FILES.lock(str(tmp_path / ".lock")).release()


def test_a_deleted_partition_goes_after_its_delay_and_can_be_made_again(tmp_path: Path) -> None:
    directory = open_logs(FILES, tmp_path)
    fill(directory.create(A, monotonic_ms=NOW), 5, NOW)
    directory[A].flush(NOW)
    directory.checkpoint_recovery_points()
    directory.checkpoint_cleaner(A, 3)
    directory.delete(A, monotonic_ms=NOW)
    with pytest.raises(UnknownTopicError):
        directory[A]
    assert (tmp_path / f"a-0.{TOKEN}-delete").is_dir()
    assert offsets(tmp_path, checkpoints.RECOVERY_POINT) == {}
    assert offsets(tmp_path, checkpoints.CLEANER) == {}
    assert directory.create(A, monotonic_ms=NOW).log_end_offset == 0
    assert directory.remove_deleted(NOW + 999) == 0
    assert directory.remove_deleted(NOW + 1000) == 1
    assert not list(tmp_path.glob("*-delete"))
    directory.close()


def test_a_folder_that_was_to_be_deleted_is_not_opened_and_long_names_are_cut(tmp_path: Path) -> None:
    long = TopicPartition("t" * 249, 12)
    directory = open_logs(FILES, tmp_path)
    directory.create(long, monotonic_ms=NOW)
    directory.delete(long, monotonic_ms=NOW)
    (folder,) = tmp_path.glob("*-delete")
    assert len(folder.name) == 255
    assert folder.name.endswith(f"-12.{TOKEN}-delete")
    directory.close()
    directory = open_logs(FILES, tmp_path)
    assert directory.logs == {}
    assert directory.remove_deleted(NOW) == 1
    directory.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_takes_its_directory_offline_and_others_continue(number: int) -> None:
    disks = [SimulatedDisk(1), SimulatedDisk(2)]
    first, second = (open_logs(disk, "/logs") for disk in disks)
    for directory in (first, second):
        for key in (A, B):
            fill(directory.create(key, monotonic_ms=NOW), 3, NOW)
            directory[key].flush(NOW)
    disks[0].failures[disks[0].operations + 1] = number
    with pytest.raises(LogDirectoryOfflineError) as found:
        fill(first[A], 1, NOW)
    assert found.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    for change in (
        lambda: fill(first[B], 1, NOW),
        lambda: first[B].flush(NOW) if fill(first[B], 1, NOW) else None,
        lambda: first[B].roll(NOW),
        first.checkpoint_recovery_points,
        lambda: first.create(TopicPartition("c", 0), monotonic_ms=NOW),
        first.close,
    ):
        with pytest.raises(LogDirectoryOfflineError):
            change()
    fill(second[A], 1, NOW)
    second.close()
    for seed in range(20):
        again = open_logs(disks[0].after_a_cut(seed), "/logs")
        assert not again.was_clean
        assert again[A].log_end_offset >= 3
        assert again[B].log_end_offset == 3


def test_a_disk_that_fails_at_any_operation_loses_nothing_that_was_flushed() -> None:
    def work(disk: SimulatedDisk) -> int:
        """Return how far the log is known to be durable when the disk fails, or the work is done."""
        durable = 0
        with contextlib.suppress(LogDirectoryOfflineError):
            directory = open_logs(disk, "/logs")
            log = directory.create(A, monotonic_ms=NOW)
            for _ in range(4):
                fill(log, 3, NOW)
                log.flush(NOW)
                durable = log.recovery_point
            directory.close()
        return durable

    whole = SimulatedDisk()
    assert work(whole) == 12
    for at in range(1, whole.operations + 1, 3):
        disk = SimulatedDisk(at)
        disk.failures[at] = errno.EIO
        durable = work(disk)
        again = open_logs(disk.after_a_cut(at), "/logs")
        assert A in again.logs or durable == 0
        if A in again.logs:
            assert again[A].log_end_offset >= durable


class _TwoThreads(LocalFiles):
    """Starts another thread when a checkpoint is about to get its name, and notes how many are written at a time."""

    def __init__(self) -> None:
        self.meanwhile: threading.Thread | None = None
        self.written, self.most = 0, 0

    def create(self, path: str) -> WritableFile:
        if path.endswith("checkpoint.tmp"):
            self.written += 1
            self.most = max(self.most, self.written)
        return super().create(path)

    def rename(self, path: str, to: str) -> None:
        if path.endswith("checkpoint.tmp"):
            if (thread := self.meanwhile) is not None:
                self.meanwhile = None
                thread.start()
                thread.join(0.2)  # it waits for the lock
            self.written -= 1
        super().rename(path, to)


def test_logs_that_are_truncated_by_two_threads_write_their_checkpoint_one_after_the_other(tmp_path: Path) -> None:
    files = _TwoThreads()
    settings = Settings(lambda _key: CONFIG, lambda: TOKEN, checkpoint_lock=threading.Lock())
    directory = LogDirectory.open(files, str(tmp_path), settings, monotonic_ms=NOW)
    for key in (A, B):
        log = directory.create(key, monotonic_ms=NOW)
        fill(log, 30, NOW)
        log.flush(NOW)
    directory.checkpoint_recovery_points()
    assert offsets(tmp_path, checkpoints.RECOVERY_POINT) == {A: 30, B: 30}
    files.meanwhile = thread = threading.Thread(target=directory[B].truncate_to, args=(7, NOW))
    directory[A].truncate_to(11, NOW)
    thread.join()
    assert (files.most, directory.health.error) == (1, None)
    assert offsets(tmp_path, checkpoints.RECOVERY_POINT) == {A: 11, B: 7}
    directory.release()


def test_damaged_checkpoints_mean_nothing_is_known() -> None:
    disk = SimulatedDisk()
    directory = open_logs(disk, "/logs")
    fill(directory.create(A, monotonic_ms=NOW), 20, NOW)
    directory.checkpoint_recovery_points()
    directory.release()
    disk.create(f"/logs/{checkpoints.RECOVERY_POINT}").write_at(0, b"0\n5\nwhat")
    directory = open_logs(disk, "/logs")
    assert directory[A].loaded.recovered[0] == 0
    assert directory[A].log_end_offset == 20


def test_what_lies_in_quarantine_is_counted_and_not_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    open_logs(FILES, path).close()
    aside = path / "quarantine"
    aside.write_bytes(b"no directory")
    directory = open_logs(FILES, path)
    assert directory.notes == [f"{aside}: expected a directory that can be read: {os.strerror(errno.ENOTDIR)}"]
    directory.close()
    aside.unlink()
    (aside / "00000000000000000000.log").mkdir(parents=True)
    (aside / "00000000000000000000.log" / "inside").write_bytes(b"not counted")
    (aside / "00000000000000000007.log").symlink_to("..")  # it leads to itself
    (aside / "file").write_bytes(b"12345")
    directory = open_logs(FILES, path)
    assert directory.quarantined == (3, 5)
    directory.close()


def test_the_quorums_own_log_is_no_partition(tmp_path: Path) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    directory = open_logs(FILES, tmp_path)
    assert directory.logs == {}
    directory.close()
    assert not list((tmp_path / "__cluster_metadata-0").iterdir())


# ---- settings


def test_settings_have_kafkas_names_and_defaults() -> None:
    config = log_config({})
    assert (config.segment_bytes, config.segment_ms, config.retention_ms) == (1 << 30, 604_800_000, 604_800_000)
    assert (config.flush_messages, config.flush_ms, config.delete, config.compact) == (FOREVER, FOREVER, True, False)
    config = log_config(
        {
            "segment.bytes": "1000",
            "cleanup.policy": "compact, delete",
            "max.compaction.lag.ms": "5",
            "preallocate": "True",
            "log.flush.policy": "group-commit",
            "log.head.truncation": "true",
            "index.interval.bytes": "77",
            "max.message.bytes": "1",
        },
        IndexRules.of("2.8"),
    )
    assert (config.segment_bytes, config.compact, config.delete, config.roll_ms) == (1000, True, True, 5)
    assert (config.preallocate, config.group_commit, config.head_truncation) == (True, True, True)
    assert (config.rules.version, config.rules.interval_bytes) == ("2.8", 77)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"segment.bytes": "3000000000"}, "a number from 14 to 2147483647"),
        ({"segment.ms": "week"}, "segment.ms: expected a number"),
        ({"retention.ms": "-2"}, "retention.ms: expected a number from -1"),
        ({"retention.bytes": "-2"}, "retention.bytes: expected a number from -1"),
        ({"preallocate": "yes"}, "expected true or false"),
        ({"cleanup.policy": "archive"}, "expected a list of compact, delete"),
        ({"log.flush.policy": "never"}, "expected one of kafka, group-commit"),
        ({"message.format.version": "enriched", "cleanup.policy": "compact,delete"}, "one of them"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidConfigError, match=complaint):
        log_config(settings)


def test_an_enriched_log_knows_no_producers() -> None:
    assert not replace(CONFIG, dialect=Dialect.ENRICHED).rules.has_producers


def test_one_path_and_paths_that_are_no_text_are_understood(tmp_path: Path) -> None:
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "topic-0" / "00000000000000000000.log").touch()
    found = [discover(given) for given in (str(tmp_path), tmp_path, [tmp_path], [str(tmp_path)])]
    assert [[each.name for each in partitions] for partitions in found] == [["topic-0"]] * 4


@pytest.mark.parametrize(("version", "has_file"), [("0.10.2", False), ("0.11.0", True), ("1.1", True), ("2.0", False)])
def test_a_new_log_has_an_empty_file_of_epochs_where_its_release_makes_one(
    tmp_path: Path, version: str, has_file: bool
) -> None:
    rules = IndexRules.of(version)
    settings = Settings(config_of=lambda _key: replace(CONFIG, rules=rules), token=lambda: TOKEN, rules=rules)
    directory = LogDirectory.open(FILES, str(tmp_path / "logs"), settings, monotonic_ms=NOW)
    directory.create(A, monotonic_ms=NOW)
    directory.release()
    path = tmp_path / "logs" / "a-0" / checkpoints.LEADER_EPOCHS
    assert (path.read_bytes() if path.exists() else None) == (b"" if has_file else None)
