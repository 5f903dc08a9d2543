"""The metadata log of a stopped KRaft node, or of a copy of one: the image of its cluster at an offset.

Reads the newest complete snapshot that the log continues, and the log after it, as Kafka does. Nothing is changed.
Source: Kafka's KafkaRaftClient, Snapshots and MetadataLoader; probed on 3.3.2 to 4.4.0.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magicbyte.engine.cluster.image import ClusterImage
from magicbyte.engine.cluster.image_json import image_json
from magicbyte.engine.cluster.metadata_fold import MetadataFold
from magicbyte.engine.cluster.metadata_records import read_metadata_record
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.internal_topics import CLUSTER_METADATA
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import read_chunks
from magicbyte.engine.records.control import ControlType, parse_control_record
from magicbyte.engine.records.decode import DecodeOptions, decode_rows
from magicbyte.engine.records.layout import CONTROL_BIT

if TYPE_CHECKING:
    from magicbyte.engine.log.files.chunk import Chunk
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.ports import FileEntry, FileSystem

_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_RECORDS: Final = DecodeOptions(headers=False, control=True)


@dataclass(frozen=True, slots=True)
class QuorumLog:
    """What the metadata log of a node says.

    `path`: its folder. `start`: the file name of the snapshot that it was read from, None without one. `end`: the
    offset after the last record read. `notes`: what was passed over, and why.
    """

    path: str
    image: ClusterImage
    start: str | None
    end: int
    notes: Sequence[str]

    def to_json(self, topics: Collection[str] | None = None) -> dict[str, Any]:
        """Return where the image is from, and the image."""
        origin = {"path": self.path, "snapshot": self.start, "endOffset": self.end, "notes": list(self.notes)}
        return origin | image_json(self.image, topics)


def quorum_folder(path: str) -> PartitionDirectory:
    """Return the folder of the metadata log at a path: that folder, or a log directory that has it.

    Raises LogDirectoryError if there is none, or more than one.
    """
    found = [each for each in discover(path) if each.topic == CLUSTER_METADATA]
    if len(found) == 1:
        return found[0]
    what = "no metadata log of a KRaft node" if not found else f"{len(found)} metadata logs"
    raise LogDirectoryError(f"{path}: {what}: expected one folder {CLUSTER_METADATA}-0")


def read_quorum(folder: PartitionDirectory, at: int | None = None) -> QuorumLog:
    """Read a metadata log up to the offset `at`, by default to its end.

    A torn last batch ends the log, as for Kafka. Raises LogDirectoryError if records before the log's start are
    missing, or `at` lies before the first record, and CorruptRecordError for other damage, with file and position.
    """
    notes = list[str]()
    end = None if at is None else at + 1
    fold, begin, start = _begin(folder, end, notes)
    position = begin
    for path, offset, value in _log(folder, begin, end, notes):
        if value is not None:
            _add(fold, offset, value, path)
        position = offset + 1
    if fold.has_open_transaction:
        notes.append("a transaction is open at the end: its records do not count")
    return QuorumLog(folder.path, fold.image(position - 1), start, position, tuple(notes))


def _begin(folder: PartitionDirectory, end: int | None, notes: list[str]) -> tuple[MetadataFold, int, str | None]:
    """Return the image to continue, the offset from which the log continues it, and the snapshot it was read from.

    Raises LogDirectoryError if the log does not reach back to one.
    """
    first = folder.segments[0].base_offset if folder.segments else 0
    for entry in _snapshots(folder, end):
        begin, fold = int(entry.name[:20]), MetadataFold()
        if begin < first:
            break
        if _read_snapshot(folder.files, entry, fold):
            return fold, begin, entry.name
        notes.append(f"{entry.name}: it has no footer, so it is incomplete: passed over")
    if first:
        raise LogDirectoryError(
            f"{folder.path}: the log begins at offset {first}, and no complete snapshot has what was before"
            + ("" if end is None else f", up to offset {end - 1}")
        )
    return MetadataFold(), 0, None


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
            for offset, key, value, is_control in _records(chunk):
                if is_control:
                    has_footer = parse_control_record(offset, key, value).type is ControlType.SNAPSHOT_FOOTER
                else:
                    _add(fold, offset, value, entry.path)
    return has_footer


def _log(
    folder: PartitionDirectory, begin: int, end: int | None, notes: list[str]
) -> Iterator[tuple[str, int, bytes | None]]:
    """Yield file, offset and value of the log's records from `begin` on; the values of control records are None."""
    last = folder.segments[-1] if folder.segments else None
    for segment, following in zip(folder.segments, [*folder.segments[1:], None], strict=True):
        if following is not None and following.base_offset <= begin:
            continue
        torn = list[CorruptRecordError]()
        with folder.files.open(segment.log.path) as file:
            try:
                for chunk in read_chunks(file, on_damage=torn.append):
                    for offset, _, value, is_control in _records(chunk):
                        if end is not None and offset >= end:
                            return
                        if offset >= begin:
                            yield segment.log.path, offset, None if is_control else value
            except CorruptRecordError as error:  # of a batch whose size is right
                torn.append(error.locate(path=segment.log.path))
        if torn and segment is not last:
            raise torn[0]
        notes += [f"{error}: the log ends before it, as for Kafka" for error in torn]


def _records(chunk: Chunk) -> Iterator[tuple[int, bytes | None, bytes | None, bool]]:
    """Yield offset, key and value of each record, and whether it is a control record."""
    table = chunk.table
    for row in range(len(table)):
        is_control = bool(int(table.attributes[row]) & CONTROL_BIT)
        try:
            for columns in decode_rows(table, [row], _RECORDS):
                for record in columns:
                    yield record.offset, record.key, record.value, is_control
        except CorruptRecordError as error:
            raise error.locate(path=chunk.path, shift=chunk.position) from None


def _add(fold: MetadataFold, offset: int, value: bytes | None, path: str) -> None:
    try:
        fold.add(read_metadata_record(value))
    except CorruptRecordError as error:
        raise error.locate(path=path, offsets=(offset, offset)) from None
