"""Partition folders and log directories as they are written: Kafka's own, made again from their bytes."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.log.appended import batch_of_two, is_plain, rules_of
from golden_data import Case, Stage, log_cases
from golden_data import checkpoints as golden_checkpoints
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, TruncatedLogError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.files.indexes import OffsetIndex, TimeIndex, TransactionIndex
from magicbyte.engine.log.files.producer_snapshot import ProducerSnapshot
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.enriched import build_enriched_message, build_enriched_wrapper
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.layout import Dialect
from magicbyte.tools.offline.writer import LogDirectoryWriter, PartitionWriter, temporary_name


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("case", [case for case in log_cases() if case.state in ("clean shutdown", "before")], ids=str)
def test_a_rewritten_log_of_a_broker_has_the_same_files_with_the_same_bytes(case: Case, tmp_path: Path) -> None:
    files = case.partition_files()
    metadata = files.get(checkpoints.PARTITION_METADATA)
    topic_id = None if metadata is None else checkpoints.parse_partition_metadata(metadata).topic_id
    with PartitionWriter(tmp_path / "t-0", rules=rules_of(case), topic_id=topic_id) as writer:
        for name, log in case.segments().items():
            writer.roll(int(name[:20]))
            writer.append(log)
        writer.finish()
    expected, trimmed = dict(files), "trimmed" in case.id  # its head was cut off before the broker closed the log
    if trimmed:
        del expected[checkpoints.LEADER_EPOCHS]
    for name, content in expected.items():
        made = (tmp_path / "t-0" / name).read_bytes()
        if name.endswith(".snapshot"):
            made, content = (_in_order(each) for each in (made, content))
        if not (name.endswith((".index", ".timeindex")) and is_plain(files[f"{name[:20]}.log"])):
            assert made == content, name
    assert trimmed or names(tmp_path / "t-0") == sorted(expected)


def _in_order(content: bytes) -> bytes:
    """The same snapshot with its producers by id: Kafka's order is that of its hash table."""
    return ProducerSnapshot(tuple(sorted(ProducerSnapshot.parse(content).producers))).to_bytes()


