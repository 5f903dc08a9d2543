"""Every entry of every golden log, decoded and encoded again: Kafka's bytes, also inside what is compressed."""

import pytest

import golden_data
from magicbyte.engine.codecs import Codec, Lz4Header, decompress
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import RecordColumns
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import BatchHeader, Format, encode
from magicbyte.engine.records.layout import ATTRIBUTES, LOG_APPEND_TIME_BIT, TimestampType
from magicbyte.engine.records.message import MessageView
from magicbyte.engine.records.scan import scan

CASES = [case for case in golden_data.log_cases() if case.has_records]
LIMIT = 1 << 24


def records_of(entry: bytes | memoryview, *, verify: bool = True) -> RecordColumns:
    (columns,) = decode(memoryview(entry), DecodeOptions(control=True, verify=verify))
    return columns


def own_times(batch: RecordBatch) -> bytes:
    """The batch as CreateTime: its records then have the timestamps that their producer gave them."""
    entry = bytearray(batch.buffer)
    ATTRIBUTES.write(memoryview(entry), batch.attributes & ~LOG_APPEND_TIME_BIT)
    return bytes(entry)


def header_of(batch: RecordBatch) -> BatchHeader:
    return BatchHeader(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        base_timestamp=batch.base_timestamp,
        timestamp_type=batch.timestamp_type,
        max_timestamp=batch.max_timestamp,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        has_delete_horizon=batch.delete_horizon_ms is not None,
        partition_leader_epoch=batch.partition_leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def encoded_again(entry: memoryview) -> tuple[object, object]:
    """What must be equal: the bytes that Kafka wrote and that we write, decompressed where they are compressed."""
    magic, attributes = entry[16], entry[22 if entry[16] == 2 else 17]
    codec = Codec(attributes & 7)
    if magic == 2:
        batch = RecordBatch(entry)
        columns = records_of(own_times(batch), verify=False)
        written = encode(columns, Format.V2, codec, batches=[(len(columns), header_of(batch))])
        if codec is Codec.NONE:
            return bytes(entry), bytes(written)
        again = RecordBatch(written)
        again.verify()
        sections = [bytes(decompress(codec, each.records_section, limit=LIMIT)) for each in (batch, again)]
        assert header_of(again) == header_of(batch)
        assert again.record_count == batch.record_count
        return sections[0], sections[1]
    target = Format(str(magic))
    columns = records_of(entry)
    if codec is Codec.NONE:
        return bytes(entry), bytes(encode(columns, target))
    wrapper = MessageView(entry)
    header = BatchHeader(timestamp_type=wrapper.timestamp_type, max_timestamp=wrapper.timestamp)
    again = MessageView(encode(columns, target, codec, batches=[(len(columns), header)]))
    again.verify()
    assert (again.offset, again.attributes, again.timestamp) == (wrapper.offset, wrapper.attributes, wrapper.timestamp)
    if wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME:  # a broker changes only the wrapper's timestamp
        return list(columns), list(records_of(again.buffer))
    payloads = []
    for each in (wrapper, again):
        assert each.value is not None
        payloads.append(bytes(decompress(codec, each.value, limit=LIMIT, lz4_header=Lz4Header.ANY)))
    return payloads[0], payloads[1]


@pytest.mark.parametrize("form", ["plain", "compiled"])
@pytest.mark.parametrize("case", golden_data.one_of_each_kind(CASES))
def test_what_kafka_wrote_is_written_again_byte_for_byte(
    case: golden_data.Case, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    for content in case.segments().values():
        view = memoryview(content)
        table = scan(view)
        for position, size, count in zip(table.position, table.size, table.count, strict=True):
            if count == 0:
                continue
            stored, written = encoded_again(view[position : position + size])
            assert written == stored
