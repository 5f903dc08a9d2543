"""Damage of a live log is found by checksums, offsets and epochs, and replaced by what most replicas agree on."""

from __future__ import annotations

import pytest

from engine.log.test_partition_log import NOW, SIZE, SMALL, add, open_log, read_all
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.cleaning.scrub import DamagedRange, ReplicaBytes, SegmentScrub, agreed, copy_with
from magicbyte.engine.log.files.checkpoints import LeaderEpoch
from magicbyte.engine.log.live.loading import quarantine_bytes
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.testing.disk import SimulatedDisk

FOLDER = "/orders-0"
CUTS = 4
"""At each operation."""
FIRST_LOG = f"{FOLDER}/{0:020}.log"


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        add(log, NOW, partition_leader_epoch=0)


def made(count: int = 60) -> tuple[SimulatedDisk, PartitionLog]:
    disk = SimulatedDisk()
    log = open_log(FOLDER, disk, **SMALL)
    fill(log, count)
    log.high_watermark = log.log_end_offset
    return disk, log


def found(log: PartitionLog, segment: int = 0) -> list[DamagedRange]:
    check = SegmentScrub(log, log.segments[segment], log.high_watermark)
    for _ in check.run():
        pass
    return check.found


def places(log: PartitionLog, segment: int = 0) -> list[tuple[int, int, int, int]]:
    return [each[:4] for each in found(log, segment)]


