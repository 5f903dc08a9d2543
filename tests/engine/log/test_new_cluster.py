"""Logs for a cluster that knows nothing of the old one: no epochs, no producers, no open transactions; same records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cli.command import run
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.checkpoints import LeaderEpoch
from magicbyte.engine.log.files.directory import PartitionDirectory, discover
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.log.live.lookups import aborted_transactions
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import MARKER_BYTES, ControlType, build_marker, marker_of
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.entry import entries
from magicbyte.tools.offline.convert import ConvertOptions, convert_part, convert_partitions, join_parts
from magicbyte.tools.offline.diff import DiffOptions, DiffReport, Ignored, Side, diff_partition
from magicbyte.tools.offline.findings import Depth, Severity
from magicbyte.tools.offline.new_cluster import FIRST_OLD_ID
from magicbyte.tools.offline.salvage import SalvageOptions, salvage_logs
from magicbyte.tools.offline.verify import verify
from magicbyte.tools.offline.writer import LogDirectoryWriter

KEY = TopicPartition("orders", 0)
TIME = 1_700_000_000_000
EPOCH = 17  # of the old cluster's leader
IDEMPOTENT, COMMITTED, ABORTED, LOST, OPEN = range(5)  # producer ids


class Old:
    """A log of the old cluster, in segments."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.writer = folder, LogDirectoryWriter(folder)
        self.partition = self.writer.partition(*KEY, segment_bytes=500)

    def batch(
        self, producer: int = -1, *, transactional: bool = False, epoch: int = 3, codec: Codec = Codec.NONE
    ) -> None:
        base = self.partition.end_offset
        records = [Record(base + at, TIME + base, 0, b"key", b"value %d" % (base + at)) for at in range(2)]
        header = BatchHeader(partition_leader_epoch=EPOCH)
        if producer >= 0:
            header = BatchHeader(
                partition_leader_epoch=EPOCH, producer_id=producer, producer_epoch=3, base_sequence=40,
                is_transactional=transactional,
            )  # fmt: skip
        self.partition.append(encode_records(records, Format.V2, codec, header=header))

    def mark(self, kind: ControlType, producer: int) -> int:
        base = self.partition.end_offset
        self.partition.append(
            build_marker(kind, base_offset=base, timestamp=TIME + base, producer_id=producer, producer_epoch=3,
                         coordinator_epoch=5, partition_leader_epoch=EPOCH)
        )  # fmt: skip
        return base

    def finish(self) -> Path:
        with self.partition:
            self.partition.finish()
        self.writer.finish()
        return self.folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    old = Old(tmp_path / "old")
    for codec in (Codec.NONE, Codec.LZ4):
        old.batch()
        old.batch(IDEMPOTENT, codec=codec)
        old.batch(COMMITTED, transactional=True, codec=codec)
        old.batch(ABORTED, transactional=True, codec=codec)
        old.mark(ControlType.COMMIT, COMMITTED)
        old.mark(ControlType.ABORT, ABORTED)
        old.batch(IDEMPOTENT, codec=codec)
    old.batch(OPEN, transactional=True)
    old.batch()
    old.batch(LOST, transactional=True)
    return old.finish()


def found_in(folder: Path) -> PartitionDirectory:
    (found,) = discover([str(folder)])
    return found


def batches(folder: Path) -> list[RecordBatch]:
    content = b"".join(path.read_bytes() for path in sorted((folder / str(KEY)).glob("*.log")))
    return [entry for _, entry in entries(content) if isinstance(entry, RecordBatch)]


def visible(folder: Path, *, committed: bool) -> list[tuple[int, bytes]]:
    """What a reader gets: offsets and values, below the last stable offset and without what was aborted, or all."""
    log = PartitionLog.open(LocalFiles(), str(folder / str(KEY)), LogConfig(), monotonic_ms=0, clean=True)
    log.high_watermark = log.log_end_offset
    end = log.last_stable_offset if committed else log.log_end_offset
    aborted = aborted_transactions(log, 0, end) if committed else []
    log.release()
    got = []
    for batch in batches(folder):
        gone = [
            each
            for each in aborted
            if each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset < each.last_offset
        ]
        if not batch.is_control and batch.base_offset < end and not (batch.is_transactional and gone):
            got.append((batch.base_offset, bytes(batch.records_section)))
    return got


def check_new(old: Path, new: Path, ended: list[int]) -> None:
    found = batches(new)
    assert {each.partition_leader_epoch for each in found} == {0}
    for each in found:
        each.verify()
        assert (each.producer_id >= 0) == (each.is_transactional or each.is_control)
    closing = found[len(found) - len(ended) :] if ended else []
    assert [each.producer_id for each in closing] == [FIRST_OLD_ID + each for each in ended]
    assert all(each.producer_id < 0 or each.producer_id >= FIRST_OLD_ID for each in found), "a new producer may have it"
    assert all((marker := marker_of(each)) is not None and marker.type is ControlType.ABORT for each in closing)
    written = found_in(new)
    assert list(written.leader_epochs() or []) == [LeaderEpoch(0, found[0].base_offset)]
    for offset in written.snapshots:
        snapshot = written.snapshot(offset)
        assert snapshot.producers == ()
    assert [each for each in verify([written], depth=Depth.DEEP) if each.severity is not Severity.NOTE] == []
    report = DiffReport()
    options = DiffOptions(ignore=frozenset({Ignored.CONTROL}))
    assert list(diff_partition(Side(found_in(old)), Side(written), options, name="orders-0", report=report)) == []
    assert visible(new, committed=False) == visible(old, committed=False)
    before, after = visible(old, committed=True), visible(new, committed=True)
    assert after[: len(before)] == before  # and what an open transaction held back


