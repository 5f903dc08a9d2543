"""The controller at work: what it writes into the tree and tells brokers, while tree, brokers and controllers fail."""

import uuid

import pytest

from builders import hurried
from magicbyte.engine.errors import ErrorCode, NotControllerError, StaleBrokerEpochError, UnknownBrokerError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from magicbyte.engine.protocol.messages.update_metadata import UpdateMetadataRequest
from magicbyte.engine.replication.controller import IsrAnswer, IsrWish
from magicbyte.engine.replication.election import ElectionType
from magicbyte.engine.replication.state import KnownState, PartitionState
from magicbyte.engine.sentinels import NO_BROKER
from magicbyte.server.stores.znodes import layout
from server.broker.controlled import controlled, partitions, until

T0 = TopicPartition("t", 0)
PROTOCOLS = [(0, 8, 2), (0, 9, 0), (0, 10, 0), (0, 10, 2), (0, 11, 0), (1, 0), (2, 2), (2, 4), (2, 6), (2, 8)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_new_topic_gets_leaders_and_brokers_learn_of_it(protocol: tuple[int, ...]) -> None:
    async with controlled(protocol=protocol) as cluster:
        cluster.register(1, 2, 3)
        controller = await cluster.control(1)
        assert (controller.controller_id, controller.epoch, controller.is_active) == (1, 1, True)
        cluster.create_topic("t", [1, 2], [2, 3])
        await until(lambda: all(len(each.metadata) == 2 for each in cluster.brokers.values()))
        assert cluster.state("t", 0) == PartitionState(1, 0, (1, 2), 1)
        assert cluster.state("t", 1) == PartitionState(2, 0, (2, 3), 1)
        assert cluster.brokers[2].metadata == {T0: 1, TopicPartition("t", 1): 2}
        assert cluster.brokers[2].live == [1, 2, 3]
        assert {key: len(each.roles) for key, each in cluster.brokers.items()} == {1: 1, 2: 2, 3: 1}
        assert cluster.brokers[1].roles[T0].leader == 1
        assert (cluster.topic("t").topic_id is not None) == (protocol >= (2, 8))


async def test_a_broker_gets_the_brokers_before_the_leaders() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        cluster.create_topic("t", [1, 2])
        await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[2].roles)
        kinds = [type(each) for each in cluster.brokers[2].requests]
        assert kinds.index(UpdateMetadataRequest) < kinds.index(LeaderAndIsrRequest)
        cluster.register(3)
        cluster.create_topic("u", [3])
        await until(lambda: cluster.brokers[3].roles)
        assert isinstance(cluster.brokers[3].requests[0], UpdateMetadataRequest)
        assert all(each.most_at_once == 1 for each in cluster.brokers.values())


async def test_the_leader_dies_and_comes_back() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2, 3)
        cluster.create_topic("t", [2, 3])
        await cluster.control(1)
        await until(lambda: cluster.state("t"))
        cluster.kill(2)
        await until(lambda: cluster.brokers[1].metadata.get(T0) == 3)
        assert cluster.state("t") == PartitionState(3, 1, (3,), 1)
        assert cluster.brokers[3].roles[T0].leader == 3
        cluster.register(2)
        await until(lambda: T0 in cluster.brokers[2].roles)
        assert cluster.brokers[2].roles[T0].leader == 3
        cluster.set_isr("t", 3, 2)
        await until(lambda: not cluster.view.children(layout.ISR_CHANGES))
        cluster.write(layout.PREFERRED_ELECTION, {"version": 1, "partitions": [{"topic": "t", "partition": 0}]})
        await until(lambda: cluster.brokers[3].metadata.get(T0) == 2)
        assert cluster.state("t") == PartitionState(2, 2, (3, 2), 1)
        await until(lambda: cluster.view.exists(layout.PREFERRED_ELECTION) is None)


