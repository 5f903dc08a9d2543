"""What Kafka's own unit tests of appending check, in our words, and outputs of its validator on the same input.

The numbers in the names are those of docs/evidence/checks.md, which says where the others are.
"""

import pytest

from engine.log.appended import batch_of
from engine.log.made_sets import (
    NOW,
    batch,
    batch_with,
    kafka_set,
    key_length,
    lz4_frame,
    message,
    messages,
    patched,
    section,
    wrapped,
    wrapper,
)
from magicbyte.engine.codecs import Codec, Lz4Header, compress, decompress
from magicbyte.engine.errors import AppendRefusedError, CorruptRecordError, ErrorCode, UnsupportedCompressionError
from magicbyte.engine.log.append.prepare import prepare, prepare_unchanged
from magicbyte.engine.log.append.record_set import RecordSet
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.log.files.index_writer import LATEST_RULES
from magicbyte.engine.log.files.producer_snapshot import ProducerEntry
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker, parse_control_record
from magicbyte.engine.records.convert import convert
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    LAST_OFFSET_DELTA,
    MESSAGE_CRC,
    OFFSET,
    RECORD_COUNT,
    TimestampType,
)
from magicbyte.engine.records.message import MessageView, build_wrapper
from magicbyte.engine.wire.checksum import crc32

APPEND_TIME, CREATE_TIME = TimestampType.LOG_APPEND_TIME, TimestampType.CREATE_TIME
V0, V1, V2 = Format.V0, Format.V1, Format.V2
NONE, GZIP, SNAPPY, LZ4, ZSTD = Codec
COUNTER = 1234567


def three(*times: int) -> list[Record]:
    values = (b"hello", b"there", b"beautiful")
    return [Record(at, time, 0, b"%d" % at, value) for at, (time, value) in enumerate(zip(times, values, strict=True))]


SAME = three(1234, 1234, 1234)
AROUND = three(NOW - 1, NOW + 1, NOW)


def append(data: bytes, version: int | None = 2, *, next_offset: int = 0, **rules: object) -> RecordSet:
    rules.setdefault("before_max_ms", 1 << 62)
    return prepare(
        memoryview(data), AppendRules(**rules), next_offset=next_offset, now_ms=NOW, leader_epoch=4,  # type: ignore[arg-type]
        request_version=version,
    )  # fmt: skip


def refusal(data: bytes, version: int | None = 2, **rules: object) -> AppendRefusedError:
    with pytest.raises(AppendRefusedError) as refused:
        append(data, version, **rules)
    return refused.value


def read(done: RecordSet) -> list[Record]:
    """The records as stored; reading checks every checksum."""
    return [record for columns in decode(memoryview(bytes(done))) for record in columns]


def bounded(**more: object) -> dict[str, object]:
    return {"before_max_ms": 1000, "after_max_ms": 1000, **more}


def test_01_to_03_how_many_entries_a_set_may_have() -> None:
    for magic, stored in ((0, V0), (1, V1)):
        for target in (None, NONE):
            assert append(kafka_set(magic, GZIP) * 2, format=stored, codec=target).records == 4
        for target in (None, GZIP):
            assert append(kafka_set(magic, NONE) * 2, format=stored, codec=target).records == 4
    for codec in (NONE, GZIP):
        for target in (NONE, GZIP):
            assert refusal(batch(codec) * 2, 8, codec=target).code is ErrorCode.INVALID_RECORD


def test_04_and_05_offsets_inside_that_are_not_in_sequence() -> None:
    records = [Record(at, NOW, 0, b"k", b"v") for at in range(20)]
    for magic, stored in ((0, V0), (1, V1)):
        inner = messages(magic, records, offsets=[3 * at + 1 for at in range(20)])
        done = append(wrapped(magic, GZIP, inner, offset=58), format=stored)
        assert [record.offset for record in read(done)] == list(range(20))
        assert done.rebuilt
    gap = bytes((12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 4, 1, 1, 0))
    assert refusal(batch_with(compress(GZIP, gap), GZIP), 8).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_06_another_magic_inside_is_a_fault_of_each_record(magic: int) -> None:
    records = [Record(at, NOW, 0, b"k", b"v") for at in range(20)]
    found = refusal(wrapped(magic, GZIP, messages(1 - magic, records)), None, format=V1)
    assert found.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in found.record_errors] == list(range(20))


