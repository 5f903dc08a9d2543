"""The transaction coordinator, protocol 1. Numbers in names are those of checks that were run against real brokers."""

from __future__ import annotations

import pytest

from engine.transactions.world import A, B, C, World
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.errors import CorruptRecordError, ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.engine.transactions.config import TransactionConfig
from magicbyte.engine.transactions.loading import Loading
from magicbyte.engine.transactions.records import TransactionState
from magicbyte.engine.transactions.rules import IDLE, PREDECESSORS, STORED

P = (1000, 0)
FENCED, CONCURRENT = ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
NO_PAIR = (-1, -1)


def begun(*places: TopicPartition) -> World:
    """Return a world in which producer P has a transaction with these partitions."""
    world = World()
    assert world.init() == (0, *P)
    assert world.add(P, *places) == [0] * len(places)
    return world


def at_epoch(epoch: int) -> World:
    """Return a world whose producer has reached an epoch."""
    world = World()
    world.init()
    found = world.coordinator.transactions["x"]
    found.value = found.value._replace(producer_epoch=epoch)
    return world


def test_1_an_id_belongs_to_the_partition_that_kafka_gives_it() -> None:
    assert partition_for("jt1234", 50) == 12


def test_2_each_producer_of_a_name_has_an_epoch_of_its_own() -> None:
    world = World()
    assert [world.init() for _ in range(3)] == [(0, 1000, 0), (0, 1000, 1), (0, 1000, 2)]
    assert world.states() == ["Empty 0", "Empty 1", "Empty 2"]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_4_a_timeout_that_is_none_or_too_long_is_refused(timeout_ms: int) -> None:
    assert World().init(timeout_ms=timeout_ms) == (50, -1, -1)


def test_4_and_5_an_empty_name_and_half_a_pair_are_refused() -> None:
    assert World().init("") == (42, -1, -1)
    assert World().init(pair=(1000, -1)) == World().init(pair=(-1, 3)) == (42, -1, -1)


def test_6_a_retry_of_a_lost_answer_gets_the_same_epoch() -> None:
    world = World()
    world.init()
    assert world.init(pair=P) == world.init(pair=P) == (0, 1000, 1)
    assert world.states() == ["Empty 0", "Empty 1", "Empty 1"]


def test_7_an_older_epoch_and_another_id_are_fenced() -> None:
    world = World()
    for _ in range(3):
        world.init()
    assert world.init(pair=P, version=3) == (47, -1, -1)
    assert world.init(pair=P) == world.init(pair=(7, 2)) == (90, -1, -1)


def test_8_and_9_an_id_whose_epochs_are_used_up_is_replaced() -> None:
    world = at_epoch(32765)
    assert world.init() == (0, 1000, 32766)
    assert world.init() == (0, 1001, 0)
    world = at_epoch(32766)
    assert world.init(pair=(1000, 32766)) == world.init(pair=(1000, 32766)) == (0, 1001, 0)


def test_10_an_older_epoch_of_an_id_that_is_used_up_is_an_error() -> None:
    assert at_epoch(32766).init(pair=(1000, 32765)) == (-1, -1, -1)


def test_11_a_successor_has_the_open_transaction_aborted_against_its_producer() -> None:
    world = begun(A)
    assert world.init() == (51, -1, -1)
    assert world.markers == [(A, 1000, 1, 1, False)]
    assert world.end(P) == 90
    assert world.end(P, version=1) == 47
    assert world.init() == (0, 1000, 2)
    assert world.states() == ["Empty 0", "Ongoing 0", "PrepareAbort 1", "CompleteAbort 1", "Empty 2"]


def test_12_the_owner_that_fenced_itself_has_to_initialize_again() -> None:
    world = begun(A)
    assert world.init(pair=P) == (51, -1, -1)
    assert world.init(pair=P) == (90, -1, -1)


def test_13_and_18_nothing_begins_while_markers_are_out() -> None:
    world = begun(A)
    world.holds_markers = True
    assert world.end(P) == 0
    assert world.init() == (51, -1, -1)
    assert world.add(P, B) == [51]
    assert (world.end(P), world.end(P, commit=False)) == (51, 51)  # 24
    world.holds_markers = False
    world.mark()
    assert world.end(P, commit=False) == 48
    assert world.init() == (0, 1000, 1)


