"""Sets that are compressed already, made what a producer sends."""

import pytest

import golden_data
from magicbyte.access.client.compressed import as_produced
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError, UnsupportedForMessageFormatError
from magicbyte.engine.protocol import read_request
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.enriched import EnrichedMessage, Tag, build_enriched_message, build_enriched_wrapper
from magicbyte.engine.records.layout import Dialect, TimestampType

RECORDS = [Record(i, 1_600_000_000_000 + i % 3, 0, b"key" if i else None, b"value" * i) for i in range(5)]
APPENDED = [
    record._replace(offset=record.offset + 70, timestamp_type=TimestampType.LOG_APPEND_TIME) for record in RECORDS
]
CLOSED = [
    (target, codec)
    for target in Format
    for codec in Codec
    if codec and (codec is not Codec.ZSTD or target is Format.V2)
]


def records_of(data: bytes, target: Format) -> list[Record]:
    return [record for columns in decode(memoryview(data), dialect=target.dialect) for record in columns]


@pytest.mark.parametrize(("target", "codec"), CLOSED)
def test_a_set_from_a_log_becomes_a_producers_and_its_compressed_bytes_stay(target: Format, codec: Codec) -> None:
    header = BatchHeader(partition_leader_epoch=9, max_timestamp=1_700_000_000_000)
    stored = encode_records(APPENDED, target, codec, header=header)
    magic, made = as_produced(stored, target.dialect)
    assert magic == target.magic
    found = records_of(made, target)
    assert [(each.key, each.value) for each in found] == [(each.key, each.value) for each in RECORDS]
    if target is Format.V1 or target is Format.V2:  # the others have absolute offsets inside, or none that count
        assert [each.offset for each in found] == [0, 1, 2, 3, 4]
        assert {each.timestamp_type for each in found} <= {-1, 0}
    payload = {Format.V2: 61, Format.V1: 34, Format.V0: 26, Format.ENRICHED: -1}[target]
    if target is Format.ENRICHED:
        assert bytes(EnrichedMessage(memoryview(made)).body) == bytes(EnrichedMessage(memoryview(stored)).body)
    else:
        assert made[payload:] == stored[payload:]
    assert as_produced(made, target.dialect) == (magic, made)


def test_times_of_the_append_are_taken_back() -> None:
    header = BatchHeader(timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=1_700_000_000_000)
    stored = encode_records(RECORDS, Format.V2, Codec.GZIP, header=header)
    _, made = as_produced(stored)
    assert [each.timestamp for each in records_of(made, Format.V2)] == [each.timestamp for each in RECORDS]


def enriched_wrapper(count: int, keys: list[bytes | None], offsets: list[int]) -> EnrichedMessage:
    inner = b"".join(build_enriched_message(at, key, b"v") for at, key in zip(offsets, keys, strict=True))
    made = build_enriched_wrapper(Codec.GZIP, inner, num_messages=count, non_keyed=True, start_offset=5, seconds=77)
    return EnrichedMessage(memoryview(bytearray(made)))


@pytest.mark.parametrize(
    ("keys", "offsets", "honor", "non_keyed"),
    [([None, None], [0, 1], 1, 1), ([None, b"k"], [0, 1], 1, 0), ([None, None], [0, 7], 0, 1)],
)
def test_an_enriched_wrapper_gets_the_facts_of_its_messages(
    keys: list[bytes | None], offsets: list[int], honor: int, non_keyed: int
) -> None:
    _, made = as_produced(bytes(enriched_wrapper(2, keys, offsets).buffer), Dialect.ENRICHED)
    found = EnrichedMessage(memoryview(made))
    assert found.tags == {Tag.NUM_MESSAGES: 2, Tag.HONOR_SHIP: honor, Tag.NON_KEYED: non_keyed}
    assert (found.offset, found.seconds) == (0, -1)
    found.verify()


def test_a_wrapper_that_lies_about_its_count_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="messages in a wrapper: expected 3, found 2"):
        as_produced(bytes(enriched_wrapper(3, [None, None], [0, 1]).buffer), Dialect.ENRICHED)


def test_what_no_producer_may_send_is_refused() -> None:
    control = encode_records(RECORDS, Format.V2, Codec.GZIP, header=BatchHeader(is_transactional=True, producer_id=3))
    with pytest.raises(UnsupportedForMessageFormatError, match="transactional"):
        as_produced(control)
    with pytest.raises(UnsupportedForMessageFormatError, match="gaps"):
        as_produced(encode_records([RECORDS[0], RECORDS[2]], Format.V2, Codec.GZIP))
    with pytest.raises(CorruptRecordError, match="compresses"):
        as_produced(encode_records(RECORDS, Format.V2))
    with pytest.raises(BatchTooLargeError):
        as_produced(encode_records([RECORDS[0]._replace(value=bytes(10_000))], Format.V1, Codec.GZIP), limit=5000)


@pytest.mark.parametrize("target", list(Format))
def test_damaged_cut_and_several_sets_are_refused(target: Format) -> None:
    whole = encode_records(RECORDS, target, Codec.LZ4)
    for data in (b"", whole[:-1], whole + whole, whole[:-1] + bytes([whole[-1] ^ 1])):
        with pytest.raises(CorruptRecordError):
            as_produced(data, target.dialect)


def test_sets_that_real_brokers_took_are_sent_as_they_are() -> None:
    count = 0
    for case in golden_data.wire_cases("3.9.1-ibp2.8", "matrix-"):
        request = read_request(memoryview(case.request)[4:]).message
        data = bytes(request.topic_data[0].partition_data[0].records)  # type: ignore[attr-defined]
        if case.info.get("errorCode") or "none" in case.name:
            continue
        magic, made = as_produced(data)
        assert magic == data[16]
        assert made == data, case.id
        count += 1
    assert count > 10
