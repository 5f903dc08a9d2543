"""The simulated world: real brokers and clients under virtual time, whose histories repeat exactly."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from builders import as_it_is, valued
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.fetch import FetchOptions, fetch_sets, records_of
from magicbyte.access.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import send
from magicbyte.engine.errors import BrokerError, NetworkError
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from magicbyte.engine.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from magicbyte.server.stores.znodes.layout import broker_path
from magicbyte.testing.loop import StuckError
from magicbyte.testing.world import TREE, SimulatedBroker, World

DURABLE = {"log.flush.interval.messages": "1"}
ALONE = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "4"}
IN_OTHER_PROCESS = "import sys; from testing.test_world import eventful; print(eventful(int(sys.argv[1])))"


async def read(client: Client, topic: str, start: int = 0, wait_ms: int = 0) -> list[bytes]:
    """Return the values from `start` to the high watermark."""
    found: list[bytes] = []
    while True:
        sets = await fetch_sets(client, topic, 0, start, FetchOptions(max_wait_ms=wait_ms))
        found += [bytes(record.value or b"") for columns in records_of(sets, start) for record in columns]
        start = sets.next_offset
        if start >= sets.high_watermark:
            return found


async def make_topic(world: World, **configs: str) -> None:
    """Make the topic, and wait until it can be used."""
    async with world.client("admin") as client:
        await create_topic(client, NewTopic("topic", configs=configs))
        await client.at_leader("topic", 0, as_it_is)


async def member(client: Client, group: str, beats: int) -> int:
    """Be a member of a group for so many heartbeats; return in how many generations."""
    generations, member_id, left = set[int](), "", beats
    while left > 0:
        node = await client.at_coordinator(group, as_it_is)
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=6000,
            rebalance_timeout_ms=9000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=protocols,
        )
        joined = await client.ask(node, join, JoinGroupResponse, versions=range(4), wait_ms=9000)
        if joined.error_code:
            member_id = ""
            continue
        member_id = joined.member_id
        shares = [SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"x") for each in joined.members]
        sync = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=member_id, assignments=shares
        )
        synced = await client.ask(node, sync, SyncGroupResponse, versions=range(3), wait_ms=9000)
        if synced.error_code:
            continue
        generations.add(joined.generation_id)
        beat = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=member_id)
        while left > 0 and not (await client.ask(node, beat, HeartbeatResponse, versions=range(3))).error_code:
            left -= 1
            await asyncio.sleep(2)
    return len(generations)


def eventful(seed: int) -> str:
    """Return the digest of three minutes with producers, a reader, a group, a power cut, and a network that fails."""
    with World(seed) as world:
        broker = world.broker(0, DURABLE | ALONE)
        world.run(_eventful(world, broker))
        return world.digest()


async def _eventful(world: World, broker: SimulatedBroker) -> None:
    await broker.start()
    acknowledged: list[bytes] = []
    seen: list[bytes] = []

    async def produces(name: str, count: int) -> None:
        async with world.client(name) as client:
            for at in range(count):
                value = f"{name} {at}".encode() * 20
                await send(client, "topic", 0, valued(value))
                acknowledged.append(value)
                await asyncio.sleep(world.random.uniform(0, 2))

    async def reads() -> None:
        async with world.client("reader") as client:
            while len(set(seen)) < 120:
                try:
                    seen.extend(await read(client, "topic", len(seen), 500))
                except (NetworkError, BrokerError):
                    client.forget("topic")
                    await asyncio.sleep(0.1)

    async def fails() -> None:
        await asyncio.sleep(30)
        world.network.cut("producer-1", broker.name)
        await asyncio.sleep(10)
        world.network.heal("producer-1", broker.name)
        world.network.delay(broker.name, "reader", 200)
        broker.clock.ahead_ms -= 3_600_000
        await asyncio.sleep(10)
        broker.cut_power()
        await asyncio.sleep(5)
        await broker.start()

    async def joins(name: str) -> None:
        async with world.client(name) as client:
            await member(client, "group", 10)

    await make_topic(world)
    async with world.client("admin") as client:
        await asyncio.gather(joins("member-1"), joins("member-2"))
        await commit_offsets(client, "other", {("topic", 0): Committed(7)})
    await asyncio.gather(produces("producer-1", 60), produces("producer-2", 60), reads(), fails())
    assert set(acknowledged) <= set(seen)
    async with world.client("checker") as client:
        assert await read(client, "topic") == seen
        assert (await committed_offsets(client, "other", [("topic", 0)]))["topic", 0].offset == 7
    await broker.stop()


def test_the_same_seed_gives_the_same_history_to_the_last_byte_and_another_seed_another() -> None:
    first = eventful(1)
    assert eventful(1) == first
    assert eventful(2) != first


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_history_repeats_in_another_process_with_other_hashes(seed: int) -> None:
    found = set()
    for hashes in ("1", "2", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, "-c", IN_OTHER_PROCESS, str(seed)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1


@pytest.mark.parametrize("seed", range(5))
def test_what_was_acknowledged_survives_a_power_cut_where_each_message_is_flushed(seed: int) -> None:
    with World(seed) as world:
        broker = world.broker(0, DURABLE | ALONE)
        acknowledged: list[bytes] = []

        async def produces() -> None:
            async with world.client("producer", retry_ms=0) as client:
                for at in range(1000):
                    await send(client, "topic", 0, valued(b"%d" % at * 50))
                    acknowledged.append(b"%d" % at * 50)

        async def history() -> None:
            await broker.start()
            await make_topic(world)
            async with world.client() as client:
                producing = asyncio.create_task(produces())
                await asyncio.sleep(world.random.uniform(0.1, 0.5))
                broker.cut_power()
                with pytest.raises(NetworkError):
                    await producing
                await broker.start()
                found = await read(client, "topic")
            assert len(acknowledged) > 10
            assert found[: len(acknowledged)] == acknowledged
            assert len(found) <= len(acknowledged) + 1

        world.run(history())


def test_a_power_cut_takes_what_was_not_flushed_and_a_killed_process_takes_nothing() -> None:
    lost = 0
    for seed in range(4):
        with World(seed) as world:
            broker = world.broker(0)

            async def history(world: World = world, broker: SimulatedBroker = broker) -> int:
                await broker.start()
                await make_topic(world)
                async with world.client() as client:
                    await send(client, "topic", 0, valued(b"value" * 2000))
                    broker.kill()
                    await broker.start()
                    assert await read(client, "topic") == [b"value" * 2000]
                    await send(client, "topic", 0, valued(b"other" * 2000))
                    broker.cut_power()
                    await broker.start()
                    return 2 - len(await read(client, "topic"))

            lost += world.run(history())
    assert lost > 0


def test_the_same_broker_started_again_waits_for_the_end_of_its_session_and_has_its_topics() -> None:
    with World(3) as world:
        broker = world.broker(0)

        async def history() -> None:
            await broker.start()
            await make_topic(world)
            broker.kill()
            at = world.virtual_s
            assert world.tree.session().exists(broker_path(0)) is not None
            await broker.start()
            assert world.virtual_s - at > 17
            async with world.client() as client:
                await client.at_leader("topic", 0, as_it_is)

        world.run(history())


def test_a_broker_that_is_cut_off_is_silent_and_answers_when_it_is_healed() -> None:
    with World(4) as world:
        broker = world.broker(0)

        async def history() -> None:
            await broker.start()
            await make_topic(world)
            async with world.client(request_timeout_ms=3000, retry_ms=0) as client:
                await send(client, "topic", 0, valued(b"before"))
                world.network.cut("client", broker.name)
                at = world.virtual_s
                with pytest.raises(NetworkError, match="no response to Produce within"):
                    await send(client, "topic", 0, valued(b"meanwhile"))
                assert world.virtual_s - at == pytest.approx(13)
                with pytest.raises(NetworkError, match="no connection within 10000 ms"):
                    await send(client, "topic", 0, valued(b"not sent"))
                world.network.heal("client", broker.name)
                await send(client, "topic", 0, valued(b"after"))
                found = await read(client, "topic")
            assert found == [b"before", b"after"]  # a connection whose request is given up is reset

        world.run(history())


def test_one_way_of_a_cut_carries_requests_and_no_answers() -> None:
    with World(5) as world:
        broker = world.broker(0)

        async def history() -> Sequence[bytes]:
            await broker.start()
            await make_topic(world)
            async with world.client(request_timeout_ms=1000, retry_ms=0) as client:
                await send(client, "topic", 0, valued(b"before"))
                world.network.cut(broker.name, "client", one_way=True)
                with pytest.raises(NetworkError):
                    await send(client, "topic", 0, valued(b"unanswered"))
            async with world.client("other") as client:
                return await read(client, "topic")

        assert world.run(history()) == [b"before", b"unanswered"]


def test_a_paused_broker_does_nothing_until_it_is_resumed() -> None:
    with World(6) as world:
        broker = world.broker(0)

        async def history() -> None:
            await broker.start()
            await make_topic(world)
            async with world.client() as client:
                broker.pause()
                sending = asyncio.create_task(send(client, "topic", 0, valued(b"value")))
                await asyncio.sleep(5)
                before = broker.served.topics.log("topic", 0).log_end_offset
                assert not sending.done()
                broker.resume()
                await sending
                assert (before, broker.served.topics.log("topic", 0).log_end_offset) == (0, 1)

        world.run(history())


def test_a_broker_that_is_cut_off_from_the_tree_or_paused_loses_its_session() -> None:
    with World(7) as world:
        broker = world.broker(0)
        there = world.tree.session()

        async def history() -> None:
            for lose, find in (
                (lambda: world.network.cut(broker.name, TREE), lambda: world.network.heal(broker.name, TREE)),
                (broker.pause, broker.resume),
            ):
                await broker.start()
                lose()
                await asyncio.sleep(17)
                assert there.exists(broker_path(0)) is not None
                await asyncio.sleep(2)
                assert there.exists(broker_path(0)) is None
                find()
                broker.kill()

        world.run(history())


def test_a_broker_that_cannot_reach_the_tree_does_not_start_and_can_be_started_later() -> None:
    with World(12) as world:
        broker = world.broker(0)

        async def history() -> None:
            world.network.cut(broker.name, TREE)
            with pytest.raises(NetworkError, match="cut off from the tree"):
                await broker.start()
            assert not broker.is_running
            world.network.heal(broker.name, TREE)
            await broker.start()
            assert broker.is_running

        world.run(history())


def test_a_wall_clock_that_jumps_changes_dates_and_no_timeout() -> None:
    with World(8) as world:
        broker = world.broker(0)

        async def history() -> list[int]:
            await broker.start()
            await make_topic(world, **{"message.timestamp.type": "LogAppendTime"})
            async with world.client() as client:
                for ahead_ms in (0, -86_400_000, 86_400_000):
                    broker.clock.ahead_ms = ahead_ms
                    await send(client, "topic", 0, valued(b"value"))
                    at = world.virtual_s
                    sets = await fetch_sets(client, "topic", 0, (await bounds(client, "topic", 0))[1], FetchOptions(
                        max_wait_ms=700))  # fmt: skip
                    assert not sets.data
                    assert world.virtual_s - at == pytest.approx(0.7, abs=0.02)
                sets = await fetch_sets(client, "topic", 0, 0)
                return [record.timestamp for columns in records_of(sets, 0) for record in columns]

        first, second, third = world.run(history())
        assert first - second == pytest.approx(86_400_000, abs=2000)
        assert third - first == pytest.approx(86_400_000, abs=4000)


def test_large_answers_wait_for_a_reader_that_does_not_read() -> None:
    with World(9) as world:
        broker = world.broker(0)

        async def history() -> None:
            await broker.start()
            await make_topic(world)
            async with world.client("one") as one, world.client("two") as two:
                for at in range(4):
                    await send(one, "topic", 0, valued(bytes([at]) * 900_000))
                assert [value[0] for value in await read(two, "topic")] == [0, 1, 2, 3]

        world.run(history())
        assert world.network.bytes_moved > 7_200_000


def test_a_history_that_does_not_end_names_the_waiting_tasks() -> None:
    with World(10, most_virtual_s=100) as world:
        broker = world.broker(0)

        async def history() -> None:
            await broker.start()
            await asyncio.Event().wait()

        with pytest.raises(StuckError, match="more than 100 virtual seconds") as caught:
            world.run(history())
        assert "history > Event.wait" in str(caught.value)
        assert "broker-0.1: Background._flush > sleep" in str(caught.value)


def test_a_bug_in_a_task_that_is_not_awaited_fails_the_history() -> None:
    async def fails() -> None:
        raise ValueError("planted")

    async def history() -> None:
        task = asyncio.create_task(fails())
        await asyncio.sleep(1)
        del task

    with World(11) as world, pytest.raises(AssertionError, match="planted"):
        world.run(history())
