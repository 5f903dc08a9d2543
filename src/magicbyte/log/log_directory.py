"""One `log.dir` of a broker: the logs in it, and the files beside them that say how far each of them can be trusted.

Its files are Kafka's, name for name. Nothing in here waits or keeps time: `flush_due`, `retain`, `remove_deleted` and
the checkpoints are called by the owner, at Kafka's intervals or its own. Sources: Kafka's LogManager and LogLoader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.errors import CorruptRecordError, LogDirectoryError, MagicbyteError, UnknownTopicError
from magicbyte.log import checkpoints
from magicbyte.log.checkpoints import CleanShutdown, PartitionMetadata, TopicPartition
from magicbyte.log.config import LogConfig
from magicbyte.log.directory import FolderState, folder_name, parse_file
from magicbyte.log.files import put_file
from magicbyte.log.health import Health
from magicbyte.log.index_writer import LATEST_RULES, IndexRules
from magicbyte.log.partition_log import PartitionLog, Removed
from magicbyte.log.segment import exists

if TYPE_CHECKING:
    import uuid

    from magicbyte.ports import Lock, WritableFileSystem

LOCK = ".lock"
QUARANTINE = "quarantine"
CLUSTER_METADATA = "__cluster_metadata"
"""A folder of this name is the quorum's own: nobody else opens it."""
_LONGEST_NAME = 255


