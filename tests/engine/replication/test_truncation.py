"""Where a follower cuts its log: the cases of KIP-101 and KIP-279, and offsets that the leader does not have."""

from __future__ import annotations

import pytest

from engine.replication.histories import Log
from magicbyte.engine.log.files.producer_state import LeaderEpochs
from magicbyte.engine.replication.truncation import (
    EpochEnd,
    Restart,
    Truncation,
    by_high_watermark,
    by_leader_epoch,
    out_of_range,
)


def log_of(*epochs: int) -> Log:
    """Return a log whose records have these leader epochs."""
    log = Log()
    for epoch in epochs:
        log.append(epoch, 0)
    return log


def cut(follower: Log, answer: EpochEnd) -> Truncation:
    ends = {"log_end_offset": follower.log_end_offset, "high_watermark": follower.high_watermark}
    return by_leader_epoch(answer, follower.end_of_epoch, **ends)


@pytest.mark.parametrize(
    ("asked", "answer"), [(5, (5, 30)), (4, (3, 20)), (3, (3, 20)), (2, (1, 10)), (6, (-1, -1)), (0, (0, 0))]
)
def test_a_leader_answers_where_an_epoch_ends(asked: int, answer: tuple[int, int]) -> None:
    epochs = LeaderEpochs()
    for epoch, start in ((1, 0), (3, 10), (5, 20)):
        epochs.assign(epoch, start)
    assert epochs.end_offset_of(asked, 30) == answer


def test_the_new_leader_keeps_what_it_has_and_the_other_follower_cuts_to_it() -> None:
    """Leader LEO 12 and HW 10; the other follower has 13 records."""
    leader, follower = log_of(*[1] * 12), log_of(*[1] * 13)
    follower.high_watermark = 10
    assert by_high_watermark(follower.high_watermark, follower.log_end_offset) == Truncation(10)
    leader.epochs.append((2, 12))  # it leads since then
    assert cut(follower, leader.end_of_epoch(1)) == Truncation(12)


def test_a_follower_ahead_within_the_same_epoch_keeps_what_the_leader_has_too() -> None:
    assert cut(log_of(1, 1), EpochEnd(1, 5)) == Truncation(2)


def test_logs_diverged_by_fast_failovers_are_cut_in_two_questions() -> None:
    """KIP-279: the leader has epochs 0 and 2, the follower 0 and 1."""
    leader, follower = log_of(0, 0, 2, 2), log_of(0, 0, 0, 1, 1)
    first = cut(follower, leader.end_of_epoch(1))
    assert first == Truncation(2)
    leader, follower = log_of(0, 0, 1, 3), log_of(0, 0, 2, 2)
    first = cut(follower, leader.end_of_epoch(2))  # (1, 3): an epoch that the follower does not have
    assert first == Truncation(2, is_complete=False)
    follower.truncate(2)
    assert cut(follower, leader.end_of_epoch(0)) == Truncation(2)


def test_an_answer_of_version_0_has_no_epoch() -> None:
    assert cut(log_of(1, 1, 1), EpochEnd(-1, 2)) == Truncation(2)


def test_a_leader_that_does_not_know_the_epoch_makes_the_follower_cut_at_its_high_watermark() -> None:
    follower = log_of(1, 1, 1)
    follower.high_watermark = 1
    assert cut(follower, EpochEnd(-1, -1)) == Truncation(1)


@pytest.mark.parametrize(
    ("start", "end", "own", "expected"),
    [
        (0, 8, 10, Restart(8)),  # an unclean election: the leader has less
        (20, 30, 10, Restart(20, fully=True)),  # retention removed the next offsets
        (5, 30, 10, Restart(10)),  # both moved on meanwhile
        (10, 10, 10, Restart(10)),
    ],
)
def test_a_follower_continues_where_the_leader_has_records(start: int, end: int, own: int, expected: Restart) -> None:
    assert out_of_range(leader_start=start, leader_end=end, log_end_offset=own) == expected
