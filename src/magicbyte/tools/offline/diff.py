"""Compare the records of two logs, independently of their storage.

Both are read once, in offset order, a few chunks at a time, so memory does not grow with them. Records are compared by
the hashes of `records/digest.py`, as arrays. Only the first of adjacent differing records becomes an object.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from magicbyte.access.workers import in_order
from magicbyte.engine.compiled import kernel
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.directory import PartitionDirectory
from magicbyte.engine.log.files.partitions import log_start_offset
from magicbyte.engine.log.files.reader import (
    DamageHandler,
    SegmentReader,
    decode_chunk,
    held_bytes,
    stop_at_damage,
)
from magicbyte.engine.printable import shortened
from magicbyte.engine.records.columns import Record, RecordColumns
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions
from magicbyte.engine.records.digest import NOTHING, Array, Digest, RecordHashes, hash_records
from magicbyte.engine.records.layout import CONTROL_BIT, ENRICHED_CONTROL_BIT, Dialect
from magicbyte.engine.records.scan import BatchTable
from magicbyte.engine.sentinels import NO_TIMESTAMP

SHOWN = 60
"""The most bytes of a key or value in a report."""


class What(enum.IntFlag):
    """Kinds of differences: the record is in one log only, or fields of it differ."""

    ONLY_IN_A = 1
    ONLY_IN_B = 2
    KEY = 4
    VALUE = 8
    TIMESTAMP = 16
    TIMESTAMP_TYPE = 32
    HEADERS = 64

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the set flags, such as ("key", "timestamp type")."""
        return tuple(each.name.lower().replace("_", " ") for each in What if each in self and each.name)


class Ignored(enum.Enum):
    """Fields that a comparison may ignore. `timestamps`: times and types; `control`: records of control batches."""

    TIMESTAMPS = "timestamps"
    HEADERS = "headers"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Difference:
    """Adjacent records that differ in the same way: `records` of them, from `first_offset` to `last_offset`.

    `a` and `b` are the first of them in each log, None if the log lacks it. `partition` names both logs' partition.
    """

    partition: str
    what: What
    first_offset: int
    last_offset: int
    records: int
    a: Record | None
    b: Record | None

    def to_json(self) -> dict[str, Any]:
        """Return a difference as in `magicbyte diff --format json`, with the first bytes of keys and values."""
        return {
            "what": list(self.what.names),
            "firstOffset": self.first_offset,
            "lastOffset": self.last_offset,
            "records": self.records,
            "a": _record_json(self.a),
            "b": _record_json(self.b),
        }


def _record_json(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "timestamp": record.timestamp,
        "timestampType": record.timestamp_type,
        "key": _cell_json(record.key),
        "value": _cell_json(record.value),
        "headers": len(record.headers),
    }


def _cell_json(cell: bytes | None) -> dict[str, Any] | None:
    return None if cell is None else {"bytes": len(cell), "text": shortened(cell, SHOWN)}


class FetchedLog(Protocol):
    """A partition whose sets are not in a folder, but fetched from a broker (client/fetched.py)."""

    path: str
    topic: str
    partition: int
    first: int
    """Its log start offset."""

    @property
    def name(self) -> str:
        """Topic and number, as folders are named."""

    def tables(self) -> Iterator[BatchTable]:
        """Yield whole entries in the order of their offsets; the first may begin before `first`."""


Log = PartitionDirectory | FetchedLog


@dataclass(slots=True)
class Side:
    """One of two compared partitions. Records below offset `first` are ignored.

    `any_lz4_header`: accept LZ4 frames of magic 1 with the broken header checksum.
    """

    partition: Log
    dialect: Dialect | None = None
    first: int = 0
    any_lz4_header: bool = False

    @classmethod
    def of(cls, log: Log, dialect: Dialect | None = None) -> Side:
        """Return a partition from its log start offset on."""
        return cls(log, dialect, log_start_offset(log) if isinstance(log, PartitionDirectory) else log.first)

    @property
    def size(self) -> int:
        """Bytes to read, 0 if unknown."""
        return self.partition.size if isinstance(self.partition, PartitionDirectory) else 0


