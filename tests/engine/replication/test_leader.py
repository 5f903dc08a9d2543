"""The leader of a partition: high watermark, in-sync replicas and `acks=all`, case by case."""

from __future__ import annotations

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.replication.leader import IsrNotifications, LeaderPartition
from magicbyte.engine.replication.state import PartitionState

LAG_MS = 10_000


def leader(isr: tuple[int, ...] = (1, 2, 3), *, end: int = 0, high_watermark: int = 0) -> LeaderPartition:
    return LeaderPartition(
        1,
        PartitionState(1, 4, isr, 7),
        (1, 2, 3),
        20,
        log_end_offset=end,
        high_watermark=high_watermark,
        now_ms=0,
        max_lag_ms=LAG_MS,
    )


def test_the_high_watermark_advances_with_the_second_fetch() -> None:
    partition = leader()
    partition.appended(10, 1)
    assert partition.high_watermark == 0
    for follower in (2, 3):
        assert not partition.fetched(follower, 0, 0, 2)  # its answer carries the records and high watermark 0
    assert not partition.fetched(2, 10, 0, 3)
    assert partition.fetched(3, 10, 0, 3)
    assert partition.high_watermark == 10


def test_an_append_that_is_reported_late_does_not_hold_a_later_one_back() -> None:
    """The setting of the topic changed from group commit: the later append waits for no sync."""
    partition = leader()
    partition.appended(20, 1)
    partition.appended(10, 2)
    for follower in (2, 3):
        partition.fetched(follower, 20, 0, 3)
    assert partition.high_watermark == 20


def test_a_follower_that_the_controller_removes_holds_nothing_back() -> None:
    partition = leader()
    for follower in (2, 3):
        partition.fetched(follower, 0, 0, 1)
    partition.renew(PartitionState(1, 5, (1, 2), 7), (1, 2, 3), 21, 2)  # broker 3 is about to stop
    partition.appended(10, 3)
    assert partition.fetched(2, 10, 0, 4)
    assert partition.high_watermark == 10


def test_the_only_replica_in_sync_advances_by_itself() -> None:
    partition = leader((1,))
    assert partition.appended(10, LAG_MS + 1)
    assert partition.high_watermark == 10


def test_a_follower_that_is_late_leaves_and_the_high_watermark_moves_on() -> None:
    partition = leader()
    partition.appended(10, 0)
    partition.fetched(2, 10, 0, LAG_MS)
    assert partition.shrinking(LAG_MS) is None
    change = partition.shrinking(LAG_MS + 1)
    assert change is not None
    assert (change.state.isr, change.expected_version) == ((1, 2), 20)
    assert (change.state.leader_epoch, change.state.controller_epoch) == (4, 7)
    assert partition.high_watermark == 0, "the replica counts until the node is written"
    assert partition.shrinking(LAG_MS + 1) is None, "one change at a time"
    assert partition.isr_written(change, 21, LAG_MS + 1)
    assert (partition.high_watermark, partition.version) == (10, 21)


def test_a_follower_that_has_all_records_is_not_late_however_long_it_is_silent() -> None:
    partition = leader()
    for follower in (2, 3):
        partition.fetched(follower, 0, 0, 0)
    assert partition.shrinking(10 * LAG_MS) is None


def test_a_follower_that_always_reaches_the_end_of_its_last_fetch_stays_in_sync() -> None:
    partition = leader((1, 2))
    for step in range(20):
        now_ms = step * LAG_MS // 2
        partition.appended(10 * (step + 1), now_ms)
        partition.fetched(2, 10 * step, 0, now_ms)  # what there was when it asked last
        assert partition.shrinking(now_ms) is None


def test_a_follower_joins_with_the_fetch_that_reaches_the_high_watermark() -> None:
    partition = leader((1, 2), end=10, high_watermark=10)
    partition.fetched(3, 9, 0, 1)
    assert partition.expansion(3) is None
    partition.fetched(3, 10, 0, 2)
    change = partition.expansion(3)
    assert change is not None
    assert change.state.isr == (1, 2, 3)
    partition.appended(12, 3)
    partition.fetched(2, 12, 0, 4)
    assert partition.high_watermark == 10, "a replica that is being added counts"


def test_a_follower_joins_only_with_all_records_from_before_the_leaders_epoch() -> None:
    partition = leader((1, 2), end=12, high_watermark=10)
    partition.fetched(3, 11, 0, 1)
    assert partition.expansion(3) is None, "record 11 may be of an older leader, and diverge"
    partition.fetched(3, 12, 0, 1)
    assert partition.expansion(3) is not None


