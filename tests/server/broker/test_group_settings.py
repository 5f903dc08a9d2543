"""Settings of groups: they count from the next heartbeat on, on every broker, and outlive it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from interop.consumer_group_steps import find_coordinator
from interop.group_settings_steps import HEARTBEAT, INTERVAL, SESSION, Settings, settings_conversation
from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from magicbyte.engine.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from magicbyte.testing import Broker, Cluster
from server.broker.serving import Peer

BROKER = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
NOT_YET = {ErrorCode(each) for each in (14, 15, 16)}


async def peer_of(address: str) -> Peer:
    host, _, port = address.rpartition(":")
    return Peer(await SocketStream.connect(host, int(port)))


async def change(address: str, *settings: tuple[str, str], group: str = "g") -> list[Any]:
    script = Settings(await peer_of(address))
    await script.change(*((name, 0, value) for name, value in settings), group=group)
    script.peer.close()
    return [code for _, _, code in script.said[0][1]]


async def member_of(address: str) -> Peer:
    peer = await peer_of(address)
    await find_coordinator(peer)
    return peer


async def beat(peer: Peer, epoch: int = 0, group: str = "g") -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=5000,
        subscribed_topic_names=["t"],
        topic_partitions=[] if epoch == 0 else None,
    )
    while True:
        answer = await peer.ask(request, 1, ConsumerGroupHeartbeatResponse)
        if answer.error_code not in NOT_YET:
            return answer
        await asyncio.sleep(0.05)


def test_a_group_has_its_own_interval_of_heartbeats_after_a_restart_too(tmp_path: Path) -> None:
    async def first(address: str) -> None:
        peer = await member_of(address)
        assert (await beat(peer)).heartbeat_interval_ms == 5000
        assert await change(address, (HEARTBEAT, "200"), (INTERVAL, "0")) == [0]
        assert (await beat(peer)).heartbeat_interval_ms == 200
        assert (await beat(peer, group="other")).heartbeat_interval_ms == 5000

    async def again(address: str) -> None:
        assert (await beat(await member_of(address))).heartbeat_interval_ms == 200

    with Broker(BROKER, directory=tmp_path) as broker:
        asyncio.run(asyncio.wait_for(first(broker.bootstrap_servers), 30))
    with Broker(BROKER, directory=tmp_path) as broker:
        asyncio.run(asyncio.wait_for(again(broker.bootstrap_servers), 30))
    with Broker({**BROKER, "group.consumer.min.heartbeat.interval.ms": "300"}, directory=tmp_path) as broker:
        (setting,) = [broker.served.groups.coordinator.consumer_config("g")]
        assert setting.heartbeat_interval_ms == 300, "a broker with a larger bound does not go below it"


def test_a_member_is_removed_after_the_session_timeout_of_its_group() -> None:
    async def work(broker: Broker) -> None:
        assert await change(broker.bootstrap_servers, (SESSION, "600"), (HEARTBEAT, "100")) == [0]
        peer = await member_of(broker.bootstrap_servers)
        epoch = (await beat(peer)).member_epoch
        while broker.served.groups.coordinator.consumers["g"].subscribers:
            await asyncio.sleep(0.05)
        assert (await beat(peer, epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    with Broker(BROKER) as broker:
        asyncio.run(asyncio.wait_for(work(broker), 30))


def test_a_session_timeout_exceeds_the_interval_of_heartbeats() -> None:
    async def work(address: str) -> None:
        assert await change(address, (SESSION, "600"), (HEARTBEAT, "600")) == [ErrorCode.INVALID_CONFIG]
        assert await change(address, (SESSION, "600")) == [ErrorCode.INVALID_CONFIG], "of the broker"
        assert await change(address, (HEARTBEAT, "600"), (SESSION, "601")) == [0]

    with Broker(BROKER) as broker:
        asyncio.run(work(broker.bootstrap_servers))


def test_each_broker_of_a_cluster_knows_the_settings_of_groups() -> None:
    async def work(cluster: Cluster) -> None:
        addresses = cluster.bootstrap_servers.split(",")
        assert await change(addresses[0], (HEARTBEAT, "200")) == [0]
        for address in addresses:  # a broker has a coordinator from the first such request
            await (await peer_of(address)).ask(ListGroupsRequest(), 4, ListGroupsResponse)
        for number in cluster.running:
            told = cluster.brokers[number].served.groups.coordinator.consumer_config
            while told("g").heartbeat_interval_ms != 200:
                await asyncio.sleep(0.02)
        assert await change(addresses[1], (HEARTBEAT, "300"), group="..") == [0]
        for number in cluster.running:
            told = cluster.brokers[number].served.groups.coordinator.consumer_config
            while told("..").heartbeat_interval_ms != 300:
                await asyncio.sleep(0.02)

    with Cluster(2, {**BROKER, "as.version": "4.4"}) as cluster:
        asyncio.run(asyncio.wait_for(work(cluster), 60))


@pytest.mark.parametrize(("release", "count"), [("4.1", 10), ("4.3", 17), ("4.4", 21)])
def test_releases_have_as_many_settings_as_the_real_brokers(release: str, count: int) -> None:
    with Broker({"as.version": release}) as broker:
        said = dict(settings_conversation(broker.bootstrap_servers))
    code, rows = said["without settings"]
    assert (code, len(rows)) == (0, count)
    assert said["no name"] == (ErrorCode.INVALID_REQUEST, [])
    assert ("g", 32) not in said["fewer groups"], "its last setting was removed"
    assert [name for name, _ in said["several groups"]] == sorted(["g", "h", "x" * 300, "a/b ~é", ".."])


@pytest.mark.parametrize("release", ["2.8", "3.9"])
def test_releases_before_4_0_have_no_settings_of_groups(release: str) -> None:
    async def work(address: str) -> None:
        assert await change(address, (SESSION, "50000")) == [ErrorCode.INVALID_REQUEST]

    with Broker({"as.version": release}) as broker:
        asyncio.run(work(broker.bootstrap_servers))