def test_14_another_broker_and_a_loading_one_answer_with_their_errors() -> None:
    world = World()
    partition = partition_for("x", 50)
    term = world.coordinator.begin_loading(partition, 2)
    assert world.init() == (14, -1, -1)
    world.coordinator.load_failed(partition, term)
    assert world.init() == (15, -1, -1)
    world.coordinator.resign(partition)
    assert world.init() == (16, -1, -1)


def test_15_unknown_names_and_ids_and_old_epochs_are_refused() -> None:
    world = World()
    assert world.add(P, A) == [49]
    world.init()
    world.init()
    assert world.add((7, 1), A) == [49]
    assert (world.add(P, A, version=1), world.add(P, A, version=2)) == ([47], [90])
    assert world.add(P, A, key="") == [42]


def test_16_all_partitions_are_added_or_none() -> None:
    world = World()
    world.init()
    assert world.add(P, A, TopicPartition("missing", 0)) == [55, 3]
    assert world.states() == ["Empty 0"]


def test_17_a_partition_that_is_in_is_not_stored_again() -> None:
    world = begun(A)
    assert world.add(P, A) == [0]
    assert world.states() == ["Empty 0", "Ongoing 0"]
    assert world.add(P, A, C) == [0, 0]
    assert [each.partition_ids for each in world.values()["x"].partitions or []] == [[0, 2]]


def test_19_the_partition_of_a_groups_offsets_is_added() -> None:
    world = World()
    world.init()
    assert world.add_offsets(P, "g") == 0
    assert world.values()["x"].partitions == [("__consumer_offsets", [partition_for("g", 50)])]


def test_22_and_23_an_end_is_answered_again_and_the_other_one_is_refused() -> None:
    world = World()
    world.init()
    assert world.end(P) == 48
    world.add(P, A)
    assert (world.end(P), world.end(P), world.end(P, commit=False)) == (0, 0, 48)


def test_25_an_epoch_from_the_future_is_fenced() -> None:
    assert begun(A).end((1000, 1)) == 90


def test_26_an_end_that_is_not_stored_changes_nothing() -> None:
    world = begun(A)
    world.store_code = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.end(P) == 15
    world.store_code = ErrorCode.NONE
    assert world.coordinator.transactions["x"].state is TransactionState.ONGOING
    assert world.end(P) == 0


def test_28_every_partition_gets_one_marker() -> None:
    world = begun(A, B, C)
    assert world.end(P) == 0
    assert world.markers == [(each, 1000, 0, 1, True) for each in (A, B, C)]


def test_36_a_transaction_whose_time_is_up_is_aborted() -> None:
    world = begun(A)
    world.later(60_000)
    assert world.markers == []
    world.later(1)
    assert world.states()[-2:] == ["PrepareAbort 1", "CompleteAbort 1"]


def test_37_a_transaction_that_ends_is_not_timed_out() -> None:
    world = begun(A)
    world.holds_stores = True
    assert world.end(P) is None
    world.later(70_000)
    world.holds_stores = False
    world.store()
    assert world.states()[-2:] == ["PrepareCommit 0", "CompleteCommit 0"]
    world.later(70_000)
    assert len(world.log) == 4


def test_38_what_is_added_later_does_not_move_the_end() -> None:
    world = begun(A)
    world.later(50_000)
    assert world.add(P, B) == [0]
    world.later(10_001)
    assert world.states()[-1] == "CompleteAbort 1"


def test_39_and_40_an_id_that_is_not_used_is_forgotten_when_that_is_stored() -> None:
    world = begun(A)
    assert world.end(P) == 0
    world.later(TransactionConfig().id_expiration_ms)
    world.store_code = TIMED_OUT
    world.perform(world.coordinator.expire(world.now_ms))
    world.store_code = ErrorCode.NONE
    assert world.add(P, A) == [0]
    assert world.end(P) == 0
    world.later(TransactionConfig().id_expiration_ms)
    world.perform(world.coordinator.expire(world.now_ms))
    assert world.states()[-1] == "-"
    assert world.add(P, A) == [49]
    assert world.init(pair=P) == (0, 1001, 0)


