"""Our registration and election in the ZooKeeper of a real broker: it reads the one, and competes in the other."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from interop import jvm, kafka_oracle
from interop.sweeps import cells
from magicbyte.access.client import Client
from magicbyte.engine.cluster.brokers import BrokerEndpoint, Registration
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataResponse
from magicbyte.engine.releases import numbers, registration_version
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.metadata.zookeeper import ZooKeeperStore
from magicbyte.server.serving.threads import SystemThreads
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.cluster import OwnRegistration, register
from magicbyte.server.stores.znodes.election import elect
from server.broker.serving import Clock

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

PATIENCE_S = 180


async def brokers_at(bootstrap: str) -> set[int]:
    """Return the brokers of the cluster that a real broker knows."""
    async with Client(bootstrap) as client:
        response = await client.ask_any(MetadataRequest(topics=[]), MetadataResponse)
        return {each.node_id for each in response.brokers}


async def until(expected: set[int], look: Callable[[], Awaitable[set[int]]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await look() != expected:
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("release", cells(("0.9.0.1", "0.10.2.2", "0.11.0.3", "2.8.2", "3.9.1")))
def test_a_real_controller_takes_our_broker_for_a_member_and_is_succeeded_by_it(release: str, tmp_path: Path) -> None:
    clock = Clock()
    version = registration_version(numbers(release))

    async def during(address: str, bootstrap: str, threads: SystemThreads) -> LoopStore:
        store = await LoopStore.open(partial(ZooKeeperStore, address, session_timeout_ms=30_000), threads.run)
        plain = [BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9)]
        epoch = await register(store, 7, OwnRegistration(Registration(tuple(plain), "attic"), 5, version))
        assert epoch == (await store.get(layout.broker_path(7))).czxid
        found = await elect(store, 7, clock.now_ms)
        assert (found.controller, found.epoch, found.won) == (0, 1, False)
        await until({0, 7}, partial(brokers_at, bootstrap))
        return store

    async def after(store: LoopStore, gone: asyncio.Event) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await elect(store, 7, clock.now_ms, lambda _event, _path: gone.set())).won:
                await gone.wait()
                gone.clear()
        assert (found.controller, found.epoch) == (7, 2)
        assert await elect(store, 7, clock.now_ms) == found
        await store.close()

    threads = SystemThreads("test-zookeeper", 1)
    with asyncio.Runner() as runner, jvm.broker(release, tmp_path) as state:
        address = state["zookeeper"]
        store = runner.run(during(address, state["bootstrap"], threads))
        kafka_oracle.stop_process(state["pids"]["broker"], tmp_path, 15)
        runner.run(after(store, asyncio.Event()))
    threads.close()
