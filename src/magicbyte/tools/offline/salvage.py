"""Recover the sound entries of damaged partitions into a new log, and report every loss.

For each segment the walk of log/files/resync.py returns rows of sound entries; those with ascending offsets form the
log. An entry out of order belongs to a moved block: it is inserted at its offset if this offset is missing, and if the
entry cannot be the content of a record. Duplicates, entries with an impossible offset and content of records are left
out and reported. docs/internals/salvage.md has the rules.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.entry_search import Limits
from magicbyte.engine.log.files.heads import entry_heads
from magicbyte.engine.log.files.index_writer import LATEST_RULES, IndexRules, looked_into
from magicbyte.engine.log.files.outputs import inputs_of, refuse_overlaps
from magicbyte.engine.log.files.partitions import log_start_offset, meta_properties
from magicbyte.engine.log.files.reader import CHUNK_BYTES, MAX_OFFSET, decode_chunk, read_chunks
from magicbyte.engine.log.files.resync import (
    Displaced,
    Gap,
    Outlier,
    RowOrder,
    Sound,
    first_offset_at,
    known_lasts,
    walk,
)
from magicbyte.engine.log.files.segment_ranges import segment_ranges
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import marker_of
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions
from magicbyte.engine.records.header import extent_of
from magicbyte.engine.records.layout import CONTROL_BIT, Dialect
from magicbyte.engine.records.scan import scan
from magicbyte.engine.sentinels import NO_PRODUCER_ID
from magicbyte.tools.offline.writer import LogDirectoryWriter, temporary_name

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from magicbyte.engine.log.files.directory import PartitionDirectory, SegmentFiles
    from magicbyte.engine.ports import ReadableFile, TopicPartition
    from magicbyte.engine.records.scan import BatchTable
    from magicbyte.tools.offline.writer import PartitionWriter


class Loss(NamedTuple):
    """Damaged bytes of a file. `offsets`: the first and last missing offset; None if no offset is missing."""

    path: str
    position: int
    end: int
    offsets: tuple[int, int] | None
    error: CorruptRecordError

    def to_json(self) -> dict[str, Any]:
        """Return a loss as in `magicbyte salvage --format json`."""
        offsets = None if self.offsets is None else list(self.offsets)
        bounds = {"path": self.path, "position": self.position, "end": self.end, "offsets": offsets}
        return bounds | {name: text for name, text in self.error.to_json().items() if name not in bounds}


class Aside(NamedTuple):
    """Sound entries that are left out of the new log, with the reason."""

    path: str
    position: int
    end: int
    entries: int
    offsets: tuple[int, int]
    why: str

    def to_json(self) -> dict[str, Any]:
        """Return left-out entries as in `magicbyte salvage --format json`."""
        return {
            "path": self.path,
            "position": self.position,
            "end": self.end,
            "batches": self.entries,
            "offsets": list(self.offsets),
            "why": self.why,
        }


@dataclass(slots=True)
class SalvageReport:
    """The result for one partition. `moved`: entries that were out of order, and inserted at their offsets.

    `ended_transactions`: open at the end of the sound entries, and aborted in a log for a new cluster. `misnamed`:
    segments whose names exclude their entries.
    """

    path: str
    segments: int = 0
    entries: int = 0
    bytes: int = 0
    moved: int = 0
    ended_transactions: int = 0
    lost: list[Loss] = field(default_factory=list)
    aside: list[Aside] = field(default_factory=list)
    misnamed: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the result of a partition as in reports of salvage."""
        return {
            "batches": self.entries,
            "bytes": self.bytes,
            "moved": self.moved,
            "endedTransactions": self.ended_transactions,
            "lost": [each.to_json() for each in self.lost],
            "leftOut": [each.to_json() for each in self.aside],
        }

    def add(self, plan: SegmentPlan) -> None:
        """Add the result of one segment."""
        self.entries, self.moved = self.entries + plan.entries, self.moved + plan.moved
        self.bytes += sum(extent.end - extent.position for extent in plan.extents)
        self.lost += plan.lost
        self.aside += plan.aside

    @property
    def is_sound(self) -> bool:
        """Whether every byte of the source is in the new log, in the same order."""
        return not self.lost and not self.aside and not self.moved


