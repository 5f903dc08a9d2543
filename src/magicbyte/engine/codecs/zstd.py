"""Zstandard frames. The library releases the GIL.

Kafka writes frames without their content size, from a stream. The frames are walked here first, block by block, because
the library's streams do not distinguish a cut frame from a whole one, and allocate any window that a header asks for.
Source: RFC 8878.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, BinaryIO

import zstandard

from magicbyte.engine.codecs.output import OutputFull
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.wire.checksum import Buffer

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

DEFAULT_LEVEL = 3
MAGIC = 0xFD2FB528
_SKIPPABLE, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_UINT16, _UINT32, _UINT64 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
_MAX_WINDOW = 1 << 27  # as in Kafka and the zstd command: level 22 needs it
_SMALL_WINDOW = 1 << 23  # the largest window that the library may allocate; that of level 19
_MAX_BLOCK = 128 << 10
_RLE, _RESERVED = 1, 3
_SINGLE_SEGMENT, _CHECKSUM = 0x20, 0x04


# Idle contexts of the library. They cost more to create than a small batch takes to read, and serve one thread at a
# time. A user pops one and appends it afterwards; single operations of a list are atomic.
_decompressors: list[zstandard.ZstdDecompressor] = []
_compressors: dict[int, list[zstandard.ZstdCompressor]] = {}


def compress(data: Buffer, level: int | None) -> bytes:
    """Return one frame, without a checksum and, unlike Kafka's, with its content size: readers then allocate once."""
    level = DEFAULT_LEVEL if level is None else level
    unused = _compressors.setdefault(level, [])
    try:
        compressor = unused.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level)
    try:
        return compressor.compress(data)
    finally:
        unused.append(compressor)


class ZstdFile(io.RawIOBase):
    """The content of a file's zstd frames, from its current position on, as a file that is read once.

    Memory: one window, at most 128 MiB. A cut frame ends without an error, so the reader must know the expected size.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(
            file, read_across_frames=True
        )

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill some of `buffer`. Raises CorruptRecordError."""
        try:
            return self._reader.readinto(buffer)
        except zstandard.ZstdError as error:
            raise CorruptRecordError("zstd data", expected="sound frames", found=error) from None


def size_hint(data: memoryview) -> int:
    """Return the content size that the first frame states, if it is credible, or a guess."""
    try:
        size = zstandard.frame_content_size(data)
    except zstandard.ZstdError:
        size = -1
    return 4 * len(data) if size < 0 else min(size, 1024 * len(data))


def decompress_into(data: memoryview, out: memoryview) -> int:
    """Write the content of all frames of `data` to `out` and return the bytes written; checksums are verified.

    Raises CorruptRecordError, OutputFull. The library allocates a window besides `out`: at most 8 MiB, or the size of
    `out`.
    """
    unused = _decompressors
    if large := _large_windows(data, len(out)):
        data = _with_windows_up_to(data, large, len(out) + 2 * _MAX_BLOCK)
        unused = []  # a fresh context, because a kept one would keep its window
    try:
        decompressor = unused.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor()
    try:
        reader = decompressor.stream_reader(data, read_across_frames=True)
        written = reader.readinto(out) if len(out) else 0  # the library fails if there is no room at all
        if written == len(out) and reader.read(1):  # if the content just filled `out`, this verifies the checksum
            raise OutputFull
    except zstandard.ZstdError as error:
        raise CorruptRecordError("zstd data", expected="sound frames", found=error) from None
    finally:
        unused.append(decompressor)
    return written


def _large_windows(data: memoryview, room: int) -> list[int]:
    """Walk all frames; return the positions of window descriptors over 8 MiB.

    Raises CorruptRecordError, and OutputFull if one frame states a content of more than `room` bytes.
    """
    at, end = 0, len(data)
    large = []
    if not end:
        raise CorruptRecordError("zstd data", expected="a frame", found="nothing")
    try:
        while at < end:
            start = at
            (magic,) = _UINT32.unpack_from(data, at)
            if magic & _SKIPPABLE_MASK == _SKIPPABLE:
                at += 8 + int(_UINT32.unpack_from(data, at + 4)[0])
                continue
            if magic != MAGIC:
                raise CorruptRecordError("zstd frame magic", expected=f"{MAGIC:08x}", found=f"{magic:08x}", position=at)
            descriptor = data[at + 4]
            at += 5
            if not descriptor & _SINGLE_SEGMENT:  # a window descriptor follows
                if (window := _window(data[at])) > _SMALL_WINDOW:
                    if window > _MAX_WINDOW:
                        raise CorruptRecordError("zstd window", expected=f"<= {_MAX_WINDOW}", found=window, position=at)
                    large.append(at)
                at += 1
            at += (0, 1, 2, 4)[descriptor & 3]  # dictionary id
            stated = _stated_size(data, at, descriptor)
            at += (descriptor >> 5 & 1, 2, 4, 8)[descriptor >> 6]
            last = possible = 0
            while not last:
                header = data[at] | data[at + 1] << 8 | data[at + 2] << 16
                last, kind = header & 1, header >> 1 & 3
                if kind == _RESERVED:
                    raise CorruptRecordError("zstd block type", expected="0 to 2", found=kind, position=at)
                at += 3 + (1 if kind == _RLE else header >> 3)
                possible += _MAX_BLOCK
            if descriptor & _CHECKSUM:
                at += 4
            if stated > possible:
                raise CorruptRecordError(
                    "zstd content size", expected=f"<= {possible}, for its blocks", found=stated, position=start
                )
            if stated > room and at <= end:
                raise OutputFull(stated)
    except (IndexError, struct.error):
        at = end + 1
    if at > end:
        raise CorruptRecordError("zstd data", expected="whole frames", found="cut data", position=end)
    return large


def _stated_size(data: memoryview, at: int, descriptor: int) -> int:
    """Return the content size in a frame header, 0 if it has none."""
    match descriptor >> 6:
        case 0:
            return data[at] if descriptor & _SINGLE_SEGMENT else 0
        case 1:
            return int(_UINT16.unpack_from(data, at)[0]) + 256
        case 2:
            return int(_UINT32.unpack_from(data, at)[0])
        case _:
            return int(_UINT64.unpack_from(data, at)[0])


def _window(descriptor: int) -> int:
    base = 1 << 10 + (descriptor >> 3)
    return base + base // 8 * (descriptor & 7)


def _with_windows_up_to(data: memoryview, positions: list[int], size: int) -> memoryview:
    """Return a copy of `data` with windows reduced to content of `size` bytes, beyond which no match can reach.

    A frame of level 22 with little content, written as a stream, then needs no window of 128 MiB.
    """
    descriptor = next(code for code in range(256) if _window(code) >= size)
    copy = bytearray(data)
    for position in positions:
        copy[position] = min(copy[position], descriptor)
    return memoryview(copy)
