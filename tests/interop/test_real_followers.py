"""Real brokers of each era under our controller: what it tells them makes them lead, follow, hand over and delete."""

import asyncio
import json
from pathlib import Path

import pytest

from interop import jvm
from interop.real_cluster import Candidate, RealCluster, until
from magicbyte.access.client import Client
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.produce import send
from magicbyte.engine.protocol.messages.alter_partition import AlterPartitionRequest
from magicbyte.engine.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from magicbyte.engine.records.columns import Record
from magicbyte.server.stores.znodes import layout

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

RELEASES = [
    ("0.9.0.1", "0.9.0"),
    pytest.param("0.10.2.2", "0.10.2", marks=pytest.mark.campaign),
    pytest.param("0.11.0.3", "0.11.0", marks=pytest.mark.campaign),
    pytest.param("2.8.2", "2.6", marks=pytest.mark.campaign),
    ("2.8.2", "2.8"),
]


async def produce(cluster: RealCluster, topic: str, *values: bytes) -> None:
    """Produce with acks=all."""
    async with Client(cluster.bootstrap) as client:
        await send(client, topic, 0, [Record(0, 0, 0, None, each) for each in values])


async def values_of(cluster: RealCluster, topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with Client(cluster.bootstrap) as client, asyncio.timeout(120):
        async for columns in read_records(client, topic, 0, 0):
            found += [each.value for each in columns]
            if len(found) >= count:
                break
    return found


@pytest.mark.parametrize(("release", "protocol"), RELEASES)
def test_real_brokers_do_what_our_controller_tells_them(release: str, protocol: str, tmp_path: Path) -> None:
    async def go() -> None:
        cluster = RealCluster(release, tmp_path, f"inter.broker.protocol.version={protocol}", jvm.SHORT_SESSION)
        candidate = Candidate(cluster.zookeeper, 0, protocol)
        async with cluster.running(), candidate.running() as controller:
            assert controller.is_active
            await asyncio.gather(cluster.start(1), cluster.start(2))
            await under_our_controller(cluster, candidate)
            assert controller.is_active
            assert controller.epoch == 1

    asyncio.run(go())


async def under_our_controller(cluster: RealCluster, candidate: Candidate) -> None:
    alters = candidate.protocol >= (2, 7)
    await cluster.tool("TopicCommand", "--create", "--topic", "t", "--replica-assignment", "1:2")
    await until(lambda: cluster.is_led("t", 1, 1, 2), "the topic has a leader")
    await produce(cluster, "t", b"1", b"2")

    await cluster.stop(1, kill=True)
    await until(lambda: cluster.is_led("t", 2, 2), "the other replica leads")
    await produce(cluster, "t", b"3")
    await cluster.start(1)
    await until(lambda: cluster.is_led("t", 2, 1, 2), "the replica is in sync again")
    assert any(isinstance(each, AlterPartitionRequest) for each in candidate.asked) == alters

    asked = json.dumps({"partitions": [{"topic": "t", "partition": 0}]})
    (cluster.folder / "elect.json").write_text(asked)
    await cluster.tool(
        "PreferredReplicaLeaderElectionCommand", "--path-to-json-file", str(cluster.folder / "elect.json")
    )
    await until(lambda: cluster.is_led("t", 1, 1, 2), "the preferred leader leads")
    await produce(cluster, "t", b"4")

    move = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]}
    (cluster.folder / "move.json").write_text(json.dumps(move))
    await cluster.tool(
        "ReassignPartitionsCommand", "--execute", "--reassignment-json-file", str(cluster.folder / "move.json")
    )
    await until(lambda: cluster.is_led("t", 2, 2), "the partition has moved")
    await until(lambda: cluster.is_gone(layout.REASSIGNMENTS), "the reassignment is over")
    node = layout.TopicNode.load("", (await cluster.view.get(layout.topic_path("t"))).data)
    assert (node.replicas, node.adding, node.removing) == ({0: [2]}, {}, {})
    await until(lambda: _has_no_log(cluster, 1), "the replica that moved away is deleted")
    assert await values_of(cluster, "t", 4) == [b"1", b"2", b"3", b"4"]

    move["partitions"][0]["replicas"] = [1, 2]  # type: ignore[index]
    (cluster.folder / "move.json").write_text(json.dumps(move))
    await cluster.tool(
        "ReassignPartitionsCommand", "--execute", "--reassignment-json-file", str(cluster.folder / "move.json")
    )
    await until(lambda: cluster.is_gone(layout.REASSIGNMENTS), "the second reassignment is over")
    await until(lambda: cluster.is_led("t", 2, 1, 2), "the new replica is in sync")
    await cluster.stop(2)
    assert any(isinstance(each, ControlledShutdownRequest) for each in candidate.asked)
    await until(lambda: cluster.is_led("t", 1, 1), "the lead was handed over")
    assert await values_of(cluster, "t", 4) == [b"1", b"2", b"3", b"4"]
    await cluster.start(2)
    await until(lambda: cluster.is_led("t", 1, 1, 2), "the replica is in sync after a clean stop")

    await cluster.tool("TopicCommand", "--delete", "--topic", "t")
    await until(lambda: cluster.is_gone(layout.topic_path("t")), "the topic is deleted")
    await until(lambda: _has_no_log(cluster, 1), "its logs are deleted")


