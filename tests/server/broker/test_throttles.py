"""Throttles of replication, by brokers under virtual time."""

from __future__ import annotations

import asyncio

import pytest

from builders import as_it_is
from magicbyte.access.client.admin import ConfigResource, NewTopic, alter_configs, create_topic
from magicbyte.access.client.produce import send
from magicbyte.access.client.replicas import alter_reassignments
from magicbyte.engine.errors import BrokerError
from magicbyte.engine.ports import TopicPartition
from magicbyte.testing.world import World
from server.broker.builders import records

RATE = 100_000
BYTES = 10 * RATE
SETTINGS = {"replica.fetch.max.bytes": "50000", "auto.leader.rebalance.enable": "false"}


async def copied(world: World, side: str, replicas: str) -> tuple[float, float]:
    """Move a partition of 10 seconds at the rate to a second broker; return how long that takes, and a write then."""
    for number in (1, 2):
        await world.broker(number).start()
    async with world.client(retry_ms=0) as client:
        await create_topic(client, NewTopic("t", -1, -1, assignments=[[1]]))
        await client.at_leader("t", 0, as_it_is)
        for _ in range(100):
            await send(client, "t", 0, records(1, BYTES // 100))
        await alter_configs(client, ConfigResource.TOPIC, "t", {f"{side}.replication.throttled.replicas": replicas})
        for number in ("1", "2"):
            await alter_configs(
                client, ConfigResource.BROKER, number, {f"{side}.replication.throttled.rate": str(RATE)}
            )
        began = world.virtual_s
        (outcome,) = await alter_reassignments(client, {TopicPartition("t", 0): (1, 2)})
        assert outcome.error is None
        leader = world.brokers[1].served.replicas.partition("t", 0)
        while leader.led().state.isr != (1, 2):
            await asyncio.sleep(0.1)
        ended = world.virtual_s
        await send(client, "t", 0, records(1, 1000))
        return ended - began, world.virtual_s - ended


@pytest.mark.parametrize(("side", "broker"), [("leader", 1), ("follower", 2)])
def test_a_throttled_replica_is_copied_at_the_rate_and_held_back_no_more_when_it_is_in_sync(
    side: str, broker: int
) -> None:
    for replicas in (f"0:{broker}", "*"):
        with World(1, settings=SETTINGS) as world:
            copying_s, writing_s = world.run(copied(world, side, replicas))
            assert 8 < copying_s < 16
            assert writing_s < 1


@pytest.mark.parametrize(("side", "broker"), [("leader", 2), ("follower", 1)])
def test_a_replica_that_is_not_listed_on_its_side_is_not_throttled(side: str, broker: int) -> None:
    with World(1, settings=SETTINGS) as world:
        copying_s, _ = world.run(copied(world, side, f"0:{broker},1:{3 - broker}"))
        assert copying_s < 3


def test_a_list_of_throttled_replicas_that_is_none_is_refused() -> None:
    async def work(world: World) -> None:
        await world.broker(1).start()
        async with world.client() as client:
            await create_topic(client, NewTopic("t"))
            with pytest.raises(BrokerError, match="PARTITION:BROKER"):
                await alter_configs(client, ConfigResource.TOPIC, "t", {"leader.replication.throttled.replicas": "0-1"})

    with World(1, settings=SETTINGS) as world:
        world.run(work(world))