@dataclass(slots=True)
class PartitionComparison:
    """The result for one partition. A path is None if the partition is in the other log only.

    `compared`: records at an offset that both hold. `differing`: records by kind of difference. `not_held`: records by
    the kind of data that the other log's format cannot hold. `differences`: the first ones, up to the caller's limit.
    """

    partition: str
    path_a: str | None
    path_b: str | None
    compared: int = 0
    digest_a: Digest = NOTHING
    digest_b: Digest = NOTHING
    differing: Counter[What] = field(default_factory=Counter)
    not_held: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not self.differing and self.path_a is not None and self.path_b is not None

    def to_json(self) -> dict[str, Any]:
        """Return a partition as in `magicbyte diff --format json`."""
        return {
            "partition": self.partition,
            "same": self.same,
            "a": None if self.path_a is None else {"path": self.path_a, **self.digest_a.to_json()},
            "b": None if self.path_b is None else {"path": self.path_b, **self.digest_b.to_json()},
            "compared": self.compared,
            "differing": {", ".join(what.names): count for what, count in self.differing.items()},
            "notHeld": dict(self.not_held),
            "differences": [each.to_json() for each in self.differences],
        }


@dataclass(slots=True)
class DiffReport:
    """The partitions that were compared, in order."""

    partitions: list[PartitionComparison] = field(default_factory=list)

    def describe(self, difference: Difference, most: int) -> None:
        """Keep a difference of the last partition, up to `most` of them."""
        differences = self.partitions[-1].differences
        if len(differences) < most:
            differences.append(difference)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return all(each.same for each in self.partitions)


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """Options of a comparison: ignored fields, the maximum bytes of a batch, threads."""

    ignore: frozenset[Ignored] = frozenset()
    limit: int = DEFAULT_MAX_BATCH_BYTES
    threads: int = 1
    on_damage: DamageHandler = stop_at_damage
    progress: Callable[[int], None] = lambda _: None


DEFAULT_OPTIONS = DiffOptions()


class Pair(NamedTuple):
    """A partition of both logs; None if a log lacks it."""

    name: str
    a: Log | None
    b: Log | None


def pair_up(a: Sequence[Log], b: Sequence[Log]) -> list[Pair]:
    """Return pairs of partitions with equal names in two logs, sorted; or the two only partitions as a pair.

    Raises LogDirectoryError for a duplicate name.
    """
    if len(a) == len(b) == 1:
        name = a[0].name if a[0].topic is not None or b[0].topic is None else b[0].name
        return [Pair(name, a[0], b[0])]
    sides = []
    for found in (a, b):
        by_name = {each.name: each for each in found}
        if len(by_name) < len(found):
            twice = next(name for name, count in Counter(each.name for each in found).items() if count > 1)
            paths = " and ".join(each.path for each in found if each.name == twice)
            raise LogDirectoryError(f"{twice}: expected once, found {paths}")
        sides.append(by_name)
    pairs = [Pair(name, sides[0].get(name), sides[1].get(name)) for name in sides[0].keys() | sides[1].keys()]

    def place(pair: Pair) -> tuple[str, int, str]:
        one = pair.a or pair.b
        assert one is not None
        return one.topic or "", one.partition or 0, pair.name

    return sorted(pairs, key=place)


def diff_logs(
    a: Sequence[Log],
    b: Sequence[Log],
    options: DiffOptions = DEFAULT_OPTIONS,
    *,
    dialects: tuple[Dialect | None, Dialect | None] = (None, None),
    report: DiffReport | None = None,
) -> Iterator[Difference]:
    """Yield the differences of the partitions `a` and `b`, partition by partition, in offset order.

    Records below a partition's log start offset are ignored. Records are the same if keys, values, timestamps with
    their types, and headers are, as far as both formats can hold them. `report` counts the data that one format cannot
    hold. A control record that the other format cannot hold is no difference. A partition that one side lacks is only
    in the report.

    Raises LogDirectoryError for a duplicate name, and the exceptions of `options.on_damage`.
    """
    report = DiffReport() if report is None else report
    for pair in pair_up(a, b):
        if pair.a is not None and pair.b is not None:
            sides = Side.of(pair.a, dialects[0]), Side.of(pair.b, dialects[1])
            yield from diff_partition(*sides, options, name=pair.name, report=report)
        else:
            path_a, path_b = (None if each is None else each.path for each in (pair.a, pair.b))
            report.partitions.append(PartitionComparison(pair.name, path_a, path_b))


