"""Deep decoding: the records of any mix of messages, wrappers and batches, as columns.

Three separate steps: `scan` finds the entries, the checksums are verified, the records are decoded. Small slices take
the plain twins of the kernels, large ones the compiled kernels, with the same results.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from msgspec import Struct

from magicbyte.engine.codecs import Codec, Lz4Header, OutputFull, decompress_into, lz4_read_kernels
from magicbyte.engine.compiled.checksums import CASTAGNOLI, IEEE
from magicbyte.engine.compiled.kernel import Ints, expect, worth_compiling
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError
from magicbyte.engine.records.columns import BytesColumn, HeaderColumns, RecordColumns
from magicbyte.engine.records.enriched import EnrichedMessage
from magicbyte.engine.records.forms import Form, Lists, form_for
from magicbyte.engine.records.header import extent_of
from magicbyte.engine.records.kernels.batches import (
    NOT_PLAIN,
    decode_batches,
    decode_plain_log,
    open_batches,
    read_headers,
)
from magicbyte.engine.records.kernels.cells import CELL_SPARE, LEAVE, PACK, REFER
from magicbyte.engine.records.kernels.messages import decode_messages, measure_messages, open_wrappers
from magicbyte.engine.records.kernels.runs import COUNT, END, OWN, RUN, START, TYPE, run_of
from magicbyte.engine.records.kernels.statuses import AT, DONE, HEADERS, KEY_BYTES, ROWS, RUN_INDEX, STATE, VALUE_BYTES
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    CODEC_MASK,
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_AT,
    RECORD_BATCH_OVERHEAD,
    RECORD_MINIMUM,
    V0_OVERHEAD,
    V1_OVERHEAD,
    V1_TIMESTAMP,
    Dialect,
    TimestampType,
)
from magicbyte.engine.records.scan import GROUP_BYTES, BatchTable, complaint, scan
from magicbyte.engine.sentinels import NO_TIMESTAMP
from magicbyte.engine.wire.checksum import crc32, crc32c

DEFAULT_MAX_BATCH_BYTES = 64 << 20
_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii").unpack_from
_WRAPPER_HEADER = struct.Struct(">Ibb").unpack_from
_WINDOW = 4 * GROUP_BYTES  # bytes scanned at a time before they are decoded
_STEP = 2 << 20  # bytes of uncompressed batches per kernel call: the output stays in the caches
_STRETCH = 8  # the shortest run of uncompressed batches whose headers are read together
_PADDING = 64  # spare bytes after decompressed data, for wide copies that read and write past the end
_KINDS = 8  # codecs per kind of entry
_PLAIN = 2 * _KINDS  # the kind of uncompressed v2 batches


class DecodeOptions(Struct, frozen=True):
    """Which parts to decode, and which checks to make.

    `keys`, `values`, `headers`: whether to decode them. `packed`: copy cells without gaps, as Arrow needs them
    (compiled kernels only; the plain twins refer to the decompressed bytes). `verify`: check every CRC, outer and
    inner. `limit`: the maximum size of a batch in bytes, also after decompression. `control`: include the records of
    control batches. `any_lz4_header`: accept LZ4 frames of magic 1 with the broken header checksum. `strict`: also
    verify of compressed data what Kafka's readers do not (`codecs.decompress_into`).
    """

    keys: bool = True
    values: bool = True
    headers: bool = True
    packed: bool = False
    verify: bool = True
    limit: int = DEFAULT_MAX_BATCH_BYTES
    control: bool = False
    any_lz4_header: bool = False
    strict: bool = False


DEFAULT_OPTIONS = DecodeOptions()


def decode(
    buffer: memoryview, options: DecodeOptions = DEFAULT_OPTIONS, *, dialect: Dialect = Dialect.KAFKA
) -> Iterator[RecordColumns]:
    """Yield the records of all entries of `buffer`, in order. An incomplete entry at the end is left out.

    Raises CorruptRecordError at damage, after it has yielded everything before. The error's position counts from the
    beginning of `buffer`.
    """
    expect(len(buffer))
    at, window = 0, _WINDOW
    while at < len(buffer):
        if dialect is Dialect.KAFKA and worth_compiling(len(buffer) - at):
            at = yield from _plain_batches(buffer, at, options)
            if at == len(buffer):
                return
        # In windows: the bytes that the scan has walked are still in the caches when they are decoded.
        table = scan(buffer[: at + window], start=at, dialect=dialect, merge=True)
        yield from decode_rows(table, range(len(table)), options)
        if table.damage is not None:
            raise table.damage
        if table.end == at and at + window >= len(buffer):
            return
        window = _WINDOW if table.end > at else max(table.need, 2 * window)
        at = table.end


def _plain_batches(buffer: memoryview, at: int, options: DecodeOptions) -> Generator[RecordColumns, None, int]:
    """Yield the records of uncompressed v2 batches from `at` on; return the position of the first other or damaged
    entry.

    Headers are read in the same walk: a separate walk over headers would cost a cache miss for each of them.
    """
    make = form_for(compiled=True)
    data, crcs, run = make.bytes_of(buffer), make.crc_table(CASTAGNOLI), make.zeros(RUN)
    state = make.zeros(STATE)
    limits = int(options.verify), options.limit
    while len(buffer) - at >= RECORD_BATCH_OVERHEAD:
        _, length, _, magic, _, attributes, *_, count = _BATCH_HEADER(buffer, at)
        size = LOG_OVERHEAD + length
        if magic != 2 or attributes & NOT_PLAIN or not 0 <= count * RECORD_MINIMUM < size <= len(buffer) - at:
            break
        most = min(max(_STEP, size), len(buffer) - at)
        rows = count + count * most // size * 5 // 4  # estimated from this batch, with a quarter to spare
        room = _Room(options, make)
        outputs = room.take(rows, most)
        state[:] = 0
        where = at, len(buffer), *limits, rows, most
        if not decode_plain_log(data, *where, run, crcs, room.keys, room.values, *outputs, state):
            break
        at = int(state[AT])
        if len(columns := room.columns(data, state)):
            yield columns
        del columns, outputs, room  # so that the arena is reused for the next columns while it is in the caches
    return at


def decode_rows(
    table: BatchTable, rows: Iterable[int], options: DecodeOptions = DEFAULT_OPTIONS
) -> Iterator[RecordColumns]:
    """Yield the records of the given rows of `table`, as `decode`; about GROUP_BYTES of them at a time."""
    for _, _, columns in decode_entries(table, rows, options):
        yield columns


def decode_entries(
    table: BatchTable, rows: Iterable[int], options: DecodeOptions = DEFAULT_OPTIONS
) -> Iterator[tuple[list[int], Ints, RecordColumns]]:
    """Yield the rows of `table` that were decoded, the record count of each, and the columns, as `decode_rows` does.

    If a row is damaged, the columns before the error end before that row, or, in a row of messages, before the damaged
    message.
    """
    group = _Group(table, options)
    try:
        for kind, stretch in group.stretches(rows):
            if kind == _PLAIN:
                found = group.add_plain_batches(stretch)
            elif kind:
                found = group.add_compressed(stretch, *divmod(kind, _KINDS))
            else:
                found = itertools.chain.from_iterable(map(group.add, stretch))
            for columns in found:
                yield *group.decoded, columns
    except CorruptRecordError:
        for columns in group.finish():
            yield *group.decoded, columns
        raise
    for columns in group.finish():
        yield *group.decoded, columns


def decode_opened(
    table: BatchTable, rows: list[int], options: DecodeOptions, opened: Any, runs: Any, *, compiled: bool
) -> Iterator[tuple[list[int], Ints, RecordColumns]]:
    """Decode rows of one magic whose payloads are already decompressed in `opened`, at the positions in `runs`.

    Yields as `decode_entries`. Checksums of the entries are not verified again. `compiled` is the form of `opened` and
    `runs`.
    """
    group = _Group(table, options)
    group.compiled, group.scratch = compiled, opened
    for columns in group.decode(runs, rows, batches=int(table.magic[rows[0]]) == 2, from_scratch=True):
        yield *group.decoded, columns


_NO_CELLS = BytesColumn(b"", [0], [], packed=True)


def _kind(magic: int, attributes: int) -> int:
    """Return the kind of an entry: magic * _KINDS + codec if such entries are worth reading together, else 0."""
    codec = attributes & CODEC_MASK
    together = codec <= Codec.ZSTD and not attributes & CONTROL_BIT if magic == 2 else 0 < codec <= Codec.LZ4
    return magic * _KINDS + codec if together else 0


class _Group:
    """Collected runs of records of one family (v2 batches, or messages) and one source, decoded in one kernel call.

    The source is the table's buffer, or `scratch`, which holds decompressed payloads one after the other.
    """

    def __init__(self, table: BatchTable, options: DecodeOptions) -> None:
        self.table = table
        self.options = options
        self.compiled = worth_compiling(len(table.buffer))
        self.runs: list[int] = []
        self.rows: list[int] = []  # a row of the table for each run
        self.batches = self.from_scratch = False
        self.size = 0
        self.filled = 0
        self.scratch: Any = bytearray()
        self.decoded: tuple[list[int], Ints] = [], []  # rows of the latest columns, and the record count of each

    def add(self, row: int) -> Iterator[RecordColumns]:
        """Add one row, and yield complete columns. Raises CorruptRecordError for a damaged row."""
        table, options = self.table, self.options
        position, size, magic = int(table.position[row]), int(table.size[row]), int(table.magic[row])
        if size > options.limit and (magic == 2 or int(table.count[row]) < 2):
            raise self._at(row, BatchTooLargeError("batch size", expected=f"<= {options.limit}", found=size))
        if magic == 2:
            if int(table.attributes[row]) & CONTROL_BIT and not options.control:
                if options.verify:
                    self._batch_run(row, position, size)
                return
            run = self._batch_run(row, position, size)
        elif table.dialect is Dialect.ENRICHED:
            if int(table.attributes[row]) & 8 and not options.control:
                if options.verify:
                    self._enriched_run(row, position, size)
                return
            run = self._enriched_run(row, position, size)
        elif int(table.attributes[row]) & CODEC_MASK:
            run = self._wrapper_run(row, position, size, magic)
        else:
            run = run_of(position, position + size, magic=magic, kind=OWN, count=int(table.count[row]))
        compressed = run[START] < 0
        if self.runs and (self.batches != (magic == 2) or (compressed and not self.from_scratch)):
            yield from self.finish()
        if compressed:
            yield from self._decompress(row, run)
        elif self.runs and self.from_scratch:
            yield from self._append(run)
        self.batches = magic == 2
        self.from_scratch = compressed or (self.from_scratch and bool(self.runs))
        self.runs.extend(run)
        self.rows.append(row)
        self.size += run[END] - run[START]
        if self.size >= GROUP_BYTES:
            yield from self.finish()

    def stretches(self, rows: Iterable[int]) -> Iterator[tuple[int, Any]]:
        """Split `rows` at changes of the kind of entries (`_kind`).

        Fewer than _STRETCH of a kind count as kind 0: they are faster together with their neighbours.
        """
        if not self.compiled or self.table.dialect is Dialect.ENRICHED:
            yield 0, rows
            return
        import numpy as np

        if isinstance(rows, range):
            part: Any = slice(rows.start, rows.stop, rows.step)
            chosen = np.arange(rows.start, rows.stop, rows.step)
        else:
            part = chosen = np.array(list(rows), np.int64)
        magic, attributes = (np.asarray(each, np.int64)[part] for each in (self.table.magic, self.table.attributes))
        other = (attributes[1:] != attributes[:-1]) | (magic[1:] != magic[:-1])
        if len(chosen) >= _STRETCH and not other.any():  # the usual case
            kind = _kind(int(magic[0]), int(attributes[0]))
            yield kind, chosen if kind else chosen.tolist()
            return
        # the arrays here are short
        starts = np.flatnonzero(np.concatenate((np.ones(min(len(chosen), 1), np.bool_), other)))
        values = zip(magic[starts].tolist(), attributes[starts].tolist(), strict=True)
        kinds = np.array([_kind(*each) for each in values], np.int64)
        # merge neighbours of a kind; a run that is too short becomes kind 0 and merges with its neighbours
        for _ in range(2):
            firsts = np.flatnonzero(np.diff(kinds, prepend=-1))
            starts, kinds = starts[firsts], kinds[firsts]
            kinds[np.diff(starts, append=len(chosen)) < _STRETCH] = 0
        bounds = itertools.pairwise([*starts.tolist(), len(chosen)])
        for kind, (start, end) in zip(kinds.tolist(), bounds, strict=True):
            yield kind, chosen[start:end] if kind else chosen[start:end].tolist()

    def add_plain_batches(self, rows: Any) -> Iterator[RecordColumns]:
        """Add many uncompressed batches, as `add` does, reading their headers together."""
        import numpy as np

        yield from self.finish()
        position, size = self._places(rows)
        runs, make = np.empty(len(rows) * RUN, np.int64), form_for(compiled=True)
        data, verify, limit = make.bytes_of(self.table.buffer), int(self.options.verify), self.options.limit
        crcs = make.crc_table(CASTAGNOLI)
        good = open_batches(data, position, size, verify, limit, RECORD_MINIMUM, crcs, runs)
        ends = np.cumsum(size)
        # equal groups: a small last one would cost a whole kernel call
        most = int(ends[-1]) // max(round(int(ends[-1]) / GROUP_BYTES), 1) + 1
        groups = ends // most
        first = 0
        for end in [*(np.flatnonzero(groups[1:good] != groups[: max(good - 1, 0)]) + 1).tolist(), good]:
            if end > first:
                part = runs[first * RUN : end * RUN]
                yield from self.decode(part, rows[first:end].tolist(), batches=True, from_scratch=False)
            first = end
        if good < len(rows):
            yield from self.add(int(rows[good]))  # raises with the reason

    def add_compressed(self, rows: Any, magic: int, codec: int) -> Iterator[RecordColumns]:
        """Add many batches or wrappers of one magic and codec, as `add` does.

        Unusual or damaged entries go through `add`, which handles or reports them.
        """
        import numpy as np

        yield from self.finish()
        make, verify, limit = form_for(compiled=True), int(self.options.verify), self.options.limit
        data = make.bytes_of(self.table.buffer)
        while len(rows):
            position, size = self._places(rows)
            whole = np.empty(len(rows) * RUN, np.int64)
            if magic == 2:
                crcs = make.crc_table(CASTAGNOLI)
                good = open_batches(data, position, size, verify, limit, 0, crcs, whole)
            else:
                good = open_wrappers(data, position, size, magic, verify, limit, make.crc_table(IEEE), whole)
            done = 0
            while done < good:
                self._room(max(4 * int(size[done]), self._usual_room()))
                part = whole[done * RUN : good * RUN]
                if not (count := self._decompress_many(Codec(codec), magic, part)):
                    break
                decompressed, taken = part[: count * RUN], rows[done : done + count].tolist()
                yield from self.decode(decompressed, taken, batches=magic == 2, from_scratch=True)
                done += count
            if done < len(rows):
                yield from self.add(int(rows[done]))
                yield from self.finish()
            rows = rows[done + 1 :]

    def _decompress_many(self, codec: Codec, magic: int, runs: Any) -> int:
        """Decompress payloads to the end of `scratch`, and set their positions there in `runs`.

        Returns how many payloads were decompressed: it stops at the first that does not fit, is unusual or is damaged.
        """
        make, limit = form_for(compiled=True), self.options.limit
        cells = runs.reshape(-1, RUN)
        any_header = magic == 0 or self.options.any_lz4_header
        if codec is Codec.LZ4:
            data = make.bytes_of(self.table.buffer)
            read: Any = lz4_read_kernels.read_frames
            done = int(read(data, runs, RUN, int(any_header), self.scratch, self.filled, limit))
        else:
            header = Lz4Header.ANY if any_header else Lz4Header.CORRECT
            done, at, most, end = 0, self.filled, 0, len(self.scratch) - _PADDING
            places = []
            with memoryview(self.scratch) as view:
                for start, stop in cells[:, :2].tolist():
                    if end - at < most:  # the next payload is likely as large
                        break
                    payload = self.table.buffer[start:stop]
                    try:
                        room = view[at : min(at + limit, end)]
                        written = decompress_into(codec, payload, room, lz4_header=header, strict=self.options.strict)
                    except (OutputFull, CorruptRecordError):
                        break  # `add` will decompress that row again and raise with the details
                    places.append((at, at + written))
                    at, most = at + written, max(most, written)
            done = len(places)
            if done:
                cells[:done, :2] = places
        if magic == 2:
            sizes = cells[:done, END] - cells[:done, START]
            impossible = cells[:done, COUNT] > sizes // RECORD_MINIMUM
            done = int(impossible.argmax()) if impossible.any() else done
        if done:
            self.filled = int(cells[done - 1, END])
        return done

    def _places(self, rows: Any) -> tuple[Any, Any]:
        """Return positions and sizes of rows."""
        import numpy as np

        return np.asarray(self.table.position, np.int64)[rows], np.asarray(self.table.size, np.int64)[rows]

    # ---- one row: header, checksum, position of its records

    def _at(self, row: int, error: CorruptRecordError) -> CorruptRecordError:
        """Complete the error with the entry's position and the offsets that its header claims."""
        table = self.table
        error.position = int(table.position[row]) if error.position is None else error.position
        if int(table.magic[row]) == 2:
            return error.locate(offsets=extent_of(table.buffer, int(table.position[row]))[:2])
        offset = int(table.offset[row])
        return error.locate(offsets=(offset, offset + max(int(table.count[row]), 1) - 1))

    def _batch_run(self, row: int, position: int, size: int) -> list[int]:
        buffer = self.table.buffer
        *_, stored, attributes, _, base_timestamp, max_timestamp, _, _, _, count = _BATCH_HEADER(buffer, position)
        if self.options.verify and (found := crc32c(buffer[position + ATTRIBUTES.start : position + size])) != stored:
            raise self._at(row, CorruptRecordError("crc", expected=f"{stored:#010x}", found=f"{found:#010x}"))
        run = run_of(
            position + RECORD_BATCH_OVERHEAD,
            position + size,
            magic=2,
            kind=(attributes & LOG_APPEND_TIME_BIT) >> 3,
            count=count,
            offset=int(self.table.offset[row]),
            base_timestamp=base_timestamp,
            timestamp=max_timestamp,
            check=-1,
        )
        if attributes & CODEC_MASK:
            run[START] = -1
        else:
            self._check_count(row, run)
        return run

    def _check_count(self, row: int, run: list[int]) -> None:
        """Refuse a record count that the bytes cannot hold, before anything is allocated for it."""
        most = (run[END] - run[START]) // RECORD_MINIMUM
        if not 0 <= run[COUNT] <= most:
            found = run[COUNT]
            raise self._at(row, CorruptRecordError("record count", expected=f"0 to {most}", found=found))

    def _wrapper_run(self, row: int, position: int, size: int, magic: int) -> list[int]:
        buffer = self.table.buffer
        stored, _, attributes = _WRAPPER_HEADER(buffer, position + LOG_OVERHEAD)
        if self.options.verify and (found := crc32(buffer[position + MAGIC_AT : position + size])) != stored:
            raise self._at(row, CorruptRecordError("crc", expected=f"{stored:#010x}", found=f"{found:#010x}"))
        kind = TimestampType.NO_TIMESTAMP_TYPE if magic == 0 else (attributes & LOG_APPEND_TIME_BIT) >> 3
        timestamp = V1_TIMESTAMP.type.unpack_from(buffer, position + V1_TIMESTAMP.start)[0] if magic else NO_TIMESTAMP
        offset = int(self.table.offset[row])
        return run_of(-1, 0, magic=magic, kind=kind, offset=offset, timestamp=timestamp, honor=1)

    def _enriched(self, position: int, size: int) -> EnrichedMessage:
        view = EnrichedMessage.parse(self.table.buffer[position : position + size])
        assert view is not None, "the scan found it whole"
        return view

    def _enriched_run(self, row: int, position: int, size: int) -> list[int]:
        if int(self.table.attributes[row]) & 15 == 0:
            return run_of(position, position + size, magic=1, kind=OWN, count=int(self.table.count[row]))
        try:
            view = self._enriched(position, size)
            if self.options.verify:
                view.verify()
            base_offset, timestamp, honor = view.base_offset, view.timestamp, int(view.honor_ship)
        except CorruptRecordError as error:
            error.position = position  # until here it counted from the start of the view
            raise self._at(row, error) from None
        if view.is_control:
            return run_of(position, position + size, magic=1, kind=OWN, count=1)
        kind = TimestampType.CREATE_TIME
        return run_of(-1, 0, magic=1, kind=kind, offset=base_offset, timestamp=timestamp, honor=honor)

    def _payload(self, row: int, position: int, size: int) -> tuple[Codec, memoryview, Lz4Header]:
        """Return codec, compressed bytes and the LZ4 header dialect of a wrapper or batch."""
        table = self.table
        entry = table.buffer[position : position + size]
        number = int(table.attributes[row]) & CODEC_MASK
        magic = int(table.magic[row])
        if number > Codec.ZSTD or (number == Codec.ZSTD and magic < 2):
            allowed = "0 to 4" if magic == 2 else "0 to 3 (zstd needs magic 2)"
            raise CorruptRecordError("codec", expected=allowed, found=number)
        if magic == 2:
            return Codec(number), entry[RECORD_BATCH_OVERHEAD:], Lz4Header.CORRECT
        if table.dialect is Dialect.ENRICHED:
            view = self._enriched(position, size)
            if view.value is None:
                raise CorruptRecordError("value of a wrapper", expected="compressed messages", found="null")
            return Codec(number), view.value, Lz4Header.CORRECT
        at = (V0_OVERHEAD if magic == 0 else V1_OVERHEAD) - 8
        key = int.from_bytes(entry[at : at + 4], "big", signed=True)
        at += 4 + max(key, 0)
        length = int.from_bytes(entry[at : at + 4], "big", signed=True)
        if key < -1 or length < 0 or at + 4 + length != size:
            raise CorruptRecordError("value of a wrapper", expected=f"{size - at - 4} bytes", found=f"length {length}")
        header = Lz4Header.ANY if magic == 0 or self.options.any_lz4_header else Lz4Header.CORRECT
        return Codec(number), entry[at + 4 :], header

    def _usual_room(self) -> int:
        """Return the size in bytes of a new scratch buffer: small for small input."""
        return min(GROUP_BYTES, 16 * len(self.table.buffer))

    def _room(self, wanted: int) -> int:
        """Return the free bytes in the scratch buffer. It grows only if nothing refers to it."""
        room = len(self.scratch) - self.filled - _PADDING
        if room < wanted and not self.runs:
            least = max(self._usual_room() if self.compiled else 0, wanted) + _PADDING
            (self.scratch,) = form_for(compiled=self.compiled).outputs([(least, "B")])
            self.filled, room = 0, least - _PADDING
        return max(room, 0)

    def _decompress(self, row: int, run: list[int]) -> Iterator[RecordColumns]:
        """Decompress a row's payload to the end of `scratch`, and set its position there in `run`."""
        size, limit = int(self.table.size[row]), self.options.limit
        wanted = min(max(4 * size, 1024), limit)
        while True:
            room = min(self._room(wanted if not self.runs else 1), limit)
            if (written := self._decompressed(row, room)) is not None:
                break
            if self.runs:
                yield from self.finish()
            else:
                wanted = min(2 * room, limit)
        self.compiled = self.compiled or worth_compiling(written)  # a few compressed bytes may hold millions of records
        run[START], run[END] = self.filled, self.filled + written
        if int(self.table.magic[row]) == 2:
            self._check_count(row, run)
        self.filled += written

    def _decompressed(self, row: int, room: int) -> int | None:
        """Decompress a row's payload to the next `room` bytes of the scratch; return its size, or None if it needs
        more.
        """
        position, size, limit = int(self.table.position[row]), int(self.table.size[row]), self.options.limit
        error: CorruptRecordError
        try:
            codec, payload, header = self._payload(row, position, size)
            with memoryview(self.scratch)[self.filled : self.filled + room] as view:
                return decompress_into(codec, payload, view, lz4_header=header, strict=self.options.strict)
        except OutputFull:
            if room < limit:
                return None
            error = BatchTooLargeError("decompressed size", expected=f"<= {limit}", found=f"more than {limit}")
        except CorruptRecordError as damage:
            error = damage
        error.position = position
        raise self._at(row, error)

    def _append(self, run: list[int]) -> Iterator[RecordColumns]:
        """Copy uncompressed records to the end of the scratch, so that one call decodes them with the decompressed
        ones.
        """
        size = run[END] - run[START]
        if self._room(size) < size:
            yield from self.finish()
            return
        payload = self.table.buffer[run[START] : run[END]]
        memoryview(self.scratch)[self.filled : self.filled + size] = payload
        run[START], run[END] = self.filled, self.filled + size
        self.filled += size

    # ---- all collected rows: kernels, columns

    def finish(self) -> Iterator[RecordColumns]:
        """Decode the collected runs and clear them. Raises as `decode`."""
        if self.runs:
            runs, rows, batches, from_scratch = self.runs, self.rows, self.batches, self.from_scratch
            self.rows, self.runs, self.size, self.from_scratch = [], [], 0, False
            yield from self.decode(runs, rows, batches=batches, from_scratch=from_scratch)

    def decode(self, runs: Any, rows: list[int], *, batches: bool, from_scratch: bool) -> Iterator[RecordColumns]:
        """Decode `runs`, one for each of `rows`.

        Raises for the first damaged row after yielding everything before it.
        """
        source = self.scratch if from_scratch else self.table.buffer
        runs = form_for(compiled=self.compiled).int64(runs)  # `measure_messages` sets the counts in this copy
        columns, status, failed, state = self._run_kernels(source, runs, batches=batches)
        self.decoded = rows, runs[COUNT::RUN]
        if self.options.packed and self.compiled:
            self.filled = 0  # the columns own their buffers, so the scratch is free again
        elif from_scratch:
            self.scratch, self.filled = bytearray(), 0
        if len(columns):
            yield columns
        if status == DONE:
            return
        error = complaint(status, state)
        if runs[failed * RUN + TYPE] == OWN and not from_scratch:
            error.position = place = int(state[AT])
            offset = int.from_bytes(self.table.buffer[place : place + 8], "big", signed=True)
            error.locate(offsets=(offset, offset))
        raise self._at(rows[failed], error)

    def _run_kernels(self, source: Any, runs: Any, *, batches: bool) -> tuple[RecordColumns, int, int, Any]:
        """Return the columns, the kernel's status, and for an error the index of the run and the kernel's state."""
        options, make = self.options, form_for(compiled=self.compiled)
        room = _Room(options, make)
        data = make.bytes_of(source)
        runs, state, cut = make.int64(runs), make.zeros(STATE), None
        if not batches and (status := make.form(measure_messages)(data, runs, state)) != DONE:
            cut = status, int(state[RUN_INDEX]), state
            runs, state = runs[: cut[1] * RUN], make.zeros(STATE)
        count, begun, ended = (make.sum(runs[field::RUN]) for field in _SUMMED)
        outputs = room.take(count, ended - begun)
        keys, values = room.keys, room.values
        if batches:
            status = make.form(decode_batches)(data, runs, make.crc_table(CASTAGNOLI), keys, values, *outputs, state)
        else:
            enriched, verify = int(self.table.dialect is Dialect.ENRICHED), int(options.verify)
            kernel = make.form(decode_messages)
            status = kernel(data, runs, enriched, verify, make.crc_table(IEEE), keys, values, *outputs[:-2], state)
            outputs[-1][:] = make.zeros(count)
        columns = room.columns(data, state)
        if status != DONE:
            return columns, status, int(state[RUN_INDEX]), state
        return (columns, *cut) if cut else (columns, status, -1, state)