def test_nothing_is_under_the_final_name_before_it_is_complete(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    with PartitionWriter(folder) as writer:
        writer.append(batch_of_two(0, 1))
        assert names(tmp_path) == [".t-0.part"]
    assert names(tmp_path) == [".t-0.part"]  # left without finish
    with PartitionWriter(folder) as writer:
        writer.append(batch_of_two(0, 1))
        written = writer.finish()
    assert names(tmp_path) == ["t-0"]
    assert (written.first_offset, written.end_offset, written.segments, written.size) == (0, 2, 1, 97)
    with pytest.raises(LogDirectoryError, match="expected a new name, found a file or folder"):
        PartitionWriter(folder)


def test_segments_roll_by_size(tmp_path: Path) -> None:
    log = b"".join(batch_of_two(2 * at, at) for at in range(10))
    with PartitionWriter(tmp_path / "t-0", segment_bytes=300) as writer:
        writer.append(log[:485])
        writer.append(log[485:])
        assert writer.finish().segments == 4
    (found,) = discover([str(tmp_path / "t-0")])
    assert [(segment.base_offset, segment.log.size) for segment in found.segments] == [
        (0, 291),
        (6, 291),
        (12, 291),
        (18, 97),
    ]
    assert list(found.snapshots) == [6, 12, 18, 20]


def test_an_entry_larger_than_a_segment_has_one_to_itself(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path / "t-0", segment_bytes=50) as writer:
        writer.append(batch_of_two(0, 1) + batch_of_two(2, 1))
        assert writer.finish().segments == 2


def test_segments_roll_before_offsets_are_too_far_from_the_base(tmp_path: Path) -> None:
    far = 2**31 + 5
    with PartitionWriter(tmp_path / "t-0") as writer:
        writer.roll(0)
        writer.append(batch_of_two(0, 1) + batch_of_two(2**31 - 2, 1) + batch_of_two(far, 1))
        writer.finish()
    (found,) = discover([str(tmp_path / "t-0")])
    assert [(segment.base_offset, segment.log.size) for segment in found.segments] == [(0, 194), (far, 97)]


def test_offsets_may_go_as_far_as_offsets_go(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path / "t-0") as writer:
        writer.append(batch_of_two(0, 1) + batch_of_two(2**63 - 3, 1))
        assert writer.finish().end_offset == 2**63 - 1
    with PartitionWriter(tmp_path / "t-1") as writer, pytest.raises(CorruptRecordError, match="offset: expected"):
        writer.append(batch_of_two(2**63 - 1, 1))  # its last offset is beyond


def test_an_empty_log_has_one_empty_segment(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path / "t-0", rules=IndexRules.of("2.8.2")) as writer:
        assert writer.finish().end_offset == 0
    assert {path.name: path.stat().st_size for path in (tmp_path / "t-0").iterdir()} == {
        "00000000000000000000.index": 0,
        "00000000000000000000.log": 0,
        "00000000000000000000.snapshot": 10,
        "00000000000000000000.timeindex": 0,
    }


def test_an_empty_segment_gives_way_to_another_base(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path / "t-0", rules=IndexRules.of("0.9.0.1")) as writer:
        writer.roll(0)
        writer.roll(7)
        assert writer.finish().first_offset == 7
    assert names(tmp_path / "t-0") == ["00000000000000000007.index", "00000000000000000007.log"]


def test_an_empty_segment_behind_others_gives_way_with_its_snapshot(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path / "t-0") as writer:
        writer.append(batch_of_two(0, 1))
        writer.roll(5)
        writer.roll(8)
        writer.append(batch_of_two(8, 1))
        writer.finish()
    kept = [name for name in names(tmp_path / "t-0") if name.endswith((".log", ".snapshot"))]
    assert kept == [f"{0:020}.log", f"{8:020}.log", f"{8:020}.snapshot", f"{10:020}.snapshot"]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (batch_of_two(0, 1) + batch_of_two(1, 1), "position 97, offsets 1..2: offset: expected > 1, found 1"),
        (batch_of_two(0, 1)[:-1], "position 0: end of the data: expected 97 bytes of an entry, found 96"),
        (batch_of_two(0, 1) + bytes(40), "position 97: entry size"),
    ],
    ids=["offsets overlap", "cut", "no entry"],
)
def test_what_is_no_log_is_refused(data: bytes, error: str, tmp_path: Path) -> None:
    with PartitionWriter(tmp_path / "t-0") as writer, pytest.raises(CorruptRecordError) as caught:
        writer.append(data)
    assert error in str(caught.value)
    assert isinstance(caught.value, TruncatedLogError) == ("cut" in error or "end of" in error)


def test_a_log_directory_gets_checkpoints_and_the_mark_of_a_clean_shutdown(tmp_path: Path) -> None:
    out = LogDirectoryWriter(tmp_path / "out", IndexRules.of("3.9.1"))
    for number in range(2):
        with out.partition("some-topic", number) as writer:
            writer.roll(10 * number)
            writer.append(batch_of_two(10 * number + 5, 1))
            writer.finish()
    again = LogDirectoryWriter(tmp_path / "out", IndexRules.of("3.9.1"))  # as after an interruption
    assert [again.is_finished("some-topic", number) for number in range(3)] == [True, True, False]
    ends = again.finish(b"version=0\n", {TopicPartition("some-topic", 0): 5, TopicPartition("some-topic", 1): 10})
    assert ends == {TopicPartition("some-topic", 0): 7, TopicPartition("some-topic", 1): 17}
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert written == {
        "recovery-point-offset-checkpoint": b"0\n2\nsome-topic 0 7\nsome-topic 1 17\n",
        "replication-offset-checkpoint": b"0\n2\nsome-topic 0 7\nsome-topic 1 17\n",
        "log-start-offset-checkpoint": b"0\n1\nsome-topic 0 5\n",
        "meta.properties": b"version=0\n",
        ".kafka_cleanshutdown": b'{"version":0,"brokerEpoch":-1}',
    }