def compare(
    a: Sequence[Log],
    b: Sequence[Log],
    options: DiffOptions = DEFAULT_OPTIONS,
    *,
    dialects: tuple[Dialect | None, Dialect | None] = (None, None),
    described: int,
) -> DiffReport:
    """Return how the partitions `a` and `b` differ, with the first `described` differences of each partition."""
    report = DiffReport()
    for difference in diff_logs(a, b, options, dialects=dialects, report=report):
        report.describe(difference, described)
    return report


def diff_partition(
    a: Side, b: Side, options: DiffOptions = DEFAULT_OPTIONS, *, name: str, report: DiffReport
) -> Iterator[Difference]:
    """Yield the differences of two partitions as `diff_logs` does, and add one PartitionComparison to the report."""
    comparison = PartitionComparison(name, a.partition.path, b.partition.path)
    report.partitions.append(comparison)
    kernel.expect(a.size + b.size)
    matching = _Matching(comparison, options.ignore)
    left, right = (_Cursor(_pieces(side, options)) for side in (a, b))
    pending: Difference | None = None
    while (limit := min(left.last_offset, right.last_offset)) < _NO_MORE:
        for difference, touching in matching.differences(left.take(limit), right.take(limit)):
            if pending is not None and touching and pending.what is difference.what:
                records = pending.records + difference.records
                pending = replace(pending, last_offset=difference.last_offset, records=records)
            else:
                if pending is not None:
                    yield pending
                pending = difference
        if pending is not None and not matching.open_end:
            yield pending
            pending = None
    if pending is not None:
        yield pending
    comparison.digest_a, comparison.digest_b = left.digest, right.digest


# ---- one side: pieces of records, in offset order

_NO_MORE = 1 << 63
_LOWEST = -(1 << 63)


class _Holds(NamedTuple):
    """Fields that a format can hold. `control`: the kind of control records."""

    timestamps: bool
    types: bool
    headers: bool
    control: Dialect | None


_HOLDS = {
    (Dialect.KAFKA, 0): _Holds(timestamps=False, types=False, headers=False, control=None),
    (Dialect.KAFKA, 1): _Holds(timestamps=True, types=True, headers=False, control=None),
    (Dialect.KAFKA, 2): _Holds(timestamps=True, types=True, headers=True, control=Dialect.KAFKA),
    (Dialect.ENRICHED, 1): _Holds(timestamps=True, types=False, headers=False, control=Dialect.ENRICHED),
}


@dataclass(slots=True)
class _DiffPiece:
    """Records of one format. `control` says for each whether it is a control record; `row` is its row in `columns`."""

    path: str
    holds: _Holds
    hashes: RecordHashes
    control: Array
    row: Array
    columns: RecordColumns

    def take(self, rows: Any) -> _DiffPiece:
        return _DiffPiece(
            self.path, self.holds, self.hashes.take(rows), self.control[rows], self.row[rows], self.columns
        )

    def slice(self, first: int, end: int) -> _DiffPiece:
        part = slice(first, end)
        return _DiffPiece(
            self.path, self.holds, self.hashes.slice(first, end), self.control[part], self.row[part], self.columns
        )

    def record(self, at: int) -> Record:
        row = int(self.row[at])
        return next(iter(self.columns.slice(row, row + 1)))


