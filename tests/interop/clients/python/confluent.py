"""confluent-kafka, which is librdkafka: BOOTSTRAP."""

import sys
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from contract import PATIENCE, SESSION_MS, Client, Entry, Member, rebalance, serve, ticks


def checked(message: Message) -> Message:
    if message.error() is not None:
        raise RuntimeError(str(message.error()))
    return message


class Confluent(Client):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.failure: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Keep what no further attempt changes; librdkafka itself tries until time is up."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self.failure = error

    def check(self) -> None:
        failure, self.failure = self.failure, None
        if failure is not None:
            raise RuntimeError(str(failure))

    def settings(self) -> dict[str, Any]:
        """What all clients need. Brokers before 0.10 cannot say what they know."""
        found: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "error_cb": self.note, **self.more}
        if self.has_release_before("0.8.", "0.9."):
            found |= {"api.version.request": False, "broker.version.fallback": self.release}
        return found

    def produce(self, topic: str, codec: str, idempotent: bool, records: list[Entry]) -> list[int]:
        settings = {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 20, "acks": "all"}
        producer = Producer({"message.timeout.ms": int(800 * PATIENCE), **self.settings(), **settings})
        offsets: list[int | str] = [0] * len(records)

        def note(index: int, error: object, message: Message) -> None:
            offsets[index] = str(error) if error else int(message.offset() or 0)

        for index, each in enumerate(records):
            producer.produce(
                topic,
                partition=0,
                key=each.key,
                value=each.value,
                timestamp=each.timestamp,
                headers=each.headers,
                on_delivery=lambda error, message, index=index: note(index, error, message),
            )
        for _ in ticks():
            if producer.flush(0.1) == 0:
                break
            self.check()
        refused = [each for each in offsets if isinstance(each, str)]
        if refused:
            raise RuntimeError(f"not delivered: {set(refused)}")
        return [each for each in offsets if isinstance(each, int)]

    def consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                **self.settings(),
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 100,
                "check.crcs": True,
            }
        )

    def consume(self, topic: str, count: int) -> list[Entry]:
        consumer = self.consumer("reader")
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = [
            Entry(
                None if message.timestamp()[0] == 0 else message.timestamp()[1],
                message.key(),
                message.value(),
                list(message.headers() or []),
                message.offset(),
            )
            for message in self.read(consumer, count)
        ]
        consumer.close()
        return found

    def read(self, consumer: Consumer, count: int) -> list[Message]:
        found: list[Message] = []
        for _ in ticks():
            found += map(checked, consumer.consume(count - len(found), 0.1))
            self.check()
            if len(found) == count:
                break
        return found

    def resume(self, group: str, topic: str, first: int, count: int) -> list[list[int]]:
        read = []
        for size in (first, count - first):
            consumer = self.consumer(group)
            consumer.subscribe([topic])
            offsets = [message.offset() for message in self.read(consumer, size)]
            read.append(offsets)
            consumer.commit(offsets=[TopicPartition(topic, 0, offsets[-1] + 1, "by librdkafka")], asynchronous=False)
            consumer.close()
        return read

    def group(self, group: str, topic: str, count: int) -> dict[str, Any]:
        return rebalance(lambda: ConfluentMember(self.consumer(group), topic), count)

    def admin(self, topic: str, name: str, value: str) -> dict[str, Any]:
        admin = AdminClient(self.settings())
        admin.create_topics([NewTopic(topic, 3, 1, config={name: value})])[topic].result(PATIENCE)
        for _ in ticks():  # a broker may answer before it has told itself
            if topic in admin.list_topics().topics:
                break
        partitions = len(admin.list_topics(topic).topics[topic].partitions)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = admin.describe_configs([resource])[resource].result(PATIENCE)[name].value
        admin.delete_topics([topic])[topic].result(PATIENCE)
        for _ in ticks():
            if topic not in admin.list_topics().topics:
                break
        return {"partitions": partitions, "value": found, "gone": topic not in admin.list_topics().topics}


class ConfluentMember(Member):
    def __init__(self, consumer: Consumer, topic: str) -> None:
        super().__init__()
        self.consumer = consumer
        consumer.subscribe([topic], on_assign=self.assigned, on_revoke=self.revoked)

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions |= {each.partition for each in partitions}

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self.read:
            self.commit()
        self.partitions -= {each.partition for each in partitions}

    def commit(self) -> None:
        read = [each for each in self.consumer.position(self.consumer.assignment()) if each.offset >= 0]
        if read:
            self.consumer.commit(offsets=read, asynchronous=False)

    def poll(self) -> Iterable[tuple[int, int]]:
        for message in self.consumer.consume(100, 0.05):
            checked(message)
            yield message.partition(), message.offset()

    def close(self) -> None:
        self.consumer.close()  # revokes, and so commits


serve(Confluent(sys.argv[1]))
