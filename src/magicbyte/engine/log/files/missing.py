"""Find what the files of a log directory prove to be missing: a partition, a segment, the end of a log.

The proof is in the checkpoints of the log directory, in the other files of the partition and in its other segments.
Every reader of folders uses this rule, so that none calls complete what another one does not. Source: Kafka's
LogManager and LogLoader, and the order in which they write and delete these files.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import LOG, parse_file
from magicbyte.engine.log.files.names import MAX_RELATIVE, FolderState, folder_name, offset_file
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.layout import Dialect

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import DirectoryFiles, FoundLogs, PartitionDirectory, SegmentFiles
    from magicbyte.engine.log.files.headers import Headers
    from magicbyte.engine.log.files.reader import DamageHandler
    from magicbyte.engine.ports import FileSystem

_OF_DERIVED: Final = "a broker makes it again from the log; so does `magicbyte rebuild-index`"
_OF_SPECIAL: Final = "a copy of the folder kept a link, but not its target; or the entry is not Kafka's"
_OF_ABSENT: Final = (
    "the folder was not copied or is lost; or its topic was deleted, or the partition moved, after the checkpoint was "
    "written"
)
_OF_LOGLESS: Final = "the .log files were not copied, for example because of *.log in a .gitignore"
_OF_SEGMENT: Final = "the .log file was not copied or is lost"
_OF_GAP: Final = (
    "a whole segment was not copied or is lost; or its records were removed by log compaction, of which neither a "
    "cleaner checkpoint nor another gap in this log gives evidence"
)
_OF_END: Final = (
    "the end of the log is cut off or its last segments are lost; or files were copied while the broker was writing"
)


NO_LOG: Final = "log"
"""The `what` of a partition folder without segments."""
SEGMENT: Final = "segment"
"""The `what` of a missing segment."""
END_OF_LOG: Final = "end of the log"
"""The `what` of a log that ends before an offset that it had reached. It may also be that of a copy made from a running
broker, whose checkpoints were copied later than the log.
"""


class Certainty(enum.Enum):
    """Whether records are missing."""

    RECORDS = "records"  # records were in what is missing
    UNKNOWN = "unknown"  # records may have been in it
    POSSIBLE = "possible"  # records were in it, unless compaction or a filter has removed them
    NOTHING = "nothing"  # no records were in it, or their absence is explained


class Missing(Struct, frozen=True):
    """What is missing, and what proves it.

    `path`: the file or folder that should be there. `offsets`: the first and the last missing one, as far as known;
    records below the first remaining one may have been deleted by retention before. `evidence`: the path of the file
    that names the last one. `cause`: likely ones.
    """

    topic: str | None
    partition: int | None
    path: str
    what: str
    expected: str
    found: str
    cause: str
    certainty: Certainty = Certainty.RECORDS
    offsets: tuple[int, int] | None = None
    evidence: str | None = None

    @property
    def may_have_records(self) -> bool:
        """Whether records were or may have been in it, compacted or not."""
        return self.certainty is not Certainty.NOTHING

    @property
    def is_loss(self) -> bool:
        """Whether a reader of the log has to take it for a loss: not what compaction or a filter leaves as well."""
        return self.certainty in (Certainty.RECORDS, Certainty.UNKNOWN)

    @property
    def count(self) -> int | None:
        """The number of missing offsets, None if unknown."""
        return None if self.offsets is None else self.offsets[1] - self.offsets[0] + 1

    def __str__(self) -> str:
        number = "" if self.offsets is None else f", offsets {self.offsets[0]}..{self.offsets[1]} ({self.count})"
        return f"{self.path}: {self.what}{number}: expected {self.expected}, found {self.found}: {self.cause}"

    def to_json(self) -> dict[str, Any]:
        """Return it as in the JSON of commands."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "path": self.path,
            "what": self.what,
            "expected": self.expected,
            "found": self.found,
            "offsets": None if self.offsets is None else list(self.offsets),
            "count": self.count,
            "certainty": self.certainty.value,
            "evidence": self.evidence,
            "cause": self.cause,
        }