def test_07_to_09_append_time_of_plain_sets() -> None:
    plain = append(kafka_set(0, NONE, SAME), format=V0, timestamp_type=APPEND_TIME)
    assert (plain.size, plain.max_timestamp, plain.max_timestamp_offset) == (len(kafka_set(0, NONE, SAME)), -1, -1)
    plain = append(kafka_set(1, NONE, SAME), format=V1, timestamp_type=APPEND_TIME)
    assert (plain.rebuilt, plain.max_timestamp, plain.max_timestamp_offset) == (False, NOW, 0)
    assert [record.timestamp for record in read(plain)] == [NOW] * 3
    plain = append(kafka_set(2, NONE, SAME), 3, format=V2, timestamp_type=APPEND_TIME)
    assert (plain.rebuilt, plain.max_timestamp, plain.max_timestamp_offset) == (False, NOW, 2)
    assert [record.timestamp for record in read(plain)] == [NOW] * 3
    assert BASE_TIMESTAMP.read(memoryview(bytes(plain))) == 1234


def test_10_and_11_append_time_of_compressed_sets() -> None:
    for magic, stored, rebuilt in ((0, V1, True), (0, V2, True), (1, V1, False), (2, V2, False)):
        done = append(kafka_set(magic, GZIP, SAME), format=stored, timestamp_type=APPEND_TIME)
        assert (done.rebuilt, done.max_timestamp, done.max_timestamp_offset) == (rebuilt, NOW, 2)
        assert {(record.timestamp, record.timestamp_type) for record in read(done)} == {(NOW, APPEND_TIME)}
        if stored is V2:
            assert BASE_TIMESTAMP.read(memoryview(bytes(done))) == (-1 if rebuilt else 1234)


def test_12_and_13_create_time_of_plain_sets() -> None:
    done = append(kafka_set(1, NONE, AROUND), format=V1)
    assert (done.size, done.max_timestamp, done.max_timestamp_offset) == (len(kafka_set(1, NONE, AROUND)), NOW + 1, 1)
    said = {"producer_id": 1324, "producer_epoch": 10, "base_sequence": 984, "is_transactional": True}
    done = append(batch(NONE, AROUND, **said), 3)
    assert (done.rebuilt, done.max_timestamp, done.max_timestamp_offset) == (False, NOW + 1, 2)
    stored = RecordBatch(memoryview(bytes(done)))
    assert {name: getattr(stored, name) for name in said} == said
    assert stored.partition_leader_epoch == 4
    assert done.producer is not None
    assert (done.producer.base_sequence, done.producer.last_sequence) == (984, 986)


def test_14_to_18_create_time_of_compressed_sets() -> None:
    done = append(kafka_set(1, NONE, AROUND), format=V1, codec=GZIP)
    ((_, entry),) = entries(bytes(done))
    assert (done.rebuilt, entry.is_wrapper, done.max_timestamp, done.max_timestamp_offset) == (True, True, NOW + 1, 2)
    assert [record.timestamp for record in read(done)] == [NOW - 1, NOW + 1, NOW]
    done = append(kafka_set(0, GZIP, AROUND), format=V1)
    assert (done.rebuilt, done.max_timestamp, done.max_timestamp_offset) == (True, -1, -1)
    assert [record.timestamp for record in read(done)] == [-1] * 3
    done = append(kafka_set(0, GZIP, AROUND), format=V2)
    stored = RecordBatch(memoryview(bytes(done)))
    assert (stored.base_timestamp, stored.max_timestamp, done.max_timestamp_offset) == (-1, -1, -1)
    assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (-1, -1, -1)
    done = append(kafka_set(1, GZIP, AROUND), format=V2)
    stored = RecordBatch(memoryview(bytes(done)))
    assert (done.rebuilt, stored.base_timestamp, stored.max_timestamp, done.max_timestamp_offset) == (
        True, NOW - 1, NOW + 1, 2,
    )  # fmt: skip
    for magic, form in ((1, V1), (2, V2)):
        done = append(kafka_set(magic, GZIP, AROUND), format=form)
        assert (done.rebuilt, done.max_timestamp) == (False, NOW + 1)
        assert [record.timestamp for record in read(done)] == [NOW - 1, NOW + 1, NOW]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [GZIP, LZ4, SNAPPY])
