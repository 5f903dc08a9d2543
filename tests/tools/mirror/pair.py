"""Two of our clusters, a client of each, and a mirror between them that can be made to crash."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from builders import run
from cli.command import run as command
from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import read_records, read_sets
from magicbyte.access.client.offsets import LATEST, bounds, list_offset
from magicbyte.access.client.produce import ProduceOptions, send, send_made, send_together
from magicbyte.access.client.produce_frames import SetsRequest
from magicbyte.engine.codecs import Codec
from magicbyte.engine.protocol import Message
from magicbyte.engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from magicbyte.engine.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from magicbyte.engine.protocol.messages.end_txn import EndTxnRequest
from magicbyte.engine.protocol.messages.init_producer_id import InitProducerIdRequest
from magicbyte.engine.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.entry import entries
from magicbyte.testing import Broker
from magicbyte.tools.mirror import copier, outbox
from magicbyte.tools.mirror.copier import Copied
from magicbyte.tools.mirror.mirror import Mirror
from magicbyte.tools.mirror.plan import Choice
from tools.mirror.sets import some

ALL = Choice(re.compile(".*"))
Seen = list[tuple[int, int, bytes | None, bytes | None]]


class Pair:
    """Two clusters and a client of each."""

    def __init__(self, source: Broker, target: Broker) -> None:
        self.addresses = source.bootstrap_servers, target.bootstrap_servers

    def run(self, work: Callable[[Client, Client], Coroutine[Any, Any, Any]]) -> Any:
        async def inside() -> Any:
            here, there = (Client(each, retry_ms=20_000) for each in self.addresses)
            async with here, there:
                return await work(here, there)

        return run(inside())

    def fill(self, topic: str, codecs: list[Codec], form: Format = Format.V2, partitions: int = 1) -> None:
        """Make a topic at the source, and send ten sets of ten records to each partition."""

        async def work(here: Client, _: Client) -> None:
            configs = {"message.format.version": form.value}
            await admin.create_topic(here, admin.NewTopic(topic, partitions, configs=configs))
            for partition in range(partitions):
                for turn in range(10):
                    options = ProduceOptions(codec=codecs[turn % len(codecs)], format=form)
                    await send(here, topic, partition, some(10 * turn, 10), options)

        self.run(work)

    def mirror(self, choice: Choice = ALL) -> dict[str, Copied]:
        async def work(here: Client, there: Client) -> dict[str, Copied]:
            mirror = Mirror(here, there, choice)
            await mirror.catch_up()
            return mirror.copied()

        found: dict[str, Copied] = self.run(work)
        return found

    def command(self, *arguments: str) -> Any:
        ends = ["--from", self.addresses[0], "--to", self.addresses[1]]
        return command("mirror", *ends, "--topics", ".*", "--yes", *arguments)


async def records(client: Client, topic: str, partition: int = 0) -> Seen:
    ends = await bounds(client, topic, partition)
    found = read_records(client, topic, partition, *ends)
    return [(each.offset, each.timestamp, each.key, each.value) async for part in found for each in part]


async def payloads(client: Client, topic: str) -> list[str]:
    """Digests of what is behind the header of each set, as the broker stores it."""
    ends, found = await bounds(client, topic, 0), []
    async for sets in read_sets(client, topic, 0, *ends):
        for _, entry in entries(sets.data):
            found.append(hashlib.sha256(entry.buffer[{0: 26, 1: 34, 2: 61}[entry.magic] :]).hexdigest())
    return found


class CrashError(Exception):
    """The end of a process, at a place that the test chooses."""


def crash(pair: Pair, monkeypatch: pytest.MonkeyPatch, at: int, *, arrives: bool, choice: Choice = ALL) -> None:
    """Let a mirror crash at the request of this number, before or after the target has its sets; it is an error if
    there are fewer.
    """
    assert crashes(pair, monkeypatch, at, arrives=arrives, choice=choice)


def crashes(pair: Pair, monkeypatch: pytest.MonkeyPatch, at: int, *, arrives: bool, choice: Choice = ALL) -> bool:
    """Do what `crash` does, and say whether there was a request of this number."""
    return dies(lambda: pair.mirror(choice), monkeypatch, at, arrives=arrives)


def dies(mirror: Callable[[], object], monkeypatch: pytest.MonkeyPatch, at: int, *, arrives: bool) -> bool:
    """Let a call that mirrors crash as `crash` does, and say whether there was a request of this number."""
    sent = []

    def crashing(original: Callable[..., Any]) -> Callable[..., Any]:
        async def work(*arguments: Any, **named: Any) -> Any:
            sent.append(1)
            if len(sent) < at:
                return await original(*arguments, **named)
            if arrives:
                await original(*arguments, **named)
            raise CrashError

        return work

    with monkeypatch.context() as patch:
        patch.setattr(copier, "send_made", crashing(send_made))
        patch.setattr(outbox, "send_together", crashing(send_together))
        try:
            mirror()
        except CrashError:
            return True
    return False


CHANGES = (
    SetsRequest, InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest,
    EndTxnRequest,
)  # fmt: skip


async def stable_end(client: Client, topic: str, partition: int) -> int:
    """Return the end of a partition, once all of its markers are written."""
    while True:
        _, end = await bounds(client, topic, partition)
        if (await list_offset(client, topic, partition, LATEST, committed=True)).offset == end:
            return end
        await asyncio.sleep(0.01)


class Dying:
    """A client's requests that change something: at the `at`-th the process ends, before it is sent or after that."""

    def __init__(self, at: int, *, arrives: bool) -> None:
        self.at, self.arrives, self.asked = at, arrives, 0

    def patched(self, client: Client) -> None:
        ask = client.ask

        async def dying(node: Any, request: Message, response: Any, **named: Any) -> Any:
            self.asked += isinstance(request, CHANGES)
            if self.asked == self.at and self.arrives:
                await ask(node, request, response, **named)
            if self.asked >= self.at:
                raise CrashError  # and everything that the mirror would do about it, too
            return await ask(node, request, response, **named)

        client.ask = dying  # type: ignore[method-assign]  # of this one client


MARKED = {"mirror.identical": "true"}


def give(pair: Pair, sets: list[bytes], topic: str = "topic", **target: str) -> None:
    """Let the source have these sets, with their offsets, and the target an empty topic."""

    async def work(here: Client, there: Client) -> None:
        await admin.create_topic(here, admin.NewTopic(topic, configs=MARKED))
        for each in sets:
            await send_made(here, topic, 0, memoryview(each), 2, Codec.NONE)
        configs = {name.replace("_", "."): value for name, value in target.items()}
        await admin.create_topic(there, admin.NewTopic(topic, configs=configs))

    pair.run(work)
