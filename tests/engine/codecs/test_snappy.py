import struct

import cramjam
import pytest

from magicbyte.engine.codecs import Codec, compress, decompress, decompress_into
from magicbyte.engine.errors import CorruptRecordError

PLAIN = b"the quick brown fox jumps over the lazy dog " * 3000
MAGIC = bytes.fromhex("82534e4150505900")


def raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def stream(data: bytes, block: int, versions: tuple[int, int] = (1, 1)) -> bytes:
    blocks = [raw(data[at : at + block]) for at in range(0, len(data), block)]
    return MAGIC + struct.pack(">ii", *versions) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


def unsnappy(data: bytes) -> memoryview:
    return decompress(Codec.SNAPPY, data, limit=1 << 20)


@pytest.mark.parametrize("block", [1, 1000, 1 << 10, 32 << 10, 1 << 20])
def test_blocks_of_any_size_are_read(block: int) -> None:
    assert unsnappy(stream(PLAIN[:40_000], block)) == PLAIN[:40_000]


@pytest.mark.parametrize("versions", [(1, 1), (9, 9), (0, 0), (-1, 2**31 - 1)])
def test_the_version_numbers_do_not_matter(versions: tuple[int, int]) -> None:
    assert unsnappy(stream(PLAIN, 32 << 10, versions)) == PLAIN


def test_a_raw_block_without_a_stream_around_it_is_read() -> None:
    assert unsnappy(raw(PLAIN)) == PLAIN
    assert unsnappy(raw(b"")) == b""


def test_streams_that_follow_each_other_are_one_content() -> None:
    assert (
        unsnappy(stream(PLAIN, 1024) + stream(b"second", 10, (9, 9)) + stream(PLAIN, 99)) == PLAIN + b"second" + PLAIN
    )


def test_blocks_of_32_kib_are_written() -> None:
    data, at, sizes = compress(Codec.SNAPPY, PLAIN), 16, []
    assert data[:16] == MAGIC + struct.pack(">ii", 1, 1)
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        sizes.append(len(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + length])))
        at += 4 + length
    assert sizes == [32 << 10] * 4 + [len(PLAIN) - (128 << 10)]


@pytest.mark.parametrize(
    "data",
    [
        MAGIC,
        MAGIC + bytes(7),
        stream(PLAIN, 1024) + bytes(4),  # a block of no bytes lacks even its size
        stream(PLAIN, 1024) + struct.pack(">i", -1),
        stream(PLAIN, 1024) + MAGIC + bytes(7),
        stream(PLAIN, 1024) + struct.pack(">i", 100) + bytes(99),
        stream(PLAIN, 1024)[:-1],
        raw(PLAIN) + b"x",
        raw(PLAIN)[:-1],
        b"\x05\x10hello"[:-1],
        b"\x06\x10hello",
        b"\x04\x10hello",
        b"\xff\xff\xff\xff\xff\x00",
        b"\x05\x05\x09",  # a copy from before the start
    ],
)
def test_damaged_streams_and_blocks_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        unsnappy(data)


@pytest.mark.parametrize("tail", [b"\0", b"ab", b"abc"])
def test_up_to_three_bytes_after_the_last_block_are_ignored_as_in_java_and_strictly_refused(tail: bytes) -> None:
    data = stream(PLAIN, 1024) + tail
    assert unsnappy(data) == PLAIN
    with pytest.raises(CorruptRecordError, match="4 bytes of length"):
        decompress_into(Codec.SNAPPY, memoryview(data), memoryview(bytearray(len(PLAIN))), strict=True)
