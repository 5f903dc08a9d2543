"""A log directory changes hands in the middle of transactions: from a real broker to ours, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from interop import jvm
from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.net.stream import SocketStream
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.testing import Broker
from server.broker.serving import Peer
from server.broker.transacting import Pair, add, add_offsets, begun, commit_offset, committed, ended, found, read, send

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
PLACE = ("t", 0)
TIMEOUT_MS = 600_000


def at(address: str, work: Callable[[Peer], Awaitable[None]]) -> None:
    """Ask a broker for something, as soon as it coordinates groups and transactions."""

    async def inside() -> None:
        host, _, port = address.rpartition(":")
        async with Client(address) as client:
            while error := (await client.topics(["t"]))["t"].error:
                if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    with suppress(BrokerError):  # it exists, and a broker that has just started does not know it yet
                        await create_topic(client, NewTopic("t"))
                await asyncio.sleep(0.1)
        peer = Peer(await SocketStream.connect(host, int(port)))
        for kind, key in enumerate(("g", "open")):
            while await found(peer, key, kind):
                await asyncio.sleep(0.1)
        await work(peer)
        peer.close()

    asyncio.run(asyncio.wait_for(inside(), 240))


async def opened(peer: Peer, key: str, offset: int) -> Pair:
    """Leave a transaction open, with a record and a committed offset."""
    pair = await begun(peer, key, timeout_ms=TIMEOUT_MS)
    while (codes := await add(peer, pair, PLACE, key=key)) != [0]:
        assert codes in ([51], [3])
        await asyncio.sleep(0.1)
    assert (await send(peer, pair, PLACE, 0, key.encode(), key=key))[0] == 0
    while (code := await add_offsets(peer, pair, "g", key=key)) != 0:
        assert code == 51
    while (code := await commit_offset(peer, pair, "g", PLACE, offset, key=key)) != 0:
        assert code == 14
        await asyncio.sleep(0.1)
    return pair


@pytest.mark.parametrize("version", ["2.8.2"])
def test_each_broker_ends_the_transactions_that_the_other_has_begun(version: str, tmp_path: Path) -> None:
    pairs = dict[str, Pair]()

    async def begins(peer: Peer) -> None:
        done = await begun(peer, "done")
        while (codes := await add(peer, done, PLACE, key="done")) != [0]:
            assert codes in ([51], [3])
            await asyncio.sleep(0.1)
        assert (await send(peer, done, PLACE, 0, b"done", key="done"))[0] == 0
        await ended(peer, done, key="done")
        pairs["open"] = await opened(peer, "open", 5)
        pairs["dropped"] = await opened(peer, "dropped", 6)

    async def continues_here(peer: Peer) -> None:
        await ended(peer, pairs["open"], commit=True, key="open")
        await ended(peer, pairs["dropped"], commit=False, key="dropped")
        while (told := await committed(peer, stable=True)) != (5, 0):
            assert told[1] in (14, 88)
            await asyncio.sleep(0.05)
        assert (await read(peer, PLACE)).values == [b"done", b"open", b"dropped"]
        assert [each for each, _ in (await read(peer, PLACE)).aborted] == [pairs["dropped"].producer_id]
        pairs["ours"] = await opened(peer, "ours", 7)
        assert await committed(peer, stable=True) == (-1, 88)

    async def continues_there(peer: Peer) -> None:
        assert (await committed(peer))[0] in (5, -1)
        await ended(peer, pairs["ours"], commit=True, key="ours")
        while (told := await committed(peer, stable=True)) != (7, 0):
            assert told[1] in (14, 88)
            await asyncio.sleep(0.05)
        assert (await begun(peer, "open")) == Pair(pairs["open"].producer_id, 1)
        assert (await read(peer, PLACE)).values == [b"done", b"open", b"dropped", b"ours"]

    given = [f"{name}={value}" for name, value in SETTINGS.items()]
    with jvm.broker(version, tmp_path, *given) as state:
        data = Path(state["data"])
        at(state["bootstrap"], begins)
    with Broker(SETTINGS, directory=data) as broker:
        at(broker.bootstrap_servers, continues_here)
    with jvm.broker(version, tmp_path, *given) as state:
        at(state["bootstrap"], continues_there)
