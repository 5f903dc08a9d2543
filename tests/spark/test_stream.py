"""Streams over log directories that grow: each record once, whatever is killed, torn or new; planned without Spark."""

import shutil
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Literal

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError, MagicbyteError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.checkpoints import HIGH_WATERMARK
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.spark import plan
from magicbyte.spark.options import OptionError, parse_options
from magicbyte.spark.source import MagicbyteSource
from magicbyte.spark.stream import LogStream
from spark.builders import Json, Place, records, step, steps, stream_reader
from spark.logs import SEGMENT, START, content_of, some_records, write_partition


def stream_of(path: Path, **options: str) -> LogStream:
    return stream_reader({"path": str(path), **options})


def joined(batches: Iterable[list[Place]]) -> list[Place]:
    return list(chain.from_iterable(batches))


def numbered(topic: str, partition: int, first: int, end: int) -> list[Place]:
    return [(topic, partition, offset) for offset in range(first, end)]


def append(folder: Path, content: bytes) -> None:
    with (folder / SEGMENT).open("ab") as file:
        file.write(content)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """The folder of a partition with 30 records."""
    return write_partition(tmp_path, "orders-0", some_records(30))


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_is_appended_comes_in_the_next_batch_and_nothing_else(tmp_path: Path, magic: int) -> None:
    target = Format(str(magic)) if magic < 2 else Format.V2
    folder = write_partition(tmp_path, "a-0", some_records(30, magic=magic), target=target)
    stream = stream_of(tmp_path, startingOffsets="earliest")
    place, found = step(stream, stream.initialOffset())
    assert found == numbered("a", 0, 0, 30)
    assert step(stream, place) == (place, [])
    append(folder, content_of(some_records(20, first=30, magic=magic), target))
    place, found = step(stream, place)
    assert found == numbered("a", 0, 30, 50)
    assert place == {"a": {"0": 50}}


def test_without_an_option_a_stream_starts_at_the_end_as_sparks_kafka_source_does(orders: Path) -> None:
    stream = stream_of(orders.parent)
    place, found = step(stream, stream.initialOffset())
    assert found == []
    append(orders, content_of(some_records(5, first=30)))
    assert step(stream, place)[1] == numbered("orders", 0, 30, 35)


def test_an_entry_that_is_not_whole_yet_waits_until_it_is(orders: Path) -> None:
    stream = stream_of(orders.parent, startingOffsets="earliest")
    place, _ = step(stream, {})
    added = content_of(some_records(10, first=30))
    for at in (1, 15, 40, len(added) - 1):
        (orders / SEGMENT).write_bytes(content_of(some_records(30)) + added[:at])
        assert step(stream, place) == (place, [])
        assert step(stream_of(orders.parent, startingOffsets="earliest"), place) == (place, [])
    (orders / SEGMENT).write_bytes(content_of(some_records(30)) + added)
    assert step(stream, place)[1] == numbered("orders", 0, 30, 40)


def test_a_torn_tail_does_not_disturb_a_batch_before_it(orders: Path) -> None:
    append(orders, content_of(some_records(10, first=30))[:50])
    stream = stream_of(orders.parent, startingOffsets="earliest")
    assert step(stream, {})[1] == numbered("orders", 0, 0, 30)


def test_a_damaged_entry_is_reported(orders: Path) -> None:
    append(orders, bytes(range(100)))
    with pytest.raises(CorruptRecordError, match=SEGMENT):
        step(stream_of(orders.parent, startingOffsets="earliest"), {})


def test_a_batch_that_is_run_again_by_another_process_reads_the_same(orders: Path) -> None:
    """Also the first one of a stream that started at the end: the place says where that was."""
    stream = stream_of(orders.parent)
    first, _ = step(stream, {})
    append(orders, content_of(some_records(5, first=30)))
    second, found = step(stream, first)
    append(orders, content_of(some_records(50, first=35)))
    write_partition(orders.parent, "orders-1", some_records(3))
    again = stream_of(orders.parent)
    assert records(again, {}, first) == []
    assert records(again, first, second) == found == numbered("orders", 0, 30, 35)
    assert step(again, second)[1] == numbered("orders", 0, 35, 85) + numbered("orders", 1, 0, 3)


