"""Snappy as Kafka frames it: xerial streams of raw blocks, or one raw block. cramjam releases the GIL."""

import struct

import cramjam

from magicbyte.engine.codecs.output import OutputFull
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.wire.checksum import Buffer

MAGIC = b"\x82SNAPPY\x00"
HEADER = MAGIC + struct.pack(">ii", 1, 1)  # version, and the lowest version that can read it; readers ignore both
BLOCK = 32 << 10  # input bytes per block; Java clients 0.8.2 to 0.10.2 used 1 KiB
_LENGTH = struct.Struct(">I")
_MAGIC_AS_LENGTH = _LENGTH.unpack_from(MAGIC)[0]  # negative as a length, so it must be the header of another stream
_MAX_RATIO = 22  # a 3-byte copy element yields at most 64 bytes

_decompress_raw_into = cramjam.snappy.decompress_raw_into
_compress_raw_into = cramjam.snappy.compress_raw_into
_Error = cramjam.DecompressionError


def compress(data: Buffer) -> bytes:
    """Return one xerial stream."""
    source = memoryview(data)
    bound = cramjam.snappy.compress_raw_max_len(source[:BLOCK])
    out = memoryview(bytearray(len(HEADER) + -(-len(source) // BLOCK) * (4 + bound)))
    out[: len(HEADER)] = HEADER
    at = len(HEADER)
    for start in range(0, len(source), BLOCK):
        size = _compress_raw_into(source[start : start + BLOCK], out[at + 4 :])
        _LENGTH.pack_into(out, at, size)
        at += 4 + size
    return bytes(out[:at])


def _claimed_size(block: memoryview) -> int:
    """Return the decompressed size at the start of a raw block: a varint below 2**32. Raises CorruptRecordError."""
    size = 0
    for i, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            if size > _MAX_RATIO * len(block):
                raise CorruptRecordError(
                    "snappy block", expected=f"<= {_MAX_RATIO * len(block)} bytes out of {len(block)}", found=size
                )
            return size
    raise CorruptRecordError("snappy block", expected="its size as a varint", found=bytes(block[:5]).hex() or "nothing")


def size_hint(data: memoryview) -> int:
    """Return the size that a raw block claims, or a guess for a stream."""
    return 4 * len(data) if data[:8] == MAGIC else _claimed_size(data)


def decompress_into(data: memoryview, out: memoryview, *, strict: bool = False) -> int:
    """Write the content of the stream or raw block `data` to `out` and return the bytes written.

    As in Kafka, up to 3 bytes after the last block are ignored, unless `strict`.
    """
    if data[:8] != MAGIC:
        return _block_into(data, out)
    end = len(data)
    at, written = len(HEADER), 0
    while at < end:
        if end - at < 4:
            if not strict:
                return written
            raise CorruptRecordError("snappy stream", expected="4 bytes of length", found=end - at, position=at)
        (size,) = _LENGTH.unpack_from(data, at)
        if size == _MAGIC_AS_LENGTH:  # a second stream: its header has the same 16 bytes
            at += len(HEADER)
            continue
        at += 4
        if size > end - at:
            raise CorruptRecordError("snappy block", expected=f"{size} bytes", found=f"{end - at} left", position=at)
        written += _block_into(data[at : at + size], out[written:])
        at += size
    if at > end:
        raise CorruptRecordError("snappy stream", expected="16 bytes of header", found="cut data", position=end)
    return written


def _block_into(block: memoryview, out: memoryview) -> int:
    try:
        return int(_decompress_raw_into(block, out))
    except _Error as error:
        if (size := _claimed_size(block)) > len(out):
            raise OutputFull(size) from None
        raise CorruptRecordError("snappy block", expected="sound data", found=error) from None
