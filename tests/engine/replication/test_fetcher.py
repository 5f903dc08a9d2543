"""What a follower asks its leader for, and what it does with the answers."""

from __future__ import annotations

from random import Random

import pytest

from engine.replication.histories import Log
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.fetcher import (
    Answered,
    Append,
    AskEpochs,
    AskOffsets,
    EpochQuestion,
    Fetch,
    Fetcher,
    FetchFrom,
    Truncate,
    Wait,
)
from magicbyte.engine.replication.truncation import EpochEnd

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def log_of(count: int, epoch: int = 3, high_watermark: int = 0) -> Log:
    log = Log(high_watermark=high_watermark)
    for value in range(count):
        log.append(epoch, value)
    return log


def test_a_fetcher_without_partitions_waits_for_one() -> None:
    assert Fetcher(asks_epochs=True).next(0) == Wait(None)


def test_before_leader_epochs_a_follower_cuts_at_its_high_watermark_and_fetches() -> None:
    fetcher, log = Fetcher(asks_epochs=False), log_of(9, high_watermark=7)
    assert fetcher.follow(A, log, 4) == [Truncate(A, 7)]
    log.truncate(7)
    fetcher.was_cut(A, 4)
    assert fetcher.next(0) == Fetch((FetchFrom(A, 4, 7, 0, 3),))


def test_before_leader_epochs_a_log_is_kept_while_its_leader_stays() -> None:
    """Kafka's Partition.makeFollower changes nothing then: what one replica lacks, the next leader must not lose."""
    fetcher, log = Fetcher(asks_epochs=False), log_of(9, high_watermark=9)
    assert fetcher.follow(A, log, 4) == []
    log.high_watermark = 7
    assert fetcher.follow(A, log, 5, followed_epoch=fetcher.forget(A)) == []
    assert fetcher.next(0) == Fetch((FetchFrom(A, 5, 9, 0, 3),))
    assert fetcher.follow(A, log, 7, followed_epoch=fetcher.forget(A)) == [Truncate(A, 7)]  # another may have led in 6
    assert fetcher.follow(A, log, 8, followed_epoch=fetcher.forget(A)) == [Truncate(A, 7)]  # it was not truncated yet
    fetcher.forget(A)
    assert fetcher.follow(A, log, 9, followed_epoch=fetcher.forget(A)) == [Truncate(A, 7)]  # no leader was followed


def test_nothing_is_fetched_from_an_end_that_is_still_to_be_cut() -> None:
    """The leader would take it for in sync with records that it is about to lose."""
    fetcher, log = Fetcher(asks_epochs=False), log_of(9, high_watermark=7)
    fetcher.follow(A, log, 4)
    fetcher.follow(B, log_of(3, high_watermark=3), 4)
    assert fetcher.next(0) == Fetch((FetchFrom(B, 4, 3, 0, 3),))
    fetcher.follow(A, log, 5)
    fetcher.was_cut(A, 4)  # of the leader before
    assert fetcher.next(0) == Fetch((FetchFrom(B, 4, 3, 0, 3),))
    log.truncate(7)
    fetcher.was_cut(A, 5)
    assert fetcher.next(0) == Fetch((FetchFrom(A, 5, 7, 0, 3), FetchFrom(B, 4, 3, 0, 3)))


def test_a_follower_asks_where_its_latest_epoch_ends_before_it_fetches() -> None:
    fetcher, log = Fetcher(asks_epochs=True), log_of(9)
    fetcher.follow(A, log, 4)
    asked = fetcher.next(0)
    assert asked == AskEpochs((EpochQuestion(A, 4, 3),))
    assert fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, EpochEnd(3, 8))}, 0) == [Truncate(A, 8)]
    log.truncate(8)
    assert fetcher.next(0) == Fetch((FetchFrom(A, 4, 8, 0, 3),))


def version_0(leader: Log, asked: int) -> EpochEnd:
    """Return what OffsetForLeaderEpoch version 0 tells: no epoch."""
    return EpochEnd(-1, leader.end_of_epoch(asked).end_offset)


