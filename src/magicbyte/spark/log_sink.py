"""Append batches of rows to a log directory, exactly once. See docs/decisions/0010-writing-rows.md.

Workers stage closed sets in files with unique names. A manifest, created exclusively, assigns their offsets and is the
commit. Then the sets are appended at these offsets. The next commit first completes an append that a crash interrupted,
and skips the sets that are already in the log.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.filesystem import LocalFile, sync_directory
from magicbyte.engine.log.files.names import FolderState, folder_name
from magicbyte.engine.log.files.reader import CHUNK_BYTES, read_chunks
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.header import extent_of
from magicbyte.engine.records.layout import OFFSET
from magicbyte.engine.records.scan import scan

if TYPE_CHECKING:
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.records.scan import BatchTable
    from magicbyte.tools.mirror.log_target import LogTarget

Json = dict[str, Any]

WORK: Final = ".spark"
"""The folder of staged files."""
FORM: Final = 1
LOCK_SECONDS: Final = 30.0
"""How long a commit waits for another commit to the same log directory."""
_LOCK_POLL_SECONDS: Final = 0.02
_MANIFEST: Final = re.compile(r"spark-([0-9]{8})\.json")


@dataclass(frozen=True, slots=True)
class Staged:
    """The sets of one partition that a task wrote, in order. `path`: a file in the folder WORK."""

    topic: str
    partition: int
    path: str
    size: int
    records: int


def stage(folder: Path, sets: Iterable[tuple[TopicPartition, memoryview, int]]) -> Iterator[Staged]:
    """Write sets, each with its number of records, to a file per partition, durably. Yield the staged files."""
    with contextlib.ExitStack() as stack:
        files: dict[TopicPartition, Any] = {}
        records: dict[TopicPartition, int] = {}
        for key, data, count in sets:
            if key not in files:
                folder.mkdir(parents=True, exist_ok=True)
                files[key] = stack.enter_context((folder / str(key)).open("xb"))
            files[key].write(data)
            records[key] = records.get(key, 0) + count
        for key, file in files.items():
            file.flush()
            os.fsync(file.fileno())
            yield Staged(*key, str(folder / str(key)), file.tell(), records[key])
        if files:
            sync_directory(folder)


@dataclass(frozen=True, slots=True)
class LogSink:
    """A log directory as a sink; it is opened for each commit. `partitions`: the number for a new topic."""

    path: Path
    partitions: int = 1

    def folder(self, writer: str) -> Path:
        """Return the folder in which a writer's tasks stage their output."""
        return self.path / WORK / writer

    def give_up(self, writer: str) -> None:
        """Delete the staged output of a writer's tasks."""
        shutil.rmtree(self.folder(writer), ignore_errors=True)
        with contextlib.suppress(OSError):  # other writers have folders in it
            (self.path / WORK).rmdir()  # brokers warn about folders that are not partitions

    def commit(self, writer: str, batch: int | None, staged: Sequence[Staged]) -> None:
        """Append staged sets, unless this batch of the writer is committed already. Batches of a writer ascend.

        `batch` None: the commit is not repeated. A commit whose query was killed may still run when its successor
        begins. The second of the two finds the batch committed, and deletes only its own files. Raises
        LogDirectoryError if another process holds the log directory or has appended to the same logs, and for missing
        staged files.
        """
        with self._opened() as target:
            number, manifest = self._last()
            if manifest is not None:
                self._settle(target, manifest)
            committed = {} if manifest is None else dict(manifest["committed"])
            if batch is not None and committed.get(writer, -1) >= batch:
                remove_staged(staged)
            else:
                check_staged(staged)
                if batch is not None:
                    committed[writer] = batch
                made = {"form": FORM, "committed": committed, "appends": self._placed(target, staged)}
                self._put(number + 1, made)
                self._settle(target, made)
                if manifest is not None:
                    (self.path / _name(number)).unlink()
                self.give_up(writer)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[LogTarget]:
        """Open the log directory and hold its lock. Raises LogDirectoryError if it is locked for LOCK_SECONDS."""
        from magicbyte.tools.mirror.log_target import LogTarget

        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                target = LogTarget(self.path)
                break
            except LogDirectoryError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_LOCK_POLL_SECONDS)
        with target:
            yield target

    def _last(self) -> tuple[int, Json | None]:
        """Return the number of the last manifest and the manifest, or 0 and None before the first one."""
        manifests = sorted(each.name for each in self.path.iterdir() if _MANIFEST.fullmatch(each.name))
        if not manifests:
            return 0, None
        manifest = json.loads((self.path / manifests[-1]).read_bytes())
        assert isinstance(manifest, dict)
        for name in manifests[:-1]:  # left by a crash
            (self.path / name).unlink()
        return int(manifests[-1][6:14]), manifest

    def _placed(self, target: LogTarget, staged: Sequence[Staged]) -> list[Json]:
        """Assign offsets to staged sets: after the end of each partition, in the order of the tasks."""
        self._make_topics(target, {each.topic for each in staged})
        ends: dict[TopicPartition, int] = {}
        appends = []
        for each in staged:
            key = TopicPartition(each.topic, each.partition)
            at = ends[key] if key in ends else target.log(*key).log_end_offset
            ends[key] = at + each.records
            appends.append({**asdict(each), "path": os.path.relpath(each.path, self.path), "offset": at})
        return appends

    def _make_topics(self, target: LogTarget, topics: set[str]) -> None:
        """Create all partitions of new topics, the last one first: partitioning by key depends on their number."""
        for topic in sorted(topics - {topic for topic, _ in partitions_there(self.path)}):
            for number in reversed(range(self.partitions if self.partitions > 1 else 0)):
                target.log(topic, number)

    def _put(self, number: int, manifest: Json) -> None:
        from magicbyte.spark.pipeline.sink import put_once

        if not put_once(self.path / _name(number), json.dumps(manifest).encode()):
            raise LogDirectoryError(
                f"{self.path / _name(number)}: expected nothing of that name: another one committed"
            )

    def _settle(self, target: LogTarget, manifest: Json) -> None:
        """Append the sets of a manifest that are not in the log yet.

        Staged files are deleted once their sets are durable.
        """
        due = [each for each in manifest["appends"] if (self.path / each["path"]).exists()]
        for each in due:
            self._append(target, each)
        for key in {(each["topic"], each["partition"]) for each in due}:
            target.flush(target.log(*key))
        for each in due:
            (self.path / each["path"]).unlink()

    def _append(self, target: LogTarget, each: Json) -> None:
        """Append the sets of one file. Raises LogDirectoryError if their offsets hold other records."""
        log, offset = target.log(each["topic"], each["partition"]), int(each["offset"])
        with LocalFile(str(self.path / each["path"])) as file:
            for chunk in read_chunks(file):
                data, behind = stamped(chunk.table, offset)
                there = _bytes_between(log, offset, min(behind, log.log_end_offset))
                if log.log_end_offset < offset or there != data[: len(there)]:
                    raise LogDirectoryError(
                        f"{log.folder}: expected to append at offset {offset}, found other records there: "
                        f"the log ends at {log.log_end_offset}"
                    )
                target.append(log, data)
                offset = behind


