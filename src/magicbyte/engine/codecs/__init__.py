"""The codecs gzip, snappy, lz4 and zstd as Kafka uses them. The only room that imports compression libraries."""

import enum

from magicbyte.engine.codecs import gzip, lz4, snappy, zstd
from magicbyte.engine.codecs.lz4 import Lz4Header
from magicbyte.engine.codecs.lz4 import compress_many as compress_lz4_frames
from magicbyte.engine.codecs.lz4 import frame_bound as lz4_frame_bound
from magicbyte.engine.codecs.lz4 import header_checksum as lz4_header_checksum
from magicbyte.engine.codecs.lz4 import set_header_checksum as set_lz4_header_checksum
from magicbyte.engine.codecs.output import OutputFull
from magicbyte.engine.errors import BatchTooLargeError
from magicbyte.engine.wire.checksum import Buffer

__all__ = [
    "Codec",
    "Lz4Header",
    "OutputFull",
    "compress",
    "compress_lz4_frames",
    "decompress",
    "decompress_into",
    "lz4_frame_bound",
    "lz4_header_checksum",
    "set_lz4_header_checksum",
]


class Codec(enum.IntEnum):
    """Bits 0-2 of a message's or batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(
    codec: Codec, data: Buffer, *, level: int | None = None, lz4_header: Lz4Header = Lz4Header.CORRECT
) -> bytes:
    """Compress `data` as Kafka would store it. `level` has each library's meaning; snappy has none."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return gzip.compress(data, level)
        case Codec.SNAPPY:
            return snappy.compress(data)
        case Codec.LZ4:
            return lz4.compress(data, level, lz4_header)
        case Codec.ZSTD:
            return zstd.compress(data, level)


def decompress(codec: Codec, data: Buffer, *, limit: int, lz4_header: Lz4Header = Lz4Header.CORRECT) -> memoryview:
    """Decompress `data` to at most `limit` bytes. No larger buffer is allocated, whatever size the data claims.

    Raises CorruptRecordError, and BatchTooLargeError for a content of more than `limit` bytes.
    """
    source = memoryview(data)
    if codec == Codec.NONE:
        if len(source) > limit:
            raise BatchTooLargeError("size", expected=f"<= {limit} bytes", found=len(source))
        return source
    size = min(_size_hint(codec, source), limit)
    while True:
        out = memoryview(bytearray(size))
        try:
            return out[: decompress_into(codec, source, out, lz4_header=lz4_header)]
        except OutputFull as full:
            if size >= limit:
                raise BatchTooLargeError("decompressed size", expected=f"<= {limit} bytes", found="more") from None
            size = min(max(2 * size, full.needed, 1024), limit)


def decompress_into(
    codec: Codec,
    data: memoryview,
    out: memoryview,
    *,
    lz4_header: Lz4Header = Lz4Header.CORRECT,
    strict: bool = False,
) -> int:
    """Decompress `data` to the start of `out`, and return the bytes written. Bytes of `out` after them may change as
    well.

    What no release of Kafka verifies is verified only if `strict`: the bytes after the last gzip member or snappy
    block, and the size and checksum of an LZ4 frame's content. Raises CorruptRecordError, and OutputFull if `out` is
    too small; then the content of `out` is undefined.
    """
    if codec == Codec.LZ4:
        return lz4.decompress_into(data, out, lz4_header, strict=strict)
    if codec == Codec.ZSTD:
        return zstd.decompress_into(data, out)
    if codec == Codec.SNAPPY:
        return snappy.decompress_into(data, out, strict=strict)
    if codec == Codec.GZIP:
        return gzip.decompress_into(data, out, strict=strict)
    if len(data) > len(out):
        raise OutputFull(len(data))
    out[: len(data)] = data
    return len(data)


def _size_hint(codec: Codec, data: memoryview) -> int:
    match codec:
        case Codec.GZIP:
            return gzip.size_hint(data)
        case Codec.SNAPPY:
            return snappy.size_hint(data)
        case Codec.LZ4:
            return lz4.size_hint(data)
        case _:
            return zstd.size_hint(data)
