"""Views of the enriched dialect: tags with every kind of damage, control messages, changes in place."""

import logging
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records.enriched_control import build_enriched_control
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records import layout
from magicbyte.engine.records.enriched import (
    HEADER,
    MAX_SECONDS,
    EnrichedControl,
    EnrichedMessage,
    LeaderEpochPayload,
    Tag,
    TransactionPayload,
    build_enriched_message,
    build_enriched_wrapper,
    encode_tags,
)
from magicbyte.engine.records.layout import TimestampType

NUM_2 = bytes.fromhex("2000000002")
HONOR, IGNORE = bytes.fromhex("2101"), bytes.fromhex("2100")
KEYED, NON_KEYED = bytes.fromhex("2200"), bytes.fromhex("2201")
INNER = build_enriched_message(0, b"k", b"v") + build_enriched_message(1, None, b"w")


def view(raw: bytes | bytearray) -> EnrichedMessage:
    found = EnrichedMessage.parse(memoryview(bytearray(raw)))
    assert found is not None
    return found


def wrapper(tags: bytes, offset: int = 100) -> EnrichedMessage:
    """A wrapper with exactly these tags; what is inside does not matter."""
    raw = bytearray(build_enriched_message(offset, None, b"closed", tags=tags))
    raw[layout.MESSAGE_ATTRIBUTES.start] = Codec.GZIP
    return view(raw)


def test_the_header_agrees_with_the_layout() -> None:
    raw = memoryview(bytes(range(HEADER.size)))
    fields = [
        layout.OFFSET,
        layout.SIZE,
        layout.MESSAGE_CRC,
        layout.MAGIC,
        layout.MESSAGE_ATTRIBUTES,
        layout.ENRICHED_SECONDS,
        layout.ENRICHED_TAGS_LENGTH,
    ]
    assert HEADER.unpack(raw) == tuple(field.read(raw) for field in fields)
    assert HEADER.size == layout.ENRICHED_TAGS_START


@given(
    offset=st.integers(-(2**63), 2**63 - 1),
    key=st.none() | st.binary(max_size=100),
    value=st.none() | st.binary(max_size=100),
    seconds=st.integers(-1, MAX_SECONDS),
    tag=st.none() | st.integers(-(2**63), 2**63 - 1),
)
def test_a_built_message_reads_back(
    offset: int, key: bytes | None, value: bytes | None, seconds: int, tag: int | None
) -> None:
    tags: dict[int, int] = {} if tag is None else {Tag.TIMESTAMP: tag}
    found = view(build_enriched_message(offset, key, value, seconds=seconds, tags=encode_tags(tags)))
    found.verify()
    assert (found.offset, found.key, found.value, found.seconds, found.tags) == (offset, key, value, seconds, tags)
    assert found.tags_length == (9 if tags else -1)


# ---- timestamps


@pytest.mark.parametrize(
    ("seconds", "tags", "timestamp"),
    [
        (-1, {}, -1),
        (-1, {Tag.TIMESTAMP: 1234}, 1234),
        (1_700_000_000, {}, 1_700_000_000_000),
        (1_700_000_000, {Tag.TIMESTAMP: 1_700_000_000_999}, 1_700_000_000_999),
        (2**31, {}, 2**31 * 1000),
        (MAX_SECONDS, {}, MAX_SECONDS * 1000),
    ],
)
def test_tag_0_wins_over_the_seconds_which_are_unsigned_except_minus_1(
    seconds: int, tags: dict[int, int], timestamp: int
) -> None:
    found = view(build_enriched_message(0, None, b"", seconds=seconds, tags=encode_tags(tags)))
    assert (found.timestamp, found.max_timestamp) == (timestamp, timestamp)
    assert found.timestamp_type is (TimestampType.CREATE_TIME if timestamp < 0 else TimestampType.LOG_APPEND_TIME)


# ---- tags


def test_without_tags_offsets_are_honored_and_keys_assumed() -> None:
    found = wrapper(b"")
    assert (found.num_messages, found.honor_ship, found.non_keyed) == (None, True, False)
    assert (found.record_count, found.last_offset, found.next_offset) == (None, None, None)


def test_a_tags_length_of_zero_means_no_tags() -> None:
    raw = bytearray(build_enriched_message(0, b"k", b"v"))
    layout.ENRICHED_TAGS_LENGTH.write(memoryview(raw), 0)
    found = view(raw)
    assert (found.tags, found.tags_area, found.key, found.value) == ({}, b"", b"k", b"v")


