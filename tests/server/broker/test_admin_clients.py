"""The admin clients of aiokafka and kafka-python against the broker."""

from typing import Any

import kafka.admin
import kafka.errors
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from magicbyte.testing import Broker


async def test_aiokafka_makes_describes_changes_and_deletes_topics() -> None:
    async def flow(admin: Any, broker: Broker) -> None:
        made = NewTopic("a", 2, 1, topic_configs={"retention.ms": "1000"})
        assert [each[1] for each in (await admin.create_topics([made])).topic_errors] == [0]
        assert [each[1] for each in (await admin.create_topics([made])).topic_errors] == [36]
        assert await admin.list_topics() == ["a"]
        await admin.create_partitions({"a": NewPartitions(3)})
        (described,) = await admin.describe_topics(["a"])
        assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
        resource = ConfigResource(ConfigResourceType.TOPIC, "a", {"retention.ms": "2000"})
        await admin.alter_configs([resource])
        (found,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "a")])
        values = {each[0]: each[1] for each in found.resources[0][4]}
        assert values["retention.ms"] == "2000"
        assert (await admin.describe_cluster())["cluster_id"] == broker.served.cluster_id
        await admin.delete_topics(["a"])
        assert await admin.list_topics() == []

    async with Broker() as broker:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        await admin.start()
        try:
            await flow(admin, broker)
        finally:
            await admin.close()


def test_kafka_python_makes_describes_changes_and_deletes_topics() -> None:
    with Broker() as broker:
        admin = kafka.admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        try:
            _kafka_python_flow(admin)
        finally:
            admin.close()


def _kafka_python_flow(admin: Any) -> None:
    topic = kafka.admin.NewTopic(
        "k", num_partitions=2, replication_factor=1, topic_configs={"cleanup.policy": "compact"}
    )
    admin.create_topics([topic])
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        admin.create_topics([topic])
    assert admin.list_topics() == ["k"]
    admin.create_partitions({"k": kafka.admin.NewPartitions(total_count=4)})
    (described,) = admin.describe_topics(["k"])
    assert [each["partition_index"] for each in described["partitions"]] == [0, 1, 2, 3]
    resource = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, "k", {"retention.ms": "2000"})
    assert admin.alter_configs([resource]) == {"topic": {"k": "OK"}}
    found = admin.describe_configs([kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, "k")])
    settings = found["topic"]["k"]
    assert {name: settings[name]["value"] for name in ("cleanup.policy", "retention.ms")} == {
        "cleanup.policy": "compact",
        "retention.ms": "2000",
    }
    assert [each["broker_id"] for each in admin.describe_cluster()["brokers"]] == [0]
    (directory,) = admin.describe_log_dirs()[0]["log_dirs"]
    assert [(each["name"], len(each["partitions"])) for each in directory["topics"]] == [("k", 4)]
    admin.delete_topics(["k"])
    assert admin.list_topics() == []