def test_19_a_wrong_checksum_inside_is_damage(magic: int, codec: Codec) -> None:
    inner = patched(message(magic, AROUND[0]), MESSAGE_CRC, 1, reseal=False)
    for stored in (V0, V1, V2):
        assert refusal(wrapped(magic, codec, inner), format=stored).code is ErrorCode.CORRUPT_MESSAGE


def test_20_a_timestamp_one_millisecond_out_of_bounds() -> None:
    for magic, stored in ((1, V1), (2, V2)):
        for codec in (NONE, GZIP):
            late = kafka_set(magic, codec, three(NOW - 1001, NOW, NOW))
            assert refusal(late, format=stored, **bounded()).code is ErrorCode.INVALID_TIMESTAMP
            assert append(kafka_set(magic, codec, three(NOW - 1000, NOW, NOW)), format=stored, **bounded()).records == 3


@pytest.mark.parametrize("kind", [CREATE_TIME, APPEND_TIME])
def test_21_to_26_and_29_to_31_offsets_continue_from_the_end_of_the_log(kind: TimestampType) -> None:
    for magic in (0, 1, 2):
        for codec in (NONE, GZIP):
            for stored in (V0, V1, V2):
                done = append(kafka_set(magic, codec, AROUND), next_offset=COUNTER, format=stored, timestamp_type=kind)
                assert [record.offset for record in read(done)] == [COUNTER, COUNTER + 1, COUNTER + 2]
                assert (done.first_offset, done.last_offset) == (COUNTER, COUNTER + 2)
                assert done.rebuilt == (magic != stored.magic or (codec is GZIP and stored is V0))


def test_27_and_28_a_marker_is_the_brokers_to_write_and_stays_uncompressed() -> None:
    marker = build_marker(
        ControlType.COMMIT, base_offset=0, timestamp=3000, producer_id=9, producer_epoch=1, coordinator_epoch=4
    )
    assert refusal(marker, 8).code is ErrorCode.INVALID_RECORD
    done = append(marker, None, codec=SNAPPY, next_offset=COUNTER, compacted=True)
    stored = RecordBatch(memoryview(bytes(done)))
    assert (stored.base_offset, stored.is_control, stored.codec, done.rebuilt) == (COUNTER, True, NONE, False)
    assert done.producer is not None
    assert done.producer.is_control
    assert refusal(marker, None, format=V1).code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_32_and_33_producer_ids_need_magic_2() -> None:
    for transactional in (True, False):
        data = batch(producer_id=1, producer_epoch=1, base_sequence=0, is_transactional=transactional)
        assert refusal(data, 3, format=V1).code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_34_35_43_and_44_count_and_last_offset_delta_agree_with_the_records() -> None:
    data = batch(NONE, AROUND)
    pairs = [(0, 3), (15, 3), (-3, 3), (2, -3), (2, 6), (2, 0), (-3, -2), (5, 6), (1, 2)]
    for delta, count in pairs:
        spoilt = patched(patched(data, LAST_OFFSET_DELTA, delta), RECORD_COUNT, count)
        assert refusal(spoilt, 8).code is ErrorCode.INVALID_RECORD, (delta, count)
    assert append(patched(patched(data, LAST_OFFSET_DELTA, 2), RECORD_COUNT, 3), 8).records == 3
    for codec in (NONE, GZIP):
        empty = patched(batch_with(compress(codec, b""), codec, 1), RECORD_COUNT, 0)
        for target in (NONE, GZIP):
            assert refusal(empty, 8, codec=target).code is ErrorCode.INVALID_RECORD