@pytest.mark.parametrize("length", [-2, -(2**31), 3, 2**31 - 1])
def test_tags_that_pass_the_end_of_the_message_are_damage(length: int) -> None:
    raw = bytearray(build_enriched_message(7, b"k", b"v"))
    layout.ENRICHED_TAGS_LENGTH.write(memoryview(raw), length)
    with pytest.raises(CorruptRecordError, match="length of the tags") as raised:
        view(raw)
    assert raised.value.offsets == (7, 7)


@pytest.mark.parametrize("tag", [bytes(9), NUM_2, HONOR, NON_KEYED], ids=["0", "32", "33", "34"])
def test_a_known_tag_cut_by_the_end_of_the_area_is_damage(tag: bytes) -> None:
    for length in range(1, len(tag)):
        found = wrapper(tag[:length])
        with pytest.raises(CorruptRecordError, match="tag"):
            _ = found.tags
        with pytest.raises(CorruptRecordError, match="tag"):
            _ = found.honor_ship


@pytest.mark.parametrize("unknown", [b"\x63", b"\x63\x01\x02\x03", b"\x05\x21\x00", b"\xff\x22\x01"])
def test_the_first_unknown_tag_and_all_after_it_are_ignored_and_kept(unknown: bytes) -> None:
    found = wrapper(NUM_2 + unknown + NON_KEYED)
    assert found.tags == {Tag.NUM_MESSAGES: 2}
    assert (found.honor_ship, found.non_keyed) == (True, False)
    assert found.unknown_tags == unknown + NON_KEYED
    assert found.tags_area == NUM_2 + unknown + NON_KEYED
    assert found.value == b"closed"


def test_of_a_tag_that_comes_twice_the_first_counts_and_a_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert wrapper(NUM_2 + IGNORE + HONOR + NON_KEYED).tags == {32: 2, 33: 0, 34: 1}
    assert "tag 33 comes twice" in caplog.text


def test_tags_for_wrappers_are_ignored_on_an_uncompressed_message() -> None:
    found = view(build_enriched_message(9, b"k", b"v", tags=NUM_2 + IGNORE + NON_KEYED))
    assert (found.num_messages, found.honor_ship, found.non_keyed) == (None, True, False)
    assert (found.record_count, found.last_offset) == (1, 9)


@pytest.mark.parametrize("flag", [1, 2, -1, 127])
def test_a_flag_other_than_zero_is_set(flag: int) -> None:
    found = wrapper(NUM_2 + struct.pack(">bbbb", 33, flag, 34, flag))
    assert (found.honor_ship, found.non_keyed) == (True, True)


@pytest.mark.parametrize("count", [0, -1, -(2**31)])
def test_a_wrapper_that_says_to_hold_nothing_is_damage(count: int) -> None:
    with pytest.raises(CorruptRecordError, match="num_messages"):
        _ = wrapper(encode_tags({Tag.NUM_MESSAGES: count})).record_count


# ---- offsets


def test_with_honor_ship_offsets_are_start_plus_relative_and_the_last_is_unknown() -> None:
    found = wrapper(NUM_2 + HONOR)
    assert [found.absolute_offset(i, relative) for i, relative in enumerate([0, 7])] == [100, 107]
    assert (found.base_offset, found.last_offset, found.next_offset) == (100, None, None)


def test_without_honor_ship_offsets_are_start_plus_position_and_the_last_is_known() -> None:
    found = wrapper(NUM_2 + IGNORE)
    assert [found.absolute_offset(i, relative) for i, relative in enumerate([0, 7])] == [100, 101]
    assert (found.base_offset, found.last_offset, found.next_offset) == (100, 101, 102)


# ---- attributes and control messages


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("high", [0x00, 0x70])
def test_types_1_to_4_are_codecs_whatever_the_high_bits(codec: Codec, high: int) -> None:
    raw = bytearray(build_enriched_wrapper(codec, INNER, num_messages=2, non_keyed=False))
    raw[layout.MESSAGE_ATTRIBUTES.start] |= high
    found = view(raw)
    assert (found.codec, found.is_wrapper, found.is_control, found.control_type) == (codec, True, False, None)
    assert found.tags == {32: 2, 33: 1, 34: 0}


