"""Comparing logs: what differs is found, however the records are stored, and nothing else."""

import random
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import golden_data
import magicbyte
from magicbyte.access import workers
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, UnknownTopicError
from magicbyte.engine.log.files import reader
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.records.columns import BytesColumn, HeaderColumns, Record, RecordColumns
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.convert import convert
from magicbyte.engine.records.encode import Format, encode
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.message import build_message
from magicbyte.tools.offline.diff import DEFAULT_OPTIONS, Difference, DiffOptions, DiffReport, Ignored, What, diff_logs

SOUND = [case for case in golden_data.log_cases() if case.state != "crashed"]
RECORDS = [
    Record(at, 1000 + at, 0, b"key%d" % at, b"value%d" % at * 9, (("name", b"x%d" % at),) if at % 2 else ())
    for at in range(100)
]


@pytest.fixture(autouse=True, params=["plain", "compiled"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    chosen: str = request.param
    monkeypatch.setenv("MAGICBYTE_KERNELS", chosen)
    return chosen


def column(cells: Iterable[bytes | None]) -> BytesColumn:
    data, start, length = bytearray(), [], []
    for cell in cells:
        start.append(len(data))
        length.append(-1 if cell is None else len(cell))
        data += cell or b""
    return BytesColumn(bytes(data), start, length)


def columns(records: list[Record]) -> RecordColumns:
    pairs = [pair for record in records for pair in record.headers]
    return RecordColumns(
        [record.offset for record in records],
        [record.timestamp for record in records],
        [record.timestamp_type for record in records],
        column(record.key for record in records),
        column(record.value for record in records),
        HeaderColumns(
            [len(record.headers) for record in records],
            column(name.encode() for name, _ in pairs),
            column(value for _, value in pairs),
        ),
    )


def entries(
    records: list[Record], target: Format = Format.V2, codec: Codec = Codec.NONE, batch_bytes: int = 900
) -> bytes:
    return bytes(encode(columns(records), target, codec, batch_bytes=batch_bytes))


def diff(
    a: str,
    b: str,
    options: DiffOptions = DEFAULT_OPTIONS,
    *,
    dialects: tuple[Dialect | None, Dialect | None] = (None, None),
    report: DiffReport | None = None,
) -> Iterator[Difference]:
    """Compare the partitions at two paths."""
    return diff_logs(discover([a]), discover([b]), options, dialects=dialects, report=report)


class Logs:
    """Two partition folders, which tests fill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, side: str, *segments: bytes, name: str = "orders-0") -> str:
        folder = self.folder / side / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(segments):
            (folder / f"{number:020}.log").write_bytes(content)
        return str(self.folder / side)

    def compare(self, a: bytes, b: bytes, options: DiffOptions | None = None) -> tuple[list[Difference], DiffReport]:
        report = DiffReport()
        paths = self.write("a", a), self.write("b", b)
        return list(diff(*paths, options or DEFAULT_OPTIONS, report=report)), report


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


def changed(at: int, change: Callable[[Record], Record]) -> list[Record]:
    return [change(record) if record.offset == at else record for record in RECORDS]


# ---- the same


@pytest.mark.parametrize("case", golden_data.one_of_each_kind(SOUND))
def test_a_log_is_the_same_as_itself_and_the_digest_counts_what_kafka_saw(case: golden_data.Case) -> None:
    report = DiffReport()
    path = str(case.partition_dir())
    ignore = frozenset({Ignored.CONTROL})
    assert list(diff(path, path, DiffOptions(ignore), report=report)) == []
    (found,) = report.partitions
    assert report.same
    if case.group != "trimmed":  # here without the checkpoint that says where it begins
        assert found.compared == found.digest_a.records >= len(case.record_lines())
    assert found.digest_a == found.digest_b


@pytest.mark.parametrize(
    ("target", "codec", "batch_bytes"),
    [(Format.V2, Codec.ZSTD, 333), (Format.V2, Codec.NONE, 100_000), (Format.V2, Codec.LZ4, 1)],
    ids=str,
)
def test_how_records_are_grouped_and_compressed_does_not_matter(
    logs: Logs, target: Format, codec: Codec, batch_bytes: int
) -> None:
    differences, report = logs.compare(entries(RECORDS), entries(RECORDS, target, codec, batch_bytes))
    assert differences == []
    assert report.partitions[0].digest_a == report.partitions[0].digest_b
    assert report.partitions[0].not_held == {}


@pytest.mark.parametrize(
    ("target", "lacking"),
    [
        (Format.V0, {"timestamps": 100, "headers": 50}),
        (Format.V1, {"headers": 50}),
        (Format.ENRICHED, {"headers": 50}),
    ],
    ids=str,
)
def test_what_one_format_has_no_place_for_is_counted_and_no_difference(
    logs: Logs, target: Format, lacking: dict[str, int]
) -> None:
    report = DiffReport()
    a, b = logs.write("a", entries(RECORDS)), logs.write("b", entries(RECORDS, target, Codec.GZIP))
    assert list(diff(a, b, dialects=(None, target.dialect), report=report)) == []
    assert report.same
    assert report.partitions[0].not_held == lacking
    assert report.partitions[0].digest_a.body == report.partitions[0].digest_b.body


@pytest.mark.parametrize("held", [1, 128 << 20])
def test_threads_change_nothing(logs: Logs, monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(reader, "CHUNK_BYTES", 50_000)
    monkeypatch.setattr(workers, "HELD_BYTES", held)
    many = [record._replace(offset=base + record.offset) for base in range(0, 6000, 100) for record in RECORDS]
    other = [record for record in many if record.offset != 4000]
    for threads in (1, 4):
        differences, report = logs.compare(
            entries(many, batch_bytes=5000), entries(other, Format.V2, Codec.GZIP), DiffOptions(threads=threads)
        )
        assert [(each.what, each.first_offset, each.records) for each in differences] == [(What.ONLY_IN_A, 4000, 1)]
        assert report.partitions[0].compared == 5999


# ---- different


@pytest.mark.parametrize(
    ("what", "change"),
    [
        (What.KEY, lambda record: record._replace(key=b"other")),
        (What.KEY, lambda record: record._replace(key=None)),
        (What.VALUE, lambda record: record._replace(value=b"")),
        (What.VALUE, lambda record: record._replace(value=None)),
        (What.TIMESTAMP, lambda record: record._replace(timestamp=0)),
        (What.HEADERS, lambda record: record._replace(headers=())),
        (What.HEADERS, lambda record: record._replace(headers=(("name", None),))),
        (What.HEADERS | What.VALUE, lambda record: record._replace(headers=record.headers * 2, value=b"x")),
    ],
)
@pytest.mark.parametrize("at", [1, 51, 99])
def test_a_changed_field_is_found_and_nothing_else(
    logs: Logs, what: What, change: Callable[[Record], Record], at: int
) -> None:
    other = changed(at, change)
    differences, report = logs.compare(entries(RECORDS), entries(other, batch_bytes=333))
    assert differences == [Difference("orders-0", what, at, at, 1, RECORDS[at], other[at])]
    assert not report.same
    assert report.partitions[0].differing == {what: 1}


def test_a_changed_timestamp_type_is_found(logs: Logs) -> None:
    times = [record._replace(timestamp=5) for record in RECORDS]
    appended = [record._replace(timestamp_type=1) for record in times]
    differences, _ = logs.compare(entries(times), entries(appended))
    assert [(each.what, each.first_offset, each.records) for each in differences] == [(What.TIMESTAMP_TYPE, 0, 100)]


@pytest.mark.parametrize(
    ("ignored", "change"),
    [
        (Ignored.TIMESTAMPS, lambda record: record._replace(timestamp=0, timestamp_type=1)),
        (Ignored.HEADERS, lambda record: record._replace(headers=())),
    ],
)
def test_what_is_ignored_is_no_difference(logs: Logs, ignored: Ignored, change: Callable[[Record], Record]) -> None:
    other = [change(record) for record in RECORDS]
    assert logs.compare(entries(RECORDS), entries(other))[0] != []
    assert logs.compare(entries(RECORDS), entries(other), DiffOptions(frozenset({ignored})))[0] == []


@pytest.mark.parametrize("gap", [(0, 3), (40, 41), (50, 90), (99, 100), (0, 100)])
@pytest.mark.parametrize("swapped", [False, True])
def test_missing_records_are_one_difference_for_each_gap(logs: Logs, gap: tuple[int, int], swapped: bool) -> None:
    first, end = gap
    whole, rest = entries(RECORDS), entries(RECORDS[:first] + RECORDS[end:], batch_bytes=333)
    differences, report = logs.compare(*((rest, whole) if swapped else (whole, rest)))
    (found,) = differences
    assert found.what is (What.ONLY_IN_B if swapped else What.ONLY_IN_A)
    assert (found.first_offset, found.last_offset, found.records) == (first, end - 1, end - first)
    assert (found.b if swapped else found.a) == RECORDS[first]
    assert (found.a if swapped else found.b) is None
    assert report.partitions[0].compared == 100 - (end - first)


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_are_found_each(logs: Logs, seed: int) -> None:
    rng = random.Random(seed)
    expected: dict[int, What] = {}
    a, b = [], []
    for record in RECORDS:
        what = rng.choice([What(0)] * 5 + [What.ONLY_IN_A, What.ONLY_IN_B, What.VALUE, What.KEY | What.TIMESTAMP])
        if what:
            expected[record.offset] = what
        other = record._replace(value=b"other") if what is What.VALUE else record
        if what is What.KEY | What.TIMESTAMP:
            other = record._replace(key=b"other", timestamp=77)
        if what is not What.ONLY_IN_B:
            a.append(record)
        if what is not What.ONLY_IN_A:
            b.append(other)
    sizes = [rng.randrange(50, 2000) for _ in range(2)]
    differences, _ = logs.compare(entries(a, batch_bytes=sizes[0]), entries(b, batch_bytes=sizes[1]))
    found = {
        offset: each.what
        for each in differences
        for offset in range(each.first_offset, each.last_offset + 1)
        if offset in expected or each.records == each.last_offset - each.first_offset + 1
    }
    assert found == expected
    assert sum(each.records for each in differences) == len(expected)


def test_neighbours_that_differ_in_the_same_way_are_one_difference_across_segments(logs: Logs) -> None:
    a = logs.write("a", entries(RECORDS[:50]), entries(RECORDS[50:]))
    b = logs.write("b", entries([record._replace(value=b"") for record in RECORDS]))
    (found,) = diff(a, b)
    assert (found.what, found.first_offset, found.last_offset, found.records) == (What.VALUE, 0, 99, 100)


# ---- control records


def with_marker(at: int) -> bytes:
    marker = build_marker(
        ControlType.COMMIT, base_offset=at, timestamp=5, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    return entries(RECORDS[:at]) + marker + entries(RECORDS[at + 1 :])


def test_a_missing_marker_is_a_difference_where_the_other_log_could_hold_it(logs: Logs) -> None:
    without = entries(RECORDS[:40] + RECORDS[41:])
    (found,) = logs.compare(with_marker(40), without)[0]
    assert (found.what, found.first_offset, found.records) == (What.ONLY_IN_A, 40, 1)
    assert logs.compare(with_marker(40), without, DiffOptions(frozenset({Ignored.CONTROL})))[0] == []


@pytest.mark.parametrize("at", [0, 40, 99])
def test_a_missing_marker_is_counted_where_the_other_log_has_no_place_for_it(logs: Logs, at: int) -> None:
    converted = b"".join(convert(with_marker(at), Format.V1))
    differences, report = logs.compare(with_marker(at), converted)
    assert differences == []
    assert report.partitions[0].not_held["control records"] == 1


# ---- partitions, damage, wrong use


def test_partitions_are_matched_by_name_and_missing_ones_told(logs: Logs) -> None:
    for side, names in (("a", ("orders-0", "orders-10", "orders-2")), ("b", ("orders-10", "orders-2", "users-0"))):
        for name in names:
            logs.write(side, entries(RECORDS), name=name)
    report = DiffReport()
    assert list(diff(str(logs.folder / "a"), str(logs.folder / "b"), report=report)) == []
    names = [(each.partition, each.path_a is None, each.path_b is None, each.same) for each in report.partitions]
    assert names == [
        ("orders-0", False, True, False),
        ("orders-2", False, False, True),
        ("orders-10", False, False, True),
        ("users-0", True, False, False),
    ]
    assert not report.same


def test_only_the_topics_asked_for_are_compared(logs: Logs) -> None:
    logs.write("a", entries(RECORDS), name="users-0")
    logs.write("b", b"", name="users-0")
    paths = logs.write("a", entries(RECORDS)), logs.write("b", entries(RECORDS))
    assert magicbyte.diff(*paths, topic="orders").same
    assert not magicbyte.diff(*paths).same
    with pytest.raises(UnknownTopicError, match="no topic 'none'"):
        magicbyte.diff(*paths, topic="none")


def test_a_partition_that_comes_twice_is_refused(logs: Logs, tmp_path: Path) -> None:
    for disk in ("one", "two"):
        logs.write(f"disks/{disk}", entries(RECORDS))
        logs.write(f"disks/{disk}", entries(RECORDS), name="users-1")
    with pytest.raises(LogDirectoryError, match="orders-0: expected once"):
        list(diff(str(tmp_path / "disks"), str(tmp_path / "disks")))


def test_records_below_the_log_start_offset_do_not_count(logs: Logs) -> None:
    a, b = logs.write("a", entries(RECORDS)), logs.write("b", entries(RECORDS[30:]))
    assert [each.last_offset for each in diff(a, b)] == [29]
    (Path(a) / "log-start-offset-checkpoint").write_text("0\n1\norders 0 30\n")
    assert list(diff(a, b)) == []
    (Path(a) / "log-start-offset-checkpoint").write_text("0\n1\norders 0 35\n")
    assert [(each.what, each.first_offset, each.last_offset) for each in diff(a, b)] == [(What.ONLY_IN_B, 30, 34)]


def test_damage_is_reported_and_skipped_if_allowed(logs: Logs) -> None:
    batches = [entries(RECORDS[at : at + 10]) for at in range(0, 100, 10)]
    damaged = bytearray(b"".join(batches))
    damaged[sum(map(len, batches[:5])) - 1] ^= 1
    with pytest.raises(CorruptRecordError, match=r"offsets 40\.\.49: crc"):
        logs.compare(entries(RECORDS), bytes(damaged))
    found: list[CorruptRecordError] = []
    differences, _ = logs.compare(entries(RECORDS), bytes(damaged), DiffOptions(on_damage=found.append))
    assert [(each.what, each.first_offset, each.last_offset) for each in differences] == [(What.ONLY_IN_A, 40, 49)]
    assert len(found) == 1


def test_offsets_that_do_not_rise_are_damage(logs: Logs) -> None:
    twice = entries(RECORDS[:50]) + entries(RECORDS[48:])
    with pytest.raises(CorruptRecordError, match=r"offsets 48\.\.48: offset: expected > 49, found 48"):
        logs.compare(entries(RECORDS), twice)
    assert logs.compare(entries(RECORDS), twice, DiffOptions(on_damage=lambda _: None))[0] == []


def test_logs_without_records_are_the_same(logs: Logs) -> None:
    differences, report = logs.compare(b"", b"")
    assert differences == []
    assert report.same


def test_the_dialect_is_the_folders_unless_it_is_given(logs: Logs) -> None:
    plain = b"".join(build_message(1, record.offset, record.timestamp, record.key, record.value) for record in RECORDS)
    enriched = b"".join(convert(plain, Format.ENRICHED))
    a, b = logs.write("a", plain), logs.write("b", enriched)
    assert list(diff(a, b, dialects=(None, Dialect.ENRICHED))) == []
    (Path(b) / "orders-0" / "message.dialect").write_text("version: 0\ndialect: enriched\n")
    assert list(diff(a, b)) == []


def test_the_source_is_read_only(logs: Logs, tmp_path: Path) -> None:
    logs.compare(entries(RECORDS), entries(RECORDS[1:]))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    list(diff(str(tmp_path / "a"), str(tmp_path / "b")))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("form", ["plain"], indirect=True)  # compiling would count
def test_batches_that_decompress_to_much_do_not_fill_the_memory(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "HELD_BYTES", 8 << 20)
    zeros = [Record(at, 7, 0, None, bytes(2 << 20)) for at in range(100)]
    log = b"".join(entries([record], codec=Codec.ZSTD) for record in zeros)
    assert len(log) < 100_000
    tracemalloc.start()
    try:
        differences, report = logs.compare(log, log, DiffOptions(threads=4))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert differences == []
    assert report.partitions[0].compared == 100
    assert peak < 150 << 20  # of 400 MiB