@pytest.mark.parametrize("byte", range(SIZE))
def test_a_bit_that_flips_anywhere_in_a_batch_is_found(byte: int) -> None:
    disk, log = made()
    disk.flip_bit(FIRST_LOG, 3 * SIZE + byte, byte % 8)
    ranges = found(log)
    assert min(each.position for each in ranges) <= 3 * SIZE
    assert max(each.end for each in ranges) >= 4 * SIZE
    for each in ranges:
        assert (each.first_offset, each.end_offset) == (each.position // SIZE, each.end // SIZE)


def test_a_sound_log_has_no_damage() -> None:
    _, log = made()
    assert [places(log, at) for at in range(len(log.segments))] == [[]] * len(log.segments)


def test_damage_that_is_not_committed_is_left_to_a_later_check() -> None:
    disk, log = made(10)
    disk.flip_bit(FIRST_LOG, 5 * SIZE + 66, 0)
    log.high_watermark = 5
    assert places(log) == []
    log.high_watermark = 6
    assert places(log) == [(5 * SIZE, 6 * SIZE, 5, 6)]


def test_a_damaged_beginning_and_end_are_found() -> None:
    disk, log = made(10)
    for at in (0, 9):
        disk.flip_bit(FIRST_LOG, at * SIZE + 66, 0)
    assert places(log) == [(0, SIZE, 0, 1), (9 * SIZE, 10 * SIZE, 9, 10)]


# ---- what replaces it


def damaged_log() -> tuple[PartitionLog, DamagedRange, bytes]:
    disk, log = made(10)
    content = log.segments[0].log.read_at(4 * SIZE, SIZE)
    disk.flip_bit(FIRST_LOG, 4 * SIZE + 66, 3)
    (damaged,) = found(log)
    return log, damaged, content


def answer(content: bytes, broker_id: int = 2, high_watermark: int = 10, log_start_offset: int = 0) -> ReplicaBytes:
    return ReplicaBytes(broker_id, high_watermark, log_start_offset, content)


def test_the_bytes_of_most_replicas_are_taken_and_bytes_after_them_are_not() -> None:
    log, damaged, content = damaged_log()
    answers = [answer(content + b"the next batch"), answer(content, 3)]
    assert agreed(log, damaged, answers, 3).content == content
    assert agreed(log, damaged, answers, 4).content is None
    assert agreed(log, damaged, answers[:1], 3).content is None
    assert agreed(log, damaged, answers[:1], 2).content is None


@pytest.mark.parametrize(
    ("high_watermark", "log_start_offset", "why"),
    [(4, 0, "committed records up to offset 4 only"), (10, 5, "begins at offset 5")],
)
def test_a_replica_that_is_shorter_does_not_count(high_watermark: int, log_start_offset: int, why: str) -> None:
    log, damaged, content = damaged_log()
    found = agreed(log, damaged, [answer(content), answer(content, 3, high_watermark, log_start_offset)], 3)
    assert found.content is None
    assert why in found.why


def test_bytes_that_are_damaged_or_incomplete_do_not_count() -> None:
    log, damaged, content = damaged_log()
    flipped = bytes([*content[:66], content[66] ^ 1, *content[67:]])
    assert agreed(log, damaged, [answer(flipped), answer(flipped, 3)], 3).content is None
    assert agreed(log, damaged, [answer(content[:-1]), answer(content[:-1], 3)], 3).content is None
    assert agreed(log, damaged, [], 3).why == "no other replica answered"


def test_batches_of_an_older_epoch_do_not_count() -> None:
    """Two replicas that missed an election agree on a record that this log had at the offset before."""
    log, damaged, content = damaged_log()
    log.epochs.entries = [LeaderEpoch(0, 0), LeaderEpoch(1, 4)]
    assert agreed(log, damaged, [answer(content), answer(content, 3)], 3).content is None
    log.epochs.entries = [LeaderEpoch(0, 0), LeaderEpoch(1, 5)]
    assert agreed(log, damaged, [answer(content), answer(content, 3)], 3).content == content


def test_batches_of_other_offsets_do_not_count() -> None:
    log, damaged, content = damaged_log()
    moved = content[:7] + b"\7" + content[8:]
    assert agreed(log, damaged, [answer(moved), answer(moved, 3)], 3).content is None
    assert agreed(log, replace_offsets(damaged, 7, 8), [answer(moved), answer(moved, 3)], 3).content == moved


def replace_offsets(damaged: DamagedRange, first: int, end: int) -> DamagedRange:
    return damaged._replace(first_offset=first, end_offset=end)


# ---- the exchange


def repair(log: PartitionLog, damaged: DamagedRange, content: bytes) -> str | None:
    segment = log.segments[0]
    if segment is log.active:
        log.roll(NOW)
    copy = quarantine_bytes(segment, damaged.position, damaged.end, "/quarantine")
    path = f"{FIRST_LOG}.tmp"
    for _ in copy_with(segment, [(damaged, content)], path):
        pass
    log.replace_log(segment, path, Moment.fixed(NOW))
    return copy


def test_a_repaired_log_is_as_it_was_and_the_damaged_bytes_are_kept() -> None:
    disk, log = made()
    before = read_all(log), dict(disk.walk())
    position = 2 * SIZE + 61
    disk.flip_bit(FIRST_LOG, position, 5)
    (damaged,) = found(log)
    content = before[1][FIRST_LOG][damaged.position : damaged.end]
    copy = repair(log, damaged, content)
    assert places(log) == []
    assert read_all(log) == before[0]
    after = dict(disk.walk())
    assert copy is not None
    assert after[copy] == bytes([*content[:61], content[61] ^ 32, *content[62:]])
    assert {path: after[path] for path in before[1]} == before[1]
    log.close()
    assert read_all(open_log(FOLDER, disk, recovery_point="60", **SMALL)) == before[0]


def test_a_crash_within_a_repair_leaves_the_damaged_log_or_the_repaired_one() -> None:
    disk, log = made()
    sound = read_all(log)
    log.flush(NOW)
    disk.flip_bit(FIRST_LOG, 2 * SIZE + 61, 5)
    (damaged,) = found(log)
    content, left = sound[2], list[SimulatedDisk]()
    disk.observer = lambda _kind, _path: left.extend(disk.after_a_cut(len(left) + at) for at in range(CUTS))
    copy = repair(log, damaged, content)
    left += [disk.after_a_cut(at) for at in range(CUTS)]
    outcomes = set[bool]()
    for each in left:
        again = open_log(FOLDER, each, clean=False, recovery_point="60", **SMALL)
        again.high_watermark = again.log_end_offset
        records = read_all(again)
        is_repaired = records == sound
        assert is_repaired or records == [*sound[:2], records[2], *sound[3:]]
        assert is_repaired is not bool(found(again))
        if is_repaired:
            assert copy in dict(each.walk()), "the damaged bytes are kept before anything changes"
        outcomes.add(is_repaired)
    assert outcomes == {True, False}


def test_with_group_commit_recovery_does_not_cut_committed_records() -> None:

    disk = SimulatedDisk()
    settings = {**SMALL, "log_flush_policy": "group-commit"}
    log = open_log(FOLDER, disk, **settings)
    fill(log, 10)
    log.flush(NOW)
    log.high_watermark = 10
    assert log.committed == 10
    fill(log, 2)
    log.high_watermark = 12  # as a follower that catches up knows it before its own sync
    assert log.committed == 10
    disk.flip_bit(FIRST_LOG, 9 * SIZE + 66, 0)
    killed = disk.after_a_kill(1)
    with pytest.raises(CorruptRecordError):
        open_log(FOLDER, killed, clean=False, committed="10", **settings)
    assert dict(killed.walk())[FIRST_LOG] == dict(disk.walk())[FIRST_LOG]
    cut = open_log(FOLDER, killed, clean=False, committed="9", **settings)
    assert (cut.log_end_offset, cut.recovery_point) == (9, 9)
