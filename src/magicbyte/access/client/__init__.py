"""A small asyncio client of Kafka clusters of every era, from 0.8.2 on: closed sets and records in both directions.

    async with Client("localhost:9092") as client:
        await send(client, "topic", 0, [Record(0, -1, 0, b"key", b"value")], ProduceOptions(codec=Codec.LZ4))
        start, end = await bounds(client, "topic", 0)
        async for records in read_records(client, "topic", 0, start, end):
            print(list(records))

`Client` knows the cluster, and sends each request to the right broker. The requests are in `fetch`, `produce`,
`offsets`, `groups` and `admin`. Everything is cancellation safe: the response to a cancelled request is dropped, and
the connection continues.
"""

from magicbyte.access.client.client import Client

__all__ = ["Client"]
