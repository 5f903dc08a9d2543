"""Views of record batches: their header, its setters, and every log that real brokers left."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_data import Case, log_cases
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.records import layout
from magicbyte.engine.records.batch import HEADER, RecordBatch, batch_attributes, build_batch
from magicbyte.engine.records.control import marker_of
from magicbyte.engine.records.entry import Entry, entries
from magicbyte.engine.records.layout import TimestampType

CREATE, APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
ONE_RECORD = bytes.fromhex("10000000026b027600")


def build(**fields: int) -> bytearray:
    defaults = {
        "base_offset": 100,
        "last_offset_delta": 0,
        "base_timestamp": 1000,
        "max_timestamp": 1000,
        "record_count": 1,
    }
    return bytearray(build_batch(ONE_RECORD, **(defaults | fields)))


def view(raw: bytes | bytearray) -> RecordBatch:
    found = RecordBatch.parse(memoryview(raw))
    assert found is not None
    return found


def test_the_header_agrees_with_the_layout() -> None:
    raw = bytes(range(HEADER.size))
    fields = [
        layout.OFFSET,
        layout.SIZE,
        layout.PARTITION_LEADER_EPOCH,
        layout.MAGIC,
        layout.BATCH_CRC,
        layout.ATTRIBUTES,
        layout.LAST_OFFSET_DELTA,
        layout.BASE_TIMESTAMP,
        layout.MAX_TIMESTAMP,
        layout.PRODUCER_ID,
        layout.PRODUCER_EPOCH,
        layout.BASE_SEQUENCE,
        layout.RECORD_COUNT,
    ]
    assert HEADER.unpack(raw) == tuple(field.read(memoryview(raw)) for field in fields)
    assert HEADER.size == layout.RECORD_BATCH_OVERHEAD == sum(field.type.size for field in fields)


@given(at=st.integers(layout.ATTRIBUTES.start, 61 + len(ONE_RECORD) - 1), flip=st.integers(1, 255))
def test_a_changed_byte_under_the_crc_is_noticed(at: int, flip: int) -> None:
    damaged = build()
    damaged[at] ^= flip
    with pytest.raises(CorruptRecordError, match="crc") as raised:
        view(damaged).verify()
    assert raised.value.position == 0


def test_another_magic_is_no_batch() -> None:
    raw = build()
    raw[16] = 1
    with pytest.raises(CorruptRecordError, match="magic"):
        RecordBatch.parse(memoryview(raw))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_damage_when_asked_for(codec: int) -> None:
    found = view(build(attributes=codec))
    found.verify()
    with pytest.raises(CorruptRecordError, match="codec"):
        _ = found.codec


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(-1, 5, -1), (0, 5, 5), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 5, 2)],
)
def test_the_last_sequence_wraps_to_zero(base: int, delta: int, last: int) -> None:
    assert view(build(base_sequence=base, last_offset_delta=delta)).last_sequence == last


def test_the_delete_horizon_is_the_base_timestamp_when_its_bit_is_set() -> None:
    attributes = batch_attributes(has_delete_horizon=True, is_transactional=True)
    assert view(build(attributes=attributes, base_timestamp=7)).delete_horizon_ms == 7
    assert view(build(base_timestamp=7)).delete_horizon_ms is None


# ---- setters


def test_setting_base_offset_and_leader_epoch_needs_no_new_crc() -> None:
    raw = build()
    found = view(raw)
    found.set_base_offset(2**50)
    found.set_partition_leader_epoch(17)
    for each in (found, view(raw)):
        each.verify()
        assert (each.base_offset, each.last_offset, each.partition_leader_epoch) == (2**50, 2**50, 17)
    assert raw[16:] == build()[16:]


@pytest.mark.parametrize("kind", [CREATE, APPEND])
def test_setting_the_largest_timestamp_keeps_every_bit_with_a_meaning_and_drops_the_rest(kind: TimestampType) -> None:
    attributes = batch_attributes(Codec.ZSTD, is_transactional=True, is_control=True, has_delete_horizon=True)
    raw = build(attributes=attributes | 0x7F80, base_timestamp=555)
    found = view(raw)
    found.set_max_timestamp(kind, 2000)
    for each in (found, view(raw)):
        each.verify()
        assert each.attributes == attributes | (8 if kind is APPEND else 0)
        assert (each.max_timestamp, each.delete_horizon_ms, each.timestamp_type) == (2000, 555, kind)


def test_setting_what_holds_already_changes_nothing() -> None:
    raw = build(attributes=0x0100)
    before = bytes(raw)
    view(raw).set_max_timestamp(CREATE, 1000)
    assert raw == before


# ---- logs of real brokers


def describe(entry: Entry, position: int) -> dict[str, Any]:
    """What the header tells of a line of batches.jsonl, with the dump tool's names."""
    shown: dict[str, Any] = {
        "position": position,
        "size": entry.size,
        "magic": entry.magic,
        "crc": entry.crc,
        "isvalid": is_valid(entry),
        "timestampType": entry.timestamp_type.label,
        "maxTimestamp": entry.max_timestamp,
        "codec": entry.codec.name.lower(),
        "lastOffset": entry.last_offset,
    }
    if isinstance(entry, RecordBatch):
        marker = marker_of(entry) if is_valid(entry) else None
        shown |= {
            "baseOffset": entry.base_offset,
            "count": entry.record_count,
            "baseSequence": entry.base_sequence,
            "lastSequence": entry.last_sequence,
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "partitionLeaderEpoch": entry.partition_leader_epoch,
            "isTransactional": entry.is_transactional,
            "isControl": entry.is_control,
            "deleteHorizonMs": entry.delete_horizon_ms,
        }
        if marker is not None:
            shown["marker"] = {
                "offset": marker.offset,
                "endTxnMarker": marker.type.name,
                "coordinatorEpoch": marker.coordinator_epoch,
            }
    elif not entry.is_wrapper:
        shown |= {"baseOffset": entry.base_offset, "recordCount": 1, "recordCrcs": [entry.crc]}
    return shown


def is_valid(entry: Entry) -> bool:
    try:
        entry.verify()
    except CorruptRecordError:
        return False
    return True


def told_by_the_header(row: dict[str, Any]) -> dict[str, Any]:
    left_out = {"segment", "offsets", "invalidRecords"}
    if row["magic"] == 2:
        left_out |= {"recordCount"}
    elif row["codec"] != "none":
        left_out |= {"recordCount", "recordCrcs", "baseOffset"}
    return {key: value for key, value in row.items() if key not in left_out}


@pytest.mark.parametrize("case", log_cases(), ids=str)
def test_every_log_of_a_real_broker_reads_as_kafkas_own_tool_says(case: Case) -> None:
    found: list[tuple[str, dict[str, Any]]] = []
    last_segment = max(case.segments())
    for name, content in case.segments().items():
        walk = entries(content)
        damage = None
        try:
            found.extend((name, describe(entry, position)) for position, entry in walk)
        except CorruptRecordError as error:
            damage = error
        is_last = name == last_segment
        assert (damage is not None) == (is_last and case.name == "crash-zeros.crashed"), damage
        assert (walk.tail is not None) == (is_last and case.name == "crash-tear.crashed"), walk.tail
        assert damage is None or damage.position == walk.position == len(content) - 300
        if walk.tail is not None:
            assert walk.tail.needed is not None
            assert walk.tail.found == walk.tail.needed - 11
    assert found == [(row["segment"], told_by_the_header(row)) for row in case.batches()]
