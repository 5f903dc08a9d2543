"""A stamped header is what the setters make of a copy, while the entry itself stays as it is."""

import itertools

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.enriched import EnrichedMessage, Tag, build_enriched_message, encode_tags
from magicbyte.engine.records.layout import ATTRIBUTES, TimestampType
from magicbyte.engine.records.message import MessageView

RECORDS = [Record(0, 1000, 0, b"key", b"value"), Record(1, 2000, 0, None, b"")]
TIMES = list(itertools.product((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME), (2000, 77, -1)))
CODECS = [Codec.NONE, Codec.GZIP]


@pytest.mark.parametrize(("kind", "timestamp"), TIMES)
@pytest.mark.parametrize("codec", CODECS)
def test_a_stamped_batch_is_what_the_setters_make_of_it(codec: Codec, kind: TimestampType, timestamp: int) -> None:
    data = bytearray(encode_records(RECORDS, Format.V2, codec))
    ATTRIBUTES.type.pack_into(data, ATTRIBUTES.start, codec | 0x4080)  # bits without a meaning
    copy = RecordBatch(memoryview(bytearray(data)))
    copy.set_base_offset(9)
    copy.set_partition_leader_epoch(4)
    copy.set_max_timestamp(kind, timestamp)
    batch = RecordBatch(memoryview(bytes(data)))
    head = batch.stamped(9, 4, kind, timestamp)
    assert head + batch.records_section == copy.buffer
    assert batch.buffer == data


@pytest.mark.parametrize(("kind", "timestamp"), TIMES)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_stamped_message_is_what_the_setters_make_of_it(
    magic: int, codec: Codec, kind: TimestampType, timestamp: int
) -> None:
    data = encode_records(RECORDS[:1], Format(str(magic)), codec)
    copy = MessageView(memoryview(bytearray(data)))
    copy.set_offset(9)
    if magic:
        copy.set_max_timestamp(kind, timestamp)
    message = MessageView(memoryview(data))
    head = message.stamped(9, kind, timestamp)
    assert head + message.buffer[len(head) :] == copy.buffer
    copy.verify()


@pytest.mark.parametrize("tags", [{}, {Tag.TIMESTAMP: 5}, {Tag.TIMESTAMP: 5, Tag.HONOR_SHIP: 1}, {Tag.HONOR_SHIP: 1}])
@pytest.mark.parametrize("milliseconds", [1_700_000_000_123, 3_000_000_000_000])
def test_a_stamped_enriched_message_is_what_the_setters_make_of_it(tags: dict[int, int], milliseconds: int) -> None:
    data = build_enriched_message(0, b"key", b"value", tags=encode_tags(tags) + b"\x63other")
    wanted = {Tag.HONOR_SHIP: 0} | ({Tag.TIMESTAMP: milliseconds} if Tag.TIMESTAMP in tags else {})
    copy = EnrichedMessage(memoryview(bytearray(EnrichedMessage(memoryview(data)).with_tags(wanted))))
    copy.set_offset(9)
    copy.set_metadata(seconds=milliseconds // 1000)
    message = EnrichedMessage(memoryview(data))
    assert message.stamped(9, milliseconds, honor_ship=False) + message.body == copy.buffer
    copy.verify()
    assert message.buffer == data