async def test_a_topic_grows_and_is_deleted() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        await cluster.control(1)
        cluster.create_topic("t", [1, 2])
        await until(lambda: cluster.state("t"))
        node = cluster.topic("t")
        grown = layout.TopicNode({**node.replicas, 1: [2]}, node.topic_id)
        cluster.view.set(layout.topic_path("t"), grown.dump())
        await until(lambda: cluster.state("t", 1))
        await until(lambda: len(cluster.brokers[2].roles) == 2)
        cluster.view.create(f"{layout.DELETE_TOPICS}/t")
        await until(lambda: cluster.view.exists(f"{layout.DELETE_TOPICS}/t") is None)
        assert cluster.view.exists(layout.topic_path("t")) is None
        assert not cluster.brokers[1].roles
        assert not cluster.brokers[2].roles
        assert set(cluster.brokers[1].metadata.values()) == {-2}
        cluster.create_topic("t", [2])
        await until(lambda: cluster.brokers[2].roles)
        assert cluster.state("t") == PartitionState(2, 0, (2,), 1)


async def test_a_topic_that_is_recreated_as_soon_as_its_name_is_free_stays() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        await cluster.control(1)
        cluster.create_topic("t", [1, 2])
        await until(lambda: cluster.state("t"))
        cluster.view.create(f"{layout.DELETE_TOPICS}/t")
        cluster.view.exists(f"{layout.DELETE_TOPICS}/t", lambda *_: cluster.create_topic("t", [2]))  # the last to go
        await until(lambda: cluster.view.exists(f"{layout.DELETE_TOPICS}/t") is None)
        await until(lambda: cluster.brokers[2].roles)
        assert cluster.state("t") == PartitionState(2, 0, (2,), 1)
        assert cluster.topic("t").replicas == {0: [2]}


async def test_the_next_controller_takes_over_and_the_one_before_tells_nothing_more() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        cluster.create_topic("t", [1, 2])
        first, second = await cluster.control(1), await cluster.control(2)
        await until(lambda: cluster.state("t"))
        assert (second.controller_id, second.is_active) == (1, False)
        with pytest.raises(NotControllerError):
            await second.shut_down(1, -1)
        await first.stop()
        await until(lambda: second.is_active)
        assert (second.controller_id, second.epoch) == (2, 2)
        cluster.create_topic("u", [1, 2])
        await until(lambda: cluster.state("u"))
        assert cluster.state("u") == PartitionState(1, 0, (1, 2), 2)
        told = [each.controller_epoch for each in cluster.brokers[1].requests]  # type: ignore[attr-defined]
        assert told == sorted(told)


async def test_a_controller_that_does_not_know_that_it_was_deposed_writes_nothing() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        controller = await cluster.control(1)
        await controller.reassignments()
        for node in (layout.CONTROLLER_EPOCH,):  # a later controller's mark, which is not watched
            cluster.view.set(node, b"9")
        cluster.create_topic("t", [1, 2])
        await until(lambda: controller.epoch == 9)
        state = cluster.state("t")
        assert state is None or state.controller_epoch == 9


async def test_a_session_expires_and_the_next_one_continues() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        controller = await cluster.control(1)
        cluster.tree.expire_session(cluster.controller_sessions[0])
        await until(lambda: not controller.is_active)
        assert controller.controller_id == NO_BROKER
        cluster.create_topic("t", [1, 2])
        await cluster.reopen(controller)
        assert (controller.is_active, controller.epoch) == (True, 2)
        await until(lambda: T0 in cluster.brokers[2].roles)


async def test_a_connection_to_the_tree_that_is_lost_is_waited_for() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        await cluster.control(1)
        (session,) = cluster.controller_sessions
        session.loses_next_answer = True
        cluster.create_topic("t", [1, 2])
        await until(lambda: session.is_cut)
        cluster.create_topic("u", [2, 1])
        cluster.tree.heal(session)
        await until(lambda: len(cluster.brokers[1].roles) == 2)
        assert cluster.state("t") == PartitionState(1, 0, (1, 2), 1)
        assert cluster.state("u") == PartitionState(2, 0, (2, 1), 1)


