"""The transaction coordinator, protocol 2 (KIP-890): each transaction has an epoch of its own.

Numbers in names are those of checks that were run against real brokers.
"""

from __future__ import annotations

import pytest

from engine.transactions.world import START_MS, A, B, World
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.transactions.config import TransactionConfig

P = (1000, 0)
LAST = 32766
CONFIG = TransactionConfig(transaction_version=2)
MISSING = TopicPartition("missing", 0)


def begun(*places: TopicPartition, epoch: int = 0) -> World:
    """Return a world in which producer 1000 has an epoch, and a transaction that these partitions have joined."""
    world = World(CONFIG)
    assert world.init() == (0, *P)
    found = world.coordinator.transactions["x"]
    found.value = found.value._replace(producer_epoch=epoch)
    if places:
        assert world.ask((1000, epoch), *places) == [0] * len(places)
    return world


def test_29_an_end_raises_the_epoch_and_markers_have_the_raised_one() -> None:
    world = begun(A, epoch=5)
    assert world.end_and_raise((1000, 5)) == (0, 1000, 6)
    assert world.markers == [(A, 1000, 6, 1, True)]
    assert world.states() == ["Empty 0", "Ongoing 5", "PrepareCommit 6", "CompleteCommit 6"]
    assert world.ask((1000, 6), B) == [0]


@pytest.mark.parametrize("commit", [True, False])
def test_30_an_end_whose_answer_was_lost_is_answered_again(commit: bool) -> None:
    world = begun(A, epoch=5)
    world.holds_markers = True
    assert world.end_and_raise((1000, 5), commit=commit) == (0, 1000, 6)
    assert world.end_and_raise((1000, 5), commit=commit) == (51, -1, -1)
    assert world.ask((1000, 6), A) == [51]
    world.holds_markers = False
    world.mark()
    assert world.end_and_raise((1000, 5), commit=commit) == (0, 1000, 6)
    assert world.end_and_raise((1000, 5), commit=not commit) == (48, -1, -1)
    assert len(world.log) == 4


def test_31_an_end_at_once_aborts_nothing_and_commits_no_nothing() -> None:
    world = begun(A, epoch=5)
    world.end_and_raise((1000, 5))
    assert world.end_and_raise((1000, 6)) == (48, -1, -1)
    assert world.end_and_raise((1000, 6), commit=False) == (0, 1000, 7)
    assert world.states()[-2:] == ["PrepareAbort 7", "CompleteAbort 7"]
    assert world.end_and_raise((1000, 7)) == (48, -1, -1)
    assert world.end_and_raise((1000, 7), commit=False) == (0, 1000, 8)


def test_32_an_abort_of_nothing_raises_the_epoch_without_a_marker() -> None:
    world = begun()
    assert world.end_and_raise(P) == (48, -1, -1)
    assert world.end_and_raise(P, commit=False) == (0, 1000, 1)
    assert world.markers == []
    value = world.values()["x"]
    assert (value.partitions, value.start_timestamp) == ([], START_MS)


def test_33_the_last_epoch_is_followed_by_a_new_id() -> None:
    world = begun(A, epoch=LAST)
    assert world.end_and_raise((1000, LAST)) == (0, 1001, 0)
    assert world.end_and_raise((1000, LAST)) == (0, 1001, 0)
    assert world.markers == [(A, 1000, 32767, 1, True)]
    assert world.ask((1001, 0), A) == [0]
    assert world.end_and_raise((1000, LAST)) == (49, -1, -1)
    assert world.states()[-3:] == ["PrepareCommit 32767", "CompleteCommit 0", "Ongoing 0"]


def test_33_an_end_that_needs_a_new_id_may_be_repeated_while_there_is_none() -> None:
    world = begun(A, epoch=LAST)
    world.has_ids = False
    assert world.end_and_raise((1000, LAST)) == (14, -1, -1)
    assert world.init() == (14, -1, -1)
    world.later(60_000)  # it times out, and is not aborted yet either
    assert world.states()[-1] == f"Ongoing {LAST}"
    world.has_ids = True
    world.later(CONFIG.check_interval_ms)
    assert world.states()[-2:] == ["PrepareAbort 32767", "CompleteAbort 0"]


def test_33_the_new_id_has_to_wait_while_markers_of_the_old_one_are_pending() -> None:
    world = begun(A, epoch=LAST)
    world.holds_markers = True
    assert world.end_and_raise((1000, LAST)) == (0, 1001, 0)
    assert world.ask((1001, 0), A) == [51]
    assert world.end_and_raise((1001, 0)) == (51, -1, -1)


def test_34_a_late_end_of_the_transaction_before_is_fenced() -> None:
    world = begun(A, epoch=5)
    world.end_and_raise((1000, 5))
    world.ask((1000, 6), A)
    for commit in (True, False):
        assert world.end_and_raise((1000, 5), commit=commit) == (90, -1, -1)
    assert world.states()[-1] == "Ongoing 6"


def test_76_an_end_that_comes_late_does_not_end_the_next_transaction() -> None:
    world = begun(A)
    assert world.end_and_raise(P) == (0, 1000, 1)
    world.ask((1000, 1), A)
    assert world.end_and_raise(P) == (90, -1, -1)
    world.ask((1000, 1), B)
    assert world.end_and_raise((1000, 1), commit=False) == (0, 1000, 2)
    assert [(each[0], each[4]) for each in world.markers] == [(A, True), (A, False), (B, False)]