def test_41_and_42_the_next_coordinator_sends_all_markers_again() -> None:
    world = begun(A, B)
    world.holds_markers = True
    assert world.end(P) == 0
    before = world.sent.popleft()
    world.coordinator.marked(before, A, ErrorCode.NONE)
    world.elect(3)
    assert world.end(P) == 51
    assert world.coordinator.marked(before, B, ErrorCode.NONE) == []
    world.holds_markers = False
    world.mark()
    assert world.markers == [(each, 1000, 0, 3, True) for each in (A, B)]
    assert world.end(P) == 0


def test_an_open_transaction_is_loaded_with_its_time() -> None:
    world = begun(A)
    world.later(40_000)
    world.elect(2)
    world.later(20_001)
    assert world.markers == [(A, 1000, 1, 2, False)]


def test_a_retry_after_a_failover_is_fenced_since_the_epoch_before_is_not_stored() -> None:
    world = World()
    world.init()
    assert world.init(pair=P) == (0, 1000, 1)
    world.elect(2)
    assert world.init(pair=P) == (90, -1, -1)


def test_markers_are_sent_again_until_they_are_written_but_for_outdated_ones() -> None:
    world = begun(A)
    world.holds_markers = True
    world.end(P)
    world.mark(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert world.sent[0].again
    world.mark(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert not world.sent
    assert world.end(P) == 51


def test_a_completion_that_is_not_stored_is_tried_again() -> None:
    world = begun(A)
    world.holds_stores = True
    world.end(P)
    world.store()
    world.store(TIMED_OUT)
    assert world.init() == (51, -1, -1)
    assert not world.stores
    world.holds_stores = False
    world.later(10_000)
    assert world.states()[-1] == "CompleteCommit 0"


def test_a_fence_that_is_not_stored_holds_and_raises_the_epoch_once() -> None:
    world = begun(A)
    world.store_code = TIMED_OUT
    assert world.init() == (15, -1, -1)
    assert world.end(P) == 90
    world.store_code = ErrorCode.NONE
    assert world.init() == (51, -1, -1)
    assert world.states()[-1] == "CompleteAbort 1"


def test_an_append_of_an_ended_term_is_answered_and_changes_nothing() -> None:
    world = begun(A)
    world.holds_stores = True
    assert world.end(P) is None
    world.elect(2)
    world.store()
    assert [getattr(each, "error_code", None) for each in world.replies.values()][-1] == 16
    assert world.coordinator.transactions["x"].state is TransactionState.ONGOING


def test_76_protocol_1_commits_a_part_of_the_next_transaction_when_an_end_comes_late() -> None:
    world = begun(A)
    assert world.end(P) == 0
    world.add(P, A)
    assert world.end(P) == 0  # the late one: it is the next transaction's
    world.add(P, B)
    assert world.end(P, commit=False) == 0
    assert [(each[0], each[4]) for each in world.markers] == [(A, True), (A, True), (B, False)]


def test_every_state_but_those_of_memory_is_stored_and_expiry_begins_at_rest() -> None:
    assert set(PREDECESSORS) == STORED | {TransactionState.DEAD}
    assert TransactionState.ONGOING not in IDLE


def logged(*records: tuple[bytes, bytes | None]) -> memoryview:
    found = [Record(at, 1, 0, key, value) for at, (key, value) in enumerate(records)]
    return memoryview(bytes(encode_records(found, Format.V2)))


def test_the_last_record_of_each_id_is_loaded() -> None:
    world = begun(A)
    world.end(P)
    world.init("y")
    loading = Loading()
    assert loading.read(logged(*world.log)) == len(world.log) - 1
    assert loading.finish() == world.values()
    loading.read(logged((world.log[0][0], None)))
    assert list(loading.finish()) == ["y"]


def test_44_a_value_of_a_later_version_makes_the_partition_refuse() -> None:
    world = begun(A)
    loading = Loading()
    loading.read(logged((world.log[0][0], b"\x00\x07")))
    with pytest.raises(CorruptRecordError, match="version"):
        loading.finish()
