import itertools
import random
import struct

import lz4.block
import lz4.frame
import pytest
import xxhash

from magicbyte.engine.codecs import (
    Codec,
    Lz4Header,
    compress,
    compress_lz4_frames,
    decompress,
    decompress_into,
    lz4_frame_bound,
    lz4_header_checksum,
)
from magicbyte.engine.errors import CorruptRecordError

MAGIC = bytes.fromhex("04224d18")
PLAIN = b"the quick brown fox jumps over the lazy dog " * 3000
INDEPENDENT, BLOCK_CHECKSUM, CONTENT_SIZE, CONTENT_CHECKSUM = 0x20, 0x10, 0x08, 0x04

HEADERS = [  # FLG, BD, content size, correct, broken; measured
    (0x60, 0x40, None, 0x82, 0x1A),
    (0x60, 0x50, None, 0xFB, 0x77),
    (0x60, 0x60, None, 0x51, 0xD6),
    (0x60, 0x70, None, 0x73, 0x10),
    (0x64, 0x40, None, 0xA7, 0x0C),
    (0x70, 0x40, None, 0xAD, 0xEC),
    (0x74, 0x40, None, 0xBD, 0xF6),
    (0x40, 0x40, None, 0xC0, 0xA5),
    (0x68, 0x40, 100, 0x23, 0x3E),
]


def header_of(flags: int, block_max: int, size: int | None = None, broken: bool = False) -> bytes:
    descriptor = bytes([flags, block_max]) + (b"" if size is None else struct.pack("<Q", size))
    hashed = MAGIC + descriptor if broken else descriptor
    return MAGIC + descriptor + bytes([xxhash.xxh32_intdigest(hashed) >> 8 & 0xFF])


def frame(
    plain: bytes = PLAIN,
    flags: int = 0x60,
    block_max: int = 0x40,
    size: int | None = None,
    broken: bool = False,
    stored: bool = False,
) -> bytes:
    """Build a frame by hand, with whatever `flags` announce, right."""
    parts = [header_of(flags, block_max, len(plain) if size is None and flags & CONTENT_SIZE else size, broken)]
    step = 1 << 8 + 2 * (block_max >> 4 & 7)
    for at in range(0, len(plain), step):
        content = plain[at : at + step]
        block = content if stored else lz4.block.compress(content, store_size=False)
        parts += [struct.pack("<I", len(block) | (1 << 31 if stored else 0)), block]
        if flags & BLOCK_CHECKSUM:
            parts.append(struct.pack("<I", xxhash.xxh32_intdigest(block)))
    parts.append(bytes(4))
    if flags & CONTENT_CHECKSUM:
        parts.append(struct.pack("<I", xxhash.xxh32_intdigest(plain)))
    return b"".join(parts)


def unlz4(data: bytes, header: Lz4Header = Lz4Header.CORRECT) -> memoryview:
    return decompress(Codec.LZ4, data, limit=1 << 20, lz4_header=header)


@pytest.mark.parametrize(("flags", "block_max", "size", "correct", "broken"), HEADERS)
def test_the_measured_header_checksums_are_distinguished(
    flags: int, block_max: int, size: int | None, correct: int, broken: int
) -> None:
    start = header_of(flags, block_max, size)[:-1]
    for byte in range(256):
        kinds = {correct: Lz4Header.CORRECT, broken: Lz4Header.BROKEN}
        assert lz4_header_checksum(start + bytes([byte])) is kinds.get(byte)
        assert lz4_header_checksum(memoryview(start + bytes([byte, 1, 2, 3]))) is kinds.get(byte)
    for cut in range(len(start) + 1):
        assert lz4_header_checksum(start[:cut]) is None


def test_other_bytes_have_no_header_checksum() -> None:
    assert lz4_header_checksum(b"\x1f\x8b\x08" + bytes(20)) is None
    assert lz4_header_checksum(b"") is None


@pytest.mark.parametrize("written", [Lz4Header.CORRECT, Lz4Header.BROKEN])
@pytest.mark.parametrize("read", list(Lz4Header))
def test_the_reader_says_which_header_checksum_it_takes(written: Lz4Header, read: Lz4Header) -> None:
    data = compress(Codec.LZ4, PLAIN, lz4_header=written)
    assert lz4_header_checksum(data) is written
    if read in (written, Lz4Header.ANY):
        assert unlz4(data, read) == PLAIN
    else:
        with pytest.raises(CorruptRecordError, match="header checksum"):
            unlz4(data, read)


def test_any_header_checksum_may_even_be_neither() -> None:
    data = bytearray(compress(Codec.LZ4, PLAIN))
    data[6] = 0x55
    assert unlz4(bytes(data), Lz4Header.ANY) == PLAIN
    for header in (Lz4Header.CORRECT, Lz4Header.BROKEN):
        with pytest.raises(CorruptRecordError, match="header checksum"):
            unlz4(bytes(data), header)


def test_any_is_no_way_to_write() -> None:
    with pytest.raises(ValueError, match="written"):
        compress(Codec.LZ4, PLAIN, lz4_header=Lz4Header.ANY)


@pytest.mark.parametrize("extra", [0, *range(4, 32, 4)])
@pytest.mark.parametrize("block_max", [0x40, 0x50, 0x60, 0x70])
@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_every_mix_of_sizes_and_checksums_is_read(extra: int, block_max: int, broken: bool, stored: bool) -> None:
    data = frame(flags=0x60 | extra, block_max=block_max, broken=broken, stored=stored)
    assert unlz4(data, Lz4Header.BROKEN if broken else Lz4Header.CORRECT) == PLAIN
    if not broken:
        assert lz4.frame.decompress(data) == PLAIN


