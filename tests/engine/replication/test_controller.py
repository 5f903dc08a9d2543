"""The controller: which states it writes, and what it tells whom, in which order."""

from __future__ import annotations

from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.controller import (
    BEING_DELETED,
    Controller,
    Effect,
    LeaderAndIsr,
    ReadStates,
    RemoveTopic,
    StateChange,
    StopReplicas,
    UpdateMetadata,
    WriteStates,
)
from magicbyte.engine.replication.election import ElectionType
from magicbyte.engine.replication.state import NEW_NODE, KnownState, PartitionState

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
REPLICAS = {A0: (1, 2), A1: (2, 3), B0: (3,)}
STATES = {
    A0: KnownState(PartitionState(1, 4, (1, 2), 6), 10),
    A1: KnownState(PartitionState(2, 4, (2, 3), 6), 11),
    B0: KnownState(PartitionState(3, 4, (3,), 6), 12),
}
BROKERS = {1: 100, 2: 200, 3: 300}


def controller(**other: object) -> Controller:
    return Controller(7, BROKERS, REPLICAS, STATES, **other)  # type: ignore[arg-type]


def written(made: Controller, effects: list[Effect]) -> list[Effect]:
    """Have the states written that effects ask for; return what follows."""
    (write,) = [each for each in effects if isinstance(each, WriteStates)]
    done = {each.partition: KnownState(each.state, each.expected_version + 1) for each in write.changes}
    return made.states_written(done, ())


def changes(effects: list[Effect]) -> dict[TopicPartition, PartitionState]:
    return {
        change.partition: change.state for each in effects if isinstance(each, WriteStates) for change in each.changes
    }


def test_a_new_controller_tells_every_broker_of_all_brokers_before_it_names_leaders() -> None:
    effects = controller().start()
    assert effects[:3] == [UpdateMetadata(1, ()), UpdateMetadata(2, ()), UpdateMetadata(3, ())]
    led = {
        each.broker_id: [order.partition for order in each.orders] for each in effects if isinstance(each, LeaderAndIsr)
    }
    assert led == {1: [A0], 2: [A0, A1], 3: [A1, B0]}
    told = [each for each in effects[3:] if isinstance(each, UpdateMetadata)]
    assert [[order.partition for order in each.orders] for each in told] == [[A0, A1, B0]] * 3
    assert changes(effects) == {}


def test_a_broker_dies() -> None:
    made = controller()
    effects = made.brokers_changed({1: 100, 2: 200})
    assert changes(effects) == {
        A1: PartitionState(2, 5, (2,), 7),
        B0: PartitionState(-1, 5, (3,), 7),  # its only replica: it waits for broker 3
    }
    assert [each for each in effects if isinstance(each, UpdateMetadata)] == [
        UpdateMetadata(1, ()),
        UpdateMetadata(2, ()),
    ]
    follow = written(made, effects)
    (order,) = [each for each in follow if isinstance(each, LeaderAndIsr)]
    assert (order.broker_id, [each.partition for each in order.orders]) == (2, [A1])
    assert [each.broker_id for each in follow if isinstance(each, UpdateMetadata)] == [1, 2]


def test_a_broker_that_may_have_missed_orders_gets_all_of_them_again() -> None:
    made = controller()
    orders, update = {}, None
    for effect in made.tell_again(2):
        assert isinstance(effect, LeaderAndIsr | UpdateMetadata)
        assert effect.broker_id == 2
        if isinstance(effect, LeaderAndIsr):
            orders = {each.partition: each.state for each in effect.orders}
        else:
            update = effect
    assert orders == {key: STATES[key].state for key in (A0, A1)}
    assert update is not None
    assert {each.partition for each in update.orders} == {A0, A1, B0}
    made.delete_topics({"a"})
    assert made.tell_again(2)[-2:] == [StopReplicas(2, (A0, A1), False), StopReplicas(2, (A0, A1), True)]
    assert made.tell_again(9) == []


def test_a_broker_dies_that_a_leader_has_just_taken_into_sync() -> None:
    """The state node has it, and the controller was not notified yet."""
    made = Controller(7, BROKERS, {A0: (1, 2)}, {A0: KnownState(PartitionState(1, 4, (1,), 6), 10)})
    effects = made.brokers_changed({1: 100, 3: 300})
    assert effects[-1] == ReadStates((A0,))
    follow = made.states_read({A0: KnownState(PartitionState(1, 4, (1, 2), 6), 11)})
    assert changes(follow) == {A0: PartitionState(1, 5, (1,), 7)}


