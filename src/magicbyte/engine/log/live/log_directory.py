"""One `log.dir` of a broker: its logs, and the checkpoints and other files beside them.

Its files have Kafka's names and content. It has no timer: the owner calls `flush_due`, `retain`, `remove_deleted` and
the checkpoints, at Kafka's intervals or its own. Sources: Kafka's LogManager and LogLoader.

Invariants:
1. One process has the directory: it holds `.lock` from before the first read to after the last write.
2. The mark of a clean shutdown is deleted, durably, before anything changes. `close` writes it last, when all logs are
   closed and the checkpoints are written; never after an I/O error, nor while a log waits for recovery.
3. The checkpoint of recovery points names no offset above what is durable. It is rewritten before the first append,
   before a truncation cuts, and before a deleted log's name is free. Its offsets are collected and written under one
   lock.
4. A checkpoint keeps its entries of partitions that are offline: a repair needs them.
5. A log that cannot be opened is offline by itself. Only an error of the disk takes the whole directory offline.

The broker creates and deletes logs with `Runtime.directory` held; each log has its own rules (`partition_log.py`). A
crash between renaming the folder of a deleted log and deleting its files leaves a folder `-delete`, which the next
start deletes. A crash before the new names are durable brings the log back, whole.
`tests/engine/log/test_log_directory.py` and `tests/simulation/test_planted_bugs.py` have 2 and 3.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import Struct, field

from magicbyte.engine.errors import (
    CorruptRecordError,
    LogDirectoryError,
    LogDirectoryOfflineError,
    MagicbyteError,
    OutOfDescriptorsError,
    UnknownTopicError,
)
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.checkpoints import CleanShutdown, PartitionMetadata
from magicbyte.engine.log.files.directory import parse_file
from magicbyte.engine.log.files.filesystem import exists, put_file
from magicbyte.engine.log.files.health import Health
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.engine.log.files.names import (
    LONGEST_FILE_NAME,
    QUARANTINE,
    FolderState,
    check_new_topic,
    folder_name,
    why_not_loaded,
)
from magicbyte.engine.log.files.open_files import DEFAULT_LIMIT, OpenFiles
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.loading import RepairScope, move_to_quarantine
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import TopicPartition

if TYPE_CHECKING:
    import uuid

    from magicbyte.engine.log.live.retention import Removed
    from magicbyte.engine.ports import Lock, Moment, WritableFileSystem

T = TypeVar("T")

LOCK = ".lock"
_OF_ONE_PATH = frozenset(
    {errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ELOOP, errno.EINVAL}
    | {errno.ENAMETOOLONG, errno.ENXIO, errno.ESPIPE, errno.ENOTEMPTY}
)
"""Errors of a single path, not of the disk."""
_OF_NO_FILE = frozenset({errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG})
"""Errors of a name that is no file's: a directory, or a link that cannot be followed."""
_WITHOUT = {
    checkpoints.RECOVERY_POINT: "the recovery points of the logs are lost",
    checkpoints.HIGH_WATERMARK: "the high watermarks are lost",
    checkpoints.LOG_START: "records that DeleteRecords removed may reappear",
    checkpoints.CLEANER: "the cleaner reads compacted logs from their start once",
}
_REPAIR = "`magicbyte serve --repair` keeps its sound part, and moves the rest to quarantine/"


class Identity(NamedTuple):
    """The owner of the directory, by `meta.properties`."""

    broker_id: int
    cluster_id: str | None = None


class Settings(Struct, frozen=True):
    """Parameters of a directory besides its path. `config_of` returns the configuration of each partition's log.

    `rules` are those of the Kafka version whose files it writes. `token` returns 32 hexadecimal digits, each time
    others; `jitter` a number from 0 to the given one. `refused` returns which partitions with a folder must not be
    opened, with the reasons. `repairs`: damage may be cut out of a log that cannot be opened. `max_open_files`: the
    number of open files of its logs. `checkpoint_lock` is held while a checkpoint is written, because threads that
    truncate different logs write the same file.
    """

    config_of: Callable[[TopicPartition], LogConfig]
    token: Callable[[], str]
    rules: IndexRules = LATEST_RULES
    identity: Identity | None = None
    jitter: Callable[[int], int] = lambda _most: 0
    max_open_files: int = DEFAULT_LIMIT
    refused: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, str]] = lambda _keys: {}
    repairs: bool = False
    checkpoint_lock: AbstractContextManager[object] = field(default_factory=nullcontext)


