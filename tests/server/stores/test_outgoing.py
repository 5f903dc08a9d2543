"""Items for other brokers: one request at a time to each, all delivered or reported as lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from magicbyte.server.stores import outgoing
from magicbyte.server.stores.outgoing import ItemsInOrder, Outgoing


class Spawning:
    """The tasks of a runtime."""

    def __init__(self) -> None:
        self.tasks = set[asyncio.Task[None]]()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


class Link:
    name = "broker 1"

    def __init__(self) -> None:
        self.is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True


class Sender:
    """Deliver after `go_on`; `bugs`: items whose request fails."""

    def __init__(self, *bugs: str) -> None:
        self.runtime, self.bugs, self.links = Spawning(), bugs, list[Link]()
        self.delivered, self.lost = list[list[str]](), list[tuple[list[str], bool]]()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.outgoing = Outgoing[ItemsInOrder[str], str](
            self.runtime,  # type: ignore[arg-type]
            ItemsInOrder,
            self.link_to,  # type: ignore[arg-type]
            self.deliver,
            lambda items, error: self.lost.append((items, error is not None)),
            most=2,
        )

    def link_to(self, _broker_id: int) -> Link:
        self.links.append(Link())
        return self.links[-1]

    async def deliver(self, _broker_id: int, _link: object, items: list[str]) -> None:
        await self.go_on.wait()
        if items[0] in self.bugs:
            raise AssertionError(items)
        self.delivered.append(items)

    def put(self, *items: str, to: int = 1) -> None:
        for each in items:
            self.outgoing.to(to).put(each)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_items_go_in_order_and_so_many_in_a_request() -> None:
    sender = Sender()
    sender.put("a", "b", "c")
    await turns()
    assert sender.delivered == [["a", "b"], ["c"]]


async def test_items_that_come_while_a_request_waits_is_in_the_next_one() -> None:
    sender = Sender()
    sender.go_on.clear()
    sender.put("a")
    await turns()
    sender.put("b", "c")
    sender.put("d", to=2)
    await turns()
    assert sender.delivered == []
    sender.go_on.set()
    await turns()
    assert sorted(sender.delivered) == [["a"], ["b", "c"], ["d"]]
    assert len(sender.links) == 2


async def test_a_bug_costs_the_items_of_its_request(caplog: pytest.LogCaptureFixture) -> None:
    sender = Sender("b")
    sender.put("a", "a", "b", "c", "d")
    await turns()
    assert sender.delivered == [["a", "a"], ["d"]]
    assert sender.lost == [(["b", "c"], True)]
    assert "was not sent because of a bug" in caplog.text


async def test_an_idle_queue_ends_with_its_connection_and_the_next_item_begins_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outgoing, "IDLE_S", 0)
    sender = Sender()
    sender.put("a")
    await asyncio.wait(sender.runtime.tasks)
    assert [each.is_closed for each in sender.links] == [True]
    sender.put("b")
    await asyncio.wait(sender.runtime.tasks)
    assert sender.delivered == [["a"], ["b"]]
    assert len(sender.links) == 2


async def test_items_that_are_not_delivered_when_the_broker_stops_are_reported_as_lost() -> None:
    sender = Sender()
    sender.put("a")
    await turns()
    sender.go_on.clear()
    sender.put("b", "c", "d")
    await turns()
    (task,) = sender.runtime.tasks
    task.cancel()
    await asyncio.wait([task])
    assert sender.delivered == [["a"]]
    assert sender.lost == [(["b", "c", "d"], False)]
    assert sender.links[0].is_closed
