"""Topics of many partitions: how many requests they take, and that none is left out."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magicbyte.access.client import Client, admin
from magicbyte.access.client.connection import Connection
from magicbyte.access.client.offsets import ends
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.testing import Broker
from magicbyte.tools.mirror import rounds
from magicbyte.tools.mirror.mirror import Mirror
from tools.mirror.pair import ALL, Pair, records
from tools.mirror.sets import some


@asynccontextmanager
async def asked(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Counter[str]]:
    """Count the requests inside the block, by their names."""
    found: Counter[str] = Counter()
    original = Connection.send

    async def send_counted(connection: Connection, request: Any, *arguments: Any, **named: Any) -> Any:
        found[type(request).__name__.removesuffix("Request")] += 1
        return await original(connection, request, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "send", send_counted)
        yield found


async def fill(client: Client, partitions: range) -> None:
    options = ProduceOptions(codec=Codec.GZIP)
    for some_of_them in batched(partitions, 50):
        await asyncio.gather(*(send(client, "topic", each, some(0, 5), options) for each in some_of_them))


def batched(numbers: range, count: int) -> list[range]:
    return [numbers[at : at + count] for at in range(0, len(numbers), count)]


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.campaign])])
def test_of_many_partitions_those_without_news_cost_one_request_in_all(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(rounds, "PLAN_SECONDS", 1000.0)

    async def work(here: Client, there: Client) -> None:
        await admin.create_topic(here, admin.NewTopic("topic", count))
        await fill(here, range(count))
        mirror = Mirror(here, there, ALL)
        await mirror.catch_up()
        assert (mirror.copied()["topic"].records, mirror.copied()["topic"].lag) == (5 * count, 0)
        async with asked(monkeypatch) as requests:
            await mirror.catch_up()
        assert requests == {"ListOffsets": 1}
        await fill(here, range(0, count, 10))
        async with asked(monkeypatch) as requests:
            await mirror.catch_up()
        assert requests["Fetch"] <= count // 10
        assert requests["ListOffsets"] <= 1 + count // 10
        assert mirror.copied()["topic"].records == 5 * count + count // 2
        for partition in range(0, count, count // 20):
            assert await records(there, "topic", partition) == await records(here, "topic", partition)
        found = await ends(there, [("topic", each) for each in range(count)])
        assert found == {("topic", each): 5 if each % 10 else 10 for each in range(count)}

    async def inside(addresses: list[str]) -> None:
        here, there = (Client(each) for each in addresses)
        async with here, there:
            await work(here, there)

    with Broker() as source, Broker() as target:
        asyncio.run(inside([each.bootstrap_servers for each in (source, target)]))


def test_end_offsets_of_unknown_partitions_are_left_out(pair: Pair) -> None:
    pair.fill("topic", [Codec.GZIP], partitions=2)

    async def work(here: Client, _: Client) -> None:
        asked_for = [("topic", 0), ("topic", 1), ("topic", 7), ("other", 0)]
        assert await ends(here, asked_for) == {("topic", 0): 100, ("topic", 1): 100}
        assert await ends(here, asked_for, committed=True) == {("topic", 0): 100, ("topic", 1): 100}
        assert await ends(here, []) == {}

    pair.run(work)


def test_a_source_that_does_not_answer_for_a_moment_is_asked_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions whose end offset is unknown are copied as before."""
    pair.fill("topic", [Codec.GZIP], partitions=2)

    async def work(here: Client, there: Client) -> None:
        mirror = Mirror(here, there, ALL)
        await mirror.catch_up()

        async def none(*_: Any, **__: Any) -> dict[tuple[str, int], int]:
            return {}

        await send(here, "topic", 1, some(0, 5))
        with monkeypatch.context() as patch:
            patch.setattr(rounds, "ends", none)
            await mirror.catch_up()
        assert mirror.copied()["topic"].records == 205
        await send(here, "topic", 0, some(0, 5))
        await mirror.catch_up()
        assert mirror.copied()["topic"].records == 210

    pair.run(work)
