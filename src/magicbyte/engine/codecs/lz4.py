"""LZ4 frames as Kafka writes and reads them, with either header checksum.

Blocks are decompressed by lz4 and compressed by cramjam, whose fast compressor gives the same bytes as Kafka's; both
release the GIL.

The frame is parsed here, because no library supports the broken checksum, and Kafka allows less than the format does.
Source: KIP-57, org.apache.kafka.common.compress.Lz4BlockInputStream (formerly KafkaLZ4BlockInputStream).
"""

import enum
import struct
from collections.abc import Iterable, Sequence
from typing import Final

import cramjam
import lz4.block

from magicbyte.engine.codecs.lz4_frame_kernels import FRAME_MAGIC
from magicbyte.engine.codecs.output import OutputFull
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.wire.checksum import Buffer, xxh32


class Lz4Header(enum.Enum):
    """Which bytes the header checksum of a frame covers.

    CORRECT: the frame descriptor. BROKEN: the frame's magic number too, as all Kafka versions write it in magic 0. ANY:
    for reading only, the checksum is not verified.
    """

    CORRECT = "correct"
    BROKEN = "broken"
    ANY = "any"


MAGIC = FRAME_MAGIC.to_bytes(4, "big")
BLOCK = 64 << 10
_FLAGS_AND_BLOCK_MAX = b"\x60\x40"  # version 1, independent blocks; at most 64 KiB each
HEADER: Final = {
    Lz4Header.CORRECT: MAGIC + _FLAGS_AND_BLOCK_MAX + b"\x82",
    Lz4Header.BROKEN: MAGIC + _FLAGS_AND_BLOCK_MAX + b"\x1a",
}
END_MARK = bytes(4)
_INDEPENDENT, _BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM, _RESERVED = 0x20, 0x10, 0x08, 0x04, 0x03
_STORED = 1 << 31
_UINT32, _UINT64 = struct.Struct("<I"), struct.Struct("<Q")
_MAX_RATIO = 255
_ONE_BLOCK = struct.Struct("<7sI")  # the bytes before the only block of a frame
_FIRST_BLOCK = _ONE_BLOCK.size
_FRAME_OVERHEAD = 11  # header and end mark
_BLOCK_OVERHEAD = 4 + 17  # the size field, and the growth of an incompressible block, besides 1/255 of it

_compress_block_into = cramjam.lz4.compress_block_into
_compress_slowly = lz4.block.compress
_decompress_block = lz4.block.decompress
_Error = lz4.block.LZ4BlockError


def compress(data: Buffer, level: int | None, header: Lz4Header) -> bytes:
    """Return one frame of independent blocks of 64 KiB; incompressible blocks are stored.

    Levels as in Kafka: None is the fast compressor, 1 to 12 the high-compression one.
    """
    source = memoryview(data)
    out = memoryview(bytearray(frame_bound(len(source))))
    return bytes(out[: compress_into(source, out, level, header)])


def frame_bound(size: int, frames: int = 1) -> int:
    """Return an upper bound of the room needed to write frames of `size` bytes of content in total."""
    blocks = size // BLOCK + frames
    return size + size // 255 + blocks * _BLOCK_OVERHEAD + frames * _FRAME_OVERHEAD


def compress_into(
    data: memoryview, out: memoryview, level: int | None = None, header: Lz4Header = Lz4Header.CORRECT
) -> int:
    """Write the result of `compress` to `out` and return its size.

    `out` must have `frame_bound` bytes; all may change.
    """
    if header is Lz4Header.ANY:
        raise ValueError("an LZ4 frame is written with the correct or with the broken header checksum")
    out[:7] = HEADER[header]
    at = 7
    for start in range(0, len(data), BLOCK):
        block = data[start : start + BLOCK]
        size = _compress(block, out[at + 4 :], level)
        if size < len(block):
            _UINT32.pack_into(out, at, size)
        else:
            size = len(block)
            _UINT32.pack_into(out, at, size | _STORED)
            out[at + 4 : at + 4 + size] = block
        at += 4 + size
    out[at : at + 4] = END_MARK
    return at + 4


