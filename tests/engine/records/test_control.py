"""Control records: what Kafka's own record types are read as, and what is refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records.batch import RecordBatch, batch_attributes, build_batch
from magicbyte.engine.records.control import ControlType, build_marker, control_records, marker_of, parse_control_record
from magicbyte.engine.records.layout import RECORD_BATCH_OVERHEAD

MARKER = b"\x00\x00\x00\x00\x00\x04"


def control_batch(records: bytes, count: int, codec: Codec = Codec.NONE) -> RecordBatch:
    raw = build_batch(
        records,
        base_offset=40,
        last_offset_delta=max(count - 1, 0),
        base_timestamp=0,
        max_timestamp=0,
        record_count=count,
        attributes=batch_attributes(codec, is_control=True),
    )
    found = RecordBatch.parse(memoryview(raw))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (0, ControlType.ABORT),
        (1, ControlType.COMMIT),
        (2, ControlType.LEADER_CHANGE),
        (3, ControlType.SNAPSHOT_HEADER),
        (4, ControlType.SNAPSHOT_FOOTER),
        (5, ControlType.KRAFT_VERSION),
        (6, ControlType.KRAFT_VOTERS),
        (7, ControlType.UNKNOWN),
        (-1, ControlType.UNKNOWN),
        (32767, ControlType.UNKNOWN),
    ],
)
def test_every_type_is_named_and_later_ones_are_tolerated(number: int, kind: ControlType) -> None:
    record = parse_control_record(9, b"\x00\x00" + number.to_bytes(2, "big", signed=True), MARKER)
    assert (record.offset, record.type, record.type_id, record.value) == (9, kind, number, MARKER)
    assert record.ends_transaction is (number in (0, 1))
    assert record.coordinator_epoch == (4 if number in (0, 1) else None)


def test_longer_keys_and_values_and_later_versions_are_taken() -> None:
    record = parse_control_record(0, b"\x00\x09\x00\x01and more", b"\x00\x09\x00\x00\x00\x05and more")
    assert (record.version, record.type, record.coordinator_epoch) == (9, ControlType.COMMIT, 5)


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00"])
def test_a_key_below_four_bytes_is_damage(key: bytes | None) -> None:
    with pytest.raises(CorruptRecordError, match="control record key"):
        parse_control_record(0, key, MARKER)


@pytest.mark.parametrize("value", [None, b"", MARKER[:5], b"\xff\xff\x00\x00\x00\x04"])
def test_a_marker_needs_a_whole_value_of_a_version_that_can_be(value: bytes | None) -> None:
    with pytest.raises(CorruptRecordError, match="transaction marker"):
        parse_control_record(0, b"\x00\x00\x00\x01", value)
    parse_control_record(0, b"\x00\x00\x00\x02", value)


def test_a_negative_version_is_damage() -> None:
    with pytest.raises(CorruptRecordError, match="version"):
        parse_control_record(0, b"\xff\xff\x00\x01", MARKER)


def test_a_marker_whose_delete_horizon_was_set_is_longer_and_reads_the_same() -> None:
    raw = build_marker(
        ControlType.ABORT, base_offset=7, timestamp=0, producer_id=1, producer_epoch=0, coordinator_epoch=4
    )
    short = RecordBatch.parse(memoryview(raw))
    assert short is not None
    assert len(raw) == 78
    body = short.records_section
    longer = bytes((body[0] + 4, 0)) + b"\xff\x80\x01" + bytes(body[3:])
    (record,) = control_records(control_batch(longer, 1))
    assert (record.type, record.coordinator_epoch) == (ControlType.ABORT, 4)


@given(
    kind=st.sampled_from((ControlType.ABORT, ControlType.COMMIT)),
    epoch=st.integers(-(1 << 31), (1 << 31) - 1),
    offset=st.integers(0, 1 << 62),
    changed=st.none() | st.tuples(st.integers(0, 16), st.integers(0, 255)),
)
def test_a_marker_as_brokers_write_it_reads_the_same_without_parsing(
    kind: ControlType, epoch: int, offset: int, changed: tuple[int, int] | None
) -> None:
    raw = bytearray(
        build_marker(kind, base_offset=offset, timestamp=0, producer_id=1, producer_epoch=0, coordinator_epoch=epoch)
    )
    if changed is not None:  # any other byte of the record
        raw[RECORD_BATCH_OVERHEAD + changed[0]] = changed[1]
    batch = RecordBatch.parse(memoryview(raw))
    assert batch is not None
    try:
        (expected,) = control_records(batch)
    except CorruptRecordError:
        with pytest.raises(CorruptRecordError):
            marker_of(batch)
    else:
        assert marker_of(batch) == expected


def test_an_emptied_control_batch_has_no_marker() -> None:
    empty = control_batch(b"", 0)
    assert control_records(empty) == []
    assert marker_of(empty) is None


def test_a_batch_of_data_has_no_marker() -> None:
    raw = build_batch(
        bytes.fromhex("10000000026b027600"),
        base_offset=0,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        record_count=1,
    )
    found = RecordBatch.parse(memoryview(raw))
    assert found is not None
    assert marker_of(found) is None


def test_several_records_of_one_batch_get_their_own_offsets() -> None:
    records = bytes.fromhex("1400000008000000030000") + bytes.fromhex("1400000208000000040000")
    found = control_records(control_batch(records, 2))
    assert [(record.offset, record.type) for record in found] == [
        (40, ControlType.SNAPSHOT_HEADER),
        (41, ControlType.SNAPSHOT_FOOTER),
    ]


@pytest.mark.parametrize(
    ("records", "count"),
    [
        (b"", 1),
        (b"\x20", 1),
        (b"\x01", 1),
        (b"\xff" * 11, 1),
        (bytes.fromhex("14000000080000000300"), 1),
        (bytes.fromhex("1400000008000000030000") + b"\x00", 1),
        (bytes.fromhex("1400000008000000030000"), 2),
        (bytes.fromhex("1400000008000000030000"), 2**31 - 1),
        (bytes.fromhex("1400000018000000030000"), 1),
        (bytes.fromhex("1400000003000000030000"), 1),
        (bytes.fromhex("1400000008000000030000"), 0),
        (bytes.fromhex("1400000008000000030000"), -1),
    ],
)
def test_records_that_contradict_their_lengths_or_count_are_damage(records: bytes, count: int) -> None:
    with pytest.raises(CorruptRecordError):
        control_records(control_batch(records, count))


@pytest.mark.parametrize("records", [b"\x01", b"\x20", b"\x14" + bytes(9)])
def test_a_record_length_that_is_negative_or_passes_the_end_is_named(records: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="record length"):
        control_records(control_batch(records, 1))


def test_a_compressed_control_batch_is_damage() -> None:
    with pytest.raises(CorruptRecordError, match="codec"):
        control_records(control_batch(b"", 1, Codec.GZIP))


@given(junk=st.binary(max_size=60), count=st.integers(0, 5) | st.integers(-(2**31), 2**31 - 1))
def test_junk_is_control_records_or_damage_and_nothing_else(junk: bytes, count: int) -> None:
    with contextlib.suppress(CorruptRecordError):
        control_records(control_batch(junk, count))
