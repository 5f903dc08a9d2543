"""Compact a partition with more keys than fit into a worker's memory: hashes of keys go through Spark's shuffle.

Each segment yields a row of 32 bytes per key: a keyed hash of 128 bits, 64 bits of a second one, and the key's last
offset in the segment. Rows are shuffled by hash. The offset of each row that is not the last of its key is returned to
its segment as a mark. Then the cleaner runs as usual, with marks instead of its offset map, one task per group of
segments. Rows travel as arrays in byte strings, a few per task, so Spark handles no row per key. Values stay in their
segments.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.compiled.kernel import expect, worth_compiling
from magicbyte.engine.errors import CorruptRecordError, MagicbyteError
from magicbyte.engine.log.cleaning import offset_map_kernels as kernels
from magicbyte.engine.log.cleaning.cleaned_transactions import Passage, SegmentTransactions
from magicbyte.engine.log.cleaning.compaction import Compaction
from magicbyte.engine.log.cleaning.offset_marks import OffsetMarks
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.forms import form_for
from magicbyte.tools.offline.compact import CompactOptions, looked_at
from magicbyte.tools.offline.compact_groups import (
    SegmentGroup,
    WrittenGroup,
    overlapping,
    plan_groups,
    some_segments,
    write_group,
)

if TYPE_CHECKING:
    from pyspark import SparkContext

    from magicbyte.engine.log.cleaning.compaction import CleanableOffsets
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.indexes import AbortedTransaction
    from magicbyte.engine.log.live.config import LogConfig
    from magicbyte.engine.records.columns import BytesColumn

Array = np.ndarray[Any, Any]

_ROW = np.dtype([("first", "<i8"), ("second", "<i8"), ("check", "<i8"), ("offset", "<i8")])
_WAITING = 1 << 21
"""Rows of a segment that are collected before superseded ones are removed: 64 MiB."""
_REDUCER_BYTES = 256 << 20
"""Size of the rows per reducer, which holds them and a sorted copy. Rows are at most half as large as the log."""
_KEYS, _DAMAGE = -1, -2
"""Used instead of the number of a segment or reducer."""


class HashCollisionError(MagicbyteError):
    """Raised if two keys have the same hash of 128 bits. Another run uses other secrets."""


class Job(Struct, frozen=True):
    """The input of all tasks: the log, its cleanable range, the folder for marks. `secrets`: two of 16 bytes.

    `segments`: base offset, and the base offset of the next segment or the end of the cleanable range. `aborted`: the
    aborted transactions that overlap each segment; a task receives those of its segments.
    """

    partition: PartitionDirectory
    options: CompactOptions
    config: LogConfig
    selection: CleanableOffsets
    segments: tuple[tuple[int, int], ...]
    aborted: tuple[tuple[AbortedTransaction, ...], ...]
    marks: str
    secrets: tuple[bytes, bytes]
    reducers: int

    @property
    def bases(self) -> list[int]:
        """The base offsets of the segments."""
        return [base for base, _ in self.segments]


def plan(partition: PartitionDirectory, options: CompactOptions, marks: Path) -> Job | None:
    """Return the job that compacts a log, None if nothing is cleanable. The log must have all index files."""
    with looked_at(partition, options) as (log, selection):
        if not selection.cleanable_bytes:
            return None
        end, now, secret = selection.first_uncleanable, options.now_ms, options.secret
        compaction = Compaction(log, selection, options.config, now=Moment.fixed(now), secret=secret, writes=False)
        sources = compaction.sources(end)
        bases, size = [each.base_offset for each in sources], sum(each.size for each in sources)
        # `plan_groups` later compares the indexes with what the tasks found
        aborted = tuple(overlapping(bases, compaction.aborted(sources, end, trusts_indexes=True)))
        segments = tuple(zip(bases, [*bases[1:], end], strict=True))
    secrets = os.urandom(16), os.urandom(16)
    reducers = max(size // (2 * _REDUCER_BYTES), 1)
    return Job(partition, options, log.config, selection, segments, aborted, str(marks), secrets, reducers)


def run(context: SparkContext, job: Job) -> int | str:
    """Write the marks of all segments. Return the number of keys, or a description of damage."""
    Path(job.marks).mkdir(exist_ok=True)
    segments, job = list(enumerate(job.aborted)), replace(job, aborted=())
    reducers = max(job.reducers, context.defaultParallelism)
    by_hash = context.parallelize(segments, len(segments)).mapPartitions(lambda some: _map(job, some, reducers))
    by_segment = by_hash.partitionBy(reducers, _as_it_is).mapPartitions(lambda rows: _reduce(job, rows))
    pieces = max(min(len(segments), 4 * context.defaultParallelism), 1)
    written = by_segment.partitionBy(pieces, lambda number: max(number, 0) % pieces)
    found = written.mapPartitions(lambda rows: _write(job, rows)).collect()
    damage = next((each for each in found if isinstance(each, str)), None)
    return sum(each for each in found if isinstance(each, int)) if damage is None else damage


class Marks(Struct, frozen=True):
    """The marks of some segments. `begin`, `end`, `keys`: offsets and number of keys of all segments of the job."""

    folder: str
    begin: int
    end: int
    keys: int
    bases: tuple[int, ...]

    def load(self) -> OffsetMarks:
        """Return the marks; those of a segment are read from disk on demand."""
        return OffsetMarks(self.begin, self.end, self.keys, self.bases, self._of)

    def _of(self, base: int) -> tuple[Array, Array]:
        lost = [np.load(path) for path in sorted(Path(self.folder).glob(f"{base}.*.lost.npy"))]
        odd = np.load(f"{self.folder}/{base}.odd.npy")
        return np.unique(np.concatenate(lost)) if lost else np.zeros(0, np.int64), odd


def marks_of(job: Job, keys: int) -> Marks:
    """Return the marks written by `run`."""
    return Marks(job.marks, job.segments[0][0], job.segments[-1][1], keys, tuple(job.bases))


class GroupPart(Struct, frozen=True):
    """One group of segments as a task. `above`: the folder for the output of all groups."""

    group: SegmentGroup
    marks: Marks
    above: str

    def write(self) -> WrittenGroup:
        """Write the compacted group into a new folder for each attempt. Runs in a worker.

        Raises as `write_group` does.
        """
        expect(self.group.size)
        return write_group(self.group, self.marks.load(), f"{self.above}/{self.group.base_offset}.{uuid.uuid4().hex}")


def groups_of(job: Job, marks: Marks, above: Path) -> list[GroupPart] | None:
    """Return the parts in which the log can be compacted, or none for a single group: one task does it.

    None if aborted transactions are not as the log's indexes say. The marks rely on these indexes, so that task must
    not use them either.
    """
    options = replace(job.options, marks=marks.load())
    groups = plan_groups(job.partition, options, _passages(job))
    if groups is None:
        return None
    if len(groups) < 2:
        return []
    above.mkdir(exist_ok=True)
    return [
        GroupPart(group, replace(marks, bases=tuple(base for base, _ in group.segments)), str(above))
        for group in groups
    ]


def _passages(job: Job) -> Iterator[Passage]:
    for base in job.bases:
        yield Passage.of_pairs(np.load(f"{job.marks}/{base}.transactions.npy").tolist())


def _as_it_is(number: int) -> int:
    return number


# ---- in the workers


def _map(
    job: Job, segments: Iterable[tuple[int, Sequence[AbortedTransaction]]], reducers: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of some segments for each reducer. Records superseded within their segment are marked here."""
    for number, aborted in segments:
        try:
            rows, lost, odd, passage = _rows_of(job, *job.segments[number], aborted)
        except CorruptRecordError as error:
            yield _DAMAGE, str(error).encode()
            return
        base = job.segments[number][0]
        _put(job, f"{base}.inside.lost.npy", lost)
        _put(job, f"{base}.odd.npy", odd)
        _put(job, f"{base}.transactions.npy", np.array(passage.to_pairs(), np.int64).reshape(-1, 2))
        place = (rows["first"].view(np.uint64) % np.uint64(reducers)).astype(np.int64)
        order = np.argsort(place, kind="stable")
        cuts = np.searchsorted(place[order], np.arange(reducers + 1))
        for reducer in range(reducers):
            chosen = rows[order[cuts[reducer] : cuts[reducer + 1]]]
            if len(chosen):
                yield reducer, chosen.tobytes()


