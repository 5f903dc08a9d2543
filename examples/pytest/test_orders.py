"""Three client libraries and the fixtures of magicbyte: a broker for the run, a topic for each test."""

import asyncio
import json

import aiokafka
import confluent_kafka
import kafka
import pytest

from magicbyte.testing import Broker

ORDERS = [{"id": number, "total": 10 * number} for number in range(3)]


def test_orders_with_kafka_python(kafka_broker: Broker, kafka_topic: str) -> None:
    """What a producer sends, a consumer of a group gets."""
    producer = kafka.KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)
    for order in ORDERS:
        producer.send(kafka_topic, json.dumps(order).encode())
    producer.close()
    consumer = kafka.KafkaConsumer(
        kafka_topic,
        bootstrap_servers=kafka_broker.bootstrap_servers,
        group_id="orders",
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
    )
    found = [json.loads(message.value) for _, message in zip(ORDERS, consumer, strict=False)]
    consumer.close()
    assert found == ORDERS


def test_orders_with_aiokafka(kafka_broker: Broker, kafka_topic: str) -> None:
    """The fixtures serve code with an event loop of its own as well."""

    async def work() -> list[dict[str, int]]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
            for order in ORDERS:
                await producer.send_and_wait(kafka_topic, json.dumps(order).encode())
        consumer = aiokafka.AIOKafkaConsumer(
            kafka_topic, bootstrap_servers=kafka_broker.bootstrap_servers, auto_offset_reset="earliest"
        )
        async with consumer:
            return [json.loads((await asyncio.wait_for(consumer.getone(), 10)).value) for _ in ORDERS]

    assert asyncio.run(work()) == ORDERS


@pytest.mark.kafka_topic(partitions=3, configs={"cleanup.policy": "compact"})
def test_orders_with_confluent_kafka(kafka_broker: Broker, kafka_topic: str) -> None:
    """A mark says what the topic is to be like."""
    servers = {"bootstrap.servers": kafka_broker.bootstrap_servers}
    producer = confluent_kafka.Producer(servers)
    for order in ORDERS:
        producer.produce(kafka_topic, json.dumps(order), key=str(order["id"]), partition=order["id"])
    assert producer.flush(10) == 0
    consumer = confluent_kafka.Consumer({**servers, "group.id": "compacted", "auto.offset.reset": "earliest"})
    consumer.subscribe([kafka_topic])
    polled = [consumer.poll(10) for _ in ORDERS]
    consumer.close()
    found = [json.loads(message.value() or b"null") for message in polled if message is not None]
    assert sorted(found, key=lambda order: order["id"]) == ORDERS