def partitions_there(folder: Path) -> list[TopicPartition]:
    """Return the partitions of a log directory, from its folder names, without those being deleted or copied."""
    if not folder.is_dir():
        return []
    names = (folder_name(str(each)) for each in folder.iterdir() if each.is_dir())
    return [found.key for found in names if found is not None and found.state is FolderState.CURRENT]


def check_staged(staged: Sequence[Staged]) -> None:
    """Raise LogDirectoryError unless all staged files exist in full."""
    for each in staged:
        path = Path(each.path)
        if not path.exists() or path.stat().st_size != each.size:
            raise LogDirectoryError(f"{each.path}: expected {each.size} bytes staged by a task: the file is missing")


def remove_staged(staged: Sequence[Staged]) -> None:
    """Delete staged files, with the folders of their tasks."""
    for folder in {Path(each.path).parent for each in staged}:
        shutil.rmtree(folder, ignore_errors=True)


def _bytes_between(log: PartitionLog, first: int, end: int) -> bytes:
    """Return the sets of a log from one offset to another. Both must be the first offset of a set, or the end."""
    entries = []
    while first < end and (part := log.read(first, CHUNK_BYTES)) is not None:
        table = scan(memoryview(part.read()))
        for row in range(len(table)):
            at = int(table.position[row])
            if int(table.offset[row]) < end:
                entries.append(bytes(table.buffer[at : at + int(table.size[row])]))
            first = extent_of(table.buffer, at)[1] + 1
    return b"".join(entries)


def stamped(table: BatchTable, offset: int) -> tuple[memoryview, int]:
    """Return a copy of batches with offsets from `offset` on, and the next offset.

    No checksum covers the base offset.
    """
    data = bytearray(table.buffer[: table.end])
    for row in range(len(table)):
        at = int(table.position[row])
        OFFSET.type.pack_into(data, at + OFFSET.start, offset)
        offset = extent_of(data, at)[1] + 1
    return memoryview(data), offset


def _name(number: int) -> str:
    return f"spark-{number:08}.json"
