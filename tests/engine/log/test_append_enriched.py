"""Appends to and from the enriched dialect: its vectors, every rule of malformed tags, verify and trust."""

import struct

import pytest

from engine.log.made_sets import NOW, TWO, A, B, batch, enriched_set, kafka_set, resealed
from engine.records.enriched_control import build_enriched_control
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import AppendRefusedError, CorruptRecordError, ErrorCode
from magicbyte.engine.log.append.prepare import prepare, prepare_unchanged
from magicbyte.engine.log.append.record_set import RecordSet
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.log.files.index_writer import LATEST_RULES
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.enriched import (
    EnrichedControl,
    EnrichedMessage,
    LeaderEpochPayload,
    Tag,
    build_enriched_message,
    build_enriched_wrapper,
    encode_tags,
)
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import Dialect

CLOCK = 1_700_000_000_123
AREA = 26  # where the tags begin
PRODUCED = bytes.fromhex(
    "00000000000000000000007518ed69360103ffffffff00000009200000000221012200ffffffff0000005604224d186040824700008000000000"
    "0000000000000018b82b07240100ffffffffffffffff000000016b000000017600000000000000010000001705fdc0870100ffffffffffffffff"
    "ffffffff000000017700000000"
)
APPENDED = bytes.fromhex(
    "0000000000000064000000754a6e7c7b01036553f10000000009200000000221012200ffffffff0000005604224d186040824700008000000000"
    "0000000000000018b82b07240100ffffffffffffffff000000016b000000017600000000000000010000001705fdc0870100ffffffffffffffff"
    "ffffffff000000017700000000"
)
MIRRORED = bytes.fromhex(
    "00000000000000640000007498e74f7a01036553f10000000009200000000221002201ffffffff0000005504224d186040824600008000000000"
    "00000000000000179542dd160100ffffffffffffffffffffffff000000017800000000000000070000001705fdc0870100ffffffffffffffffff"
    "ffffff000000017700000000"
)


def append(data: bytes, *, version: int | None = 2, dialect: Dialect = Dialect.ENRICHED, **rules: object) -> RecordSet:
    rules.setdefault("format", Format.ENRICHED)
    return prepare(
        memoryview(data), AppendRules(**rules), next_offset=100, now_ms=CLOCK, leader_epoch=7,  # type: ignore[arg-type]
        request_version=version, dialect=dialect,
    )  # fmt: skip


def refusal(data: bytes, **options: object) -> ErrorCode:
    with pytest.raises(AppendRefusedError) as refused:
        append(data, **options)  # type: ignore[arg-type]
    return refused.value.code


def stored(done: RecordSet) -> list[EnrichedMessage]:
    found = [entry for _, entry in entries(bytes(done), Dialect.ENRICHED)]
    for entry in found:
        entry.verify()
    return [entry for entry in found if isinstance(entry, EnrichedMessage)]


def read(done: RecordSet) -> list[Record]:
    return [record for columns in decode(memoryview(bytes(done)), dialect=Dialect.ENRICHED) for record in columns]


def with_area(data: bytes, area: bytes) -> bytes:
    """The message with another tag area."""
    rest = data[AREA + max(struct.unpack_from(">i", data, 22)[0], 0) :]
    body = data[16:22] + struct.pack(">i", len(area) or -1) + area + rest
    return resealed(data[:8] + struct.pack(">i", 4 + len(body)) + bytes(4) + body)


def wrapper_of(*relative: int, codec: Codec = Codec.GZIP, keys: tuple[bytes | None, ...] = ()) -> bytes:
    keys = keys or tuple(b"k" for _ in relative)
    return enriched_set(codec, [Record(at, -1, 0, key, b"v") for at, key in enumerate(keys)], relative)


def test_the_wrapper_of_the_page_becomes_what_the_page_says() -> None:
    done = append(PRODUCED)
    assert bytes(done) == APPENDED
    assert (done.rebuilt, done.decompressed, done.compressed, done.last_offset) == (False, 1, 0, 101)
    assert done.pieces[-1].obj is PRODUCED
    again = append(bytes(8) + MIRRORED[8:], verify=False)
    assert bytes(again) == MIRRORED
    assert (again.last_offset, again.decompressed) == (101, 0)
    assert (
        prepare_unchanged(memoryview(MIRRORED), LATEST_RULES, next_offset=100, dialect=Dialect.ENRICHED).last_offset
        == 101
    )