class _Mark(NamedTuple):
    """An offset that a log had reached, and the file that says so."""

    offset: int
    path: str


class CheckpointedOffsets(Struct):
    """The offset checkpoints of log directories, each read once. A damaged one counts as empty: see `damage`."""

    damage: list[CorruptRecordError] = field(default_factory=list)
    _known: dict[str, dict[str, Mapping[TopicPartition, int]]] = field(default_factory=dict)

    def of(self, files: FileSystem, directory: str) -> dict[str, Mapping[TopicPartition, int]]:
        """Return the offsets in the checkpoints of a directory, by the name of the file."""
        if directory not in self._known:
            self._known[directory] = {name: self._read(files, directory, name) for name in _CHECKPOINTS}
        return self._known[directory]

    def _read(self, files: FileSystem, directory: str, name: str) -> Mapping[TopicPartition, int]:
        try:
            return parse_file(files, f"{directory}/{name}", checkpoints.parse_offset_checkpoint)
        except CorruptRecordError as error:
            self.damage.append(error)
        except (OSError, LogDirectoryError):  # no such file, or the partition folder stands alone
            pass
        return {}


_CHECKPOINTS: Final = checkpoints.OFFSET_CHECKPOINTS
_REACHED: Final = (checkpoints.HIGH_WATERMARK, checkpoints.RECOVERY_POINT)
"""Checkpoints of offsets that a log had reached. A cleaner checkpoint may name deleted partitions."""


def missing_in(logs: FoundLogs, topics: Collection[str] = (), *, reads: bool = True) -> list[Missing]:
    """Return everything that is missing at some paths, of these topics (none: of all).

    `reads`: whether to read the end of each log, a few blocks of its last segment; otherwise only names, sizes and the
    small files beside the logs count.
    """
    known = CheckpointedOffsets()
    missing: list[Missing] = []
    for partition in logs.partitions:
        if not topics or partition.topic in topics:
            missing += missing_of(partition, known, end_offset(partition) if reads else None)
    for directory in logs.directories:
        missing += missing_partitions(directory, logs.partitions, known, topics)
    return missing


def missing_partitions(
    directory: DirectoryFiles,
    partitions: Iterable[PartitionDirectory],
    known: CheckpointedOffsets,
    topics: Collection[str] = (),
) -> Iterator[Missing]:
    """Yield the partitions that the checkpoints of a log directory name, and that have no folder in it.

    `partitions`: those found, in this and in other directories.
    """
    of_directory = [each for each in partitions if each.log_directory == directory.path]
    present = {each.path.rstrip("/") for each in of_directory}
    # A store's manifest names partitions that are not below the folder of the checkpoints.
    known_keys = {(each.topic, each.partition) for each in of_directory if each.state is FolderState.CURRENT}
    offsets = known.of(directory.files, directory.path)
    for key in sorted({key for name in _CHECKPOINTS for key in offsets[name]}):
        path = f"{directory.path.rstrip('/')}/{key}"
        if path in present or key in known_keys or (topics and key.topic not in topics):
            continue
        start = offsets[checkpoints.LOG_START].get(key, 0)
        mark = _highest(_marks(directory.path, key, offsets))
        others = [name for name in directory.folders if (of := folder_name(name)) is not None and of.key == key]
        renamed = [name for name in others if name != str(key)]
        certainty, cause = Certainty.RECORDS, _OF_ABSENT
        if mark is None or mark.offset <= start:
            certainty = Certainty.NOTHING
        elif any(name.endswith(f"-{FolderState.DELETE.value}") for name in renamed):
            certainty, cause = Certainty.NOTHING, f"it is being deleted: {renamed[0]}"
        elif renamed:
            cause = f"its records may be in {renamed[0]}"
        kind = directory.folders.get(str(key), "no such folder")
        if kind != "no such folder":
            cause = _OF_SPECIAL
        yield Missing(
            key.topic, key.partition, path, "partition folder", _expected(start, mark), kind or "a folder without logs",
            cause, certainty, _span(start, mark), None if mark is None else mark.path,
        )  # fmt: skip


