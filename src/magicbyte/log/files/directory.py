"""Find the logs at a path: segments with their companions, partition folders, log directories, or several of those.

Only names, sizes, and each folder's `message.dialect` are read. Source: Kafka's LogManager and UnifiedLog.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from magicbyte.errors import CorruptRecordError, LogDirectoryError
from magicbyte.log.files import checkpoints
from magicbyte.log.files.filesystem import LocalFiles, file_system, read_whole
from magicbyte.log.files.manifest import LARGEST, manifest_name, newest, parse_stored
from magicbyte.log.files.names import FolderState, OffsetFile, folder_name, is_named_by_offset, offset_file
from magicbyte.ports import FileEntry, TopicPartition
from magicbyte.records.layout import Dialect

if TYPE_CHECKING:
    from magicbyte.log.files.indexes import EnrichedIndex, OffsetIndex, TimeIndex, TransactionIndex
    from magicbyte.log.files.producer_snapshot import ProducerSnapshot
    from magicbyte.ports import FileSystem, Many

T = TypeVar("T")

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
ENRICHED_INDEX = ".emindex"
SNAPSHOT = ".snapshot"
INDEXES = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, ENRICHED_INDEX)

_LEFTOVER = re.compile(r".+\.(deleted|cleaned|swap)")
_LOG_DIRECTORY_FILES = {*checkpoints.OFFSET_CHECKPOINTS, checkpoints.META_PROPERTIES, checkpoints.CLEAN_SHUTDOWN}
_DEPTH = 2  # folders below a given path: of log directories, then of partitions
EXPECTED = "a .log file, a partition folder, a log directory or a folder of log directories"


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """A `.log` file and the index files of the same base offset, by suffix (INDEXES)."""

    base_offset: int
    log: FileEntry
    companions: Mapping[str, FileEntry]


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """One partition folder, or the requested part of it. `topic` and `partition` are None if nothing names them."""

    path: str
    files: FileSystem = field(repr=False, compare=False)
    topic: str | None
    partition: int | None
    state: FolderState
    dialect: Dialect
    log_directory: str | None  # the folder above, when that is a log directory
    segments: tuple[SegmentFiles, ...]  # by base offset
    snapshots: Mapping[int, FileEntry]  # by offset
    texts: Mapping[str, FileEntry]  # leader-epoch-checkpoint, partition.metadata, message.dialect
    leftovers: tuple[FileEntry, ...]  # .deleted, .cleaned and .swap: work that a broker had not finished
    orphans: tuple[FileEntry, ...]  # index files without a .log
    others: tuple[FileEntry, ...]  # files that are not Kafka's

    @property
    def name(self) -> str:
        """The partition as `topic-partition`, or the path if nothing names it."""
        return self.path if self.topic is None else f"{self.topic}-{self.partition}"

    @property
    def size(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.log.size for segment in self.segments)

    def offset_index(self, segment: SegmentFiles) -> OffsetIndex | None:
        """Return the verified `.index` of a segment, None when there is none. Raises CorruptRecordError."""
        from magicbyte.log.files.indexes import OffsetIndex

        def read(content: bytes) -> OffsetIndex:
            index = OffsetIndex.parse(content, segment.base_offset)
            index.verify(segment.log.size)
            return index

        return self._companion(segment, OFFSET_INDEX, read)

    def time_index(self, segment: SegmentFiles) -> TimeIndex | None:
        """Return the verified `.timeindex` of a segment, None when there is none. Raises CorruptRecordError."""
        from magicbyte.log.files.indexes import TimeIndex

        def read(content: bytes) -> TimeIndex:
            index = TimeIndex.parse(content, segment.base_offset)
            index.verify()
            return index

        return self._companion(segment, TIME_INDEX, read)

    def transaction_index(self, segment: SegmentFiles) -> TransactionIndex | None:
        """Return the verified `.txnindex` of a segment, None when there is none. Raises CorruptRecordError."""
        from magicbyte.log.files.indexes import TransactionIndex

        def read(content: bytes) -> TransactionIndex:
            index = TransactionIndex.parse(content)
            index.verify()
            return index

        return self._companion(segment, TRANSACTION_INDEX, read)

    def enriched_index(self, segment: SegmentFiles) -> EnrichedIndex | None:
        """Return the verified `.emindex` of a segment, None when there is none. Raises CorruptRecordError."""
        from magicbyte.log.files.indexes import EnrichedIndex

        def read(content: bytes) -> EnrichedIndex:
            index = EnrichedIndex.parse(content, segment.base_offset)
            index.verify(segment.log.size)
            return index

        return self._companion(segment, ENRICHED_INDEX, read)

    def snapshot(self, offset: int) -> ProducerSnapshot:
        """Return the producer snapshot at `offset`, one of `snapshots`. Raises CorruptRecordError."""
        from magicbyte.log.files.producer_snapshot import ProducerSnapshot

        return parse_file(self.files, self.snapshots[offset].path, ProducerSnapshot.parse)

    def leader_epochs(self) -> list[checkpoints.LeaderEpoch] | None:
        """Return the leader epochs, None when there is no such file. Raises CorruptRecordError."""
        return self._text(checkpoints.LEADER_EPOCHS, checkpoints.parse_leader_epochs)

    def metadata(self) -> checkpoints.PartitionMetadata | None:
        """Return the content of `partition.metadata`, None without such a file. Raises CorruptRecordError."""
        return self._text(checkpoints.PARTITION_METADATA, checkpoints.parse_partition_metadata)

    def _text(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        entry = self.texts.get(name)
        return None if entry is None else parse_file(self.files, entry.path, parse)

    def _companion(self, segment: SegmentFiles, suffix: str, parse: Callable[[bytes], T]) -> T | None:
        entry = segment.companions.get(suffix)
        return None if entry is None else parse_file(self.files, entry.path, parse)


@dataclass(frozen=True, slots=True)
class DirectoryFiles:
    """The files beside the partition folders, by name. Each is read on demand."""

    path: str
    files: FileSystem = field(repr=False, compare=False)
    texts: Mapping[str, FileEntry]

    def offsets(self, name: str) -> dict[TopicPartition, int] | None:
        """Return one of the OFFSET_CHECKPOINTS, None when there is no such file. Raises CorruptRecordError."""
        return self._text(name, checkpoints.parse_offset_checkpoint)

    def meta_properties(self) -> checkpoints.MetaProperties | None:
        """Return the content of `meta.properties`, None without such a file. Raises CorruptRecordError."""
        return self._text(checkpoints.META_PROPERTIES, checkpoints.parse_meta_properties)

    def clean_shutdown(self) -> checkpoints.CleanShutdown | None:
        """Return the clean shutdown marker, None when there is none. Raises CorruptRecordError."""
        return self._text(checkpoints.CLEAN_SHUTDOWN, checkpoints.parse_clean_shutdown)

    def _text(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        entry = self.texts.get(name)
        return None if entry is None else parse_file(self.files, entry.path, parse)


def parse_file(files: FileSystem, path: str, parse: Callable[[bytes], T]) -> T:
    """Return `parse` of the small file's content. A CorruptRecordError names the file."""
    content = read_whole(files, path)
    try:
        return parse(content)
    except CorruptRecordError as error:
        raise error.locate(path=path) from None