DUPLICATE = "another batch has its offsets"
IMPOSSIBLE = "its offset belongs to another segment"
CONTRADICTED = "its offset contradicts those around it"
CONTENT = "it may be the content of a record: nothing is missing at its offsets"
MEANINGLESS = "a transaction marker without a type: brokers do not open a log that contains it"
UNOPENED = "its content cannot be decoded, although its checksum is correct"


_WALK_BYTES = 8192
_LONG = 6  # a row of so many entries is not the content of a record
_NEAR = 128 << 10  # maximum distance in bytes between a found entry and the position where it belongs


class Extent(NamedTuple):
    """Bytes to copy to the new log. `cuts`: ends of entries in it, a few MiB apart, and its end."""

    position: int
    end: int
    cuts: tuple[int, ...]

    def part(self, start: int, end: int) -> Extent:
        """Return a part that begins and ends between entries."""
        return Extent(start, end, (*(cut for cut in self.cuts if start < cut < end), end))


@dataclass(slots=True)
class _EntryRow:
    """Adjacent sound entries with ascending offsets. `cuts` as in Extent."""

    position: int
    end: int
    first: int
    last: int
    entries: int
    order: RowOrder
    sure: bool
    cuts: list[int]
    number: int = -1

    @classmethod
    def of(cls, event: Sound) -> _EntryRow:
        """Return a row with the entries of `event`."""
        offsets = event.first, event.last
        cuts = [event.end]
        return cls(event.position, event.end, *offsets, event.entries, event.order, event.sure, cuts, event.row)

    def extend(self, event: Sound) -> None:
        """Append the next entries of the row."""
        self.end, self.last, self.entries = event.end, event.last, self.entries + event.entries
        self.cuts.append(event.end)

    def part(self, start: int, end: int) -> Extent:
        """Return a part of the row that begins and ends between entries."""
        return Extent(self.position, self.end, tuple(self.cuts)).part(start, end)


@dataclass(slots=True)
class SegmentPlan:
    """The entries to take from one segment, in the order of offsets, and those to leave out.

    `offsets`: the first and last offset of the entries to take, None without any.
    """

    extents: list[Extent]
    entries: int
    moved: int
    lost: list[Loss]
    aside: list[Aside]
    offsets: tuple[int, int] | None


def plan_segment(
    file: ReadableFile,
    limits: Limits,
    dialect: Dialect,
    progress: Callable[[int], None] = lambda _: None,
    rules: IndexRules = LATEST_RULES,
    *,
    opens: bool = False,
) -> SegmentPlan:
    """Walk a segment and decide which entries to take. `progress` is called with the bytes walked.

    `rules`: of the indexes to write. An entry that they need to decode is left out if it cannot be decoded; with
    `opens` every such entry is.
    """
    rows: list[_EntryRow] = []
    outliers: list[_EntryRow] = []
    gaps: list[Gap] = []
    useless: list[Aside] = []
    known = -1
    for event in walk(file, limits, dialect):
        if isinstance(event, Outlier):
            outliers.append(_taken_off(rows, event))
            continue
        if isinstance(event, Displaced):
            _displace(rows, event.row)
            continue
        progress(event.end - event.position)
        if isinstance(event, Gap):
            gaps.append(event)
            continue
        table = scan(event.view, dialect=dialect)
        useless += _meaningless_markers(file.path, event.position, table)
        useless += _unopened(Chunk(file.path, event.position, table), None if opens else rules, limits.entry_bytes)
        if event.row == known and rows and rows[-1].end == event.position:
            rows[-1].extend(event)
        else:
            rows.append(_EntryRow.of(event))
            known = event.row
    plan = _SalvagePlanner(file, dialect, limits, rows, outliers, gaps).plan()
    for entry in useless:
        _leave_out(plan, entry)
    return plan