def test_before_2_0_a_follower_finds_that_its_leader_lacks_its_latest_epoch() -> None:
    """It led in epoch 2, which its leader never heard of: fast failovers from 1 to 2 to 3 (KIP-279)."""
    leader, follower = Log(), Log()
    for epoch in (1, 1, 1, 1, 3):
        leader.append(epoch, epoch)
    for epoch in (1, 1, 1, 2):
        follower.append(epoch, epoch)
    fetcher = Fetcher(asks_epochs=True)
    fetcher.follow(A, follower, 3)
    asked = fetcher.next(0)
    assert asked == AskEpochs((EpochQuestion(A, 3, 2),))
    assert fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, version_0(leader, 2))}, 0) == []
    asked = fetcher.next(0)
    assert asked == AskEpochs((EpochQuestion(A, 3, 1),))
    assert fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, version_0(leader, 1))}, 0) == [Truncate(A, 3)]
    follower.truncate(3)
    asked = fetcher.next(0)
    assert asked == AskEpochs((EpochQuestion(A, 3, 1),))
    assert fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, version_0(leader, 1))}, 0) == []
    asked = fetcher.next(0)
    assert asked == AskEpochs((EpochQuestion(A, 3, 0),))
    fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, version_0(leader, 0))}, 0)
    assert fetcher.next(0) == Fetch((FetchFrom(A, 3, 3, 0, 1),))


def fetched_before_it_was_known(*epochs: int) -> tuple[Fetcher, Log]:
    """Return a follower that knew of epoch 1, and has records of these epochs; now it knows of epoch 3 (KIP-320)."""
    fetcher, follower = Fetcher(asks_epochs=True), Log()
    follower.append(0, 1)
    fetcher.follow(A, follower, 1)
    for epoch in epochs:
        follower.append(epoch, epoch)
    known = fetcher.known_epoch(A)
    fetcher.follow(A, follower, 3, followed_epoch=fetcher.forget(A), known_epoch=known)
    return fetcher, follower


def test_a_follower_that_missed_an_election_finds_that_its_log_parted_below_what_it_fetched_since() -> None:
    fetcher, follower = fetched_before_it_was_known(1, 3)  # the leader has 0, 2, 3
    asked = fetcher.next(0)
    assert asked == AskEpochs((EpochQuestion(A, 3, 1),))
    assert fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, EpochEnd(-1, 1))}, 0) == [Truncate(A, 1, known_epoch=1)]
    follower.truncate(1)
    assert fetcher.next(0) == AskEpochs((EpochQuestion(A, 3, 0),))


def test_a_follower_that_missed_an_election_keeps_what_it_fetched_since_if_its_log_is_the_leaders() -> None:
    fetcher, follower = fetched_before_it_was_known(1, 3)
    asked = fetcher.next(0)
    assert fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, EpochEnd(1, 2))}, 0) == []
    assert fetcher.next(0) == AskEpochs((EpochQuestion(A, 3, 3),))
    assert follower.log_end_offset == 3


def test_what_a_follower_fetched_from_an_unknown_epoch_is_compared_later_if_the_leader_changes_again() -> None:
    fetcher, follower = fetched_before_it_was_known(1, 3)
    assert fetcher.known_epoch(A) == 1
    fetcher.follow(A, follower, 4, followed_epoch=fetcher.forget(A), known_epoch=1)
    asked = fetcher.next(0)
    assert asked == AskEpochs((EpochQuestion(A, 4, 1),))
    fetcher.epochs_answered(asked, {A: (ErrorCode.NOT_LEADER_OR_FOLLOWER, EpochEnd(-1, -1))}, 0)
    assert fetcher.known_epoch(A) == 1
    fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, EpochEnd(1, 2))}, 0)
    assert fetcher.known_epoch(A) == 4


def test_each_epoch_since_the_known_one_is_compared() -> None:
    """The epoch that was known ends alike; the logs part in a later one, below the latest."""
    fetcher, follower = fetched_before_it_was_known(1, 2, 2, 3)  # the leader has 0, 1, 2, 3
    asked = fetcher.next(0)
    assert asked == AskEpochs((EpochQuestion(A, 3, 1),))
    assert fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, EpochEnd(-1, 2))}, 0) == []
    assert fetcher.known_epoch(A) == 2
    asked = fetcher.next(0)
    assert asked == AskEpochs((EpochQuestion(A, 3, 2),))
    cuts = fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, EpochEnd(-1, 3))}, 0)
    assert cuts == [Truncate(A, 3, known_epoch=2)]
    follower.truncate(3)
    assert fetcher.next(0) == AskEpochs((EpochQuestion(A, 3, 2),))
    assert fetcher.known_epoch(A) == 3