def test_the_leader_dies_and_comes_back() -> None:
    made = controller()
    follow = written(made, made.brokers_changed({2: 200, 3: 300}))
    assert made.states[A0].state == PartitionState(2, 5, (2,), 7)
    assert [each.broker_id for each in follow if isinstance(each, LeaderAndIsr)] == [2]
    effects = made.brokers_changed({1: 111, 2: 200, 3: 300})
    updates = [each for each in effects if isinstance(each, UpdateMetadata)]
    assert [(each.broker_id, len(each.orders)) for each in updates] == [(2, 0), (3, 0), (1, 3)]
    assert [each.orders[0].partition for each in effects if isinstance(each, LeaderAndIsr)] == [A0]
    assert changes(effects) == {}


def test_a_broker_that_died_and_came_back_unseen_has_another_epoch() -> None:
    made = controller()
    effects = made.brokers_changed({**BROKERS, 1: 101})
    assert changes(effects)[A0] == PartitionState(2, 5, (2,), 7)
    told = [
        (each.broker_id, order.partition, order.state.leader_epoch)
        for each in [*effects, *written(made, effects)]
        if isinstance(each, LeaderAndIsr)
        for order in each.orders
    ]
    assert told == [(1, A0, 5), (2, A0, 5)]  # nothing of epoch 4 behind them, which broker 1 would go by


def test_a_broker_that_came_back_learns_its_role_where_the_change_of_a_partition_is_refused() -> None:
    made = controller()
    effects = made.brokers_changed({**BROKERS, 2: 201})
    assert changes(effects)[A0] == PartitionState(1, 5, (1,), 7)
    assert A0 not in [order.partition for each in effects if isinstance(each, LeaderAndIsr) for order in each.orders]
    assert made.states_written({}, [A0]) == [ReadStates((A0,))]
    follow = made.states_read({A0: KnownState(PartitionState(1, 4, (1,), 6), 11)})  # the leader was faster
    assert changes(follow) == {}
    assert [(each.broker_id, order.partition, order.state.leader_epoch)
            for each in follow if isinstance(each, LeaderAndIsr) for order in each.orders] == [
        (1, A0, 4), (2, A0, 4),
    ]  # fmt: skip
    again = made.states_read({A0: KnownState(PartitionState(1, 4, (1, 2), 6), 12)})
    assert [each for each in again if isinstance(each, LeaderAndIsr)] == [], "told once"


def test_the_last_replica_in_sync_leads_again_when_it_is_back() -> None:
    made = controller()
    written(made, made.brokers_changed({1: 100, 2: 200}))
    effects = made.brokers_changed({**BROKERS, 3: 333})
    assert changes(effects) == {B0: PartitionState(3, 6, (3,), 7)}


def test_the_last_replica_in_sync_leads_again_where_it_died_and_came_back_in_one_look() -> None:
    made = controller()
    effects = made.brokers_changed({**BROKERS, 3: 301})
    assert changes(effects)[B0] == PartitionState(-1, 5, (3,), 7)
    assert changes(written(made, effects)) == {B0: PartitionState(3, 6, (3,), 7)}


def test_an_unclean_election_only_where_the_topic_says_so() -> None:
    for unclean in (False, True):
        made = controller(unclean=lambda topic, unclean=unclean: unclean and topic == "a")
        made.states[A0] = KnownState(PartitionState(1, 4, (1,), 6), 10)
        found = changes(made.brokers_changed({2: 200, 3: 300}))[A0]
        assert found == (PartitionState(2, 5, (2,), 7) if unclean else PartitionState(-1, 5, (1,), 7))


def test_new_partitions_are_created_with_their_state_nodes() -> None:
    made, new = controller(), TopicPartition("c", 0)
    effects = made.partitions_created({new: (9, 3, 1), A0: (1, 2)})
    state = PartitionState(3, 0, (3, 1), 7)
    assert effects == [WriteStates((StateChange(new, state, NEW_NODE),))]
    follow = written(made, effects)
    orders = [each for each in follow if isinstance(each, LeaderAndIsr)]
    assert [(each.broker_id, each.orders[0].is_new) for each in orders] == [(1, True), (3, True)]
    assert len([each for each in follow if isinstance(each, UpdateMetadata)]) == 3