def test_new_segments_and_partitions_are_followed(orders: Path) -> None:
    stream = stream_of(orders.parent, startingOffsets="earliest")
    place, _ = step(stream, {})
    (orders / f"{30:020}.log").write_bytes(content_of(some_records(10, first=30)))
    write_partition(orders.parent, "clicks-0", some_records(4))
    place, found = step(stream, place)
    assert found == numbered("clicks", 0, 0, 4) + numbered("orders", 0, 30, 40)
    assert step(stream, place) == (place, [])


def test_batches_are_limited_by_records_in_shares(tmp_path: Path) -> None:
    write_partition(tmp_path, "a-0", some_records(30))
    write_partition(tmp_path, "a-1", some_records(60))
    stream = stream_of(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="45")
    found = [batch for _, batch in steps(stream, {})]
    assert [len(batch) for batch in found] == [45, 45]
    assert len([each for each in found[0] if each[1] == 0]) == 15
    assert sorted(joined(found)) == numbered("a", 0, 0, 30) + numbered("a", 1, 0, 60)
    assert len(step(stream, {}, ReadAllAvailable())[1]) == 90  # a trigger that wants all


def test_each_partition_gets_one_offset_at_least_whatever_the_limit(tmp_path: Path) -> None:
    write_partition(tmp_path, "a-0", some_records(3))
    write_partition(tmp_path, "a-1", some_records(6))
    _, batch = step(stream_of(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="1"), {})
    assert sorted(batch) == numbered("a", 0, 0, 1) + numbered("a", 1, 0, 1)


@pytest.mark.parametrize("magic", [1, 2])
def test_batches_are_limited_by_bytes(tmp_path: Path, magic: int) -> None:
    target = Format.V1 if magic == 1 else Format.V2
    folder = write_partition(tmp_path, "a-0", some_records(100, magic=magic), target=target)
    size = (folder / SEGMENT).stat().st_size
    stream = stream_of(tmp_path, startingOffsets="earliest", maxBytesPerTrigger=str(size // 4))
    found = [batch for _, batch in steps(stream, {})]
    assert 4 <= len(found) <= 6
    assert joined(found) == numbered("a", 0, 0, 100)
    tiny = [batch for _, batch in steps(stream_of(tmp_path, startingOffsets="earliest", maxBytesPerTrigger="1"), {})]
    assert len(tiny) == (10 if magic == 2 else 100)  # an entry at least


def test_available_now_ends_where_the_logs_ended(orders: Path) -> None:
    stream = stream_of(orders.parent, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    stream.prepareForTriggerAvailableNow()
    append(orders, content_of(some_records(10, first=30)))
    write_partition(orders.parent, "orders-1", some_records(3))
    assert joined(batch for _, batch in steps(stream, {})) == numbered("orders", 0, 0, 30)


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": '{"orders": {"0": 7}}'}, 7),
        ({"startingOffsets": '{"orders": {"0": -2}}'}, 0),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, 30),
        ({"startingTimestamp": str(START + 12_000)}, 12),
        ({"startingOffsetsByTimestamp": f'{{"orders": {{"0": {START + 12_000}}}}}'}, 12),
        ({"startingTimestamp": str(START * 2), "startingOffsetsByTimestampStrategy": "latest"}, 30),
    ],
    ids=str,
)
def test_a_stream_starts_where_the_options_say(orders: Path, options: dict[str, str], first: int) -> None:
    append(orders, content_of(some_records(10, first=30))[:-1])  # not whole
    stream = stream_of(orders.parent, **options)
    assert step(stream, {})[1] == numbered("orders", 0, first, 30)