def test_a_former_run_that_did_not_finish_leaves_no_trace(tmp_path: Path) -> None:
    with PartitionWriter(tmp_path / "t-0") as writer:
        writer.append(b"".join(batch_of_two(2 * at, at) for at in range(4)))
    (temporary_name(tmp_path / "t-0") / "00000000000000000099.log").touch()
    with PartitionWriter(tmp_path / "t-0") as writer:
        writer.append(batch_of_two(0, 1))
        writer.finish()
    assert sum(path.suffix == ".log" for path in (tmp_path / "t-0").iterdir()) == 1


# ---- each format's writer, on every file of every golden log


@pytest.mark.parametrize("case", log_cases(), ids=str)
def test_a_companion_that_was_read_is_written_back_with_the_same_bytes(case: Case) -> None:
    for name, content in case.partition_files().items():
        base, suffix = int(name[:20]) if name[:20].isdigit() else 0, name.rpartition(".")[2]
        if suffix == "snapshot":
            assert ProducerSnapshot.parse(content).to_bytes() == content
        elif suffix == "index":
            assert content.startswith(OffsetIndex.parse(content, base).to_bytes())
        elif suffix == "timeindex":
            assert content.startswith(TimeIndex.parse(content, base).to_bytes())
        elif suffix == "txnindex":
            assert TransactionIndex.parse(content).to_bytes() == content
        elif name == checkpoints.PARTITION_METADATA:
            assert checkpoints.format_partition_metadata(checkpoints.parse_partition_metadata(content)) == content
        elif name == checkpoints.LEADER_EPOCHS and content:  # 0 bytes mean no entries, too
            assert checkpoints.format_leader_epochs(checkpoints.parse_leader_epochs(content)) == content


@pytest.mark.parametrize("stage", golden_checkpoints(), ids=str)
def test_a_checkpoint_that_was_read_is_written_back_with_the_same_bytes(stage: Stage) -> None:
    for name, content in stage.files.items():
        if name in checkpoints.OFFSET_CHECKPOINTS and content:
            assert checkpoints.format_offset_checkpoint(checkpoints.parse_offset_checkpoint(content)) == content
        elif name == checkpoints.CLEAN_SHUTDOWN:
            assert checkpoints.format_clean_shutdown(checkpoints.parse_clean_shutdown(content)) == content


def test_a_dialect_that_was_written_is_read_back() -> None:
    for dialect in Dialect:
        assert checkpoints.parse_message_dialect(checkpoints.format_message_dialect(dialect)) is dialect


def enriched(offset: int, seconds: int, *, wrapped: int = 0) -> bytes:
    """An enriched message; or a wrapper of `wrapped` messages, whose end only its inside tells."""
    if not wrapped:
        return build_enriched_message(offset, None, b"value", seconds=seconds)
    inside = b"".join(build_enriched_message(at, None, b"value", seconds=seconds) for at in range(wrapped))
    return build_enriched_wrapper(
        Codec.GZIP, inside, num_messages=wrapped, non_keyed=True, start_offset=offset, seconds=seconds
    )


def test_a_log_of_the_enriched_dialect_gets_its_own_index_and_says_so(tmp_path: Path) -> None:
    rules = replace(IndexRules.of("4.3.1"), interval_bytes=100)
    log = b"".join([enriched(0, 10), enriched(1, 30), enriched(2, 20, wrapped=5), enriched(7, 5), enriched(8, 40)])
    with PartitionWriter(tmp_path / "t-0", rules=rules, dialect=Dialect.ENRICHED) as writer:
        writer.append(log)
        assert writer.finish().end_offset == 9
    assert names(tmp_path / "t-0") == [f"{0:020}.emindex", f"{0:020}.log", "message.dialect"]
    (found,) = discover([str(tmp_path / "t-0")])
    assert found.dialect is Dialect.ENRICHED
    index = found.enriched_index(found.segments[0])
    assert index is not None
    assert (index.offsets[-1], index.timestamps[-1]) == (8, 40_000)
    assert index.offsets.tolist()[0] > 0
    starts = [position for position, _ in entries(log, Dialect.ENRICHED)]
    assert set(index.positions.tolist()) <= set(starts)
    with (
        pytest.raises(CorruptRecordError, match="offset: expected > 6, found 6"),
        PartitionWriter(tmp_path / "t-1", rules=rules, dialect=Dialect.ENRICHED) as writer,
    ):
        writer.append(enriched(2, 20, wrapped=5) + enriched(6, 5))
