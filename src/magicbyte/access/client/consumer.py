"""Consume the records of a topic, one by one, from all of its partitions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final, Literal

from magicbyte.access.client.fetch import FetchOptions, read_records
from magicbyte.access.client.offsets import bounds
from magicbyte.engine.errors import UnknownTopicError
from magicbyte.engine.records.columns import Record, RecordColumns

if TYPE_CHECKING:
    from magicbyte.access.client.client import Client

Start = int | Literal["earliest", "latest"]

_WAIT_MS: Final = 500  # how long fetches wait for records, divided among the partitions
_LEAST_WAIT_MS: Final = 20
_LEAST_BYTES: Final = 256 << 10  # of a fetch: `max_bytes` is divided among the partitions, whose data is all in memory
_WAITING: Final = 16  # fetched chunks that wait for the consumer


async def consume(
    client: Client, topic: str, partition: int | None, start: Start, options: FetchOptions, *, to_end: bool
) -> AsyncGenerator[Record]:
    """Yield records, in the order of offsets within each partition. See `Client.consume`."""
    there = sorted((await client.existing_topic(topic)).partitions)
    if partition is not None and partition not in there:
        raise UnknownTopicError(f"partition {partition} of {topic!r}: expected one of 0 to {len(there) - 1}")
    chosen = there if partition is None else [partition]
    chunks: asyncio.Queue[tuple[int, RecordColumns] | Exception | None] = asyncio.Queue(_WAITING)
    # A broker answers the requests of a connection in order, so a long wait would delay the other partitions.
    waiting = FetchOptions(
        max_bytes=max(options.max_bytes // len(chosen), _LEAST_BYTES),
        committed=options.committed,
        max_wait_ms=max(_WAIT_MS // len(chosen), _LEAST_WAIT_MS),
        ahead=to_end,
    )

    async def read(index: int) -> None:
        try:
            first, end = await bounds(client, topic, index)
            begin = start if isinstance(start, int) else first if start == "earliest" else end
            found = read_records(client, topic, index, begin, end if to_end else None, waiting)
            async with contextlib.aclosing(found) as all_columns:
                async for columns in all_columns:
                    await chunks.put((index, columns))
            await chunks.put(None)
        except Exception as error:  # noqa: BLE001 (raised to the iterating caller)
            await chunks.put(error)

    tasks = [asyncio.create_task(read(each)) for each in chosen]
    try:
        running = len(tasks)
        while running:
            chunk = await chunks.get()
            if isinstance(chunk, Exception):
                raise chunk
            if chunk is None:
                running -= 1
                continue
            index, columns = chunk
            for record in columns:
                yield record._replace(topic=topic, partition=index)
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