def parse_topic_partition(text: str) -> TopicPartition:
    """Return the partition that `TOPIC-N` names: the number is after the last `-`. Raises LogDirectoryError."""
    found = folder_name(text)
    if found is None or found.state is not FolderState.CURRENT:
        raise LogDirectoryError(f"{text}: expected TOPIC-N, a topic and a partition number, such as orders-0")
    return found.key


def discover(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    as_: TopicPartition | None = None,
    *,
    many: Many = map,
) -> list[PartitionDirectory]:
    """Return all partition folders at `paths`, in the order of the paths, then of topic and partition.

    One path, or several. A path is a `.log` file (then its segment alone is in the result), a partition folder of any
    name, a log directory or a folder of log directories; of this machine or a URL. `as_` names the one partition
    found. `many` lists the folders of a store.
    Raises LogDirectoryError for a path that holds no log, or when `as_` cannot apply, CorruptRecordError for a damaged
    `message.dialect`.
    """
    partitions: list[PartitionDirectory] = []
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    for path in [os.fspath(each) for each in given]:
        files, inside = file_system(path)
        try:
            if "://" in inside:
                below = _partitions(files, inside, many)
            else:
                below = _partitions(files, _with_names(inside), map)
        except (OSError, ValueError) as error:  # ValueError: a path with a NUL, a URL without a host
            raise LogDirectoryError(f"{path}: expected {EXPECTED}: {error}") from error
        if not below:
            raise LogDirectoryError(f"{path}: expected {EXPECTED}, found no log in it")
        partitions += sorted(below, key=lambda each: (each.topic or "", each.partition or 0, each.path))
    if as_ is None:
        return partitions
    if len(partitions) != 1:
        raise LogDirectoryError(f"{as_} names one partition: expected one partition folder, found {len(partitions)}")
    return [replace(partitions[0], topic=as_.topic, partition=as_.partition)]


def log_directories(partitions: Iterable[PartitionDirectory]) -> list[DirectoryFiles]:
    """Return the log directories that hold `partitions`, each once. Raises LogDirectoryError when one is gone."""
    above = {each.log_directory: each.files for each in partitions if each.log_directory is not None}
    directories = []
    for path, files in above.items():
        try:
            entries = files.list(path)
        except OSError as error:
            raise LogDirectoryError(f"{path}: expected a log directory: {error}") from error
        texts = {entry.name: entry for entry in entries if entry.name in _LOG_DIRECTORY_FILES}
        directories.append(DirectoryFiles(path, files, texts))
    return directories


