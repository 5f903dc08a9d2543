"""Our mirror between real brokers: closed sets of one era's clients, stored by another's, byte for byte."""

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from interop import jvm
from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import FetchOptions, read_records, read_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.engine.records.entry import entries
from magicbyte.tools.mirror.copier import Copied
from magicbyte.tools.mirror.mirror import Mirror
from magicbyte.tools.mirror.plan import Choice
from tools.mirror.pair import dies

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

FIRST, SECOND, THIRD = ("0.9.0.1", "0.10.2.2"), ("0.10.2.2", "2.8.2"), ("2.8.2", "4.3.1")
CODECS = ["none", "gzip", "snappy", "lz4"]
START = 1_700_000_000_000
Seen = list[tuple[int, bytes | None, bytes | None]]  # time, key, value


class Pair:
    """Two running brokers, and what to do with a client of each."""

    def __init__(self, source: str, target: str, states: list[dict[str, Any]]) -> None:
        self.source, self.target = source, target
        self.addresses: list[str] = [each["bootstrap"] for each in states]

    def run(self, work: Callable[[Client, Client], Coroutine[Any, Any, Any]]) -> Any:
        async def inside() -> Any:
            here, there = (Client(each) for each in self.addresses)
            async with here, there:
                return await work(here, there)

        return asyncio.run(asyncio.wait_for(inside(), 240))

    def mirror(self, topics: str) -> Copied:
        async def work(here: Client, there: Client) -> Copied:
            mirror = Mirror(here, there, Choice(re.compile(topics)))
            await mirror.catch_up()
            (found,) = mirror.copied().values()
            return found

        found: Copied = self.run(work)
        return found

    def produce(self, topic: str, codec: str, lines: list[str]) -> None:
        """Let the Java producer of the source's version send them."""
        text = "".join(line + "\n" for line in lines).encode()
        jvm.run("Produce", self.addresses[0], f"{topic}={codec}", stdin=text, version=self.source)


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    source, target = request.param
    folder: Path = tmp_path_factory.mktemp(f"mirror-{source}-{target}")
    with ExitStack() as running:
        states = [
            running.enter_context(jvm.broker(version, folder / version, "log.retention.ms=-1", scratch=True))
            for version in (source, target)
        ]
        yield Pair(source, target, states)


def line(topic: str, at: int) -> str:
    key, value = (base64.b64encode(each).decode() for each in (b"key-%d" % at, b"value %d " % at * 20))
    return "\t".join([topic, str(START + at), key if at % 3 else "~", value])


async def records(client: Client, topic: str) -> Seen:
    options = FetchOptions(committed=(await client.connection(client.bootstrap[0])).versions.ranges[1][-1] >= 4)
    ends = await bounds(client, topic, 0)
    found = read_records(client, topic, 0, *ends, options)
    return [(each.timestamp, each.key, each.value) async for part in found for each in part]


async def payloads(client: Client, topic: str) -> list[tuple[int, str]]:
    """Magic and digest of what is behind the header of each set of data, as the broker stores it."""
    ends, found = await bounds(client, topic, 0), []
    async for sets in read_sets(client, topic, 0, *ends):
        for _, entry in entries(sets.data):
            if not entry.is_control:
                found.append((entry.magic, hashlib.sha256(entry.buffer[34 if entry.magic == 1 else 61 :]).hexdigest()))
    return found


def between(*pairs: tuple[str, str]) -> pytest.MarkDecorator:
    """Run with these pairs; CI leaves the one to `test_mirror_sources.py` that both have."""
    cells = [pytest.param(pair, marks=pytest.mark.campaign) if pair == SECOND else pair for pair in pairs]
    return pytest.mark.parametrize("pair", cells, ids=["-".join(each) for each in pairs], indirect=True, scope="module")


@between(SECOND, THIRD)
@pytest.mark.parametrize("codec", CODECS)
def test_sets_of_the_same_format_are_stored_as_they_were(pair: Pair, codec: str) -> None:
    topic = f"topic-{codec}"
    old = pair.source.startswith("0.10")

    async def make(here: Client, there: Client) -> None:
        await admin.create_topic(here, admin.NewTopic(topic))
        if old:  # brokers before 0.11 do not tell the settings of topics
            configs = {"message.format.version": "0.10.2"}
            await admin.create_topic(there, admin.NewTopic(topic, configs=configs))

    pair.run(make)
    for turn in range(3):
        pair.produce(topic, codec, [line(topic, 50 * turn + at) for at in range(50)])
    copied = pair.mirror(topic)
    assert (copied.opened_sets, copied.lag) == (0, 0)
    assert copied.closed_sets > 0

    async def same(here: Client, there: Client) -> None:
        found = await records(there, topic)
        assert len(found) == 150
        assert found == await records(here, topic)
        stored = await payloads(there, topic)
        assert stored == await payloads(here, topic)
        assert {magic for magic, _ in stored} == {1 if old else 2}

    pair.run(same)
    assert pair.mirror(topic).closed_sets == 0


@between(FIRST, SECOND, THIRD)
def test_what_the_target_stores_in_another_format_or_was_aborted(pair: Pair) -> None:
    """Old sets are converted; of transactions the committed ones arrive, closed, and without markers."""
    old, topic = pair.source.startswith("0."), "other"
    if pair.source != "0.9.0.1":  # which makes topics when they are asked for
        pair.run(lambda here, _: admin.create_topic(here, admin.NewTopic(topic)))
    lines = [line(topic, at) for at in range(30)]
    orders = [[f"{topic}\t{word}"] for word in ("begin", "commit", "begin", "abort", "begin", "commit")]
    steps = [
        *orders[0],
        *lines[:10],
        *orders[1],
        *orders[2],
        *lines[10:20],
        *orders[3],
        *orders[4],
        *lines[20:],
        *orders[5],
    ]
    pair.produce(topic, "gzip", lines if old else steps)
    copied = pair.mirror(topic)
    assert (copied.closed_sets == 0) == old
    assert (copied.opened_sets == 0) == (not old)

    async def same(here: Client, there: Client) -> None:
        found = await records(there, topic)
        sent = [*range(10), *(range(10, 20) if old else ()), *range(20, 30)]
        assert [value for _, _, value in found] == [b"value %d " % at * 20 for at in sent]
        assert found == await records(here, topic)
        assert await bounds(there, topic, 0) == (0, len(found))

    pair.run(same)


@between(THIRD)
def test_after_a_crash_everything_is_there_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = "crashed"
    pair.run(lambda here, _: admin.create_topic(here, admin.NewTopic(topic)))
    for turn in range(3):
        pair.produce(topic, "gzip", [line(topic, 50 * turn + at) for at in range(50)])
    assert dies(lambda: pair.mirror(topic), monkeypatch, 2, arrives=True)
    pair.mirror(topic)

    async def same(here: Client, there: Client) -> None:
        found = await records(there, topic)
        assert len(found) == 150
        assert found == await records(here, topic)

    pair.run(same)
