"""The index entries that a set gets: many small messages are walked over at once, not one by one."""

import random

import pytest
from msgspec.structs import replace

from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.record_set import Due, IndexEntry, PlainEntries, RecordSet, indexed, record_set
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.log.files.index_writer import LATEST_RULES
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.message import MessageView, build_message
from magicbyte.engine.sentinels import NO_TIMESTAMP

BEFORE = (NO_TIMESTAMP, 0)  # the largest timestamp before a set, and its offset
NOW = 1_700_000_000_000


def messages(rng: random.Random, magic: int) -> bytes:
    count, offset, found = rng.randrange(1, 60), 0, []
    for _ in range(count):
        offset += rng.choice((1, 1, 1, 7))
        value = bytes(rng.choice((0, 3, 40, 400, 5000)))
        found.append(build_message(magic, offset, rng.randrange(5) if magic else -1, None, value))
    return b"".join(found)


def one_by_one(data: bytes, since: int, interval: int) -> Due:
    """Return what a segment to which each message is appended by itself has in its indexes."""
    largest, found = BEFORE, []
    for position, entry in entries(memoryview(data)):
        assert isinstance(entry, MessageView)
        if entry.timestamp > largest[0]:
            largest = entry.timestamp, entry.offset
        if since > interval:
            found.append(IndexEntry(position, entry.offset, entry.offset, *largest))
            since = 0
        since += entry.size
    return Due(found, since, *largest)


@pytest.mark.parametrize("form", ["plain", "compiled"])
@pytest.mark.parametrize("magic", [0, 1])
def test_many_messages_get_the_entries_that_each_by_itself_would_get(
    magic: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    rng, found = random.Random(magic), 0
    for _ in range(200):
        data = messages(rng, magic)
        made = record_set(data, LATEST_RULES)
        assert isinstance(made.parts, PlainEntries)
        for since, interval in ((0, 4096), (5000, 4096), (4096, 4096), (100, 300), (0, 0), (0, 1 << 30)):
            due = made.due(since, interval, *BEFORE)
            assert due == one_by_one(data, since, interval)
            found += len(due.entries)
    assert found > 1000


def test_batches_count_with_their_last_offset_and_largest_timestamp() -> None:
    rules = AppendRules()
    first, second = (
        bytes(prepare(memoryview(one(count)), rules, next_offset=offset, now_ms=NOW, leader_epoch=0))
        for offset, count in ((10, 3), (13, 2))
    )
    made = record_set(first + second, LATEST_RULES)
    assert isinstance(made.parts, PlainEntries)
    expected = [IndexEntry(0, 10, 12, NOW + 2, 12), IndexEntry(len(first), 13, 14, NOW + 2, 12)]
    assert made.due(1, 0, *BEFORE) == Due(expected, len(second), NOW + 2, 12)


def one(count: int) -> bytes:
    """Return a batch of magic 2."""
    return encode_records([Record(at, NOW + at, 0, None, b"value") for at in range(count)], Format.V2)


@pytest.mark.parametrize("codec", list(Codec)[:4])
@pytest.mark.parametrize("form", [Format.V0, Format.V1])
@pytest.mark.parametrize("count", [1, 3, 300])
def test_messages_that_were_prepared_are_what_their_headers_say(form: Format, codec: Codec, count: int) -> None:
    records = [Record(at, NOW - at if form is Format.V1 else -1, 0, b"key", bytes(40)) for at in range(count)]
    produced = memoryview(encode_records(records, form, codec))
    prepared = prepare(produced, AppendRules(format=form), next_offset=7, now_ms=NOW, leader_epoch=0, request_version=2)
    made, read = indexed(prepared, LATEST_RULES), record_set(bytes(prepared), LATEST_RULES)
    assert b"".join(made.pieces) == bytes(prepared)
    assert facts(made) == facts(read)
    assert made.first_offset == 7
    for since, interval in ((0, 4096), (1, 0), (5000, 4096)):
        assert made.due(since, interval, *BEFORE) == read.due(since, interval, *BEFORE)


def facts(made: RecordSet) -> tuple[object, ...]:
    return made.size, made.last_offset, made.first_timestamp, made.max_timestamp, list(made.batches), made.has_older


def test_before_3_9_1_a_set_is_one_part() -> None:
    made = record_set(messages(random.Random(5), 1), replace(LATEST_RULES, entry_per_batch=False))
    (part,) = made.due(1, 0, *BEFORE).entries
    assert (part.position, part.first_offset, part.last_offset) == (0, made.first_offset, made.last_offset)