async def _has_no_log(cluster: RealCluster, broker_id: int) -> bool:
    return not (cluster.folder / f"broker-{broker_id}" / "data" / "t-0").exists()


@pytest.mark.parametrize(("release", "protocol"), RELEASES)
def test_the_controller_is_ours_then_a_real_one_then_ours_again(release: str, protocol: str, tmp_path: Path) -> None:
    async def go() -> None:
        cluster = RealCluster(release, tmp_path, f"inter.broker.protocol.version={protocol}", jvm.SHORT_SESSION)
        async with cluster.running():
            async with Candidate(cluster.zookeeper, 0, protocol).running() as controller:
                assert controller.is_active
                await asyncio.gather(cluster.start(1), cluster.start(2))
                await cluster.tool("TopicCommand", "--create", "--topic", "t", "--replica-assignment", "1:2")
                await until(lambda: cluster.is_led("t", 1, 1, 2), "the topic has a leader")
            await until(lambda: _is_one_of(cluster, 1, 2), "a real broker is the controller")
            real = await cluster.controller()
            assert real is not None
            await produce(cluster, "t", b"1")
            async with Candidate(cluster.zookeeper, 0, protocol).running() as controller:
                assert (controller.controller_id, controller.is_active) == (real, False)
                await cluster.tool("TopicCommand", "--create", "--topic", "u", "--replica-assignment", "1:2")
                await until(lambda: cluster.is_led("u", 1, 1, 2), "the real controller gives topics their leaders")
                stopped = []
                for broker_id in (real, 3 - real):  # the second of them, and ours, are candidates then
                    if await cluster.controller() == broker_id:
                        await cluster.stop(broker_id, kill=True)
                        stopped.append(broker_id)
                        await until(lambda: _is_one_of(cluster, 0, 3 - real), "another broker is the controller")
                await until(lambda: _is_one_of(cluster, 0), "our broker is the controller")
                for broker_id in stopped:
                    await cluster.start(broker_id)
                await until(lambda: _is_whole(cluster, "t"), "its partition is led, and all replicas are in sync")
                await produce(cluster, "t", b"2")
                assert await values_of(cluster, "t", 2) == [b"1", b"2"]

    asyncio.run(go())


async def _is_one_of(cluster: RealCluster, *broker_ids: int) -> bool:
    return await cluster.controller() in broker_ids


async def _is_whole(cluster: RealCluster, topic: str) -> bool:
    state = await cluster.state(topic)
    return state is not None and state.leader > 0 and set(state.isr) == {1, 2}