def test_a_log_that_came_with_later_epochs_than_its_cluster_has_is_not_compared_before_them() -> None:
    fetcher, follower = Fetcher(asks_epochs=True), log_of(9)  # of epoch 3
    fetcher.follow(A, follower, 0)
    fetcher.follow(A, follower, 1, followed_epoch=fetcher.forget(A), known_epoch=0)
    assert fetcher.next(0) == AskEpochs((EpochQuestion(A, 1, 3),))


@pytest.mark.parametrize("seed", range(200))
def test_before_2_0_logs_are_cut_where_they_part_whatever_epochs_each_side_lacks(seed: int) -> None:
    random = Random(seed)
    common = sorted(random.choices(range(4), k=random.randrange(6)))
    later = random.sample(range(4, 12), 8)
    own, theirs = later[:4], later[4:]  # an epoch has one leader
    leader, follower = Log(), Log()
    for log, epochs in ((leader, theirs), (follower, own)):
        for epoch in common + sorted(random.choices(epochs, k=random.randrange(5))):
            log.append(epoch, epoch)
    follower.high_watermark = random.randrange(len(common) + 1)
    fetcher = Fetcher(asks_epochs=True)
    fetcher.follow(A, follower, 20)
    for _ in range(30):
        asked = fetcher.next(0)
        if isinstance(asked, Fetch):
            break
        assert isinstance(asked, AskEpochs)
        (question,) = asked.questions
        for each in fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, version_0(leader, question.epoch))}, 0):
            follower.truncate(each.offset)
    assert isinstance(asked, Fetch)
    kept = follower.log_end_offset
    assert follower.records == leader.records[:kept]
    assert kept >= follower.high_watermark


def test_an_empty_log_has_nothing_to_ask_for() -> None:
    fetcher = Fetcher(asks_epochs=True)
    fetcher.follow(A, Log(), 4)
    assert fetcher.next(0) == Fetch((FetchFrom(A, 4, 0, 0, -1),))


def test_from_version_12_on_a_fetch_tells_of_divergence_itself() -> None:
    fetcher, log = Fetcher(asks_epochs=True, compares_epochs=True), log_of(9)
    fetcher.follow(A, log, 4)
    step = fetcher.next(0)
    assert isinstance(step, Fetch)
    answer = Answered(ErrorCode.NONE, diverging=EpochEnd(3, 6))
    assert fetcher.fetched(step.partitions[0], answer, 0) == Truncate(A, 6)


def test_a_log_that_knows_an_epoch_without_records_is_cut_at_its_end_to_forget_it() -> None:
    fetcher, log = Fetcher(asks_epochs=True, compares_epochs=True), log_of(9)
    fetcher.follow(A, log, 5)
    step = fetcher.next(0)
    assert isinstance(step, Fetch)
    answer = Answered(ErrorCode.NONE, diverging=EpochEnd(3, 9))
    assert fetcher.fetched(step.partitions[0], answer, 0) == Truncate(A, 9)


def test_a_follower_that_asks_for_epochs_forgets_one_without_records_too() -> None:
    fetcher, log = Fetcher(asks_epochs=True), log_of(9)
    log.note(4)  # it led in this epoch, and appended nothing
    fetcher.follow(A, log, 5)
    asked = fetcher.next(0)
    assert asked == AskEpochs((EpochQuestion(A, 5, 4),))
    assert fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, EpochEnd(3, 9))}, 0) == [Truncate(A, 9)]
    log.truncate(9)
    assert fetcher.next(0) == Fetch((FetchFrom(A, 5, 9, 0, 3),))


def test_records_are_appended_where_the_log_still_ends_at_the_offset_asked_for() -> None:
    fetcher, log = Fetcher(asks_epochs=False), log_of(9, high_watermark=9)
    fetcher.follow(A, log, 4)
    step = fetcher.next(0)
    assert isinstance(step, Fetch)
    asked, answer = step.partitions[0], Answered(ErrorCode.NONE, 9, 0)
    assert fetcher.fetched(asked, answer, 0) == Append(A, 9, 0)
    log.append(4, 1)
    assert fetcher.fetched(asked, answer, 0) is None
    log.truncate(9)
    fetcher.follow(A, log, 5)
    assert fetcher.fetched(asked, answer, 0) is None, "of another epoch"
    fetcher.forget(A)
    assert fetcher.fetched(asked, answer, 0) is None


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_a_partition_waits_after_an_error_and_others_do_not(error: ErrorCode) -> None:
    fetcher = Fetcher(asks_epochs=False, backoff_ms=1000)
    fetcher.follow(A, Log(), 4)
    fetcher.follow(B, Log(), 4)
    step = fetcher.next(0)
    assert isinstance(step, Fetch)
    assert fetcher.fetched(step.partitions[0], Answered(error), 0) is None
    now_ms = 0
    for wait_ms in (20, 40, 80, 160, 320, 640, 1000, 1000):  # the leader gets its role soon, or the epoch ends soon
        other = Fetch((FetchFrom(B, 4, 0, 0, -1),), until_ms=now_ms + wait_ms)
        assert fetcher.next(now_ms + wait_ms - 1) == other
        now_ms += wait_ms
        again = fetcher.next(now_ms)
        assert isinstance(again, Fetch)
        assert len(again.partitions) == 2
        fetcher.fetched(again.partitions[0], Answered(error), now_ms)