async def test_a_broker_that_cannot_be_reached_gets_everything_in_order_later() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        await cluster.control(1)
        await until(lambda: cluster.brokers[2].requests)
        cluster.brokers[2].is_reachable = False
        for name in ("t", "u"):
            cluster.create_topic(name, [1, 2])
            await until(lambda name=name: TopicPartition(name, 0) in cluster.brokers[1].roles)
        cluster.brokers[2].is_reachable = True
        await until(lambda: len(cluster.brokers[2].roles) == 2)
        led = [each for each in cluster.brokers[2].requests if isinstance(each, LeaderAndIsrRequest)]
        assert [each.topic_states[0].topic_name for each in led] == ["t", "u"]


async def test_many_topics_at_once_are_one_request_to_each_broker() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2, 3)
        await cluster.control(1)
        await until(lambda: all(each.live == [1, 2, 3] for each in cluster.brokers.values()))
        before = {key: len(each.requests) for key, each in cluster.brokers.items()}
        for index in range(50):
            cluster.create_topic(f"t-{index}", [1, 2, 3], [2, 3, 1])
        await until(lambda: all(len(each.roles) == 100 for each in cluster.brokers.values()))
        await until(lambda: all(len(each.metadata) == 100 for each in cluster.brokers.values()))
        assert {key: len(each.requests) - before[key] for key, each in cluster.brokers.items()} == {1: 2, 2: 2, 3: 2}


# ---- requests


async def test_a_controlled_shutdown_moves_the_lead_away() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        cluster.create_topic("t", [2, 1], [1, 2], [2])
        controller = await cluster.control(1)
        await until(lambda: cluster.state("t", 2))
        with pytest.raises(UnknownBrokerError):
            await controller.shut_down(7, -1)
        epoch = cluster.view.get(layout.broker_path(2)).czxid
        with pytest.raises(StaleBrokerEpochError):
            await controller.shut_down(2, epoch - 1)
        assert await controller.shut_down(2, epoch) == []
        assert [cluster.state("t", each) for each in range(3)] == [
            PartitionState(1, 1, (1,), 1),
            PartitionState(1, 1, (1,), 1),
            PartitionState(2, 0, (2,), 1),
        ]


