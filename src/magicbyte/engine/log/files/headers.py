"""Read the headers of a log's entries into arrays, without reading the content of large entries."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from magicbyte.engine.compiled import kernel
from magicbyte.engine.log.files import heads
from magicbyte.engine.log.files.chunk import Chunk
from magicbyte.engine.log.files.filesystem import LocalFile
from magicbyte.engine.log.files.heads import HEAD, Readable, entry_heads
from magicbyte.engine.log.files.reader import DamageHandler, read_chunks
from magicbyte.engine.records import layout
from magicbyte.engine.records.arrays import at_each_byte
from magicbyte.engine.records.layout import Dialect, Field
from magicbyte.engine.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    from magicbyte.engine.ports import ReadableFile

    Int64s = np.ndarray[Any, np.dtype[np.int64]]
    Bools = np.ndarray[Any, np.dtype[np.bool_]]
    Heads = np.ndarray[Any, np.dtype[np.uint8]]

ROWS_PER_BLOCK = 8192
ROWS_TO_JUDGE_BY = 256
MANY_ROWS = 200_000  # rows from which loading the compiled walk takes less time than walking without it
WINDOW_BYTES = 64 << 10  # bytes per read while entries are small
_FIELDS = {
    "offset": layout.OFFSET,
    "magic": layout.MAGIC,
    # fields of a v2 batch
    "partition_leader_epoch": layout.PARTITION_LEADER_EPOCH,
    "batch_crc": layout.BATCH_CRC,
    "attributes": layout.ATTRIBUTES,
    "last_offset_delta": layout.LAST_OFFSET_DELTA,
    "base_timestamp": layout.BASE_TIMESTAMP,
    "max_timestamp": layout.MAX_TIMESTAMP,
    "producer_id": layout.PRODUCER_ID,
    "producer_epoch": layout.PRODUCER_EPOCH,
    "base_sequence": layout.BASE_SEQUENCE,
    "record_count": layout.RECORD_COUNT,
    # fields of a marker with one-byte varints, as every broker writes it: length, attributes, two deltas, key length,
    # key
    "marker_key_length": Field(layout.RECORD_BATCH_OVERHEAD + 4, layout.INT8),
    "marker_type": Field(layout.RECORD_BATCH_OVERHEAD + 7, layout.INT16),
    # fields of a message or wrapper
    "message_crc": layout.MESSAGE_CRC,
    "message_attributes": layout.MESSAGE_ATTRIBUTES,
    "message_timestamp": layout.V1_TIMESTAMP,
    "v0_key_length": layout.V0_KEY_LENGTH,
    "v1_key_length": layout.V1_KEY_LENGTH,
    "seconds": layout.ENRICHED_SECONDS,
    "tags_length": layout.ENRICHED_TAGS_LENGTH,
    "first_tag": Field(layout.ENRICHED_TAGS_START, layout.INT8),
    "tagged_timestamp": Field(layout.ENRICHED_TAGS_START + 1, layout.INT64),
}
_LAYOUT = np.dtype(
    {
        "names": list(_FIELDS),
        "formats": [f">{'u' if each.type is layout.UINT32 else 'i'}{each.type.size}" for each in _FIELDS.values()],
        "offsets": [each.start for each in _FIELDS.values()],
        "itemsize": HEAD,
    }
)


@dataclass(frozen=True)
class Headers:
    """Neighbouring entries of one file: `position` in it, `size` including the 12 bytes before, `heads` (n, HEAD).

    Shapes: position, size (n,) int64, as are all properties. Heads are zero after the last byte read. `end` is the end
    of the last entry. `chunk` has the same entries if they were read as a whole.
    """

    file: Readable
    dialect: Dialect
    position: Int64s
    size: Int64s
    heads: Heads
    end: int
    chunk: Chunk | None = None

    def __len__(self) -> int:
        return len(self.position)

    @cached_property
    def fields(self) -> np.ndarray[Any, Any]:
        """The heads as header fields, by name. Only the fields of an entry's own format are valid."""
        return np.ascontiguousarray(self.heads).view(_LAYOUT).reshape(-1)

    @cached_property
    def magic(self) -> Int64s:
        """The magic byte."""
        return self.fields["magic"].astype(np.int64)

    @cached_property
    def is_batch(self) -> Bools:
        """Whether it is a v2 batch."""
        return np.equal(self.magic, 2)

    @cached_property
    def attributes(self) -> Int64s:
        """The attributes of the batch, wrapper or message."""
        fields = self.fields
        return np.where(self.is_batch, fields["attributes"], fields["message_attributes"]).astype(np.int64)

    @cached_property
    def is_control(self) -> Bools:
        """Whether it is a control batch or an enriched control message."""
        if self.dialect is Dialect.ENRICHED:
            return np.bitwise_and(self.attributes, layout.ENRICHED_CONTROL_BIT).astype(np.bool_)
        return self.is_batch & np.bitwise_and(self.attributes, layout.CONTROL_BIT).astype(np.bool_)

    @cached_property
    def codec(self) -> Int64s:
        """The codec's number."""
        codec: Int64s = self.attributes & layout.CODEC_MASK
        return np.where(self.is_control, 0, codec) if self.dialect is Dialect.ENRICHED else codec

    @cached_property
    def is_wrapper(self) -> Bools:
        """Whether it is a message that holds others."""
        compressed: Bools = np.not_equal(self.codec, 0)
        return ~self.is_batch & compressed

    @cached_property
    def count(self) -> Int64s:
        """The number of records, control records included; for a wrapper, whose header has no count, 1."""
        return np.where(self.is_batch, self.fields["record_count"], 1).astype(np.int64)

    @cached_property
    def offset(self) -> Int64s:
        """The offset field: of the first record; in a v0 or v1 wrapper of the last one."""
        return self.fields["offset"].astype(np.int64)

    @cached_property
    def timestamp(self) -> Int64s:
        """The largest timestamp of the entry in ms, by its header; NO_TIMESTAMP where it has none."""
        fields = self.fields
        if self.dialect is Dialect.ENRICHED:
            seconds = fields["seconds"].astype(np.int64)
            times = np.where(seconds == -1, NO_TIMESTAMP, (seconds & 0xFFFF_FFFF) * 1000)
            tagged = (fields["tags_length"] > layout.INT64.size) & (fields["first_tag"] == 0)
            return np.where(tagged, fields["tagged_timestamp"], times).astype(np.int64)
        times = np.where(self.is_batch, fields["max_timestamp"], fields["message_timestamp"]).astype(np.int64)
        return np.where(np.equal(self.magic, 0), NO_TIMESTAMP, times)

    @cached_property
    def last_offset(self) -> Int64s:
        """The offset of the last record; for an enriched wrapper, whose header does not have it, that of the first."""
        return np.where(self.is_batch, self.offset + self.fields["last_offset_delta"], self.offset)


