"""Surveys say what decoding says, and say the same through the plain twins and the compiled kernels, of any bytes."""

import os
from collections.abc import Callable
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BatchTooLargeError, CorruptRecordError
from magicbyte.engine.records import survey_kernels
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.records.enriched import build_enriched_message, encode_tags
from magicbyte.engine.records.forms import form_for
from magicbyte.engine.records.layout import Dialect, TimestampType
from magicbyte.engine.records.message import build_message
from magicbyte.engine.records.survey import Survey, first_of_time, survey_messages, survey_records

RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(-(1 << 40), 1 << 40),
        st.just(0),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=30,
)


def both(survey: Callable[[], Survey]) -> Survey | str:
    """What the two forms of a survey say, which is the same."""
    said = []
    for form in ("plain", "compiled"):
        with mock.patch.dict(os.environ, MAGICBYTE_KERNELS=form):
            try:
                found = survey()
                said.append((found._replace(lying=None), str(found.lying)))
            except CorruptRecordError as error:
                said.append((str(error), ""))
    assert said[0] == said[1]
    return said[0][0]


def facts(records: list[Record], times: list[int]) -> tuple[int, ...]:
    known = [time for time in times if time != -1]
    latest = max(times)
    return (len(records), sum(record.key is None for record in records), min(known, default=None), latest,
            times.index(latest), -1)  # type: ignore[return-value]  # fmt: skip


def numbered(records: list[Record]) -> list[Record]:
    return [record._replace(offset=at) for at, record in enumerate(records)]


@given(records=RECORDS.map(numbered))
def test_a_batch_is_surveyed_as_it_was_made(records: list[Record]) -> None:
    batch = RecordBatch(memoryview(encode_records(records, Format.V2)))
    found = both(lambda: survey_records(batch.records_section, len(records), batch.base_timestamp))
    assert isinstance(found, Survey)
    assert found[:6] == facts(records, [record.timestamp for record in records])
    assert found.headers == sum(len(record.headers) for record in records)


@given(records=RECORDS.map(numbered), magic=st.integers(0, 1))
def test_messages_are_surveyed_as_they_were_made(records: list[Record], magic: int) -> None:
    made = b"".join(build_message(magic, each.offset, each.timestamp, each.key, each.value) for each in records)
    found = both(lambda: survey_messages(memoryview(made), magic))
    assert isinstance(found, Survey)
    assert found[:6] == facts(records, [record.timestamp if magic else -1 for record in records])
    assert (found.append_bits, found.nested, found.other_magic) == (0, -1, -1)
    other = both(lambda: survey_messages(memoryview(made), 1 - magic))
    assert isinstance(other, Survey)
    assert other.other_magic == 0


@given(data=st.data())
def test_any_bytes_are_surveyed_alike_by_both_forms(data: st.DataObject) -> None:
    records = [Record(at, 5, 0, b"k" * at, b"v" * 20, (("h", b"x"),) * (at % 2)) for at in range(4)]
    kind = data.draw(st.sampled_from(["batch", "0", "1", "enriched"]))
    if kind == "batch":
        spoilt = bytearray(RecordBatch(memoryview(encode_records(records, Format.V2))).records_section)
    elif kind == "enriched":
        tags = encode_tags({0: 5}) + b"\x63xy"
        spoilt = bytearray(b"".join(build_enriched_message(at, b"k", b"v", tags=tags) for at in range(4)))
    else:
        spoilt = bytearray(encode_records(records, Format(kind)))
    for _ in range(data.draw(st.integers(0, 4))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    view = memoryview(bytes(spoilt[: data.draw(st.integers(0, len(spoilt)))]))
    if kind == "batch":
        count = data.draw(st.integers(-1, 6))
        both(lambda: survey_records(view, count, 1 << 62))
    else:
        dialect = Dialect.ENRICHED if kind == "enriched" else Dialect.KAFKA
        both(lambda: survey_messages(view, int(kind == "1"), dialect=dialect))


def test_a_message_over_the_limit_is_named() -> None:
    small, large = build_message(1, 0, 5, b"k", b"v"), build_message(1, 7, 5, b"k", bytes(100))
    with pytest.raises(BatchTooLargeError, match=f"position {len(small)}, offsets 7..7.* found {len(large)}"):
        survey_messages(memoryview(small + large), 1, limit=len(large) - 1)
    assert survey_messages(memoryview(small + large), 1, limit=len(large)).records == 2


@given(
    records=RECORDS,
    compressed=st.booleans(),
    append_time=st.booleans(),
    timestamp=st.integers(-(1 << 40), 1 << 40),
    first=st.integers(0, 40),
)
def test_the_first_record_of_a_time_is_the_one_that_decoding_finds(
    records: list[Record], compressed: bool, append_time: bool, timestamp: int, first: int
) -> None:
    written = [Record(5 + at, each.timestamp, 0, each.key, each.value, each.headers) for at, each in enumerate(records)]
    batch = RecordBatch(
        memoryview(bytearray(encode_records(written, Format.V2, Codec.LZ4 if compressed else Codec.NONE)))
    )
    if append_time:
        batch.set_max_timestamp(TimestampType.LOG_APPEND_TIME, 1 << 39)
    wanted = [
        (each.timestamp, each.offset)
        for columns in decode(batch.buffer)
        for each in columns
        if each.timestamp >= timestamp and each.offset >= first
    ]
    for form in ("plain", "compiled"):
        with mock.patch.dict(os.environ, MAGICBYTE_KERNELS=form):
            assert first_of_time(batch, timestamp, first) == (wanted[0] if wanted else None)


def test_a_search_for_a_time_tells_of_records_that_are_not_whole() -> None:
    content = bytearray(encode_records([Record(0, 1, 0, b"key", b"value")], Format.V2))
    content[61] = 60  # the record's length
    for form in ("plain", "compiled"):
        with (
            mock.patch.dict(os.environ, MAGICBYTE_KERNELS=form),
            pytest.raises(CorruptRecordError, match="record length"),
        ):
            first_of_time(RecordBatch(memoryview(content)), 2, 0)


@given(RECORDS)
@example([Record(0, survey_kernels.LEAST_TIME, 0, b"", b"")])
def test_columns_are_summed_up_alike_by_both_forms(records: list[Record]) -> None:
    batch = encode_records([each._replace(offset=at) for at, each in enumerate(records)], Format.V2, Codec.NONE)
    said = []
    for form in ("plain", "compiled"):
        with mock.patch.dict(os.environ, MAGICBYTE_KERNELS=form):
            (columns,) = decode(memoryview(batch))
            assert columns.key is not None
            assert columns.value is not None
            assert columns.headers is not None
            make = form_for(compiled=form == "compiled")
            counted = make.zeros(survey_kernels.COUNTED)
            cells = columns.timestamp, columns.key.length, columns.value.length, columns.headers.count
            make.form(survey_kernels.count_columns)(*cells, counted)
            said.append([int(each) for each in counted])
    times = [each.timestamp for each in records if each.timestamp != -1]
    expected = [
        sum(each.key is not None for each in records),
        sum(each.value is None for each in records),
        sum(bool(each.headers) for each in records),
        sum(len(each.headers) for each in records),
        min(times, default=survey_kernels.MOST_TIME),
        max(times, default=survey_kernels.LEAST_TIME),
    ]
    assert said == [expected, expected]
