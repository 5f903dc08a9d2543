"""Two Python clients against the broker, in this process; every other client is tests/interop's."""

import asyncio

import aiokafka
import kafka
import pytest

from magicbyte.testing import Broker

VALUES = [b"value %d" % number for number in range(20)]


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_aiokafka_reads_what_it_wrote(compression: str | None) -> None:
    async def work() -> list[tuple[int, bytes | None]]:
        async with Broker() as broker:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=broker.bootstrap_servers, compression_type=compression
            )
            await producer.start()
            for value in VALUES:
                await producer.send_and_wait("topic", value)
            await producer.stop()
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers, enable_auto_commit=False)
            await consumer.start()
            partition = aiokafka.TopicPartition("topic", 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            found = [await asyncio.wait_for(consumer.getone(), 60) for _ in VALUES]
            await consumer.stop()
            return [(each.offset, each.value) for each in found]

    assert asyncio.run(work()) == list(enumerate(VALUES))


def test_kafka_python_reads_what_it_wrote_through_a_broker_in_a_thread() -> None:
    with Broker() as broker:
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False)
        for value in VALUES:
            producer.send("topic", value).get(timeout=60)
        producer.close()
        consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=10_000)
        partition = kafka.TopicPartition("topic", 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        found = [each.value for _, each in zip(VALUES, consumer, strict=False)]
        consumer.close()
    assert found == VALUES
