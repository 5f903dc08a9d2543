"""What is proven sound without being kept is what decoding finds sound: no more, and of usual batches no less."""

import random
from typing import Any

import numpy as np
import pytest

from fuzz.agreement import kernels
from magicbyte.engine.codecs import Codec, compress, decompress
from magicbyte.engine.codecs.lz4_frame_kernels import BLOCK
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records import proof_kernels
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    BATCH_CRC,
    DELETE_HORIZON_BIT,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP,
    OFFSET,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT,
    SIZE,
    TimestampType,
)
from magicbyte.engine.records.proof import doubtful_rows
from magicbyte.engine.records.scan import scan
from magicbyte.engine.wire.checksum import crc32c

LIMIT = 1 << 20
OPTIONS = DecodeOptions(keys=False, values=False, headers=False, control=True, limit=LIMIT)


def batch(rng: random.Random, codec: Codec, base: int, sizes: int = 300) -> bytearray:
    """A batch of a few records with gaps between their offsets."""
    records, offset = [], base
    for _ in range(rng.randrange(1, 12)):
        value = rng.choice((None, b"", rng.randbytes(rng.randrange(sizes)), b"abcdefg" * rng.randrange(sizes)))
        headers = tuple(("name", rng.choice((None, b"", b"x" * 130))) for _ in range(rng.choice((0, 0, 1, 70))))
        timestamp = 1_700_000_000_000 + rng.randrange(-5, 300)
        records.append(Record(offset, timestamp, TimestampType.CREATE_TIME, rng.choice((None, b"key")), value, headers))
        offset += rng.choice((1, 1, 3))
    return bytearray(encode_records(records, Format.V2, codec))


def sealed(entry: bytearray) -> bytearray:
    """The batch with a size and a checksum that hold."""
    entry[SIZE.start : SIZE.start + 4] = (len(entry) - 12).to_bytes(4, "big")
    entry[BATCH_CRC.start : BATCH_CRC.start + 4] = crc32c(bytes(entry[ATTRIBUTES.start :])).to_bytes(4, "big")
    return entry


def changed(rng: random.Random, entry: bytearray, codec: Codec) -> bytearray:
    """The batch with a byte or a header field changed, as a writer with a bug would leave it."""
    kind = rng.randrange(6)
    if kind == 0:
        field = rng.choice((LAST_OFFSET_DELTA, RECORD_COUNT))
        value = field.read(memoryview(entry)) + rng.choice((-1, 1, -1000))
        entry[field.start : field.start + 4] = value.to_bytes(4, "big", signed=True)
    elif kind == 1:
        value = MAX_TIMESTAMP.read(memoryview(entry)) + rng.choice((-1, 1))
        entry[MAX_TIMESTAMP.start : MAX_TIMESTAMP.start + 8] = value.to_bytes(8, "big")
        entry[ATTRIBUTES.start + 1] |= rng.choice((0, LOG_APPEND_TIME_BIT, DELETE_HORIZON_BIT))
    elif kind == 2:
        entry[rng.randrange(RECORD_BATCH_OVERHEAD, len(entry))] ^= 1 << rng.randrange(8)
    elif kind > 3:
        content = bytearray(decompress(codec, bytes(entry[RECORD_BATCH_OVERHEAD:]), limit=1 << 24))
        for _ in range(rng.randrange(1, 3)):
            content[rng.randrange(min(len(content), 40))] ^= 1 << rng.randrange(8)
        entry[RECORD_BATCH_OVERHEAD:] = compress(codec, bytes(content))
    return sealed(entry)


def is_sound(entry: bytes) -> bool:
    """What decoding says, and a look at what it gives."""
    view = memoryview(entry)
    try:
        found = list(decode(view, OPTIONS))
    except CorruptRecordError:
        return False
    offsets = [each for columns in found for each in np.asarray(columns.offset).tolist()]
    timestamps = [each for columns in found for each in np.asarray(columns.timestamp).tolist()]
    if not offsets:
        return True
    base = OFFSET.read(view)
    rise = all(one < other for one, other in zip((base - 1, *offsets), offsets, strict=False))
    free = ATTRIBUTES.read(view) & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT)
    latest = free or max(timestamps) == MAX_TIMESTAMP.read(view)
    return bool(rise and offsets[-1] <= base + LAST_OFFSET_DELTA.read(view) and latest)


