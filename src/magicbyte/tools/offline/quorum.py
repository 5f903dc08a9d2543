"""The metadata log of a stopped KRaft node, or of a copy of one: the image of its cluster at an offset.

Reads the newest complete snapshot that the log continues, and the log after it, as Kafka does. Nothing is changed.
Source: Kafka's KafkaRaftClient, Snapshots and MetadataLoader; probed on 3.3.2 to 4.4.0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from magicbyte.engine.cluster.changes import AclAdded, AclRemoved, Draft, difference
from magicbyte.engine.cluster.events import Event, events_of
from magicbyte.engine.cluster.image import ClusterImage
from magicbyte.engine.cluster.image_json import image_json
from magicbyte.engine.cluster.metadata_fold import MetadataFold
from magicbyte.engine.cluster.metadata_records import read_metadata_record
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.internal_topics import CLUSTER_METADATA
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.filesystem import file_system
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.records.control import ControlType, parse_control_record
from magicbyte.engine.records.decode import DecodeOptions, decode_rows
from magicbyte.engine.records.layout import CONTROL_BIT, PARTITION_LEADER_EPOCH

if TYPE_CHECKING:
    from magicbyte.engine.cluster.changes import ClusterChange
    from magicbyte.engine.cluster.metadata_fold import Watch
    from magicbyte.engine.log.files.chunk import Chunk
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.ports import FileEntry, FileSystem

BOOTSTRAP: Final = "bootstrap.checkpoint"
"""The records with which a new metadata log begins: in the log directory, made when it is formatted."""
FIRST_SNAPSHOT: Final = f"{CLUSTER_METADATA}-0/{0:020}-{0:010}.checkpoint"
"""The same of 4.4 and later; in earlier releases the first voters of a dynamic quorum."""
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_RECORDS: Final = DecodeOptions(headers=False, control=True)


class Note(NamedTuple):
    """What was passed over, and why. `is_damage`: because it is incomplete or damaged."""

    text: str
    is_damage: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class DescribedCluster:
    """What the metadata log of a node says, or a tree of nodes (`metadata_sources.py`).

    `path`: its folder. `start`: the file name of the snapshot that it was read from, None without one. `end`: the
    offset after the last record read, None of a tree. `notes`: what was passed over. `epoch`: of that record.
    """

    path: str
    image: ClusterImage
    start: str | None
    end: int | None
    notes: Sequence[Note]
    epoch: int = 0

    def to_json(self, topics: Collection[str] | None = None) -> dict[str, Any]:
        """Return where the image is from, and the image."""
        origin = {"path": self.path, "snapshot": self.start, "endOffset": self.end, "notes": list(map(str, self.notes))}
        return origin | image_json(self.image, topics)


class PastEvent(NamedTuple):
    """An event with the offset and the time (ms) of its record in the metadata log."""

    offset: int
    timestamp: int
    event: Event

    def to_json(self) -> dict[str, Any]:
        """Return the event with its offset and time."""
        return {"offset": self.offset, "timestamp": self.timestamp, **self.event.to_json()}


class _QuorumRecord(NamedTuple):
    path: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    is_control: bool
    epoch: int


def quorum_folder(path: str) -> PartitionDirectory:
    """Return the folder of the metadata log at a path: that folder, or a log directory that has it.

    Raises LogDirectoryError if there is none, or more than one.
    """
    found = [each for each in discover(path) if each.topic == CLUSTER_METADATA]
    if len(found) == 1:
        return found[0]
    what = "no metadata log of a KRaft node" if not found else f"{len(found)} metadata logs"
    raise LogDirectoryError(f"{path}: {what}: expected one folder {CLUSTER_METADATA}-0")


def read_quorum(folder: PartitionDirectory, at: int | None = None, *, salvages: bool = False) -> DescribedCluster:
    """Read a metadata log up to the offset `at`, by default to its end.

    A torn last batch ends the log, as for Kafka. Raises LogDirectoryError if records before the log's start are
    missing, or `at` lies before the first record, and CorruptRecordError for other damage, with file and position.
    `salvages`: other damage ends the log, too, and a damaged snapshot is passed over; notes say so.
    """
    notes = list[Note]()
    end = None if at is None else at + 1
    fold, begin, start = _begin(folder, end, notes, salvages=salvages)
    position, has_data, epoch = begin, start is not None, 0 if start is None else int(start[21:31])
    try:
        for record in _log(folder, begin, end, notes):
            _add(fold, record)
            position, has_data, epoch = record.offset + 1, has_data or not record.is_control, record.epoch
    except CorruptRecordError as error:
        if not salvages:
            raise
        notes.append(Note(f"{error}: the log ends before offset {position}, what follows is dropped", is_damage=True))
    if not has_data and (bootstrap := _bootstrap_of(folder)) is not None:
        return _read_bootstrap(folder.files, bootstrap, folder.path, position)
    if fold.has_open_transaction:
        notes.append(Note("a transaction is open at the end: its records do not count"))
    return DescribedCluster(folder.path, fold.image(position - 1), start, position, tuple(notes), epoch)


def read_bootstrap(path: str) -> DescribedCluster | None:
    """Return what a formatted directory starts with, None for one that is not: no node has used it yet.

    Raises CorruptRecordError.
    """
    files, entry = bootstrap_of(path)
    return None if entry is None else _read_bootstrap(files, entry, path, 0)


def bootstrap_of(path: str) -> tuple[FileSystem, FileEntry | None]:
    """Return the file with which the log of a formatted directory begins, None without one, and where it is."""
    files, inside = file_system(path)
    folder, _, name = FIRST_SNAPSHOT.partition("/")
    return files, _named(files, inside, BOOTSTRAP) or _named(files, f"{inside}/{folder}", name)


def _bootstrap_of(folder: PartitionDirectory) -> FileEntry | None:
    """Return the file with which the log of an empty folder begins. Kafka reads it only then."""
    return _named(folder.files, folder.path.rpartition("/")[0] or ".", BOOTSTRAP)


def _named(files: FileSystem, path: str, name: str) -> FileEntry | None:
    try:
        return next((each for each in files.list(path) if each.name == name and not each.is_directory), None)
    except OSError:  # the folder was named by itself, and what is around it cannot be read
        return None


def _read_bootstrap(files: FileSystem, entry: FileEntry, path: str, end: int) -> DescribedCluster:
    fold = MetadataFold()
    if not _read_snapshot(files, entry, fold):
        raise CorruptRecordError("first snapshot", expected="a footer", found="none").locate(path=entry.path)
    return DescribedCluster(path, fold.image(-1), entry.name, end, (Note("the log has no records yet"),))


def read_history(folder: PartitionDirectory, notes: list[Note]) -> Iterator[PastEvent]:
    """Yield what happened in a cluster, as far back as its metadata log reaches; `notes` gets what was passed over.

    Of a transaction everything happens at its end. What was before the log's start is known by a snapshot only: it did
    not happen at any known time, and a note says so. Raises as `read_quorum` does.
    """
    noted = list[Event]()

    def watch(before: Draft, change: ClusterChange) -> None:
        noted.extend(events_of(before, change))

    fold, begin, start = _begin(folder, None, notes, watch, oldest=True)
    if begin:
        notes.append(Note(f"the log begins at offset {begin}: what was before is known by {start} alone"))
    noted.clear()
    for record in _log(folder, begin, None, notes):
        _add(fold, record)
        for event in noted:
            yield PastEvent(record.offset, record.timestamp, event)
        noted.clear()


def differences(old: ClusterImage, new: ClusterImage) -> Iterator[Event]:
    """Yield what is different in another image: of the same cluster at another time, or of another one."""
    draft = Draft(old)
    for change in difference(old, new):
        if not isinstance(change, AclAdded | AclRemoved):  # the same as AclsChanged, with ids
            yield from events_of(draft, change)
            draft.apply(change)


@dataclass(frozen=True, slots=True)
class ClusterDifference:
    """How two clusters differ, or a cluster at two times."""

    old: DescribedCluster
    new: DescribedCluster
    events: Sequence[Event]

    @classmethod
    def of(
        cls, old: DescribedCluster, new: DescribedCluster, topics: Collection[str] | None = None
    ) -> ClusterDifference:
        """Compare two sources of metadata. `topics`: those to compare, by default everything."""
        events = [each for each in differences(old.image, new.image) if topics is None or each.topic in topics]
        return cls(old, new, events)

    def to_json(self) -> dict[str, Any]:
        """Return what was compared, and the differences."""
        sides = [{"path": each.path, "endOffset": each.end} for each in (self.old, self.new)]
        return {"old": sides[0], "new": sides[1], "differences": [each.to_json() for each in self.events]}


def _begin(
    folder: PartitionDirectory,
    end: int | None,
    notes: list[Note],
    watch: Watch | None = None,
    *,
    oldest: bool = False,
    salvages: bool = False,
) -> tuple[MetadataFold, int, str | None]:
    """Return the image to continue, the offset from which the log continues it, and the snapshot it was read from.

    The newest snapshot that the log continues, or with `oldest` the oldest. Raises LogDirectoryError if the log does
    not reach back to one.
    """
    first = folder.segments[0].base_offset if folder.segments else 0
    if oldest and not first:
        return MetadataFold(watch=watch), 0, None
    snapshots = _snapshots(folder, end)
    if oldest:
        snapshots = [each for each in snapshots if int(each.name[:20]) >= first][::-1]
    for entry in snapshots:
        begin, fold = int(entry.name[:20]), MetadataFold(watch=watch)
        if begin < first:
            break
        try:
            if _read_snapshot(folder.files, entry, fold):
                return fold, begin, entry.name
        except CorruptRecordError as error:
            if not salvages:
                raise
            notes.append(Note(f"{error}: the snapshot is passed over", is_damage=True))
            continue
        notes.append(Note(f"{entry.name}: it has no footer, so it is incomplete: passed over", is_damage=True))
    if first:
        raise LogDirectoryError(
            f"{folder.path}: the log begins at offset {first}, and no complete snapshot has what was before"
            + ("" if end is None else f", up to offset {end - 1}")
        )
    return MetadataFold(watch=watch), 0, None


def _snapshots(folder: PartitionDirectory, end: int | None) -> list[FileEntry]:
    """Return the snapshots that end no later than `end`, newest first: by their names, as Kafka orders them."""
    entries = folder.files.list(folder.path)
    named = {match[0]: (int(match[1]), int(match[2])) for each in entries if (match := _SNAPSHOT.fullmatch(each.name))}
    found = [each for each in entries if each.name in named and (end is None or named[each.name][0] <= end)]
    return sorted(found, key=lambda each: named[each.name], reverse=True)


def _read_snapshot(files: FileSystem, entry: FileEntry, fold: MetadataFold) -> bool:
    """Apply the records of a snapshot; return whether it has its footer."""
    has_footer = False
    with files.open(entry.path) as file:
        for chunk in read_chunks(file):
            for record in _records(chunk, entry.path):
                if record.is_control:
                    control = parse_control_record(record.offset, record.key, record.value)
                    has_footer = control.type is ControlType.SNAPSHOT_FOOTER
                else:
                    _add(fold, record)
    return has_footer


def _log(folder: PartitionDirectory, begin: int, end: int | None, notes: list[Note]) -> Iterator[_QuorumRecord]:
    """Yield the log's records from `begin` on."""
    last = folder.segments[-1] if folder.segments else None
    for segment, following in zip(folder.segments, [*folder.segments[1:], None], strict=True):
        if following is not None and following.base_offset <= begin:
            continue
        torn = list[CorruptRecordError]()
        with folder.files.open(segment.log.path) as file:
            try:
                for chunk in read_chunks(file, on_damage=torn.append):
                    for record in _records(chunk, segment.log.path):
                        if end is not None and record.offset >= end:
                            return
                        if record.offset >= begin:
                            yield record
            except CorruptRecordError as error:  # of a batch whose size is right
                torn.append(error.locate(path=segment.log.path))
        if torn and segment is not last:
            raise torn[0]
        notes += [Note(f"{error}: the log ends before it, as for Kafka", is_damage=True) for error in torn]


def _records(chunk: Chunk, path: str) -> Iterator[_QuorumRecord]:
    table = chunk.table
    epochs = table.gather(PARTITION_LEADER_EPOCH).tolist()
    for row in range(len(table)):
        is_control = bool(int(table.attributes[row]) & CONTROL_BIT)
        try:
            for columns in decode_rows(table, [row], _RECORDS):
                for each in columns:
                    yield _QuorumRecord(
                        path, each.offset, each.timestamp, each.key, each.value, is_control, epochs[row]
                    )
        except CorruptRecordError as error:
            raise error.locate(path=chunk.path, shift=chunk.position) from None


def _add(fold: MetadataFold, record: _QuorumRecord) -> None:
    """Apply a record. Control records change nothing."""
    if record.is_control:
        return
    try:
        fold.add(read_metadata_record(record.value))
    except CorruptRecordError as error:
        raise error.locate(path=record.path, offsets=(record.offset, record.offset)) from None
