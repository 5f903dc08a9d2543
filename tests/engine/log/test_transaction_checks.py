"""A live log whose transaction indexes were lost, cut or falsified beside a clean shutdown: readers get what the log
says, and the indexes are right again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from engine.log.appended import batch_of, rules_of
from golden_data import Case, log_cases
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.cleaning.compaction import CleanableOffsets, Compaction, CompactionConfig
from magicbyte.engine.log.files import headers
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.indexes import TRANSACTION_ENTRY, AbortedTransaction, TransactionIndex
from magicbyte.engine.log.live.lookups import aborted_in_slice, aborted_transactions
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.control import MARKER_BYTES, ControlType, build_marker
from magicbyte.engine.records.extent import last_offsets
from magicbyte.engine.records.scan import scan
from magicbyte.engine.records.transactions import AbortedRange, CommittedFilter, table_facts
from magicbyte.tools.offline.findings import Severity
from magicbyte.tools.offline.verify import verify
from topic_settings import log_config

NOW = 1_700_000_000_000
FIVE_BATCHES = {"segment.bytes": str(5 * len(batch_of(0, NOW))), "segment.index.bytes": "4096"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


def open_log(folder: Path, settings: Mapping[str, str] = FIVE_BATCHES) -> PartitionLog:
    return PartitionLog.open(LocalFiles(), str(folder), log_config(settings), monotonic_ms=NOW, clean=True)


def add(log: PartitionLog, producer: int = -1, sequence: int = -1) -> None:
    given = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "attributes": 16}
    batch = batch_of(log.log_end_offset, NOW, **(given if producer >= 0 else {}))
    log.append(record_set(batch, log.config.rules), Moment.fixed(NOW))


def end(log: PartitionLog, producer: int, kind: ControlType) -> None:
    marker = build_marker(
        kind, base_offset=log.log_end_offset, timestamp=NOW, producer_id=producer, producer_epoch=0,
        coordinator_epoch=0, partition_leader_epoch=-1,
    )  # fmt: skip
    log.append(record_set(marker, log.config.rules), Moment.fixed(NOW))


def write_history(log: PartitionLog, seed: int, steps: int = 40) -> None:
    """Write transactions of three producers, mixed with other records; some extend over several segments."""
    drawn, sequences, begun = random.Random(seed), dict.fromkeys(range(3), 0), set[int]()
    for _ in range(steps):
        producer = drawn.randrange(-1, 3)
        if producer in begun and drawn.random() < 0.4:
            end(log, producer, drawn.choice([ControlType.ABORT, ControlType.COMMIT]))
            begun.discard(producer)
        else:
            add(log, producer, sequences.get(producer, -1))
            if producer >= 0:
                sequences[producer] += 1
                begun.add(producer)


def write_aborted(log: PartitionLog) -> None:
    """Write a committed and two aborted transactions of producer 1; one begins two segments before its marker."""
    for at in range(3):
        add(log, 1, at)
    end(log, 1, ControlType.COMMIT)
    for at in range(3, 13):
        add(log, 1, at)
    add(log, 2, 0)
    end(log, 1, ControlType.ABORT)
    add(log, 1, 13)
    end(log, 1, ControlType.ABORT)
    end(log, 2, ControlType.ABORT)
    add(log)


def committed(log: PartitionLog) -> list[int]:
    """Return the offsets of the batches that consumers of committed records get, slice by slice, as from a broker."""
    log.high_watermark = log.log_end_offset
    offsets, position, stable = list[int](), log.log_start_offset, log.last_stable_offset
    while (found := log.read(position, 200, upper=stable)) is not None:
        aborted = aborted_in_slice(log, position, stable, found)
        table = scan(memoryview(found.read()))
        filtered = CommittedFilter([AbortedRange(each.producer_id, each.first_offset) for each in aborted], stable)
        rows = enumerate(filtered.delivered(table_facts(table)))
        offsets += [int(table.offset[row]) for row, is_delivered in rows if is_delivered]
        position = int(last_offsets(table)[-1]) + 1
    return offsets


def serious(folder: Path) -> list[str]:
    return [str(each) for each in verify(discover(folder)) if each.severity is not Severity.NOTE]


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_last_entry(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-34])


def cut_inside_an_entry(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def change(path: Path, at: int = 0, **fields: int) -> None:
    entries = [AbortedTransaction._make(each) for each in TRANSACTION_ENTRY.iter_unpack(path.read_bytes())]
    entries[at] = entries[at]._replace(**fields)
    path.write_bytes(TransactionIndex(tuple(entries)).to_bytes())


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": remove,
    "empty": empty,
    "without its last entry": cut_last_entry,
    "cut inside an entry": cut_inside_an_entry,
    "of another version": lambda path: change(path, version=1),
    "with a later first offset": lambda path: change(path, first_offset=12),
    "with the first offset of an earlier transaction": lambda path: change(path, 1, first_offset=4),
    "out of order": lambda path: change(path, 1, last_offset=18),
    "of another producer": lambda path: change(path, producer_id=3),
    "with a later last stable offset": lambda path: change(path, last_stable_offset=16),
}


@pytest.mark.parametrize("without_snapshots", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_transaction_index_hides_no_abort_and_is_rebuilt(
    folder: Path, damage: str, without_snapshots: bool
) -> None:
    log = open_log(folder)
    write_aborted(log)
    known, delivered = aborted_transactions(log, 0, log.log_end_offset), committed(log)
    assert [each[1:4] for each in known] == [(1, 4, 15), (1, 16, 17), (2, 14, 18)]
    log.close()
    whole = {path: path.read_bytes() for path in folder.glob("*.txnindex")}
    DAMAGES[damage](min(whole))
    assert serious(folder) != [], "verify finds it, too"
    for path in sorted(folder.glob("*.snapshot"))[:-1] if without_snapshots else ():
        path.unlink()
    log = open_log(folder)
    assert committed(log) == delivered
    assert [each[:4] for each in aborted_transactions(log, 0, log.log_end_offset)] == [each[:4] for each in known]
    log.close()
    assert {path: path.read_bytes() for path in folder.glob("*.txnindex")} == whole
    assert serious(folder) == []


def test_an_entry_of_a_committed_transaction_hides_no_record(folder: Path) -> None:
    log = open_log(folder)
    write_aborted(log)
    delivered = committed(log)
    log.close()
    false = AbortedTransaction(0, 1, 0, 3, 4)
    first = folder / f"{0:020}.txnindex"
    assert not first.exists()
    first.write_bytes(TransactionIndex((false,)).to_bytes())
    log = open_log(folder)
    assert committed(log) == delivered
    (fault,) = log.take_index_faults()
    assert (fault.path, fault.expected) == (str(first), "an ABORT marker at its end")
    assert log.take_index_faults() == []
    log.mend_transaction_indexes()
    assert not first.exists()
    assert committed(log) == delivered


@pytest.mark.parametrize("seed", range(6))
def test_any_history_is_read_alike_with_and_without_its_transaction_indexes(folder: Path, seed: int) -> None:
    log = open_log(folder)
    write_history(log, seed)
    limit = log.log_end_offset
    bounds = [(first, behind) for first in range(0, limit, 7) for behind in range(first + 1, limit + 1, 9)]
    known = {each: aborted_transactions(log, *each) for each in bounds}
    delivered = committed(log)
    log.close()
    lost = random.Random(seed)
    for path in folder.glob("*.txnindex"):
        if lost.random() < 0.7:
            path.unlink()
    for path in sorted(folder.glob("*.snapshot"))[:-1]:
        if lost.random() < 0.5:
            path.unlink()
    log = open_log(folder)
    assert committed(log) == delivered
    log.release()
    log = open_log(folder)
    lost.shuffle(bounds)
    needed = {
        each: [one for one in found if one.first_offset < each[1] and one.last_offset >= each[0]]
        for each, found in known.items()
    }
    assert {each: aborted_transactions(log, *each) for each in bounds} == needed
    log.mend_transaction_indexes()
    assert {each: aborted_transactions(log, *each) for each in bounds} == needed
    write_history(log, seed + 100)  # the producers write further batches
    log.close()
    assert serious(folder) == []


def test_a_log_without_transactions_is_not_walked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(folder)
    for _ in range(20):
        add(log)
    log.close()
    log = open_log(folder)
    monkeypatch.setattr(headers, "read_headers", None)
    assert committed(log) == list(range(20))
    assert committed(log) == list(range(20))
    assert not list(folder.glob("*.txnindex"))


def test_a_segment_is_walked_once_and_not_for_later_records(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(folder)
    write_aborted(log)
    log.close()
    log = open_log(folder)
    closed_at = log.log_end_offset
    add(log, 1, 14)
    end(log, 1, ControlType.ABORT)
    with monkeypatch.context() as patched:
        patched.setattr(headers, "read_headers", None)
        (aborted,) = aborted_transactions(log, closed_at, log.log_end_offset)
        assert aborted.first_offset == closed_at
    delivered = committed(log)
    monkeypatch.setattr(headers, "read_headers", None)
    assert committed(log) == delivered


def test_the_active_segment_takes_more_transactions_while_its_index_is_corrected(folder: Path) -> None:
    log = open_log(folder)
    add(log, 1, 0)
    end(log, 1, ControlType.ABORT)
    log.close()
    index = folder / f"{0:020}.txnindex"
    index.unlink()
    log = open_log(folder)
    add(log, 1, 1)
    assert [each.first_offset for each in aborted_transactions(log, 0, 3)] == [0]
    end(log, 1, ControlType.ABORT)
    assert [each.first_offset for each in aborted_transactions(log, 0, 4)] == [0, 2]
    log.mend_transaction_indexes()
    assert len(TransactionIndex.parse(index.read_bytes())) == 1, "a change of the active segment waits for its end"
    log.close()
    assert [each.first_offset for each in TransactionIndex.parse(index.read_bytes()).entries] == [0, 2]
    assert serious(folder) == []


def test_a_truncation_forgets_what_was_found(folder: Path) -> None:
    log = open_log(folder)
    add(log, 1, 0)
    end(log, 1, ControlType.ABORT)
    add(log, 1, 1)
    end(log, 1, ControlType.ABORT)
    log.close()
    (folder / f"{0:020}.txnindex").unlink()
    log = open_log(folder)
    assert [each.first_offset for each in aborted_transactions(log, 0, 4)] == [0, 2]
    log.truncate_to(3, NOW)
    end(log, 1, ControlType.COMMIT)
    assert [each.first_offset for each in aborted_transactions(log, 0, 4)] == [0]
    assert committed(log) == [2]
    log.close()
    assert serious(folder) == []


def test_after_damage_in_the_log_its_index_counts(folder: Path) -> None:
    every_batch = {"index.interval.bytes": "1"}
    log = open_log(folder, every_batch)
    for at in range(2):
        add(log, 1, at)
        end(log, 1, ControlType.ABORT)
        add(log)
    log.append(record_set(batch_of(6, NOW + 1), log.config.rules), Moment.fixed(NOW))
    known = aborted_transactions(log, 0, log.log_end_offset)
    log.close()
    path = folder / f"{0:020}.log"
    data, position = bytearray(path.read_bytes()), len(batch_of(0, NOW)) + MARKER_BYTES
    data[position + 8 : position + 12] = b"\xff" * 4
    path.write_bytes(data)
    index = path.with_suffix(".txnindex")
    index.write_bytes(index.read_bytes()[34:])
    log = open_log(folder, every_batch)
    assert aborted_transactions(log, 0, log.log_end_offset) == known
    assert [each.offsets for each in log.take_index_faults()] == [(0, 1)]


def test_compaction_removes_aborted_records_that_a_lost_index_does_not_name(folder: Path) -> None:
    log = open_log(folder)
    write_aborted(log)
    log.roll(NOW)
    add(log)
    log.close()
    for path in folder.glob("*.txnindex"):
        path.unlink()
    log = open_log(folder)
    selection = CleanableOffsets(0, log.active.base_offset, 0, 1, True, False)
    for _ in Compaction(log, selection, CompactionConfig(), now=Moment.fixed(NOW), secret=bytes(16)).run():
        pass
    log.close()
    table = scan(memoryview(b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))))
    facts = [each for row, each in enumerate(table_facts(table)) if each is not None and int(table.count[row])]
    assert not [each for each in facts if not each.is_control and each.base_offset >= 4]


@pytest.mark.parametrize("case", log_cases(group="transactions"), ids=str)
def test_indexes_of_a_real_broker_need_no_correction_and_lost_ones_are_rebuilt(case: Case, tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    shutil.copytree(case.partition_dir(), folder)
    config = log_config({name: str(value) for name, value in case.topic_config.items()}, rules_of(case))
    delivered, faults = list[list[int]](), list[bool]()
    whole = {path: path.read_bytes() for path in folder.glob("*.txnindex")}
    for is_lost in (False, True):
        for path in whole if is_lost else ():
            path.unlink()
        log = PartitionLog.open(LocalFiles(), str(folder), config, monotonic_ms=NOW, clean=True)
        delivered.append(committed(log))
        faults.append(bool(log.take_index_faults()))
        log.close()
    assert delivered[0] == delivered[1]
    assert faults[0] is False
    if case.state == "clean shutdown":  # compaction removes the data of aborted transactions
        assert faults[1]
        assert {path: path.read_bytes() for path in folder.glob("*.txnindex")} == whole
