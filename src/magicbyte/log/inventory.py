"""What is in a log: formats, codecs, offsets, times, holes and transactions, summed up from headers.

Nothing is decompressed and no checksum verified unless the inventory is `deep`; what cannot be known then is None.
Of large entries only the headers are read at all. Memory does not grow with the log.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from magicbyte.codecs import Codec, Lz4Header, lz4_header_checksum
from magicbyte.errors import CorruptRecordError
from magicbyte.log.files import LocalFile
from magicbyte.log.partitions import log_start_offset
from magicbyte.log.reader import Chunk, DamageHandler, decode_chunk, read_chunks
from magicbyte.records import layout
from magicbyte.records.batch import RecordBatch
from magicbyte.records.control import ControlType, marker_of
from magicbyte.records.decode import DEFAULT_MAX_BATCH_BYTES, DecodeOptions
from magicbyte.records.enriched import EnrichedMessage
from magicbyte.records.entry import parse_entry
from magicbyte.records.layout import Dialect, Field
from magicbyte.records.message import Message
from magicbyte.records.scan import scan
from magicbyte.wire import kernel

if TYPE_CHECKING:
    from magicbyte.log.directory import PartitionDirectory
    from magicbyte.ports import ReadableFile
    from magicbyte.records.columns import RecordColumns

    Int64s = np.ndarray[Any, np.dtype[np.int64]]
    Bools = np.ndarray[Any, np.dtype[np.bool_]]
    Heads = np.ndarray[Any, np.dtype[np.uint8]]

HEAD = 80
"""First bytes of an entry that are looked at: a v2 header with the start of its records, and all of a marker."""
_CODECS = 8  # numbers that three bits hold
_ROWS_PER_BLOCK = 8192
_ROWS_TO_JUDGE_BY = 256
_MANY_ROWS = 200_000  # from here on, loading the compiled walk takes less time than walking without it
_WINDOW = 64 << 10  # read at once to find the headers of small entries
_LARGE_ENTRY = 8 << 10  # from here on, reading its header alone takes less time

_SIZE_AND_MAGIC = struct.Struct(">8xi4xb")
_MINIMA = {0: layout.V0_MINIMUM, 1: layout.V1_MINIMUM, 2: layout.RECORD_BATCH_MINIMUM}
_FIELDS = {
    "attributes": layout.ATTRIBUTES,
    "offset": layout.OFFSET,
    "last_offset_delta": layout.LAST_OFFSET_DELTA,
    "base_timestamp": layout.BASE_TIMESTAMP,
    "max_timestamp": layout.MAX_TIMESTAMP,
    "producer_id": layout.PRODUCER_ID,
    "record_count": layout.RECORD_COUNT,
    "message_attributes": layout.MESSAGE_ATTRIBUTES,
    "message_timestamp": layout.V1_TIMESTAMP,
    "magic": layout.MAGIC,
    "v0_key_length": layout.V0_KEY_LENGTH,
    "v1_key_length": layout.V1_KEY_LENGTH,
    "seconds": layout.ENRICHED_SECONDS,
    "tags_length": layout.ENRICHED_TAGS_LENGTH,
    "first_tag": Field(layout.ENRICHED_TAGS_START, layout.INT8),
    "tagged_timestamp": Field(layout.ENRICHED_TAGS_START + 1, layout.INT64),
    # of a marker with one-byte varints, as every broker writes it: length, attributes, two deltas, key length, key
    "marker_key_length": Field(layout.RECORD_BATCH_OVERHEAD + 4, layout.INT8),
    "marker_type": Field(layout.RECORD_BATCH_OVERHEAD + 7, layout.INT16),
}
_SHORT_VARINTS = slice(layout.RECORD_BATCH_OVERHEAD, layout.RECORD_BATCH_OVERHEAD + 5)
_MARKER_KEY = 8  # zigzag of 4 bytes
_LAYOUT = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [f">{'u' if each.type is layout.UINT32 else 'i'}{each.type.size}" for each in _FIELDS.values()],
        "offsets": [each.start for each in _FIELDS.values()],
        "itemsize": HEAD,
    }
)
_LZ4_HEADS = {kind: np.frombuffer(b"\x04\x22\x4d\x18\x60\x40" + end, np.uint8) for kind, end in
              ((Lz4Header.CORRECT, b"\x82"), (Lz4Header.BROKEN, b"\x1a"))}  # fmt: skip
_LZ4_LONGEST_HEAD = 15


@dataclass(slots=True)
class FormatCount:
    """Entries of one magic and codec. `records` without control records; None where only decompression tells."""

    batches: int = 0
    bytes: int = 0
    records: int | None = 0


@dataclass(slots=True)
class Lz4Headers:
    """LZ4 frames by their header checksum: of the descriptor (correct), of Kafka before v1 (broken), or neither."""

    correct: int = 0
    broken: int = 0
    other: int = 0


@dataclass(slots=True)
class Holes:
    """Offsets that no entry covers, between one entry and the next: how many stretches, how many offsets in all."""

    count: int = 0
    offsets: int = 0


@dataclass(slots=True)
class RecordFacts:
    """What only decoding tells."""

    records: int = 0
    tombstones: int = 0  # value null
    with_key: int = 0
    without_key: int = 0
    with_headers: int = 0
    headers: int = 0

    def plus(self, other: RecordFacts) -> RecordFacts:
        """Return the sums."""
        return RecordFacts(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


class OpenTransaction(NamedTuple):
    """A transaction without a marker at the log's end."""

    producer_id: int
    first_offset: int