def test_36_zstd_needs_magic_2() -> None:
    assert refusal(kafka_set(1, NONE), format=V1, codec=ZSTD).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_37_to_40_records_out_of_bounds_are_named() -> None:
    day, hour, minutes = 24 * 3_600_000, 3_600_000, 5 * 60_000
    for times, rules in (
        ((NOW - 1001,) * 3, bounded()),
        ((NOW - day - minutes,) * 3, {"before_max_ms": day}),
        ((NOW + hour + minutes,) * 3, {"after_max_ms": hour}),
    ):
        found = refusal(batch(NONE, three(*times)), 8, **rules)
        assert found.code is ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in found.record_errors] == [0, 1, 2]
        assert append(batch(NONE, three(NOW, NOW, NOW)), 8, **rules).records == 3
    mixed = [message(0, AROUND[0])] * 5 + [message(1, three(5, 5, 5)[0])]
    found = refusal(wrapped(1, GZIP, b"".join(mixed)), None, format=V1, **bounded())
    assert found.code is ErrorCode.INVALID_TIMESTAMP
    assert len(found.record_errors) == 6


def test_41_and_42_only_another_codec_rebuilds() -> None:
    quick = batch_with(compress(GZIP, section(), level=1), GZIP)
    assert not append(quick, 3, codec=GZIP).rebuilt
    assert append(quick, 3, codec=LZ4).rebuilt


def test_45_and_46_stray_bytes_are_dropped_and_offsets_of_plain_messages_are_reassigned() -> None:
    data = messages(1, offsets=(0, 2))
    assert [record.offset for columns in decode(memoryview(data)) for record in columns] == [0, 2]
    done = append(data + b"\0\0", format=V1)
    assert done.size == len(data)
    assert [record.offset for record in read(done)] == [0, 1]
    assert bytes(prepare_unchanged(memoryview(data + b"\0\0"), LATEST_RULES, next_offset=0)) == data


def test_47_to_51_headers_of_a_wrapper_are_set_without_touching_what_is_inside() -> None:
    data = wrapper(1, GZIP, three(1, 2, 3))
    for kind, inside in ((APPEND_TIME, [NOW] * 3), (CREATE_TIME, [1, 2, 3])):
        done = append(data, next_offset=40, format=V1, timestamp_type=kind)
        stored = MessageView(memoryview(bytes(done)))
        stored.verify()
        assert (stored.offset, stored.timestamp, stored.timestamp_type) == (42, max(inside), kind)
        assert stored.value == MessageView(memoryview(data)).value
        assert [record.timestamp for record in read(done)] == inside
    for magic, offset in ((0, 0), (1, 0), (1, 1)):
        done = append(wrapped(magic, GZIP, messages(magic, AROUND), offset=offset), format=V0 if magic == 0 else V1)
        assert [record.offset for record in read(done)] == [0, 1, 2]
    with pytest.raises(CorruptRecordError):
        list(decode(memoryview(wrapped(1, GZIP, messages(1, AROUND), offset=1))))


def test_52_and_53_what_magic_0_and_1_do_not_have() -> None:
    plain = kafka_set(0, NONE)
    assert bytes(append(plain, format=V0, timestamp_type=APPEND_TIME)) == plain
    assert bytes(append(kafka_set(1, NONE), format=V1)) == kafka_set(1, NONE)
    for magic in (0, 1):
        with pytest.raises(UnsupportedCompressionError):
            build_wrapper(magic, ZSTD, messages(magic), 1, NOW)


MIXED = ((0, (0, 2, 3)), (1, (9, 11, 15)), (2, (16, 17, 22, 24)))


def mixed(codec: Codec) -> bytes:
    """A log of all formats with holes."""
    log = b""
    for magic, offsets in MIXED:
        records = [Record(offset, NOW, 0, b"k%d" % offset, b"v") for offset in offsets]
        if magic == 2:
            log += batch(codec, records)
        else:
            inside = [offset - offsets[0] for offset in offsets] if magic and codec else offsets
            inner = messages(magic, records, offsets=inside)
            log += wrapped(magic, codec, inner, offset=offsets[-1]) if codec else inner
    return log


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("target", [V0, V1, V2])
def test_57_to_60_a_mixed_log_is_converted_down(codec: Codec, target: Format) -> None:
    offsets = [offset for _, some in MIXED for offset in some]
    for fetch_offset in (0, 11, 17):
        out = b"".join(convert(mixed(codec), target, fetch_offset=fetch_offset))
        assert all(entry.magic <= target.magic and entry.codec is codec for _, entry in entries(out))
        found = [record for columns in decode(memoryview(out)) for record in columns]
        converted = [offset for magic, some in MIXED for offset in some if magic > target.magic]
        gone = [offset for offset in converted if offset < fetch_offset and codec is NONE]
        assert [record.offset for record in found] == [offset for offset in offsets if offset not in gone]
        assert all(record.key == b"k%d" % record.offset for record in found)


