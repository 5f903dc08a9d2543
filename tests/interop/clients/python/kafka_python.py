"""kafka-python: BOOTSTRAP."""

import contextlib
import logging
import sys
from collections.abc import Iterable
from typing import Any

from contract import PATIENCE, SESSION_MS, Client, Entry, Member, rebalance, serve, ticks
from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import CommitFailedError, RebalanceInProgressError
from kafka.structs import OffsetAndMetadata


class KafkaPython(Client):
    def settings(self) -> dict[str, Any]:
        """What all clients need. Brokers before 0.10 cannot say what they know."""
        old = tuple(map(int, self.release.split(".")[:3])) if self.has_release_before("0.8.", "0.9.") else None
        more = {name: int(value) if name.endswith("_ms") else value for name, value in self.more.items()}
        return {"bootstrap_servers": self.bootstrap, "api_version": old, **more}

    def produce(self, topic: str, codec: str, idempotent: bool, records: list[Entry]) -> list[int]:
        producer = KafkaProducer(
            **self.settings(),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=20,
        )
        sent = [
            producer.send(
                topic, partition=0, key=each.key, value=each.value, timestamp_ms=each.timestamp, headers=each.headers
            )
            for each in records
        ]
        offsets = [each.get(0.8 * PATIENCE).offset for each in sent]
        producer.close()
        return offsets

    def consumer(self, group: str | None, **more: Any) -> KafkaConsumer:
        return KafkaConsumer(
            **self.settings(),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=200,
            fetch_max_wait_ms=100,
            **more,
        )

    def consume(self, topic: str, count: int) -> list[Entry]:
        consumer = self.consumer(None)
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        found = [
            Entry(each.timestamp, each.key, each.value, list(each.headers), each.offset)
            for each in self.read(consumer, count)
        ]
        consumer.close()
        return found

    def read(self, consumer: KafkaConsumer, count: int) -> list[Any]:
        found: list[Any] = []
        for _ in ticks():
            for records in consumer.poll(100, max_records=count - len(found)).values():
                found += records
            if len(found) == count:
                break
        return found

    def resume(self, group: str, topic: str, first: int, count: int) -> list[list[int]]:
        read = []
        for size in (first, count - first):
            consumer = self.consumer(group)
            consumer.subscribe([topic])
            consumer.partitions_for_topic(topic)  # 3.0 may join before it knows any, and then stays without
            offsets = [each.offset for each in self.read(consumer, size)]
            read.append(offsets)
            consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offsets[-1] + 1, "by kafka-python", -1)})
            consumer.close()
        return read

    def group(self, group: str, topic: str, count: int) -> dict[str, Any]:
        return rebalance(lambda: KafkaPythonMember(self.consumer(group), topic), count)

    def admin(self, topic: str, name: str, value: str) -> dict[str, Any]:
        admin = KafkaAdminClient(**self.settings())
        admin.create_topics([NewTopic(topic, 3, 1, topic_configs={name: value})])
        for _ in ticks():  # a broker may answer before it has told itself
            if topic in admin.list_topics():
                break
        partitions = len(admin.describe_topics([topic])[0]["partitions"])
        described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        found = described["topic"][topic][name]["value"]
        admin.delete_topics([topic])
        for _ in ticks():
            if topic not in admin.list_topics():
                break
        gone = topic not in admin.list_topics()
        admin.close()
        return {"partitions": partitions, "value": found, "gone": gone}


class KafkaPythonMember(Member, ConsumerRebalanceListener):
    def __init__(self, consumer: KafkaConsumer, topic: str) -> None:
        super().__init__()
        self.consumer = consumer
        consumer.subscribe([topic], listener=self)
        consumer.partitions_for_topic(topic)  # as above

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.partitions |= {each.partition for each in assigned}

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.partitions -= {each.partition for each in revoked}

    def poll(self) -> Iterable[tuple[int, int]]:
        found = [each for records in self.consumer.poll(50).values() for each in records]
        if found:
            # A listener may not: it runs where requests are waited for. Who is late in a rebalance reads again.
            with contextlib.suppress(CommitFailedError, RebalanceInProgressError):
                self.consumer.commit()
        return [(each.partition, each.offset) for each in found]

    def close(self) -> None:
        self.consumer.commit()
        self.consumer.close()


logging.basicConfig(level=logging.WARNING)
serve(KafkaPython(sys.argv[1]))
