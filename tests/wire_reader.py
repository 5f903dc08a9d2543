"""Reads requests, responses and record sets with `struct` and compression libraries alone.

What replays of captures judge by: it shares no line with the product, so that a fault of the product's own readers
cannot hide one of its writers. Versions are those of the captures: Produce 0 to 8, Fetch 0 to 11.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import cramjam
import crc32c
import lz4.frame
import xxhash
import zstandard

PRODUCE, FETCH = 0, 1
_XERIAL = b"\x82SNAPPY\x00"
_BATCH = struct.Struct(">qiibIhiqqqhii")


class UnreadableError(Exception):
    """Bytes that no reader of Kafka's formats takes."""


class Cursor:
    """Big-endian fields of a message that is not flexible, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def take(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise UnreadableError(f"{size} bytes at {self.at}: {len(found)} are there")
        self.at += size
        return found

    def text(self) -> str | None:
        size = self.number(2)
        return None if size < 0 else self.take(size).decode()

    def sized(self) -> bytes | None:
        size = self.number(4)
        if size < -1:
            raise UnreadableError(f"a length of {size}")
        return None if size < 0 else self.take(size)

    def only(self) -> None:
        """Read the length of an array of one."""
        count = self.number(4)
        if count != 1:
            raise UnreadableError(f"an array of {count}, expected one")

    def end(self) -> None:
        if self.at != len(self.data):
            raise UnreadableError(f"{len(self.data) - self.at} bytes are left")


class RequestHead(NamedTuple):
    """What every request begins with."""

    api: int
    version: int
    correlation_id: int


class Produce(NamedTuple):
    """A Produce request for one partition."""

    version: int
    acks: int
    topic: str
    partition: int
    records: memoryview


class ProduceAnswer(NamedTuple):
    """A Produce response for one partition; None: the version has no room for it."""

    correlation_id: int
    topic: str
    partition: int
    error: int
    base_offset: int
    log_append_time: int | None
    log_start: int | None
    record_errors: tuple[int, ...] | None
    throttle_ms: int | None


class FetchAnswer(NamedTuple):
    """A Fetch response for one partition; None: the version has no room for it."""

    correlation_id: int
    throttle_ms: int | None
    request_error: int | None
    session: int | None
    topic: str
    partition: int
    error: int
    high_watermark: int
    last_stable: int | None
    log_start: int | None
    aborted: tuple[tuple[int, int], ...] | None
    preferred_replica: int | None
    records: bytes


class Entry(NamedTuple):
    """A message or batch as it stands in a log. `says`: its header, but for sizes and checksums."""

    magic: int
    codec: int
    offset: int
    says: tuple[object, ...]
    payload: bytes | None
    data: bytes


class Read(NamedTuple):
    """A record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def head(frame: bytes) -> RequestHead:
    """Read the beginning of a request, behind its size."""
    return RequestHead(*struct.unpack_from(">hhi", frame, 4))


def produce_request(frame: bytes) -> Produce:
    """Read a request of version 0 to 8, with its size."""
    asked = Cursor(frame)
    asked.number(4)
    api, version, _ = asked.number(2), asked.number(2), asked.number(4)
    assert api == PRODUCE
    assert version <= 8, "later versions are flexible"
    asked.text()
    if version >= 3:
        asked.text()
    acks, _ = asked.number(2), asked.number(4)
    asked.only()
    topic = asked.text()
    asked.only()
    partition, records = asked.number(4), asked.sized()
    assert topic is not None
    return Produce(version, acks, topic, partition, memoryview(records or b""))


def produce_answer(frame: bytes, version: int) -> ProduceAnswer:
    """Read a response of version 0 to 8, with its size, to the last byte."""
    told = Cursor(frame)
    if told.number(4) != len(frame) - 4:
        raise UnreadableError("the size of the frame")
    correlation_id = told.number(4)
    told.only()
    topic = told.text()
    told.only()
    partition, error, base_offset = told.number(4), told.number(2), told.number(8)
    append_time = told.number(8) if version >= 2 else None
    log_start = told.number(8) if version >= 5 else None
    indexes = None
    if version >= 8:
        indexes = tuple((told.number(4), told.text())[0] for _ in range(told.number(4)))
        told.text()
    throttle_ms = told.number(4) if version >= 1 else None
    told.end()
    assert topic is not None
    return ProduceAnswer(
        correlation_id, topic, partition, error, base_offset, append_time, log_start, indexes, throttle_ms
    )


def fetch_answer(frame: bytes, version: int) -> FetchAnswer:
    """Read a response of version 0 to 11, with its size, to the last byte."""
    told = Cursor(frame)
    if told.number(4) != len(frame) - 4:
        raise UnreadableError("the size of the frame")
    correlation_id = told.number(4)
    throttle_ms = told.number(4) if version >= 1 else None
    request_error, session = (told.number(2), told.number(4)) if version >= 7 else (None, None)
    told.only()
    topic = told.text()
    told.only()
    partition, error, high_watermark = told.number(4), told.number(2), told.number(8)
    last_stable = told.number(8) if version >= 4 else None
    log_start = told.number(8) if version >= 5 else None
    aborted = None
    if version >= 4 and (count := told.number(4)) >= 0:
        aborted = tuple((told.number(8), told.number(8)) for _ in range(count))
    preferred = told.number(4) if version >= 11 else None
    records = told.sized() or b""
    told.end()
    assert topic is not None
    return FetchAnswer(correlation_id, throttle_ms, request_error, session, topic, partition, error, high_watermark,
                       last_stable, log_start, aborted, preferred, records)  # fmt: skip


# ---- record sets