def test_63_and_64_an_empty_slice_and_a_format_that_was_lowered() -> None:
    assert list(convert(b"", V0)) == []
    log = batch(GZIP) + patched(wrapper(1, GZIP), OFFSET, 3, reseal=False)
    out = b"".join(convert(log, V1))
    assert [record.offset for columns in decode(memoryview(out)) for record in columns] == [0, 1, 2, 3]


PLAIN_RECORD = bytes((12, 0, 0, 0, 1, 1, 0))


@pytest.mark.parametrize("codec", [NONE, GZIP, LZ4])
@pytest.mark.parametrize(
    "record",
    [
        bytes((10, 0, 0, 0, 1, 1, 0)),  # one byte shorter than it says
        bytes((14, 0, 0, 0, 1, 1, 0)),  # one longer
        bytes((12, 0, 0, 0, 1, 1, 2)),  # a header more than there are
        bytes((16, 0, 0, 0, 1, 1, 0, 0, 0)),  # one fewer
        bytes((16, 0, 0, 0, 1, 1, 2, 1, 1)),  # a header whose key has the length -1
        bytes((24, 0, 0, 0, 1, 128, 128, 128, 128, 128, 1, 0, 0)),  # a varint of six groups
    ],
)
def test_54_a_record_that_contradicts_its_own_lengths_is_illegal(record: bytes, codec: Codec) -> None:
    sound = batch_with(compress(codec, PLAIN_RECORD), codec, 1)
    assert append(sound, 8).records == 1
    assert refusal(batch_with(compress(codec, record), codec, 1), 8).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [NONE, GZIP, LZ4])
@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_55_a_count_that_is_not_that_of_the_records_is_illegal(count: int, codec: Codec) -> None:
    data = batch(codec, AROUND)
    assert append(data, 8).records == 3
    spoilt = patched(patched(data, LAST_OFFSET_DELTA, count - 1), RECORD_COUNT, count)
    assert refusal(spoilt, 8).code is ErrorCode.INVALID_RECORD


def test_56_sequences_wrap_from_the_largest_to_0() -> None:
    largest = (1 << 31) - 1
    data = batch(NONE, AROUND, producer_id=7, producer_epoch=0, base_sequence=largest)
    done = append(data, 3)
    assert done.producer is not None
    assert done.producer.last_sequence == 1
    entry = ProducerEntry(7, 0, 0, 5, 1, NOW, -1, -1)
    assert entry.first_sequence == largest


def test_66_a_marker_that_is_cut_or_of_a_negative_version_is_damage_and_a_longer_one_is_none() -> None:
    key = b"\0\0\0\1"
    for value in (b"\0\0\0\0\0", b"\xff\xff\0\0\0\4"):
        with pytest.raises(CorruptRecordError):
            parse_control_record(0, key, value)
    assert parse_control_record(0, key, b"\0\1\0\0\0\4more").coordinator_epoch == 4


# ---- what Kafka's validator made of the same bytes: log end 100, clock 9000, leader epoch 7, a compacted topic