def _meaningless_markers(path: str, start: int, table: BatchTable) -> Iterator[Aside]:
    """Yield the transaction markers with invalid content among sound entries, which begin at `start`."""
    if table.dialect is Dialect.ENRICHED:
        return
    is_marker = (np.asarray(table.magic, np.int64) == 2) & (np.asarray(table.attributes, np.int64) & CONTROL_BIT > 0)
    for row in np.flatnonzero(is_marker).tolist():
        at, size = int(table.position[row]), int(table.size[row])
        batch = RecordBatch(table.buffer[at : at + size])
        try:
            if batch.producer_id != NO_PRODUCER_ID:  # KRaft's control records have no producer id
                marker_of(batch)
        except CorruptRecordError:
            yield Aside(path, start + at, start + at + size, 1, (batch.base_offset, batch.last_offset), MEANINGLESS)


def _unopened(chunk: Chunk, rules: IndexRules | None, limit: int) -> list[Aside]:
    """Return the entries that cannot be decoded, though their checksums hold: those that an index needs.

    Without `rules`: all such entries.
    """
    table = chunk.table
    errors: list[CorruptRecordError] = []
    rows = list(range(len(table))) if rules is None else np.flatnonzero(looked_into(table, rules)).tolist()
    parts = rules is None  # if all entries are decoded, invalid keys and headers count, too
    options = DecodeOptions(
        keys=parts, values=parts, headers=parts, verify=False, control=True, limit=limit, any_lz4_header=parts
    )
    for _ in decode_chunk(chunk, rows, options, errors.append):
        pass  # only errors matter
    found: dict[int, Aside] = {}
    for error in errors:
        row = bisect.bisect_right(table.position, (error.position or 0) - chunk.position) - 1
        position, offset = chunk.position + int(table.position[row]), int(table.offset[row])
        found[row] = Aside(chunk.path, position, position + int(table.size[row]), 1, (offset, offset), UNOPENED)
    return list(found.values())


def _leave_out(plan: SegmentPlan, entry: Aside) -> None:
    """Remove an entry from a plan that includes it."""
    for at, extent in enumerate(plan.extents):
        if extent.position <= entry.position < extent.end:
            sides = (extent.position, entry.position), (entry.end, extent.end)
            plan.extents[at : at + 1] = [extent.part(start, end) for start, end in sides if start < end]
            plan.entries -= 1
            plan.aside = sorted([*plan.aside, entry], key=lambda aside: aside.position)
            return


def _taken_off(rows: list[_EntryRow], event: Outlier) -> _EntryRow:
    """Remove the last entry from the last MAIN row, and return it as a row."""
    at = max(index for index, row in enumerate(rows) if row.order is RowOrder.MAIN)
    row = rows[at]
    alone = _EntryRow(
        event.position, event.end, *event.offsets, 1, RowOrder.BACK, row.sure or row.entries > 1, [event.end]
    )
    if row.position == event.position:
        del rows[at]
    else:
        row.end, row.last, row.entries = event.position, event.last, row.entries - 1
        row.cuts = [*(cut for cut in row.cuts if cut < event.position), event.position]
    return alone


def _displace(rows: list[_EntryRow], number: int) -> None:
    """Mark the MAIN rows from `number` on as out of order."""
    for row in itertools.takewhile(lambda each: each.number >= number, reversed(rows)):
        if row.order is RowOrder.MAIN:
            row.order, row.sure = RowOrder.BACK, False


class _Suspect(NamedTuple):
    """An entry out of order. `alone`: between entries that are in order, so its own offset may be wrong.

    `sure`: it is neither content of a record nor beside damage that may hide a changed offset. `row`: of a short row.
    """

    first: int
    last: int
    position: int
    end: int
    sure: bool
    alone: bool
    row: int | None


class _Home(NamedTuple):
    """The target of an entry among the MAIN ones: after offset `before`, before the entry at `cut` (None: at the end).

    `after`: that entry's first offset. `disturbed`: the two are not adjacent in the file. `near`: the target position.
    """

    before: int
    after: int
    cut: int | None
    disturbed: bool
    near: int = 0


def _doubt(pair: tuple[_Suspect, _Home]) -> tuple[bool, int]:
    """Return a sort key of two entries that exclude each other: an entry far from its target is more doubtful."""
    return pair[0].alone, abs(pair[1].near - pair[0].position) if pair[0].alone else 0