class Offline(NamedTuple):
    """A partition that cannot be served: `why`, and what to do. `has_log`: its own log is in the directory."""

    why: str
    has_log: bool


class LogDirectory:
    """An open log directory: `logs` by partition. It is locked, and offline after the first failure of its disk.

    `offline` are the partitions of which something lies here and was not opened; all others are served. `notes`: a line
    for each damaged, missing or foreign file at the start, with the action taken.

    A log may be created while another thread is in any other call, except those that open, close and delete.

    While `health.error` is set, each change raises LogDirectoryOfflineError, and no clean shutdown marker is written.
    `was_clean`: whether the last owner closed it. `quarantined`: files and directories in `quarantine/` at the start,
    and the bytes of these files, holes included. Nothing here deletes them.
    """

    def __init__(self, files: OpenFiles, path: str, settings: Settings, lock: Lock) -> None:
        self.files, self.path, self.settings = files, path, settings
        self.health = files.health
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.offline: dict[TopicPartition, Offline] = {}
        self.notes: list[str] = []
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.was_clean = False
        self.quarantined = (0, 0)
        self._lock = lock
        self._deleted: list[tuple[int, str]] = []  # when each folder may be deleted
        self._of_offline: dict[str, dict[TopicPartition, int]] = {}  # their checkpoint entries, which are kept
        self._unmade: set[TopicPartition] = set()  # partitions that may have an incomplete folder only

    # ---- opening and closing

    @classmethod
    def open(cls, files: WritableFileSystem, path: str, settings: Settings, *, monotonic_ms: int) -> LogDirectory:
        """Lock the directory, created if needed, open all logs in it, and recover those that were not closed cleanly.

        Raises LogDirectoryError if another process holds it or it belongs to another broker; LogDirectoryOfflineError
        if its disk fails, OutOfDescriptorsError.
        """
        path = path.rstrip("/")
        opened = OpenFiles(files, Health(path), settings.max_open_files)
        try:
            lock, aside = _locked(opened, path)
        except LogDirectoryError:
            opened.close()
            raise
        self = cls(opened, path, settings, lock)
        self.notes += aside
        try:
            with self.health:
                self._load(monotonic_ms)
                self._look_into_quarantine()
        except (MagicbyteError, OSError):
            self.release()
            raise
        return self

    def _look_into_quarantine(self) -> None:
        path = f"{self.path}/{QUARANTINE}"
        try:
            files = self.files.list(path)
        except FileNotFoundError:
            return
        except (NotADirectoryError, PermissionError) as error:  # no reason to serve nothing at all
            self.notes.append(f"{path}: expected a directory that can be read: {error.strerror}")
            return
        self.quarantined = len(files), sum(each.size for each in files)
        if self.quarantined[0]:
            count, size = self.quarantined
            self.notes.append(f"{path}: files that were cut off or replaced are kept until you delete them: {count}, "
                              f"of {size} bytes")  # fmt: skip

    def _load(self, monotonic_ms: int) -> None:
        self._check_identity()
        marker = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        mark = self._parsed(checkpoints.CLEAN_SHUTDOWN, checkpoints.parse_clean_shutdown, "all logs are recovered")
        if mark is not None:
            self.was_clean = True
            self.files.delete(marker)  # before any change: otherwise a later crash would pass for a clean shutdown
            self.files.sync_directory(self.path)
        checkpoint_offsets = {name: self._offsets(name) for name in checkpoints.OFFSET_CHECKPOINTS}
        self.cleaner_offsets = checkpoint_offsets[checkpoints.CLEANER]
        keys = self._partitions_to_open(monotonic_ms)
        for name in (checkpoints.RECOVERY_POINT, checkpoints.HIGH_WATERMARK) if keys and self.was_clean else ():
            if not checkpoint_offsets[name] and not any(name in note for note in self.notes):
                self.notes.append(
                    f"{self.path}/{name}: missing or empty, though the logs were closed: {_WITHOUT[name]}"
                )
        for key in keys:
            self._bring_up(key, monotonic_ms, checkpoint_offsets)
        self._of_offline = {
            name: {key: offset for key, offset in offsets.items() if key in self.offline}
            for name, offsets in checkpoint_offsets.items()
        }
        # Now the checkpoints hold again: a log that lost its end, or has gone, must not be trusted up to its old
        # recovery point.
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        if not self.logs.keys() >= self.cleaner_offsets.keys():
            self._put_offsets(checkpoints.CLEANER, lambda: self._known(self.cleaner_offsets))
        if not self.logs.keys() >= checkpoint_offsets[checkpoints.HIGH_WATERMARK].keys():
            self.checkpoint_high_watermarks()

    def _partitions_to_open(self, monotonic_ms: int) -> list[TopicPartition]:
        """Return the partitions to open, by the names of their folders; note all others."""
        folders = {entry.name for entry in self.files.list(self.path) if entry.is_directory}
        keys = []
        for name in self.files.names(self.path):
            named, path = folder_name(name), f"{self.path}/{name}"
            why = why_not_loaded(name)
            if named is not None and name not in folders:
                if why is None:
                    why = f"{path}: expected a folder, found something else: move it away"
                    self.offline[named.key] = Offline(why, has_log=False)
            elif named is not None and named.state is FolderState.DELETE:
                self._deleted.append((monotonic_ms, path))
            elif name in folders and why:
                self.notes.append(f"{path}: {why}: ignored")
            elif named is not None and why is None:
                keys.append(named.key)
        refused = self.settings.refused(keys)
        for key, why in refused.items():
            self.offline[key] = Offline(f"{self._folder(key)}: {why}", has_log=False)
        return [key for key in keys if key not in refused]

    def _bring_up(
        self, key: TopicPartition, monotonic_ms: int, offsets: Mapping[str, Mapping[TopicPartition, int]]
    ) -> None:
        """Open the log of a partition. If it cannot be opened, it is offline. Raises OSError for a failing disk."""
        metadata = f"{key}/{checkpoints.PARTITION_METADATA}"
        try:
            self._parsed(metadata, checkpoints.parse_partition_metadata, "the topic's id is that of the metadata")
            health = Health(self._folder(key), tells=False)  # an error of one path does not affect other logs
            repair_scope = RepairScope.DAMAGE if self.settings.repairs else RepairScope.TORN_END
            log = self._opened(key, monotonic_ms, offsets, health, repair_scope, clean=self.was_clean)
            log.health = self.health
            self.logs[key] = log
        except (LogDirectoryOfflineError, OSError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in _OF_ONE_PATH:
                raise cause or error from None
            why = f"{cause}: give the broker permission to read and write it, and restart the broker"
        except OutOfDescriptorsError:  # not an error of this partition
            raise
        except CorruptRecordError as error:
            why = f"{error}: {'it cannot be repaired: move the folder away' if self.settings.repairs else _REPAIR}"
        except MagicbyteError as error:
            why = f"{error}"
        else:
            high_watermark = offsets[checkpoints.HIGH_WATERMARK].get(key, log.log_start_offset)
            log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
            self.notes += log.loaded.notes
            return
        self.offline[key] = Offline(why, has_log=True)

    def _opened(
        self,
        key: TopicPartition,
        monotonic_ms: int,
        offsets: Mapping[str, Mapping[TopicPartition, int]],
        health: Health,
        repair_scope: RepairScope,
        *,
        clean: bool,
    ) -> PartitionLog:
        return PartitionLog.open(
            self.files,
            self._folder(key),
            self.settings.config_of(key),
            monotonic_ms=monotonic_ms,
            clean=clean,
            recovery_point=offsets[checkpoints.RECOVERY_POINT].get(key, 0),
            committed=offsets[checkpoints.HIGH_WATERMARK].get(key, 0),
            log_start_offset=offsets[checkpoints.LOG_START].get(key, 0),
            health=health,
            quarantine=f"{self.path}/{QUARANTINE}",
            lowered=self.checkpoint_recovery_points,
            jitter=self.settings.jitter,
            repair_scope=repair_scope,
        )

    def _check_identity(self) -> None:
        """Write this owner to `meta.properties`, or raise LogDirectoryError if it names another one."""
        wanted = self.settings.identity
        path = f"{self.path}/{checkpoints.META_PROPERTIES}"
        if wanted is None:
            return
        consequence = f"the directory counts as that of broker {wanted.broker_id}, cluster {wanted.cluster_id}"
        properties = self._parsed(checkpoints.META_PROPERTIES, checkpoints.parse_meta_properties, consequence)
        if properties is None:
            cluster = "" if wanted.cluster_id is None else f"cluster.id={wanted.cluster_id}\n"
            put_file(self.files, path, f"version=0\nbroker.id={wanted.broker_id}\n{cluster}".encode())
            return
        if properties.node_id not in (None, wanted.broker_id):
            raise LogDirectoryError(f"{path}: expected broker {wanted.broker_id}, found {properties.node_id}")
        if None not in (properties.cluster_id, wanted.cluster_id) and properties.cluster_id != wanted.cluster_id:
            raise LogDirectoryError(f"{path}: expected cluster {wanted.cluster_id}, found {properties.cluster_id}")

    def close(self) -> None:
        """Close all logs, and write the clean shutdown marker last; no marker while a log needs a recovery."""
        try:
            for log in self.logs.values():
                log.close()
            self.checkpoint_recovery_points()
            self.checkpoint_high_watermarks()
            self.checkpoint_log_starts()
            if not self.was_clean and any(each.has_log for each in self.offline.values()):
                return
            marker = (
                CleanShutdown(0, -1) if self.settings.rules.release.names_broker_epoch else CleanShutdown(None, None)
            )
            with self.health:
                path = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
                put_file(self.files, path, checkpoints.format_clean_shutdown(marker))
        finally:
            self.release()

    def release(self) -> None:
        """Close all files without writing anything."""
        for log in self.logs.values():
            log.release()
        self.files.close()
        self._lock.release()

    # ---- partitions

    def create(self, key: TopicPartition, *, monotonic_ms: int, topic_id: uuid.UUID | None = None) -> PartitionLog:
        """Create the log of a new partition. It is durable, and empty, when this returns.

        Raises LogDirectoryOfflineError for a partition that is offline, or whose name is taken by something else in the
        directory; InvalidTopicError or InvalidRequestError for a name that would not be loaded again.
        """
        assert key not in self.logs, key
        if key in self.offline:
            raise LogDirectoryOfflineError(f"{key} is offline: {self.offline[key].why}")
        check_new_topic(key.topic)
        with self.health:
            folder = self._folder(key)
            try:
                if key not in self._unmade:
                    self.files.make_directory(folder)
            except FileExistsError as error:
                self.offline[key] = Offline(f"{folder}: expected nothing of this name: move it away", has_log=False)
                raise LogDirectoryOfflineError(f"{key} is offline: {self.offline[key].why}") from error
            self._unmade.add(key)  # until it is complete: a lack of descriptors may interrupt it
            if topic_id is not None and self.settings.rules.release.has_topic_ids:
                metadata = checkpoints.format_partition_metadata(PartitionMetadata(0, topic_id))
                put_file(self.files, f"{folder}/{checkpoints.PARTITION_METADATA}", metadata)
            self.files.sync_directory(self.path)
            nothing: dict[str, dict[TopicPartition, int]] = {name: {} for name in checkpoints.OFFSET_CHECKPOINTS}
            self.logs[key] = log = self._opened(
                key, monotonic_ms, nothing, self.health, RepairScope.NOTHING, clean=True
            )
            self._unmade.discard(key)
        return log

    def taken_names(self) -> set[str]:
        """Return all names in the directory: no log can be made under one of them."""
        with self.health:
            return set(self.files.names(self.path))

    def delete(self, key: TopicPartition, *, monotonic_ms: int) -> None:
        """Delete the log of a partition. Its files are deleted after `file.delete.delay.ms` (`remove_deleted`)."""
        for log in self.take_away([key], monotonic_ms=monotonic_ms):
            log.release()

    def take_away(self, keys: Collection[TopicPartition], *, monotonic_ms: int) -> list[PartitionLog]:
        """Delete logs as `delete` does, but leave the files open; return them, which the caller must release.

        The checkpoints are written once for all. Raises UnknownTopicError, with no log deleted.
        """
        logs = [self[key] for key in keys]
        for key, log in zip(keys, logs, strict=True):
            self._rename_for_deletion(key, monotonic_ms + log.config.file_delete_delay_ms)
            del self.logs[key]
        self._forget(keys)
        return logs

    def take_away_offline(self, topic: str, *, monotonic_ms: int) -> None:
        """Delete the logs of a topic that could not be opened, as `delete` does."""
        keys = [key for key, each in self.offline.items() if key.topic == topic and each.has_log]
        for key in keys:
            self._rename_for_deletion(key, monotonic_ms)
            del self.offline[key]
            for offsets in self._of_offline.values():
                offsets.pop(key, None)
        self._forget(keys)

    def _rename_for_deletion(self, key: TopicPartition, due_ms: int) -> None:
        """Rename a log's folder; this is durable after the checkpoints, which `_forget` writes next."""
        with self.health:
            ending = f".{self.settings.token()}-{FolderState.DELETE.value}"
            stem = str(key)
            if len(stem) + len(ending) > LONGEST_FILE_NAME:
                number = f"-{key.partition}"
                stem = f"{key.topic[: LONGEST_FILE_NAME - len(ending) - len(number)]}{number}"
            target = f"{self.path}/{stem}{ending}"
            self.files.rename(self._folder(key), target)
            self._deleted.append((due_ms, target))

    def _forget(self, keys: Collection[TopicPartition]) -> None:
        """Remove deleted logs from the checkpoints: they must not apply to later logs of the same names."""
        if not keys:
            return
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        self.checkpoint_high_watermarks()
        cleaned = self.cleaner_offsets.keys() & set(keys)
        for key in cleaned:
            del self.cleaner_offsets[key]
        if cleaned:
            self._put_offsets(checkpoints.CLEANER, lambda: self._known(self.cleaner_offsets))

    def __getitem__(self, key: TopicPartition) -> PartitionLog:
        """Return the log of a partition. Raises UnknownTopicError."""
        if key not in self.logs:
            raise UnknownTopicError(f"{self.path}: no log of {key}")
        return self.logs[key]

    def _folder(self, key: TopicPartition) -> str:
        return f"{self.path}/{key}"

    # ---- periodic work of the owner

    def flush_due(self, monotonic_ms: int) -> list[PartitionLog]:
        """Return the logs whose `flush.ms` has passed."""
        return [log for log in list(self.logs.values()) if log.is_flush_due(monotonic_ms)]

    def retain(
        self,
        now: Moment,
        damaged: Callable[[TopicPartition, CorruptRecordError], None],
        contradicted: Callable[[TopicPartition, CorruptRecordError], None] = lambda _key, _error: None,
        corrected: Callable[[TopicPartition, CorruptRecordError], None] = lambda _key, _error: None,
    ) -> dict[TopicPartition, list[Removed]]:
        """Apply retention to all logs; return the deletions of each log that lost something.

        `damaged` is called for each log in which damage hides the segments that are due. The others are not affected.
        `contradicted` is called for each index that look-ups since the last call found to contradict its log, and
        `corrected` for each transaction index of this kind, which is rebuilt.
        """
        removed_of = {}
        for key, log in list(self.logs.items()):
            try:
                if removed := log.delete_old_segments(now):
                    removed_of[key] = removed
                log.mend_transaction_indexes()
            except CorruptRecordError as error:
                damaged(key, error)
            for fault in log.take_index_faults():
                corrected(key, fault)
            for segment in log.segments:
                if (contradiction := segment.contradiction()) is not None:
                    contradicted(key, contradiction)
        return removed_of

    def remove_deleted(self, monotonic_ms: int) -> int:
        """Delete the files whose delay has passed, of segments and whole logs; return how many of these there were."""
        count = sum(log.remove_deleted(monotonic_ms) for log in list(self.logs.values()))
        due = [folder for time, folder in self._deleted if time <= monotonic_ms]
        self._deleted = [(time, folder) for time, folder in self._deleted if time > monotonic_ms]
        with self.health:
            for folder in due:
                for entry in self.files.list(folder):
                    if not entry.is_directory:
                        self.files.delete(entry.path)
                if not self.files.names(folder):  # otherwise it contains foreign files, and stays
                    self.files.delete(folder)
        return count + len(due)

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points."""
        self._put_offsets(
            checkpoints.RECOVERY_POINT, lambda: {key: log.recovery_point for key, log in list(self.logs.items())}
        )  # fmt: skip

    def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks."""
        self._put_offsets(
            checkpoints.HIGH_WATERMARK, lambda: {key: log.committed for key, log in list(self.logs.items())}
        )  # fmt: skip

    def checkpoint_log_starts(self) -> None:
        """Write the log start offsets of logs that do not start with their first segment."""
        if self.settings.rules.has_producers:
            self._put_offsets(
                checkpoints.LOG_START,
                lambda: {
                    key: log.log_start_offset
                    for key, log in list(self.logs.items())
                    if log.log_start_offset > log.segments[0].base_offset
                },
            )

    def checkpoint_cleaner(self, key: TopicPartition, first_dirty_offset: int) -> None:
        """Write the cleaner's progress in a log."""
        self.cleaner_offsets[key] = first_dirty_offset
        self._put_offsets(checkpoints.CLEANER, lambda: self._known(self.cleaner_offsets))

    def _known(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {key: offset for key, offset in offsets.items() if key in self.logs}

    def _offsets(self, name: str) -> dict[TopicPartition, int]:
        """Return the offsets of a checkpoint; none if it is missing or damaged, as in a broker."""
        return self._parsed(name, checkpoints.parse_offset_checkpoint, _WITHOUT[name]) or {}

    def _parsed(self, name: str, parse: Callable[[bytes], T], consequence: str) -> T | None:
        """Parse a small file in the directory; return None if it is missing, or damaged and quarantined."""
        path = f"{self.path}/{name}"
        try:
            return parse_file(self.files, path, parse)
        except FileNotFoundError:  # a dead link is replaced when the file is written
            return None
        except (LogDirectoryError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _OF_NO_FILE:
                raise
            self.notes += _set_aside_unless_file(self.files, self.path, name)
            return None
        except CorruptRecordError as error:
            target = move_to_quarantine(self.files, path, f"{self.path}/{QUARANTINE}")
            self.notes.append(f"{error}: {consequence}; the file is in {target} now")
            return None

    def _put_offsets(self, name: str, offsets: Callable[[], Mapping[TopicPartition, int]]) -> None:
        # The offsets are collected under the lock: otherwise a thread that had collected them before a truncation could
        # overwrite the lower recovery point, and a crash would then trust bytes that are no longer synced.
        with self.settings.checkpoint_lock, self.health:
            whole = {**offsets(), **self._of_offline.get(name, {})}
            put_file(self.files, f"{self.path}/{name}", checkpoints.format_offset_checkpoint(whole))


def _regular(files: WritableFileSystem, path: str) -> set[str]:
    """Return the names of files. None is opened: closing it would release a lock of this process."""
    return {entry.name for entry in files.list(path) if not entry.is_directory}


def _set_aside_unless_file(files: WritableFileSystem, path: str, name: str) -> list[str]:
    """Quarantine anything but a file that has the name of one of the directory's own files; return a note."""
    if name not in files.names(path) or name in _regular(files, path):
        return []
    target = move_to_quarantine(files, f"{path}/{name}", f"{path}/{QUARANTINE}")
    return [f"{path}/{name}: expected a regular file, found something else, which is in {target} now"]


def _make_directories(files: OpenFiles, path: str) -> None:
    """Create a directory and its missing parents."""
    if path and not exists(files, path):
        parent = path.rpartition("/")[0]
        _make_directories(files, parent)
        files.make_directory(path)
        files.sync_directory(parent or "/")


def _locked(files: OpenFiles, path: str) -> tuple[Lock, list[str]]:
    """Lock a log directory, creating it if needed; return the lock and notes."""
    with files.health:
        _make_directories(files, path)
        aside = _set_aside_unless_file(files, path, LOCK)
        try:
            return files.lock(f"{path}/{LOCK}"), aside
        except BlockingIOError as error:
            raise LogDirectoryError(f"{path}: another process is using this log directory") from error
