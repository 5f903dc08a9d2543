"""aiokafka: BOOTSTRAP. Members of a group are tasks."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.helpers import create_ssl_context
from aiokafka.structs import OffsetAndMetadata
from contract import PATIENCE, SESSION_MS, Client, Entry, serve

TIMEOUT_MS = int(1000 * PATIENCE)


class Aiokafka(Client):
    def settings(self) -> dict[str, Any]:
        """What all clients need. It takes TLS as a context."""
        others = {name: value for name, value in self.more.items() if not name.startswith("ssl_")}
        tls = {name.removeprefix("ssl_"): value for name, value in self.more.items() if name not in others}
        context = create_ssl_context(**tls) if tls else None
        return {"bootstrap_servers": self.bootstrap, "request_timeout_ms": TIMEOUT_MS, "ssl_context": context, **others}

    def produce(self, topic: str, codec: str, idempotent: bool, records: list[Entry]) -> list[int]:
        return asyncio.run(self.produce_all(topic, codec, idempotent, records))

    async def produce_all(self, topic: str, codec: str, idempotent: bool, records: list[Entry]) -> list[int]:
        producer = AIOKafkaProducer(
            **self.settings(),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=20,
        )
        async with producer:
            sent = [
                await producer.send(
                    topic, each.value, each.key, partition=0, timestamp_ms=each.timestamp, headers=each.headers
                )
                for each in records
            ]
            return [(await asyncio.wait_for(each, 0.8 * PATIENCE)).offset for each in sent]

    def consumer(self, group: str | None) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            **self.settings(),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=100,
        )

    def consume(self, topic: str, count: int) -> list[Entry]:
        async def inside() -> list[Entry]:
            async with self.consumer(None) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                consumer.seek(TopicPartition(topic, 0), 0)
                return [
                    Entry(each.timestamp, each.key, each.value, list(each.headers), each.offset)
                    for each in await self.read(consumer, count)
                ]

        return asyncio.run(inside())

    async def read(self, consumer: AIOKafkaConsumer, count: int) -> list[Any]:
        found: list[Any] = []
        end = time.monotonic() + PATIENCE
        while len(found) < count and time.monotonic() < end:
            for records in (await consumer.getmany(timeout_ms=100, max_records=count - len(found))).values():
                found += records
        return found

    def resume(self, group: str, topic: str, first: int, count: int) -> list[list[int]]:
        async def inside(size: int) -> list[int]:
            consumer = self.consumer(group)
            consumer.subscribe([topic])
            async with consumer:
                offsets = [each.offset for each in await self.read(consumer, size)]
                await consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offsets[-1] + 1, "by aiokafka")})
                return offsets

        return [asyncio.run(inside(size)) for size in (first, count - first)]

    def group(self, group: str, topic: str, count: int) -> dict[str, Any]:
        return asyncio.run(self.rebalance(group, topic, count))

    async def rebalance(self, group: str, topic: str, count: int) -> dict[str, Any]:
        async with asyncio.TaskGroup() as tasks:
            one = Member(self.consumer(group), topic)
            first = tasks.create_task(one.run())
            await until("one member", lambda: len(one.partitions) == 2)
            stages = [[sorted(one.partitions)]]
            two = Member(self.consumer(group), topic)
            second = tasks.create_task(two.run())
            await until("two members", lambda: len(one.partitions) == len(two.partitions) == 1)
            stages.append([sorted(one.partitions), sorted(two.partitions)])
            two.leaving = True
            await second
            await until("one member again", lambda: len(one.partitions) == 2)
            stages.append([sorted(one.partitions)])
            await until("all records", lambda: len(one.read | two.read) >= count)
            one.leaving = True
            await first
        return {"stages": stages, "read": sorted(one.read | two.read)}

    def admin(self, topic: str, name: str, value: str) -> dict[str, Any]:
        return asyncio.run(self.make_and_delete(topic, name, value))

    async def make_and_delete(self, topic: str, name: str, value: str) -> dict[str, Any]:
        admin = AIOKafkaAdminClient(**self.settings())
        await admin.start()
        await admin.create_topics([NewTopic(topic, 3, 1, topic_configs={name: value})])
        end = time.monotonic() + PATIENCE
        while topic not in await admin.list_topics() and time.monotonic() < end:
            await asyncio.sleep(0.05)  # a broker may answer before it has told itself
        partitions = len((await admin.describe_topics([topic]))[0]["partitions"])
        described = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        found = next(entry[1] for entry in described[0].resources[0][4] if entry[0] == name)
        await admin.delete_topics([topic])
        while topic in await admin.list_topics() and time.monotonic() < end:
            await asyncio.sleep(0.05)
        gone = topic not in await admin.list_topics()
        await admin.close()
        return {"partitions": partitions, "value": found, "gone": gone}


async def until(what: str, reached: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError(f"waited in vain for {what}")
        await asyncio.sleep(0.02)


class Member(ConsumerRebalanceListener):
    def __init__(self, consumer: AIOKafkaConsumer, topic: str) -> None:
        self.consumer = consumer
        self.partitions: frozenset[int] = frozenset()
        self.read: frozenset[tuple[int, int]] = frozenset()
        self.leaving = False
        consumer.subscribe([topic], listener=self)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.partitions |= {each.partition for each in assigned}

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        if self.partitions:
            await self.consumer.commit()
        self.partitions -= {each.partition for each in revoked}

    async def run(self) -> None:
        async with self.consumer:
            while not self.leaving:
                for partition, records in (await self.consumer.getmany(timeout_ms=50)).items():
                    self.read |= {(partition.partition, each.offset) for each in records}
            await self.consumer.commit()


logging.basicConfig(level=logging.WARNING)
serve(Aiokafka(sys.argv[1]))
