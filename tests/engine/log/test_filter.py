"""Filtered logs: the wanted records of the source, as a consumer sees them, and nothing else changed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import golden_data
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.directory import PartitionDirectory, discover
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import DecodeOptions
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import TimestampType
from magicbyte.tools.offline.filter import RecordFilter, filter_partition
from magicbyte.tools.offline.findings import Severity
from magicbyte.tools.offline.verify import verify
from magicbyte.tools.offline.writer import end_offset

NAME = TopicPartition("orders", 0)
CASES = [case for case in golden_data.log_cases() if case.has_records]


def records_of(partition: PartitionDirectory, *, control: bool = False) -> list[Record]:
    found = SegmentReader(partition).records(options=DecodeOptions(control=control))
    return [record for columns in found for record in columns]


def is_wanted(record: Record, wanted: RecordFilter) -> bool:
    times = (wanted.since is None or record.timestamp >= max(wanted.since, 0)) and (
        wanted.until is None or 0 <= record.timestamp < wanted.until
    )
    keys = wanted.keys is None or record.key in wanted.keys
    begins = wanted.prefix is None or (record.key is not None and record.key.startswith(wanted.prefix))
    return times and keys and begins and wanted.first <= record.offset < wanted.end


def limits_for(records: list[Record]) -> Iterator[RecordFilter]:
    """Yield limits that cut through the records."""
    times = sorted(record.timestamp for record in records)
    keys = [record.key for record in records if record.key is not None]
    middle = len(records) // 2
    yield RecordFilter(since=times[middle])
    yield RecordFilter(until=times[middle], first=records[1].offset)
    yield RecordFilter(first=records[len(records) // 3].offset, end=records[2 * len(records) // 3].offset)
    if keys:
        yield RecordFilter(keys=frozenset(keys[::5]))
        yield RecordFilter(prefix=keys[0][: max(len(keys[0]) - 1, 1)])


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=pytest.mark.slow if number % 3 else ())  # a third in every run
        for number, case in enumerate(CASES[::4])
    ],
)
def test_the_filtered_log_has_the_wanted_records_and_is_sound(case: golden_data.Case, tmp_path: Path) -> None:
    (source,) = discover([str(case.partition_dir())])
    before = records_of(source)
    for number, wanted in enumerate(limits_for(before)):
        out = tmp_path / str(number)
        report = filter_partition(source, NAME, out, wanted)
        (found,) = discover([str(out)])
        expected = [record for record in before if is_wanted(record, wanted)]
        assert records_of(found) == expected
        assert (report.records, report.kept) == (len(before), len(expected))
        markers = {record.offset for record in records_of(source, control=True)} - {each.offset for each in before}
        assert {record.offset for record in records_of(found, control=True)} == markers | {
            record.offset for record in expected
        }
        assert end_offset(found) == end_offset(source)
        assert [each for each in verify([found]) if each.severity is Severity.ERROR] == []


def test_sets_that_lose_nothing_are_copied_and_headers_stay(tmp_path: Path) -> None:
    header = BatchHeader(
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=77,
        is_transactional=True,
        partition_leader_epoch=4,
        producer_id=9,
        producer_epoch=2,
        base_sequence=30,
    )
    folder = tmp_path / "logs/orders-0"
    folder.mkdir(parents=True)
    sets = [
        encode_records(
            [Record(offset, 5, 0, b"k", b"v", ()) for offset in offsets], Format.V2, Codec.ZSTD, header=header
        )
        for offsets in (range(3), range(3, 6), range(6, 9))
    ]
    (folder / f"{0:020}.log").write_bytes(b"".join(sets))
    (source,) = discover([str(folder)])
    report = filter_partition(source, NAME, tmp_path / "out", RecordFilter(first=5))
    (found,) = discover([str(tmp_path / "out")])
    content = Path(found.segments[0].log.path).read_bytes()
    assert (report.copied, report.rewritten, report.dropped) == (1, 1, 1)
    assert content.endswith(sets[2])
    (chunk,) = SegmentReader(found).chunks()
    batch, whole = RecordBatch(chunk.table.buffer[: chunk.table.size[0]]), RecordBatch(memoryview(sets[1]))
    for name in (
        "base_offset", "last_offset", "timestamp_type", "max_timestamp", "is_transactional", "partition_leader_epoch",
        "producer_id", "producer_epoch", "base_sequence", "codec",
    ):  # fmt: skip
        assert getattr(batch, name) == getattr(whole, name), name
    assert batch.record_count == 1