async def test_elections_say_what_became_of_each_partition() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2, 3)
        cluster.create_topic("t", [1, 2], [2, 3], [3])
        controller = await cluster.control(1)
        await until(lambda: cluster.state("t", 2))
        t0, t1, t2 = partitions("t", 3)
        gone = TopicPartition("gone", 0)
        cluster.kill(2)
        await until(lambda: cluster.brokers[3].metadata.get(t1) == 3)
        cluster.register(2)
        await until(lambda: t1 in cluster.brokers[2].roles)
        found = await controller.elect(ElectionType.PREFERRED, [t0, t1, gone])
        assert found == {
            t0: ErrorCode.ELECTION_NOT_NEEDED,
            t1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        cluster.set_isr("t", 3, 2, partition=1)
        await until(lambda: not cluster.view.children(layout.ISR_CHANGES))
        assert await controller.elect(ElectionType.PREFERRED, None) == {t1: ErrorCode.NONE}
        assert cluster.state("t", 1) == PartitionState(2, 2, (3, 2), 1)
        cluster.set_isr("t", 2, partition=1)
        cluster.kill(2)
        cluster.kill(3)
        await until(lambda: cluster.brokers[1].metadata.get(t2) == -1)
        assert await controller.elect(ElectionType.UNCLEAN, [t1]) == {t1: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}
        cluster.register(3)
        await until(lambda: cluster.brokers[1].metadata.get(t2) == 3)
        assert await controller.elect(ElectionType.UNCLEAN, [t1]) == {t1: ErrorCode.NONE}
        state = cluster.state("t", 1)
        assert state is not None
        assert (state.leader, state.isr) == (3, (3,))


async def test_an_unclean_election_follows_the_setting_of_a_topic() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        cluster.create_topic("t", [2, 1])
        controller = await cluster.control(1)
        await until(lambda: cluster.state("t"))
        cluster.set_isr("t", 2)
        cluster.kill(2)
        await until(lambda: cluster.brokers[1].metadata.get(T0) == -1)
        cluster.view.create(
            layout.config_path("topics", "t"), layout.dump_config({"unclean.leader.election.enable": "true"})
        )
        cluster.view.create(layout.CONFIG_CHANGE, layout.dump_config_change("topics", "t"), sequence=True)
        await until(lambda: cluster.brokers[1].metadata.get(T0) == 1)
        assert cluster.state("t") == PartitionState(1, 2, (1,), 1)
        assert controller.unclean_elections == 1


async def test_an_unclean_election_follows_the_setting_of_the_broker_once_it_changes() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        cluster.create_topic("t", [2, 1])
        controller = await cluster.control(1)
        await until(lambda: cluster.state("t"))
        cluster.set_isr("t", 2)
        cluster.kill(2)
        await until(lambda: cluster.brokers[1].metadata.get(T0) == -1)
        cluster.config.change({"unclean.leader.election.enable": "true"}, {})
        controller.settings_changed()
        await until(lambda: cluster.brokers[1].metadata.get(T0) == 1)
        await controller.stop()
        assert controller.unclean_elections == 1


async def test_topics_stay_where_deleting_them_is_disabled() -> None:
    async with controlled(settings={"delete.topic.enable": "false"}) as cluster:
        cluster.register(1)
        cluster.create_topic("t", [1])
        await cluster.control(1)
        await until(lambda: cluster.brokers[1].roles)
        cluster.view.create(f"{layout.DELETE_TOPICS}/t")
        await until(lambda: not cluster.view.children(layout.DELETE_TOPICS))
        assert cluster.view.exists(layout.topic_path("t"))
        assert not cluster.brokers[1].deleted


async def test_a_leader_changes_its_in_sync_replicas_by_the_controller() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2, 3)
        cluster.create_topic("t", [1, 2])
        controller = await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[1].roles)
        gone = TopicPartition("gone", 0)
        found = await controller.alter_partitions(1, -1, {T0: IsrWish(0, (1,), 0), gone: IsrWish(0, (1,), 0)})
        shrunk = PartitionState(1, 0, (1,), 1)
        assert found == {
            T0: IsrAnswer(ErrorCode.NONE, KnownState(shrunk, 1)),
            gone: IsrAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        }
        assert cluster.state("t") == shrunk
        for broker_id, wish, error in (
            (1, IsrWish(0, (1, 2), 0), ErrorCode.INVALID_UPDATE_VERSION),
            (1, IsrWish(0, (1,), 1), ErrorCode.NONE),
            (1, IsrWish(0, (1, 3), 1), ErrorCode.INELIGIBLE_REPLICA),
            (1, IsrWish(1, (1, 2), 1), ErrorCode.INVALID_REQUEST),
            (2, IsrWish(0, (1, 2), 1), ErrorCode.INVALID_REQUEST),
            (1, IsrWish(0, (1, 2), 1), ErrorCode.NONE),
        ):
            assert (await controller.alter_partitions(broker_id, -1, {T0: wish}))[T0].error is error, wish
        assert cluster.state("t") == PartitionState(1, 0, (1, 2), 1)


async def test_the_replicas_of_a_failed_disk_do_not_lead() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        cluster.create_topic("t", [2, 1], [2, 1])
        await cluster.control(1)
        await until(lambda: len(cluster.brokers[2].roles) == 2)
        cluster.brokers[2].failed.add(T0)
        cluster.view.create(
            f"{layout.LOG_DIRECTORY_EVENTS}/log_dir_event_", layout.dump({"version": 1, "broker": 2, "event": 1}),
            sequence=True,
        )  # fmt: skip
        await until(lambda: cluster.brokers[1].metadata.get(T0) == 1)
        assert cluster.state("t") == PartitionState(1, 1, (1,), 1)
        assert cluster.state("t", 1) == PartitionState(2, 0, (2, 1), 1)


# ---- reassignments