def test_blocks_of_64_kib_are_written_and_noise_is_stored() -> None:
    noise = random.Random(3).randbytes(100_000)
    data = compress(Codec.LZ4, noise)
    assert data == frame(noise, stored=True)


def test_an_empty_frame_is_a_header_and_an_end_mark() -> None:
    assert compress(Codec.LZ4, b"") == bytes.fromhex("04224d18604082 00000000")
    assert unlz4(compress(Codec.LZ4, b"")) == b""


def test_nothing_after_the_end_of_a_frame_is_read() -> None:
    assert unlz4(frame() + b"rest") == PLAIN
    assert unlz4(frame() + frame()) == PLAIN
    assert unlz4(frame(flags=0x64) + frame()) == PLAIN


def changed(data: bytes, at: int) -> bytes:
    copy = bytearray(data)
    copy[at] ^= 0x01
    return bytes(copy)


REFUSED = {
    "magic": frame()[:3] + b"\x19" + frame()[4:],
    "version": frame(flags=0x20),
    "independent blocks, found dependent": lz4.frame.compress(PLAIN, block_linked=True, store_size=False),
    "independent blocks, found dependent blocks": frame(flags=0x40),
    "reserved": frame(flags=0x62),
    "reserved flags": frame(flags=0x61),
    "block maximum": frame(block_max=0x30),
    "block maximum: expected 40, 50, 60 or 70, found 41": frame(block_max=0x41),
    "block maximum: expected 40, 50, 60 or 70, found c0": frame(block_max=0xC0),
    "header checksum": changed(frame(), 6),
    "15 bytes of header": header_of(0x68, 0x40, 100)[:-1],
    "content checksum: expected 4 bytes": frame(flags=0x64)[:-1],
    "block checksum": changed(frame(flags=0x70), -5),
    "block size: expected <= 65536, found 65537": header_of(0x60, 0x40) + struct.pack("<I", 65537) + bytes(70_000),
    "block size: expected <= 65536, found 70000": header_of(0x60, 0x40)
    + struct.pack("<I", 70000 | 1 << 31)
    + bytes(70_004),
    "end mark": frame()[:-4],
    "end mark: expected 4 bytes, found 3 left": frame()[:-1],
    "block: expected 100 bytes": header_of(0x60, 0x40) + struct.pack("<I", 100) + bytes(99),
    "block: expected sound data": header_of(0x60, 0x40)
    + struct.pack("<I", len(lz4.block.compress(bytes(65537), store_size=False)))
    + lz4.block.compress(bytes(65537), store_size=False)
    + bytes(4),
    "sound data": header_of(0x60, 0x40) + struct.pack("<I", 4) + b"\x10a\xff\xff" + bytes(4),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_kafka_or_the_format_forbids_is_refused_by_name(message: str) -> None:
    with pytest.raises(CorruptRecordError, match=message):
        unlz4(REFUSED[message])


def test_the_library_never_sees_the_size_field_before_a_block() -> None:
    block = lz4.block.compress(PLAIN[:5000], store_size=True)
    with pytest.raises(CorruptRecordError):
        unlz4(header_of(0x60, 0x40) + struct.pack("<I", len(block)) + block + bytes(4))


def test_many_frames_at_once_are_those_of_one_by_one() -> None:
    noise = random.Random(7).randbytes(200_000)
    contents = [b"", b"a", b"abc" * 9, PLAIN[: 1 << 16], PLAIN, noise[:1000], noise, noise[: 1 << 16] + PLAIN]
    data, gap = b"".join(contents), 5
    bounds = [0]
    for content in contents:
        bounds.append(bounds[-1] + len(content))
    out = bytearray(lz4_frame_bound(len(data), len(contents)) + gap * len(contents))
    sections = list(itertools.pairwise(bounds))
    ends = compress_lz4_frames(memoryview(data), sections, memoryview(out), gap)
    assert [bytes(out[start + gap : end]) for start, end in itertools.pairwise(ends)] == [
        compress(Codec.LZ4, content) for content in contents
    ]
    assert [
        bytes(decompress(Codec.LZ4, compress(Codec.LZ4, content), limit=1 << 20)) for content in contents
    ] == contents


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (frame(flags=0x68, size=5), "content size: expected 5"),
        (frame(flags=0x68, size=1 << 62), "content size"),
        (changed(frame(flags=0x64), -1), "content checksum"),
    ],
)
def test_size_and_checksum_of_the_content_are_verified_strictly_only_as_kafka_does_not(data: bytes, what: str) -> None:
    content = decompress(Codec.LZ4, data, limit=1 << 20)
    assert content == decompress(Codec.LZ4, frame(), limit=1 << 20)
    with pytest.raises(CorruptRecordError, match=what):
        decompress_into(Codec.LZ4, memoryview(data), memoryview(bytearray(len(content))), strict=True)


def test_a_stored_block_of_no_bytes_ends_a_frame() -> None:
    data = frame()[:-4] + struct.pack("<II", 1 << 31, 1 << 31 | 5) + b"hello" + bytes(4)
    assert decompress(Codec.LZ4, data, limit=1 << 20) == decompress(Codec.LZ4, frame(), limit=1 << 20)
