"""Indexes that a broker trusts, and that lack an entry or have a false one."""

import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

import golden_data
from magicbyte.engine.log.files.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINT, format_offset_checkpoint
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.indexes import AbortedTransaction, TransactionIndex
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.tools.offline.findings import Depth, Finding, Severity
from magicbyte.tools.offline.verify import verify
from magicbyte.tools.offline.verify_parts import check_segments, join_checks

CASE = golden_data.log_case("3.9.1/txn-none")
KEY = TopicPartition(CASE.topic, CASE.partition)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition with aborted transactions, in a log directory that was cleanly shut down."""
    target = tmp_path / "data" / str(KEY)
    shutil.copytree(CASE.partition_dir(), target)
    (target.parent / CLEAN_SHUTDOWN).write_bytes(b"")
    return target


def serious(path: Path) -> list[Finding]:
    return [each for each in verify(discover(path)) if each.severity is not Severity.NOTE]


def indexes(folder: Path) -> list[Path]:
    return [each for each in sorted(folder.glob("*.txnindex")) if each.stat().st_size]


@pytest.mark.parametrize("damage", ["missing", "empty", "without its last entry"])
def test_an_aborted_transaction_that_the_index_does_not_name_is_an_error(folder: Path, damage: str) -> None:
    assert serious(folder.parent) == []
    (path, *_) = indexes(folder)
    entries = TransactionIndex.parse(path.read_bytes()).entries
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-34] if damage != "empty" else b"")
    lost = entries if damage != "without its last entry" else entries[-1:]
    found = serious(folder.parent)
    assert [(each.path, each.what, each.severity) for each in found] == [
        (str(path), "transaction index", Severity.ERROR)
    ] * len(lost)
    assert sorted(each.offsets for each in found if each.offsets) == sorted(
        (entry.first_offset, entry.last_offset) for entry in lost
    )


def test_an_entry_without_an_abort_marker_hides_committed_records(folder: Path) -> None:
    (path, *_) = indexes(folder)
    last = TransactionIndex.parse(path.read_bytes()).entries[-1]
    false = AbortedTransaction(0, last.producer_id, last.last_offset, last.last_offset + 1, last.last_offset + 1)
    path.write_bytes(path.read_bytes() + TransactionIndex((false,)).to_bytes())
    (found,) = serious(folder.parent)
    assert (found.severity, found.expected) == (Severity.ERROR, "an ABORT marker at its end")


def test_what_a_broker_recovers_at_its_start_is_a_warning(folder: Path) -> None:
    (folder.parent / CLEAN_SHUTDOWN).unlink()
    for path in indexes(folder):
        path.unlink()
    assert {each.severity for each in serious(folder.parent)} == {Severity.WARNING}
    (folder.parent / RECOVERY_POINT).write_bytes(format_offset_checkpoint({KEY: 10**6}))
    found = [each for each in serious(folder.parent) if each.what == "transaction index"]
    assert {each.severity for each in found} == {Severity.ERROR}


def test_checks_in_parts_find_what_a_check_in_sequence_finds(folder: Path) -> None:
    for path in indexes(folder):
        path.unlink()
    (partition,) = discover(folder.parent)
    parts = []
    for at in range(len(partition.segments)):
        some = replace(partition, segments=partition.segments[at : at + 2], snapshots={}, texts={})
        parts.append(check_segments(some, 1, Depth.USUAL, DEFAULT_MAX_BATCH_BYTES))
    joined = join_checks(partition, Depth.USUAL, DEFAULT_MAX_BATCH_BYTES, parts)
    assert joined is None, "checked again in sequence"


@pytest.mark.parametrize("is_last", [False, True])
def test_a_time_index_without_its_last_entry_deletes_a_segment_too_early(folder: Path, is_last: bool) -> None:
    paths = sorted(each for each in folder.glob("*.timeindex") if each.stat().st_size)
    path = next(each for each in (reversed(paths) if is_last else paths) if each.stat().st_size >= 12)
    timestamp, offset = struct.unpack(">qi", path.read_bytes()[-12:])
    path.write_bytes(path.read_bytes()[:-12] + struct.pack(">qi", timestamp - 1, offset))
    assert str(path) in {each.path for each in serious(folder.parent)}
    entries = path.read_bytes()[:-12]
    path.write_bytes(entries or struct.pack(">qi", 1, 0))
    wrong = [each for each in serious(folder.parent) if each.path == str(path)]
    assert {each.severity for each in wrong} == {Severity.ERROR}
    path.write_bytes(b"")
    (empty,) = serious(folder.parent)
    assert (empty.what, empty.severity) == ("end of the time index", Severity.WARNING)