@dataclass(slots=True)
class Tally:
    """Sums over entries. Timestamps in ms, None where there are none; offsets inclusive."""

    formats: dict[tuple[int, str], FormatCount] = field(default_factory=dict)
    first_offset: int | None = None
    last_offset: int | None = None
    min_timestamp: int | None = None
    """Smallest timestamp of a record; None where only decompression tells."""
    max_timestamp: int | None = None
    min_batch_timestamp: int | None = None
    """Smallest of the entries' largest timestamps: not below `min_timestamp`, and known without decompression."""
    lz4_headers: Lz4Headers = field(default_factory=Lz4Headers)
    holes: Holes | None = field(default_factory=Holes)
    committed: int = 0  # markers
    aborted: int = 0
    open_transactions: list[OpenTransaction] = field(default_factory=list)
    control_batches: int = 0
    deep: RecordFacts | None = None

    @property
    def batches(self) -> int:
        """Entries: v2 batches, wrappers, plain messages."""
        return sum(each.batches for each in self.formats.values())

    @property
    def bytes(self) -> int:
        """Bytes of the entries."""
        return sum(each.bytes for each in self.formats.values())

    @property
    def records(self) -> int | None:
        """Records without control records; None where only decompression tells."""
        if self.deep is not None:
            return self.deep.records
        counts = [each.records for each in self.formats.values()]
        return None if None in counts else sum(count for count in counts if count is not None)


@dataclass(slots=True)
class PartitionInventory:
    """What one partition folder holds."""

    partition: PartitionDirectory
    dialect: Dialect
    log_start_offset: int
    tally: Tally
    damage: list[CorruptRecordError]  # in segments
    index_damage: list[CorruptRecordError]  # in index files, snapshots and checkpoints


