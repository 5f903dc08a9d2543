"""Roles are taken by orders, from the broker's own image or from a controller."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magicbyte.engine.errors import ErrorCode, NotLeaderError, UnknownTopicError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.state import PartitionOrder, PartitionState
from magicbyte.server.broker.broker import Broker
from magicbyte.server.partitions.in_sync import Replication
from magicbyte.server.partitions.replicas import Replicas
from server.broker.serving import Running

KEY = TopicPartition("topic", 0)


def replicas_of(
    broker: Broker,
    own_order: Callable[[TopicPartition], PartitionOrder | None],
    replication: Callable[[Any], Replication] | None = None,
) -> Replicas:
    """Return further replicas on the parts of a broker, whose roles have another source."""

    def none_needed(_partitions: object) -> Replication:
        raise AssertionError("there is no other broker")

    return Replicas(
        broker.runtime,
        broker.topics,
        broker.logs,
        view=broker.cluster_view,
        background=broker.parts.background,
        own_order=own_order,
        coordinator_of=lambda _topic: None,
        replication=replication or none_needed,
    )


def by_image(broker: Broker) -> Callable[[TopicPartition], PartitionOrder | None]:
    return lambda key: broker.membership.topic_control.own_order(broker.cluster_store.image, key)


class NoFetchers:
    """The fetchers and the in-sync replicas of a broker that follows no other."""

    partitions = ()

    def start(self) -> None:
        pass

    def forget(self, _key: TopicPartition) -> None:
        pass

    async def close_idle(self) -> None:
        pass


async def test_by_the_image_a_partition_is_led_from_its_first_use_on_and_no_epoch_is_begun(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create(KEY.topic)
        replicas = replicas_of(broker, by_image(broker))
        assert broker.logs.logs == {}
        first, second = await asyncio.gather(replicas.opened(*KEY), replicas.opened(*KEY))
        assert first is second is replicas.partition(*KEY)
        assert first.led().state == PartitionState(broker.node_id, 0, (broker.node_id,), 0)
        assert first.led().followers == {}
        assert replicas.low_watermark(first) == 0
        assert first.log.epochs.entries == []  # the first batch begins it
        await replicas.close()


async def test_a_partition_that_is_deleted_or_missing_is_unknown_and_gets_no_log(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create(KEY.topic)
        await broker.topics.begin_delete(KEY.topic)
        for own_order in (by_image(broker), lambda _key: None):
            replicas = replicas_of(broker, own_order)
            for missing in (KEY, TopicPartition("other", 0)):
                with pytest.raises(UnknownTopicError):
                    await replicas.opened(*missing)
                assert await replicas.known_partition(*missing) is None
    assert broker.logs.logs == {}


async def test_an_epoch_that_is_raised_leaves_pending_acknowledgements_as_they_are(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create(KEY.topic)
        replicas = broker.replicas
        partition = await replicas.opened(*KEY)
        leader = partition.led()
        await replicas.raise_leader_epoch(partition, 5)
        assert (partition.leader_epoch, partition.led()) == (5, leader)
        assert partition.acknowledgement(leader, 1, 1) is None
        leader.appended(1, broker.clock.monotonic_ms())
        assert partition.acknowledgement(leader, 1, 1) is ErrorCode.NONE
    async with Running(folder) as broker:
        assert (await broker.replicas.opened(*KEY)).leader_epoch == 5


async def test_without_an_order_there_is_no_replica_and_orders_as_data_make_one(folder: Path) -> None:
    """So a store of another kind can give roles without a request to this broker."""
    async with Running(folder) as broker:
        await broker.topics.create(KEY.topic)
        nothing: Any = NoFetchers()
        replicas = replicas_of(broker, lambda _key: None, lambda _partitions: Replication(nothing, nothing))
        with pytest.raises(NotLeaderError):
            await replicas.opened(*KEY)
        assert broker.logs.logs == {}
        me, other = broker.node_id, broker.node_id + 1
        order = PartitionOrder(KEY, PartitionState(me, 3, (me, other), 1), 7, (me, other))
        assert await replicas.take_orders([order], {}) == {KEY: ErrorCode.NONE}
        partition = await replicas.opened(*KEY)
        assert list(partition.led().followers) == [other]
        assert [each.epoch for each in partition.log.epochs.entries] == [3]
        await replicas.raise_leader_epoch(partition, 9)  # the controller sets it
        assert partition.leader_epoch == 3
        assert await replicas.take_orders([order], {}) == {KEY: ErrorCode.STALE_CONTROLLER_EPOCH}
        assert await replicas.stop(KEY, 4, deletes=False) is ErrorCode.NONE
        with pytest.raises(NotLeaderError):
            partition.led()
