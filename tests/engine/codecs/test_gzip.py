import importlib
import struct
import sys
import zlib

import pytest

from magicbyte.engine.codecs import Codec, compress, decompress, gzip
from magicbyte.engine.errors import CorruptRecordError

PLAIN = b"the quick brown fox jumps over the lazy dog " * 3000
MEMBER = zlib.compress(PLAIN, 6, 31)


def gunzip(data: bytes) -> memoryview:
    return decompress(Codec.GZIP, data, limit=1 << 20)


@pytest.mark.parametrize("os_byte", [0x00, 0x03, 0xFF])  # Java up to 15 writes 00, from 16 on ff
def test_the_operating_system_byte_does_not_matter(os_byte: int) -> None:
    assert gunzip(MEMBER[:9] + bytes([os_byte]) + MEMBER[10:]) == PLAIN


def test_a_member_with_every_optional_field_is_read() -> None:
    header = b"\x1f\x8b\x08\x1e" + struct.pack("<I", 1_600_000_000) + b"\x00\x03"
    header += struct.pack("<H", 6) + b"ab\x02\x00xy" + b"name\x00" + b"a comment\x00"
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    assert gunzip(header + MEMBER[10:]) == PLAIN


def test_members_that_follow_each_other_are_one_content() -> None:
    other = zlib.compress(b"second", 1, 31)
    assert gunzip(MEMBER + other) == PLAIN + b"second"
    assert gunzip(other + MEMBER + compress(Codec.GZIP, b"") + other) == b"second" + PLAIN + b"second"


@pytest.mark.parametrize("at", [-8, -5, -4, -1])
def test_a_wrong_crc_or_size_is_corrupt(at: int) -> None:
    data = bytearray(MEMBER)
    data[at] ^= 1
    with pytest.raises(CorruptRecordError):
        gunzip(bytes(data))
    with pytest.raises(CorruptRecordError):
        gunzip(bytes(data) + MEMBER)


@pytest.mark.parametrize(
    "tail",
    [
        *(b"\x00", b"x", b"garbage at the end", bytes(512), b"\x1f", b"\x1f\x8b", MEMBER[:10], MEMBER[:18]),
        pytest.param(b"\x1f\x8b\x07" + bytes(40), id="another method"),
        pytest.param(b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 40, id="a name without an end"),
        pytest.param(b"\x1f\x8b\x08\x02" + bytes(6) + b"xx" + bytes(40), id="a wrong checksum of a header"),
        pytest.param(b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff" + bytes(40), id="an extra field that is cut"),
    ],
)
def test_bytes_after_a_member_that_begin_no_other_are_ignored_as_in_java_and_strictly_refused(tail: bytes) -> None:
    assert gunzip(MEMBER + tail) == PLAIN
    with pytest.raises(CorruptRecordError, match="other bytes"):
        gzip.decompress_into(memoryview(MEMBER + tail), memoryview(bytearray(len(PLAIN))), strict=True)


@pytest.mark.parametrize("tail", [MEMBER[:-1], MEMBER[:19], MEMBER[:-8] + bytes(8)])
def test_a_further_member_that_is_cut_or_wrong_is_corrupt(tail: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        gunzip(MEMBER + tail)


def test_bare_deflate_and_zlib_streams_are_no_gzip() -> None:
    for data in (zlib.compress(PLAIN), zlib.compress(PLAIN, 6, -15), b"this is not gzip at all"):
        with pytest.raises(CorruptRecordError):
            gunzip(data)


def test_a_dictionary_or_reserved_method_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError):
        gunzip(MEMBER[:2] + b"\x07" + MEMBER[3:])


def test_without_the_two_libraries_the_standard_library_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal", None)
    monkeypatch.setitem(sys.modules, "deflate", None)
    specification = importlib.util.find_spec("magicbyte.engine.codecs.gzip")
    assert specification is not None
    assert specification.loader is not None
    plain_gzip = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(plain_gzip)
    assert plain_gzip._decompressobj is zlib.decompressobj
    out = memoryview(bytearray(2 * len(PLAIN)))
    for level in (None, 1, 9, 12):
        data = plain_gzip.compress(PLAIN, level)
        assert gunzip(data) == PLAIN
        assert plain_gzip.decompress_into(memoryview(data + data), out) == len(out)
        assert gzip.decompress_into(memoryview(data + data), out) == len(out)
        with pytest.raises(CorruptRecordError):
            plain_gzip.decompress_into(memoryview(data)[:-1], out)