RECORD_A, RECORD_B = Record(0, 1000, 0, b"k", b"v"), Record(1, 1005, 0, b"x", None)
INNER_1 = message(1, RECORD_A) + message(1, RECORD_B)
INNER_0 = message(0, RECORD_A) + message(0, RECORD_B)
ROW_1 = (
    "00000000000000650000005a423f4c5c010300000000000003edffffffff0000004404224d1860408235000000160001006318e4e321bc0110"
    "007003e8000000016b050013761300001b0050178a51f1bf0900000200b003ed0000000178ffffffff00000000"
)
ROW_2_HEAD = "00000000000000650000005a89695a27010b0000000000002328ffffffff00000044"
ROW_5 = (
    "000000000000006500000052e6883ded0103ffffffffffffffffffffffff0000003c04224d186040822d000000160001008318b82b07240100"
    "ff010050000000016b0500137623009a01000000171734a64024005078ffffffff00000000"
)
ROW_6 = (
    "00000000000000650000004fd04b4ed40003ffffffff0000004104224d1860401a32000000120001009164000000101fecd70a0f0071016b00"
    "000001760c00f0070000650000000fb7c2e9a400000000000178ffffffff00000000"
)
ROW_7 = (
    "000000000000006400000018b82b07240100ffffffffffffffff000000016b00000001760000000000000065000000171734a6400100ffffff"
    "ffffffffff0000000178ffffffff"
)
ROW_8 = (
    "00000000000000640000001854dacbb101080000000000002328000000016b0000000176000000000000006500000017850a15810108000000"
    "00000023280000000178ffffffff"
)
ROW_9 = "0000000000000064000000101fecd70a0000000000016b000000017600000000000000650000000fb7c2e9a400000000000178ffffffff"
ROW_10 = (
    "000000000000006400000042000000070286bbeeb200000000000100000000000003e800000000000003edffffffffffffffffffffffffffff"
    "0000000210000000026b0276000e000a0202780100"
)
PAYLOAD_1 = bytes.fromhex(ROW_1)[34:]
WRAPPER_1 = bytes.fromhex("0000000000000001" + ROW_1[16:])
WRAPPER_0 = wrapped(0, LZ4, INNER_0)
BATCH_2 = batch(NONE, (RECORD_A, RECORD_B))


def validated(data: bytes, version: int = 2, **rules: object) -> RecordSet:
    return prepare(
        memoryview(data), AppendRules(compacted=True, **rules), next_offset=100, now_ms=9000, leader_epoch=7,  # type: ignore[arg-type]
        request_version=version,
    )  # fmt: skip


def unpacked(data: bytes) -> tuple[bytes, bytes]:
    """A wrapper's header, without size and checksum, and what it holds."""
    entry = MessageView(memoryview(data))
    assert entry.value is not None
    assert crc32(data[16:]) == entry.crc
    held = decompress(entry.codec, entry.value, limit=1 << 20, lz4_header=Lz4Header.ANY)
    return data[:8] + data[16:26], bytes(held)


@pytest.mark.parametrize(
    ("data", "rules", "rebuilt", "latest", "expected"),
    [
        pytest.param(WRAPPER_1, {"format": V1}, False, (1005, 101), ROW_1, id="1"),
        pytest.param(
            WRAPPER_1, {"format": V1, "timestamp_type": APPEND_TIME}, False, (9000, 101),
            ROW_2_HEAD + PAYLOAD_1.hex(), id="2",
        ),
        pytest.param(bytes(8) + WRAPPER_1[8:], {"format": V1}, False, (1005, 101), ROW_1, id="3"),
        pytest.param(
            wrapped(1, LZ4, b"", payload=PAYLOAD_1, timestamp=5), {"format": V1}, False, (1005, 101), ROW_1, id="4"
        ),
        pytest.param(WRAPPER_0, {"format": V1}, True, (-1, -1), ROW_5, id="5"),
        pytest.param(WRAPPER_0, {"format": V0}, True, (-1, -1), ROW_6, id="6"),
        pytest.param(WRAPPER_1, {"format": V0}, True, (-1, -1), ROW_6, id="6 of magic 1"),
        pytest.param(INNER_0, {"format": V1}, True, (-1, -1), ROW_7, id="7"),
        pytest.param(INNER_0, {"format": V1, "timestamp_type": APPEND_TIME}, True, (9000, 100), ROW_8, id="8"),
        pytest.param(
            INNER_1, {"format": V1, "timestamp_type": APPEND_TIME}, False, (9000, 100), ROW_8, id="8 of magic 1"
        ),
        pytest.param(INNER_1, {"format": V0}, True, (-1, -1), ROW_9, id="9"),
        pytest.param(BATCH_2, {}, False, (1005, 101), ROW_10, id="10"),
        pytest.param(batch(LZ4, (RECORD_A, RECORD_B)), {"format": V1}, True, (1005, 101), ROW_1, id="11"),
        pytest.param(INNER_1, {"format": V1, "codec": LZ4}, True, (1005, 101), ROW_1, id="11 of magic 1"),
    ],
)  # fmt: skip
def test_a_set_becomes_what_kafkas_validator_makes_of_it(
    data: bytes, rules: dict[str, object], rebuilt: bool, latest: tuple[int, int], expected: str
) -> None:
    done = validated(data, **rules)
    assert (done.rebuilt, done.max_timestamp, done.max_timestamp_offset) == (rebuilt, *latest)
    wanted = bytes.fromhex(expected)
    if rebuilt and next(entries(wanted))[1].codec:
        assert unpacked(bytes(done)) == unpacked(wanted)
    else:
        assert bytes(done) == wanted