def test_a_follower_with_an_older_epoch_waits_for_the_controller() -> None:
    fetcher = Fetcher(asks_epochs=False)
    fetcher.follow(A, Log(), 4)
    step = fetcher.next(0)
    assert isinstance(step, Fetch)
    fetcher.fetched(step.partitions[0], Answered(ErrorCode.FENCED_LEADER_EPOCH), 0)
    assert fetcher.next(10_000) == Wait(None)
    assert fetcher.partitions == frozenset()


def test_a_follower_out_of_range_asks_for_the_leaders_offsets() -> None:
    fetcher, log = Fetcher(asks_epochs=False), log_of(9, high_watermark=9)
    fetcher.follow(A, log, 4)
    step = fetcher.next(0)
    assert isinstance(step, Fetch)
    assert fetcher.fetched(step.partitions[0], Answered(ErrorCode.OFFSET_OUT_OF_RANGE), 0) is None
    asked = fetcher.next(0)
    assert asked == AskOffsets((A,))
    assert fetcher.offsets_answered(asked, {A: (ErrorCode.NONE, 20, 30)}, 0) == [Truncate(A, 20, fully=True)]
    assert isinstance(fetcher.next(0), Fetch)


def after_a_refusal(fetcher: Fetcher) -> list[Truncate]:
    """Answer a fetch that names epoch 5 with OFFSET_OUT_OF_RANGE, and a look-up with 0 to 9; return the truncations."""
    step = fetcher.next(0)
    assert isinstance(step, Fetch)
    assert step.partitions[0].last_epoch == 5
    fetcher.fetched(step.partitions[0], Answered(ErrorCode.OFFSET_OUT_OF_RANGE), 0)
    asked = fetcher.next(0)
    assert isinstance(asked, AskOffsets)
    return fetcher.offsets_answered(asked, {A: (ErrorCode.NONE, 0, 9)}, 0)


@pytest.mark.parametrize("compares_epochs", [False, True])
def test_a_leader_that_keeps_refusing_an_offset_that_it_has_is_asked_with_growing_delays(compares_epochs: bool) -> None:
    fetcher, now_ms, asked_ms = Fetcher(asks_epochs=False, compares_epochs=compares_epochs, backoff_ms=100), 0, [0]
    assert fetcher.follow(A, log_of(3, -1, high_watermark=3), 6) == []
    while len(asked_ms) < 6:
        match fetcher.next(now_ms):
            case Fetch((asked,)):
                fetcher.fetched(asked, Answered(ErrorCode.OFFSET_OUT_OF_RANGE), now_ms)
                asked_ms.append(now_ms)
            case AskOffsets() as question:
                assert fetcher.offsets_answered(question, {A: (ErrorCode.NONE, 0, 9)}, now_ms) == []
            case Wait(int() as until_ms):
                now_ms = until_ms
            case step:
                pytest.fail(f"{step}")
    assert asked_ms[1:] == [0, 20, 60, 140, 240]


def test_a_leader_that_keeps_no_epochs_is_asked_without_one_from_the_high_watermark_on() -> None:
    """Kafka 2.8, set to a message format before 2, answers so to a follower whose log has epochs."""
    fetcher, log = Fetcher(asks_epochs=True, compares_epochs=True), log_of(3, 5, high_watermark=2)
    assert fetcher.follow(A, log, 6) == []
    assert [after_a_refusal(fetcher) for _ in range(2)] == [[], [Truncate(A, 2)]]
    log.truncate(2)
    for _ in range(2):
        step = fetcher.next(0)
        assert isinstance(step, Fetch)
        assert (step.partitions[0].offset, step.partitions[0].last_epoch) == (2, -1)
        assert isinstance(fetcher.fetched(step.partitions[0], Answered(ErrorCode.NONE, 2, 0), 0), Append)


