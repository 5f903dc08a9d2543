"""Produced sets of every format, sound and spoilt, made by hand: for the tests of appends."""

import gzip
import struct
from collections.abc import Iterable, Sequence

import lz4.frame
import zstandard

from magicbyte.engine.codecs import Codec, Lz4Header, compress
from magicbyte.engine.records.batch import RecordBatch, build_batch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.enriched import build_enriched_message, build_enriched_wrapper
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    BATCH_CRC,
    MAGIC,
    MESSAGE_CRC,
    RECORD_BATCH_OVERHEAD,
    V0_KEY_LENGTH,
    V1_KEY_LENGTH,
    Field,
)
from magicbyte.engine.records.message import MessageView, build_message
from magicbyte.engine.wire.checksum import crc32, crc32c

NOW = 1_700_000_000_000
A = Record(0, NOW - 5, 0, b"k", b"v")
B = Record(1, NOW, 0, b"x", None)
TWO = (A, B)
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


def resealed(entry: bytes | bytearray) -> bytes:
    """The entry with the checksum that its bytes have."""
    data = bytearray(entry)
    if data[MAGIC.start] == 2:
        BATCH_CRC.type.pack_into(data, BATCH_CRC.start, crc32c(data[ATTRIBUTES.start :]))
    else:
        MESSAGE_CRC.type.pack_into(data, MESSAGE_CRC.start, crc32(data[MAGIC.start :]))
    return bytes(data)


def patched(entry: bytes, field: Field, value: int, *, reseal: bool = True) -> bytes:
    """The entry with another value in a field, and its checksum right unless told otherwise."""
    data = bytearray(entry)
    field.type.pack_into(data, field.start, value)
    return resealed(data) if reseal else bytes(data)


def message(magic: int, record: Record, offset: int | None = None) -> bytes:
    """One plain message."""
    return build_message(magic, record.offset if offset is None else offset, record.timestamp, record.key, record.value)


def messages(magic: int, records: Iterable[Record] = TWO, offsets: Sequence[int] | None = None) -> bytes:
    """Plain messages one behind the other; `offsets` instead of 0, 1, 2…"""
    return b"".join(
        message(magic, record, index if offsets is None else offsets[index]) for index, record in enumerate(records)
    )


def wrapped(
    magic: int,
    codec: Codec,
    inner: bytes,
    *,
    offset: int = 1,
    timestamp: int = NOW,
    key: bytes | None = None,
    payload: bytes | None = None,
    attributes: int = 0,
) -> bytes:
    """A wrapper; `payload` instead of what the codec makes of `inner`, further `attributes`."""
    header = Lz4Header.BROKEN if magic == 0 else Lz4Header.CORRECT
    value = compress(codec, inner, lz4_header=header) if payload is None else payload
    entry = bytearray(build_message(magic, offset, timestamp, key, value))
    entry[MAGIC.start + 1] = codec | attributes
    return resealed(entry)


def wrapper(magic: int, codec: Codec, records: Sequence[Record] = TWO) -> bytes:
    """A wrapper as an ordinary producer sends it."""
    latest = max(record.timestamp for record in records)
    return wrapped(magic, codec, messages(magic, records), offset=len(records) - 1, timestamp=latest)


def batch(codec: Codec = Codec.NONE, records: Sequence[Record] = TWO, **header: int | bool) -> bytes:
    """A batch of magic 2 as an ordinary producer sends it."""
    said = BatchHeader(**header) if header else BatchHeader()  # type: ignore[arg-type]
    return encode_records(records, Format.V2, codec, header=said)


def batch_with(payload: bytes, codec: Codec, count: int = 2) -> bytes:
    """A batch whose records section is given."""
    return build_batch(payload, base_offset=0, last_offset_delta=count - 1, base_timestamp=NOW - 5, max_timestamp=NOW,
                       record_count=count, attributes=codec)  # fmt: skip


def section(records: Sequence[Record] = TWO) -> bytes:
    """The records section of a batch, not compressed."""
    return bytes(RecordBatch(memoryview(batch(records=records))).records_section)


def kafka_set(magic: int, codec: Codec, records: Sequence[Record] = TWO) -> bytes:
    """A set of any of Kafka's formats as an ordinary producer sends it."""
    if magic == 2:
        return batch(codec, records)
    return wrapper(magic, codec, records) if codec else messages(magic, records)


def enriched_set(codec: Codec, records: Sequence[Record] = TWO, offsets: Sequence[int] | None = None) -> bytes:
    """The same in the enriched dialect."""
    places = range(len(records)) if offsets is None else offsets
    inner = b"".join(
        build_enriched_message(at, record.key, record.value) for at, record in zip(places, records, strict=True)
    )
    if not codec:
        return inner
    keys = [record.key for record in records]
    return build_enriched_wrapper(codec, inner, num_messages=len(keys), non_keyed=not any(keys))


def section_of(magic: int, records: Sequence[Record] = TWO) -> bytes:
    """What the payload of a compressed set holds."""
    return section(records) if magic == 2 else messages(magic, records)


def payload_in(magic: int, codec: Codec, payload: bytes) -> bytes:
    """A compressed set with such a payload."""
    return batch_with(payload, codec) if magic == 2 else wrapped(magic, codec, b"", payload=payload)


def lz4_frame(content: bytes, **options: object) -> bytes:
    """An LZ4 frame as the reference library writes it, of independent blocks unless told otherwise."""
    options.setdefault("block_linked", False)
    options.setdefault("store_size", False)
    return bytes(lz4.frame.compress(content, **options))


def gzip_members(content: bytes) -> bytes:
    """Two gzip members, one behind the other."""
    half = len(content) // 2
    return gzip.compress(content[:half]) + gzip.compress(content[half:])


def zstd(content: bytes) -> bytes:
    return zstandard.compress(content)


def key_length(magic: int) -> Field:
    return V1_KEY_LENGTH if magic else V0_KEY_LENGTH


def value_start(entry: bytes) -> int:
    """Where the value or records section begins: what an append in place must not touch."""
    if entry[MAGIC.start] == 2:
        return RECORD_BATCH_OVERHEAD
    value = MessageView(memoryview(entry)).value
    return len(entry) - len(value or b"")


def varint(value: int) -> bytes:
    """A number as the records of magic 2 hold it, if it is small."""
    assert -64 <= value < 64
    return struct.pack("B", (value << 1) ^ (value >> 63) & 0x7F)