def read_headers(
    file: ReadableFile,
    *,
    start: int = 0,
    end: int | None = None,
    dialect: Dialect,
    limit: int,
    on_damage: DamageHandler,
    expected_bytes: int,
    whole: bool = False,
) -> Iterator[Headers]:
    """Yield the headers of the entries that begin in [start, end), and report damage, as `read_chunks` does.

    With `whole`, or if it is as cheap, entries are read whole: small ones, and all entries if each read is a network
    request. `expected_bytes` is how much the caller will read in total: if that means many small entries, the compiled
    kernels are loaded.
    """
    position = start
    if not whole and isinstance(file, LocalFile):
        stop = file.size if end is None else min(end, file.size)
        position = yield from _walk(file, dialect, limit, expected_bytes, start, stop)
    for chunk in read_chunks(file, start=position, end=end, dialect=dialect, limit=limit, on_damage=on_damage):
        yield headers_of(file, chunk)


def headers_of(file: Readable, chunk: Chunk) -> Headers:
    """Return the headers of the entries of an unmerged chunk of a file."""
    table = chunk.table
    at, size = np.asarray(table.position, np.int64), np.asarray(table.size, np.int64)
    heads, behind = _heads(table.buffer, at), chunk.position + table.end
    return Headers(file, table.dialect, at + chunk.position, size, heads, behind, chunk)


def _walk(
    file: LocalFile, dialect: Dialect, limit: int, expected_bytes: int, start: int, stop: int
) -> Generator[Headers, None, int]:
    """Yield entries from `start` to `stop`. Return the position from which `read_chunks` must continue.

    It is `stop`; a position near the file's end; that of an irregular entry, so that only `read_chunks` reports damage;
    or one from which many small entries follow, for which the compiled walk is faster.
    """
    at, seen = start, 0
    walk = entry_heads(
        file,
        start,
        min(stop, file.size - HEAD + 1),
        end=file.size,
        dialect=dialect,
        limit=limit,
        window_bytes=WINDOW_BYTES,
    )
    while True:
        wanted = ROWS_PER_BLOCK if seen else ROWS_TO_JUDGE_BY
        positions, head_bytes = list[int](), list[bytes]()
        for position, behind, head in itertools.islice(walk, wanted):
            positions.append(position)
            head_bytes.append(head)
            at = behind
        if positions:
            rows, data = np.array(positions, np.int64), np.frombuffer(b"".join(head_bytes), np.uint8)
            yield Headers(file, dialect, rows, np.diff(rows, append=at), data.reshape(-1, HEAD), at)
        seen += len(positions)
        if len(positions) < wanted:
            return at
        if at - start < heads.LARGE_ENTRY * seen and expected_bytes * seen > MANY_ROWS * (at - start):
            kernel.expect(expected_bytes)
            return at


def _heads(buffer: memoryview, position: Int64s) -> Heads:
    """Return the first HEAD bytes of the entries, with zeros after the end of `buffer`."""
    data = np.frombuffer(buffer, np.uint8)
    heads = np.zeros((len(position), HEAD), np.uint8)
    inside = int(np.searchsorted(position, len(data) - HEAD, "right"))
    if inside:
        heads[:inside] = at_each_byte(data, f"V{HEAD}")[position[:inside]].view(np.uint8).reshape(-1, HEAD)
    for row in range(inside, len(position)):  # the few entries at the end
        tail = data[position[row] :]
        heads[row, : len(tail)] = tail[:HEAD]
    return heads