@pytest.mark.parametrize("by", ["a request", "the node of old tools"])
async def test_a_partition_moves_once_its_new_replicas_are_in_sync(by: str) -> None:
    async with controlled() as cluster:
        cluster.register(1, 2, 3, 4)
        cluster.create_topic("t", [1, 2])
        controller = await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[2].roles)
        if by == "a request":
            assert await controller.reassign({T0: (3, 4), TopicPartition("gone", 0): (1,)}) == {
                TopicPartition("gone", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist")
            }
        else:
            move = {"topic": "t", "partition": 0, "replicas": [3, 4]}
            cluster.write(layout.REASSIGNMENTS, {"version": 1, "partitions": [move]})
        await until(lambda: T0 in cluster.brokers[4].roles)
        node = cluster.topic("t")
        assert (node.replicas, node.adding, node.removing) == ({0: [3, 4, 1, 2]}, {0: [3, 4]}, {0: [1, 2]})
        assert cluster.brokers[1].roles[T0].replicas == (3, 4, 1, 2)
        assert cluster.brokers[3].roles[T0].is_new
        assert not cluster.brokers[1].roles[T0].is_new
        replicas, move_ = (await controller.reassignments())[T0]
        assert (replicas, move_.adding, move_.removing) == ((3, 4, 1, 2), (3, 4), (1, 2))
        assert not cluster.brokers[1].deleted
        cluster.set_isr("t", 1, 2, 3, 4)
        await until(lambda: cluster.brokers[1].deleted and cluster.brokers[2].deleted)
        await until(lambda: not cluster.topic("t").removing)
        node = cluster.topic("t")
        assert (node.replicas, node.adding) == ({0: [3, 4]}, {})
        assert cluster.state("t") == PartitionState(3, 2, (3, 4), 1)
        assert cluster.brokers[3].roles[T0].replicas == (3, 4)
        assert await controller.reassignments() == {}
        await until(lambda: cluster.view.exists(layout.REASSIGNMENTS) is None)


async def test_a_reassignment_is_cancelled_and_another_one_replaces_it() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2, 3, 4)
        cluster.create_topic("t", [1, 2])
        controller = await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[2].roles)
        assert await controller.reassign({T0: (3, 2)}) == {}
        assert await controller.reassign({T0: (4, 2)}) == {}
        await until(lambda: cluster.brokers[3].deleted == [T0])
        node = cluster.topic("t")
        assert (node.replicas, node.adding, node.removing) == ({0: [4, 2, 1]}, {0: [4]}, {0: [1]})
        assert await controller.reassign({T0: None}) == {}
        await until(lambda: cluster.brokers[4].deleted == [T0])
        node = cluster.topic("t")
        assert (node.replicas, node.adding, node.removing) == ({0: [2, 1]}, {}, {})
        (fault,) = (await controller.reassign({T0: None})).values()
        assert fault[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        for targets in [(), (1, 1), (1, 9)]:
            (fault,) = (await controller.reassign({T0: targets})).values()
            assert fault[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_a_request_takes_the_place_of_a_reassignment_in_the_node_of_old_tools() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2, 3, 4)
        cluster.create_topic("t", [1, 2])
        controller = await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[2].roles)
        move = {"topic": "t", "partition": 0, "replicas": [3, 2]}
        cluster.write(layout.REASSIGNMENTS, {"version": 1, "partitions": [move]})
        await until(lambda: T0 in cluster.brokers[3].roles)
        assert await controller.reassign({T0: (4, 2)}) == {}
        await until(lambda: cluster.view.exists(layout.REASSIGNMENTS) is None)
        assert cluster.topic("t").adding == {0: [4]}


@pytest.mark.parametrize("protocol", [(0, 9), (2, 3)])
async def test_controllers_before_2_4_find_every_reassignment_in_the_node_of_old_tools(
    protocol: tuple[int, ...],
) -> None:
    async with controlled(protocol=protocol) as cluster:
        cluster.register(1, 2, 3, 4)
        cluster.create_topic("t", [1, 2])
        controller = await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[2].roles)
        for targets in [(3, 2), (4, 2)]:
            assert await controller.reassign({T0: targets}) == {}
            assert layout.load_reassignments(cluster.view.get(layout.REASSIGNMENTS).data) == {T0: targets}
        assert await controller.reassign({T0: None}) == {}
        assert cluster.view.exists(layout.REASSIGNMENTS) is None
        assert await controller.reassign({T0: (3, 2)}) == {}
        cluster.set_isr("t", 1, 2, 3)
        await until(lambda: not cluster.topic("t").removing)
        await until(lambda: cluster.view.exists(layout.REASSIGNMENTS) is None)