class _SalvagePlanner:
    def __init__(
        self,
        file: ReadableFile,
        dialect: Dialect,
        limits: Limits,
        rows: list[_EntryRow],
        outliers: list[_EntryRow],
        gaps: list[Gap],
    ) -> None:
        self.file, self.dialect, self.limits, self.gaps = file, dialect, limits, gaps
        self.gap_starts, self.gap_ends = {gap.position for gap in gaps}, {gap.end for gap in gaps}
        self.main = [row for row in rows if row.order is RowOrder.MAIN]
        doubtful = [row for row in rows if row.order is not RowOrder.MAIN] + outliers
        self.doubtful = sorted(doubtful, key=lambda row: row.position)
        self.aside: list[Aside] = []

    def plan(self) -> SegmentPlan:
        """Return the plan of the segment."""
        taken = self._chosen()
        self.aside.sort(key=lambda aside: aside.position)
        lost = [Loss(self.file.path, gap.position, gap.end, self._missing(gap, taken), gap.error) for gap in self.gaps]
        entries = sum(row.entries for row in self.main) + len(taken)
        return SegmentPlan(self._extents(taken), entries, len(taken), lost, self.aside, self._offsets(taken))

    def _offsets(self, taken: list[tuple[_Suspect, _Home]]) -> tuple[int, int] | None:
        """Return the first and last offset of the entries to take."""
        firsts, lasts = [each.first for each, _ in taken], [each.last for each, _ in taken]
        if self.main:
            firsts.append(first_offset_at(self.file, self.main[0].position, self.dialect))
            lasts.append(self.main[-1].last)
        return (min(firsts), max(lasts)) if firsts else None

    def _chosen(self) -> list[tuple[_Suspect, _Home]]:
        """Return the entries out of order to insert, in the order of offsets. Leave out the others."""
        suspects: list[_Suspect] = []
        for row in self.doubtful:
            if row.order is RowOrder.OUTSIDE:
                offsets = (row.first, row.last)
                self.aside.append(Aside(self.file.path, row.position, row.end, row.entries, offsets, IMPOSSIBLE))
            else:
                suspects += self._entries(row)
        by_position = sorted(suspects, key=lambda suspect: suspect.position)
        suspects.sort(key=lambda suspect: (suspect.first, suspect.position))
        fitting: list[tuple[_Suspect, _Home]] = []
        for suspect, home in zip(suspects, self._homes(suspects), strict=True):
            if (
                fitting
                and suspect.first <= fitting[-1][0].last < home.after
                and _doubt(fitting[-1]) > _doubt((suspect, home))
            ):
                self._refuse(fitting.pop()[0], CONTRADICTED)
            before = max(home.before, fitting[-1][0].last) if fitting else home.before
            at_end = home.cut is None and suspect.first != before + 1  # any offset would fit there
            if suspect.first <= before or suspect.last >= home.after:
                self._refuse(suspect, DUPLICATE)
            elif not suspect.sure and (at_end or not home.disturbed or abs(home.near - suspect.position) > _NEAR):
                self._refuse(suspect, CONTENT)
            else:
                fitting.append((suspect, home))
        chosen = []
        for at, (suspect, home) in enumerate(fitting):
            before = max(home.before, fitting[at - 1][0].last) if at else home.before
            after = min(home.after, fitting[at + 1][0].first) if at + 1 < len(fitting) else home.after
            lonely = suspect.alone and suspect.sure and suspect.first != before + 1 and suspect.last + 1 != after
            if lonely:
                self._refuse(suspect, CONTRADICTED)
            else:
                chosen.append((suspect, home))
        chosen = self._without_content(by_position, chosen)
        return [pair for pair in chosen if not self._belongs_where_it_is(pair[0], chosen)]

    def _without_content(
        self, suspects: list[_Suspect], chosen: list[tuple[_Suspect, _Home]]
    ) -> list[tuple[_Suspect, _Home]]:
        """Return `chosen` without entries before a refused one in a short row, which are content, too.

        Entries may follow the content of a record in a row, but content does not follow them.
        """
        refused = {aside.position for aside in self.aside}
        last = {each.row: each.position for each in suspects if not each.sure and each.position in refused}
        torn = [each for each, _ in chosen if each.row is not None and each.position < last.get(each.row, -1)]
        for each in torn:
            self._refuse(each, CONTENT)
        gone = {each.position for each in torn}
        return [pair for pair in chosen if pair[0].position not in gone]

    def _belongs_where_it_is(self, suspect: _Suspect, chosen: list[tuple[_Suspect, _Home]]) -> bool:
        """Leave out an entry whose neighbours in the file show that its own offsets are wrong. Return whether it was.

        The neighbours leave exactly the number of offsets that it needs. If entries were swapped, another one of
        `chosen` has these offsets, and this one is kept.
        """
        left = next((row.last for row in self.main if row.end == suspect.position), None)
        right = next((row.position for row in self.main if row.position == suspect.end), None)
        if not suspect.alone or left is None or right is None:
            return False
        behind = first_offset_at(self.file, right, self.dialect)
        if behind - left != suspect.last - suspect.first + 2 or any(left < one.first < behind for one, _ in chosen):
            return False
        self._refuse(suspect, CONTRADICTED)
        return True

    def _refuse(self, each: _Suspect, why: str) -> None:
        self.aside.append(Aside(self.file.path, each.position, each.end, 1, (each.first, each.last), why))

    def _entries(self, row: _EntryRow) -> Iterator[_Suspect]:
        beside_gap = row.position in self.gap_ends or row.end in self.gap_starts
        alone = row.entries == 1 and not beside_gap
        sure = row.sure and not (row.entries == 1 and beside_gap)
        whole = row.position if row.entries < _LONG else None
        walk = entry_heads(
            self.file, row.position, row.end, end=row.end, dialect=self.dialect, window_bytes=_WALK_BYTES, is_sound=True
        )
        for position, end, head in walk:
            first, (_, last, _) = first_offset_at(self.file, position, self.dialect), extent_of(head)
            yield _Suspect(first, last, position, end, sure, alone, whole)

    def _homes(self, suspects: list[_Suspect]) -> list[_Home]:
        """Return the targets of `suspects`, which are in the order of their offsets."""
        homes = []
        at = 0
        for index, row in enumerate([*self.main, None]):
            before = self.main[index - 1].last if index else self.limits.low - 1
            if row is None:
                last = _Home(before, self.limits.high + 1, None, disturbed=True, near=self.file.size)
                homes += [last for _ in suspects[at:]]
                break
            head = first_offset_at(self.file, row.position, self.dialect) if at < len(suspects) else row.first
            while at < len(suspects) and suspects[at].last < head:
                homes.append(_Home(before, head, row.position, disturbed=row.position > 0, near=row.position))
                at += 1
            upper = at
            while upper < len(suspects) and suspects[upper].first <= row.last:
                upper += 1
            homes += self._homes_inside(row, suspects[at:upper], before)
            at = upper
        return homes

    def _homes_inside(self, row: _EntryRow, suspects: list[_Suspect], before: int) -> list[_Home]:
        """Return the targets of `suspects` among the entries of `row`."""
        homes: list[_Home] = []
        if not suspects:
            return homes
        for chunk in read_chunks(
            self.file, start=row.position, end=row.end, dialect=self.dialect, limit=self.limits.entry_bytes
        ):
            lasts = known_lasts(chunk.table)
            while len(homes) < len(suspects) and suspects[len(homes)].first <= lasts[-1]:
                at = int(lasts.searchsorted(suspects[len(homes)].first))
                position = chunk.position + int(chunk.table.position[at])
                least = int(lasts[at - 1]) if at else before
                first = first_offset_at(self.file, position, self.dialect)
                homes.append(_Home(least, first, position, disturbed=False, near=position))
            before = int(lasts[-1])
        return homes

    def _extents(self, taken: list[tuple[_Suspect, _Home]]) -> list[Extent]:
        """Return the bytes to take, in the order of offsets."""
        extents: list[Extent] = []
        at = 0
        for row in self.main:
            start = row.position
            while at < len(taken) and (cut := taken[at][1].cut) is not None and cut < row.end:
                if cut > start:
                    extents.append(row.part(start, cut))
                    start = cut
                extents.append(Extent(taken[at][0].position, taken[at][0].end, (taken[at][0].end,)))
                at += 1
            extents.append(row.part(start, row.end))
        extents += [Extent(each.position, each.end, (each.end,)) for each, _ in taken[at:]]
        return extents

    def _missing(self, gap: Gap, taken: list[tuple[_Suspect, _Home]]) -> tuple[int, int] | None:
        """Return the first and last missing offset around `gap`; None if no offset is missing or they are unknown."""
        behind = next((row for row in self.main if row.position >= gap.end), None)
        first = gap.last + 1
        last = first_offset_at(self.file, behind.position, self.dialect) - 1 if behind is not None else None
        if last is None:  # at the end, only the damaged entry itself may have a last offset
            claimed = gap.error.offsets
            if claimed is None or not first <= claimed[1] <= self.limits.high:
                return None
            last = claimed[1]
        for each, _ in taken:
            if each.first == first:
                first = each.last + 1
        for each, _ in reversed(taken):
            if each.last == last:
                last = each.first - 1
        return (first, last) if first <= last else None