def missing_of(partition: PartitionDirectory, known: CheckpointedOffsets, end: int | None) -> list[Missing]:
    """Return what is missing of one partition. `end`: the end offset of its log as it was read, None if unknown."""
    if not partition.is_whole:
        return []
    unreadable = {
        name.offset: entry
        for entry in partition.special
        if (name := offset_file(entry.name)) is not None and name.kind == LOG and not name.suffix
    }
    start, mark = _evidence(partition, known)
    missing = [
        Missing(
            partition.topic, partition.partition, entry.path, "file", "a regular file", entry.kind,
            _OF_DERIVED if _is_derived(entry.name) else _OF_SPECIAL, Certainty.UNKNOWN,
        )
        for entry in partition.special
        if entry not in unreadable.values()
    ]  # fmt: skip
    lost = unreadable.keys() | _lost_bases(partition, end)
    if not partition.segments and not unreadable:
        if mark is not None and mark.offset > start:
            certainty = Certainty.RECORDS
        else:
            certainty = Certainty.UNKNOWN
        return [
            *missing,
            Missing(
                partition.topic, partition.partition, partition.path, NO_LOG, _expected(start, mark), "no .log file",
                _OF_LOGLESS, certainty, _span(start, mark), None if mark is None else mark.path,
            ),
        ]  # fmt: skip
    bases = sorted({segment.base_offset for segment in partition.segments} | lost)
    for base in sorted(lost):
        after = next((each for each in bases if each > base), None)
        until = mark if after is None else _Mark(after, f"{partition.path}/{after:020}{LOG}")
        entry, span = unreadable.get(base), _span(base, until)
        is_certain = span is not None or (entry is not None and until is None)
        missing.append(
            Missing(
                partition.topic, partition.partition, f"{partition.path}/{base:020}{LOG}", SEGMENT,
                _expected(base, until), "none, though it has an index" if entry is None else entry.kind,
                _OF_SEGMENT if entry is None else _OF_SPECIAL,
                Certainty.RECORDS if is_certain else Certainty.UNKNOWN, span,
                None if until is None else until.path,
            )
        )  # fmt: skip
    if end is not None:
        missing += _missing_between(partition, lost, start, known)
    if end is not None and mark is not None and mark.offset > end and not any(base >= end for base in lost):
        missing.append(
            Missing(
                partition.topic, partition.partition, partition.path, END_OF_LOG, _expected(end, mark),
                f"a log that ends before offset {end}", _OF_END, Certainty.RECORDS, _span(end, mark), mark.path,
            )
        )  # fmt: skip
    return missing


def end_offset(partition: PartitionDirectory) -> int | None:
    """Return the end offset of a log: of the complete entries in its last segment.

    Reads from the last entry of the offset index on. None if there is no segment, or if headers do not have it, as
    those of enriched wrappers; damage ends the reading.
    """
    if not partition.segments or partition.dialect is Dialect.ENRICHED:
        return None
    return _segment_end(partition, partition.segments[-1]).offset


class _SegmentEnd(NamedTuple):
    """The offset after the last readable entry of a segment. `is_whole`: no damage ended the reading."""

    offset: int
    is_whole: bool


def _segment_end(partition: PartitionDirectory, segment: SegmentFiles) -> _SegmentEnd:
    from magicbyte.engine.log.files.reader import MAX_OFFSET, SegmentReader

    try:
        position = SegmentReader(partition).start_position(segment, MAX_OFFSET)
    except CorruptRecordError:
        position = 0
    end, damage = segment.base_offset, list[CorruptRecordError]()
    for headers in _headers(partition, segment, position, damage.append):
        end = max(end, int(headers.last_offset.max()) + 1)
    return _SegmentEnd(end, not damage)


def _headers(
    partition: PartitionDirectory, segment: SegmentFiles, position: int, on_damage: DamageHandler
) -> Iterator[Headers]:
    """Yield the headers of a segment's entries from `position` on."""
    from magicbyte.engine.log.files.headers import read_headers
    from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES

    with partition.files.open(segment.log.path) as file:
        for headers in read_headers(
            file,
            start=position,
            dialect=partition.dialect,
            on_damage=on_damage,
            limit=DEFAULT_MAX_BATCH_BYTES,
            expected_bytes=0,
        ):
            if len(headers):
                yield headers


