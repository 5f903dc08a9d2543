"""Many compressed batches or wrappers in a row, which compiled code takes in together: the same as one by one."""

import random
import struct
from typing import Any

import lz4.block
import numpy as np
import pytest

from fuzz.agreement import assert_agreement, kernels, outcome
from magicbyte.engine.codecs import Codec, lz4_read_kernels
from magicbyte.engine.codecs.lz4_frame_kernels import MALFORMED
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import DecodeOptions, decode_rows
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.layout import Dialect, TimestampType
from magicbyte.engine.records.scan import GROUP_BYTES, scan
from magicbyte.engine.wire.checksum import crc32, crc32c

ENTRIES = 24
CASES = [(magic, codec) for magic in (Format.V0, Format.V1, Format.V2) for codec in Codec if codec is not Codec.NONE]
CASES = [(magic, codec) for magic, codec in CASES if magic is Format.V2 or codec is not Codec.ZSTD]
OPTIONS = DecodeOptions(limit=1 << 20)


def log_of(magic: Format, codec: Codec, seed: int) -> list[bytes]:
    """Return entries of a few records each, some of them large and most of them compressible."""
    rng, offset, found = random.Random(seed), 100, []
    for _ in range(ENTRIES):
        records = []
        for _ in range(rng.randrange(1, 9)):
            key = rng.choice((None, b"", rng.randbytes(5)))
            value = rng.choice(
                (None, b"", rng.randbytes(40), b"abcdefg" * 30, rng.randbytes(9) * rng.randrange(1, 9000))
            )
            records.append(Record(offset, 1_700_000_000_000 + offset, TimestampType.CREATE_TIME, key, value, ()))
            offset += 1
        if magic is Format.V0:
            records = [
                record._replace(timestamp=-1, timestamp_type=TimestampType.NO_TIMESTAMP_TYPE) for record in records
            ]
        found.append(bytes(encode_records(records, magic, codec)))
    return found


@pytest.mark.parametrize(("magic", "codec"), CASES)
def test_sound_entries_give_the_same_in_both_forms(magic: Format, codec: Codec) -> None:
    assert_agreement(b"".join(log_of(magic, codec, 1)), OPTIONS, Dialect.KAFKA)


@pytest.mark.parametrize(("magic", "codec"), CASES)
@pytest.mark.parametrize("place", [0, 11, ENTRIES - 1])
def test_a_damaged_payload_is_reported_after_the_records_before_it(magic: Format, codec: Codec, place: int) -> None:
    rng = random.Random(place)
    entries = log_of(magic, codec, 2)
    for verify in (True, False):
        for _ in range(6):
            entry = bytearray(entries[place])
            at = rng.randrange(61 if magic is Format.V2 else 34, len(entry))
            entry[at] ^= 1 << rng.randrange(8)
            if not verify:  # so that the codec or the records have to notice, or do not
                if magic is Format.V2:
                    struct.pack_into(">I", entry, 17, crc32c(entry[21:]))
                else:
                    struct.pack_into(">I", entry, 12, crc32(entry[16:]))
            damaged = b"".join([*entries[:place], entry, *entries[place + 1 :]])
            assert_agreement(damaged, DecodeOptions(limit=1 << 20, verify=verify), Dialect.KAFKA)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_is_larger_than_the_room_left_is_read_all_the_same(codec: Codec) -> None:
    value = bytes(range(256)) * 12_000  # more than a group, out of little
    small = [Record(i, 1, TimestampType.CREATE_TIME, None, b"x" * 999, ()) for i in range(20)]
    large = [Record(i, 1, TimestampType.CREATE_TIME, None, value, ()) for i in range(20, 24)]
    log = b"".join(
        bytes(encode_records([record], Format.V2, codec)) for record in (*small, *large, *small, *large, *small)
    )
    with kernels("compiled"):
        records, error, _ = outcome(log, DecodeOptions(packed=True), Dialect.KAFKA)
    assert error == "None"
    assert [record[4] for record in records] == [each.value for each in (*small, *large, *small, *large, *small)]


def block_of(data: bytes, level: int) -> bytes:
    return bytes(lz4.block.compress(data, store_size=False, mode="high_compression", compression=level))


