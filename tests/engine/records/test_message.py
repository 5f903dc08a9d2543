"""Views of magic 0 and 1, and the walk over entries of any magic: what they promise about any bytes at all."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records import layout
from magicbyte.engine.records.batch import build_batch
from magicbyte.engine.records.entry import Tail, dialect_doubt, entries
from magicbyte.engine.records.layout import Dialect, TimestampType
from magicbyte.engine.records.message import V0_HEADER, V1_HEADER, MessageView, build_message, build_wrapper

CREATE, APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
V0 = build_message(0, 5, -1, b"key", b"value")
V1 = build_message(1, 6, 1000, b"key", b"value")
V2 = build_batch(
    bytes.fromhex("10000000026b027600"),
    base_offset=7,
    last_offset_delta=0,
    base_timestamp=1000,
    max_timestamp=1000,
    record_count=1,
)


def view(raw: bytes | bytearray) -> MessageView:
    found = MessageView.parse(memoryview(raw))
    assert found is not None
    return found


def damaged(raw: bytes, at: int, kind: struct.Struct, value: int) -> bytes:
    copy = bytearray(raw)
    kind.pack_into(copy, at, value)
    return bytes(copy)


def test_the_headers_agree_with_the_layout() -> None:
    v0, v1 = bytes(range(V0_HEADER.size)), bytes(range(V1_HEADER.size))
    common = [layout.OFFSET, layout.SIZE, layout.MESSAGE_CRC, layout.MAGIC, layout.MESSAGE_ATTRIBUTES]
    assert V0_HEADER.unpack(v0) == tuple(field.read(memoryview(v0)) for field in [*common, layout.V0_KEY_LENGTH])
    v1_fields = [*common, layout.V1_TIMESTAMP, layout.V1_KEY_LENGTH]
    assert V1_HEADER.unpack(v1) == tuple(field.read(memoryview(v1)) for field in v1_fields)


@given(
    magic=st.integers(0, 1),
    offset=st.integers(-(2**63), 2**63 - 1),
    timestamp=st.integers(-(2**63), 2**63 - 1),
    key=st.none() | st.binary(max_size=300),
    value=st.none() | st.binary(max_size=300),
    kind=st.sampled_from([CREATE, APPEND]),
)
def test_a_built_message_reads_back(
    magic: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, kind: TimestampType
) -> None:
    raw = build_message(magic, offset, timestamp, key, value, kind)
    found = view(raw)
    found.verify()
    assert (found.magic, found.offset, found.key, found.value) == (magic, offset, key, value)
    assert found.size == len(raw)
    expected = (-1, TimestampType.NO_TIMESTAMP_TYPE) if magic == 0 else (timestamp, kind)
    assert (found.timestamp, found.timestamp_type) == expected


@pytest.mark.parametrize("raw", [V0, V1, V2], ids=["v0", "v1", "v2"])
def test_a_cut_entry_is_missing_bytes_at_every_length_and_its_tail_says_what_is_needed(raw: bytes) -> None:
    for length in range(len(raw)):
        walk = entries(raw[:length])
        assert list(walk) == []
        assert walk.tail == (Tail(0, length, None if length < 12 else len(raw)) if length else None)


def test_a_walk_yields_every_magic_with_its_position_and_then_the_tail() -> None:
    raw = V0 + V1 + V2 + V1[:20]
    walk = entries(raw)
    assert [(position, entry.magic, entry.last_offset) for position, entry in walk] == [
        (0, 0, 5),
        (len(V0), 1, 6),
        (len(V0 + V1), 2, 7),
    ]
    assert walk.tail == Tail(len(V0 + V1 + V2), 20, len(V1))
    assert walk.position == len(V0 + V1 + V2)


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (damaged(V1, 8, layout.INT32, 13), "size"),
        (damaged(V1, 8, layout.INT32, 21), "size"),
        (damaged(V1, 8, layout.INT32, -1), "size"),
        (damaged(V0, 8, layout.INT32, 13), "size"),
        (damaged(V2, 8, layout.INT32, 48), "size"),
        (damaged(V1, 16, layout.INT8, 3), "magic"),
        (damaged(V1, 16, layout.INT8, -1), "magic"),
        (bytes(300), "size"),
        (bytes(12), "size"),
    ],
)
def test_an_impossible_size_or_magic_in_the_middle_is_damage_with_its_position(bad: bytes, what: str) -> None:
    walk = entries(V0 + bad)
    assert next(walk)[0] == 0
    with pytest.raises(CorruptRecordError, match=what) as raised:
        next(walk)
    assert raised.value.position == len(V0)
    assert walk.tail is None


@pytest.mark.parametrize("length", [-2, -(2**31), 9, 2**31 - 1])
@pytest.mark.parametrize("raw", [V0, V1], ids=["v0", "v1"])
def test_a_key_length_that_contradicts_the_size_is_damage(raw: bytes, length: int) -> None:
    at = layout.V0_KEY_LENGTH.start if raw is V0 else layout.V1_KEY_LENGTH.start
    found = view(damaged(raw, at, layout.INT32, length))
    with pytest.raises(CorruptRecordError, match="key length"):
        _ = found.key
    with pytest.raises(CorruptRecordError, match="key length"):
        _ = found.value


@pytest.mark.parametrize("length", [-2, -1, 0, 4, 6, 2**31 - 1])
@pytest.mark.parametrize("raw", [V0, V1], ids=["v0", "v1"])
def test_a_value_length_that_does_not_end_the_message_is_damage(raw: bytes, length: int) -> None:
    found = view(damaged(raw, len(raw) - len(b"value") - 4, layout.INT32, length))
    with pytest.raises(CorruptRecordError, match="value length"):
        _ = found.value


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_damage_when_asked_for(codec: int) -> None:
    found = view(damaged(V1, layout.MESSAGE_ATTRIBUTES.start, layout.INT8, codec))
    assert found.is_wrapper
    with pytest.raises(CorruptRecordError, match="codec"):
        _ = found.codec


@given(raw=st.sampled_from([V0, V1]), data=st.data(), flip=st.integers(1, 255))
def test_a_changed_byte_under_the_crc_is_noticed(raw: bytes, data: st.DataObject, flip: int) -> None:
    copy = bytearray(raw)
    copy[data.draw(st.integers(layout.MESSAGE_CRC.start, len(raw) - 1))] ^= flip
    assert is_sound(raw)
    assert not is_sound(copy)


def is_sound(raw: bytes | bytearray) -> bool:
    """Whether `raw` is whole entries with right checksums."""
    walk = entries(raw)
    try:
        for _, entry in walk:
            entry.verify()
    except CorruptRecordError:
        return False
    return walk.tail is None


def read_everything(junk: bytes, dialect: Dialect) -> None:
    for _, entry in entries(junk, dialect):
        for name in dir(type(entry)):
            if isinstance(getattr(type(entry), name), property):
                with contextlib.suppress(CorruptRecordError):
                    getattr(entry, name)
        with contextlib.suppress(CorruptRecordError):
            entry.verify()


@given(
    junk=st.binary(max_size=400),
    magic=st.sampled_from([0, 1, 2, 3, 255]),
    size=st.integers(0, 200) | st.integers(-(2**31), 2**31 - 1),
    dialect=st.sampled_from(Dialect),
)
def test_junk_is_entries_or_incomplete_or_corrupt_and_nothing_else(
    junk: bytes, magic: int, size: int, dialect: Dialect
) -> None:
    dressed = bytearray(junk)
    if len(dressed) > layout.MAGIC.start:
        dressed[layout.MAGIC.start] = magic
        layout.SIZE.write(memoryview(dressed), size)
    for raw in (junk, bytes(dressed)):
        with contextlib.suppress(CorruptRecordError):
            read_everything(raw, dialect)
        dialect_doubt(memoryview(raw), dialect)


# ---- setters


@pytest.mark.parametrize("raw", [V0, V1], ids=["v0", "v1"])
def test_setting_the_offset_needs_no_new_crc(raw: bytes) -> None:
    buffer = bytearray(raw)
    found = view(buffer)
    found.set_offset(2**40)
    found.verify()
    assert view(buffer).offset == found.offset == 2**40
    assert buffer[8:] == raw[8:]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_setting_log_append_time_changes_type_timestamp_and_crc_and_nothing_else(codec: Codec) -> None:
    raw = V1 if codec is Codec.NONE else build_wrapper(1, codec, V1, 6, 1000)
    buffer = bytearray(raw)
    found = view(buffer)
    found.set_max_timestamp(APPEND, 2000)
    for each in (found, view(buffer)):
        each.verify()
        assert (each.timestamp, each.timestamp_type, each.codec) == (2000, APPEND, codec)
    assert buffer[26:] == raw[26:]
    assert buffer[:12] == raw[:12]


def test_setting_what_holds_already_changes_nothing_not_even_a_wrong_crc() -> None:
    buffer = bytearray(damaged(V1, layout.MESSAGE_CRC.start, layout.UINT32, 1))
    before = bytes(buffer)
    view(buffer).set_max_timestamp(CREATE, 1000)
    assert buffer == before


def test_setting_a_timestamp_drops_bits_that_mean_nothing_in_magic_1() -> None:
    buffer = bytearray(damaged(V1, layout.MESSAGE_ATTRIBUTES.start, layout.INT8, 0x70))
    found = view(buffer)
    found.set_max_timestamp(APPEND, 1)
    assert found.attributes == view(buffer).attributes == 0x08


# ---- the two dialects of magic 1


def test_magic_1_read_as_enriched_is_doubted_when_the_lengths_of_its_tags_are_impossible() -> None:
    raw = build_message(1, 0, 1_700_000_000_000, b"k", b"v")
    doubt = dialect_doubt(memoryview(raw), Dialect.ENRICHED)
    assert doubt is not None
    assert "-807049216" in doubt
    assert dialect_doubt(memoryview(raw), Dialect.KAFKA) is None
    with pytest.raises(CorruptRecordError, match="tags"):
        next(entries(raw, Dialect.ENRICHED))


@pytest.mark.parametrize("raw", [V0, V2], ids=["v0", "v2"])
def test_a_log_in_the_enriched_dialect_holds_magic_1_only(raw: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="magic"):
        next(entries(raw + bytes(20), Dialect.ENRICHED))
