"""What waits for a broker that does not answer its controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from builders import run
from magicbyte.engine.errors import NetworkError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol import Message
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magicbyte.engine.replication.controller import LeaderAndIsr, StopReplicas, UpdateMetadata
from magicbyte.engine.replication.state import PartitionOrder, PartitionState
from magicbyte.server.stores.controller_channel import BrokerChannel, Control

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def order(key: TopicPartition, epoch: int, *, is_new: bool = False) -> PartitionOrder:
    return PartitionOrder(key, PartitionState(1, epoch, (1,), 1), epoch, (1,), is_new)


class Hanging:
    """A broker that answers nothing until `goes_on` is set; `got` is what it was sent."""

    is_stale = is_closed = False

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.got: list[Control] = []

    async def open(self) -> Hanging:
        return self

    def make(self, control: Control) -> Message:
        self.got.append(control)
        return HeartbeatRequest()

    async def send(self, _request: Message, *, timeout_ms: int) -> Message:
        assert timeout_ms == 1000
        await self.goes_on.wait()
        return HeartbeatResponse()

    def abort(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


def sent(*controls: Control) -> tuple[list[Control], int]:
    """Send these after one that hangs; return their outcomes, and the number of answers."""
    answers: list[Message] = []

    async def work() -> list[Control]:
        broker, loop = Hanging(), asyncio.get_running_loop()
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = loop.create_task
        channel = BrokerChannel(1, broker.open, broker.make, spawn, lambda: None, timeout_ms=1000)
        channel.send(UpdateMetadata(1, ()), answers.append)
        await asyncio.sleep(0)
        assert len(broker.got) == 1
        for each in controls:
            channel.send(each, answers.append)
        broker.goes_on.set()
        while len(answers) < len(broker.got) or channel._waiting:
            await asyncio.sleep(0)
        await channel.close()
        return broker.got[1:]

    return run(work()), len(answers) - 1


def test_a_later_word_on_a_partition_replaces_one_that_waits() -> None:
    found, answers = sent(
        LeaderAndIsr(1, (order(A, 1, is_new=True), order(B, 1))),
        UpdateMetadata(1, (order(A, 1),)),
        *(LeaderAndIsr(1, (order(A, epoch),)) for epoch in range(2, 100)),
        *(UpdateMetadata(1, (order(B, epoch),)) for epoch in range(2, 100)),
    )
    assert found == [
        LeaderAndIsr(1, (order(A, 99, is_new=True), order(B, 1))),
        UpdateMetadata(1, (order(A, 1), order(B, 99))),
    ]
    assert answers == 2


def test_nothing_is_taken_across_a_request_that_stops_replicas() -> None:
    controls = (
        LeaderAndIsr(1, (order(A, 1),)),
        StopReplicas(1, (A,), True),
        LeaderAndIsr(1, (order(A, 2, is_new=True),)),
        StopReplicas(1, (A,), True),
    )
    found, answers = sent(*controls)
    assert tuple(found) == controls
    assert answers == 4


def test_a_connection_is_reset_before_its_request_is_repeated_on_another() -> None:
    """Otherwise the system may deliver the request behind later ones."""
    events: list[str] = []

    class Lost(Hanging):
        async def open(self) -> Lost:
            events.append("open")
            return self

        async def send(self, request: Message, *, timeout_ms: int) -> Message:
            events.append("send")
            if events.count("send") == 1:
                raise NetworkError("no response")
            return await super().send(request, timeout_ms=timeout_ms)

        def abort(self) -> None:
            events.append("abort")

    async def work() -> None:
        broker, loop, answered = Lost(), asyncio.get_running_loop(), asyncio.Event()
        broker.goes_on.set()
        channel = BrokerChannel(1, broker.open, broker.make, loop.create_task, lambda: None, timeout_ms=1000)
        channel.send(UpdateMetadata(1, ()), lambda _: answered.set())
        async with asyncio.timeout(120):
            await answered.wait()
        await channel.close()

    run(work())
    assert events == ["open", "send", "abort", "open", "send", "abort"]


def test_a_connection_that_was_closed_while_it_was_idle_is_replaced_without_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Brokers close connections after connections.max.idle.ms, ten minutes by default."""
    opened: list[Hanging] = []

    class Idle(Hanging):
        async def open(self) -> Hanging:
            opened.append(Idle())
            opened[-1].goes_on.set()
            return opened[-1]

        async def send(self, request: Message, *, timeout_ms: int) -> Message:
            if self.is_closed:
                raise NetworkError("the broker closed the connection")
            return await super().send(request, timeout_ms=timeout_ms)

    async def work() -> None:
        broker, loop, answered = Idle(), asyncio.get_running_loop(), asyncio.Event()
        channel = BrokerChannel(1, broker.open, broker.make, loop.create_task, lambda: None, timeout_ms=1000)
        for _ in range(2):
            answered.clear()
            channel.send(UpdateMetadata(1, ()), lambda _: answered.set())
            async with asyncio.timeout(120):
                await answered.wait()
            opened[-1].is_closed = True
        await channel.close()

    run(work())
    assert len(opened) == 2
    assert caplog.records == []


def test_a_bug_costs_one_request_and_the_broker_gets_its_orders_again(caplog: pytest.LogCaptureFixture) -> None:
    wrong = LeaderAndIsr(1, (order(A, 1),))
    later = [StopReplicas(1, (A,), True), UpdateMetadata(1, (order(B, 1),))]

    class Mistaken(Hanging):
        def make(self, control: Control) -> Message:
            assert control is not wrong, "a fault"
            return super().make(control)

    async def work() -> tuple[list[Control], int]:
        broker, loop, lost = Mistaken(), asyncio.get_running_loop(), asyncio.Event()
        answers: list[Message] = []
        broker.goes_on.set()
        channel = BrokerChannel(1, broker.open, broker.make, loop.create_task, lost.set, timeout_ms=1000)
        for each in (wrong, *later):
            channel.send(each, answers.append)
        async with asyncio.timeout(120):
            await lost.wait()
            while len(answers) < len(later):
                await asyncio.sleep(0.01)
        await channel.close()
        return broker.got, len(answers)

    assert run(work()) == (later, 2)
    assert "a request to broker 1 ended because of a bug" in caplog.text
