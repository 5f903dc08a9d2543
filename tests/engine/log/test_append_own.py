"""Sets that the broker has encoded are stored as the general path stores them, without a look inside."""

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import AppendRefusedError, ErrorCode
from magicbyte.engine.log.append.prepare import prepare, prepare_own
from magicbyte.engine.log.append.record_set import RecordSet
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import TimestampType

NOW, NEXT, EPOCH = 1_700_000_000_000, 40, 7
PRODUCER = BatchHeader(producer_id=5, producer_epoch=1, base_sequence=0, is_transactional=True)


def records(count: int, codec: Codec = Codec.NONE, header: BatchHeader | None = None) -> bytes:
    rows = [Record(at, NOW, 0, b"key %d" % at, b"value") for at in range(count)]
    return encode_records(rows, Format.V2, codec, header=header or BatchHeader())


def marker() -> bytes:
    return build_marker(
        ControlType.COMMIT, base_offset=0, timestamp=NOW, producer_id=5, producer_epoch=1, coordinator_epoch=3
    )


SETS = {
    "one record": records(1),
    "three records": records(3),
    "compressed": records(3, Codec.GZIP),
    "of a transaction": records(2, header=PRODUCER),
    "a marker": marker(),
}
RULES = {
    "as sent": AppendRules(),
    "uncompressed": AppendRules(codec=Codec.NONE),
    "gzip": AppendRules(codec=Codec.GZIP),
    "compacted": AppendRules(compacted=True),
    "time of the append": AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME),
}


def stored(records: bytes, rules: AppendRules, *, is_own: bool) -> RecordSet:
    view = memoryview(bytearray(records))
    if is_own:
        return prepare_own(view, rules, next_offset=NEXT, now_ms=NOW, leader_epoch=EPOCH)
    return prepare(view, rules, next_offset=NEXT, now_ms=NOW, leader_epoch=EPOCH, is_ours=True)


def facts(stored: RecordSet) -> dict[str, object]:
    """All that a log learns of a set, but the counts of codec calls and the room: nothing is opened."""
    left_out = ("pieces", "batches", "decompressed", "room")
    header = RecordBatch.__slots__
    return {
        "bytes": bytes(stored),
        "headers": [[getattr(batch, name) for name in header if name != "buffer"] for batch in stored.batches],
        "batches": [bytes(batch.buffer) for batch in stored.batches],
        **{name: getattr(stored, name) for name in stored.__struct_fields__ if name not in left_out},
    }


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
@pytest.mark.parametrize("own", SETS.values(), ids=SETS)
def test_a_set_of_the_broker_is_stored_as_if_it_were_validated(own: bytes, rules: AppendRules) -> None:
    assert facts(stored(own, rules, is_own=True)) == facts(stored(own, rules, is_own=False))


def test_batches_of_several_effects_follow_each_other() -> None:
    own = stored(records(2) + records(1, header=PRODUCER) + records(3), AppendRules(), is_own=True)

    assert [(batch.base_offset, batch.last_offset) for batch in own.batches] == [(40, 41), (42, 42), (43, 45)]
    assert [batch.partition_leader_epoch for batch in own.batches] == [EPOCH] * 3
    assert (own.first_offset, own.last_offset, own.max_timestamp, own.max_timestamp_offset) == (40, 45, NOW, 41)
    found = memoryview(bytes(own))
    for batch in own.batches:
        again = RecordBatch.parse(found)
        assert again is not None
        again.verify()
        assert bytes(again.buffer) == bytes(batch.buffer)
        found = found[again.size :]
    assert not found


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        (AppendRules(max_message_bytes=60), ErrorCode.MESSAGE_TOO_LARGE),
        (AppendRules(segment_bytes=60), ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_the_limits_of_the_topic_hold_for_the_broker_too(rules: AppendRules, code: ErrorCode) -> None:
    with pytest.raises(AppendRefusedError) as refused:
        stored(records(1), rules, is_own=True)
    assert refused.value.code is code


def test_a_marker_is_refused_where_the_format_has_none() -> None:
    with pytest.raises(AppendRefusedError):
        stored(marker(), AppendRules(format=Format.V1), is_own=True)
