"""A topic of a running cluster as logs that can be read like those of a folder, from code that is not asynchronous."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from magicbyte.client.client import Client
from magicbyte.client.fetch import FetchOptions, read_sets
from magicbyte.client.offsets import bounds
from magicbyte.records.layout import Dialect
from magicbyte.records.scan import BatchTable

SCHEME: Final = "kafka://"


@dataclass(slots=True)
class FetchedPartition:
    """A partition from its start, `first`, to the high watermark of the moment when it was looked up, `end`.

    `path` is the address it was opened by, with the partition's number.
    """

    path: str
    topic: str
    partition: int
    first: int
    end: int
    options: FetchOptions
    _client: Client
    _runner: asyncio.Runner

    def tables(self) -> Iterator[BatchTable]:
        """Yield closed sets, as the brokers store them. Raises what `read_sets` does."""
        sets = read_sets(self._client, self.topic, self.partition, self.first, self.end, self.options)
        while (found := self._runner.run(anext(sets, None))) is not None:
            if len(found.table):
                yield found.table


@contextlib.contextmanager
def open_topic(address: str, dialect: Dialect | None = None) -> Iterator[list[FetchedPartition]]:
    """Connect to `kafka://HOST:PORT[,HOST:PORT…]/TOPIC`, and give the topic's partitions while inside the block.

    Nothing is written, and no topic made. `dialect`: of what the brokers send, if it is not Kafka's. Raises ValueError
    for another address, UnknownTopicError, BrokerError and NetworkError.
    """
    bootstrap, _, topic = address.removeprefix(SCHEME).partition("/")
    if not address.startswith(SCHEME) or not bootstrap or not topic:
        raise ValueError(f"{address!r}: expected {SCHEME}HOST:PORT/TOPIC")
    options = FetchOptions(dialect=dialect or Dialect.KAFKA)
    with asyncio.Runner() as runner:
        client = Client(bootstrap)
        try:
            yield [
                FetchedPartition(f"{address}-{number}", topic, number, *ends, options, client, runner)
                for number, ends in runner.run(_partitions(client, topic)).items()
            ]
        finally:
            runner.run(client.aclose())


async def _partitions(client: Client, topic: str) -> dict[int, tuple[int, int]]:
    """Return start and end of each partition."""
    found = await client.existing_topic(topic)
    return {number: await bounds(client, topic, number) for number in sorted(found.partitions)}
