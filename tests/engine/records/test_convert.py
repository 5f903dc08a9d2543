"""Conversion between all formats: kept fields, counted losses, reported damage."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

import golden_data
from engine.records.enriched_control import build_enriched_control
from magicbyte.engine.codecs import Codec, Lz4Header, lz4_header_checksum
from magicbyte.engine.errors import (
    BatchTooLargeError,
    CorruptRecordError,
    MagicbyteError,
    UnsupportedCompressionError,
    UnsupportedForMessageFormatError,
)
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.convert import ConversionReport, convert
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import BatchHeader, Format, columns_of, encode, encode_records
from magicbyte.engine.records.enriched import (
    EnrichedControl,
    EnrichedMessage,
    LeaderEpochPayload,
    Tag,
    TransactionPayload,
    build_enriched_message,
    build_enriched_wrapper,
    encode_tags,
)
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import Dialect, TimestampType
from magicbyte.engine.records.message import MessageView, build_message, build_wrapper
from magicbyte.engine.wire.checksum import crc32

NONE, CREATE, APPEND = TimestampType
GZIP, SNAPPY, LZ4, ZSTD = Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD
V0, V1, V2, ENRICHED = Format
FORMS = ["plain", "compiled"]
SOURCES = [(each, codec) for each in Format for codec in Codec if codec is not ZSTD or each is V2]


def converted(data: bytes | memoryview, target: Format, **options: Any) -> bytes:
    return b"".join(convert(data, target, **options))


def decoded(data: bytes | memoryview, of: Format) -> list[Record]:
    return [record for columns in decode(memoryview(data), DecodeOptions(), dialect=of.dialect) for record in columns]


def kept(record: Record, target: Format) -> Record:
    """What a format holds of a record, its type of timestamp apart."""
    record = record._replace(timestamp_type=0)
    if target is not V2:
        record = record._replace(headers=())
    return record._replace(timestamp=-1) if target is V0 else record


def as_kept(records: list[Record], *formats: Format) -> list[Record]:
    for each in formats:
        records = [kept(record, each) for record in records]
    return records


CELLS = st.none() | st.binary(max_size=20)
TIMES = st.sampled_from((-1, 0, 999, 1000, 1_700_000_000_000, 1_700_000_000_001, 2**45)) | st.integers(-5, 2**62)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)


@st.composite
def logs(draw: Callable[[Any], Any], source: Format) -> tuple[bytes, list[Record]]:
    """A log in one format: batches, wrappers and rows of messages, of many codecs; and its records."""
    parts, records, offset = [], [], draw(st.sampled_from((0, 7, 2**31)))
    for _ in range(draw(st.integers(1, 4))):
        codec = draw(st.sampled_from([codec for each, codec in SOURCES if each is source]))
        kind, append_time = draw(st.sampled_from((CREATE, APPEND))), draw(st.integers(0, 2**50))
        set_of = []
        for _ in range(draw(st.integers(1, 5))):
            time = append_time if kind is APPEND else draw(TIMES)
            set_of.append(Record(offset, time, kind, draw(CELLS), draw(CELLS), draw(HEADERS)))
            offset += draw(st.sampled_from((1, 1, 2, 50)))
        parts.append(encode_records(set_of, source, codec))
        records += set_of
    return b"".join(parts), records


@given(data=st.data(), source=st.sampled_from(Format), target=st.sampled_from(Format))
def test_offset_key_value_and_what_else_both_formats_hold_is_kept_and_both_forms_write_the_same(
    data: st.DataObject, source: Format, target: Format
) -> None:
    log, records = data.draw(logs(source))
    codec = data.draw(st.sampled_from((None, Codec.NONE, SNAPPY)))
    if codec is None and target is not V2 and b"\x28\xb5\x2f\xfd" in log:
        codec = GZIP
    written = []
    for form in FORMS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MAGICBYTE_KERNELS", form)
            report = ConversionReport()
            written.append(converted(log, target, dialect=source.dialect, codec=codec, report=report))
            found = decoded(written[-1], target)
            assert as_kept(found, target) == as_kept(records, source, target)
            assert report.bytes_in == len(log)
            assert report.bytes_out == len(written[-1])
            assert {type(count) for count in asdict(report).values()} == {int}
            if report.bytes_passed_through == 0:
                assert report.records == len(records)
                assert report.timestamps == (0 if target is not V0 or source is V0 else with_time(records))
                assert report.headers == (
                    sum(bool(row.headers) for row in records) if source is V2 is not target else 0
                )
    assert written[0] == written[1]


def with_time(records: list[Record]) -> int:
    return sum(row.timestamp != -1 for row in records)


@given(data=st.data(), source=st.sampled_from((V0, V1, V2)), target=st.sampled_from((V1, V2)))
def test_the_type_of_the_timestamps_is_kept_where_there_is_one(
    data: st.DataObject, source: Format, target: Format
) -> None:
    log, records = data.draw(logs(source))
    found = decoded(converted(log, target, codec=SNAPPY), target)
    types = [CREATE if source is V0 else row.timestamp_type for row in records]
    if source is V0 and target is V0:
        types = [NONE] * len(records)
    assert [row.timestamp_type for row in found] == types


@pytest.mark.parametrize(
    ("case", "form"),
    [
        pytest.param(*case.values, form, marks=case.marks if at == number % 2 else pytest.mark.slow)
        for number, case in enumerate(
            golden_data.one_of_each_kind(case for case in golden_data.log_cases() if case.has_records)
        )
        for at, form in enumerate(FORMS)
    ],
    ids=str,
)
def test_every_golden_log_is_the_same_in_every_format(
    case: golden_data.Case, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    for content in case.segments().values():
        records = decoded(content, V2)
        for target in Format:
            codec = GZIP if "zstd" in case.codecs_found else None
            found = decoded(converted(content, target, codec=codec), target)
            assert as_kept(found, target) == as_kept(records, target)


@pytest.mark.parametrize("source", [V0, V1, V2, ENRICHED])
def test_a_log_in_the_target_format_is_passed_through_as_it_is(source: Format) -> None:
    records = [Record(at, 1000 + at, CREATE, b"k", b"v" * 50) for at in range(20)]
    log = b"".join(encode_records(records, source, codec) for codec in (Codec.NONE, SNAPPY, LZ4, GZIP, Codec.NONE))
    report = ConversionReport()
    assert converted(log, source, dialect=source.dialect, report=report) == log
    assert (report.bytes_passed_through, report.records, report.lost()) == (len(log), 0, {})


def test_markers_epochs_and_empty_batches_survive_a_change_of_the_codec() -> None:
    marker = build_marker(
        ControlType.ABORT, base_offset=2, timestamp=5, producer_id=9, producer_epoch=1, coordinator_epoch=4
    )
    header = BatchHeader(producer_id=9, producer_epoch=1, base_sequence=42, partition_leader_epoch=3, last_offset=1)
    data = encode_records([Record(0, 5, CREATE, b"k", b"v" * 99, (("h", b"x"),))], V2, GZIP, header=header)
    empty = encode(columns_of([]), V2, batches=[(0, BatchHeader(base_offset=3, last_offset=7, max_timestamp=9))])
    for codec in (Codec.NONE, ZSTD, LZ4):
        found = converted(data + marker + bytes(empty), V2, codec=codec)
        batches = [entry for _, entry in entries(found) if isinstance(entry, RecordBatch)]
        for batch in batches:
            batch.verify()
        assert found.endswith(marker + bytes(empty))
        first = batches[0]
        assert (first.codec, first.producer_id, first.base_sequence, first.last_offset) == (codec, 9, 42, 1)
        assert first.partition_leader_epoch == 3
        assert decoded(found, V2) == decoded(data, V2)


def test_what_an_older_format_cannot_hold_is_counted() -> None:
    header = BatchHeader(
        producer_id=9, producer_epoch=1, base_sequence=0, is_transactional=True, partition_leader_epoch=3
    )
    records = [Record(0, 5, CREATE, b"k", b"v", (("h", b"x"),)), Record(1, -1, CREATE, b"k", None)]
    horizon = BatchHeader(has_delete_horizon=True, base_timestamp=77)
    log = encode_records(records, V2, header=header)
    log += encode_records([Record(2, 5, CREATE, b"k", None)], V2, SNAPPY, header=horizon)
    log += build_marker(
        ControlType.COMMIT, base_offset=3, timestamp=5, producer_id=9, producer_epoch=1, coordinator_epoch=4
    )
    report = ConversionReport()
    found = decoded(converted(log, V0, report=report), V0)
    assert [row.offset for row in found] == [0, 1, 2]
    assert report.lost() == {
        "timestamps": 2,
        "headers": 1,
        "transaction_markers": 1,
        "transactional_batches": 1,
        "producer_states": 1,
        "leader_epochs": 1,
        "delete_horizons": 1,
    }
    assert asdict(report)["batches"] == 2


def test_enriched_control_messages_and_unknown_tags_are_counted() -> None:
    payload = TransactionPayload(5, 1)
    log = build_enriched_control(0, EnrichedControl.START_TRANSACTION, payload)
    log += build_enriched_message(1, b"k", b"v", seconds=7, tags=encode_tags({0: 7005}) + b"\x63\x01")
    log += build_enriched_control(2, EnrichedControl.COMMIT_TRANSACTION, payload)
    log += build_enriched_control(3, EnrichedControl.LEADER_EPOCH, LeaderEpochPayload(1, 2))
    for target in (V0, V1, V2):
        report = ConversionReport()
        (record,) = decoded(converted(log, target, dialect=Dialect.ENRICHED, report=report), target)
        assert (record.offset, record.key, record.value) == (1, b"k", b"v")
        assert record.timestamp == (-1 if target is V0 else 7005)
        lost = {"transaction_markers": 1, "control_records": 2, "tags": 1}
        assert report.lost() == (lost | {"timestamps": 1} if target is V0 else lost)


@pytest.mark.parametrize("codec", [Codec.NONE, SNAPPY])
def test_an_enriched_set_is_log_append_time_with_its_offsets(codec: Codec) -> None:
    if codec is Codec.NONE:
        log = b"".join(build_enriched_message(at, b"k", b"v", seconds=7) for at in (10, 12))
    else:
        inner = build_enriched_message(0, b"k", b"v") + build_enriched_message(2, b"k", b"v")
        log = build_enriched_wrapper(codec, inner, num_messages=2, non_keyed=False, start_offset=10, seconds=7)
    expected = [Record(offset, 7000, APPEND, b"k", b"v") for offset in (10, 12)]
    for target in (V1, V2):
        assert decoded(converted(log, target, dialect=Dialect.ENRICHED), target) == expected
    (entry,) = [entry for _, entry in entries(converted(log, V2, dialect=Dialect.ENRICHED))]
    assert (entry.base_offset, entry.last_offset, entry.max_timestamp) == (10, 12, 7000)


def test_a_wrapper_whose_offsets_do_not_count_is_numbered_by_position_and_keeps_its_start() -> None:
    inner = build_enriched_message(3, None, b"v") + build_enriched_message(9, None, b"v")
    options = {"num_messages": 2, "non_keyed": True, "start_offset": 100, "seconds": 7}
    by_position = build_enriched_wrapper(SNAPPY, inner, honor_ship=False, **options)
    honored = build_enriched_wrapper(SNAPPY, inner, **options)
    for log, offsets in ((by_position, [100, 101]), (honored, [103, 109])):
        for target in (V0, V1, V2):
            found = converted(log, target, dialect=Dialect.ENRICHED)
            assert [row.offset for row in decoded(found, target)] == offsets
        (batch,) = [entry for _, entry in entries(converted(log, V2, dialect=Dialect.ENRICHED))]
        assert batch.base_offset == 100
        (wrapper,) = [entry for _, entry in entries(converted(log, V1, dialect=Dialect.ENRICHED))]
        assert wrapper.offset == offsets[-1]


def test_timestamps_inside_an_enriched_wrapper_make_it_create_time() -> None:
    inner = build_enriched_message(0, None, b"a", tags=encode_tags({0: 5000})) + build_enriched_message(1, None, b"b")
    log = build_enriched_wrapper(LZ4, inner, num_messages=2, non_keyed=True, seconds=9)
    for target in (V1, V2):
        found = decoded(converted(log, target, dialect=Dialect.ENRICHED), target)
        assert [(row.timestamp, row.timestamp_type) for row in found] == [(5000, CREATE), (9000, CREATE)]


@pytest.mark.parametrize("timestamp", [-1, 7000, 7005, 4_294_967_295_000])
def test_there_and_back_an_enriched_log_is_the_same_but_for_needless_tags(timestamp: int) -> None:
    seconds = timestamp // 1000 if 0 <= timestamp < 4_294_967_295_000 else -1
    tag = {} if timestamp == -1 else {Tag.TIMESTAMP: timestamp}
    inner = build_enriched_message(0, b"k", b"v") + build_enriched_message(1, None, b"v")
    log = build_enriched_message(3, b"k", b"v", seconds=seconds, tags=encode_tags(tag))
    log += build_enriched_wrapper(
        LZ4, inner, num_messages=2, non_keyed=False, start_offset=4, seconds=seconds, timestamp_ms=tag.get(0)
    )
    back = converted(converted(log, V1, dialect=Dialect.ENRICHED), ENRICHED)
    before, after = ([entry for _, entry in entries(each, Dialect.ENRICHED)] for each in (log, back))
    assert len(before) == len(after) == 2
    for was, became in zip(before, after, strict=True):
        assert isinstance(was, EnrichedMessage)
        assert isinstance(became, EnrichedMessage)
        assert (became.offset, became.seconds, became.timestamp) == (was.offset, seconds, timestamp)
        needless = {} if seconds * 1000 != timestamp else {Tag.TIMESTAMP}
        assert {each: value for each, value in was.tags.items() if each not in needless} == became.tags
        assert became.key == was.key
        assert became.value == was.value


def test_the_times_of_magic_1_go_into_the_wrapper_and_where_they_differ_into_the_messages() -> None:
    records = [
        Record(5, 1000, CREATE, b"k", b"v"),
        Record(6, 3000, CREATE, b"k", b"v"),
        Record(9, -1, CREATE, None, b""),
    ]
    found = converted(encode_records(records, V1, SNAPPY), ENRICHED)
    (wrapper,) = [entry for _, entry in entries(found, Dialect.ENRICHED) if isinstance(entry, EnrichedMessage)]
    assert (wrapper.offset, wrapper.seconds, wrapper.timestamp) == (5, 3, 3000)
    assert wrapper.tags == {Tag.NUM_MESSAGES: 3, Tag.HONOR_SHIP: 1, Tag.NON_KEYED: 0}
    assert [(row.offset, row.timestamp) for row in decoded(found, ENRICHED)] == [(5, 1000), (6, 3000), (9, -1)]


def test_rows_of_plain_messages_become_batches_of_the_size_that_is_asked_for() -> None:
    log = b"".join(build_message(0, at, -1, b"k", b"v" * 80) for at in range(1000))
    sizes = [entry.size for _, entry in entries(converted(log, V2, batch_bytes=10_000))]
    assert len(sizes) == 10
    assert 9_900 < max(sizes) <= 10_000
    assert len(list(entries(converted(log, V2)))) == 2
    assert len(list(entries(converted(log, V1)))) == 1000
    assert len(list(entries(converted(log, V1, codec=LZ4)))) == 2


def test_for_a_fetch_nothing_is_converted_up_and_plain_records_below_the_offset_are_skipped() -> None:
    plain = [(V0, (0, 2, 3)), (V1, (9, 11, 15)), (V2, (16, 17, 22, 24))]
    for codec in (Codec.NONE, GZIP):
        log = b"".join(
            encode_records([Record(offset, 5, CREATE, b"k", b"v") for offset in offsets], each, codec)
            for each, offsets in plain
        )
        everything = [0, 2, 3, 9, 11, 15, 16, 17, 22, 24]
        for target, fetch_offset, missing in ((V0, 11, {9}), (V1, 17, {16}), (V0, 0, set()), (V2, 17, set())):
            found = converted(log, target, fetch_offset=fetch_offset)
            gone = missing if codec is Codec.NONE else set()
            assert [row.offset for row in decoded(found, V2)] == [each for each in everything if each not in gone]
            assert max(entry.buffer[16] for _, entry in entries(found)) == target.magic
    assert converted(log, V2, fetch_offset=0) == log


def test_zstd_is_refused_below_magic_2_unless_another_codec_is_given() -> None:
    sound = encode_records([Record(0, 5, CREATE, b"k", b"v")], V2)
    log = sound + encode_records([Record(1, 5, CREATE, b"k", b"v")], V2, ZSTD)
    for target in (V0, V1, ENRICHED):
        given_before = []
        with pytest.raises(UnsupportedCompressionError):
            given_before.extend(convert(log, target))
        assert [row.offset for row in decoded(b"".join(given_before), target)] == [0]
        assert len(decoded(converted(log, target, codec=SNAPPY), target)) == 2
        with pytest.raises(UnsupportedCompressionError):
            converted(log, target, codec=ZSTD)


def test_lz4_frames_of_magic_0_get_the_checksum_that_old_consumers_expect() -> None:
    inner = build_message(0, 0, -1, b"k", b"v")
    broken = build_wrapper(0, LZ4, inner, 0, -1)
    frame = bytearray(MessageView(memoryview(broken)).value or b"")
    frame[6] = 0x82
    correct = bytearray(broken[: -len(frame)]) + frame
    message = MessageView(memoryview(correct))
    correct[12:16] = crc32(correct[16:]).to_bytes(4, "big")
    assert message.value is not None
    assert lz4_header_checksum(message.value) is Lz4Header.CORRECT
    log = broken + bytes(correct)
    assert converted(log, V0) == log
    assert converted(log, V0, fix_lz4=True) == broken + broken


def test_a_key_of_a_wrapper_is_counted_when_it_is_lost() -> None:
    wrapper = MessageView(memoryview(encode_records([Record(0, 5, CREATE, b"k", b"v")], V1, SNAPPY)))
    keyed = build_message(1, 0, 5, b"key", wrapper.value)
    keyed = keyed[:17] + bytes((SNAPPY,)) + keyed[18:]
    keyed = keyed[:12] + crc32(keyed[16:]).to_bytes(4, "big") + keyed[16:]
    report = ConversionReport()
    assert [row.key for row in decoded(converted(keyed, V2, report=report), V2)] == [b"k"]
    assert report.lost() == {"wrapper_keys": 1}


def test_offsets_further_apart_than_an_int32_are_refused_in_a_wrapper_and_cut_in_plain_messages() -> None:
    far = [Record(0, 5, CREATE, b"k", b"v"), Record(2**31, 5, CREATE, b"k", b"v")]
    assert len(list(entries(converted(encode_records(far, V1), V2)))) == 2
    with pytest.raises(UnsupportedForMessageFormatError):
        converted(encode_records(far, V1, SNAPPY), V2)
    assert [row.offset for row in decoded(converted(encode_records(far, V1, SNAPPY), V0), V0)] == [0, 2**31]


@pytest.mark.parametrize("source", [V0, V1, V2, ENRICHED])
@pytest.mark.parametrize("codec", [Codec.NONE, SNAPPY])
@pytest.mark.parametrize("target", list(Format))
@pytest.mark.parametrize("form", FORMS)
def test_damage_is_reported_with_its_position_after_all_data_before_it(
    source: Format, codec: Codec, target: Format, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    sets = [encode_records([Record(at, 5, CREATE, b"k", b"v" * 30)], source, codec) for at in range(3)]
    log = bytearray(b"".join(sets))
    position = len(sets[0]) + len(sets[1])
    log[-3] ^= 0xFF
    found = []
    with pytest.raises(CorruptRecordError) as caught:
        found.extend(convert(bytes(log), target, dialect=source.dialect))
    assert caught.value.position == position
    assert [row.offset for row in decoded(b"".join(found), target)] == [0, 1]


def test_a_cut_entry_at_the_end_is_left_out_and_counted() -> None:
    log = encode_records([Record(0, 5, CREATE, b"k", b"v")], V1)
    for length in range(1, len(log)):
        report = ConversionReport()
        assert len(decoded(converted(log + log[:length], V2, report=report), V2)) == 1
        assert report.bytes_cut == length
    assert converted(b"", V2) == b""


def test_a_batch_over_the_limit_is_refused() -> None:
    log = encode_records([Record(0, 5, CREATE, b"k", bytes(5000))], V2, GZIP)
    for target in (V0, V1, ENRICHED):
        with pytest.raises(BatchTooLargeError):
            converted(log, target, limit=4000)
    with pytest.raises(BatchTooLargeError):
        converted(log, V2, codec=Codec.NONE, limit=4000)


@given(data=st.data(), source=st.sampled_from(Format), target=st.sampled_from(Format))
def test_junk_gives_our_errors_and_no_others_alike_in_both_forms(
    data: st.DataObject, source: Format, target: Format
) -> None:
    log = bytearray(data.draw(logs(source))[0])
    for _ in range(data.draw(st.integers(1, 3))):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    verify, codec = data.draw(st.booleans()), data.draw(st.sampled_from((None, Codec.NONE, LZ4)))
    outcomes = []
    for form in FORMS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MAGICBYTE_KERNELS", form)
            found: list[object] = []
            try:
                chunks = convert(bytes(log), target, dialect=source.dialect, codec=codec, verify=verify, limit=1 << 20)
                found.extend(map(bytes, chunks))
            except MagicbyteError as error:
                found.append(type(error))
            outcomes.append(found)
    assert outcomes[0] == outcomes[1]


@given(junk=st.binary(max_size=200), target=st.sampled_from(Format), dialect=st.sampled_from(Dialect))
def test_bytes_of_any_kind_give_our_errors_and_no_others(junk: bytes, target: Format, dialect: Dialect) -> None:
    with contextlib.suppress(MagicbyteError):
        converted(junk, target, dialect=dialect)