def _rows_of(
    job: Job, base: int, end: int, aborted: Sequence[AbortedTransaction]
) -> tuple[Array, Array, Array, Passage]:
    """Return a segment's rows, one per key; superseded offsets; offsets without key or value; and its transactions."""
    rows: list[Array] = []
    lost: list[Array] = []
    odd: list[Array] = []
    waiting, transactions = 0, SegmentTransactions()
    transactions.add_aborted(aborted)
    with some_segments(job.partition.path, [base], end, job.config) as log:
        (segment,) = log.segments
        expect(segment.size)
        compiled = worth_compiling(segment.size)
        now, secret = job.options.now_ms, job.secrets[0]
        compaction = Compaction(
            log, job.selection, job.options.config, now=Moment.fixed(now), secret=secret, writes=False
        )
        for columns in compaction.keys(segment, transactions):
            assert columns.key is not None
            assert columns.value is not None
            offset, has_key = np.asarray(columns.offset, np.int64), np.asarray(columns.key.length) >= 0
            odd.append(offset[~has_key | (np.asarray(columns.value.length) < 0)])
            found = np.empty(int(np.count_nonzero(has_key)), _ROW)
            one, other = (_hashes(columns.key, each, compiled=compiled)[has_key] for each in job.secrets)
            found["first"], found["second"], found["check"] = one[:, 0], one[:, 1], other[:, 0]
            found["offset"] = offset[has_key]
            rows.append(found)
            waiting += len(found)
            if waiting > _WAITING:
                kept, gone = last_of_each(np.concatenate(rows), job.selection.first_dirty)
                rows, waiting = [kept], 0
                lost.append(gone)
    kept, gone = last_of_each(np.concatenate(rows) if rows else np.empty(0, _ROW), job.selection.first_dirty)
    return kept, _sorted([*lost, gone]), _sorted(odd), transactions.passage(end)


