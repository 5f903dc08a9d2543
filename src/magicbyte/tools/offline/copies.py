"""Copy partitions before changing them, so that the original logs are unchanged."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import discover, parse_file
from magicbyte.engine.log.files.filesystem import LocalFiles, clone_file, exists, is_locked, put_file, sync_directory
from magicbyte.engine.log.files.outputs import inputs_of, refuse_overlap, refuse_used, whole_folder
from magicbyte.engine.log.live.log_directory import LOCK
from magicbyte.engine.ports import TopicPartition
from magicbyte.tools.offline.retain import refuse_unsettled

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory


@dataclass(frozen=True, slots=True)
class CopiedLogs:
    """Partitions in a temporary folder beside the output, renamed when all is done."""

    partitions: list[PartitionDirectory]
    folder: Path
    source: Path
    out: Path

    def final(self, path: str) -> str:
        """Return the final path of a path in the folder."""
        return str(self.out / Path(path).relative_to(self.folder))

    def relocate(self, error: CorruptRecordError) -> CorruptRecordError:
        """Replace the copy's path in an error by that of the original; return the error."""
        if error.path is not None and Path(error.path).is_relative_to(self.folder):
            error.path = str(self.source / Path(error.path).relative_to(self.folder))
        return error


@contextlib.contextmanager
def copied_logs(
    partitions: Collection[PartitionDirectory], out: Path, *, was_killed: bool = False
) -> Iterator[CopiedLogs]:
    """Yield copies of partitions of one log directory, and of its checkpoints; after the block they are at `out`.

    `was_killed`: take directories that were not closed, whose logs the next broker recovers. Those of several
    directories become one.

    `out` gets its name when all is durable, and after an error it does not exist. Raises LogDirectoryError for a log
    directory that is in use or was not closed, one that overlaps `out`, and an `out` that is not empty.
    """
    files = LocalFiles()
    for each in partitions:
        if not isinstance(each.files, LocalFiles):
            raise LogDirectoryError(f"{each.path}: expected a local folder")
    sources = sorted({str(Path(each.path).parent) for each in partitions})
    if len(sources) != 1 and not was_killed:
        raise LogDirectoryError(f"{out}: expected partitions of one log directory, found {' and '.join(sources)}")
    counts = Counter(Path(each.path).name for each in partitions)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise LogDirectoryError(f"{out}: expected {min(twice)} in one log directory, found it in several")
    refuse_overlap(out, inputs_of((), partitions))
    refuse_used(out)
    for source in sources:
        if was_killed and is_locked(Path(source, LOCK)):
            raise LogDirectoryError(f"{source}: a broker is using this log directory; it must be stopped first")
        if not was_killed:
            refuse_unsettled(files, source)
    with whole_folder(out, last=checkpoints.META_PROPERTIES) as folder:
        names = set()
        for each in partitions:
            _copy(Path(each.path), folder / Path(each.path).name)
            if each.topic is not None and each.partition is not None:
                names.add(TopicPartition(each.topic, each.partition))
        _copy_beside(files, sources, folder, names)
        copies = {Path(each.path).name: each for each in discover([str(folder)])}
        renamed = [
            replace(copies[Path(each.path).name], topic=each.topic, partition=each.partition) for each in partitions
        ]
        yield CopiedLogs(renamed, folder, Path(sources[0]), out)
        (folder / LOCK).unlink(missing_ok=True)
        sync_directory(folder)
    sync_directory(out.parent)


def lay_over(directory: Path, out: Path) -> None:
    """Make `out` a writable copy of a log directory, which is unchanged.

    With reflinks this takes neither time nor space. `out` gets its name when all is durable. Raises LogDirectoryError
    for a directory that is in use, one that overlaps `out`, and an `out` that is not empty.
    """
    refuse_overlap(out, [str(directory)])
    if is_locked(directory / LOCK):
        raise LogDirectoryError(f"{directory}: a broker is using this log directory; it must be stopped first")
    if out.exists() and any(out.iterdir()):
        raise LogDirectoryError(f"{out}: expected a new directory, or the overlay of an earlier run")
    with whole_folder(out) as folder:
        for each in sorted(directory.iterdir()):
            if each.is_dir():
                _copy(each, folder / each.name)
            elif each.is_file() and each.name != LOCK:
                clone_file(each, folder / each.name)
        sync_directory(folder)
    sync_directory(out.absolute().parent)


def _copy(source: Path, target: Path) -> None:
    """Copy the files of a partition folder, with their times, durably."""
    target.mkdir()
    for each in source.iterdir():
        if each.is_file():
            clone_file(each, target / each.name)
    sync_directory(target)


def _copy_beside(files: LocalFiles, sources: Sequence[str], folder: Path, names: set[TopicPartition]) -> None:
    """Copy the files beside the partitions, as far as they concern these, and the mark of a clean stop of all."""
    for name in checkpoints.OFFSET_CHECKPOINTS:
        chosen, is_there = dict[TopicPartition, int](), False
        for source in sources:
            if exists(files, f"{source}/{name}"):
                offsets = parse_file(files, f"{source}/{name}", checkpoints.parse_offset_checkpoint)
                chosen |= {key: offset for key, offset in offsets.items() if key in names}
                is_there = True
        if is_there:
            put_file(files, str(folder / name), checkpoints.format_offset_checkpoint(chosen))
    for name in (checkpoints.META_PROPERTIES, checkpoints.CLEAN_SHUTDOWN):
        if all(exists(files, f"{source}/{name}") for source in sources):
            put_file(files, str(folder / name), Path(sources[0], name).read_bytes())