@pytest.mark.parametrize("form", ["plain", "compiled"])
def test_lz4_blocks_give_what_the_library_wrote(form: str) -> None:
    rng = random.Random(5)
    read = lz4_read_kernels.read_block.py_func if form == "plain" else lz4_read_kernels.read_block
    for round_ in range(60 if form == "plain" else 400):
        pieces = [rng.randbytes(rng.randrange(1, 40)) * rng.randrange(1, 60) for _ in range(rng.randrange(1, 40))]
        data = b"".join(rng.choices(pieces, k=rng.randrange(1, 40)))[: 1 << 16]
        block = block_of(data, 1 + round_ % 12)
        source: Any = np.frombuffer(block, np.uint8)
        out: Any = np.zeros(len(data) + 70, np.uint8)
        if form == "plain":
            source, out = block, bytearray(out)
        assert read(source, 0, len(block), out, 3, 3 + len(data)) == 3 + len(data)
        assert bytes(out[3 : 3 + len(data)]) == data
        assert read(source, 0, len(block), out, 0, len(data) - 1) == MALFORMED


def test_damaged_lz4_blocks_stay_within_their_bounds_and_agree_with_the_twin() -> None:
    rng = random.Random(6)
    for _ in range(300):
        data = b"".join(rng.choices([rng.randbytes(7), b"abc" * 9, bytes(30), rng.randbytes(90)], k=30))
        block = bytearray(block_of(data, 9))
        for _ in range(rng.randrange(1, 4)):
            block[rng.randrange(len(block))] = rng.choice((0, 15, 16, 240, 255, rng.randrange(256)))
        stop = len(data) + rng.randrange(64)
        source = np.frombuffer(bytes(block), np.uint8)
        compiled, twin = np.full(stop + 64 + 9, 7, np.uint8), bytearray(stop + 64)
        end = lz4_read_kernels.read_block(source, 0, len(block), compiled, 0, stop)
        assert lz4_read_kernels.read_block.py_func(bytes(block), 0, len(block), twin, 0, stop) == end
        assert bytes(compiled[stop + 64 :]) == b"\x07" * 9
        if end >= 0:
            assert bytes(compiled[:end]) == bytes(twin[:end])


def test_two_lz4_blocks_at_once_give_what_each_gives_and_stay_within_their_bounds() -> None:
    rng = random.Random(7)
    read_one, read_two = lz4_read_kernels.read_block, lz4_read_kernels.read_two
    damaged = 0
    for round_ in range(300):
        blocks, sizes = [], []
        for _ in range(2):
            pieces = [rng.randbytes(rng.randrange(1, 30)) * rng.randrange(1, 20) for _ in range(rng.randrange(1, 30))]
            content = b"".join(rng.choices(pieces, k=rng.randrange(1, 300)))[: rng.choice((200, 1 << 16))]
            block = bytearray(block_of(content, 1 + round_ % 12))
            if round_ % 3 == 0:
                block[rng.randrange(len(block))] = rng.choice((0, 15, 240, 255, rng.randrange(256)))
            blocks.append(bytes(block))
            sizes.append(len(content) + rng.choice((0, 0, 100, -1)))
        data, middle = b"".join(blocks), len(blocks[0])
        places = 5, 5 + sizes[0], 5 + sizes[0], 5 + sum(sizes)
        expected = []
        for at, block in enumerate(blocks):
            out = np.full(sizes[at] + 64, 7, np.uint8)
            end = int(read_one(np.frombuffer(block, np.uint8), 0, len(block), out, 0, sizes[at]))
            expected.append(bytes(out[:end]) if end >= 0 else None)
            assert bytes(out[sizes[at] :]) == b"\x07" * 64
        compiled, twin = np.full(sum(sizes) + 10, 7, np.uint8), bytearray(b"\x07" * (sum(sizes) + 10))
        ends, twin_ends = np.zeros(2, np.int64), [0, 0]
        arguments = 0, middle, middle, len(data)
        status = read_two(np.frombuffer(data, np.uint8), *arguments, compiled, *places, ends)
        assert read_two.py_func(data, *arguments, twin, *places, twin_ends) == status
        for out in (bytes(compiled), bytes(twin)):
            assert out[:5] == out[-5:] == b"\x07" * 5
            if status == 0:
                assert [out[5 : ends[0]], out[places[2] : ends[1]]] == expected
        assert (status == 0) == (None not in expected)
        assert status != 0 or ends.tolist() == twin_ends
        damaged += status != 0
    assert 50 < damaged < 250


def test_uncompressed_batches_leave_no_small_rest_behind_a_group() -> None:
    record = Record(0, 1, TimestampType.CREATE_TIME, None, bytes(1 << 16), ())
    batch = bytes(encode_records([record], Format.V2, Codec.NONE))
    table = scan(memoryview(batch * (GROUP_BYTES // len(batch) + 2)))
    with kernels("compiled"):
        (columns,) = decode_rows(table, range(len(table)))
    assert len(columns) == len(table)