@pytest.mark.parametrize("kind", [5, 6, 7])
def test_reserved_codecs_are_damage_when_asked_for(kind: int) -> None:
    raw = bytearray(build_enriched_message(0, None, b""))
    raw[layout.MESSAGE_ATTRIBUTES.start] = kind
    with pytest.raises(CorruptRecordError, match="codec"):
        _ = view(raw).codec


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (EnrichedControl.LEADER_EPOCH, LeaderEpochPayload(7, 1001)),
        (EnrichedControl.START_TRANSACTION, TransactionPayload(2**40, 3)),
        (EnrichedControl.COMMIT_TRANSACTION, TransactionPayload(2**40, 3)),
        (EnrichedControl.ABORT_TRANSACTION, TransactionPayload(-1, -1)),
    ],
)
def test_control_messages_read_back_and_wrong_payloads_are_damage(
    kind: EnrichedControl, payload: LeaderEpochPayload | TransactionPayload
) -> None:
    found = view(build_enriched_control(50, kind, payload, seconds=5))
    found.verify()
    assert (found.is_control, found.control_type, found.control) == (True, kind, payload)
    assert (found.codec, found.is_wrapper, found.record_count, found.last_offset) == (Codec.NONE, False, 1, 50)
    for value in (None, b"", b"1234567", bytes(13)):
        bad = view(build_enriched_message(50, None, value, control_type=kind))
        with pytest.raises(CorruptRecordError, match="value of a control message"):
            _ = bad.control
    with pytest.raises(CorruptRecordError, match="key of a control message"):
        _ = view(build_enriched_message(50, b"", found.value, control_type=kind)).control


@pytest.mark.parametrize("kind", [12, 13, 14, 15])
def test_reserved_control_types_are_control_messages_without_meaning(kind: int) -> None:
    found = view(build_enriched_message(0, b"any", None, control_type=EnrichedControl(kind)))
    assert (found.is_control, found.control_type, found.control) == (True, kind, None)


# ---- changes in place


def test_changes_in_place_renew_the_crc_and_move_nothing() -> None:
    raw = build_enriched_wrapper(Codec.GZIP, INNER, num_messages=2, non_keyed=False, timestamp_ms=5)
    found = view(raw)
    found.set_offset(2**40)
    found.set_metadata(seconds=2**31 + 5, tags={Tag.TIMESTAMP: 77, Tag.HONOR_SHIP: 0, Tag.NON_KEYED: 1})
    for each in (found, view(bytes(found.buffer))):
        each.verify()
        assert (each.offset, each.seconds, each.timestamp) == (2**40, 2**31 + 5, 77)
        assert (each.honor_ship, each.non_keyed, each.num_messages) == (False, True, 2)
    body = layout.ENRICHED_TAGS_START + found.tags_length
    assert found.buffer[body:] == raw[body:]
    assert len(found.buffer) == len(raw)


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        (b"", {33: 0}, IGNORE),
        (NUM_2, {33: 0}, NUM_2 + IGNORE),
        (NUM_2 + KEYED, {33: 0}, NUM_2 + IGNORE + KEYED),
        (NUM_2 + HONOR + KEYED, {33: 0}, NUM_2 + IGNORE + KEYED),
        (NUM_2 + KEYED, {0: 1, 33: 0, 34: 1}, bytes(8) + b"\x01" + NUM_2 + IGNORE + NON_KEYED),
        (NUM_2 + b"\x63\x01\x02", {33: 0}, NUM_2 + IGNORE + b"\x63\x01\x02"),
        (b"\x63\x01\x02", {0: 1, 33: 0}, bytes(8) + b"\x01" + IGNORE + b"\x63\x01\x02"),
        (KEYED + NUM_2, {34: 1}, NON_KEYED + NUM_2),
    ],
)
def test_a_missing_tag_is_added_at_its_place_and_before_what_we_do_not_know(
    before: bytes, added: dict[int, int], after: bytes
) -> None:
    found = wrapper(before)
    again = view(found.with_tags(added))
    again.verify()
    assert bytes(again.tags_area) == after
    assert (again.offset, again.attributes, again.seconds) == (found.offset, found.attributes, found.seconds)
    assert (again.key, again.value) == (found.key, found.value)


@pytest.mark.parametrize("before", [b"\x05\x01", NUM_2 + b"\xfe\x01", KEYED + NUM_2, NUM_2 + b"\x20", b"\x20\x00"])
def test_a_tag_that_would_break_the_ascending_order_is_refused(before: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="tag"):
        wrapper(before).with_tags({Tag.HONOR_SHIP: 0})


RICH = build_enriched_message(5, b"k", b"v", seconds=9, tags=encode_tags({Tag.TIMESTAMP: 1, Tag.NUM_MESSAGES: 2}))


@given(at=st.integers(layout.MESSAGE_CRC.start, len(RICH) - 1), flip=st.integers(1, 255))
def test_a_changed_byte_under_the_crc_is_noticed(at: int, flip: int) -> None:
    damaged = bytearray(RICH)
    damaged[at] ^= flip
    with pytest.raises(CorruptRecordError):
        view(damaged).verify()
