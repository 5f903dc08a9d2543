"""Find the logs at a path: segments with their companions, partition folders, log directories, or several of those.

Only names, sizes, and each folder's `message.dialect` are read. Source: Kafka's LogManager and UnifiedLog.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import Struct

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.filesystem import LocalFiles, SpecialEntry, file_system, read_whole
from magicbyte.engine.log.files.manifest import LARGEST, manifest_name, newest, parse_stored
from magicbyte.engine.log.files.names import (
    NOT_OURS,
    FolderState,
    OffsetFile,
    folder_name,
    is_log_file,
    is_named_by_offset,
    lone_segment,
    offset_file,
)
from magicbyte.engine.ports import FileEntry, TopicPartition
from magicbyte.engine.records.layout import Dialect

if TYPE_CHECKING:
    from magicbyte.engine.log.files.indexes import EnrichedIndex, OffsetIndex, TimeIndex, TransactionIndex
    from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
    from magicbyte.engine.ports import FileSystem, Many

T = TypeVar("T")

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
ENRICHED_INDEX = ".emindex"
SNAPSHOT = ".snapshot"
INDEXES = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, ENRICHED_INDEX)

_PARTITION_TEXTS = (checkpoints.LEADER_EPOCHS, checkpoints.PARTITION_METADATA)
_LEFTOVER = re.compile(r".+\.(deleted|cleaned|swap)")
_LOG_DIRECTORY_FILES = {*checkpoints.OFFSET_CHECKPOINTS, checkpoints.META_PROPERTIES, checkpoints.CLEAN_SHUTDOWN}
_REMOTE_DEPTH = 2  # folders below a URL: of log directories, then of partitions. A local path: any depth
EXPECTED = "a .log file, a partition folder, a log directory or a folder above log directories"


class SegmentFiles(Struct, frozen=True):
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
    others: tuple[FileEntry, ...]  # files and folders that are not Kafka's
    special: tuple[SpecialEntry, ...] = ()  # entries with the name of a Kafka file that are no files
    is_whole: bool = True  # whether these are all files of the folder: not if one segment was asked for

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
        from magicbyte.engine.log.files.indexes import OffsetIndex

        def read(content: bytes) -> OffsetIndex:
            index = OffsetIndex.parse(content, segment.base_offset)
            index.verify(segment.log.size)
            return index

        return self._companion(segment, OFFSET_INDEX, read)

    def time_index(self, segment: SegmentFiles) -> TimeIndex | None:
        """Return the verified `.timeindex` of a segment, None when there is none. Raises CorruptRecordError."""
        from magicbyte.engine.log.files.indexes import TimeIndex

        def read(content: bytes) -> TimeIndex:
            index = TimeIndex.parse(content, segment.base_offset)
            index.verify()
            return index

        return self._companion(segment, TIME_INDEX, read)

    def transaction_index(self, segment: SegmentFiles) -> TransactionIndex | None:
        """Return the verified `.txnindex` of a segment, None when there is none. Raises CorruptRecordError."""
        from magicbyte.engine.log.files.indexes import TransactionIndex

        def read(content: bytes) -> TransactionIndex:
            index = TransactionIndex.parse(content)
            index.verify()
            return index

        return self._companion(segment, TRANSACTION_INDEX, read)

    def enriched_index(self, segment: SegmentFiles) -> EnrichedIndex | None:
        """Return the verified `.emindex` of a segment, None when there is none. Raises CorruptRecordError."""
        from magicbyte.engine.log.files.indexes import EnrichedIndex

        def read(content: bytes) -> EnrichedIndex:
            index = EnrichedIndex.parse(content, segment.base_offset)
            index.verify(segment.log.size)
            return index

        return self._companion(segment, ENRICHED_INDEX, read)

    def snapshot(self, offset: int) -> ProducerSnapshot:
        """Return the producer snapshot at `offset`, one of `snapshots`. Raises CorruptRecordError."""
        from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot

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
    folders: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    """Entries named as partition folders; None for a folder, else what it is, such as "a FIFO"."""

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


class FoundLogs(Struct, frozen=True):
    """The partition folders at some paths, and the log directories that hold them or should hold some.

    A log directory without any partition folder is among `directories` if its checkpoints are there.
    """

    partitions: list[PartitionDirectory]
    directories: list[DirectoryFiles]


def discover(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    as_: TopicPartition | None = None,
    *,
    many: Many = map,
) -> list[PartitionDirectory]:
    """Return all partition folders at `paths`, in the order of the paths, then of topic and partition.

    One path, or several. A path is a `.log` file (then its segment alone is in the result), a partition folder of any
    name, a log directory or a folder above log directories, at any depth (below a URL: two folders deep). `as_` names
    the one partition found. A `.log` file that is not named by an offset is a segment if it is called `TOPIC-N.log`, or
    with `as_`. `many` lists the folders of a store.
    Raises LogDirectoryError for a path that holds no log, or when `as_` cannot apply, CorruptRecordError for a damaged
    `message.dialect`.
    """
    return _find(paths, as_, many, needs_partition=True).partitions


def survey(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    as_: TopicPartition | None = None,
    *,
    many: Many = map,
    needs_partition: bool = False,
) -> FoundLogs:
    """Return the partition folders at `paths` as `discover` does, and the log directories.

    For readers that report what is missing: a log directory of which only the checkpoints are left raises nothing,
    unless `needs_partition`.
    """
    return _find(paths, as_, many, needs_partition=needs_partition)


def _find(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    as_: TopicPartition | None,
    many: Many,
    *,
    needs_partition: bool,
) -> FoundLogs:
    partitions: list[PartitionDirectory] = []
    empty: list[DirectoryFiles] = []
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    for path in [os.fspath(each) for each in given]:
        files, inside = file_system(path)
        is_remote = "://" in inside
        search = _Search(files, many if is_remote else map, as_)
        try:
            below = search.at(inside if is_remote else _with_names(inside))
        except FileNotFoundError as error:
            raise LogDirectoryError(f"{path}: no such file or folder") from error
        except (OSError, ValueError) as error:  # ValueError: a path with a NUL, a URL without a host
            raise LogDirectoryError(f"{path}: expected {EXPECTED}: {error}") from error
        if not below and (needs_partition or not search.empty):
            raise LogDirectoryError(f"{path}: expected {EXPECTED}, found no log in it{_of_empty(search)}")
        partitions += sorted(below, key=lambda each: (each.topic or "", each.partition or 0, each.path))
        empty += search.empty
    if as_ is not None:
        if len(partitions) != 1:
            raise LogDirectoryError(
                f"{as_} names one partition: expected one partition folder, found {len(partitions)}"
            )
        partitions = [replace(partitions[0], topic=as_.topic, partition=as_.partition)]
    found = log_directories(partitions)
    known = {each.path for each in found}
    return FoundLogs(partitions, [*found, *(each for each in empty if each.path not in known)])


def _of_empty(search: _Search) -> str:
    if search.empty:
        return f": {search.empty[0].path} has the checkpoints of a broker, but no partition folder (`magicbyte verify`)"
    return "" if isinstance(search.files, LocalFiles) else f", {_REMOTE_DEPTH} folders deep"


def log_directories(partitions: Iterable[PartitionDirectory]) -> list[DirectoryFiles]:
    """Return the log directories that hold `partitions`, each once. Raises LogDirectoryError when one is gone."""
    above = {each.log_directory: each.files for each in partitions if each.log_directory is not None}
    directories = []
    for path, files in above.items():
        try:
            directories.append(_directory(files, path, _scan(files, path)))
        except OSError as error:
            raise LogDirectoryError(f"{path}: expected a log directory: {error}") from error
    return directories


class _Listing(NamedTuple):
    """The entries of a directory."""

    entries: Sequence[FileEntry]
    special: Sequence[SpecialEntry]

    @property
    def names(self) -> list[str]:
        """All names."""
        return [*(each.name for each in self.entries), *(each.name for each in self.special)]

    @property
    def holds_segments(self) -> bool:
        """Whether these are the files of a partition folder: one of them is named by an offset."""
        return any(map(is_named_by_offset, self.names))

    def is_of_partition(self, path: str, *, in_log_directory: bool) -> bool:
        """Return whether `path`, with these entries, is a partition folder, with or without its segments."""
        if self.holds_segments:
            return True
        if folder_name(path) is None:
            return False
        names = self.names
        return (in_log_directory and not names) or any(name in _PARTITION_TEXTS for name in names)


def _scan(files: FileSystem, path: str) -> _Listing:
    return _Listing(*files.scan(path)) if isinstance(files, LocalFiles) else _Listing(files.list(path), [])


def _directory(files: FileSystem, path: str, listing: _Listing) -> DirectoryFiles:
    texts = {entry.name: entry for entry in listing.entries if entry.name in _LOG_DIRECTORY_FILES}
    folders = {
        entry.name: None if entry.is_directory else "a file" for entry in listing.entries if folder_name(entry.name)
    } | {each.name: each.kind for each in listing.special if folder_name(each.name)}
    return DirectoryFiles(path, files, texts, folders)


@dataclass(slots=True)
class _Search:
    """The search for partition folders below one path. `empty`: log directories without a partition folder."""

    files: FileSystem
    many: Many
    as_: TopicPartition | None
    empty: list[DirectoryFiles] = field(default_factory=list)
    _searched: set[tuple[int, int]] = field(default_factory=set)

    def at(self, path: str) -> list[PartitionDirectory]:
        """Return the partitions at `path`."""
        files = self.files
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
            listing = _scan(files, folder)
            committed = _committed(files, folder, listing.entries)
            if committed is not None:
                return committed
            if listing.is_of_partition(folder, in_log_directory=False):
                return [_partition(files, folder, listing, None)]
            return self._below(folder, listing, 1)
        name = _offset_file(entry.name)
        if name is None and entry.name.endswith(LOG) and (key := self.as_ or lone_segment(entry.name)) is not None:
            return [_lone(files, entry, key)]
        if name is None or name.kind != LOG:
            hint = " (--as TOPIC-N names a segment outside of its folder)" if entry.name.endswith(LOG) else ""
            raise LogDirectoryError(f"{path}: expected {EXPECTED}, found a file of another name{hint}")
        folder = entry.path.removesuffix(entry.name).rstrip("/") or "/"
        whole = _partition(files, folder, _scan(files, folder), None)
        segments = tuple(segment for segment in whole.segments if segment.log.name == entry.name)
        return [replace(whole, segments=segments, is_whole=len(segments) == len(whole.segments))]

    def _below(self, path: str, listing: _Listing, depth: int) -> list[PartitionDirectory]:
        """Return the partition folders below `path`, which is no partition folder itself."""
        if self._was_searched(path):
            return []
        names = [
            entry.path
            for entry in listing.entries
            if entry.is_directory and not entry.name.startswith(".") and entry.name not in NOT_OURS
        ]
        listings = self.many(partial(_scan, self.files), names)
        folders = dict(zip(names, listings, strict=True))
        is_log_directory = any(each.holds_segments for each in folders.values()) or any(
            entry.name in _LOG_DIRECTORY_FILES for entry in listing.entries
        )
        partitions = []
        has_folders = False
        for folder, inside in folders.items():
            if inside.is_of_partition(folder, in_log_directory=is_log_directory):
                partitions.append(_partition(self.files, folder, inside, path))
                has_folders = True
            elif depth < _REMOTE_DEPTH or isinstance(self.files, LocalFiles):
                partitions += self._below(folder, inside, depth + 1)
        if not has_folders and any(entry.name in checkpoints.OFFSET_CHECKPOINTS for entry in listing.entries):
            self.empty.append(_directory(self.files, path, listing))
        return partitions

    def _was_searched(self, path: str) -> bool:
        """Return whether a folder was searched before, under this name or by a link, and note that it is."""
        if not isinstance(self.files, LocalFiles):
            return False
        status = Path(path).stat()
        key = status.st_dev, status.st_ino
        if key in self._searched:
            return True
        self._searched.add(key)
        return False


def _lone(files: FileSystem, log: FileEntry, key: TopicPartition) -> PartitionDirectory:
    """Return the partition of one segment outside of its folder. Its base offset is unknown: 0, the lowest one."""
    return PartitionDirectory(
        path=log.path,
        files=files,
        topic=key.topic,
        partition=key.partition,
        state=FolderState.CURRENT,
        dialect=Dialect.KAFKA,
        log_directory=None,
        segments=(SegmentFiles(0, log, {}),),
        snapshots={},
        texts={},
        leftovers=(),
        orphans=(),
        others=(),
        is_whole=False,
    )


def _committed(files: FileSystem, path: str, entries: Sequence[FileEntry]) -> list[PartitionDirectory] | None:
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
        found.append(_partition(files, folder, _Listing(objects, []), beside))
    return found


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


def _partition(files: FileSystem, path: str, listing: _Listing, log_directory: str | None) -> PartitionDirectory:
    """Sort the files of one partition folder by kind."""
    by_kind: dict[str, dict[int, FileEntry]] = {kind: {} for kind in (LOG, *INDEXES, SNAPSHOT)}
    texts: dict[str, FileEntry] = {}
    leftovers, others = [], []
    special = [each for each in listing.special if is_log_file(each.name)]
    for entry in listing.entries:
        name = _offset_file(entry.name)
        if entry.is_directory and is_log_file(entry.name):
            special.append(SpecialEntry(entry.path, "a folder"))
        elif entry.is_directory:
            others.append(entry)
        elif name is not None:
            by_kind[name.kind][name.offset] = entry
        elif entry.name in (*_PARTITION_TEXTS, checkpoints.MESSAGE_DIALECT):
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
        others=tuple(others)
        + tuple(FileEntry(each.path, 0, False) for each in listing.special if not is_log_file(each.name)),
        special=tuple(special),
    )