def _partitions(files: FileSystem, path: str, many: Many) -> list[PartitionDirectory]:
    try:
        entry = files.entry(path)
    except FileNotFoundError:
        above, _, last = path.rstrip("/").rpartition("/")
        known = [] if isinstance(files, LocalFiles) else _committed(files, above, files.list(above)) or []
        if found := [each for each in known if each.name == last]:
            return found
        raise
    if entry.is_directory:
        folder = entry.path.rstrip("/") or "/"
        inside = files.list(folder)
        committed = _committed(files, folder, inside)
        return _below(files, folder, inside, _DEPTH, many) if committed is None else committed
    name = _offset_file(entry.name)
    if name is None or name.kind != LOG:
        raise LogDirectoryError(f"{path}: expected {EXPECTED}, found a file of another name")
    folder = entry.path.removesuffix(entry.name).rstrip("/") or "/"
    whole = _partition(files, folder, files.list(folder), None)
    segments = tuple(segment for segment in whole.segments if segment.log.name == entry.name)
    return [replace(whole, segments=segments)]


def _committed(files: FileSystem, path: str, entries: list[FileEntry]) -> list[PartitionDirectory] | None:
    """Return the partitions that a pipeline committed to an object store; None without such a manifest.

    The manifest names their objects. Nothing is listed, and other objects are ignored.
    """
    number = 0 if isinstance(files, LocalFiles) else newest(entry.name for entry in entries)
    if not number:
        return None
    stored = parse_stored(read_whole(files, f"{path}/{manifest_name(number)}", limit=LARGEST))
    if stored is None or stored.tables:
        return None
    beside = f"{path}/{stored.checkpoints}"
    found = []
    for output in stored.outputs:
        folder = f"{path}/{output.at}"
        objects = [FileEntry(f"{folder}/{name}", size, is_directory=False) for name, size, _ in output.files]
        found.append(_partition(files, folder, objects, beside))
    return found


def _below(files: FileSystem, path: str, entries: list[FileEntry], depth: int, many: Many) -> list[PartitionDirectory]:
    """Return the partition folder at `path`, or those below it."""
    if _holds_segments(entries):
        return [_partition(files, path, entries, None)]
    if depth == 0:
        return []
    names = [
        entry.path
        for entry in entries
        if entry.is_directory and not entry.name.startswith(".") and entry.name != "lost+found"
    ]
    folders = dict(zip(names, many(files.list, names), strict=True))
    is_log_directory = any(map(_holds_segments, folders.values())) or any(
        entry.name in _LOG_DIRECTORY_FILES for entry in entries
    )
    partitions = []
    for folder, inside in folders.items():
        if is_log_directory and (_holds_segments(inside) or (not inside and folder_name(folder))):
            partitions.append(_partition(files, folder, inside, path))
        else:
            partitions += _below(files, folder, inside, depth - 1, many)
    return partitions


def _holds_segments(entries: list[FileEntry]) -> bool:
    """Return whether these are the files of a partition folder: one of them is named by an offset."""
    return any(not entry.is_directory and is_named_by_offset(entry.name) for entry in entries)


def _with_names(path: str) -> str:
    """Return a local path whose last two parts are names, so that the folder's name can be read from it.

    The part before `..` is resolved as the file system does; a link at the end keeps its name.
    """
    parts = path.split("/")
    if len(parts) >= 2 and not {".", ".."} & set(parts):
        return path
    whole = Path(path).absolute()
    return os.path.realpath(whole) if whole.name == ".." else str(Path(os.path.realpath(whole.parent), whole.name))


def _offset_file(name: str) -> OffsetFile | None:
    """Return the parsed name of a closed segment's file; None for other files."""
    found = offset_file(name)
    return found if found is not None and not found.suffix else None


def _partition(files: FileSystem, path: str, entries: list[FileEntry], log_directory: str | None) -> PartitionDirectory:
    """Sort the files of one partition folder by kind."""
    by_kind: dict[str, dict[int, FileEntry]] = {kind: {} for kind in (LOG, *INDEXES, SNAPSHOT)}
    texts: dict[str, FileEntry] = {}
    leftovers, others = [], []
    for entry in entries:
        name = _offset_file(entry.name)
        if entry.is_directory:
            others.append(entry)
        elif name is not None:
            by_kind[name.kind][name.offset] = entry
        elif entry.name in (checkpoints.LEADER_EPOCHS, checkpoints.PARTITION_METADATA, checkpoints.MESSAGE_DIALECT):
            texts[entry.name] = entry
        elif _LEFTOVER.fullmatch(entry.name):
            leftovers.append(entry)
        else:
            others.append(entry)
    logs = by_kind[LOG]
    segments = tuple(
        SegmentFiles(base, logs[base], {kind: by_kind[kind][base] for kind in INDEXES if base in by_kind[kind]})
        for base in sorted(logs)
    )
    named = folder_name(path)
    dialect = texts.get(checkpoints.MESSAGE_DIALECT)
    return PartitionDirectory(
        path=path,
        files=files,
        topic=named.key.topic if named else None,
        partition=named.key.partition if named else None,
        state=named.state if named else FolderState.CURRENT,
        dialect=parse_file(files, dialect.path, checkpoints.parse_message_dialect) if dialect else Dialect.KAFKA,
        log_directory=log_directory,
        segments=segments,
        snapshots=dict(sorted(by_kind[SNAPSHOT].items())),
        texts=texts,
        leftovers=tuple(leftovers),
        orphans=tuple(entry for kind in INDEXES for base, entry in by_kind[kind].items() if base not in logs),
        others=tuple(others),
    )
