"""Kafka's primitive types: decoded values, and refused bytes with their positions."""

import contextlib
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.wire.reader import Reader


def test_integers_are_big_endian_and_signed() -> None:
    reader = Reader(bytes.fromhex("ff" + "fffe" + "00000003" + "fffffffffffffffc"))
    assert (reader.int8(), reader.int16(), reader.int32(), reader.int64()) == (-1, -2, 3, -4)
    assert reader.position == 15


@pytest.mark.parametrize(
    ("encoded", "value"), [("00", 0), ("7f", 127), ("8001", 128), ("ffffffff0f", 2**32 - 1), ("8000", 0)]
)
def test_unsigned_varints_take_seven_bits_a_byte(encoded: str, value: int) -> None:
    assert Reader(bytes.fromhex(encoded)).unsigned_varint() == value


def test_a_varint_of_six_bytes_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="position 0: varint"):
        Reader(b"\x80" * 5 + b"\x01").unsigned_varint()


def test_classic_and_flexible_strings_bytes_and_arrays_read_alike() -> None:
    classic = Reader(bytes.fromhex("0002c3a4" + "ffff" + "0000000101" + "ffffffff" + "00000002" + "0102"))
    flexible = Reader(bytes.fromhex("03c3a4" + "00" + "0201" + "00" + "03" + "0102"), flexible=True)
    for reader in (classic, flexible):
        assert reader.string() == "ä"
        assert reader.nullable_string() is None
        assert reader.bytes() == b"\x01"
        assert reader.nullable_bytes() is None
        assert reader.array(reader.int8) == [1, 2]
        assert reader.position == len(reader.data)


def test_a_uuid_is_16_bytes() -> None:
    assert Reader(bytes(range(16))).uuid() == uuid.UUID(bytes=bytes(range(16)))


@pytest.mark.parametrize(
    ("encoded", "read", "position"),
    [
        ("0000", Reader.int32, 0),
        ("0005616263", Reader.string, 2),
        ("fffe", Reader.string, 2),
        ("ffff", Reader.string, 0),
        ("0001ff", Reader.string, 2),
        ("ffffffff", Reader.bytes, 0),
        ("7fffffff", lambda reader: reader.array(reader.int8), 0),
        ("fffffffe", lambda reader: reader.array(reader.int8), 0),
        ("ffffffff", lambda reader: reader.array(reader.int8), 0),
    ],
)
def test_what_cannot_be_is_refused_at_its_position(
    encoded: str, read: Callable[[Reader], object], position: int
) -> None:
    with pytest.raises(CorruptRecordError) as raised:
        read(Reader(bytes.fromhex(encoded)))
    assert raised.value.position == position


@given(junk=st.binary(max_size=60), flexible=st.booleans())
def test_junk_is_a_value_or_corrupt_and_nothing_else(junk: bytes, flexible: bool) -> None:
    reader = Reader(junk, flexible=flexible)
    with contextlib.suppress(CorruptRecordError):
        while reader.position < len(junk):
            reader.nullable_string()
            reader.nullable_array(lambda: reader.array(reader.nullable_bytes))
            reader.uuid()
            reader.unsigned_varint()