def _missing_between(
    partition: PartitionDirectory, lost: Collection[int], start: int, known: CheckpointedOffsets
) -> list[Missing]:
    """Return the offsets between adjacent segments, unless the log shows that it was compacted, which leaves such gaps.

    `lost`: base offsets of segments that other evidence proves to be missing. Without compaction, a broker names each
    segment by the end offset of the one before. Enriched wrappers do not tell their end in the header.
    """
    if partition.dialect is Dialect.ENRICHED:
        return []
    unfinished = {name.offset for each in partition.leftovers if (name := offset_file(each.name)) and name.kind == LOG}
    missing, shortened = [], []
    for before, after in itertools.pairwise(partition.segments):
        between = range(before.base_offset, after.base_offset)
        if any(base in between for base in (*lost, *unfinished)):  # reported, or a broker's unfinished exchange
            continue
        end = _segment_end(partition, before)
        if not end.is_whole or max(end.offset, start) >= after.base_offset:
            continue
        begin = _segment_start(partition, after)
        if begin.last_of_first_entry - before.base_offset > MAX_RELATIVE:
            continue  # the entry did not fit into the segment before: the writer began one, whatever lay between
        first = max(end.offset, start)
        last = min(after.base_offset, begin.offset) - 1
        if first > last:
            continue
        shortened.append(before)
        missing.append(
            Missing(
                partition.topic, partition.partition, f"{partition.path}/{end.offset:020}{LOG}", SEGMENT,
                f"records up to offset {last}, by the name {after.base_offset:020}{LOG}",
                f"a gap after {before.base_offset:020}{LOG}", _OF_GAP, Certainty.POSSIBLE, (first, last),
                after.log.path,
            )
        )  # fmt: skip
    return [] if missing and _was_compacted(partition, known, shortened) else missing


class _StartOffsets(NamedTuple):
    """The lowest offset in the first block of a segment, and the last one of its first entry.

    Both are the base offset of a segment without entries. The header of a wrapper has its last offset only, so the base
    offset may be a lower one.
    """

    offset: int
    last_of_first_entry: int


def _segment_start(partition: PartitionDirectory, segment: SegmentFiles) -> _StartOffsets:
    for headers in _headers(partition, segment, 0, lambda _: None):
        return _StartOffsets(int(headers.offset.min()), int(headers.last_offset[0]))
    return _StartOffsets(segment.base_offset, segment.base_offset)


def _was_compacted(
    partition: PartitionDirectory, known: CheckpointedOffsets, shortened: Iterable[SegmentFiles]
) -> bool:
    """Return whether a log shows that records were removed from it: by a cleaner checkpoint, or a gap in a segment.

    Reads headers up to the first gap; then the wrappers of `shortened`, those segments whose last records are missing.
    """
    above = partition.log_directory or partition.path.rstrip("/").rpartition("/")[0]
    if (partition.topic, partition.partition) in known.of(partition.files, above)[checkpoints.CLEANER]:
        return True
    return any(_has_gap(partition, segment) for segment in partition.segments) or any(
        _has_gap_in_wrappers(partition, segment) for segment in shortened
    )


def _has_gap(partition: PartitionDirectory, segment: SegmentFiles) -> bool:
    """Return whether offsets are missing in or between the entries of a segment, as far as headers tell.

    A wrapper's header has only its last offset.
    """
    next_offset = None
    for headers in _headers(partition, segment, 0, lambda _: None):
        span = headers.last_offset - headers.offset + 1
        follows = headers.offset[1:] == headers.last_offset[:-1] + 1
        if (headers.is_batch & (headers.count < span)).any() or not (follows | headers.is_wrapper[1:]).all():
            return True
        if next_offset is not None and not headers.is_wrapper[0] and headers.offset[0] != next_offset:
            return True
        next_offset = int(headers.last_offset[-1]) + 1
    return False


