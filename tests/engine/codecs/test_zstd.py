import random
import struct

import pytest
import zstandard

from magicbyte.engine.codecs import Codec, compress, decompress, decompress_into, zstd
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError

PLAIN = b"the quick brown fox jumps over the lazy dog " * 3000


def streamed(plain: bytes, level: int = 3, **options: bool) -> bytes:
    """Compress as Kafka's zstd-jni does: a stream that does not know what is to come."""
    compressor = zstandard.ZstdCompressor(level=level, **options).compressobj()
    return compressor.compress(plain) + compressor.flush()


def unzstd(data: bytes, limit: int = 1 << 20) -> memoryview:
    return decompress(Codec.ZSTD, data, limit=limit)


@pytest.mark.parametrize("level", [-5, 1, 3, 19, 22])
@pytest.mark.parametrize("checksum", [False, True])
def test_a_frame_without_content_size_is_read(level: int, checksum: bool) -> None:
    data = streamed(PLAIN, level, write_checksum=checksum)
    assert zstandard.frame_content_size(data) == -1
    assert unzstd(data) == PLAIN
    assert unzstd(data, limit=len(PLAIN)) == PLAIN
    with pytest.raises(BatchTooLargeError):
        unzstd(data, limit=len(PLAIN) - 1)


def test_we_write_the_content_size() -> None:
    assert zstandard.frame_content_size(compress(Codec.ZSTD, PLAIN)) == len(PLAIN)


def test_frames_that_follow_each_other_are_one_content() -> None:
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"never"
    data = (
        streamed(PLAIN) + skippable + compress(Codec.ZSTD, b"second") + streamed(b"") + streamed(b"third") + skippable
    )
    assert unzstd(data) == PLAIN + b"secondthird"
    assert unzstd(data, limit=len(PLAIN) + 11) == PLAIN + b"secondthird"


def test_a_content_size_that_the_blocks_cannot_hold_is_corrupt() -> None:
    honest = compress(Codec.ZSTD, PLAIN)
    assert honest[4] & 0xE0 == 0xA0  # a single segment whose size takes four bytes
    for size in ((128 << 10) * 2 + 1, 100 << 20, (1 << 32) - 1):
        with pytest.raises(CorruptRecordError, match="content size"):
            unzstd(honest[:5] + struct.pack("<I", size) + honest[9:], limit=1 << 30)
    for size in (len(PLAIN) - 1, len(PLAIN) + 1):
        with pytest.raises(CorruptRecordError, match="sound frames"):
            unzstd(honest[:5] + struct.pack("<I", size) + honest[9:])


@pytest.mark.parametrize("content_size", [False, True])
def test_a_wrong_checksum_is_corrupt_also_when_the_content_just_fits(content_size: bool) -> None:
    data = bytearray(zstandard.ZstdCompressor(write_checksum=True, write_content_size=content_size).compress(PLAIN))
    assert unzstd(bytes(data)) == PLAIN
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        unzstd(bytes(data))
    with pytest.raises(CorruptRecordError):
        decompress_into(Codec.ZSTD, memoryview(data), memoryview(bytearray(len(PLAIN))))


@pytest.mark.parametrize(
    "data",
    [
        b"\x28\xb5\x2f\xfd",
        b"\x28\xb5\x2f\xfd\x00\x58",
        b"\x28\xb5\x2f\xfd\x00\x58\x07\x00\x00",  # a block of the reserved type
        b"\x28\xb5\x2f\xfd\x00\x58\x00\x00\x00",  # no last block
        b"\x28\xb5\x2f\xfd\x08\x58\x01\x00\x00",  # a reserved bit
        b"\x28\xb5\x2f\xfd\x01\x58\x07\x01\x00\x00",  # needs a dictionary
        b"\x50\x2a\x4d\x18\x05\x00\x00\x00abcd",
        streamed(PLAIN) + b"\x00",
        streamed(PLAIN) + b"\x00" * 4,
        streamed(PLAIN) + streamed(PLAIN)[:-1],
    ],
)
def test_damaged_frames_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        unzstd(data)


def test_a_window_over_128_mib_is_refused_as_in_kafka() -> None:
    with pytest.raises(CorruptRecordError, match=f"window: expected <= {1 << 27}, found {(1 << 27) * 9 // 8}"):
        unzstd(b"\x28\xb5\x2f\xfd\x00" + bytes([17 << 3 | 1]) + b"\x29\x00\x00hello")


def test_a_large_window_costs_no_more_memory_than_the_content_may_need() -> None:
    data = streamed(PLAIN, 22)
    assert zstandard.get_frame_parameters(data).window_size == 1 << 27
    large = zstd._large_windows(memoryview(data * 2), 1 << 20)
    assert len(large) == 2
    for size in (1000, 1 << 20, 5_000_000, 1 << 26):
        copy = zstd._with_windows_up_to(memoryview(data * 2), large, size)
        assert size <= zstandard.get_frame_parameters(copy).window_size <= max(1024, size * 9 // 8)
        assert zstandard.get_frame_parameters(copy[len(data) :]).window_size < 1 << 27


def test_matches_that_reach_far_back_survive_the_smaller_window() -> None:
    noise = random.Random(5).randbytes(9 << 20)
    plain = noise + b"between" + noise[:2_000_000]  # longer than 8 MiB back
    compressor = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters.from_level(3, window_log=27, enable_ldm=True)
    ).compressobj()
    data = compressor.compress(plain) + compressor.flush()
    assert len(data) < (9 << 20) + 100_000
    for limit in (len(plain), len(plain) + 1, 1 << 26):
        assert unzstd(data, limit=limit) == plain
    for limit in (len(plain) - 1, 9 << 20, 1 << 20):
        with pytest.raises(BatchTooLargeError):
            unzstd(data, limit=limit)