async def test_a_reassignment_that_only_adds_replicas_ends_too() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        cluster.create_topic("t", [2])
        controller = await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[2].roles)
        await controller.reassign({T0: (1, 2)})
        cluster.set_isr("t", 2, 1)
        await until(lambda: not cluster.topic("t").adding)
        assert cluster.topic("t").replicas == {0: [1, 2]}
        assert cluster.state("t") == PartitionState(2, 2, (2, 1), 1)
        assert await controller.reassignments() == {}
        assert not cluster.brokers[1].deleted


async def test_the_order_of_replicas_is_changed_at_once() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        cluster.create_topic("t", [1, 2])
        controller = await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[2].roles)
        await controller.reassign({T0: (2, 1)})
        assert cluster.topic("t").replicas == {0: [2, 1]}
        assert cluster.state("t") == PartitionState(1, 1, (1, 2), 1)
        assert await controller.elect(ElectionType.PREFERRED, None) == {T0: ErrorCode.NONE}


async def test_replicas_that_alone_are_in_sync_are_not_deleted_by_the_end_of_a_reassignment() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        cluster.create_topic("t", [1])
        controller = await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[1].roles)
        await controller.reassign({T0: (1, 2)})
        cluster.set_isr("t", 2)  # as after an unclean election
        await until(lambda: not cluster.view.children(layout.ISR_CHANGES))
        (fault,) = (await controller.reassign({T0: None})).values()
        assert fault[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert "would be deleted" in fault[1]


async def test_a_new_controller_continues_reassignments_and_deletions() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2, 3)
        cluster.create_topic("t", [1, 2])
        cluster.create_topic("u", [1, 3])
        first = await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[2].roles)
        await first.reassign({T0: (3, 2)})
        cluster.brokers[3].answers.clear()
        cluster.view.create(f"{layout.DELETE_TOPICS}/u")
        await until(lambda: cluster.brokers[1].deleted)
        second = await cluster.control(2)
        await first.stop()
        cluster.set_isr("t", 1, 2, 3)
        cluster.brokers[3].answers.set()
        await until(lambda: second.is_active)
        await until(lambda: cluster.view.exists(layout.topic_path("u")) is None)
        await until(lambda: not cluster.topic("t").removing)
        assert cluster.topic("t").replicas == {0: [3, 2]}
        assert T0 in cluster.brokers[1].deleted


# ---- balance, damage


async def test_partitions_are_given_back_to_their_preferred_leaders() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        state = layout.dump_state(PartitionState(1, 4, (1, 2), 0))
        cluster.create_topic("t", [2, 1])
        cluster.view.create(layout.state_path("t", 0), state, parents=True)
        await cluster.control(1)
        await hurried(until(lambda: cluster.brokers[1].metadata.get(T0) == 2), 10)


async def test_a_topic_whose_node_makes_no_sense_is_left_alone() -> None:
    async with controlled() as cluster:
        cluster.register(1, 2)
        cluster.view.create(layout.topic_path("bad"), b"{")
        cluster.create_topic("t", [1, 2])
        await cluster.control(1)
        await until(lambda: T0 in cluster.brokers[2].roles)
        assert cluster.view.get(layout.topic_path("bad")).data == b"{"


async def test_topics_without_ids_get_them_where_brokers_expect_them() -> None:
    async with controlled() as cluster:
        cluster.register(1)
        cluster.create_topic("t", [1])
        await cluster.control(1)
        await until(lambda: cluster.brokers[1].roles)
        assert cluster.topic("t").topic_id == uuid.UUID(int=1)
        led = [each for each in cluster.brokers[1].requests if isinstance(each, LeaderAndIsrRequest)]
        assert led[0].topic_states[0].topic_id == uuid.UUID(int=1)
