"""gzip, RFC 1952: decompressed by ISA-L, compressed by libdeflate (why these: docs/decisions/0002).

Both release the GIL.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Any

from magicbyte.engine.codecs.output import OutputFull
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.wire.checksum import Buffer

_Error: Any  # its stub is wrong
_decompressobj: Callable[[int], Any]
try:
    from isal import isal_zlib

    _Error, _decompressobj = isal_zlib.error, isal_zlib.decompressobj
except ImportError:  # pragma: no cover  (no wheel for this machine)
    _Error, _decompressobj = zlib.error, zlib.decompressobj

DEFAULT_LEVEL = 6  # Kafka's and zlib's number
_GZIP = 31  # zlib's wbits for a 32 KiB window with gzip's header and trailer
_PIECE = 1 << 16  # input bytes per call: the library copies the input that a member leaves over, so it must be small
_CHUNK = 1 << 18  # output bytes per call, in addition to the caller's buffer
_MAX_RATIO = 1032  # the largest ratio of deflate
_SMALLEST_MEMBER = 19  # Java takes up to 18 bytes for the end; an empty member has 20
_FLAG_CRC, _FLAG_EXTRA, _FLAG_NAME, _FLAG_COMMENT = 2, 4, 8, 16
_ISIZE = struct.Struct("<I")


def _zlib_compress(data: Buffer, level: int) -> bytes:
    return zlib.compress(data, min(level, 9), _GZIP)


try:
    from deflate import gzip_compress as _imported_compress

    _compress: Callable[[Buffer, int], Buffer] = _imported_compress
except ImportError:  # pragma: no cover  (no wheel for this machine)
    _compress = _zlib_compress


def compress(data: Buffer, level: int | None) -> bytes:
    """Return one gzip member without name or time. Levels 1 to 12; those from 10 on need libdeflate."""
    return bytes(_compress(data, DEFAULT_LEVEL if level is None else level))


def size_hint(data: memoryview) -> int:
    """Return the size claimed by the last member's trailer. It is unverified, and covers that member only."""
    claimed = _ISIZE.unpack_from(data, len(data) - 4)[0] if len(data) >= 18 else 0
    return int(min(claimed, _MAX_RATIO * len(data)))


def decompress_into(data: memoryview, out: memoryview, *, strict: bool = False) -> int:
    """Write all members of `data` to `out` and return the bytes written, after verifying each CRC and size.

    As in Kafka, bytes after a member that begin no other one are ignored, unless `strict`. Raises CorruptRecordError
    and OutputFull. Allocates 256 KiB besides `out`. Source: java.util.zip.GZIPInputStream.
    """
    at = written = 0
    while True:  # for each member
        member = _decompressobj(_GZIP)
        while not member.eof:
            piece = data[at : at + _PIECE]
            room = len(out) - written
            try:
                chunk = member.decompress(piece, min(room, _CHUNK) + 1)
            except _Error as error:
                raise CorruptRecordError("gzip data", expected="a sound member", found=error, position=at) from None
            if len(chunk) > room:
                raise OutputFull
            out[written : written + len(chunk)] = chunk
            written += len(chunk)
            used = len(piece) - len(member.unused_data) - len(member.unconsumed_tail)
            if not used and not chunk and not member.eof:
                raise CorruptRecordError("gzip data", expected="the end of a member", found="cut data", position=at)
            at += used
        if at == len(data):
            return written
        if not _begins_member(data[at:]):
            if strict:
                found = f"{len(data) - at} other bytes"
                raise CorruptRecordError("gzip data", expected="its end or another member", found=found, position=at)
            return written


def _begins_member(data: memoryview) -> bool:
    """Return whether a whole header, and room for content, is at the start of `data`."""
    if len(data) < _SMALLEST_MEMBER or bytes(data[:3]) != b"\x1f\x8b\x08":
        return False
    flags, at = data[3], 10
    if flags & _FLAG_EXTRA:
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for flag in (_FLAG_NAME, _FLAG_COMMENT):
        if flags & flag:
            end = bytes(data[at:]).find(0)
            if end < 0:
                return False
            at += end + 1
    if flags & _FLAG_CRC:
        if int.from_bytes(data[at : at + 2], "little") != zlib.crc32(data[:at]) & 0xFFFF:
            return False
        at += 2
    return at <= len(data)