def test_11_and_12_a_successor_fences_and_the_owner_that_fenced_itself_continues() -> None:
    world = begun(A)
    assert world.init(pair=P) == (51, -1, -1)
    assert world.markers == [(A, 1000, 1, 1, False)]
    assert world.ask(P, A) == [90]
    assert world.init(pair=P) == (0, 1000, 1)
    assert world.init() == (0, 1000, 2)


def test_a_fence_of_the_last_epoch_gives_a_new_id() -> None:
    world = begun(A, epoch=LAST)
    assert world.init() == (51, -1, -1)
    assert world.states()[-2:] == ["PrepareAbort 32767", "CompleteAbort 0"]
    assert world.init() == (0, 1001, 1)


def test_a_fence_that_is_not_stored_changes_nothing() -> None:
    world = begun(A)
    world.store_code = ErrorCode.REQUEST_TIMED_OUT
    assert world.init() == (15, -1, -1)
    world.store_code = ErrorCode.NONE
    assert world.end_and_raise(P) == (0, 1000, 1)


def test_36_a_producer_whose_transaction_timed_out_aborts_and_continues() -> None:
    world = begun(A)
    world.later(60_001)
    assert world.states()[-1] == "CompleteAbort 1"
    assert world.ask(P, A) == [90]
    assert world.end_and_raise(P) == (48, -1, -1)
    assert world.end_and_raise(P, commit=False) == (0, 1000, 1)
    assert world.ask((1000, 1), A) == [0]


def test_15_and_16_unknown_names_ids_and_partitions_are_refused() -> None:
    world = begun(A)
    assert world.end_and_raise(P, key="y") == world.end_and_raise((7, 0)) == (49, -1, -1)
    assert world.end_and_raise(P, key="") == (42, -1, -1)
    assert world.end_and_raise((1000, 1)) == (90, -1, -1)
    assert world.ask(P, A, MISSING) == world.ask(P, A, MISSING, verify=True) == [55, 3]
    assert world.ask(P, A, key="y") == [49]


def test_21_partitions_are_verified_without_being_added() -> None:
    world = begun(A)
    assert world.ask(P, A, B, verify=True) == [0, 120]
    assert (world.ask((7, 0), A, verify=True), world.ask((1000, 1), A, verify=True)) == ([49], [90])
    world.holds_markers = True
    world.end_and_raise(P)
    assert world.ask((1000, 1), A, verify=True) == [51]
    world.holds_markers = False
    world.mark()
    assert world.ask((1000, 1), A, verify=True) == [120]
    assert len(world.log) == 4


def test_21_a_transaction_that_is_being_stored_is_verified_by_what_was() -> None:
    world = begun(A)
    world.holds_stores = True
    assert world.add(P, B) is None
    assert world.ask(P, A, B, verify=True) == [0, 120]
    assert world.ask(P, B) == [51]


def test_an_end_of_protocol_1_keeps_the_epoch_of_a_transaction_of_protocol_2() -> None:
    world = begun(A)
    assert world.end(P) == 0
    assert world.states()[-1] == "CompleteCommit 0"
    assert [each.client_transaction_version for each in [world.values()["x"]]] == [0]


def test_29_the_epoch_is_known_to_the_next_coordinator_and_the_retry_is_answered() -> None:
    world = begun(A, epoch=5)
    world.holds_markers = True
    world.end_and_raise((1000, 5))
    world.elect(3)
    world.holds_markers = False
    while world.sent:
        world.mark()
    assert world.end_and_raise((1000, 5)) == (0, 1000, 6)


def test_33_the_next_id_is_known_to_the_next_coordinator() -> None:
    world = begun(A, epoch=LAST)
    world.holds_markers = True
    world.end_and_raise((1000, LAST))
    world.elect(3)
    world.holds_markers = False
    while world.sent:
        world.mark()
    assert world.end_and_raise((1000, LAST)) == (0, 1001, 0)


def test_values_have_the_bytes_of_kafka() -> None:
    """Compare with what 4.3.1 wrote: spec 9.7. There the transaction has the id tx-1, and partitions 0 and 2."""
    world = World(CONFIG)
    assert world.init("tx-1") == (0, *P)
    place = TopicPartition("t", 2)
    world.ask(P, A, place, key="tx-1")
    world.end_and_raise(P, key="tx-1")
    times = START_MS.to_bytes(8)
    tags = "02000800000000000003e802020002"
    partitions = "02027403000000000000000200"
    assert [value.hex() for _, value in world.log if value is not None] == [
        f"000100000000000003e800000000ea600000{times.hex()}ffffffffffffffff01000800000000000003e8",
        f"000100000000000003e800000000ea6001{partitions}{times.hex()}{times.hex()}{tags}",
        f"000100000000000003e800010000ea6002{partitions}{times.hex()}{times.hex()}{tags}",
        f"000100000000000003e800010000ea600401{times.hex()}{times.hex()}{tags}",
    ]


def test_the_last_epoch_has_the_bytes_of_kafka() -> None:
    world = World(CONFIG, first_id=1000)
    world.init("tx-1")
    found = world.coordinator.transactions["tx-1"]
    found.value = found.value._replace(producer_epoch=LAST)
    world.ask((1000, LAST), A, key="tx-1")
    world.end_and_raise((1000, LAST), key="tx-1")
    times = START_MS.to_bytes(8).hex() * 2
    prepared, completed = [value.hex() for _, value in world.log[-2:] if value is not None]
    assert prepared.endswith(f"{times}03000800000000000003e8010800000000000003e902020002")
    assert completed == f"000100000000000003e900000000ea600401{times}02000800000000000003e802020002"
