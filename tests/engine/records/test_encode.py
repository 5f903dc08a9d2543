"""Encoding: decoding returns the same records, both forms of the kernels agree, limits are reported."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import (
    BatchTooLargeError,
    CorruptRecordError,
    MagicbyteError,
    UnsupportedCompressionError,
    UnsupportedForMessageFormatError,
)
from magicbyte.engine.records import encode_kernels as kernels
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import BytesColumn, HeaderColumns, Record, RecordColumns
from magicbyte.engine.records.control import ControlType, build_marker, control_records
from magicbyte.engine.records.decode import DecodeOptions, decode
from magicbyte.engine.records.encode import (
    BatchHeader,
    Format,
    columns_of,
    encode,
    encode_chunks,
    encode_records,
    header_time,
)
from magicbyte.engine.records.enriched import EnrichedMessage, build_enriched_message, encode_tags
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import TimestampType
from magicbyte.engine.records.message import MessageView, build_message

NONE, CREATE, APPEND = TimestampType
SNAPPY, LZ4, ZSTD = Codec.SNAPPY, Codec.LZ4, Codec.ZSTD
FORMATS = [(each, codec) for each in Format for codec in Codec if codec is not ZSTD or each is Format.V2]
FORMS = ["plain", "compiled"]

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.sampled_from((-1, 0, 1, 999, 1000, 1005, 1_700_000_000_000, 4_294_967_294_999, 4_294_967_295_000)) | INT64
CELLS = st.none() | st.binary(max_size=40) | st.sampled_from((b"", b"x" * 63, b"y" * 64, b"z" * 8192))
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)


@st.composite
def record_lists(draw: Callable[[Any], Any]) -> list[Record]:
    """Records with ascending offsets and holes between them, of one timestamp type; of LogAppendTime one time."""
    kind = draw(st.sampled_from((CREATE, APPEND)))
    append_time = draw(st.integers(0, 1 << 62))
    offset = draw(st.sampled_from((0, 1, 5, 1 << 31, 1 << 40)))
    found = []
    for _ in range(draw(st.integers(1, 12))):
        time = append_time if kind is APPEND else draw(TIMES)
        found.append(Record(offset, time, kind, draw(CELLS), draw(CELLS), draw(HEADERS)))
        offset += draw(st.sampled_from((1, 1, 1, 2, 64, 9000)))
    return found


def decoded(data: bytes | memoryview, target: Format) -> list[Record]:
    found = decode(memoryview(data), DecodeOptions(), dialect=target.dialect)
    return [record for columns in found for record in columns]


def as_held_by(target: Format, records: list[Record]) -> list[Record]:
    """The records as a format can hold them."""
    match target:
        case Format.V0:
            return [row._replace(timestamp=-1, timestamp_type=NONE, headers=()) for row in records]
        case Format.V1:
            return [row._replace(headers=()) for row in records]
        case Format.ENRICHED:
            kinds = [APPEND if row.timestamp >= 0 else CREATE for row in records]
            return [row._replace(timestamp_type=kind, headers=()) for row, kind in zip(records, kinds, strict=True)]
        case _:
            return records


@given(records=record_lists(), how=st.sampled_from(FORMATS))
def test_decoding_what_was_encoded_gives_the_records_back_and_both_forms_write_the_same_bytes(
    records: list[Record], how: tuple[Format, Codec]
) -> None:
    target, codec = how
    written = []
    for form in FORMS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MAGICBYTE_KERNELS", form)
            written.append(encode_records(records, target, codec))
            assert decoded(written[-1], target) == as_held_by(target, records)
    assert written[0] == written[1]


@given(
    records=record_lists(),
    header=st.sampled_from(
        (
            BatchHeader(),
            BatchHeader(is_transactional=True, producer_id=7, producer_epoch=3, base_sequence=9),
            BatchHeader(is_control=True, partition_leader_epoch=4),
        )
    ),
)
def test_a_batch_of_one_record_is_the_same_as_from_columns(records: list[Record], header: BatchHeader) -> None:
    for record in records:
        expected = encode(columns_of([record]), Format.V2, header=header)
        assert encode_records([record], Format.V2, header=header) == bytes(expected)


@given(records=record_lists(), how=st.sampled_from(FORMATS), size=st.integers(1, 400), rows=st.integers(1, 5))
def test_cut_into_batches_the_records_are_the_same_and_no_batch_is_larger_than_asked(
    records: list[Record], how: tuple[Format, Codec], size: int, rows: int
) -> None:
    target, codec = how
    written = []
    for form in FORMS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MAGICBYTE_KERNELS", form)
            written.append(bytes(encode(columns_of(records), target, codec, batch_bytes=size, batch_rows=rows)))
    assert written[0] == written[1]
    assert decoded(written[0], target) == as_held_by(target, records)
    if target is Format.V2:
        for _, entry in entries(written[0]):
            assert entry.record_count is not None
            assert entry.record_count <= rows
            assert entry.record_count == 1 or codec is not Codec.NONE or entry.size <= size


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_is_as_full_as_its_bytes_allow(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    columns = columns_of([Record(at, 1000 + at, CREATE, b"k" * 16, b"v" * 84) for at in range(1000)])
    written = encode(columns, Format.V2, batch_bytes=16384)
    sizes = [entry.size for _, entry in entries(written)]
    assert len(sizes) == 7
    assert all(16384 - 112 < size <= 16384 for size in sizes[:-1])


def test_plain_messages_are_those_of_the_single_builders() -> None:
    records = [
        Record(3, 1234, CREATE, b"k", b"v"),
        Record(9, 5_000, APPEND, None, b""),
        Record(10, -1, CREATE, b"", None),
        Record(11, 4_294_967_294_000, APPEND, b"a", b"b"),
    ]
    for magic, target in ((0, Format.V0), (1, Format.V1)):
        built = [
            build_message(magic, row.offset, row.timestamp, row.key, row.value, TimestampType(row.timestamp_type))
            for row in records
        ]
        assert encode_records(records, target) == b"".join(built)
    enriched = []
    for row in records:
        seconds, tag = header_time(row.timestamp)
        tags = b"" if tag is None else encode_tags({0: tag})
        enriched.append(build_enriched_message(row.offset, row.key, row.value, seconds=seconds, tags=tags))
    assert encode_records(records, Format.ENRICHED) == b"".join(enriched)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, (-1, None)),
        (-2, (-1, -2)),
        (0, (0, None)),
        (1005, (1, 1005)),
        (1_700_000_000_000, (1_700_000_000, None)),
        (4_294_967_294_999, (4_294_967_294, 4_294_967_294_999)),
        (4_294_967_295_000, (-1, 4_294_967_295_000)),
    ],
)
def test_the_time_of_an_enriched_message_goes_into_its_header_and_into_tag_0_where_that_is_not_enough(
    timestamp: int, expected: tuple[int, int | None]
) -> None:
    assert header_time(timestamp) == expected


def test_the_wrapper_of_magic_1_has_the_last_offset_and_the_largest_timestamp() -> None:
    records = [Record(7, 30, CREATE, b"a", b""), Record(9, 50, CREATE, None, b""), Record(12, 40, CREATE, b"", b"")]
    wrapper = MessageView(memoryview(encode_records(records, Format.V1, LZ4)))
    assert (wrapper.offset, wrapper.timestamp, wrapper.timestamp_type) == (12, 50, CREATE)


def test_an_enriched_wrapper_starts_at_its_first_offset_and_says_whether_it_has_keys() -> None:
    keyed = [Record(7, 30, CREATE, None, b""), Record(9, 50, CREATE, b"", b"")]
    wrapper = EnrichedMessage(memoryview(encode_records(keyed, Format.ENRICHED, LZ4)))
    assert (wrapper.offset, wrapper.num_messages, wrapper.honor_ship, wrapper.non_keyed) == (7, 2, True, False)
    assert wrapper.timestamp == 50
    bare = [row._replace(key=None) for row in keyed]
    assert EnrichedMessage(memoryview(encode_records(bare, Format.ENRICHED, LZ4))).non_keyed


def test_a_producers_sequence_continues_from_batch_to_batch_and_wraps() -> None:
    header = BatchHeader(producer_id=9, producer_epoch=1, base_sequence=2**31 - 3, is_transactional=True)
    columns = columns_of([Record(at, 5, CREATE, None, b"v") for at in range(100, 110)])
    written = encode(columns, Format.V2, batch_rows=4, header=header)
    batches = [entry for _, entry in entries(written)]
    assert [each.base_sequence for each in batches] == [2**31 - 3, 1, 5]
    assert [(each.producer_id, each.producer_epoch, each.is_transactional) for each in batches] == [(9, 1, True)] * 3


def test_batches_end_where_the_type_or_the_time_of_the_append_changes() -> None:
    times = [(5, CREATE), (6, CREATE), (7, APPEND), (7, APPEND), (8, APPEND), (9, CREATE)]
    records = [Record(at, time, kind, None, b"") for at, (time, kind) in enumerate(times)]
    found = [entry.base_offset for _, entry in entries(encode(columns_of(records), Format.V2))]
    assert found == [0, 2, 4, 5]
    assert decoded(encode(columns_of(records), Format.V2), Format.V2) == records


def test_the_time_of_an_append_leaves_the_producers_own_as_deltas() -> None:
    records = [Record(0, 1000, CREATE, None, b""), Record(1, 1005, CREATE, None, b"")]
    header = BatchHeader(timestamp_type=APPEND, max_timestamp=2000)
    batch = RecordBatch(memoryview(encode_records(records, Format.V2, header=header)))
    assert (batch.base_timestamp, batch.max_timestamp, batch.timestamp_type) == (1000, 2000, APPEND)
    assert [row.timestamp for row in decoded(batch.buffer, Format.V2)] == [2000, 2000]


def test_a_marker_is_encoded_as_its_builder_builds_it() -> None:
    raw = build_marker(
        ControlType.COMMIT, base_offset=7, timestamp=3000, producer_id=9, producer_epoch=1, coordinator_epoch=4
    )
    (marker,) = control_records(RecordBatch(memoryview(raw)))
    assert marker.value is not None
    record = Record(7, 3000, CREATE, bytes(marker.key), bytes(marker.value))
    header = BatchHeader(is_control=True, is_transactional=True, producer_id=9, producer_epoch=1)
    assert encode_records([record], Format.V2, header=header) == raw


def test_no_records_are_no_bytes_but_a_batch_may_be_empty() -> None:
    assert encode_records([], Format.V2) == b""
    assert bytes(encode(columns_of([]), Format.V1)) == b""
    header = BatchHeader(base_offset=100, last_offset=101, base_timestamp=-1, max_timestamp=1000)
    batch = RecordBatch(encode(columns_of([]), Format.V2, batches=[(0, header)]))
    batch.verify()
    assert (batch.base_offset, batch.last_offset, batch.record_count, batch.size) == (100, 101, 0, 61)


@pytest.mark.parametrize("form", FORMS)
def test_the_headers_of_the_kernel_are_those_of_the_single_builder(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    times = [(1 << 40, CREATE), (-5, CREATE), (7, APPEND), (8, APPEND)]
    columns = columns_of([Record(2**40 + 3 * at, *time, b"k", bytes(at)) for at, time in enumerate(times)])
    written = encode(columns, Format.V2, batch_bytes=1000)
    assert bytes(written) == bytes(encode(columns, Format.V2, batch_bytes=1000, header=BatchHeader()))
    for _, entry in entries(written):
        entry.verify()


def test_chunks_are_whole_entries_and_a_large_input_has_several() -> None:
    columns = columns_of([Record(at, 5, CREATE, b"k", b"v" * 1000) for at in range(3000)])
    for target, codec in ((Format.V2, Codec.NONE), (Format.V1, Codec.NONE), (Format.V0, SNAPPY)):
        chunks = list(encode_chunks(columns, target, codec))
        assert len(chunks) > 1
        found = [row.offset for chunk in chunks for row in decoded(chunk, target)]
        assert found == list(range(3000))


@pytest.mark.parametrize("target", [Format.V0, Format.V1, Format.ENRICHED])
def test_zstd_needs_magic_2(target: Format) -> None:
    with pytest.raises(UnsupportedCompressionError, match="zstd"):
        encode_records([Record(0, 0, CREATE, None, b"")], target, ZSTD)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("target", "codec"),
    [(Format.V2, Codec.NONE), (Format.V2, LZ4), (Format.V1, LZ4), (Format.V0, LZ4), (Format.ENRICHED, LZ4)],
)
def test_descending_offsets_are_refused_in_a_batch(
    target: Format, codec: Codec, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    records = [Record(offset, 0, CREATE, None, b"") for offset in (5, 7, 6)]
    with pytest.raises(CorruptRecordError, match=r"ascending from \d+, found 6"):
        encode_records(records, target, codec)


@pytest.mark.parametrize(("target", "codec"), [(Format.V2, Codec.NONE), (Format.ENRICHED, LZ4)])
def test_offsets_that_an_int32_cannot_tell_apart_are_cut_or_refused(target: Format, codec: Codec) -> None:
    columns = columns_of([Record(offset, 0, CREATE, None, b"") for offset in (0, 2**31 - 1, 2**31, 2**32)])
    assert [row.offset for row in decoded(encode(columns, target, codec), target)] == [0, 2**31 - 1, 2**31, 2**32]
    with pytest.raises(UnsupportedForMessageFormatError, match="2147483647"):
        encode(columns, target, codec, batches=[(4, BatchHeader())])


def test_a_wrapper_of_magic_1_cannot_start_below_offset_0() -> None:
    with pytest.raises(CorruptRecordError, match="first offset"):
        encode_records([Record(-3, 0, CREATE, None, b""), Record(-2, 0, CREATE, None, b"")], Format.V1, LZ4)


def lying_columns(**changes: Any) -> RecordColumns:
    """Two records, whose columns contradict their data where `changes` says so."""
    cells: dict[str, Any] = {
        "key_start": [0, 1],
        "key_length": [1, 1],
        "value_start": [0, 2],
        "value_length": [2, 2],
        "header_count": [1, 0],
        "name_start": [0],
        "name_length": [1],
    } | changes
    arrays = {name: np.array(values, np.int32) for name, values in cells.items()}
    headers = HeaderColumns(
        arrays["header_count"],
        BytesColumn(b"h", arrays["name_start"], arrays["name_length"]),
        BytesColumn(b"", np.array([0], np.int32), np.array([-1], np.int32)),
    )
    return RecordColumns(
        np.array([0, 1]),
        np.array([5, 6]),
        np.array([0, 0], np.int8),
        BytesColumn(b"ab", arrays["key_start"], arrays["key_length"]),
        BytesColumn(b"abcd", arrays["value_start"], arrays["value_length"]),
        headers,
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "lie",
    [
        {"key_length": [1, 2]},
        {"key_length": [1, -2]},
        pytest.param({"key_length": [1, 2**31 - 1]}, marks=pytest.mark.slow),  # the room for it is made first
        {"key_start": [0, -1]},
        {"value_length": [2, 3]},
        {"value_start": [0, 2**31 - 1]},
        {"header_count": [2, 0]},
        {"header_count": [-1, 2]},
        {"name_length": [2]},
        {"name_length": [-1]},
        {"name_start": [-1]},
        {"key_length": [1]},
        {"name_start": []},
    ],
)
def test_columns_that_contradict_their_data_are_refused(
    lie: dict[str, list[int]], form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", form)
    about_keys_and_values = not any("header" in name or "name" in name for name in lie)
    assert len(encode(lying_columns(), Format.V2)) > 0
    with pytest.raises(CorruptRecordError):
        encode(lying_columns(**lie), Format.V2)
    if about_keys_and_values:
        with pytest.raises(CorruptRecordError):
            encode(lying_columns(**lie), Format.V1)
        with pytest.raises(CorruptRecordError):
            encode(lying_columns(**lie), Format.ENRICHED, SNAPPY)


@pytest.mark.slow
@pytest.mark.parametrize("target", list(Format))
def test_more_bytes_than_an_int32_counts_are_refused(target: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAGICBYTE_KERNELS", "compiled")
    size = 2**30
    cell = BytesColumn(np.zeros(size, np.uint8), np.array([0], np.int32), np.array([size], np.int32))  # never touched
    columns = RecordColumns(np.array([7]), np.array([0]), np.array([0], np.int8), cell, cell, None)
    with pytest.raises(BatchTooLargeError, match="offset 7"):
        encode(columns, target)


def test_a_count_of_records_that_the_columns_do_not_have_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="records of the batches"):
        encode(columns_of([Record(0, 0, CREATE, None, b"")]), Format.V2, batches=[(2, BatchHeader())])


@given(value=INT64)
def test_a_varint_is_as_long_as_its_size_says(value: int) -> None:
    code = ((value << 1) ^ (value >> 63)) & (1 << 64) - 1
    signed = code - (1 << 64) if code >> 63 else code
    out, array = bytearray(10), np.zeros(10, np.uint8)
    end = kernels.store_code.py_func(out, 0, code)
    assert kernels.store_code(array, 0, signed) == kernels.code_size(signed) == end == kernels.code_size.py_func(code)
    assert array.tobytes() == bytes(out)


@given(cells=st.lists(st.integers(-3, 9), min_size=6, max_size=6), offsets=st.lists(INT64, min_size=2, max_size=2))
def test_whatever_the_columns_say_an_error_is_ours(cells: list[int], offsets: list[int]) -> None:
    columns = lying_columns(key_start=cells[:2], key_length=cells[2:4], value_length=cells[4:])
    columns.offset = np.array(offsets)
    for target, codec in FORMATS:
        outcomes = []
        for form in FORMS:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("MAGICBYTE_KERNELS", form)
                try:
                    outcomes.append(bytes(encode(columns, target, codec)))
                except MagicbyteError as error:
                    outcomes.append(repr(error).encode())
        assert outcomes[0] == outcomes[1]
