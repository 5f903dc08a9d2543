"""Closed sets on their way to another cluster: which stay closed, and what is in the headers then."""

import hashlib

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError, UnsupportedForMessageFormatError
from magicbyte.engine.protocol.fields import as_bytes
from magicbyte.engine.records.batch import RecordBatch, build_batch
from magicbyte.engine.records.control import ControlType
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import TimestampType
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.records.transactions import AbortedRange
from magicbyte.tools.mirror import rewrite
from magicbyte.tools.mirror.oversize import not_passed, without
from magicbyte.tools.mirror.rewrite import NO_PRODUCER, Made, Parcel, ProducerIdentity, Storage, forward, parcels
from magicbyte.tools.mirror.spread import ParcelLoad, Portion
from tools.mirror.sets import START, counted, fetched, seen, some, stored

V0, V1, V2 = Storage(Format.V0), Storage(Format.V1), Storage(Format.V2)
OURS = ProducerIdentity(4000, 3, 0x7FFFFFF0)
CLOSED = [(Format.V2, codec) for codec in Codec] + [
    (target, codec) for target in (Format.V0, Format.V1) for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
]


def parts(*sets: bytes, start: int = 0, storage: Storage = V2, at_boundary: bool = True) -> list[Parcel]:
    return list(parcels(fetched(*sets), start, storage, at_boundary=at_boundary))


def made_of(*sets: bytes, storage: Storage = V2) -> list[Made]:
    return [forward(each, storage) for each in parts(*sets, storage=storage)]


def batch_of(made: Made) -> RecordBatch:
    batch = RecordBatch.parse(memoryview(as_bytes(made.data)))
    assert batch is not None
    batch.verify()
    return batch


def test_only_a_parcel_with_a_parked_record_is_opened_and_one_at_the_next_offset_stays_parked() -> None:
    parcel, _ = parts(stored(Format.V2, Codec.GZIP, 0, 3), stored(Format.V2, Codec.GZIP, 3, 4))
    load = ParcelLoad(parcel, (Portion(0, None),))
    assert list(without([load], {-1, parcel.next_offset})) == [load]
    (opened,) = without([load], {parcel.next_offset - 1})
    assert [len(portion.records or ()) for portion in opened.portions] == [2]
    assert not_passed({2, 3, 4}, parcel.next_offset) == {3, 4}


def test_a_producer_begins_each_partition_with_sequence_0_and_no_producer_has_no_sequence() -> None:
    assert OURS.begun() == ProducerIdentity(4000, 3, 0)
    assert NO_PRODUCER.begun() == NO_PRODUCER.behind(3) == NO_PRODUCER
    assert OURS.behind(0x11) == ProducerIdentity(4000, 3, 1)


@pytest.mark.parametrize(("target", "codec"), CLOSED)
def test_a_set_of_the_targets_format_stays_closed_and_its_payload_the_same_bytes(target: Format, codec: Codec) -> None:
    before, source = stored(target, codec, 0, 5), stored(target, codec, 5, 10)
    storage = Storage(target)
    with counted() as opened:
        made = made_of(before, source, storage=storage)[1]
    assert not opened
    payload = {0: 26, 1: 34, 2: 61}[target.magic]
    digests = [hashlib.sha256(each[payload:]).hexdigest() for each in (as_bytes(made.data), source)]
    assert digests[0] == digests[1]
    expected = [each[1:] for each in seen(source)]
    assert [each[1:] for each in seen(as_bytes(made.data))] == expected
    if target is not Format.V0:  # whose offsets inside are those of the source, for the target to change
        assert [each[0] for each in seen(as_bytes(made.data))] == list(range(10))


def test_the_guard_of_these_tests_notices_what_is_opened() -> None:
    with counted() as opened:
        made_of(stored(Format.V1, Codec.GZIP), storage=V2)
    assert "decode" in opened