def test_a_mirrored_wrapper_whose_offsets_count_ends_where_its_last_message_is() -> None:
    honored = EnrichedMessage(memoryview(bytearray(MIRRORED)))
    honored.set_metadata(tags={Tag.HONOR_SHIP: 1})
    taken = prepare_unchanged(honored.buffer, LATEST_RULES, next_offset=100, dialect=Dialect.ENRICHED)
    assert (taken.first_offset, taken.last_offset) == (100, 107)


def test_inner_offsets_that_are_not_consecutive_are_no_longer_honored() -> None:
    done = append(wrapper_of(0, 2))
    (entry,) = stored(done)
    assert (entry.tags[Tag.HONOR_SHIP], done.last_offset, done.rebuilt) == (0, 101, False)
    assert [record.offset for record in read(done)] == [100, 101]
    assert stored(append(wrapper_of(0, 1)))[0].tags[Tag.HONOR_SHIP] == 1


def test_a_missing_honor_tag_is_added_at_its_place_or_the_wrapper_is_refused() -> None:
    gap = wrapper_of(0, 5)
    done = append(with_area(gap, encode_tags({Tag.NUM_MESSAGES: 2, Tag.NON_KEYED: 0})))
    (entry,) = stored(done)
    assert list(entry.tags) == [Tag.NUM_MESSAGES, Tag.HONOR_SHIP, Tag.NON_KEYED]
    assert (entry.honor_ship, [record.offset for record in read(done)]) == (False, [100, 101])
    unknown = encode_tags({Tag.NUM_MESSAGES: 2}) + b"\x63abc"
    assert bytes(stored(append(with_area(gap, unknown)))[0].unknown_tags) == b"\x63abc"
    lower = encode_tags({Tag.NUM_MESSAGES: 2}) + b"\x07abc"
    assert refusal(with_area(gap, lower)) is ErrorCode.CORRUPT_MESSAGE
    contiguous = with_area(wrapper_of(0, 1), lower)
    assert stored(append(contiguous))[0].tags == {Tag.NUM_MESSAGES: 2}


def test_trust_needs_the_number_of_messages_and_opens_nothing() -> None:
    data = wrapper_of(0, 1)
    done = append(data, verify=False)
    assert (done.decompressed, done.last_offset) == (0, 101)
    bare = with_area(data, b"")
    assert refusal(bare, verify=False) is ErrorCode.CORRUPT_MESSAGE
    assert append(bare).last_offset == 101
    spoilt = resealed(data[:-3] + b"xyz")
    assert append(spoilt, verify=False).last_offset == 101
    assert refusal(spoilt) is ErrorCode.CORRUPT_MESSAGE
    for codec in (Codec.NONE, Codec.LZ4):  # another one than the wrapper's: it has to be opened
        assert append(data, verify=False, codec=codec).rebuilt
        assert refusal(spoilt, verify=False, codec=codec) is ErrorCode.CORRUPT_MESSAGE


