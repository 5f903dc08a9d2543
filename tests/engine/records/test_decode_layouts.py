"""Records of v2 batches, whatever their varints take: compiled code presumes the layout of the record before."""

import random
import struct
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from fuzz.agreement import assert_agreement, kernels, outcome
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import Dialect, TimestampType
from magicbyte.engine.wire.checksum import crc32c

BASE_OFFSET, BASE_TIMESTAMP = 1 << 33, 1_700_000_000_000
OPTIONS = DecodeOptions(limit=4 << 20)
DELTAS = (0, 1, 63, 64, 8191, 8192, 1 << 20)  # the last ones of one byte, of two, and some of more
EARLIER = (-1, -64, -65, -8192, -8193, -(1 << 40))
SIZES = (-1, 0, 1, 31, 32, 33, 63, 64, 65, 96, 97, 127, 128, 129, 300, 8191, 8192)  # -1: null


def varint(value: int) -> bytes:
    code, out = (value << 1) ^ (value >> 63), bytearray()
    while code > 127:
        out.append(code & 127 | 128)
        code >>= 7
    return bytes([*out, code])


def cell(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def record_bytes(record: Record) -> bytes:
    headers = b"".join(cell(name.encode()) + cell(value) for name, value in record.headers)
    body = b"\0" + varint(record.timestamp - BASE_TIMESTAMP) + varint(record.offset - BASE_OFFSET)
    body += cell(record.key) + cell(record.value) + varint(len(record.headers)) + headers
    return varint(len(body)) + body


def batch_of(records: Iterable[bytes], attributes: int = 0) -> bytes:
    """Return a batch with these records, whatever they are."""
    whole = list(records)
    body = struct.pack(">hiqqqhii", attributes, 9, BASE_TIMESTAMP, BASE_TIMESTAMP + 5, -1, -1, -1, len(whole))
    body += b"".join(whole)
    return struct.pack(">qiibI", BASE_OFFSET, len(body) + 9, 0, 2, crc32c(body)) + body


def bytes_or_null(rng: random.Random, size: int) -> bytes | None:
    return None if size < 0 else rng.randbytes(size)


def some_record(rng: random.Random, sizes: tuple[int, ...]) -> Record:
    later, delta = rng.choice((*DELTAS, *EARLIER[:2])), rng.choice((*DELTAS, *EARLIER))
    headers = (("name", rng.choice((None, b"", b"content"))),) * rng.choice((0, 0, 0, 1, 2, 70))
    key, value = (bytes_or_null(rng, rng.choice(sizes)) for _ in range(2))
    return Record(BASE_OFFSET + later, BASE_TIMESTAMP + delta, TimestampType.CREATE_TIME, key, value, headers)


def assert_decodes(log: bytes, records: list[Record]) -> None:
    """Fail unless all forms decode `log` to `records`."""
    with kernels("plain"):
        assert outcome(log, OPTIONS, Dialect.KAFKA) == ([tuple(record) for record in records], "None", None)
    assert_agreement(log, OPTIONS, Dialect.KAFKA)


@pytest.mark.parametrize("seed", range(12))
def test_records_of_all_layouts_in_any_order_come_out_as_they_went_in(seed: int) -> None:
    rng = random.Random(seed)
    records = [some_record(rng, SIZES) for _ in range(120)]
    records = [record for record in records for _ in range(rng.choice((1, 1, 4)))]  # also the same layout again
    cut = rng.randrange(len(records))
    log = batch_of(map(record_bytes, records[:cut])) + batch_of(map(record_bytes, records[cut:]))
    assert_decodes(log, records)


@pytest.mark.parametrize("size", range(140))
def test_the_last_records_of_a_buffer_are_read_to_its_end_and_not_further(size: int) -> None:
    record = Record(BASE_OFFSET, BASE_TIMESTAMP, TimestampType.CREATE_TIME, b"k" * (size % 7), b"v" * size, ())
    records = [record._replace(offset=BASE_OFFSET + index) for index in range(3 + 200 // (size + 8))]
    assert_decodes(batch_of(map(record_bytes, records)), records)


def changed_cell(record: bytes, at: int, value: int) -> bytes:
    return record[:at] + bytes([value]) + record[at + 1 :]


@pytest.mark.parametrize("at", range(12))
def test_a_record_with_any_byte_in_front_is_read_or_refused_alike(at: int) -> None:
    good = record_bytes(Record(BASE_OFFSET + 70, BASE_TIMESTAMP + 99, TimestampType.CREATE_TIME, b"key", b"v" * 90, ()))
    spare = [good] * 3  # so that the one that is changed does not lie at the buffer's end
    for value in range(256):
        log = batch_of([good, changed_cell(good, at, value), *spare])
        assert_agreement(log, replace(OPTIONS, verify=False), Dialect.KAFKA)


def numbered(first: int, count: int, size: int) -> list[Record]:
    kind = TimestampType.CREATE_TIME
    return [Record(first + i, BASE_TIMESTAMP + i, kind, None, b"%d" % i * size, ()) for i in range(count)]


def plain_batch(records: list[Record], codec: Codec = Codec.NONE) -> bytes:
    return bytes(encode_records(records, Format.V2, codec))


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(plain_batch(numbered(50, 9, 5), Codec.LZ4), id="compressed"),
        pytest.param(bytes(encode_records(numbered(50, 9, 5), Format.V1, Codec.NONE)), id="magic 1"),
        pytest.param(batch_of([record_bytes(Record(BASE_OFFSET, 0, 0, b"\0\0\0\1", b"\0" * 6))], 0x30), id="control"),
        pytest.param(batch_of([]), id="empty"),
        pytest.param(batch_of([b"\0\0"]), id="without its record"),
        pytest.param(plain_batch(numbered(50, 9, 5))[:-1] + b"?", id="wrong crc"),
        pytest.param(plain_batch(numbered(50, 9, 5))[:70], id="cut, and others after it"),
    ],
)
def test_batches_in_a_row_are_read_before_and_after_one_of_another_kind(stranger: bytes) -> None:
    few = [plain_batch(numbered(40 * i, 30, 3)) for i in range(40)]
    for log in (b"".join([*few, stranger, *few]), b"".join([stranger, *few, stranger])):
        for options in (OPTIONS, replace(OPTIONS, verify=False), replace(OPTIONS, control=True, keys=False)):
            assert_agreement(log, options, Dialect.KAFKA)


def test_a_batch_over_the_limit_is_refused_after_the_batches_before_it() -> None:
    log = plain_batch(numbered(0, 30, 3)) + plain_batch(numbered(30, 90, 99)) + plain_batch(numbered(120, 9, 3))
    with kernels("compiled"):
        records, error, position = outcome(log, replace(OPTIONS, limit=4000), Dialect.KAFKA)
    assert len(records) == 30
    assert "batch size: expected <= 4000" in error
    assert position == len(plain_batch(numbered(0, 30, 3)))


def test_columns_end_where_their_room_does_and_no_record_is_lost_between_them() -> None:
    large, small = numbered(0, 2, 300_000), numbered(2, 60_000, 10)
    parts = [large, *(small[at : at + 500] for at in range(0, len(small), 500)), large]
    log = b"".join(map(plain_batch, parts))
    with kernels("compiled"):
        found = list(decode(memoryview(log), DecodeOptions(packed=True)))
    assert all(len(columns) for columns in found)
    assert len(found) > 2
    assert [record for columns in found for record in columns] == [record for part in parts for record in part]