_SUMMED = COUNT, START, END


class _Room:
    """Output arrays of the kernels for one group, and the columns made of them."""

    def __init__(self, options: DecodeOptions, make: Form) -> None:
        self.options = options
        self.make = make
        self.packed = options.packed and make is not Lists
        kept = PACK if self.packed else REFER
        self.keys, self.values = kept if options.keys else LEAVE, kept if options.values else LEAVE
        self.arrays: list[Any] = []

    def take(self, count: int, total: int) -> list[Any]:
        """Return arrays for `count` records in `total` bytes, in the order in which the kernels take them."""
        keys, values = ((total + CELL_SPARE) * (kept == PACK) for kept in (self.keys, self.values))
        cells = [(count, "q"), (count, "q"), (count, "b"), (count + 1, "i"), (count, "i"), (keys, "B")]
        cells += [(count + 1, "i"), (count, "i"), (values, "B"), (count, "i"), (count, "i")]
        self.arrays = self.make.outputs(cells)
        return self.arrays

    def columns(self, data: Any, state: Any) -> RecordColumns:
        """Return the columns that a kernel has decoded from `data`, with the counts in its `state`."""
        rows = int(state[ROWS])
        offset, timestamp, timestamp_type = self.arrays[:3]
        header_start, header_count = self.arrays[9:]
        return RecordColumns(
            offset[:rows],
            timestamp[:rows],
            timestamp_type[:rows],
            _cells(data, self.arrays[3:6], self.keys, rows, int(state[KEY_BYTES])),
            _cells(data, self.arrays[6:9], self.values, rows, int(state[VALUE_BYTES])),
            self._headers(data, header_start[:rows], header_count[:rows], state) if self.options.headers else None,
        )

    def _headers(self, data: Any, start: Any, count: Any, state: Any) -> HeaderColumns:
        total = int(state[HEADERS])
        if not total:
            return HeaderColumns(count, _NO_CELLS, _NO_CELLS)
        key_start, key_length, value_start, value_length = cells = self.make.outputs([(total, "i")] * 4)
        self.make.form(read_headers)(data, start, count, 0, len(count), 0, *cells)
        keys, values = BytesColumn(data, key_start, key_length), BytesColumn(data, value_start, value_length)
        if self.packed:
            keys, values = keys.pack(), values.pack()  # the scratch will be overwritten
        return HeaderColumns(count, keys, values)


def _cells(data: Any, cells: list[Any], kept: int, rows: int, size: int) -> BytesColumn | None:
    start, length, own = cells
    if kept == LEAVE:
        return None
    if kept == REFER:
        return BytesColumn(data, start[:rows], length[:rows])
    start[rows] = size
    return BytesColumn(own[:size], start[: rows + 1], length[:rows], packed=True)