def test_a_follower_about_to_join_holds_the_high_watermark() -> None:
    partition = leader((1,), end=10, high_watermark=10)
    partition.fetched(2, 10, 0, 1)
    partition.appended(20, 2)
    assert partition.high_watermark == 10
    partition.appended(30, LAG_MS + 2)
    assert partition.high_watermark == 30, "not for longer than it may lag"


def test_acks_all_ends_when_all_in_sync_have_the_records() -> None:
    partition = leader((1, 2))
    partition.appended(10, 0)
    assert partition.acknowledgement(10, 2) is None
    partition.fetched(2, 10, 0, 1)
    assert partition.acknowledgement(10, 2) == ErrorCode.NONE


def test_acks_all_fails_when_replicas_left_while_it_waited_and_the_records_stay() -> None:
    partition = leader((1, 2))
    partition.appended(10, 0)
    change = partition.shrinking(LAG_MS + 1)
    assert change is not None
    partition.isr_written(change, 21, LAG_MS + 1)
    assert partition.acknowledgement(10, 2) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert partition.log_end_offset == 10


def test_a_conflict_with_the_controller_changes_nothing_until_it_tells() -> None:
    partition = leader((1, 2, 3))
    partition.appended(10, 0)
    partition.fetched(2, 10, 0, 1)
    change = partition.shrinking(LAG_MS + 1)
    assert change is not None
    assert not partition.isr_refused(change, PartitionState(2, 5, (2,), 7), 21, LAG_MS + 1)
    assert (partition.state.isr, partition.version, partition.high_watermark) == ((1, 2, 3), 20, 0)
    partition.fetched(3, 10, 0, LAG_MS + 2)
    assert partition.acknowledgement(10, 1) is None, "another leader may not have the records"
    assert partition.shrinking(3 * LAG_MS) is None
    partition.renew(PartitionState(1, 6, (1, 3), 7), (1, 2, 3), 22, 3 * LAG_MS)
    assert (partition.high_watermark, partition.version) == (10, 22)


def test_a_write_whose_answer_was_lost_is_tried_again_and_found_done() -> None:
    partition = leader((1,), end=10, high_watermark=10)
    partition.fetched(2, 10, 0, 0)
    change = partition.expansion(2)
    assert change is not None
    partition.isr_failed(change)
    partition.appended(20, LAG_MS + 1)
    assert partition.high_watermark == 10, "broker 2 may be in sync already"
    assert partition.shrinking(LAG_MS + 1) is change
    partition.isr_refused(change, change.state, 21, LAG_MS + 1)
    assert (partition.state.isr, partition.version) == ((1, 2), 21)


def test_the_controller_overtakes_a_change_that_is_being_written() -> None:
    partition = leader((1, 2))
    partition.appended(10, 0)
    change = partition.shrinking(LAG_MS + 1)
    assert change is not None
    partition.renew(PartitionState(1, 5, (1, 2), 7), (1, 2), 23, LAG_MS + 1)
    assert not partition.isr_written(change, 21, LAG_MS + 1)
    assert (partition.version, partition.state.isr, set(partition.followers)) == (23, (1, 2), {2})


def test_records_are_deleted_up_to_the_lowest_start_of_all_replicas() -> None:
    partition = leader()
    assert partition.low_watermark == -1
    partition.fetched(2, 0, 5, 0)
    partition.fetched(3, 0, 3, 0)
    assert partition.low_watermark == 3


def test_the_controller_is_notified_when_changes_calm_down_or_last_too_long() -> None:
    notifications = IsrNotifications(0, at_once=False)
    notifications.changed("b", 1, 1_000)
    notifications.changed("a", 0, 2_000)
    assert notifications.due(6_999) == []
    assert notifications.due(7_000) == [("a", 0), ("b", 1)]
    assert notifications.due(60_000) == []
    for now_ms in range(8_000, 67_000, 1_000):
        notifications.changed("a", 0, now_ms)
        assert notifications.due(now_ms) == []
    assert notifications.due(67_000) == [("a", 0)]


def test_where_brokers_tell_changes_at_once_they_are_due_at_the_next_look() -> None:
    notifications = IsrNotifications(0, at_once=True)
    notifications.changed("b", 1, 1_000)
    notifications.changed("a", 0, 1_050)
    assert notifications.due(1_100) == [("a", 0), ("b", 1)]
    assert notifications.due(1_200) == []