@dataclass(frozen=True, slots=True)
class SalvageOptions:
    """Options of a salvage. `version`: the Kafka release whose index rules are used, None for the newest.

    `dialect` overrides that of the folders. Entries of more than `limit` bytes are damage. `new_cluster`: as in
    PartitionWriter. `opens`: leave out every entry that cannot be decoded, not only those that an index needs.
    `progress` receives the bytes walked.
    """

    version: str | None = None
    dialect: Dialect | None = None
    limit: int = DEFAULT_MAX_BATCH_BYTES
    new_cluster: bool = False
    opens: bool = False
    progress: Callable[[int], None] = lambda _: None

    @property
    def rules(self) -> IndexRules:
        """The rules for indexes and companion files. Raises LogDirectoryError for an unknown version."""
        return LATEST_RULES if self.version is None else IndexRules.of(self.version)


DEFAULT_SALVAGE = SalvageOptions()


class SalvagedPartition(NamedTuple):
    """One partition of a new log directory. `resumed`: an earlier run had written it."""

    name: TopicPartition
    source: str
    size: int
    folder: Path
    resumed: bool
    report: SalvageReport

    def to_json(self) -> dict[str, Any]:
        """Return a partition as in `magicbyte salvage --format json`."""
        return {
            "partition": str(self.name),
            "source": self.source,
            "path": str(self.folder),
            "resumed": self.resumed,
            "bytesIn": self.size,
            **self.report.to_json(),
        }