def _sorted(offsets: list[Array]) -> Array:
    return np.sort(np.concatenate(offsets)) if offsets else np.zeros(0, np.int64)


def _hashes(keys: BytesColumn, secret: bytes, *, compiled: bool) -> Array:
    """Return the hashes of keys, 128 bits as two integers. Shape: (n, 2) int64."""
    form = form_for(compiled=compiled)
    out = form.zeros(2 * len(keys))
    low, high = (int.from_bytes(secret[at : at + 8], "little", signed=True) for at in (0, 8))
    status = form.form(kernels.hash_keys)(
        form.bytes_of(keys.data), form.int32(keys.start), form.int32(keys.length), low, high, out
    )
    if status != kernels.DONE:
        raise CorruptRecordError("key", expected=f"within {len(keys.data)} bytes", found="one beyond them")
    found: Array = np.asarray(out, np.int64).reshape(-1, 2)
    return found


def last_of_each(rows: Array, first_dirty: int) -> tuple[Array, Array]:
    """Return the rows that may be the last of their key, and the offsets of the others.

    Records below `first_dirty` supersede no others: the cleaner does not put them into its map either. Raises
    HashCollisionError.
    """
    if not len(rows):
        return rows, rows["offset"]
    rows = rows[np.argsort(rows["first"])]
    same = rows["first"][1:] == rows["first"][:-1]
    other = rows["second"][1:] != rows["second"][:-1]
    if (same & other).any():  # rows of two keys may be interleaved: their first 64 bits are equal
        rows = rows[np.lexsort((rows["second"], rows["first"]))]
        other = rows["second"][1:] != rows["second"][:-1]
        same = (rows["first"][1:] == rows["first"][:-1]) & ~other
    if (same & (rows["check"][1:] != rows["check"][:-1])).any():
        raise HashCollisionError("two keys have the same hash of 128 bits: run the pipeline again")
    begins = np.flatnonzero(np.concatenate(([True], ~same)))
    latest = np.repeat(np.maximum.reduceat(rows["offset"], begins), np.diff(np.append(begins, len(rows))))
    goes = (latest >= first_dirty) & (rows["offset"] < latest)
    return rows[~goes], rows["offset"][goes]


def _reduce(job: Job, pairs: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield for each segment its offsets superseded by other segments, and under _KEYS the number of keys."""
    blobs = []
    for reducer, blob in pairs:
        if reducer == _DAMAGE:
            yield _DAMAGE, blob
        else:
            blobs.append(blob)
    kept, gone = last_of_each(np.frombuffer(b"".join(blobs), _ROW), job.selection.first_dirty)
    yield _KEYS, int(np.count_nonzero(kept["offset"] >= job.selection.first_dirty)).to_bytes(8, "little")
    gone = np.sort(gone)
    number = np.searchsorted(job.bases, gone, "right") - 1
    for each in np.unique(number).tolist():
        yield each, gone[number == each].tobytes()


def _write(job: Job, pairs: Iterable[tuple[int, bytes]]) -> Iterator[int | str]:
    """Write the superseded offsets of each segment. Yield numbers of keys, and descriptions of damage."""
    lost: dict[int, list[Array]] = {}
    for number, content in pairs:
        if number == _KEYS:
            yield int.from_bytes(content, "little")
        elif number == _DAMAGE:
            yield content.decode()
        else:
            lost.setdefault(number, []).append(np.frombuffer(content, np.int64))
    for number, offsets in lost.items():
        _put(job, f"{job.segments[number][0]}.outside.lost.npy", np.sort(np.concatenate(offsets)))


def _put(job: Job, name: str, offsets: Array) -> None:
    """Write a result file of a segment. A second attempt replaces it by the same content."""
    fresh = Path(job.marks) / f".{name}.{os.getpid()}.npy"
    np.save(fresh, offsets)
    fresh.replace(Path(job.marks) / name)