def check_accepted(folder: Path, *, clean: bool) -> None:
    """A log that is open for all: of no producer anything is known, and nothing is held back."""
    log = PartitionLog.open(LocalFiles(), str(folder / str(KEY)), LogConfig(), monotonic_ms=0, clean=clean,
                            recovery_point=0 if clean else 1 << 40)  # fmt: skip
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == log.log_end_offset
    assert clean is False or log.producers.snapshot().producers == ()
    log.release()


@pytest.mark.parametrize("codec", [None, Codec.GZIP], ids=str)
def test_a_converted_log_knows_nothing_of_the_old_cluster_and_has_its_records(
    codec: Codec | None, source: Path, tmp_path: Path
) -> None:
    options = ConvertOptions(Format.V2, codec, verify=True, new_cluster=True)
    (done,) = convert_partitions({KEY: found_in(source)}, tmp_path / "new", options)
    assert done.sound
    assert done.ended_transactions == 2
    if codec is None:
        check_new(source, tmp_path / "new", [OPEN, LOST])
    check_accepted(tmp_path / "new", clean=True)
    check_accepted(tmp_path / "new", clean=False)


def test_a_salvaged_log_whose_commit_marker_is_lost_blocks_no_reader(tmp_path: Path) -> None:
    old = Old(tmp_path / "old")
    old.batch(IDEMPOTENT)
    old.batch(LOST, transactional=True)
    marker = old.mark(ControlType.COMMIT, LOST)
    old.batch(IDEMPOTENT)
    source = old.finish()
    (path,) = (source / str(KEY)).glob("*.log")
    content = bytearray(path.read_bytes())
    at = next(position for position, each in entries(bytes(content)) if getattr(each, "base_offset", -1) == marker)
    content[at + MARKER_BYTES - 1] ^= 1
    path.write_bytes(content)
    for index in (source / str(KEY)).glob("*index"):
        index.unlink()
    (same,) = salvage_logs({KEY: found_in(source)}, tmp_path / "same", SalvageOptions())
    (new,) = salvage_logs({KEY: found_in(source)}, tmp_path / "new", SalvageOptions(new_cluster=True))
    assert (same.report.ended_transactions, new.report.ended_transactions) == (0, 1)
    check_new(tmp_path / "same", tmp_path / "new", [LOST])
    check_accepted(tmp_path / "new", clean=True)
    assert len(visible(tmp_path / "same", committed=True)) == 1
    assert len(visible(tmp_path / "new", committed=True)) == 2  # what the open transaction held back, too


def test_a_log_without_transactions_gets_no_marker(tmp_path: Path) -> None:
    old = Old(tmp_path / "old")
    old.batch(IDEMPOTENT)
    source = old.finish()
    (done,) = convert_partitions({KEY: found_in(source)}, tmp_path / "new", ConvertOptions(Format.V2, new_cluster=True))
    assert done.ended_transactions == 0
    check_new(source, tmp_path / "new", [])
    assert sorted(path.name for path in (tmp_path / "new" / str(KEY)).iterdir()) == [
        f"{0:020}.index", f"{0:020}.log", f"{0:020}.timeindex", f"{2:020}.snapshot", checkpoints.LEADER_EPOCHS,
    ]  # fmt: skip


def test_parts_put_together_are_what_one_run_makes(source: Path, tmp_path: Path) -> None:
    options = ConvertOptions(Format.V2, new_cluster=True)
    whole = found_in(source)
    (done,) = convert_partitions({KEY: whole}, tmp_path / "one", options)
    segments, parts = whole.segments, []
    assert len(segments) > 2
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else None
        one = replace(whole, segments=(segment,))
        done, made = convert_part(one, KEY, tmp_path / f"part{at}", replace(options, following=following))
        assert done.error is None
        parts += made
    join_parts(whole, KEY, tmp_path / "joined", options, parts)
    files = {path.name: path.read_bytes() for path in (tmp_path / "one" / str(KEY)).iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "joined" / str(KEY)).iterdir()} == files


@pytest.mark.parametrize("command", [["convert", "--to", "v2"], ["salvage"]], ids=["convert", "salvage"])
def test_commands_write_for_a_new_cluster_unless_told_otherwise(
    command: list[str], source: Path, tmp_path: Path
) -> None:
    result = run(*command, source, "--out", tmp_path / "new")
    assert result.exit_code == 0, result.stderr
    assert "ended: 2 open transactions, by ABORT markers" in result.stdout
    check_new(source, tmp_path / "new", [OPEN, LOST])
    result = run(*command, source, "--out", tmp_path / "same", "--same-cluster")
    assert result.exit_code == 0, result.stderr
    same, old = ([bytes(each.buffer) for each in batches(folder)] for folder in (tmp_path / "same", source))
    assert same == old