def take_inventory(
    partition: PartitionDirectory,
    *,
    dialect: Dialect | None = None,
    deep: bool = False,
    limit: int = DEFAULT_MAX_BATCH_BYTES,
    threads: int = 1,
    expected_bytes: int | None = None,
    on_damage: DamageHandler = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> PartitionInventory:
    """Return the inventory of one partition.

    `threads` decode when `deep`. `expected_bytes` are those of all partitions that the caller will ask about (default:
    of this one): they decide whether loading compiled kernels is worth it. `on_damage` is called for each damage, in
    logs and in the files beside them, and may raise; the inventory has them all.
    """
    counter = _Counter(dialect or partition.dialect, deep=deep)
    total = partition.size if expected_bytes is None else expected_bytes
    result = PartitionInventory(partition, counter.dialect, 0, counter.tally, [], [])

    def log_damage(error: CorruptRecordError) -> None:
        result.damage.append(error)
        on_damage(error)

    _check_companions(result, on_damage)
    if deep:
        kernel.expect(total)
    with ThreadPoolExecutor(threads, "magicbyte-inventory") as pool:
        for segment in partition.segments:
            with partition.files.open(segment.log.path) as file:
                done = 0
                blocks = _blocks(file, counter.dialect, limit, total, log_damage, headers_only=not deep)
                for block, found in _with_records(blocks, limit, log_damage, pool, threads if deep else 0):
                    counter.add(block, found, log_damage)
                    progress(block.end - done)
                    done = block.end
                progress(segment.log.size - done)
    counter.finish()
    return result


def add_up(tallies: Iterable[Tally]) -> Tally:
    """Return the sums over several partitions; offsets, which mean nothing then, are None."""
    total = Tally()
    smallest: list[int | None] = []
    for each in tallies:
        for name, count in each.formats.items():
            known = total.formats.setdefault(name, FormatCount())
            known.batches += count.batches
            known.bytes += count.bytes
            known.records = None if known.records is None or count.records is None else known.records + count.records
        for kind in ("correct", "broken", "other"):
            setattr(total.lz4_headers, kind, getattr(total.lz4_headers, kind) + getattr(each.lz4_headers, kind))
        if total.holes is None or each.holes is None:
            total.holes = None
        else:
            total.holes = Holes(total.holes.count + each.holes.count, total.holes.offsets + each.holes.offsets)
        total.committed, total.aborted = total.committed + each.committed, total.aborted + each.aborted
        total.control_batches += each.control_batches
        total.open_transactions += each.open_transactions
        total.max_timestamp = _extreme(max, total.max_timestamp, each.max_timestamp)
        total.min_batch_timestamp = _extreme(min, total.min_batch_timestamp, each.min_batch_timestamp)
        if each.min_batch_timestamp is not None:
            smallest.append(each.min_timestamp)
        if each.deep is not None:
            total.deep = (total.deep or RecordFacts()).plus(each.deep)
    known_ones = [each for each in smallest if each is not None]
    total.min_timestamp = min(known_ones) if known_ones and len(known_ones) == len(smallest) else None
    return total


def _extreme(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else choose(one, other)


def _check_companions(result: PartitionInventory, on_damage: DamageHandler) -> None:
    """Parse the files beside the log: what is wrong with them goes into `index_damage`."""
    partition = result.partition

    def check(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except CorruptRecordError as error:
            result.index_damage.append(error)
            on_damage(error)
            return None

    result.log_start_offset = check(lambda: log_start_offset(partition)) or 0
    for segment in partition.segments:
        for read in (
            partition.offset_index,
            partition.time_index,
            partition.transaction_index,
            partition.enriched_index,
        ):
            check(lambda read=read, segment=segment: read(segment))  # type: ignore[misc]
    for offset in partition.snapshots:
        check(lambda offset=offset: partition.snapshot(offset))  # type: ignore[misc]
    check(partition.leader_epochs)
    check(partition.metadata)


# ---- reading


@dataclass(slots=True)
class _Block:
    """Neighbouring entries of one file: `position` (n,) in it, `size` (n,), `heads` (n, HEAD); `end` of the last."""

    file: ReadableFile
    position: Int64s
    size: Int64s
    heads: Heads
    end: int
    chunk: Chunk | None = None  # where whole entries were read


def _blocks(
    file: ReadableFile, dialect: Dialect, limit: int, total: int, on_damage: DamageHandler, *, headers_only: bool
) -> Iterator[_Block]:
    """Yield all entries of a file: of large ones only the headers are read, if that suffices and needs no requests."""
    position = 0
    if headers_only and isinstance(file, LocalFile):
        position = yield from _walk_headers(file, dialect, limit, total)
    for chunk in read_chunks(file, start=position, dialect=dialect, limit=limit, on_damage=on_damage):
        table = chunk.table
        at, size = np.asarray(table.position, np.int64), np.asarray(table.size, np.int64)
        yield _Block(file, at + chunk.position, size, _heads(table.buffer, at), chunk.position + table.end, chunk)


def _walk_headers(file: LocalFile, dialect: Dialect, limit: int, total: int) -> Generator[_Block, None, int]:
    """Yield entries from the start on, and return the position from which `read_chunks` is to go on.

    That is the end of the file less an entry or so; anything odd, so that one place tells what is wrong; or where it
    turns out that in `total` bytes there will be so many entries that the compiled walk is faster.
    """
    at: int = 0
    seen = 0
    while True:
        start, wanted = at, _ROWS_PER_BLOCK if seen else _ROWS_TO_JUDGE_BY
        positions, heads, at = _read_heads(file, dialect, limit, at, wanted)
        if positions and at > file.size:  # the last one is cut off
            at = positions.pop()
            heads.pop()
            wanted = 0
        if positions:
            position = np.array(positions, np.int64)
            head = np.frombuffer(b"".join(heads), np.uint8).reshape(-1, HEAD)
            yield _Block(file, position, np.diff(position, append=at), head, at)
        seen += len(positions)
        if len(positions) < wanted or at == start:
            return at
        if total * seen > _MANY_ROWS * at:
            kernel.expect(total)
            return at


def _read_heads(
    file: LocalFile, dialect: Dialect, limit: int, at: int, wanted: int
) -> tuple[list[int], list[bytes], int]:
    """Return positions and heads of up to `wanted` entries from `at` on, and where the last one says to end.

    Large entries cost one short read each, of small ones many are read at once.
    """
    minima = {1: layout.V1_MINIMUM} if dialect is Dialect.ENRICHED else _MINIMA
    minimum_of, read, unpack = minima.get, file.read_at, _SIZE_AND_MAGIC.unpack_from
    most, last = limit - layout.LOG_OVERHEAD, file.size - HEAD
    positions: list[int] = []
    heads: list[bytes] = []
    window, base, size = b"", at, 0
    for _ in range(wanted):
        if at > last:
            break
        if size < _LARGE_ENTRY:
            if at - base + HEAD > len(window):
                window, base = read(at, _WINDOW), at
            head = window[at - base : at - base + HEAD]
        else:
            head = read(at, HEAD)
        size, magic = unpack(head)
        if not minimum_of(magic, most + 1) <= size <= most:
            break
        positions.append(at)
        heads.append(head)
        at += size + layout.LOG_OVERHEAD
    return positions, heads, at


def _heads(buffer: memoryview, position: Int64s) -> Heads:
    """Return the first HEAD bytes of the entries, zeros behind the end of `buffer`."""
    data = np.frombuffer(buffer, np.uint8)
    heads = np.zeros((len(position), HEAD), np.uint8)
    inside = int(np.searchsorted(position, len(data) - HEAD, "right"))
    if inside:
        heads[:inside] = np.lib.stride_tricks.sliding_window_view(data, HEAD)[position[:inside]]
    for row in range(inside, len(position)):  # a few at the end
        tail = data[position[row] :]
        heads[row, : len(tail)] = tail[:HEAD]
    return heads


# ---- decoding


@dataclass(slots=True)
class _Records:
    """What decoding a block found. `wrapper_first`: the first offset in each of its v0 and v1 wrappers, if all are."""

    facts: RecordFacts = field(default_factory=RecordFacts)
    by_format: dict[int, int] = field(default_factory=dict)
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    wrapper_first: Int64s | None = None


def _with_records(
    blocks: Iterator[_Block], limit: int, on_damage: DamageHandler, pool: ThreadPoolExecutor, threads: int
) -> Iterator[tuple[_Block, _Records | None]]:
    """Yield the blocks in order with what decoding found, decoded by so many threads; 0: not decoded."""
    pending: deque[tuple[_Block, Future[_Records]]] = deque()
    for block in blocks:
        if not threads or block.chunk is None:
            yield block, None
        elif threads == 1:
            yield block, _count_records(block.chunk, limit, on_damage)
        else:
            pending.append((block, pool.submit(_count_records, block.chunk, limit, on_damage)))
            if len(pending) > threads:
                first, future = pending.popleft()
                yield first, future.result()
    for block, future in pending:
        yield block, future.result()


def _count_records(chunk: Chunk, limit: int, on_damage: DamageHandler) -> _Records:
    """Decode all records of a chunk, with their checksums, one format at a time."""
    table = scan(chunk.table.buffer[: chunk.table.end], dialect=chunk.table.dialect, merge=True)
    merged = replace(chunk, table=table)
    found = _Records()
    kinds = np.asarray(table.magic, np.int64) * _CODECS + table.codec
    wrapped = (np.asarray(table.count, np.int64) == -1) & (np.asarray(table.magic, np.int64) < 2)
    for kind in np.unique(kinds).tolist():
        rows = np.flatnonzero(kinds == kind)
        offsets = []
        count = 0
        for columns in decode_chunk(merged, rows.tolist(), DecodeOptions(limit=limit), on_damage):
            _add_columns(found, columns)
            count += len(columns)
            if wrapped[rows[0]]:
                offsets.append(np.asarray(columns.offset, np.int64))
        found.by_format[kind] = count
        if offsets and table.dialect is Dialect.KAFKA:
            firsts = _first_offsets(np.concatenate(offsets), np.asarray(table.offset, np.int64)[rows])
            found.wrapper_first = _put(found.wrapper_first, len(table), rows, firsts)
    if found.wrapper_first is not None:
        found.wrapper_first = found.wrapper_first[wrapped]
    return found


def _put(whole: Int64s | None, size: int, rows: Int64s, values: Int64s) -> Int64s:
    whole = np.full(size, -1, np.int64) if whole is None else whole
    whole[rows] = values
    return whole


def _first_offsets(offsets: Int64s, lasts: Int64s) -> Int64s:
    """Return the first offset in each wrapper, given all offsets inside and the last one of each; -1 where unclear."""
    starts = np.concatenate(([0], np.searchsorted(offsets, lasts[:-1], "right")))
    firsts = offsets[np.minimum(starts, len(offsets) - 1)]
    return np.where(firsts <= lasts, firsts, -1)


def _add_columns(found: _Records, columns: RecordColumns) -> None:
    assert columns.key is not None
    assert columns.value is not None
    assert columns.headers is not None
    facts, count = found.facts, len(columns)
    keyed = int(np.count_nonzero(np.asarray(columns.key.length) >= 0))
    header_counts = np.asarray(columns.headers.count)
    facts.records += count
    facts.with_key += keyed
    facts.without_key += count - keyed
    facts.tombstones += int(np.count_nonzero(np.asarray(columns.value.length) < 0))
    facts.with_headers += int(np.count_nonzero(header_counts))
    facts.headers += int(header_counts.sum(dtype=np.int64))
    times = np.asarray(columns.timestamp, np.int64)
    times = times[times != layout.NO_TIMESTAMP]
    if len(times):
        found.min_timestamp = _extreme(min, found.min_timestamp, int(times.min()))
        found.max_timestamp = _extreme(max, found.max_timestamp, int(times.max()))


# ---- counting


class _Counter:
    """Adds blocks of one partition, in their order, to a tally."""

    def __init__(self, dialect: Dialect, *, deep: bool) -> None:
        self.dialect = dialect
        self.tally = Tally(deep=RecordFacts() if deep else None)
        self._deep = deep
        self._is_first = True
        self._last: int | None = None  # offset of the entry before, if known
        self._smallest_known = True
        self._open: dict[int, int] = {}  # producer id to first offset

    def add(self, block: _Block, found: _Records | None, on_damage: DamageHandler) -> None:
        """Count the entries of a block."""
        heads = np.ascontiguousarray(block.heads).view(_LAYOUT).reshape(-1)
        magic = heads["magic"].astype(np.int64)
        batch = magic == 2
        attributes = np.where(batch, heads["attributes"], heads["message_attributes"]).astype(np.int64)
        codec = attributes & layout.CODEC_MASK
        if self.dialect is Dialect.ENRICHED:
            control = attributes & layout.ENRICHED_CONTROL_BIT != 0
            codec = np.where(control, 0, codec)
        else:
            control = batch & (attributes & layout.CONTROL_BIT != 0)
        wrapper = ~batch & (codec != 0)
        count = np.where(batch, heads["record_count"], 1).astype(np.int64)
        self.tally.control_batches += int(np.count_nonzero(control))
        self._add_formats(magic * _CODECS + codec, block.size, np.where(control, 0, count), wrapper, found)
        self._add_offsets(heads, batch, wrapper, found)
        self._add_times(heads, magic, attributes, ~control & (count != 0), wrapper)
        if found is not None:
            self._add_records(found)
        lz4 = codec == Codec.LZ4
        if lz4.any():
            self._add_lz4(block, heads, magic, np.flatnonzero(lz4), on_damage)
        transactional = batch & (attributes & (layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT) != 0)
        if transactional.any():
            self._add_transactions(block, heads, control, np.flatnonzero(transactional), on_damage)

    def finish(self) -> None:
        """Say of the whole what could be said only at its end."""
        if not self._deep and not self._smallest_known:
            self.tally.min_timestamp = None
        self.tally.open_transactions = [OpenTransaction(*each) for each in self._open.items()]

    def _add_formats(self, kind: Int64s, size: Int64s, count: Int64s, wrapper: Bools, found: _Records | None) -> None:
        batches = np.bincount(kind)
        sizes = np.bincount(kind, weights=size)
        counts = np.bincount(kind, weights=np.where(wrapper, 0, count))
        unknown = np.bincount(kind, weights=wrapper) > 0
        for each in np.flatnonzero(batches).tolist():
            number = each % _CODECS
            name = (each // _CODECS, Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown {number}")
            known = self.tally.formats.setdefault(name, FormatCount())
            known.batches += int(batches[each])
            known.bytes += int(sizes[each])
            if found is not None and known.records is not None:
                known.records += found.by_format.get(each, 0)
            else:
                known.records = None if unknown[each] or known.records is None else known.records + int(counts[each])

    def _add_offsets(self, heads: Any, batch: Bools, wrapper: Bools, found: _Records | None) -> None:
        first = heads["offset"].astype(np.int64)
        last = np.where(batch, first + heads["last_offset_delta"], first)
        if self.dialect is Dialect.ENRICHED:
            knows_first, knows_last = np.ones_like(wrapper), ~wrapper
        else:
            knows_first, knows_last = ~wrapper, np.ones_like(wrapper)
            if found is not None and found.wrapper_first is not None:
                first[wrapper] = found.wrapper_first
                knows_first |= wrapper & (first >= 0)
        tally = self.tally
        before = np.concatenate(([-1 if self._last is None else self._last], last[:-1]))
        knows_before = np.concatenate(([self._last is not None or self._is_first], knows_last[:-1]))
        if self._is_first:
            tally.first_offset = int(first[0]) if knows_first[0] else None
            before[:1] = first[:1] - 1
            knows_first[0] = True  # nothing lies before it
        if tally.holes is not None and (knows_first & knows_before).all():
            gaps = first - before - 1
            gaps = gaps[gaps > 0]
            tally.holes.count += len(gaps)
            tally.holes.offsets += int(gaps.sum())
        else:
            tally.holes = None
        self._is_first = False
        self._last = tally.last_offset = int(last[-1]) if knows_last[-1] else None

    def _add_times(self, heads: Any, magic: Int64s, attributes: Int64s, data: Bools, wrapper: Bools) -> None:
        if self.dialect is Dialect.ENRICHED:
            seconds = heads["seconds"].astype(np.int64)
            times = np.where(seconds == -1, layout.NO_TIMESTAMP, (seconds & 0xFFFF_FFFF) * 1000)
            tagged = (heads["tags_length"] > layout.INT64.size) & (heads["first_tag"] == 0)
            times = np.where(tagged, heads["tagged_timestamp"], times).astype(np.int64)
            exact = ~wrapper
        else:
            times = np.where(magic == 2, heads["max_timestamp"], heads["message_timestamp"]).astype(np.int64)
            exact = attributes & layout.LOG_APPEND_TIME_BIT != 0
            exact |= np.where(magic == 2, heads["record_count"] == 1, ~wrapper)
            data = data & (magic > 0)
        dated = data & (times != layout.NO_TIMESTAMP)
        if not dated.any():
            return
        tally, smallest = self.tally, int(times[dated].min())
        tally.min_batch_timestamp = _extreme(min, tally.min_batch_timestamp, smallest)
        if not self._deep:
            tally.min_timestamp = tally.min_batch_timestamp
            tally.max_timestamp = _extreme(max, tally.max_timestamp, int(times[dated].max()))
            self._smallest_known &= bool(exact[dated].all())

    def _add_records(self, found: _Records) -> None:
        assert self.tally.deep is not None
        self.tally.deep = self.tally.deep.plus(found.facts)
        self.tally.min_timestamp = _extreme(min, self.tally.min_timestamp, found.min_timestamp)
        self.tally.max_timestamp = _extreme(max, self.tally.max_timestamp, found.max_timestamp)

    def _add_lz4(self, block: _Block, heads: Any, magic: Int64s, rows: Int64s, on_damage: DamageHandler) -> None:
        """Tell the header checksums of LZ4 frames; all but unusual ones at once."""
        starts = np.array([layout.V0_OVERHEAD, layout.V1_OVERHEAD, layout.RECORD_BATCH_OVERHEAD])[magic[rows]]
        keyless = np.where(magic == 0, heads["v0_key_length"], heads["v1_key_length"]) == -1
        plain = keyless[rows] | (magic[rows] == 2)
        if self.dialect is Dialect.ENRICHED:
            plain[:] = False  # the frame is behind the tags
        frames = block.heads[rows[:, None], starts[:, None] + np.arange(_LZ4_LONGEST_HEAD)]
        unusual = np.ones(len(rows), bool)
        for kind, common in _LZ4_HEADS.items():
            same = plain & (frames[:, : len(common)] == common).all(axis=1)
            self._count_lz4(kind, int(np.count_nonzero(same)))
            unusual &= ~same
        for at in np.flatnonzero(unusual).tolist():
            row = int(rows[at])
            if plain[at]:
                frame = frames[at, : max(int(block.size[row]) - int(starts[at]), 0)].tobytes()
            else:
                frame = self._frame(block, row, on_damage)
            self._count_lz4(lz4_header_checksum(frame), 1)

    def _count_lz4(self, kind: Lz4Header | None, count: int) -> None:
        name = kind.value if kind is not None else "other"
        setattr(self.tally.lz4_headers, name, getattr(self.tally.lz4_headers, name) + count)

    def _frame(self, block: _Block, row: int, on_damage: DamageHandler) -> bytes:
        """Return the start of the value of a wrapper with a key or tags."""
        position = int(block.position[row])
        content = memoryview(block.file.read_at(position, int(block.size[row])))
        try:
            entry = parse_entry(content, self.dialect)
            assert isinstance(entry, Message | EnrichedMessage)
            return bytes((entry.value or b"")[:_LZ4_LONGEST_HEAD])
        except CorruptRecordError as error:
            error.position = position
            if not self._deep:  # decoding reports it, too
                on_damage(error.locate(path=block.file.path))
            return b""

    def _add_transactions(
        self, block: _Block, heads: Any, control: Bools, rows: Int64s, on_damage: DamageHandler
    ) -> None:
        """Count markers, and follow which producers have a transaction open."""
        data, markers = rows[~control[rows]], rows[control[rows]]
        markers = markers[heads["record_count"][markers] != 0]  # not those that a cleaner emptied
        types = heads["marker_type"][markers].astype(np.int64)
        usual = (block.heads[markers, _SHORT_VARINTS] < 128).all(axis=1) & (
            heads["marker_key_length"][markers] == _MARKER_KEY
        )
        for at in np.flatnonzero(~usual).tolist():
            types[at] = self._marker_type(block, int(markers[at]), on_damage)
        self.tally.committed += int(np.count_nonzero(types == ControlType.COMMIT))
        self.tally.aborted += int(np.count_nonzero(types == ControlType.ABORT))
        ends = markers[(types == ControlType.COMMIT) | (types == ControlType.ABORT)]
        ended = dict(zip(heads["producer_id"][ends].tolist(), ends.tolist(), strict=True))  # the last one of each
        for producer in ended:
            self._open.pop(producer, None)
        producers, which = np.unique(heads["producer_id"][data].astype(np.int64), return_inverse=True)
        ends_at = np.array([ended.get(each, -1) for each in producers.tolist()], np.int64)
        unended = data > ends_at[which] if len(data) else np.zeros(0, bool)
        still, first = np.unique(heads["producer_id"][data[unended]].astype(np.int64), return_index=True)
        for producer, row in zip(still.tolist(), data[unended][first].tolist(), strict=True):
            if producer != layout.NO_PRODUCER_ID:
                self._open.setdefault(producer, int(heads["offset"][row]))

    def _marker_type(self, block: _Block, row: int, on_damage: DamageHandler) -> int:
        """Return the type of a control batch that is not laid out as brokers do it."""
        position = int(block.position[row])
        try:
            batch = RecordBatch.parse(memoryview(block.file.read_at(position, int(block.size[row]))))
            marker = None if batch is None else marker_of(batch)
            return ControlType.UNKNOWN if marker is None else marker.type
        except CorruptRecordError as error:
            error.position = position
            on_damage(error.locate(path=block.file.path))
            return ControlType.UNKNOWN