class Identity(NamedTuple):
    """Whose directory it is, as `meta.properties` says."""

    broker_id: int
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What a directory needs besides its path. `config_of` gives the configuration of each partition's log.

    `rules` are those of the Kafka version whose files it is to have. `token` makes 32 hexadecimal digits, never the
    same; `jitter` a number from 0 to the given one.
    """

    config_of: Callable[[TopicPartition], LogConfig]
    token: Callable[[], str]
    rules: IndexRules = LATEST_RULES
    identity: Identity | None = None
    jitter: Callable[[int], int] = lambda _most: 0


class LogDirectory:
    """An open log directory: `logs` by partition. It is locked, and offline after the first failure of its disk.

    A log may be made while another thread is in any other call but those that open, close and delete.

    While `health.error` is set, each change raises LogDirectoryOfflineError, and no mark of a clean shutdown is left.
    `was_clean`: whether whoever had it before closed it.
    """

    def __init__(self, files: WritableFileSystem, path: str, settings: Settings, lock: Lock) -> None:
        self.files, self.path, self.settings = files, path, settings
        self.health = Health(path)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.was_clean = False
        self._lock = lock
        self._deleted: list[tuple[int, str]] = []  # when a folder goes

    # ---- opening and closing

    @classmethod
    def open(cls, files: WritableFileSystem, path: str, settings: Settings, *, now_ms: int) -> LogDirectory:
        """Lock the directory, made if need be, and open all logs in it, mended where it was not closed.

        Raises LogDirectoryError when another process has it, or when it is another broker's; LogDirectoryOfflineError
        when its disk fails.
        """
        path = path.rstrip("/")
        with Health(path):
            if not exists(files, path):
                files.make_directory(path)
                files.sync_directory(path.rpartition("/")[0] or "/")
            try:
                lock = files.lock(f"{path}/{LOCK}")
            except BlockingIOError as error:
                raise LogDirectoryError(f"{path}: another process is using this log directory") from error
        self = cls(files, path, settings, lock)
        try:
            with self.health:
                self._load(now_ms)
        except (MagicbyteError, OSError):
            self.release()
            raise
        return self

    def _load(self, now_ms: int) -> None:
        self._check_identity()
        marker = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        self.was_clean = exists(self.files, marker)
        if self.was_clean:  # it goes before anything is changed: else a crash later on would pass for a clean end
            self.files.delete(marker)
            self.files.sync_directory(self.path)
        found = {name: self._offsets(name) for name in checkpoints.OFFSET_CHECKPOINTS}
        self.cleaner_offsets = found[checkpoints.CLEANER]
        for entry in self.files.list(self.path):
            name = folder_name(entry.path) if entry.is_directory else None
            if name is None:
                continue
            state, key = name
            if key.topic == CLUSTER_METADATA:
                continue
            if state is FolderState.DELETE:
                self._deleted.append((now_ms, entry.path))
            elif state is FolderState.CURRENT:
                self.logs[key] = log = self._opened(key, now_ms, found, clean=self.was_clean)
                high_watermark = found[checkpoints.HIGH_WATERMARK].get(key, log.log_start_offset)
                log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        # From here on what they say holds again: a log that lost its end, or has gone, must not be trusted so far.
        self.checkpoint_recovery_points()
        self.checkpoint_log_starts()
        if not self.logs.keys() >= self.cleaner_offsets.keys():
            self._put_offsets(checkpoints.CLEANER, self._known(self.cleaner_offsets))
        if not self.logs.keys() >= found[checkpoints.HIGH_WATERMARK].keys():
            self.checkpoint_high_watermarks()

    def _opened(
        self, key: TopicPartition, now_ms: int, found: Mapping[str, Mapping[TopicPartition, int]], *, clean: bool
    ) -> PartitionLog:
        return PartitionLog.open(
            self.files,
            self._folder(key),
            self.settings.config_of(key),
            now_ms=now_ms,
            clean=clean,
            recovery_point=found[checkpoints.RECOVERY_POINT].get(key, 0),
            log_start_offset=found[checkpoints.LOG_START].get(key, 0),
            health=self.health,
            quarantine=f"{self.path}/{QUARANTINE}",
            lowered=self.checkpoint_recovery_points,
            jitter=self.settings.jitter,
        )

    def _check_identity(self) -> None:
        """Have `meta.properties` say whose directory it is; raise LogDirectoryError when it says otherwise."""
        wanted = self.settings.identity
        path = f"{self.path}/{checkpoints.META_PROPERTIES}"
        if wanted is None:
            return
        if not exists(self.files, path):
            cluster = "" if wanted.cluster_id is None else f"cluster.id={wanted.cluster_id}\n"
            put_file(self.files, path, f"version=0\nbroker.id={wanted.broker_id}\n{cluster}".encode())
            return
        found = parse_file(self.files, path, checkpoints.parse_meta_properties)
        if found.node_id not in (None, wanted.broker_id):
            raise LogDirectoryError(f"{path}: expected broker {wanted.broker_id}, found {found.node_id}")
        if None not in (found.cluster_id, wanted.cluster_id) and found.cluster_id != wanted.cluster_id:
            raise LogDirectoryError(f"{path}: expected cluster {wanted.cluster_id}, found {found.cluster_id}")

    def close(self) -> None:
        """Close all logs and leave the mark that says so, last of all."""
        try:
            for log in self.logs.values():
                log.close()
            self.checkpoint_recovery_points()
            self.checkpoint_high_watermarks()
            self.checkpoint_log_starts()
            marker = CleanShutdown(0, -1) if self.settings.rules.line >= (3, 7) else CleanShutdown(None, None)
            with self.health:
                path = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
                put_file(self.files, path, checkpoints.format_clean_shutdown(marker))
        finally:
            self.release()

    def release(self) -> None:
        """Let go of everything, as it is."""
        for log in self.logs.values():
            log.release()
        self._lock.release()

    # ---- partitions

    def create(self, key: TopicPartition, *, now_ms: int, topic_id: uuid.UUID | None = None) -> PartitionLog:
        """Make the log of a partition that is not there yet. It is durable, and empty, when this returns."""
        assert key not in self.logs, key
        with self.health:
            folder = self._folder(key)
            self.files.make_directory(folder)
            if topic_id is not None and self.settings.rules.line >= (2, 8):
                metadata = checkpoints.format_partition_metadata(PartitionMetadata(0, topic_id))
                put_file(self.files, f"{folder}/{checkpoints.PARTITION_METADATA}", metadata)
            self.files.sync_directory(self.path)
            self.logs[key] = log = self._opened(
                key, now_ms, {name: {} for name in checkpoints.OFFSET_CHECKPOINTS}, clean=True
            )
        return log

    def delete(self, key: TopicPartition, *, now_ms: int) -> None:
        """Take the log of a partition away. Its files go after `file.delete.delay.ms` (`remove_deleted`)."""
        self.take_away(key, now_ms=now_ms).release()

    def take_away(self, key: TopicPartition, *, now_ms: int) -> PartitionLog:
        """Do what `delete` does, but leave the files open; return the log, which is to be released."""
        log = self[key]
        with self.health:
            ending = f".{self.settings.token()}-{FolderState.DELETE.value}"
            stem = str(key)
            if len(stem) + len(ending) > _LONGEST_NAME:
                number = f"-{key.partition}"
                stem = f"{key.topic[: _LONGEST_NAME - len(ending) - len(number)]}{number}"
            target = f"{self.path}/{stem}{ending}"
            self.files.rename(log.folder, target)
            self.files.sync_directory(self.path)
            del self.logs[key]
            self._deleted.append((now_ms + log.config.file_delete_delay_ms, target))
        self.checkpoint_recovery_points()  # a log of the same name may come: nothing of it can be trusted yet
        self.checkpoint_log_starts()
        self.checkpoint_high_watermarks()
        if self.cleaner_offsets.pop(key, None) is not None:
            self._put_offsets(checkpoints.CLEANER, self.cleaner_offsets)
        return log

    def __getitem__(self, key: TopicPartition) -> PartitionLog:
        """Return the log of a partition. Raises UnknownTopicError."""
        if key not in self.logs:
            raise UnknownTopicError(f"{self.path}: no log of {key}")
        return self.logs[key]

    def _folder(self, key: TopicPartition) -> str:
        return f"{self.path}/{key}"

    # ---- what the owner calls from time to time

    def flush_due(self, now_ms: int) -> list[PartitionLog]:
        """Return the logs whose `flush.ms` has passed."""
        return [log for log in list(self.logs.values()) if log.is_flush_due(now_ms)]

    def retain(
        self, now_ms: int, damaged: Callable[[TopicPartition, CorruptRecordError], None]
    ) -> dict[TopicPartition, list[Removed]]:
        """Delete what is due in all logs; return what went, of the logs that lost anything.

        `damaged` is told of each log in which damage hides what is due: the others lose what is due all the same.
        """
        found = {}
        for key, log in list(self.logs.items()):
            try:
                if removed := log.delete_old_segments(now_ms):
                    found[key] = removed
            except CorruptRecordError as error:
                damaged(key, error)
        return found

    def remove_deleted(self, now_ms: int) -> int:
        """Delete the files whose delay has passed, of segments and whole logs; return how many of these there were."""
        count = sum(log.remove_deleted(now_ms) for log in list(self.logs.values()))
        due = [folder for time, folder in self._deleted if time <= now_ms]
        self._deleted = [(time, folder) for time, folder in self._deleted if time > now_ms]
        with self.health:
            for folder in due:
                for entry in self.files.list(folder):
                    self.files.delete(entry.path)
                self.files.delete(folder)
        return count + len(due)

    def checkpoint_recovery_points(self) -> None:
        """Write down how far each log is durable."""
        self._put_offsets(
            checkpoints.RECOVERY_POINT, {key: log.recovery_point for key, log in list(self.logs.items())}
        )  # fmt: skip

    def checkpoint_high_watermarks(self) -> None:
        """Write down the high watermarks."""
        self._put_offsets(
            checkpoints.HIGH_WATERMARK, {key: log.high_watermark for key, log in list(self.logs.items())}
        )  # fmt: skip

    def checkpoint_log_starts(self) -> None:
        """Write down where the logs start that do not start with their first segment."""
        if self.settings.rules.has_producers:
            starts = {
                key: log.log_start_offset
                for key, log in list(self.logs.items())
                if log.log_start_offset > log.segments[0].base_offset
            }
            self._put_offsets(checkpoints.LOG_START, starts)

    def checkpoint_cleaner(self, key: TopicPartition, first_dirty_offset: int) -> None:
        """Write down how far the cleaner has come with a log."""
        self.cleaner_offsets[key] = first_dirty_offset
        self._put_offsets(checkpoints.CLEANER, self._known(self.cleaner_offsets))

    def _known(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {key: offset for key, offset in offsets.items() if key in self.logs}

    def _offsets(self, name: str) -> dict[TopicPartition, int]:
        """Return the offsets of a checkpoint; none where it is missing or damaged, as a broker does."""
        path = f"{self.path}/{name}"
        try:
            return parse_file(self.files, path, checkpoints.parse_offset_checkpoint)
        except (FileNotFoundError, CorruptRecordError):
            return {}

    def _put_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self.health:
            put_file(self.files, f"{self.path}/{name}", checkpoints.format_offset_checkpoint(offsets))
