"""A local log directory that stores sets unchanged, with the source's offsets, bytes and gaps.

It is the target of identical mirrors, and stores sets that another target does not accept. It is a broker's log
directory: commands can read it, and a broker can be started on it.
"""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from magicbyte.access.clock import SystemClock
from magicbyte.engine.errors import LogDirectoryError, MirrorError
from magicbyte.engine.log.append.prepare import prepare_unchanged
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import LOG, parse_file
from magicbyte.engine.log.files.filesystem import LocalFiles, exists
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.log_directory import LogDirectory, Settings
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment, TopicPartition
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.extent import first_offset
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import scan

_CLOCK = SystemClock()
_READ_BYTES = 4 << 20
_OFFSETS = DecodeOptions(keys=False, values=False, headers=False, control=True)


class LogTarget:
    """An open log directory, locked against other writers.

    As a context manager it is closed at the end, all of it durable.
    """

    def __init__(self, directory: Path) -> None:
        """Open the directory, creating it if needed.

        Raises LogDirectoryError if another process has it, or if it is none.
        """
        if any(each.suffix == LOG and each.stem.isdecimal() for each in directory.glob("*")):
            raise LogDirectoryError(
                f"{directory}: expected a log directory, found a partition folder: give that above it"
            )
        self.path = directory
        self._files = LocalFiles()
        self._new: dict[TopicPartition, Dialect] = {}
        self._creating = threading.Lock()  # threads open logs; the directory has one list of them
        settings = Settings(config_of=self._config, token=lambda: uuid.uuid4().hex)
        directory.parent.mkdir(parents=True, exist_ok=True)
        self._logs = LogDirectory.open(self._files, str(directory), settings, monotonic_ms=_CLOCK.monotonic_ms())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._logs.close()

    def _config(self, key: TopicPartition) -> LogConfig:
        path = f"{self.path}/{key}/{checkpoints.MESSAGE_DIALECT}"
        if key in self._new or not exists(self._files, path):
            return LogConfig(dialect=self._new.get(key, Dialect.KAFKA))
        return LogConfig(dialect=parse_file(self._files, path, checkpoints.parse_message_dialect))

    def log(
        self, topic: str, partition: int, topic_id: uuid.UUID | None = None, dialect: Dialect = Dialect.KAFKA
    ) -> PartitionLog:
        """Return the log of a partition, created if needed. May run in several threads at once.

        Raises MirrorError for one of another topic id or dialect.
        """
        key = TopicPartition(topic, partition)
        with self._creating:
            log = self._logs.logs.get(key)
            if log is None:
                self._new[key] = dialect
                return self._logs.create(key, monotonic_ms=_CLOCK.monotonic_ms(), topic_id=topic_id)
        if log.config.dialect is not dialect:
            raise MirrorError(f"{log.folder}: a log in the dialect {log.config.dialect.value}, not {dialect.value}")
        path = f"{log.folder}/{checkpoints.PARTITION_METADATA}"
        if topic_id is not None and exists(self._files, path):
            known = parse_file(self._files, path, checkpoints.parse_partition_metadata).topic_id
            if known != topic_id:
                raise MirrorError(f"{log.folder}: the topic was recreated: its id was {known}, and is {topic_id}")
        return log

    def append(self, log: PartitionLog, data: memoryview) -> int:
        """Append whole sets unchanged, without those below the log end offset; return the number of bytes.

        An empty log begins with their first offset. Raises CorruptRecordError for damage and offsets that do not
        ascend, LogDirectoryOfflineError.
        """
        at = 0
        for position, entry in entries(data, log.config.dialect):
            if entry.next_offset is None or entry.next_offset > log.log_end_offset:
                break
            at = position + entry.size
        dialect, end = log.config.dialect, log.log_end_offset
        made = prepare_unchanged(data[at:], log.config.rules, next_offset=end, dialect=dialect)
        if made.size:
            if not log.size and (first := _first_offset(made.pieces[0], dialect)):
                log.truncate_fully(first, _CLOCK.monotonic_ms())
            log.append(made, Moment.of(_CLOCK))
            log.high_watermark = log.log_end_offset
        return made.size

    def flush(self, log: PartitionLog) -> None:
        """Sync a log. May run in a thread, while nothing is appended to it."""
        log.flush(_CLOCK.monotonic_ms())

    def offsets(self, topic: str, partition: int, start: int) -> set[int]:
        """Return the offsets from `start` on of the records in the log of a partition."""
        log, offsets_there = self._logs.logs.get(TopicPartition(topic, partition)), set[int]()
        at = start if log is None else max(start, log.log_start_offset)
        while log is not None and at < log.log_end_offset and (part := log.read(at, _READ_BYTES)) is not None:
            pieces = decode(memoryview(part.read()), _OFFSETS, dialect=log.config.dialect)
            offsets = np.concatenate([np.asarray(each.offset, np.int64) for each in pieces])
            offsets_there.update(offsets[offsets >= start].tolist())
            at = int(offsets[-1]) + 1
        return offsets_there


def _first_offset(data: memoryview, dialect: Dialect) -> int:
    """Return the first offset of sets; a wrapper of magic 0 or 1 must be decompressed for it."""
    _, entry = next(entries(data, dialect))
    return first_offset(scan(data), 0) if entry.base_offset is None else entry.base_offset
