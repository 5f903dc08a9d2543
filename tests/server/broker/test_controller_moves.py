"""The controller dies in the middle of its duties, at each of its changes of the tree: the next one ends them."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from magicbyte.engine.errors import NetworkError, UnknownOutcomeError
from magicbyte.engine.ports import NodeChange, TopicPartition
from magicbyte.engine.replication.state import PartitionState
from magicbyte.server.stores.znodes import layout
from magicbyte.testing.tree import SimulatedSession
from server.broker.controlled import ControlledCluster, controlled

MOST_ROUNDS = 2_000
T0, V0 = TopicPartition("t", 0), TopicPartition("v", 0)


def die_at(cluster: ControlledCluster, session: SimulatedSession, count: int, *, is_made: bool) -> list[int]:
    """Have a session die at its `count`-th change, which is made or not; return a list that counts the changes."""
    real, changes = session.transaction, [0]

    def transaction(asked: Sequence[NodeChange]) -> list[str]:
        changes[0] += 1
        if changes[0] != count:
            return real(asked)
        if is_made:
            real(asked)
        cluster.tree.cut(session)
        raise UnknownOutcomeError("cut") if is_made else NetworkError("cut")

    session.transaction = transaction  # type: ignore[method-assign]
    return changes


def follow(cluster: ControlledCluster) -> None:
    """Let leaders take followers into sync, as their brokers do once they fetch."""
    for topic in ("t", "v"):
        state = cluster.state(topic)
        told = None if state is None else cluster.brokers.get(state.leader)
        role = None if told is None else told.roles.get(TopicPartition(topic, 0))
        if state is None or role is None or role.leader_epoch != state.leader_epoch:
            continue
        ready = [each for each in role.replicas if TopicPartition(topic, 0) in cluster.brokers[each].roles]
        if set(ready) > set(state.isr):
            cluster.set_isr(topic, *ready)


def is_done(cluster: ControlledCluster) -> bool:
    nodes = (layout.topic_path("u"), layout.REASSIGNMENTS, layout.PREFERRED_ELECTION, f"{layout.DELETE_TOPICS}/u")
    if any(cluster.view.exists(path) for path in nodes) or cluster.view.exists(layout.config_path("topics", "u")):
        return False
    node, moved, preferred = cluster.topic("t"), cluster.state("t"), cluster.state("v")
    return (
        (node.replicas, node.adding, node.removing) == ({0: [3, 2]}, {}, {})
        and moved is not None
        and set(moved.isr) == {2, 3}
        and preferred is not None
        and preferred.leader == 2
        and all(each.metadata.get(T0) == moved.leader for each in cluster.brokers.values())
        and all(each.metadata.get(V0) == 2 for each in cluster.brokers.values())
    )


def begin(cluster: ControlledCluster) -> None:
    """Ask for everything that takes a controller several steps."""
    cluster.register(1, 2, 3)
    cluster.create_topic("t", [1, 2])
    cluster.create_topic("u", [1, 3], [2])
    cluster.create_topic("v", [2, 1])
    cluster.view.create(layout.config_path("topics", "u"), layout.dump_config({}))
    for key, state in ((T0, PartitionState(1, 4, (1, 2), 0)), (V0, PartitionState(1, 4, (1, 2), 0))):
        cluster.view.create(layout.state_path(*key), layout.dump_state(state), parents=True)
    cluster.view.create(f"{layout.DELETE_TOPICS}/u")
    move = {"topic": "t", "partition": 0, "replicas": [3, 2]}
    cluster.write(layout.REASSIGNMENTS, {"version": 1, "partitions": [move]})
    cluster.write(layout.PREFERRED_ELECTION, {"version": 1, "partitions": [{"topic": "v", "partition": 0}]})


async def end(cluster: ControlledCluster, each_round: Callable[[], None]) -> None:
    for _ in range(MOST_ROUNDS):
        if is_done(cluster):
            return
        follow(cluster)
        each_round()
        await asyncio.sleep(0.001)
    raise AssertionError("the controllers do not end what they were asked for")


@pytest.mark.parametrize("is_made", [False, True], ids=["the change is not made", "the change is made"])
async def test_the_next_controller_ends_what_the_one_before_began(is_made: bool) -> None:
    changes = [1]

    async def go(cluster: ControlledCluster, count: int) -> None:
        begin(cluster)
        first = await cluster.candidate(1)
        (session,) = cluster.controller_sessions
        counted = die_at(cluster, session, count, is_made=is_made)
        starting = asyncio.create_task(first.start())
        others = asyncio.create_task((await cluster.candidate(2)).start())

        def each_round() -> None:
            if session.is_cut:
                cluster.tree.expire_session(session)

        await end(cluster, each_round)
        changes[0] = counted[0]
        for task in (starting, others):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    count = 0
    while count <= changes[0]:
        count += 1
        async with controlled() as cluster:
            await go(cluster, count)
    assert count > 12, "the duties are many changes"