def test_12_to_16_of_the_validator_are_refused_or_differ_as_documented() -> None:
    keyless = message(1, RECORD_A) + message(1, RECORD_B._replace(key=None))
    with pytest.raises(AppendRefusedError) as refused:
        validated(keyless, format=V1)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE  # version 2 knows no 87
    for kind in (CREATE_TIME, APPEND_TIME):
        with pytest.raises(AppendRefusedError) as refused:
            validated(wrapped(1, LZ4, b"", payload=PAYLOAD_1, attributes=8), format=V1, timestamp_type=kind)
        assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert validated(WRAPPER_1 * 2, format=V1).records == 4
    broken = bytearray(PAYLOAD_1)
    broken[6] = 0x1A
    with pytest.raises(AppendRefusedError) as refused:
        validated(wrapped(1, LZ4, b"", payload=bytes(broken)), format=V1)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_follower_stores_bytes_unchanged_if_their_offsets_are_consecutive() -> None:
    log = mixed(GZIP)
    taken = prepare_unchanged(memoryview(log + log[:30]), LATEST_RULES, next_offset=0)
    assert bytes(taken) == log
    assert (taken.first_offset, taken.last_offset, taken.max_timestamp) == (3, 24, NOW)
    for data, next_offset in ((log, 4), (log[: len(log) // 2] + log, 0), (batch() * 2, 0)):
        with pytest.raises(CorruptRecordError):
            prepare_unchanged(memoryview(data), LATEST_RULES, next_offset=next_offset)
    with pytest.raises(CorruptRecordError, match="crc"):
        prepare_unchanged(memoryview(log + patched(batch(), ATTRIBUTES, 64, reseal=False)), LATEST_RULES, next_offset=0)
    last = (1 << 63) - 1
    ends = [batch_of(base, NOW, records) for base, records in ((last, 1), (last - 1, 2), (last - 1, 9))]
    for data in (*ends, *(batch_of(7, NOW) + each for each in ends)):
        with pytest.raises(CorruptRecordError, match=f" to {last - 1}, found"):  # no 64-bit offset comes after it
            prepare_unchanged(memoryview(data), LATEST_RULES, next_offset=7)
    nothing = prepare_unchanged(memoryview(log[:40]), LATEST_RULES, next_offset=7)
    assert (bytes(nothing), nothing.first_offset, nothing.last_offset) == (b"", -1, -1)


def test_a_frame_of_four_megabytes_is_unpacked_within_the_limit_and_not_beyond() -> None:
    value = bytes(5 << 20)
    big = batch_with(lz4_frame(section([Record(0, NOW, 0, b"k", value)]), block_size=7), LZ4, 1)
    assert append(big, 3, max_decompressed_bytes=6 << 20).records == 1
    assert refusal(big, 3, max_decompressed_bytes=5 << 20).code is ErrorCode.MESSAGE_TOO_LARGE


def test_lengths_that_lie_are_damage_in_every_place() -> None:
    for magic in (0, 1):
        bad = patched(message(magic, AROUND[0]), key_length(magic), 1000)
        for data in (bad, message(magic, AROUND[0]) + bad, wrapped(magic, GZIP, bad)):
            assert refusal(data, format=V1).code is ErrorCode.CORRUPT_MESSAGE