def test_a_batch_gets_a_producers_header() -> None:
    source = stored(
        Format.V2, Codec.LZ4, 70, 10, producer_id=9, producer_epoch=1, base_sequence=5, is_transactional=True
    )
    (parcel,) = parts(source, start=70)
    batch = batch_of(forward(parcel, V2, OURS))
    assert (batch.base_offset, batch.partition_leader_epoch) == (0, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == OURS
    assert not batch.is_transactional
    assert OURS.behind(20).sequence == 4
    bare = batch_of(forward(parcel, V2))
    assert (bare.producer_id, bare.producer_epoch, bare.base_sequence) == (-1, -1, -1)


@pytest.mark.parametrize("target", [Format.V1, Format.V2])
def test_no_producer_says_when_a_broker_appended(target: Format) -> None:
    source = stored(target, Codec.GZIP, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=START + 99)
    (made,) = made_of(source, storage=Storage(target))
    entry = MessageView.parse(memoryview(as_bytes(made.data))) if target is Format.V1 else batch_of(made)
    assert entry is not None
    entry.verify()
    assert entry.timestamp_type is TimestampType.CREATE_TIME


def test_a_batch_with_holes_is_opened_and_its_records_follow_each_other() -> None:
    source = encode_records(some(100, 8, holes=True), Format.V2, Codec.ZSTD)
    (parcel,) = parts(source, start=100)
    assert parcel.why == "its offsets have holes"
    made = forward(parcel, V2, OURS)
    batch = batch_of(made)
    assert (made.records, batch.codec, batch.base_sequence) == (8, Codec.ZSTD, OURS.sequence)
    assert [each[0] for each in seen(batch.buffer)] == list(range(8))
    assert [each[1:] for each in seen(batch.buffer)] == [each[1:] for each in seen(source)]


def test_a_batch_with_a_delete_horizon_is_opened() -> None:
    source = stored(Format.V2, Codec.GZIP, has_delete_horizon=True, base_timestamp=START + 5000)
    (parcel,) = parts(source)
    assert parcel.why == "it has a delete horizon"
    batch = batch_of(forward(parcel, V2))
    assert batch.delete_horizon_ms is None
    assert [each[1] for each in seen(batch.buffer)] == [each[1] for each in seen(source)]


@pytest.mark.parametrize(("target", "why"), [(Format.V2, "begins before"), (Format.V1, "may begin before")])
def test_of_a_set_that_reaches_over_the_start_of_the_log_the_rest_is_copied(target: Format, why: str) -> None:
    source, behind = stored(target, Codec.GZIP, 40, 10), stored(target, Codec.GZIP, 50, 10)
    first, second = parts(source, behind, start=43, storage=Storage(target), at_boundary=False)
    assert first.why is not None
    assert why in first.why
    assert second.why is None
    made = forward(first, Storage(target))
    assert [each[1:] for each in seen(as_bytes(made.data))] == [each[1:] for each in seen(source)[3:]]


def test_a_wrapper_behind_a_hole_gets_an_offset_that_is_not_below_its_last_message() -> None:
    (parcel,) = parts(stored(Format.V1, Codec.GZIP, 90, 10), start=80, storage=V1)
    made = MessageView.parse(memoryview(as_bytes(forward(parcel, V1).data)))
    assert made is not None
    assert made.offset == 19  # 9 without the hole


def test_plain_messages_go_together_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    source = [encode_records(some(at, 1), Format.V1) for at in range(9)]
    (whole,) = made_of(*source, storage=V1)
    assert (whole.records, [each[1:] for each in seen(as_bytes(whole.data))]) == (
        9,
        [each[1:] for each in seen(b"".join(source))],
    )
    monkeypatch.setattr(rewrite, "RUN_BYTES", 4 * len(source[0]))
    runs = parts(*source, storage=V1)
    assert [(each.first, each.next_offset) for each in runs] == [(0, 4), (4, 8), (8, 9)]
    assert b"".join(bytes(each.data) for each in runs) == b"".join(source)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(("source", "target"), [(V0, V1), (V0, V2), (V1, V2), (V2, V1), (V1, V0), (V2, V0)])
def test_what_the_target_does_not_store_is_converted(source: Storage, target: Storage, codec: Codec) -> None:
    data = stored(source.format, codec, 30, 10)
    (parcel,) = parts(data, start=30, storage=target)
    made = forward(parcel, target)
    assert (made.magic, made.codec, made.records) == (target.format.magic, codec, 10)
    times = source is not V0 and target is not V0
    expected = [(at, each[1] if times else -1, *each[2:]) for at, each in enumerate(seen(data))]
    assert seen(as_bytes(made.data)) == expected


def test_headers_that_the_target_cannot_hold_are_reported() -> None:
    source = encode_records([some(0, 1)[0]._replace(headers=(("name", b"x"),))], Format.V2, Codec.GZIP)
    with pytest.raises(UnsupportedForMessageFormatError, match="record headers, which magic 1"):
        made_of(source, storage=V1)


@pytest.mark.parametrize("storage", [V1, Storage(Format.V2, zstd=False)])
def test_zstd_becomes_gzip_where_the_target_does_not_know_it(storage: Storage) -> None:
    (made,) = made_of(stored(Format.V2, Codec.ZSTD), storage=storage)
    assert made.codec is Codec.GZIP
    assert len(seen(as_bytes(made.data))) == 10


def test_markers_aborted_and_empty_batches_are_left_out() -> None:
    marker = encode_records(
        [some(20, 1)[0]._replace(key=bytes([0, 0, 0, ControlType.ABORT]), value=bytes(6))],
        Format.V2,
        header=BatchHeader(producer_id=5, producer_epoch=0, is_control=True, is_transactional=True),
    )
    sets = [
        stored(Format.V2, Codec.GZIP, 0, 10, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True),
        stored(Format.V2, Codec.GZIP, 10, 10, producer_id=6, producer_epoch=0, base_sequence=0, is_transactional=True),
        marker,
        build_batch(b"", base_offset=21, last_offset_delta=4, base_timestamp=-1, max_timestamp=-1, record_count=0),
        stored(Format.V2, Codec.GZIP, 26, 10, producer_id=5, producer_epoch=0, base_sequence=10, is_transactional=True),
        stored(Format.V2, Codec.GZIP, 36, 10),
    ]
    found = fetched(*sets, stable=36, aborted=(AbortedRange(5, 0),))
    wanted = list(parcels(found, 0, V2, at_boundary=True))
    assert [(each.first, each.next_offset) for each in wanted] == [(10, 20), (26, 36)]
    assert {each.why for each in wanted} == {None}


@pytest.mark.parametrize("target", [Format.V0, Format.V1, Format.V2])
def test_damage_is_not_given_a_new_checksum(target: Format) -> None:
    data = bytearray(stored(target, Codec.GZIP))
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="crc"):
        made_of(bytes(data), storage=Storage(target))


def test_records_that_are_there_already_are_skipped() -> None:
    (closed,) = parts(stored(Format.V2, Codec.GZIP))
    assert forward(closed, V2, OURS, 10).records == 10
    with pytest.raises(UnsupportedForMessageFormatError, match="of which the target has 4"):
        forward(closed, V2, OURS, 4)
    (converted,) = parts(*(encode_records(some(at, 1), Format.V1) for at in range(10)))
    made = forward(converted, V2, OURS, 4)
    assert made.records == 10
    assert [each[1] for each in seen(as_bytes(made.data))] == [START] * 6  # each is the first of its set
    assert as_bytes(forward(converted, V2, OURS, 10).data) == b""