def compress_many(data: memoryview, sections: Iterable[Sequence[int]], out: memoryview, gap: int) -> list[int]:
    """Write a frame for each section (start, end) of `data`, each `gap` bytes after the frame before.

    Returns 0 and the end of each frame; the caller fills the gaps. `out` must have room for all (`frame_bound`).
    """
    bounds, header = [0], HEADER[Lz4Header.CORRECT]
    for start, stop in sections:
        at = bounds[-1] + gap
        end = at + _FIRST_BLOCK
        if stop - start <= BLOCK:  # the fast path of nearly all sections
            end += _compress_block_into(data[start:stop], out[end:], store_size=False)
        size = end - at - _FIRST_BLOCK
        if 0 < size < stop - start:
            _ONE_BLOCK.pack_into(out, at, header, size)
            _UINT32.pack_into(out, end, 0)
            bounds.append(end + 4)
        else:
            bounds.append(at + compress_into(data[start:stop], out[at:]))
    return bounds


def _compress(block: memoryview, out: memoryview, level: int | None) -> int:
    if level is None:
        return _compress_block_into(block, out, store_size=False)
    shrunk = _compress_slowly(block, store_size=False, mode="high_compression", compression=level)
    out[: len(shrunk)] = shrunk
    return len(shrunk)


def header_checksum(data: Buffer) -> Lz4Header | None:
    """Return whether the frame at the start of `data` has the CORRECT or the BROKEN header checksum, or None for
    neither.

    Reads the first 7 or 15 bytes only; None also if they are missing or belong to no LZ4 frame.
    """
    start = bytes(data[:15])
    for kind, common in HEADER.items():
        if start.startswith(common):
            return kind
    if len(start) < 7 or start[:4] != MAGIC:
        return None
    at = 14 if start[4] & _CONTENT_SIZE else 6
    if len(start) <= at:
        return None
    if start[at] == _checksum_byte(start[4:at]):
        return Lz4Header.CORRECT
    return Lz4Header.BROKEN if start[at] == _checksum_byte(start[:at]) else None


def set_header_checksum(frame: memoryview, header: Lz4Header) -> bool:
    """Change the header checksum of the frame at the start of the writable `frame` in place.

    Nothing else changes. Returns whether the checksum changed; False also if `header_checksum` is None.
    """
    if header_checksum(frame) is None:
        return False
    at = 14 if frame[4] & _CONTENT_SIZE else 6
    wanted = _checksum_byte(frame[4:at] if header is Lz4Header.CORRECT else frame[:at])
    changes = frame[at] != wanted
    frame[at] = wanted
    return changes


def size_hint(data: memoryview) -> int:
    """Return the content size stated in the frame, or a guess."""
    if len(data) >= 15 and data[:4] == MAGIC and data[4] & _CONTENT_SIZE:
        return int(min(_UINT64.unpack_from(data, 6)[0], _MAX_RATIO * len(data)))
    return 4 * len(data)


def decompress_into(data: memoryview, out: memoryview, header: Lz4Header, *, strict: bool = False) -> int:
    """Write the content of the frame `data` to `out` and return the bytes written.

    Verifies what Kafka does: the checksums of the header and of blocks; if `strict`, also size and checksum of the
    content. As in Kafka, a block of no bytes ends the frame, and bytes after it are ignored. Raises CorruptRecordError,
    OutputFull. Allocates at most two blocks (4 MiB each) besides `out`.
    """
    if header in HEADER and data[:7] == HEADER[header]:
        at, flags, block_max, content_size = 7, 0x60, BLOCK, None
    else:
        at, flags, block_max, content_size = _parse_header(data, header)
    written = 0
    tail = 4 if flags & _BLOCK_CHECKSUM else 0
    end = len(data) - tail
    while at + 4 <= len(data) and (word := _UINT32.unpack_from(data, at)[0]) & ~_STORED:
        at += 4
        size = word & ~_STORED
        if size > block_max:
            raise CorruptRecordError("lz4 block size", expected=f"<= {block_max}", found=size, position=at - 4)
        if size > end - at:
            raise CorruptRecordError("lz4 block", expected=f"{size} bytes", found=f"{end - at} left", position=at)
        block = data[at : at + size]
        if tail:
            _verify("lz4 block checksum", _word(data, at + size, "block checksum"), block, at + size)
        room = len(out) - written
        content = block if word & _STORED else _decompress(block, block_max, room, at)
        if len(content) > room:
            raise OutputFull
        out[written : written + len(content)] = content
        written += len(content)
        at += size + tail
    _word(data, at, "end mark")
    at += 4
    if strict and content_size is not None and content_size != written:
        raise CorruptRecordError("lz4 content size", expected=content_size, found=written)
    if flags & _CONTENT_CHECKSUM:
        stored = _word(data, at, "content checksum")
        if strict:
            _verify("lz4 content checksum", stored, out[:written], at)
    return written


