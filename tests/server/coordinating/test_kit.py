"""The kit with a coordinator of counters: it is loaded, moved, fenced, timed, and lets others run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from builders import run
from magicbyte.engine.coordination import parts
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.message import Message
from magicbyte.server.broker.broker import Broker
from magicbyte.server.coordinating import coordinating as module
from magicbyte.server.coordinating.coordinating import Coordinating
from magicbyte.server.coordinating.coordinator_services import CoordinatorServices
from magicbyte.server.serving import turns
from magicbyte.server.serving.request import ClientConnection, Request
from server.broker.serving import Clock, Running
from server.coordinating.counters import IDLE_MS, KIND, TOPIC, Add, Counted, Counters, Read

Patch = pytest.MonkeyPatch


def coordinating(broker: Broker) -> Coordinating[Counters]:
    """Return a coordinator of counters of a broker."""
    services = CoordinatorServices(
        broker.runtime,
        broker.topics,
        broker.logs,
        broker.replicas,
        broker.appends,
        broker.topics.led_at_once,
    )
    return Coordinating(services, KIND, Counters())


@asynccontextmanager
async def serving(folder: Path, clock: Clock | None = None) -> AsyncIterator[tuple[Broker, Coordinating[Counters]]]:
    async with Running(folder, clock=clock) as broker:
        counters = coordinating(broker)
        await counters.ensure_topic()
        yield broker, counters
        counters.close()


async def ask(broker: Broker, counters: Coordinating[Counters], message: Message) -> Counted:
    connection = ClientConnection("127.0.0.1", "peer", broker.config.listeners[0])
    answer = await counters.ask(Request(message, 0, "client", connection))
    assert isinstance(answer, Counted)
    return answer


async def loaded(broker: Broker, counters: Coordinating[Counters], key: str) -> Counted:
    """Return the value of a counter as soon as its partition is loaded."""
    while (answer := await ask(broker, counters, Read([key]))).error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(0.001)
    return answer


async def test_counters_are_stored_before_they_are_answered_and_loaded_by_the_next_broker(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, counters):
        assert (await ask(broker, counters, Add("a", 3))).values == [3]
        assert [(await ask(broker, counters, Add(key, 4))).values for key in "ab"] == [[7], [4]]
    async with serving(tmp_path) as (broker, counters):
        assert (await loaded(broker, counters, "a")).values == [7]
        assert (await loaded(broker, counters, "b")).values == [4]
        assert (await ask(broker, counters, Add("a", 1))).values == [8]


async def test_a_partition_moves_away_and_back(tmp_path: Path, monkeypatch: Patch) -> None:
    go_on = threading.Event()
    read = module.read_log
    monkeypatch.setattr(module, "read_log", lambda replay, log: (go_on.wait(60), read(replay, log))[1])

    async with serving(tmp_path) as (broker, counters):
        await ask(broker, counters, Add("a", 3))
        partition = counters.coordinator.partition_of("a")
        counters.resigned(partition, 1)
        assert (await ask(broker, counters, Read(["a"]))).error_code is ErrorCode.NOT_COORDINATOR
        assert counters.coordinator.values == {}
        counters.elected(partition, 0)  # of an epoch before
        assert (await ask(broker, counters, Add("a", 1))).error_code is ErrorCode.NOT_COORDINATOR
        counters.elected(partition, 2)
        assert (await ask(broker, counters, Add("a", 1))).error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        go_on.set()
        assert (await loaded(broker, counters, "a")).values == [3]
        assert counters.coordinator.terms[partition].leader_epoch == 2
        counters.elected(partition, 3)  # the term continues
        assert (await ask(broker, counters, Read(["a"]))).values == [3]


async def test_a_change_that_was_decided_before_a_move_is_not_stored_after_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, counters):
        await ask(broker, counters, Add("a", 3))
        partition = counters.coordinator.partition_of("a")
        log = broker.logs.logs[TopicPartition(TOPIC, partition)]
        end = log.log_end_offset
        asked = asyncio.ensure_future(ask(broker, counters, Add("a", 1)))
        await asyncio.sleep(0)
        assert counters.coordinator.latest["a"] == 4
        counters.resigned(partition, 1)
        counters.elected(partition, 2)
        assert (await asked).error_code is ErrorCode.NOT_COORDINATOR
        assert (await loaded(broker, counters, "a")).values == [3]
        assert log.log_end_offset == end


async def test_others_have_a_turn_during_a_long_request_and_may_end_its_term(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(parts, "PART", 10)
    monkeypatch.setattr(turns, "STEPS_AT_ONCE", 10)

    async with serving(tmp_path) as (broker, counters):
        await ask(broker, counters, Add("a", 3))
        asked = asyncio.ensure_future(ask(broker, counters, Read(["a"] * 1000)))
        await asyncio.sleep(0)
        assert (await ask(broker, counters, Read(["a"]))).values == [3]
        assert not asked.done()
        assert (await asked).values == [3] * 1000
        asked = asyncio.ensure_future(ask(broker, counters, Read(["a"] * 1000)))
        await asyncio.sleep(0)
        counters.resigned(counters.coordinator.partition_of("a"), 1)
        assert (await asked).error_code is ErrorCode.NOT_COORDINATOR


async def test_a_counter_that_is_idle_goes_with_its_deadline(tmp_path: Path) -> None:
    clock = Clock()
    async with serving(tmp_path, clock) as (broker, counters):
        await ask(broker, counters, Add("a", 3))
        clock.advance(IDLE_MS - 1)
        counters.clock_turned()
        assert (await ask(broker, counters, Add("b", 1))).values == [1]
        clock.advance(1)
        counters.clock_turned()
        while "a" in counters.coordinator.values:
            await asyncio.sleep(0.001)
        assert counters.coordinator.values == {"b": 1}
    async with serving(tmp_path, clock) as (broker, counters):
        assert (await loaded(broker, counters, "a")).values == [0]


def test_a_damaged_log_is_not_served_as_if_it_was_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with serving(tmp_path) as (broker, counters):
            await ask(broker, counters, Add("a", 3))
            partition = counters.coordinator.partition_of("a")
            (path,) = tmp_path.glob(f"{TOPIC}-{partition}/*.log")
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
            counters.resigned(partition, 1)
            counters.elected(partition, 2)
            assert (await loaded(broker, counters, "a")).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(work())
    assert "cannot be read, its counters are not served" in caplog.text


async def test_requests_of_the_broker_itself_and_those_after_its_end_are_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, counters):
        answer = await counters.call(Add("a", 3), 0)
        assert isinstance(answer, Counted)
        assert answer.values == [3]
        counters.close()
        assert (await ask(broker, counters, Read(["a"]))).error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        counters.topic_deleted(TOPIC)
        assert (counters.coordinator.values, dict(counters.coordinator.terms)) == ({}, {})