def test_a_refused_write_is_decided_again_by_what_the_node_says() -> None:
    made = controller()
    effects = made.brokers_changed({2: 200, 3: 300})
    assert made.states_written({}, [A0]) == [ReadStates((A0,))]
    again = made.states_read({A0: KnownState(PartitionState(1, 4, (1,), 6), 13)})
    assert changes(effects)[A0] == PartitionState(2, 5, (2,), 7)
    assert changes(again)[A0] == PartitionState(-1, 5, (1,), 7), "broker 2 had left the in-sync replicas"


def test_an_isr_notification_reaches_all_brokers() -> None:
    made = controller()
    assert made.isr_notified([A1, A1, TopicPartition("gone", 0)]) == [ReadStates((A1,))]
    assert made.isr_notified([TopicPartition("gone", 0)]) == []
    effects = made.states_read({A1: KnownState(PartitionState(2, 4, (2,), 6), 14)})
    assert [each.broker_id for each in effects if isinstance(each, UpdateMetadata)] == [1, 2, 3]
    assert changes(effects) == {}


def test_a_controlled_shutdown_moves_the_lead_first() -> None:
    made = controller()
    effects = made.shut_down(2)
    assert effects[0] == StopReplicas(2, (A0,), deletes=False)
    assert changes(effects) == {A0: PartitionState(1, 5, (1,), 7), A1: PartitionState(3, 5, (3,), 7)}
    assert made.remaining(2) == [A1]
    written(made, effects)
    assert made.remaining(2) == []
    assert made.remaining(3) == [A1], "its single replica of b-0 cannot be moved"


def test_the_last_replica_in_sync_remains_when_it_shuts_down() -> None:
    made = controller()
    made.states[A0] = KnownState(PartitionState(1, 4, (1,), 6), 10)
    assert changes(made.shut_down(1)) == {}
    assert made.remaining(1) == [A0]


def test_the_preferred_leader_is_elected_where_it_is_in_sync() -> None:
    made = controller()
    made.states[A0] = KnownState(PartitionState(2, 4, (1, 2), 6), 10)
    assert changes(made.elect(ElectionType.PREFERRED, [A0, A1, TopicPartition("gone", 0)])) == {
        A0: PartitionState(1, 5, (1, 2), 7)
    }
    made.shut_down(1)
    assert made.elect(ElectionType.PREFERRED, [A0]) == []


def test_a_topic_is_deleted_when_the_last_replica_is() -> None:
    made = controller()
    effects = made.delete_topics(["a"])
    updates = [each for each in effects if isinstance(each, UpdateMetadata)]
    assert {order.state.leader for each in updates for order in each.orders} == {BEING_DELETED}
    assert [each.broker_id for each in updates] == [1, 2, 3]
    assert [each for each in effects if isinstance(each, StopReplicas)] == [
        StopReplicas(1, (A0,), deletes=False),
        StopReplicas(1, (A0,), deletes=True),
        StopReplicas(2, (A0, A1), deletes=False),
        StopReplicas(2, (A0, A1), deletes=True),
        StopReplicas(3, (A1,), deletes=False),
        StopReplicas(3, (A1,), deletes=True),
    ]
    assert made.replicas_deleted(1, [A0]) == []
    assert made.replicas_deleted(2, [A0, A1]) == []
    assert made.replicas_deleted(3, [A1]) == [RemoveTopic("a")]
    assert set(made.replicas) == {B0}


def test_the_replicas_of_a_dead_broker_are_deleted_when_it_is_back() -> None:
    made = controller()
    written(made, made.brokers_changed({1: 100, 2: 200}))
    made.delete_topics(["b"])
    assert changes(made.brokers_changed({1: 100})) == {
        A0: PartitionState(1, 5, (1,), 7),
        A1: PartitionState(-1, 6, (2,), 7),
    }
    effects = made.brokers_changed({1: 100, 3: 333})
    assert StopReplicas(3, (B0,), deletes=True) in effects
    assert made.replicas_deleted(3, [B0]) == [RemoveTopic("b")]


def test_a_new_controller_continues_deletions() -> None:
    effects = controller(deleting=["b", "without partitions"]).start()
    assert RemoveTopic("without partitions") in effects
    assert StopReplicas(3, (B0,), deletes=True) in effects
    assert not any(order.partition == B0 for each in effects if isinstance(each, LeaderAndIsr) for order in each.orders)