def test_the_seconds_and_the_milliseconds_of_the_append_are_written() -> None:
    plain = build_enriched_message(0, b"k", b"v") + build_enriched_message(
        0, b"k", b"w", tags=encode_tags({Tag.TIMESTAMP: 5}) + b"\x63abc"
    )
    done = append(plain)
    first, second = stored(done)
    assert (first.timestamp, second.timestamp) == (CLOCK // 1000 * 1000, CLOCK)
    assert bytes(second.unknown_tags) == b"\x63abc"
    assert (done.max_timestamp, done.max_timestamp_offset, done.log_append_time) == (CLOCK, 101, CLOCK)
    wrapper = with_area(wrapper_of(0, 1), encode_tags({Tag.TIMESTAMP: 5, Tag.NUM_MESSAGES: 2}))
    assert {record.timestamp for record in read(append(wrapper))} == {CLOCK}


WRAPPER = wrapper_of(0, 1)
PLAIN = build_enriched_message(0, b"k", b"v")
GOOD = encode_tags({Tag.NUM_MESSAGES: 2, Tag.HONOR_SHIP: 1, Tag.NON_KEYED: 0})


@pytest.mark.parametrize("data", [WRAPPER, PLAIN], ids=["wrapper", "plain"])
def test_an_impossible_length_of_the_tags_is_damage(data: bytes) -> None:
    for length in (-2, -(2**31), len(data), 2**31 - 1):
        spoilt = resealed(data[:22] + struct.pack(">i", length) + data[AREA:])
        for verify in (True, False):
            assert refusal(spoilt, verify=verify) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("data", [WRAPPER, PLAIN], ids=["wrapper", "plain"])
@pytest.mark.parametrize("area", [b"\x00\x01\x02", b"\x20\x00\x00", GOOD + b"\x00", b"\x21"])
def test_a_known_tag_that_the_area_cuts_is_damage(data: bytes, area: bytes) -> None:
    for verify in (True, False):
        assert refusal(with_area(data, area), verify=verify) is ErrorCode.CORRUPT_MESSAGE


def test_what_follows_an_unknown_tag_is_ignored_and_kept() -> None:
    for data, area in ((WRAPPER, GOOD + b"\x63" + b"\x20\x00"), (PLAIN, b"\x63\x00\x01")):
        (entry,) = stored(append(with_area(data, area)))
        assert bytes(entry.tags_area) == area


def test_of_a_tag_that_comes_twice_the_first_counts() -> None:
    twice = encode_tags({Tag.NUM_MESSAGES: 2}) + encode_tags({Tag.NUM_MESSAGES: 9})
    assert append(with_area(WRAPPER, twice)).last_offset == 101
    assert append(with_area(WRAPPER, twice), verify=False).last_offset == 101


def test_tags_of_wrappers_mean_nothing_on_plain_messages() -> None:
    area = encode_tags({Tag.NUM_MESSAGES: 9, Tag.HONOR_SHIP: 0, Tag.NON_KEYED: 1})
    done = append(with_area(PLAIN, area))
    assert (done.last_offset, bytes(stored(done)[0].tags_area)) == (100, area)


def test_any_flag_but_zero_is_one() -> None:
    area = encode_tags({Tag.NUM_MESSAGES: 2, Tag.HONOR_SHIP: 5, Tag.NON_KEYED: 0})
    (entry,) = stored(append(with_area(wrapper_of(0, 7), area)))
    assert entry.tags[Tag.HONOR_SHIP] == 0
    flag = encode_tags({Tag.NUM_MESSAGES: 2, Tag.HONOR_SHIP: 1, Tag.NON_KEYED: -1})
    assert refusal(with_area(WRAPPER, flag)) is ErrorCode.CORRUPT_MESSAGE


def test_a_count_that_is_not_that_of_the_messages_is_damage_when_verified() -> None:
    for count in (1, 3, 0, -1):
        data = with_area(WRAPPER, encode_tags({Tag.NUM_MESSAGES: count, Tag.HONOR_SHIP: 1}))
        assert refusal(data) is ErrorCode.CORRUPT_MESSAGE
        if count > 0:
            assert append(data, verify=False).records == count
        else:
            assert refusal(data, verify=False) is ErrorCode.CORRUPT_MESSAGE


def test_the_promise_that_no_message_has_a_key_is_checked_and_compacted_topics_refuse_it() -> None:
    keyless = wrapper_of(0, 1, keys=(None, None))
    assert stored(append(keyless))[0].non_keyed
    for verify in (True, False):
        assert refusal(keyless, compacted=True, verify=verify) is ErrorCode.CORRUPT_MESSAGE
        assert refusal(keyless, compacted=True, verify=verify, version=None) is ErrorCode.INVALID_RECORD
    half = wrapper_of(0, 1, keys=(b"k", None))
    assert append(half).records == 2
    assert refusal(half, compacted=True) is ErrorCode.CORRUPT_MESSAGE
    lying = with_area(half, encode_tags({Tag.NUM_MESSAGES: 2, Tag.HONOR_SHIP: 1, Tag.NON_KEYED: 1}))
    assert refusal(lying) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(build_enriched_message(0, None, b"v"), compacted=True) is ErrorCode.CORRUPT_MESSAGE


def test_what_is_no_plain_message_inside_a_wrapper_is_refused() -> None:
    control = build_enriched_control(1, EnrichedControl.LEADER_EPOCH, LeaderEpochPayload(1, 2))
    for inner in (WRAPPER, control):
        data = build_enriched_wrapper(Codec.GZIP, PLAIN + inner, num_messages=2, non_keyed=False)
        assert refusal(data) is ErrorCode.CORRUPT_MESSAGE
        assert refusal(data, version=None) is ErrorCode.INVALID_RECORD
    spoilt = bytearray(PLAIN)
    spoilt[12] ^= 1
    for inner in (bytes(spoilt), PLAIN[:-1], PLAIN + b"\0"):
        data = build_enriched_wrapper(Codec.GZIP, inner, num_messages=1, non_keyed=False)
        assert refusal(data) is ErrorCode.CORRUPT_MESSAGE
    assert (
        refusal(build_enriched_wrapper(Codec.GZIP, b"", num_messages=1, non_keyed=False)) is ErrorCode.CORRUPT_MESSAGE
    )


def test_control_messages_are_the_brokers_to_write() -> None:
    control = build_enriched_control(0, EnrichedControl.LEADER_EPOCH, LeaderEpochPayload(3, 1))
    assert refusal(control) is ErrorCode.CORRUPT_MESSAGE
    for data, rules in ((PLAIN + control, {}), (PLAIN + control, {"compacted": True}), (control, {"codec": Codec.LZ4})):
        done = append(data, version=None, **rules)
        assert stored(done)[-1].control == LeaderEpochPayload(3, 1)
        assert not done.rebuilt
    assert refusal(control, version=None, format=Format.V2) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_several_wrappers_stay_each_for_itself_unless_the_topic_wants_another_codec() -> None:
    data = wrapper_of(0, 1) + PLAIN + wrapper_of(0, 4, 9, codec=Codec.LZ4)
    done = append(data)
    assert not done.rebuilt
    assert [record.offset for record in read(done)] == [100, 101, 102, 103, 104, 105]
    assert [entry.codec for entry in stored(done)] == [Codec.GZIP, Codec.NONE, Codec.LZ4]
    done = append(data, codec=Codec.SNAPPY)
    (entry,) = stored(done)
    assert (done.rebuilt, entry.codec, entry.num_messages) == (True, Codec.SNAPPY, 6)
    assert [record.offset for record in read(done)] == [100, 101, 102, 103, 104, 105]
    assert {record.timestamp for record in read(done)} == {CLOCK}


def test_messages_in_kafkas_formats_get_the_append_time() -> None:
    for magic in (0, 1, 2):
        for codec in (Codec.NONE, Codec.GZIP):
            done = append(kafka_set(magic, codec, TWO), dialect=Dialect.KAFKA)
            found = read(done)
            assert [(record.offset, record.timestamp, record.key) for record in found] == [
                (100, CLOCK, b"k"), (101, CLOCK, b"x"),
            ]  # fmt: skip
            if codec:
                (entry,) = stored(done)
                assert (entry.offset, entry.num_messages, entry.honor_ship) == (100, 2, True)


def test_what_the_dialect_cannot_hold_is_refused() -> None:
    idempotent = batch(producer_id=1, producer_epoch=0, base_sequence=0)
    headers = batch(records=(A._replace(headers=(("h", b"v"),)), B))
    for data in (idempotent, headers):
        assert refusal(data, dialect=Dialect.KAFKA) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert refusal(batch(Codec.ZSTD), dialect=Dialect.KAFKA, version=8) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refusal(PLAIN, version=3) is ErrorCode.INVALID_RECORD
    zstd = resealed(WRAPPER[:17] + b"\x04" + WRAPPER[18:])
    assert refusal(zstd, version=None) is ErrorCode.INVALID_RECORD


def test_the_dialect_is_never_guessed() -> None:
    assert append(PLAIN, dialect=Dialect.KAFKA, format=Format.V1).records == 1
    assert refusal(kafka_set(1, Codec.NONE), dialect=Dialect.ENRICHED) is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(CorruptRecordError):
        prepare_unchanged(memoryview(batch()), LATEST_RULES, next_offset=0, dialect=Dialect.ENRICHED)


def test_a_cut_message_at_the_end_is_dropped_and_a_wrong_checksum_refused() -> None:
    done = append(PLAIN + PLAIN[:20])
    assert (done.records, done.size) == (1, len(PLAIN))
    for data in (PLAIN, WRAPPER):
        assert refusal(data[:-1] + b"!") is ErrorCode.CORRUPT_MESSAGE
        assert refusal(data, max_message_bytes=20) is ErrorCode.MESSAGE_TOO_LARGE


def test_millisecond_timestamps_are_kept_when_records_are_encoded_again() -> None:
    assert NOW % 1000 == 0
    done = prepare(memoryview(kafka_set(1, Codec.NONE)), AppendRules(format=Format.ENRICHED), next_offset=0, now_ms=NOW,
                   leader_epoch=0)  # fmt: skip
    assert [entry.tags for entry in stored(done)] == [{}, {}]