def test_one_refusal_of_an_offset_that_the_leader_has_is_no_sign_of_that() -> None:
    fetcher = Fetcher(asks_epochs=True, compares_epochs=True)
    fetcher.follow(A, log_of(3, 5, high_watermark=2), 6)
    for _ in range(4):
        assert after_a_refusal(fetcher) == []
        step = fetcher.next(0)
        assert isinstance(step, Fetch)
        fetcher.fetched(step.partitions[0], Answered(ErrorCode.NONE, 2, 0), 0)


def test_a_request_without_an_answer_is_sent_again_after_a_while() -> None:
    fetcher = Fetcher(asks_epochs=True, backoff_ms=1000)
    fetcher.follow(A, log_of(3), 4)
    asked = fetcher.next(0)
    assert isinstance(asked, AskEpochs)
    fetcher.failed(asked, 0)
    assert fetcher.next(500) == Wait(1000)
    assert fetcher.next(1000) == asked


def test_a_corrupt_answer_is_fetched_again() -> None:
    fetcher = Fetcher(asks_epochs=False)
    fetcher.follow(A, Log(), 4)
    step = fetcher.next(0)
    assert isinstance(step, Fetch)
    assert isinstance(fetcher.fetched(step.partitions[0], Answered(ErrorCode.NONE, 0, 0), 0), Append)
    fetcher.not_appended(A, 0)
    assert fetcher.next(1000) == step


def test_a_partition_that_is_held_back_is_left_out_until_it_has_caught_up() -> None:
    fetcher, log = Fetcher(asks_epochs=False, backoff_ms=1000), log_of(3, high_watermark=3)
    fetcher.follow(A, log, 4)
    fetcher.follow(B, log_of(1, high_watermark=1), 4)
    step = fetcher.next(0, lambda key: key == A)
    assert isinstance(step, Fetch)
    assert [each.partition for each in step.partitions] == [B]
    assert fetcher.next(0, lambda _: True) == Wait(1000)
    step = fetcher.next(0)
    assert isinstance(step, Fetch)
    fetcher.fetched(step.partitions[0], Answered(ErrorCode.NONE, high_watermark=4), 0)
    assert fetcher.next(0, lambda _: True) == Wait(1000)
    log.append(4, 0)
    step = fetcher.next(0, lambda _: True)
    assert isinstance(step, Fetch)
    assert [each.partition for each in step.partitions] == [A]


@pytest.mark.parametrize("has_failed", [True, False], ids=["failed", "refused"])
def test_after_an_interruption_the_log_is_compared_with_a_leader_that_may_have_been_elected_again(
    has_failed: bool,
) -> None:
    """Its leader of epoch 2 lost the leadership and has it again in epoch 4, of which this broker knows nothing yet."""
    fetcher, log = Fetcher(asks_epochs=True, backoff_ms=100), log_of(30, epoch=2, high_watermark=29)
    fetcher.follow(A, log, 2)
    asked = AskEpochs((EpochQuestion(A, 2, 2),))
    fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, EpochEnd(2, 30))}, 0)
    fetch = fetcher.next(0)
    assert fetch == Fetch((FetchFrom(A, 2, 30, 0, 2),))
    if has_failed:
        fetcher.failed(fetch, 0)
    else:
        fetcher.fetched(fetch.partitions[0], Answered(ErrorCode.NOT_LEADER_OR_FOLLOWER), 0)
    assert fetcher.next(100) == asked
    assert fetcher.epochs_answered(asked, {A: (ErrorCode.NONE, EpochEnd(2, 29))}, 100) == [Truncate(A, 29)]
    log.truncate(29)
    assert fetcher.next(100) == Fetch((FetchFrom(A, 2, 29, 0, 2),))


@pytest.mark.parametrize("settings", [{"asks_epochs": False}, {"asks_epochs": True, "compares_epochs": True}])
def test_after_an_interruption_a_fetch_follows_at_once_if_there_is_nothing_to_ask(settings: dict[str, bool]) -> None:
    fetcher, log = Fetcher(**settings), log_of(30, epoch=2, high_watermark=30)
    fetcher.follow(A, log, 2)
    fetch = fetcher.next(0)
    assert isinstance(fetch, Fetch)
    fetcher.failed(fetch, 0)
    assert fetcher.next(1000) == fetch