def salvage_logs(
    partitions: Mapping[TopicPartition, PartitionDirectory], out: Path, options: SalvageOptions = DEFAULT_SALVAGE
) -> Iterator[SalvagedPartition]:
    """Write the sound entries of `partitions` into the log directory `out`. Yield each partition when it has its name.

    Partitions finished by an earlier run are kept, and only reported. Raises LogDirectoryError for an `out` with any
    other content, or that overlaps a source, OSError if it cannot be written.
    """
    names = [name for key in partitions for name in (str(key), temporary_name(out / str(key)).name)]
    refuse_overlaps(out, names, inputs_of((), partitions.values()))
    kernel.expect(sum(each.size for each in partitions.values()))
    writer = LogDirectoryWriter(out, options.rules)
    _refuse_others(out, partitions)
    for name, partition in partitions.items():
        resumed = writer.is_finished(*name)
        if resumed:
            report = salvage_partition(partition, None, options)
        else:
            with salvage_writer(partition, name, writer, options) as to:
                report = salvage_partition(partition, to, options)
                report.ended_transactions = to.finish().ended_transactions
        yield SalvagedPartition(name, partition.path, partition.size, out / str(name), resumed, report)
    writer.finish(meta_properties(partitions.values()), log_starts(partitions))


def salvage_writer(
    source: PartitionDirectory,
    name: TopicPartition,
    directory: LogDirectoryWriter,
    options: SalvageOptions,
    *,
    is_part: bool = False,
) -> PartitionWriter:
    """Return the writer of a salvaged partition. `is_part`: as in PartitionWriter."""
    return directory.partition(
        *name,
        topic_id=_topic_id(source),
        dialect=options.dialect or source.dialect,
        new_cluster=options.new_cluster,
        is_part=is_part,
    )