def _decompress(block: memoryview, block_max: int, room: int, at: int) -> bytes:
    """Return the content of a block: at most `room` bytes, or, if it is longer, at most `block_max`."""
    bound = min(block_max, _MAX_RATIO * len(block))
    try:
        content: bytes = _decompress_block(block, uncompressed_size=min(bound, room))
    except _Error as error:
        if room >= bound:
            raise CorruptRecordError("lz4 block", expected="sound data", found=error, position=at) from None
        # the library does not distinguish damage from a block that is too long
        return _decompress(block, block_max, bound, at)
    return content


def _parse_header(data: memoryview, header: Lz4Header) -> tuple[int, int, int, int | None]:
    """Return the position of the first block, the flags, the maximum block size, and the content size if stated."""
    if len(data) < 7 or data[:4] != MAGIC:
        raise CorruptRecordError("lz4 frame", expected=f"magic {MAGIC.hex()}", found=bytes(data[:7]).hex() or "nothing")
    flags, block_max_code = data[4], data[5]
    if flags >> 6 != 1:
        raise CorruptRecordError("lz4 frame version", expected=1, found=flags >> 6, position=4)
    if not flags & _INDEPENDENT:
        raise CorruptRecordError("lz4 frame", expected="independent blocks", found="dependent blocks", position=4)
    if flags & _RESERVED:
        raise CorruptRecordError("lz4 reserved flags", expected=0, found=flags & _RESERVED, position=4)
    if block_max_code & 0x8F or not 4 <= block_max_code >> 4 <= 7:
        raise CorruptRecordError(
            "lz4 block maximum", expected="40, 50, 60 or 70", found=f"{block_max_code:02x}", position=5
        )
    at, content_size = 6, None
    if flags & _CONTENT_SIZE:
        at = 14
        if len(data) <= at:
            raise CorruptRecordError("lz4 frame", expected="15 bytes of header", found=len(data))
        (content_size,) = _UINT64.unpack_from(data, 6)
    if header is not Lz4Header.ANY:
        expected = _checksum_byte(data[4:at] if header is Lz4Header.CORRECT else data[:at])
        if data[at] != expected:
            what = f"lz4 header checksum ({header.value})"
            raise CorruptRecordError(what, expected=f"{expected:02x}", found=f"{data[at]:02x}", position=at)
    return at + 1, flags, 1 << 8 + 2 * (block_max_code >> 4), content_size


def _checksum_byte(data: Buffer) -> int:
    return xxh32(data) >> 8 & 0xFF


def _word(data: memoryview, at: int, what: str) -> int:
    if len(data) - at < 4:
        raise CorruptRecordError(f"lz4 {what}", expected="4 bytes", found=f"{max(len(data) - at, 0)} left", position=at)
    return int(_UINT32.unpack_from(data, at)[0])


def _verify(what: str, stored: int, data: memoryview, at: int) -> None:
    if (computed := xxh32(data)) != stored:
        raise CorruptRecordError(what, expected=f"{stored:#010x}", found=f"{computed:#010x}", position=at)