def _has_gap_in_wrappers(partition: PartitionDirectory, segment: SegmentFiles) -> bool:
    """Return whether offsets are missing in or between the wrappers of a segment: decompresses up to the first gap."""
    from magicbyte.engine.log.files.reader import decode_chunk, read_chunks, stop_at_damage
    from magicbyte.engine.records.decode import DecodeOptions

    options, next_offset = DecodeOptions(keys=False, values=False, headers=False, verify=False, control=True), None
    with partition.files.open(segment.log.path) as file, contextlib.suppress(CorruptRecordError):
        for chunk in read_chunks(file, dialect=partition.dialect):
            for columns in decode_chunk(chunk, range(len(chunk.table)), options, stop_at_damage):
                for row in range(len(columns)):
                    offset = int(columns.offset[row])
                    if next_offset is not None and offset != next_offset:
                        return True
                    next_offset = offset + 1
    return False


def _evidence(partition: PartitionDirectory, known: CheckpointedOffsets) -> tuple[int, _Mark | None]:
    """Return the log start offset of a partition, 0 if unknown, and the highest offset that its log had reached."""
    start, marks = 0, list[_Mark]()
    name = folder_name(partition.path)
    key = None if partition.topic is None else TopicPartition(partition.topic, partition.partition or 0)
    if name is not None and str(name.key) == partition.path.rstrip("/").rpartition("/")[2] and name.key == key:
        above = partition.log_directory or partition.path.rstrip("/").rpartition("/")[0]
        offsets = known.of(partition.files, above)
        start = offsets[checkpoints.LOG_START].get(key, 0)
        marks += _marks(above, key, offsets)
    marks += [_Mark(offset, entry.path) for offset, entry in partition.snapshots.items()]
    marks += [
        _Mark(parsed.offset, entry.path)
        for entry in partition.orphans
        if (parsed := offset_file(entry.name)) is not None
    ]
    try:
        epochs = partition.leader_epochs()
    except CorruptRecordError:  # reported by those who check the file
        epochs = None
    if epochs:
        marks.append(_Mark(epochs[-1].start_offset, partition.texts[checkpoints.LEADER_EPOCHS].path))
        if not partition.segments:
            start = max(start, epochs[0].start_offset)
    return start, _highest(marks)


def _lost_bases(partition: PartitionDirectory, end: int | None) -> set[int]:
    """Return the base offsets of segments that have an index, but no .log, and are not older than the log.

    A broker renames the files of a segment before it deletes them, the .log first. `end`: as in `missing_of`.
    """
    if not partition.segments:
        return set()
    deleted = {name.offset for each in partition.leftovers if (name := offset_file(each.name)) and name.kind == LOG}
    bases = {name.offset for each in partition.orphans if (name := offset_file(each.name)) is not None}
    first = partition.segments[0].base_offset
    return {base for base in bases - deleted if base > first and not _is_inside(partition, base, end)}


def _is_inside(partition: PartitionDirectory, base: int, end: int | None) -> bool:
    """Return whether the records at `base` are in a segment of a lower base, so that its index is only a leftover."""
    before = [segment for segment in partition.segments if segment.base_offset < base][-1]
    after = next((segment.base_offset for segment in partition.segments if segment.base_offset > base), None)
    if after is None and end is not None:
        return base < end
    reached = _segment_end(partition, before).offset
    return base < reached if after is None else after <= reached


def _marks(directory: str, key: TopicPartition, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> Iterator[_Mark]:
    for name in _REACHED:
        if (offset := offsets[name].get(key)) is not None:
            yield _Mark(offset, f"{directory}/{name}")


def _highest(marks: Iterable[_Mark]) -> _Mark | None:
    return max(marks, key=lambda mark: mark.offset, default=None)


def _expected(start: int, mark: _Mark | None) -> str:
    if mark is None:
        return "unknown records"
    name = mark.path.rpartition("/")[2]
    return f"records up to offset {mark.offset - 1}, by {name}" if mark.offset > start else f"no records, by {name}"


def _span(start: int, mark: _Mark | None) -> tuple[int, int] | None:
    return None if mark is None or mark.offset <= start else (start, mark.offset - 1)


def _is_derived(name: str) -> bool:
    parsed = offset_file(name)
    return parsed is not None and parsed.kind != LOG