def _refuse_others(out: Path, partitions: Iterable[TopicPartition]) -> None:
    """Raise LogDirectoryError if `out` holds a partition that is not among those to salvage."""
    names = {str(name) for name in partitions}
    others = [each.name for each in out.iterdir() if each.is_dir() and not each.name.startswith(".")]
    for other in sorted(set(others) - names):
        raise LogDirectoryError(f"{out}: expected a new directory, or the output of an earlier run; found {other}")


def log_starts(partitions: Mapping[TopicPartition, PartitionDirectory]) -> dict[TopicPartition, int]:
    """Return the log start offsets that can be read."""
    starts = {}
    for name, partition in partitions.items():
        with contextlib.suppress(CorruptRecordError):
            starts[name] = log_start_offset(partition)
    return starts


def _topic_id(partition: PartitionDirectory) -> uuid.UUID | None:
    """Return the topic id, if the folder has it."""
    try:
        metadata = partition.metadata()
    except CorruptRecordError:  # `verify` reports it; a broker gets the id from its controller
        return None
    return None if metadata is None else metadata.topic_id


def salvage_partition(
    partition: PartitionDirectory, writer: PartitionWriter | None, options: SalvageOptions = DEFAULT_SALVAGE
) -> SalvageReport:
    """Write the sound entries of `partition` with `writer`, which stays open. Segments keep their base offsets.

    Without a writer it only reports. Raises OSError if the new log cannot be written.
    """
    return salvage_segments(partition, partition.segments, writer, options)


def salvage_segments(
    partition: PartitionDirectory,
    segments: Sequence[SegmentFiles],
    writer: PartitionWriter | None,
    options: SalvageOptions,
) -> SalvageReport:
    """Salvage some adjacent segments of a partition, as `salvage_partition` does."""
    report = SalvageReport(partition.path, len(segments))
    dialect = options.dialect or partition.dialect
    kernel.expect(sum(segment.log.size for segment in segments))
    end_offset = 0
    final = partition.segments[-1].base_offset if partition.segments else 0  # without segments nothing is rolled
    is_final_empty = False
    chosen = {segment.base_offset for segment in segments}
    for segment, limits, misnamed in segment_ranges(partition, dialect, options.limit):
        if segment.base_offset not in chosen:
            continue
        report.misnamed += misnamed is not None
        with partition.files.open(segment.log.path) as file:
            within = replace(limits, low=max(limits.low, end_offset))
            plan = plan_segment(file, within, dialect, options.progress, options.rules, opens=options.opens)
            report.add(plan)
            first, last = plan.offsets or (segment.base_offset, -1)
            end_offset = max(end_offset, min(last + 1, MAX_OFFSET))
            if segment.base_offset == final:
                is_final_empty = not plan.extents
            if writer is not None and plan.extents:
                writer.roll(max(min(segment.base_offset, first), writer.end_offset))
                _copy(file, plan, writer)
    # an empty segment is dropped, except the last one: its base is the log end offset, whatever the files' order is
    if writer is not None and is_final_empty:
        writer.roll(max(final, writer.end_offset))
    return report


def _copy(file: ReadableFile, plan: SegmentPlan, writer: PartitionWriter) -> None:
    """Write the planned bytes of `file`."""
    buffer = bytearray(CHUNK_BYTES)
    for piece in _pieces(plan.extents):
        size = piece.end - piece.position
        if size > len(buffer):
            buffer = bytearray(size)
        view = memoryview(buffer)[:size]
        found = file.read_into(piece.position, view)
        if found < size:
            error = CorruptRecordError("size of the log", expected=f"{piece.end} bytes, as before", found=found)
            raise error.locate(path=file.path)
        try:
            writer.append(view)
        except CorruptRecordError as error:
            raise error.locate(path=file.path, shift=piece.position) from None


def _pieces(extents: list[Extent]) -> Iterator[Extent]:
    """Yield the extents in pieces that end between entries, of a few MiB unless an entry is larger."""
    for extent in extents:
        start = extent.position
        for cut in extent.cuts:
            yield Extent(start, cut, (cut,))
            start = cut
