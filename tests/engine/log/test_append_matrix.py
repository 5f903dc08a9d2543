"""Every cell: produced format x codec x stored format x compression.type x timestamp type, in place or rebuilt.

What is expected comes from the first table of docs/internals/append.md. In place is shown by the codecs' call counts,
by the identity of the buffers and by a hash of the payload.
"""

import hashlib
import itertools
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.log.made_sets import NOW, A, enriched_set, kafka_set, value_start
from magicbyte.engine import codecs
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import AppendRefusedError
from magicbyte.engine.log.append.prepare import prepare
from magicbyte.engine.log.append.record_set import RecordSet
from magicbyte.engine.log.append.rules import AppendRules
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.enriched import EnrichedMessage
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import Dialect, TimestampType

PAGE = Path(__file__).parents[3] / "docs/internals/append.md"
RECORDS = (A, Record(1, NOW + 3, 0, b"", b"w" * 300), Record(2, NOW, 0, b"x", None))
STORED = (Format.V0, Format.V1, Format.V2, Format.ENRICHED)
LATER = NOW + 7777
TYPES = (None, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
APPEND_TIME = TimestampType.LOG_APPEND_TIME
PRODUCED = [
    (produced, codec) for produced in STORED for codec in Codec if codec is not Codec.ZSTD or produced is Format.V2
]


@cache
def cells() -> dict[str, list[str]]:
    """The first table of the page: what is produced to what becomes of it, by stored format."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").partition("\n## ")[0].splitlines() if line[:2] == "| "]
    return {row[0]: row[1:] for row in ([cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[1:])}


def expected_in_place(produced: Format, codec: Codec, stored: Format) -> bool:
    """What the page says where the codec stays."""
    kind = "compressed" if codec else "plain"
    row = {Format.V2: "2", Format.ENRICHED: "enriched"}.get(produced, f"{produced.value} {kind}")
    return cells()[row][STORED.index(stored)].startswith("in place")


def made(produced: Format, codec: Codec) -> bytes:
    if produced is Format.ENRICHED:
        return enriched_set(codec, RECORDS)
    return kafka_set(produced.magic, codec, RECORDS)


def payload_hash(data: bytes, dialect: Dialect) -> list[str]:
    found = []
    for _, entry in entries(data, dialect):
        start = value_start(bytes(entry.buffer)) if not isinstance(entry, EnrichedMessage) else -len(entry.value or b"")
        found.append(hashlib.sha256(entry.buffer[start or len(entry.buffer) :]).hexdigest())
    return found


@pytest.mark.parametrize("kind", [TimestampType.CREATE_TIME, APPEND_TIME], ids=lambda kind: str(kind.label))
@pytest.mark.parametrize(("produced", "codec"), PRODUCED, ids=lambda part: str(part.name))
def test_each_cell_is_stored_as_the_page_says(
    produced: Format, codec: Codec, kind: TimestampType, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch)
    for stored, setting in itertools.product(STORED, TYPES):
        data = made(produced, codec)
        target = codec if setting is None else setting
        rules = AppendRules(format=stored, codec=setting, timestamp_type=kind)
        calls.clear()
        if Codec.ZSTD in (codec, target) and stored is not Format.V2:
            with pytest.raises(AppendRefusedError, match="zstd"):
                append(data, rules, produced)
            continue
        done = append(data, rules, produced)
        in_place = target is codec and expected_in_place(produced, codec, stored)
        assert done.rebuilt != in_place, (stored, setting)
        assert done.compressed == calls.count("compress") == int(not in_place and target is not Codec.NONE)
        assert done.decompressed == calls.count("decompress") == int(codec is not Codec.NONE)
        if in_place:
            check_in_place(done, data, produced.dialect)
        else:
            assert {entry.codec for _, entry in entries(bytes(done), stored.dialect)} == {target}
        check_records(done, rules, produced)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of codecs from now on."""
    calls: list[str] = []

    def noting(name: str, function: Any) -> Any:
        def noted(codec: Codec, *arguments: Any, **options: Any) -> Any:
            if codec is not Codec.NONE:
                calls.append(name)
            return function(codec, *arguments, **options)

        return noted

    compress, decompress = noting("compress", codecs.compress), noting("decompress", codecs.decompress_into)
    for module in ("encode", "message", "enriched"):
        monkeypatch.setattr(f"magicbyte.engine.records.{module}.compress", compress)
    monkeypatch.setattr("magicbyte.engine.log.append.sets.decompress_into", decompress)
    return calls


def append(data: bytes, rules: AppendRules, produced: Format) -> RecordSet:
    return prepare(
        memoryview(data), rules, next_offset=100, now_ms=LATER, leader_epoch=7, request_version=None,
        dialect=produced.dialect,
    )  # fmt: skip


def check_in_place(done: RecordSet, data: bytes, dialect: Dialect) -> None:
    assert len(bytes(done)) == len(data)
    assert payload_hash(bytes(done), dialect) == payload_hash(data, dialect)
    views = [part for part in done.pieces if part.obj is data]
    heads = [part for part in done.pieces if part.obj is not data]
    values = [record.value for record in RECORDS if record.value]
    assert sum(map(len, heads)) <= 61 * len(heads)
    if not any(entry.codec for _, entry in entries(data, dialect)):
        assert all(any(value in bytes(view) for view in views) for value in values)


def check_records(done: RecordSet, rules: AppendRules, produced: Format) -> None:
    """Offsets are consecutive, keys and values stay, timestamps are those of the topic's type."""
    stored = rules.format
    found = [record for columns in decode(memoryview(bytes(done)), dialect=stored.dialect) for record in columns]
    assert [record.offset for record in found] == [100, 101, 102]
    assert (done.first_offset, done.last_offset, done.records) == (100, 102, 3)
    assert [(record.key, record.value) for record in found] == [(record.key, record.value) for record in RECORDS]
    own = [record.timestamp if produced in (Format.V1, Format.V2) else -1 for record in RECORDS]
    by_broker = stored is Format.ENRICHED or (rules.timestamp_type is APPEND_TIME and stored is not Format.V0)
    times = [-1] * 3 if stored is Format.V0 else [LATER] * 3 if by_broker else own
    if stored is Format.ENRICHED and produced is Format.ENRICHED and not done.rebuilt:
        times = [LATER // 1000 * 1000] * 3  # without a tag for milliseconds
    assert [record.timestamp for record in found] == times
    assert done.max_timestamp == max(times)
    answered = stored is Format.ENRICHED or rules.timestamp_type is APPEND_TIME
    assert done.log_append_time == (LATER if answered else -1)
    assert (done.max_timestamp_offset == -1) == (max(times) == -1)


def test_several_sets_of_the_old_formats_become_one() -> None:
    gzip, lz4, plain = (kafka_set(1, codec, RECORDS) for codec in (Codec.GZIP, Codec.LZ4, Codec.NONE))
    for stored in STORED[:3]:
        for data, codec in ((gzip + lz4, Codec.LZ4), (lz4 + gzip, Codec.GZIP), (gzip + plain, Codec.GZIP),
                            (plain + kafka_set(0, Codec.LZ4, RECORDS), Codec.LZ4)):  # fmt: skip
            done = prepare(memoryview(data), AppendRules(format=stored), next_offset=5, now_ms=NOW, leader_epoch=0,
                           request_version=2)  # fmt: skip
            assert done.rebuilt
            ((_, entry),) = entries(bytes(done))
            assert entry.codec is codec
            found = [record for columns in decode(memoryview(bytes(done))) for record in columns]
            assert [record.offset for record in found] == list(range(5, 11))
            assert [record.key for record in found] == [record.key for record in RECORDS] * 2


def test_plain_messages_of_both_magics_are_converted_one_by_one() -> None:
    data = kafka_set(0, Codec.NONE, RECORDS) + kafka_set(1, Codec.NONE, RECORDS)
    for stored, count in ((Format.V0, 6), (Format.V1, 6), (Format.V2, 1)):
        done = prepare(memoryview(data), AppendRules(format=stored), next_offset=5, now_ms=NOW, leader_epoch=0)
        assert [entry.magic for _, entry in entries(bytes(done))] == [stored.magic] * count
        assert done.records == 6


def test_a_set_that_is_decoded_in_several_pieces_becomes_one_batch() -> None:
    records = [Record(index, NOW, 0, b"key %d" % index, bytes(3000)) for index in range(1700)]
    data = kafka_set(0, Codec.NONE, records[:800]) + kafka_set(1, Codec.NONE, records[800:])
    assert len(data) > 5_000_000
    done = prepare(memoryview(data), AppendRules(max_message_bytes=1 << 23), next_offset=3, now_ms=NOW, leader_epoch=0,
                   request_version=2)  # fmt: skip
    ((_, entry),) = entries(bytes(done))
    assert entry.record_count == 1700
    found = [record for columns in decode(memoryview(bytes(done))) for record in columns]
    assert [(record.offset, record.key) for record in found] == [(3 + at, each.key) for at, each in enumerate(records)]


@pytest.mark.parametrize("form", ["plain", "compiled"])
@pytest.mark.parametrize("kind", [TimestampType.CREATE_TIME, APPEND_TIME], ids=lambda kind: str(kind.label))
@pytest.mark.parametrize("magic", [0, 1])
def test_many_small_messages_are_stored_as_if_each_came_alone(
    magic: int, kind: TimestampType, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    records = [Record(index, NOW + index % 7, 0, b"k%d" % index, b"v" * (index % 90)) for index in range(100)]
    rules = AppendRules(format=Format(str(magic)), timestamp_type=kind)
    data = kafka_set(magic, Codec.NONE, records)
    done = prepare(memoryview(data), rules, next_offset=40, now_ms=LATER, leader_epoch=0, request_version=2)
    alone = [
        prepare(memoryview(kafka_set(magic, Codec.NONE, [record])), rules, next_offset=40 + index, now_ms=LATER,
                leader_epoch=0, request_version=2)
        for index, record in enumerate(records)
    ]  # fmt: skip
    assert bytes(done) == b"".join(map(bytes, alone))
    assert (done.rebuilt, done.first_offset, done.last_offset, len(done.pieces)) == (False, 40, 139, 1)
    assert done.max_timestamp == max(each.max_timestamp for each in alone)
    assert done.max_timestamp_offset == (-1 if magic == 0 else 40 if kind is APPEND_TIME else 46)


def test_a_set_of_many_messages_is_the_same_through_twins_and_compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(index, NOW + index % 7, 0, b"key %d" % index, b"v" * (index % 50)) for index in range(300)]
    for produced, codec, stored in itertools.product(
        (0, 1, 2), (Codec.NONE, Codec.GZIP, Codec.LZ4), (Format.V0, Format.V1, Format.V2)
    ):
        data = memoryview(kafka_set(produced, codec, records))
        results = []
        for form in ("plain", "compiled"):
            monkeypatch.setenv("MAGICBYTE_KERNELS", form)
            done = prepare(data, AppendRules(format=stored), next_offset=7, now_ms=NOW, leader_epoch=1)
            found = [record for columns in decode(memoryview(bytes(done))) for record in columns]
            results.append((done.rebuilt, done.max_timestamp, done.max_timestamp_offset, found))
        assert results[0] == results[1]
        assert [record.offset for record in results[0][3]] == list(range(7, 307))