def entries(data: bytes | memoryview) -> Iterator[Entry]:
    """Yield the whole messages and batches of a set; what is cut at its end is left out."""
    data, at = bytes(data), 0
    while at + 17 <= len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        magic = data[at + 16]
        if magic > 2 or size < (14, 22, 49)[magic]:
            raise UnreadableError(f"an entry of magic {magic} and size {size}")
        if at + 12 + size > len(data):
            return
        yield _entry(offset, magic, data[at : at + 12 + size])
        at += 12 + size


def _entry(offset: int, magic: int, data: bytes) -> Entry:
    checked = crc32c.crc32c(data[21:]) if magic == 2 else zlib.crc32(data[16:])
    if checked != struct.unpack_from(">I", data, 17 if magic == 2 else 12)[0]:
        raise UnreadableError("a checksum")
    if magic == 2:
        _, _, epoch, _, _, attributes, last, first_time, latest, *producer, count = _BATCH.unpack_from(data)
        says: tuple[object, ...] = (2, attributes, offset, last, first_time, latest, *producer, count, epoch)
        return Entry(2, attributes & 7, offset, says, data[61:], data)
    attributes = data[17]
    timestamp = struct.unpack_from(">q", data, 18)[0] if magic else -1
    key, value = _key_and_value(data[26 if magic else 18 :])
    return Entry(magic, attributes & 7, offset, (magic, attributes, offset, timestamp, key is None), value, data)


def _key_and_value(data: bytes) -> tuple[bytes | None, bytes | None]:
    body = Cursor(data)
    found = body.sized(), body.sized()
    body.end()
    return found


def unpacked(data: bytes | memoryview) -> Iterator[tuple[object, ...]]:
    """Yield what each entry says, and what it holds once decompressed: all but sizes and checksums."""
    for entry in entries(data):
        yield *entry.says, entry.payload if not entry.codec else decompress(entry.codec, entry.payload)


def payloads(data: bytes | memoryview) -> set[bytes]:
    """Return what is compressed in a log or in a set, as it is."""
    return {entry.payload or b"" for entry in entries(data) if entry.codec}


def records(data: bytes | memoryview, *, control: bool = True) -> list[Read]:
    """Return all records of the whole entries; `control`: those of control batches, too."""
    found: list[Read] = []
    for entry in entries(data):
        if entry.magic == 2:
            if control or not entry.data[22] & 0x20:
                found += _of_batch(entry)
        elif entry.codec:
            found += _of_wrapper(entry)
        else:
            found.append(_of_message(entry))
    return found


def _of_message(entry: Entry) -> Read:
    key, value = _key_and_value(entry.data[26 if entry.magic else 18 :])
    timestamp = entry.says[3]
    assert isinstance(timestamp, int)
    return Read(entry.offset, timestamp, key, value, ())


def _of_wrapper(entry: Entry) -> Iterator[Read]:
    found = list(entries(decompress(entry.codec, entry.payload)))
    if any(each.magic != entry.magic or each.codec for each in found):
        raise UnreadableError("a wrapper with messages of another magic, or compressed ones")
    inner = [_of_message(each) for each in found]
    shift = entry.offset - inner[-1].offset if entry.magic and inner else 0
    for each in inner:
        appended: Any = entry.says[3] if entry.data[17] & 8 and entry.magic else each.timestamp
        yield each._replace(offset=each.offset + shift, timestamp=appended)


def _of_batch(entry: Entry) -> Iterator[Read]:
    _, attributes, base, _, first_time, latest, *_, count, _ = entry.says
    assert isinstance(attributes, int)
    assert isinstance(base, int)
    assert isinstance(first_time, int)
    assert isinstance(count, int)
    body = Varints(decompress(entry.codec, entry.payload) if entry.codec else entry.payload or b"")
    for _ in range(count):
        size = body.number()
        end = body.at + size
        body.at += 1
        time, delta = body.number(), body.number()
        key, value = body.sized(), body.sized()
        headers = tuple(((body.sized() or b"").decode(), body.sized()) for _ in range(body.number()))
        if body.at != end:
            raise UnreadableError("the length of a record")
        appended: Any = latest if attributes & 8 else first_time + time
        yield Read(base + delta, appended, key, value, headers)


class Varints:
    """Fields of a record of magic 2."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self) -> int:
        value = shift = 0
        while True:
            if self.at >= len(self.data):
                raise UnreadableError("a varint that does not end")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def sized(self) -> bytes | None:
        size = self.number()
        if size < 0:
            return None
        found = self.data[self.at : self.at + size]
        self.at += size
        return found


def decompress(codec: int, data: bytes | None) -> bytes:
    """Return what a payload holds. Raises UnreadableError."""
    if data is None:
        raise UnreadableError("a compressed entry without a value")
    try:
        return (_ungzip, _unsnappy, _unlz4, _unzstd)[codec - 1](data)
    except (IndexError, ValueError, RuntimeError, EOFError, zlib.error, cramjam.DecompressionError,
            zstandard.ZstdError) as error:  # fmt: skip
        raise UnreadableError(f"codec {codec}: {error}") from error


def _ungzip(data: bytes) -> bytes:
    found = b""
    while data:
        member = zlib.decompressobj(31)
        found += member.decompress(data)
        if not member.eof:
            raise EOFError("a gzip member that does not end")
        data = member.unused_data
    return found


def _unsnappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL):
        return bytes(cramjam.snappy.decompress_raw(data))
    found, at = b"", 16
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        found += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
        at += 4 + size
    return found


def _unlz4(data: bytes) -> bytes:
    """Unpack a frame whatever the checksum of its header: that of magic 0 is of other bytes."""
    at = 14 if data[4] & 8 else 6
    right = xxhash.xxh32(data[4:at]).intdigest() >> 8 & 0xFF
    return bytes(lz4.frame.decompress(data[:at] + bytes((right,)) + data[at + 1 :]))


def _unzstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)
