"""The public client of a cluster: that of `access/client`, with a producer and a consumer of single records."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal

from magicbyte.access import client
from magicbyte.access.client.consumer import consume
from magicbyte.access.client.fetch import FetchOptions
from magicbyte.access.client.producer import RecordProducer
from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.columns import Record
from magicbyte.public.selected import Isolation


class Client(client.Client):
    """A client of one cluster, for any number of tasks of an event loop.

        async with Client("localhost:9092") as client:
            async with client.producer() as producer:
                await producer.send("orders", b"value", key=b"key")
            async for record in client.consume("orders", stop_at_end=True):
                print(record.offset, record.value)

    The arguments are those of `magicbyte.access.client.Client`; the functions of that package take it, too.
    """

    def producer(
        self, *, transactional_id: str | None = None, codec: Codec = Codec.NONE, linger_ms: int = 5
    ) -> RecordProducer:
        """Return a producer, for use with `async with`.

        `transactional_id`: send in transactions of this id, which fences other producers with the same id. `codec`: of
        the batches. `linger_ms`: how long an incomplete batch waits for more records.
        """
        return RecordProducer(self, transactional_id, codec, linger_ms)

    def consume(
        self,
        topic: str,
        *,
        partition: int | None = None,
        start: int | Literal["earliest", "latest"] = "earliest",
        stop_at_end: bool = False,
        isolation: Isolation = "read_uncommitted",
    ) -> AsyncGenerator[Record]:
        """Yield the records of a topic, or of one partition, and wait for more.

        Records of a partition are in the order of their offsets. `start`: an offset in each partition, or its present
        start or end. `stop_at_end`: stop at the end offsets at the time of the call. Nothing is committed. Raises
        UnknownTopicError, OffsetOutOfRangeError, BrokerError, NetworkError and CorruptRecordError.
        """
        if isolation not in ("read_uncommitted", "read_committed"):
            raise ValueError(f"isolation={isolation!r}: expected 'read_uncommitted' or 'read_committed'")
        options = FetchOptions(committed=isolation == "read_committed")
        return consume(self, topic, partition, start, options, to_end=stop_at_end)