def _pieces(side: Side, options: DiffOptions) -> Iterator[_DiffPiece]:
    """Yield the records of one side with ascending offsets. Others are damage, and skipped."""

    def chunks() -> Iterator[Chunk]:
        for chunk in _chunks(side, options):
            options.progress(chunk.table.end)
            yield chunk

    decoding = DecodeOptions(
        control=Ignored.CONTROL not in options.ignore, limit=options.limit, any_lz4_header=side.any_lz4_header
    )
    threads = 1 if options.threads == 1 else max(options.threads // 2, 2)  # half of the threads for each side
    highest = np.int64(_LOWEST)
    hashed = in_order(
        chunks(),
        lambda chunk: _hashed(chunk, decoding, options.on_damage),
        threads,
        size=lambda piece: held_bytes(piece.columns),
    )
    for piece in hashed:
        if side.first > 0:
            piece = piece.take(piece.hashes.offset >= side.first)
        offset = piece.hashes.offset
        before = np.maximum.accumulate(np.concatenate(([highest], offset)))
        rises = offset > before[:-1]
        highest = before[-1]
        if not rises.all():
            at = int(rises.argmin())
            found = int(offset[at])
            error = CorruptRecordError("offset", expected=f"> {before[at]}", found=found)
            options.on_damage(error.locate(path=piece.path, offsets=(found, found)))
            piece = piece.take(rises)
        if len(piece.hashes):
            yield piece


def _chunks(side: Side, options: DiffOptions) -> Iterator[Chunk]:
    """Yield the entries of one side. Positions of fetched entries count the bytes fetched before."""
    log = side.partition
    if isinstance(log, PartitionDirectory):
        reader = SegmentReader(log, side.dialect)
        yield from reader.chunks(first=side.first, merge=True, limit=options.limit, on_damage=options.on_damage)
        return
    position = 0
    for table in log.tables():
        kernel.expect(position + table.end)
        yield Chunk(log.path, position, table)
        position += table.end


def _hashed(chunk: Chunk, decoding: DecodeOptions, on_damage: DamageHandler) -> Iterator[_DiffPiece]:
    """Yield the records of a chunk, separately for each format."""
    table = chunk.table
    for magic, group in groupby(range(len(table)), lambda row: int(table.magic[row])):
        rows = list(group)
        bit = ENRICHED_CONTROL_BIT if table.dialect is Dialect.ENRICHED else CONTROL_BIT if magic == 2 else 0
        attributes = np.asarray(table.attributes, np.int64)[rows[0] : rows[-1] + 1]
        base = np.asarray(table.offset, np.int64)[rows[0] : rows[-1] + 1]
        is_control = (attributes & bit) != 0
        for columns in decode_chunk(chunk, rows, decoding, on_damage):
            hashes = hash_records(columns)
            control = np.zeros(len(hashes), np.bool_)
            if is_control.any():  # v2 and enriched entries both begin with their first offset
                control = is_control[np.maximum(np.searchsorted(base, hashes.offset, "right") - 1, 0)]
            holds = _HOLDS[table.dialect, magic]
            yield _DiffPiece(chunk.path, holds, hashes, control, np.arange(len(hashes)), columns)


class _Cursor:
    """Takes records from pieces, up to ascending offsets."""

    def __init__(self, pieces: Iterator[_DiffPiece]) -> None:
        self._pieces = pieces
        self._piece = next(pieces, None)
        self._taken: _DiffPiece | None = None
        self.digest = NOTHING

    @property
    def last_offset(self) -> int:
        """Offset of the last buffered record; _NO_MORE at the end."""
        return _NO_MORE if self._piece is None else int(self._piece.hashes.offset[-1])

    def take(self, limit: int) -> _DiffPart:
        """Return the buffered records up to offset `limit`, which is at most `last_offset`, and continue after them."""
        piece = self._piece
        if piece is None:
            return _DiffPart(None, self._taken)
        count = int(np.searchsorted(piece.hashes.offset, limit, "right"))
        taken = piece.slice(0, count) if count else None
        rest = piece.slice(count, len(piece.hashes))
        near = taken or self._taken or piece
        if taken is not None:
            self._taken = taken
            self.digest = self.digest.plus(taken.hashes.digest())
        self._piece = rest if len(rest.hashes) else next(self._pieces, None)
        return _DiffPart(taken, near)


class _DiffPart(NamedTuple):
    """Some records, or None; and the next ones, which show the format of the log at this point."""

    records: _DiffPiece | None
    near: _DiffPiece | None

    @property
    def offsets(self) -> Array:
        return np.empty(0, np.int64) if self.records is None else self.records.hashes.offset


# ---- both sides


@dataclass(slots=True)
class _Matching:
    """Compares parts of both sides with the same range of offsets."""

    comparison: PartitionComparison
    ignore: frozenset[Ignored]
    open_end: bool = False
    """Whether the last record of the parts just compared differs, so that the run may continue in the next parts."""

    def differences(self, a: _DiffPart, b: _DiffPart) -> Iterator[tuple[Difference, bool]]:
        """Yield each run of records with the same kind of difference, and whether it begins with the first record."""
        union, rows_a, rows_b = _aligned(a.offsets, b.offsets)
        both = (rows_a >= 0) & (rows_b >= 0)
        what = np.where(both, 0, np.where(rows_a >= 0, int(What.ONLY_IN_A), int(What.ONLY_IN_B))).astype(np.uint8)
        self.comparison.compared += int(both.sum())
        if a.records is not None and b.records is not None:
            what[both] = self._fields(a.records, rows_a[both], b.records, rows_b[both])
        for part, rows, other in ((a, rows_a, b), (b, rows_b, a)):
            alone = ~both & (rows >= 0)
            if part.records is not None and alone.any() and part.records.control.any():
                self._excuse(what, part.records, np.flatnonzero(alone), rows, other)
        self.open_end = bool(what[-1])
        edges = [0, *(np.flatnonzero(what[1:] != what[:-1]) + 1).tolist(), len(what)]
        for first, end in pairwise(edges):
            if what[first]:
                kind = What(int(what[first]))
                self.comparison.differing[kind] += end - first
                row_a, row_b = int(rows_a[first]), int(rows_b[first])
                yield (
                    Difference(
                        self.comparison.partition,
                        kind,
                        int(union[first]),
                        int(union[end - 1]),
                        end - first,
                        a.records.record(row_a) if a.records is not None and row_a >= 0 else None,
                        b.records.record(row_b) if b.records is not None and row_b >= 0 else None,
                    ),
                    first == 0,
                )

    def _fields(self, a: _DiffPiece, rows_a: Array, b: _DiffPiece, rows_b: Array) -> Array:
        """Return the differing fields of records at the same offsets."""
        ours, theirs = a.hashes.take(rows_a), b.hashes.take(rows_b)
        what: Array = (ours.key != theirs.key) * np.uint8(What.KEY)
        what |= (ours.value != theirs.value) * np.uint8(What.VALUE)
        if Ignored.TIMESTAMPS not in self.ignore:
            if a.holds.timestamps and b.holds.timestamps:
                what |= (ours.timestamp != theirs.timestamp) * np.uint8(What.TIMESTAMP)
            else:
                self._lacks("timestamps", (ours.timestamp != NO_TIMESTAMP) | (theirs.timestamp != NO_TIMESTAMP))
            if a.holds.types and b.holds.types:
                what |= (ours.timestamp_type != theirs.timestamp_type) * np.uint8(What.TIMESTAMP_TYPE)
        if Ignored.HEADERS not in self.ignore:
            if a.holds.headers and b.holds.headers:
                what |= (ours.headers != theirs.headers) * np.uint8(What.HEADERS)
            else:
                self._lacks("headers", (ours.headers != 0) | (theirs.headers != 0))
        return what

    def _lacks(self, name: str, which: Array) -> None:
        if count := int(which.sum()):
            self.comparison.not_held[name] += count

    def _excuse(self, what: Array, piece: _DiffPiece, alone: Array, rows: Array, other: _DiffPart) -> None:
        """Ignore control records that the other side's format cannot hold."""
        if other.near is not None and other.near.holds.control is piece.holds.control:
            return
        control = alone[piece.control[rows[alone]]]
        what[control] = 0
        self._lacks("control records", np.ones(len(control), np.bool_))


def _aligned(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Return the union of two ascending arrays of offsets, and for each its index in `a` and in `b`, or -1."""
    if len(a) == len(b) and np.array_equal(a, b):
        rows = np.arange(len(a))
        return a, rows, rows
    union = np.union1d(a, b)
    rows_a, rows_b = np.full(len(union), -1), np.full(len(union), -1)
    rows_a[np.searchsorted(union, a)] = np.arange(len(a))
    rows_b[np.searchsorted(union, b)] = np.arange(len(b))
    return union, rows_a, rows_b
