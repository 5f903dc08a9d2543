"""A log directory that batches of rows are appended to, each once. docs/decisions/0010-writing-rows.md.

Workers stage closed sets under names that nobody else gives; a manifest, put once, says which offsets they get: that is
the commit. Then they are appended at these offsets: what a crash left undone in there, the next commit does first, and
a set that is there already is left out by its offset.
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

from magicbyte.errors import LogDirectoryError
from magicbyte.log.files.filesystem import LocalFile, sync_directory
from magicbyte.log.files.names import FolderState, folder_name
from magicbyte.log.files.reader import CHUNK_BYTES, read_chunks
from magicbyte.ports import TopicPartition
from magicbyte.records.header import extent_of
from magicbyte.records.layout import OFFSET
from magicbyte.records.scan import scan

if TYPE_CHECKING:
    from magicbyte.log.live.partition_log import PartitionLog
    from magicbyte.mirror.log_target import LogTarget
    from magicbyte.records.scan import BatchTable

Json = dict[str, Any]

WORK: Final = ".spark"
"""The folder of what is staged."""
FORM: Final = 1
LOCK_SECONDS: Final = 30.0
"""How long a commit waits for another one to the same log directory."""
_LOCK_POLL_SECONDS: Final = 0.02
_MANIFEST: Final = re.compile(r"spark-([0-9]{8})\.json")


@dataclass(frozen=True, slots=True)
class Staged:
    """The sets of one partition that a task wrote, in order. `path` is that of a file in WORK."""

    topic: str
    partition: int
    path: str
    size: int
    records: int


def stage(folder: Path, sets: Iterable[tuple[TopicPartition, memoryview, int]]) -> Iterator[Staged]:
    """Write sets, each with the number of its records, to a file for each partition; yield what there is, durable."""
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
    """The log directory. Nothing is held between two calls. `partitions`: of a topic that it does not have yet."""

    path: Path
    partitions: int = 1

    def folder(self, writer: str) -> Path:
        """Return where a writer's tasks stage what they write."""
        return self.path / WORK / writer

    def give_up(self, writer: str) -> None:
        """Remove what the tasks of a writer staged."""
        shutil.rmtree(self.folder(writer), ignore_errors=True)
        with contextlib.suppress(OSError):  # others are at work
            (self.path / WORK).rmdir()  # brokers wonder at folders that are no partitions

    def commit(self, writer: str, batch: int | None, staged: Sequence[Staged]) -> None:
        """Append what was staged, unless this batch of the writer was. Batches of a writer come in ascending order.

        `batch` None: nobody will ask for it again. A commit whose query was killed may still be on its way when the
        next one comes: whichever is second finds the batch committed, and touches nothing but its own files. Raises
        LogDirectoryError when somebody else has the log directory, or has changed what was being appended to, and for
        staged files that are gone.
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
        """Open the log directory, when nobody else has it. Raises LogDirectoryError when that takes too long."""
        from magicbyte.mirror.log_target import LogTarget

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
        """Return the last manifest and its number; 0 and None before the first one."""
        found = sorted(each.name for each in self.path.iterdir() if _MANIFEST.fullmatch(each.name))
        if not found:
            return 0, None
        manifest = json.loads((self.path / found[-1]).read_bytes())
        assert isinstance(manifest, dict)
        for name in found[:-1]:  # a crash left it
            (self.path / name).unlink()
        return int(found[-1][6:14]), manifest

    def _placed(self, target: LogTarget, staged: Sequence[Staged]) -> list[Json]:
        """Return what is appended where: each partition's sets behind its end, in the order of the tasks."""
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
        """Make all partitions of new topics, the last one first: how many there are says where later keys go."""
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
        """Append what a manifest says, as far as it is not there. What is durable is not staged any more."""
        due = [each for each in manifest["appends"] if (self.path / each["path"]).exists()]
        for each in due:
            self._append(target, each)
        for key in {(each["topic"], each["partition"]) for each in due}:
            target.flush(target.log(*key))
        for each in due:
            (self.path / each["path"]).unlink()

    def _append(self, target: LogTarget, each: Json) -> None:
        """Append the sets of one file. Raises LogDirectoryError where others are at their offsets."""
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
    """Return the partitions that a log directory has, by its folders; not those being deleted or copied."""
    if not folder.is_dir():
        return []
    names = (folder_name(str(each)) for each in folder.iterdir() if each.is_dir())
    return [found.key for found in names if found is not None and found.state is FolderState.CURRENT]


def check_staged(staged: Sequence[Staged]) -> None:
    """Raise LogDirectoryError unless all that was staged is there."""
    for each in staged:
        path = Path(each.path)
        if not path.exists() or path.stat().st_size != each.size:
            raise LogDirectoryError(f"{each.path}: expected {each.size} bytes staged by a task: the file is missing")


def remove_staged(staged: Sequence[Staged]) -> None:
    """Remove what was staged, with the folders of the tasks."""
    for folder in {Path(each.path).parent for each in staged}:
        shutil.rmtree(folder, ignore_errors=True)


def _bytes_between(log: PartitionLog, first: int, end: int) -> bytes:
    """Return the sets of a log from one offset to another, at which sets begin."""
    found = []
    while first < end and (part := log.read(first, CHUNK_BYTES)) is not None:
        table = scan(memoryview(part.read()))
        for row in range(len(table)):
            at = int(table.position[row])
            if int(table.offset[row]) < end:
                found.append(bytes(table.buffer[at : at + int(table.size[row])]))
            first = extent_of(table.buffer, at)[1] + 1
    return b"".join(found)


def stamped(table: BatchTable, offset: int) -> tuple[memoryview, int]:
    """Return a copy of batches, numbered from `offset` on, and the offset behind. No checksum covers an offset."""
    data = bytearray(table.buffer[: table.end])
    for row in range(len(table)):
        at = int(table.position[row])
        OFFSET.type.pack_into(data, at + OFFSET.start, offset)
        offset = extent_of(data, at)[1] + 1
    return memoryview(data), offset


def _name(number: int) -> str:
    return f"spark-{number:08}.json"
