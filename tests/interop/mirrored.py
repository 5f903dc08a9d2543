"""What tests of the mirror with real brokers share: the two ends, Java producers, the stored logs."""

import asyncio
import base64
import hashlib
import random
import re
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from interop import jvm
from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import FetchOptions, read_records, read_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import send
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.entry import entries
from magicbyte.tools.mirror.copier import Copied
from magicbyte.tools.mirror.identical import IdenticalMirror
from magicbyte.tools.mirror.mirror import Mirror
from magicbyte.tools.mirror.plan import Choice

KEPT = "log.retention.hours=200000"  # the times of the records are long ago
SETTINGS = (KEPT, "log.cleaner.backoff.ms=200", "log.segment.delete.delay.ms=0")
START = 1_700_000_000_000
KEYS = 17
KNOWS_TRANSACTIONS = 4  # the first version of Fetch
Seen = list[tuple[int, int, bytes | None, bytes | None]]  # offset, time, key, value


class Real:
    """A real broker as the source, another one as the target, and the use of clients of both.

    `source` and `target` are addresses, `data` the log directory of the source, `version` its version.
    """

    def __init__(self, source: str, target: str, data: Path, version: str) -> None:
        self.source, self.target, self.data, self.version = source, target, data, version

    def run(self, work: Callable[[Client, Client], Coroutine[Any, Any, Any]], *addresses: str) -> Any:
        async def inside() -> Any:
            here, there = (Client(each) for each in addresses or (self.source, self.target))
            async with here, there:
                return await work(here, there)

        return asyncio.run(asyncio.wait_for(inside(), 240))

    def mirror(self, choice: Choice, *addresses: str) -> dict[str, Copied]:
        async def work(here: Client, there: Client) -> dict[str, Copied]:
            mirror = (IdenticalMirror if choice.identical else Mirror)(here, there, choice)
            await mirror.catch_up()
            return mirror.copied()

        found: dict[str, Copied] = self.run(work, *addresses)
        return found

    def produce(self, topic: str, codec: str, lines: list[str]) -> None:
        """Let the Java producer send them to the source."""
        text = "".join(each + "\n" for each in lines).encode()
        jvm.run("Produce", self.source, f"{topic}={codec}", stdin=text, version=self.version)

    def make(self, topic: str, partitions: int = 1, **configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        self.run(lambda here, _: admin.create_topic(here, admin.NewTopic(topic, partitions, configs=named)))


def only(topic: str, **choice: Any) -> Choice:
    return Choice(re.compile(topic), **choice)


def line(topic: str, at: int) -> str:
    key, value = (base64.b64encode(each).decode() for each in (b"key-%d" % (at % KEYS), b"value %d " % at * 20))
    return "\t".join([topic, str(START + at), key, value])


def with_holes(real: Real, topic: str, codec: str) -> Callable[[], None]:
    """Send sets, of which a cleaner keeps every other record at most."""

    def fill() -> None:
        for _ in range(6):
            real.produce(topic, codec, [line(topic, at if at % 2 else 0) for at in range(2 * KEYS)])

    return fill


async def records(client: Client, topic: str, partition: int = 0) -> Seen:
    newest = (await client.connection(client.bootstrap[0])).versions.ranges[1][-1]
    ends = await bounds(client, topic, partition)
    found = read_records(client, topic, partition, *ends, FetchOptions(committed=newest >= KNOWS_TRANSACTIONS))
    return [(each.offset, each.timestamp, each.key, each.value) async for part in found for each in part]


def with_transactions(topic: str) -> list[str]:
    """Records, of which the second third is aborted."""
    lines = [line(topic, at) for at in range(90)]
    orders = {word: f"{topic}\t{word}" for word in ("begin", "commit", "abort")}
    parts = [lines[:30], lines[30:60], lines[60:]]
    ends = [orders["commit"], orders["abort"], orders["commit"]]
    return [each for part, end in zip(parts, ends, strict=True) for each in (orders["begin"], *part, end)]


def compacted(real: Real, topic: str, fill: Callable[[], None]) -> None:
    """Have the source's cleaner make holes in what `fill` sends to a topic, and wait until nothing is left for it.

    All records have keys. Behind them comes one so large that all else is in segments that are cleaned.
    """
    cleaned = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
    real.run(lambda here, _: admin.create_topic(here, admin.NewTopic(topic, configs=cleaned)))
    fill()
    large = Record(0, START, 0, b"large", random.Random(1).randbytes(19_000))
    real.run(lambda here, _: send(here, topic, 0, [large]))
    deadline = time.monotonic() + 240

    async def is_clean(here: Client, _: Client) -> bool:
        keys = [key for _, _, key, _ in await records(here, topic)]
        return len(keys) == len(set(keys))

    while not real.run(is_clean):
        assert time.monotonic() < deadline, "the source's cleaner does nothing"
        time.sleep(0.2)
    if not real.version.startswith("0."):  # there is nothing to be done before 0.11
        kept = {"cleanup.policy": "delete", "retention.ms": "-1"}
        real.run(lambda here, _: admin.alter_configs(here, admin.ConfigResource.TOPIC, topic, kept))


def log_bytes(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(folder.glob("*.log")))


def _settings(version: str) -> tuple[str, ...]:
    if version.startswith("0.8"):
        return (KEPT,)
    return (KEPT, "log.cleaner.enable=true", "log.cleaner.backoff.ms=200") if version.startswith("0.") else SETTINGS


@contextmanager
def running(source: str, target: str, folder: Path) -> Iterator[Real]:
    """Run a broker of each version inside the block."""
    with ExitStack() as brokers:
        states = [
            brokers.enter_context(jvm.broker(version, folder / version, *_settings(version), scratch=True))
            for version in (source, target)
        ]
        yield Real(states[0]["bootstrap"], states[1]["bootstrap"], folder / source / "data", source)


async def stored(client: Client, topic: str) -> list[tuple[int, str]]:
    """Magic and digest of what is behind the header of each set of data, as the broker stores it."""
    ends, found = await bounds(client, topic, 0), []
    async for sets in read_sets(client, topic, 0, *ends):
        for _, entry in entries(sets.data):
            if not entry.is_control:
                payload = entry.buffer[{0: 26, 1: 34, 2: 61}[entry.magic] :]
                found.append((entry.magic, hashlib.sha256(payload).hexdigest()))
    return found