def test_lost_records_are_an_error_or_are_skipped(orders: Path) -> None:
    second = orders / f"{30:020}.log"
    second.write_bytes(content_of(some_records(10, first=30)))
    strict = stream_of(orders.parent, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    place, _ = step(strict, {})
    (orders / SEGMENT).unlink()  # as retention does
    with pytest.raises(MagicbyteError, match="orders-0: expected offset 10, found none before 30"):
        step(strict, place)
    loose = stream_of(orders.parent, startingOffsets="earliest", failOnDataLoss="false")
    assert step(loose, place)[1] == numbered("orders", 0, 30, 40)
    second.write_bytes(content_of(some_records(2, first=30)))  # created again
    for stream in (strict, loose):
        stream.stop()
    with pytest.raises(MagicbyteError, match="read up to offset 40 before, and ends at 32 now"):
        step(strict, {"orders": {"0": 40}})
    assert step(loose, {"orders": {"0": 40}}) == ({"orders": {"0": 32}}, [])


Trigger = Literal["once", "availableNow", "running"]


@pytest.mark.parametrize("trigger", ["once", "availableNow", "running"])
@pytest.mark.parametrize("limits", [{}, {"maxOffsetsPerTrigger": "100"}, {"isolation": "read_committed"}], ids=str)
def test_a_log_below_its_position_is_continued_at_its_end_as_by_sparks_source(
    tmp_path: Path, trigger: Trigger, limits: dict[str, str]
) -> None:
    """A topic that was recreated, a directory restored from an older backup, a log that was truncated: the same."""
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false", **limits}
    folder = write_partition(tmp_path, "t-0", some_records(4), per_batch=1)
    stream, place, found = stream_of(tmp_path, **options), Json(), []
    for offsets in (range(4), range(2), range(4), range(7)):
        (folder / SEGMENT).write_bytes(content_of(some_records(len(offsets), first=0), per_batch=1))
        if trigger != "running":
            stream = stream_of(tmp_path, **options)
        if trigger == "availableNow":
            stream.prepareForTriggerAvailableNow()
        place, batch = step(stream, place)
        found.append([offset for _, _, offset in batch])
    assert found == [[0, 1, 2, 3], [], [2, 3], [4, 5, 6]]


def test_a_running_stream_notices_that_a_larger_log_is_another_one(orders: Path) -> None:
    """Its old position in bytes is inside an entry of the new log."""
    stream = stream_of(orders.parent, startingOffsets="earliest", failOnDataLoss="false")
    place, _ = step(stream, {})
    (orders / SEGMENT).write_bytes(content_of(some_records(12, size=5000), per_batch=3))
    place, found = step(stream, place)
    assert (place, found) == ({"orders": {"0": 12}}, [])
    (orders / SEGMENT).write_bytes(content_of(some_records(15, size=5000), per_batch=3))
    assert step(stream, place)[1] == numbered("orders", 0, 12, 15)


def test_an_older_high_watermark_takes_no_position_back(orders: Path) -> None:
    key = TopicPartition("orders", 0)
    for loss in ("true", "false"):
        stream = stream_of(orders.parent, startingOffsets="earliest", upTo="highWatermark", failOnDataLoss=loss)
        (orders.parent / HIGH_WATERMARK).write_bytes(checkpoints.format_offset_checkpoint({key: 20}))
        place, _ = step(stream, {})
        (orders.parent / HIGH_WATERMARK).write_bytes(checkpoints.format_offset_checkpoint({key: 10}))
        assert step(stream, place) == (place, [])
        (orders.parent / HIGH_WATERMARK).unlink()
        assert step(stream, place) == (place, [])


def test_a_deleted_partition_leaves_the_position_and_is_read_from_its_beginning_if_it_returns(orders: Path) -> None:
    write_partition(orders.parent, "clicks-0", some_records(4))
    stream = stream_of(orders.parent, failOnDataLoss="false")
    place, _ = step(stream, {})
    assert place["clicks"] == {"0": 4}
    shutil.rmtree(orders.parent / "clicks-0")
    place, found = step(stream, place)
    assert (place, found) == ({"orders": {"0": 30}}, [])
    write_partition(orders.parent, "clicks-0", some_records(2))
    assert step(stream, place)[1] == numbered("clicks", 0, 0, 2)


def test_a_partition_folder_without_its_log_is_reported_once_and_the_others_are_read(
    orders: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (orders.parent / "lost-0").mkdir()
    (orders.parent / "lost-0/leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    (orders.parent / "lost-0/00000000000000000057.snapshot").write_bytes(b"")
    stream = stream_of(orders.parent, startingOffsets="earliest")
    place, found = step(stream, {})
    assert found == numbered("orders", 0, 0, 30)
    append(orders, content_of(some_records(5, first=30)))
    assert step(stream, place)[1] == numbered("orders", 0, 30, 35)
    (told,) = [each.getMessage() for each in caplog.records]
    assert told.startswith(f"missing: {orders.parent}/lost-0: log, offsets 0..56 (57)")


def test_a_stream_whose_partitions_are_all_gone_has_begun_nevertheless(orders: Path) -> None:
    """So partitions that come later are read from their beginning, whatever the option says."""
    write_partition(orders.parent, "clicks-0", some_records(4))
    stream = stream_of(orders.parent, subscribePattern="ord.*", failOnDataLoss="false")
    place, _ = step(stream, {})
    shutil.rmtree(orders)
    place, found = step(stream, place)
    assert found == []
    write_partition(orders.parent, "orders-1", some_records(3))
    assert step(stream, place)[1] == numbered("orders", 1, 0, 3)


def test_available_now_leaves_a_partition_for_later_that_comes_after_its_start(orders: Path) -> None:
    write_partition(orders.parent, "clicks-0", some_records(4))
    stream = stream_of(orders.parent, startingOffsets="earliest", failOnDataLoss="false")
    place, _ = step(stream, {})
    shutil.rmtree(orders)
    stream.prepareForTriggerAvailableNow()
    write_partition(orders.parent, "orders-0", some_records(3))
    place, found = step(stream, place)
    assert (place, found) == ({"clicks": {"0": 4}}, [])
    assert step(stream_of(orders.parent), place)[1] == numbered("orders", 0, 0, 3)


def test_up_to_the_high_watermark_what_may_be_cut_off_again_is_not_read(orders: Path) -> None:
    marks = {TopicPartition("orders", 0): 20}
    (orders.parent / HIGH_WATERMARK).write_bytes(checkpoints.format_offset_checkpoint(marks))
    stream = stream_of(orders.parent, startingOffsets="earliest", upTo="highWatermark")
    place, found = step(stream, {})
    assert found == numbered("orders", 0, 0, 20)
    (orders.parent / HIGH_WATERMARK).write_bytes(checkpoints.format_offset_checkpoint({next(iter(marks)): 30}))
    assert step(stream, place)[1] == numbered("orders", 0, 20, 30)


@pytest.mark.parametrize(("cores", "tasks"), [(1, range(1, 4)), (8, range(8, 33))])
def test_a_batch_is_divided_among_all_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, tasks: range
) -> None:
    monkeypatch.setattr(plan, "SMALLEST_SLICE", 1000)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    write_partition(tmp_path, "orders-0", some_records(400))
    stream = stream_of(tmp_path, startingOffsets="earliest")
    end, found = step(stream, {})
    assert found == numbered("orders", 0, 0, 400)
    assert len(stream.partitions({}, end)) in tasks


def test_records_behind_an_open_transaction_come_when_it_has_ended(orders: Path) -> None:
    def in_transaction(producer: int, first: int) -> bytes:
        header = BatchHeader(producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)
        return encode_records(some_records(5, first=first), Format.V2, Codec.NONE, header=header)

    def marker(kind: ControlType, producer: int, offset: int) -> bytes:
        return build_marker(
            kind, base_offset=offset, timestamp=START, producer_id=producer, producer_epoch=0, coordinator_epoch=0
        )

    stream = stream_of(orders.parent, startingOffsets="earliest", isolation="read_committed")
    append(orders, in_transaction(1, 30) + in_transaction(2, 35) + marker(ControlType.COMMIT, 2, 40))
    place, found = step(stream, {})
    assert (place["orders"], found) == ({"0": 30}, numbered("orders", 0, 0, 30))
    append(orders, marker(ControlType.ABORT, 1, 41) + content_of(some_records(3, first=42)))
    place, found = step(stream, place)
    assert found == numbered("orders", 0, 35, 40) + numbered("orders", 0, 42, 45)
    assert step(stream, place) == (place, [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "unknown option 'endingOffsets'"),
        ({"upTo": "noon"}, "option upTo: expected end or highwatermark, found 'noon'"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets: expected an offset or -2 for orders-0"),
    ],
    ids=str,
)
def test_wrong_options_of_a_stream_are_refused(tmp_path: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        stream_of(tmp_path, **options)


def test_a_wrong_value_of_a_streams_option_is_reported_with_the_schema(tmp_path: Path) -> None:
    for name, said in (("maxOffsetsPerTrigger", "expected a number"), ("upTo", "expected end or highwatermark")):
        with pytest.raises(OptionError, match=f"option {name}: {said}"):
            MagicbyteSource({"path": str(tmp_path), name: "x"}).schema()


def test_a_query_refuses_the_options_of_streams(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown option 'maxOffsetsPerTrigger'"):
        parse_options({"path": str(tmp_path), "maxOffsetsPerTrigger": "3"})


def test_every_option_of_streams_and_writers_and_every_column_that_is_written_is_documented() -> None:
    from magicbyte.spark import columns, options, writing

    text = (Path(__file__).parents[2] / "docs/spark/dataframes.md").read_text()
    names = {*options._KNOWN, *options._OF_STREAMS, *writing._KNOWN, *columns.TYPES} - {"paths"}
    assert {name for name in names if f"`{name}`" not in text} == set()