def doubtful(entries: list[bytearray], limit: int = LIMIT) -> list[int]:
    with kernels("compiled"):
        return doubtful_rows(scan(memoryview(b"".join(entries))), limit)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_sound_batches_are_beyond_doubt(codec: Codec) -> None:
    rng = random.Random(1)
    assert doubtful([batch(rng, codec, 100 * at) for at in range(40)]) == []


def test_other_codecs_and_older_entries_are_left_to_decoding() -> None:
    rng = random.Random(2)
    records = [Record(500, 7, TimestampType.CREATE_TIME, None, b"value", ())]
    entries = [batch(rng, codec, 100 * at) for at, codec in enumerate(Codec)]
    entries.append(bytearray(encode_records(records, Format.V1, Codec.LZ4)))
    entries.append(batch(rng, Codec.LZ4, 600))
    assert doubtful(entries) == [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD, len(Codec)]
    with kernels("plain"):
        assert doubtful_rows(scan(memoryview(b"".join(entries))), LIMIT) == list(range(len(entries)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_in_doubt_is_all_that_decoding_does_not_find_sound_and_hardly_more(codec: Codec) -> None:
    rng = random.Random(3)
    entries = [batch(rng, codec, 1000 * at) for at in range(600)]
    entries = [changed(rng, entry, codec) if rng.random() < 0.8 else entry for entry in entries]
    expected = [row for row, entry in enumerate(entries) if not is_sound(bytes(entry))]
    assert 100 < len(expected) < 500
    found = doubtful(entries)
    assert set(found) >= set(expected)
    assert len(found) - len(expected) <= (codec is Codec.LZ4)  # the library takes a distance of 0


def test_many_blocks_stored_ones_and_the_limit() -> None:
    rng = random.Random(4)
    large = [batch(rng, Codec.LZ4, 1000 * at, sizes=40_000) for at in range(12)]
    content = [len(decompress(Codec.LZ4, bytes(entry[RECORD_BATCH_OVERHEAD:]), limit=1 << 24)) for entry in large]
    assert max(content) > 3 * BLOCK
    assert doubtful(large, 1 << 24) == []
    limit = sorted(content)[6]
    assert doubtful(large, limit) == [row for row, size in enumerate(content) if size > limit]
    short = large[content.index(max(content))].copy()
    frame = memoryview(short)[RECORD_BATCH_OVERHEAD + 7 :]
    first = int.from_bytes(frame[:4], "little") & 0x7FFFFFFF
    doubled = bytearray(short[: RECORD_BATCH_OVERHEAD + 7] + bytes(frame[: 4 + first]) * 65 + bytes(4))
    assert doubtful([batch(rng, Codec.LZ4, 0), sealed(doubled), *large], 1 << 24) == [1]


def test_the_compiled_loop_agrees_with_its_twin() -> None:
    rng = random.Random(5)
    entries = []
    for at in range(60):
        codec = rng.choice((Codec.NONE, Codec.LZ4))
        entries.append(changed(rng, batch(rng, codec, 100 * at, sizes=60), codec))
    expected = doubtful(entries)
    data = b"".join(entries)
    table = scan(memoryview(data))
    most, count = proof_kernels.MOST_RECORDS, len(entries)
    lists: list[Any] = [[0] * each for each in (proof_kernels.SLOTS * proof_kernels.JOB, 2 * count, 10, most, most)]
    proven = [0] * count
    outputs = [bytearray(proof_kernels.ROOM), *lists, [0] * most, [0] * most, [0] * 18, proven]
    found = proof_kernels.prove_batches.py_func(data, table.position, table.size, LIMIT, (), *outputs)
    assert found == len(expected)
    assert np.flatnonzero(np.array(proven) == 0).tolist() == expected
