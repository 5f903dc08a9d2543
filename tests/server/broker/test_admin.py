"""What the broker answers to admin requests, and what is so afterwards: at once, and after a restart."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from builders import run
from interop import admin_steps
from magicbyte.access.client import Client
from magicbyte.access.client.connection import Connection
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.ports import Moment
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol import APIS, Message
from magicbyte.engine.protocol.messages import alter_client_quotas as quotas
from magicbyte.engine.protocol.messages import alter_replica_log_dirs as move
from magicbyte.engine.protocol.messages import alter_user_scram_credentials as rescram
from magicbyte.engine.protocol.messages import create_partitions as grow
from magicbyte.engine.protocol.messages import create_topics as create
from magicbyte.engine.protocol.messages import delete_records as erase
from magicbyte.engine.protocol.messages import delete_topics as delete
from magicbyte.engine.protocol.messages import describe_cluster as cluster
from magicbyte.engine.protocol.messages import describe_configs as describe
from magicbyte.engine.protocol.messages import describe_log_dirs as dirs
from magicbyte.engine.protocol.messages import describe_producers as producers
from magicbyte.engine.protocol.messages import describe_user_scram_credentials as scram
from magicbyte.engine.protocol.messages import init_producer_id as init
from magicbyte.engine.protocol.messages import list_config_resources as listing
from magicbyte.engine.protocol.messages import offset_commit as commit
from magicbyte.engine.protocol.messages import offset_fetch as committed
from magicbyte.engine.protocol.messages.alter_configs import AlterConfigsResponse
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from magicbyte.engine.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from magicbyte.engine.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from magicbyte.engine.records.columns import Record
from magicbyte.server.broker.broker import Broker
from magicbyte.server.partitions.background import Background
from magicbyte.server.settings.served import SERVED
from magicbyte.server.settings.topic_config import TOPIC_SETTINGS
from magicbyte.server.stores.znodes import layout
from server.broker.serving import CLOSED, Peer, Running

RECORDED = json.loads((Path(__file__).parent / "admin-answers-3.9.1.json").read_text())
ON_PURPOSE = {
    "assigned to no broker",
    "assigned to another broker",
    "append to an unknown setting",
    "unknown operation",
}
ON_PURPOSE |= {"delete by nothing"}  # tests/interop/test_admin_codes.py says why
TOPIC, BROKER, LOGGER = admin_steps.TOPIC, admin_steps.BROKER, admin_steps.LOGGER
SET, DELETE = admin_steps.SET, admin_steps.DELETE


def address(broker: Broker) -> str:
    return f"127.0.0.1:{next(iter(broker.ports.values()))}"


async def make(peer: Peer, *topics: create.CreatableTopic) -> list[int]:
    request = create.CreateTopicsRequest(topics=list(topics))
    return [each.error_code for each in (await peer.ask(request, 5, create.CreateTopicsResponse)).topics]


async def settings(peer: Peer, kind: int, name: str) -> dict[str, describe.DescribeConfigsResourceResult]:
    resource = describe.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = describe.DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (found,) = (await peer.ask(request, 4, describe.DescribeConfigsResponse)).results
    assert found.error_code == 0, found.error_message
    return {each.name: each for each in found.configs}


async def change(peer: Peer, kind: int, name: str, *changes: tuple[str, int, str | None]) -> int:
    request = admin_steps.changing(kind, name, *changes)
    response = await peer.ask(request, 1, IncrementalAlterConfigsResponse)
    return response.responses[0].error_code


async def test_a_thread_pool_may_double_or_halve_at_run_time(folder: Path) -> None:
    async with Running(folder, {"num.io.threads": "4"}) as broker:
        peer, own = await Peer.of(broker), str(broker.node_id)

        async def answer(where: str, name: str, operation: int, value: str | None) -> str | None:
            request = admin_steps.changing(BROKER, where, (name, operation, value))
            (one,) = (await peer.ask(request, 1, IncrementalAlterConfigsResponse)).responses
            assert one.error_code == (0 if one.error_message is None else 42)
            return one.error_message

        refused = "Dynamic thread count update validation failed for "
        assert await answer(own, "num.replica.fetchers", SET, "2") is None
        assert broker.config.num_replica_fetchers == 2
        assert await answer("", "num.replica.fetchers", SET, "9") is None, "the value of this broker counts"
        assert await answer(own, "num.replica.fetchers", DELETE, None) == (
            f"{refused}num.replica.fetchers=9, value should not be greater than double the current value 2"
        )
        assert await answer(own, "num.io.threads", SET, "9") == (
            f"{refused}num.io.threads=9, value should not be greater than double the current value 4"
        )
        assert await answer(own, "num.io.threads", SET, "8") is None
        assert await answer(own, "num.io.threads", SET, "3") == (
            f"{refused}num.io.threads=3, value should be at least half the current value 8"
        )
        assert await answer(own, "num.io.threads", DELETE, None) is None
        assert await answer("", "background.threads", SET, "20") is None, "Kafka's default is 10"
        assert await answer(own, "background.threads", SET, "9") is not None
        peer.close()


async def test_every_setting_that_a_broker_was_given_is_described_and_what_may_be_secret_is_not_shown(
    folder: Path,
) -> None:
    given = {
        "log.cleaner.threads": "2",
        "my.plugin": "x",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "sasl.jaas.config": "secret",
        "listener.name.other.ssl.keystore.password": "secret",
        "listener.name.other.ssl.keystore.type": "PEM",
    }

    async with Running(folder, given) as broker:
        peer, own = await Peer.of(broker), str(broker.node_id)
        assert await change(peer, BROKER, "", ("log.cleaner.threads", 0, "3"), ("all.plugin", 0, "secret")) == 0
        assert await change(peer, BROKER, own, ("num.io.threads", 0, "9"), ("metric.reporters", 2, "a")) == 0
        found = await settings(peer, BROKER, own)
        shown = {name: (each.value, each.config_source, each.config_type) for name, each in found.items()}
        assert shown["log.cleaner.threads"] == ("3", 3, 3)
        assert [(each.value, each.source) for each in found["log.cleaner.threads"].synonyms] == [("3", 3), ("2", 4)]
        assert shown["num.io.threads"] == ("9", 2, 3)
        assert shown["metric.reporters"] == ("a", 2, 7)
        assert shown["listener.name.other.ssl.keystore.type"] == ("PEM", 4, 2)
        hidden = given.keys() - {"log.cleaner.threads", "listener.name.other.ssl.keystore.type"} | {"all.plugin"}
        for name in hidden:
            assert (found[name].value, found[name].is_sensitive) == (None, True), name
            assert {each.value for each in found[name].synonyms} == {None}, name
        for_all = await settings(peer, BROKER, "")
        assert {name: each.value for name, each in for_all.items()} == {
            "all.plugin": None,
            "log.cleaner.threads": "3",
        }
        peer.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.io.threads", "abc"),
        ("num.network.threads", "0"),
        ("log.cleaner.threads", "-1"),
        ("background.threads", "x"),
        ("num.replica.alter.log.dirs.threads", "3"),  # only at the start, as the next one
        ("queued.max.requests", "3"),
        ("ssl.keystore.location", "/nowhere"),  # only for one listener
        ("listener.name.plaintext.plain.sasl.jaas.config", "secret"),  # the tree would show it
        ("listener.name.plaintext.ssl.key.password", "secret"),
    ],
)
async def test_a_setting_without_effect_is_checked_like_the_others(name: str, value: str, folder: Path) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        for who in ("", str(broker.node_id)):
            assert await change(peer, BROKER, who, (name, 0, value)) == ErrorCode.INVALID_REQUEST
        assert name not in await settings(peer, BROKER, str(broker.node_id))
        peer.close()


def test_the_levels_of_loggers_are_described_and_changed_as_in_kafka(folder: Path) -> None:
    name, package = "magicbyte.server.stores.zookeeper_membership", logging.getLogger("magicbyte")
    before = package.level
    logger(name)

    async def work() -> None:
        async with Running(folder) as broker:
            peer, own = await Peer.of(broker), str(broker.node_id)

            async def level(of: str) -> str | None:
                return (await settings(peer, LOGGER, own))[of].value

            found = await settings(peer, LOGGER, own)
            assert {(each.config_source, each.read_only, each.is_sensitive) for each in found.values()} == {(6, 0, 0)}
            for given, code in (
                (("no.such", 0, "DEBUG"), 40),
                (("no.such", 1, None), 40),
                ((name, 0, "LOUD"), 40),
                ((name, 0, "debug"), 40),
                ((name, 0, None), 42),
                ((name, 2, "INFO"), 42),
                ((name, 3, "INFO"), 42),
                ((name, 9, "INFO"), 42),
                (("root", 1, None), 42),
                (("urllib3", 0, "INFO"), 40),  # of an application around the broker
            ):
                assert await change(peer, LOGGER, own, ("root", 0, "ERROR"), given) in (code, 42), given
                assert await change(peer, LOGGER, own, given) == code, given
            assert await level("root") == found["root"].value  # all changes of a request or none
            assert await change(peer, LOGGER, own, (name, 0, "TRACE"), ("root", 0, "FATAL")) == 0
            assert (await level(name), await level("root")) == ("TRACE", "FATAL")
            assert await change(peer, LOGGER, own, (name, 1, None)) == 0
            assert await level(name) == "FATAL"
            for other in ("", "77"):
                assert await change(peer, LOGGER, other, (name, 0, "INFO")) == 42
            legacy = await peer.ask(admin_steps.altering(LOGGER, own, (name, "INFO")), 1, AlterConfigsResponse)
            assert legacy.responses[0].error_code == 42
            peer.close()

    try:
        run(work())
    finally:
        logging.getLogger(name).setLevel(logging.NOTSET)
        package.setLevel(before)


def test_the_codes_are_those_that_kafka_3_9_1_gave(folder: Path) -> None:
    async def work() -> dict[str, Any]:
        given = {"num.partitions": "1", "auto.create.topics.enable": "false"}
        async with Running(folder, given) as broker:
            port = next(iter(broker.ports.values()))
            return await admin_steps.answers(lambda: Connection.open("127.0.0.1", port, client_id="codes"))

    ours = run(work())
    unlike = {step: (ours[step], RECORDED.get(step)) for step in ours if ours[step] != RECORDED.get(step)}
    assert unlike.keys() == ON_PURPOSE, unlike
    assert ours.keys() == RECORDED.keys()


class Asked(NamedTuple):
    """A request that all versions of its API can hold, and what is to be true of each response."""

    request: Callable[[int], Message]
    holds: Callable[[Any], bool]


EVERY_VERSION = {
    19: Asked(
        lambda version: create.CreateTopicsRequest(topics=[admin_steps.topic(f"v{version}")]),
        lambda found: found.topics[0].error_code == 0,
    ),
    20: Asked(
        lambda version: (
            delete.DeleteTopicsRequest(topics=[delete.DeleteTopicState(name=f"v{version}")])
            if version >= 6
            else delete.DeleteTopicsRequest(topic_names=[f"v{version}"])
        ),
        lambda found: found.responses[0].error_code == 0,
    ),
    21: Asked(
        lambda _: erase.DeleteRecordsRequest(
            topics=[
                erase.DeleteRecordsTopic(
                    name="there", partitions=[erase.DeleteRecordsPartition(partition_index=0, offset=-1)]
                )
            ]
        ),
        lambda found: found.topics[0].partitions[0].low_watermark == 0,
    ),
    22: Asked(
        lambda _: init.InitProducerIdRequest(transactional_id=None),
        lambda found: (found.error_code, found.producer_epoch) == (0, 0),
    ),
    32: Asked(
        lambda _: describe.DescribeConfigsRequest(
            resources=[
                describe.DescribeConfigsResource(resource_type=TOPIC, resource_name="there", configuration_keys=None)
            ]
        ),
        lambda found: found.results[0].configs[0].value == "delete" and len(found.results[0].configs) > 25,
    ),
    33: Asked(
        lambda _: admin_steps.altering(TOPIC, "there", ("retention.ms", "5")),
        lambda found: found.responses[0].error_code == 0,
    ),
    35: Asked(
        lambda _: dirs.DescribeLogDirsRequest(topics=None),
        lambda found: "there" in {each.name for each in found.results[0].topics},
    ),
    34: Asked(
        lambda _: move.AlterReplicaLogDirsRequest(
            dirs=[
                move.AlterReplicaLogDir(
                    path="/nowhere", topics=[move.AlterReplicaLogDirTopic(name="there", partitions=(0,))]
                )
            ]
        ),
        lambda found: found.results[0].partitions[0].error_code == ErrorCode.LOG_DIR_NOT_FOUND,
    ),
    37: Asked(
        lambda version: grow.CreatePartitionsRequest(
            topics=[grow.CreatePartitionsTopic(name="there", count=2 + version, assignments=None)]
        ),
        lambda found: found.results[0].error_code == 0,
    ),
    44: Asked(
        lambda _: admin_steps.changing(TOPIC, "there", ("retention.ms", SET, "6")),
        lambda found: found.responses[0].error_code == 0,
    ),
    60: Asked(lambda _: cluster.DescribeClusterRequest(), lambda found: found.brokers[0].broker_id == 0),
    61: Asked(
        lambda _: producers.DescribeProducersRequest(
            topics=[producers.TopicRequest(name="there", partition_indexes=(0,))]
        ),
        lambda found: found.topics[0].partitions[0].active_producers == [],
    ),
    74: Asked(lambda _: listing.ListConfigResourcesRequest(), lambda found: found.error_code == 0),
}


def test_every_version_that_is_advertised_is_answered(folder: Path) -> None:
    async def work() -> list[tuple[str, int]]:
        unlike = []
        async with Running(folder) as broker:
            peer = await Peer.of(broker)
            assert await make(peer, admin_steps.topic("there")) == [0]
            for key, asked in EVERY_VERSION.items():
                for version in SERVED[key].versions:
                    response = await peer.ask(asked.request(version), version, APIS[key].response)
                    if not asked.holds(response):
                        unlike.append((APIS[key].name, version))
            peer.close()
        return unlike

    assert run(work()) == []
    assert EVERY_VERSION.keys() == {key for key, served in SERVED.items() if served.module in OURS}


@pytest.mark.parametrize("row", admin_steps.LISTED, ids=str)
def test_resources_that_can_have_settings_are_listed_as_by_kafka_4_1_1(row: admin_steps.Listed, folder: Path) -> None:
    async def work() -> admin_steps.Listed:
        async with Running(folder) as broker:
            peer = await Peer.of(broker)
            assert await make(peer, admin_steps.topic("bb")) == [0]
            assert await make(peer, admin_steps.topic("aa")) == [0]
            request = listing.ListConfigResourcesRequest(resource_types=row.types)
            found = await peer.ask(request, 1, listing.ListConfigResourcesResponse)
            peer.close()
            return admin_steps.Listed.of(row.types, found)

    assert run(work()) == row


OURS = {"admin_topics", "admin_configs", "admin_cluster", "producers"}


async def test_a_setting_says_where_its_value_comes_from(folder: Path) -> None:
    async with Running(folder, {"log.retention.hours": "1", "log.roll.ms": "700000"}) as broker:
        peer = await Peer.of(broker)
        await make(peer, admin_steps.topic("t", 1, 1, ("segment.bytes", "5000")))
        assert await change(peer, BROKER, "", ("log.segment.bytes", SET, "7000")) == 0
        assert await change(peer, BROKER, "0", ("log.segment.bytes", SET, "8000")) == 0
        found = await settings(peer, TOPIC, "t")
        told = [(each.name, each.value, each.source) for each in found["segment.bytes"].synonyms]
        assert told == [
            ("segment.bytes", "5000", 1),
            ("log.segment.bytes", "8000", 2),
            ("log.segment.bytes", "7000", 3),
            ("log.segment.bytes", "1073741824", 5),
        ]
        retention = found["retention.ms"]
        assert (retention.value, retention.config_source, retention.config_type) == ("3600000", 5, 5)
        assert retention.synonyms == []  # as Kafka 2.8.2 to 4.3.1 have it
        rolled = found["segment.ms"]
        assert (rolled.value, rolled.config_source) == ("700000", 4)
        assert [(each.name, each.value, each.source) for each in rolled.synonyms] == [
            ("log.roll.ms", "700000", 4),
            ("log.roll.hours", "168", 5),
        ]
        for name in ("flush.ms", "segment.jitter.ms", "message.timestamp.before.max.ms"):
            assert {each.name for each in found[name].synonyms} <= {"log.message.timestamp.before.max.ms"}
        assert "age" in (retention.documentation or "")
        own = await settings(peer, BROKER, "0")
        assert (own["log.segment.bytes"].value, own["log.segment.bytes"].config_source) == ("8000", 2)
        assert (own["num.partitions"].read_only, own["log.segment.bytes"].read_only) == (True, False)
        for name in ("listeners", "advertised.listeners", "listener.security.protocol.map"):
            assert not own[name].read_only
        assert own["log.message.format.version"].read_only
        assert (await settings(peer, BROKER, "")).keys() == {"log.segment.bytes"}
        peer.close()


async def test_a_change_of_the_broker_holds_for_open_logs_and_after_a_restart_until_it_is_taken_back(
    folder: Path,
) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        await make(peer, admin_steps.topic("t"), admin_steps.topic("own", 1, 1, ("segment.bytes", "5000")))
        assert await change(peer, BROKER, "0", ("log.segment.bytes", SET, "7000")) == 0
        assert broker.config.log_segment_bytes == 7000
        assert [broker.topics.log(each, 0).active.config.segment_bytes for each in ("t", "own")] == [7000, 5000]
        assert await change(peer, TOPIC, "own", ("max.message.bytes", SET, "99")) == 0
        peer.close()
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        assert [broker.topics.log(each, 0).active.config.segment_bytes for each in ("t", "own")] == [7000, 5000]
        assert broker.topics.rules("own").max_message_bytes == 99
        assert await change(peer, BROKER, "0", ("log.segment.bytes", DELETE, None)) == 0
        assert broker.topics.log("t", 0).config.segment_bytes == 1 << 30
        peer.close()


async def test_connections_and_maintenance_go_by_what_is_changed(folder: Path) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        changes = (
            ("max.connections", SET, "1"),
            ("log.cleaner.backoff.ms", SET, "7"),
            ("log.cleaner.io.max.bytes.per.second", SET, "1000"),
        )
        assert await change(peer, BROKER, "", *changes) == 0
        maintenance = background_of(broker).maintenance()
        assert (maintenance.backoff_ms, maintenance.bytes_per_second) == (7, 1000)
        other = await Peer.of(broker)
        assert await other.next() == CLOSED
        peer.close()
        other.close()


def test_a_smaller_segment_size_ends_segments_at_once(folder: Path) -> None:
    async def work() -> int:
        async with Running(folder) as broker:
            async with Client(address(broker)) as client:
                options = ProduceOptions(batch_bytes=200)
                peer = await Peer.of(broker)
                await make(peer, admin_steps.topic("t"))
                records = [Record(0, 1_700_000_000_000, 0, None, b"x" * 100) for _ in range(20)]
                await send(client, "t", 0, records, options)
                assert len(broker.topics.log("t", 0).segments) == 1
                assert await change(peer, TOPIC, "t", ("segment.bytes", SET, "500")) == 0
                await send(client, "t", 0, records, options)
                peer.close()
            return len(broker.topics.log("t", 0).segments)

    assert run(work()) > 3


async def test_a_deleted_topic_is_gone_and_another_of_its_name_is_empty_and_another(folder: Path) -> None:
    async with Running(folder) as broker, Client(address(broker)) as client:
        peer = await Peer.of(broker)
        await make(peer, admin_steps.topic("t", 2, 1, ("segment.bytes", "5000")))
        await send(client, "t", 0, [Record(0, 1, 0, None, b"old")], ProduceOptions())
        first = broker.topics.known("t").id
        request = delete.DeleteTopicsRequest(topic_names=["t"])
        assert (await peer.ask(request, 4, delete.DeleteTopicsResponse)).responses[0].error_code == 0
        assert broker.topics.get("t") is None
        assert broker.metadata.children("/brokers/topics") == broker.metadata.children("/config/topics") == []
        assert await make(peer, admin_steps.topic("t")) == [0]
        client.forget("t")
        assert await bounds(client, "t", 0) == (0, 0)
        assert broker.topics.known("t").id != first
        assert broker.topics.known("t").configs == {}
        peer.close()


async def test_a_small_request_cannot_ask_for_more_than_there_is_room_for(folder: Path) -> None:
    async with Running(folder) as broker:
        peer = await Peer.of(broker)
        huge = admin_steps.topic("huge", (1 << 31) - 1)
        assert await make(peer, huge) == [ErrorCode.POLICY_VIOLATION]
        some = [admin_steps.topic(f"t{number}", 4000) for number in range(3)]
        assert await make(peer, *some) == [0, 0, ErrorCode.POLICY_VIOLATION]
        assert len(broker.logs.logs) == 200  # the rest when they are needed
        assert broker.replicas.partition("t1", 3999).log.log_end_offset == 0
        grown = grow.CreatePartitionsTopic(name="t0", count=(1 << 31) - 1, assignments=None)
        response = await peer.ask(grow.CreatePartitionsRequest(topics=[grown]), 3, grow.CreatePartitionsResponse)
        assert response.results[0].error_code == ErrorCode.INVALID_PARTITIONS
        peer.close()


def test_deleting_may_be_forbidden_and_old_clients_have_no_code_for_that(folder: Path) -> None:
    async def work() -> list[list[int]]:
        found = []
        async with Running(folder, {"delete.topic.enable": "false"}) as broker:
            peer = await Peer.of(broker)
            await make(peer, admin_steps.topic("t"))
            for version in (1, 2, 3, 5):
                request = delete.DeleteTopicsRequest(topic_names=["t", "nothing"])
                answer = await peer.ask(request, version, delete.DeleteTopicsResponse)
                found.append([each.error_code for each in answer.responses])
            peer.close()
            assert broker.topics.names() == ["t"]
        return found

    assert run(work()) == [[42, 42], [42, 42], [73, 73], [73, 73]]  # as Kafka 2.8.2 answered


async def test_deleted_records_are_unreadable_and_stay_deleted(folder: Path) -> None:
    async with Running(folder) as broker, Client(address(broker)) as client:
        peer = await Peer.of(broker)
        await make(peer, admin_steps.topic("t"))
        await send(client, "t", 0, [Record(0, 1, 0, None, b"x")] * 5, ProduceOptions())
        for offset, told in ((3, 3), (2, 3), (-1, 5)):
            part = erase.DeleteRecordsPartition(partition_index=0, offset=offset)
            request = erase.DeleteRecordsRequest(topics=[erase.DeleteRecordsTopic(name="t", partitions=[part])])
            response = await peer.ask(request, 2, erase.DeleteRecordsResponse)
            assert response.topics[0].partitions[0].low_watermark == told
        assert await bounds(client, "t", 0) == (5, 5)
        peer.close()
    async with Running(folder) as broker:
        assert broker.topics.log("t", 0).log_start_offset == 5


async def test_producer_ids_are_never_given_twice(folder: Path) -> None:
    async def ids(count: int) -> list[int]:
        async with Running(folder) as broker:
            peer = await Peer.of(broker)
            request = init.InitProducerIdRequest(transactional_id=None)
            given = [await peer.ask(request, 4, init.InitProducerIdResponse) for _ in range(count)]
            peer.close()
            return [each.producer_id for each in given]

    assert await ids(1003) == list(range(1003))  # more than a block
    assert await ids(2) == [2000, 2001]


async def test_topics_that_are_made_at_the_same_time_are_all_made_once(folder: Path) -> None:
    async with Running(folder) as broker:
        peers = [await Peer.of(broker) for _ in range(4)]
        made = await asyncio.gather(*(make(each, admin_steps.topic("t", 5)) for each in peers))
        assert sorted(made) == [[0], [36], [36], [36]]
        assert len(broker.logs.logs) == 5
        for each in peers:
            each.close()


@pytest.mark.parametrize("kind", [1, 2])
def test_the_cluster_is_its_brokers(folder: Path, kind: int) -> None:
    async def work() -> cluster.DescribeClusterResponse:
        async with Running(folder, {"broker.id": "7", "broker.rack": "attic"}) as broker:
            peer = await Peer.of(broker)
            request = cluster.DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=kind)
            found = await peer.ask(request, 1, cluster.DescribeClusterResponse)
            peer.close()
            if kind == 1:
                assert found.cluster_id == broker.cluster_id
                assert [(each.broker_id, each.rack) for each in found.brokers] == [(7, "attic")]
                assert found.brokers[0].port == next(iter(broker.ports.values()))
            return found

    assert run(work()).error_code == (0 if kind == 1 else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)


async def test_a_topic_is_deleted_while_it_is_compacted_or_synced_and_the_disk_is_not_to_blame(folder: Path) -> None:
    given = {"log.initial.task.delay.ms": "100000"}
    async with Running(folder, given) as broker, Client(address(broker)) as client:
        peer = await Peer.of(broker)
        own = ("cleanup.policy", "compact"), ("segment.bytes", "2000"), ("min.cleanable.dirty.ratio", "0")
        await make(peer, admin_steps.topic("t", 1, 1, *own))
        records = [Record(0, 1, 0, b"%d" % (each % 7), bytes(100)) for each in range(400)]
        await send(client, "t", 0, records, ProduceOptions(batch_bytes=500))
        maintenance = background_of(broker).maintenance()
        maintenance.step(1, Moment.fixed(broker.clock.now_ms()))  # retention comes first
        maintenance.step(1, Moment.fixed(broker.clock.now_ms()))
        assert maintenance.progress is not None
        request = delete.DeleteTopicsRequest(topic_names=["t"])
        assert (await peer.ask(request, 4, delete.DeleteTopicsResponse)).responses[0].error_code == 0
        assert maintenance.progress is None
        assert await make(peer, admin_steps.topic("t", 1, 1, *own)) == [0]
        maintenance.step(1 << 20, Moment.fixed(broker.clock.now_ms()))
        assert broker.logs.health.error is None
        peer.close()


def background_of(broker: Broker) -> Background:
    assert broker._background is not None
    return broker._background


def test_a_fetch_that_waits_for_records_of_a_deleted_topic_is_answered_at_once(folder: Path) -> None:
    async def work() -> int:
        async with Running(folder) as broker:
            peer, other = await Peer.of(broker), await Peer.of(broker)
            await make(peer, admin_steps.topic("t"))
            part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            wanted = FetchRequest(
                replica_id=-1, max_wait_ms=50_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[part])]
            )
            waiting = asyncio.create_task(other.ask(wanted, 4, FetchResponse))
            partition = broker.replicas.partition("t", 0)
            while not partition.waiting:
                await asyncio.sleep(0)
            request = delete.DeleteTopicsRequest(topic_names=["t"])
            assert (await peer.ask(request, 4, delete.DeleteTopicsResponse)).responses[0].error_code == 0
            found = await waiting
            peer.close()
            other.close()
            return found.responses[0].partitions[0].error_code

    assert run(work(), 40) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def metadata_of(peer: Peer, name: str, version: int) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    (found,) = (await peer.ask(request, version, MetadataResponse)).topics
    return found


@pytest.mark.parametrize("version", [0, 1, 4, 12])
async def test_a_topic_that_is_made_by_asking_for_it_has_no_leader_in_that_answer_and_one_in_the_next(
    version: int, folder: Path
) -> None:
    async with Running(folder, {"num.partitions": "2"}) as broker:
        peer = await Peer.of(broker)
        for name, is_internal in (("topic", False), ("__consumer_offsets", version > 0)):
            made = await metadata_of(peer, name, version)
            assert (made.error_code, made.name, made.partitions) == (5, name, [])
            assert made.is_internal == is_internal
            found = await metadata_of(peer, name, version)
            assert (found.error_code, len(found.partitions)) == (0, broker.topics.known(name).partitions)
        await peer.ask(delete.DeleteTopicsRequest(topic_names=["topic"]), 3, delete.DeleteTopicsResponse)
        again = await metadata_of(peer, "topic", version)
        assert (again.error_code, again.partitions) == (5, [])
        peer.close()


async def test_an_empty_list_of_settings_asks_for_all_as_none_does(folder: Path) -> None:
    async with Running(folder) as broker:
        await broker.topics.create("topic")
        peer = await Peer.of(broker)
        for keys in (None, [], ["retention.ms"]):
            resource = describe.DescribeConfigsResource(
                resource_type=TOPIC, resource_name="topic", configuration_keys=keys
            )
            request = describe.DescribeConfigsRequest(resources=[resource])
            (found,) = (await peer.ask(request, 4, describe.DescribeConfigsResponse)).results
            assert {each.name for each in found.configs} == set(keys or TOPIC_SETTINGS)
        peer.close()


async def test_nothing_waits_for_the_metadata_tree_on_the_event_loop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cluster it is elsewhere."""
    row = rescram.ScramCredentialUpsertion(name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")
    gone = rescram.ScramCredentialDeletion(name="a", mechanism=1)
    entity = quotas.AlterClientQuotasRequestEntityData(entity_type="user", entity_name="a")
    rate = quotas.OpData(key="producer_byte_rate", value=1e9)
    entry = quotas.AlterClientQuotasRequestEntryData(entity=[entity], ops=[rate])
    part = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    offset = commit.OffsetCommitRequestTopic(name="t", partitions=[part])
    wanted = committed.OffsetFetchRequestTopic(name="t", partition_indexes=(0,))

    async with Running(folder) as broker:
        peer, calls = await Peer.of(broker), set[tuple[str, bool]]()
        loop_thread = threading.get_ident()

        def noted(name: str) -> Callable[..., Any]:
            real = getattr(broker.metadata, name)

            def call(*given: Any, **named: Any) -> Any:
                calls.add((name, threading.get_ident() == loop_thread))
                return real(*given, **named)

            return call

        for name in ("get", "exists", "children", "get_many", "children_many", "create", "set", "transaction"):
            monkeypatch.setattr(broker.metadata, name, noted(name))
        assert await make(peer, create.CreatableTopic(name="t", num_partitions=1, replication_factor=1)) == [0]
        assert await change(peer, TOPIC, "t", ("retention.ms", SET, "-1")) == 0
        assert await change(peer, BROKER, str(broker.node_id), ("message.max.bytes", SET, "5000")) == 0
        asked = quotas.AlterClientQuotasRequest(entries=[entry])
        assert (await peer.ask(asked, 1, quotas.AlterClientQuotasResponse)).entries[0].error_code == 0
        for changes in ({"upsertions": [row]}, {"deletions": [gone]}, {"upsertions": [row]}):
            altered = rescram.AlterUserScramCredentialsRequest(**changes)
            told = await peer.ask(altered, 0, rescram.AlterUserScramCredentialsResponse)
            assert told.results[0].error_code == 0
        await asyncio.to_thread(broker.metadata.create, layout.config_path("users", "damaged"), b"no JSON")
        await broker.cluster_store.reread([("users", "damaged")])  # as after the notification of a change
        every = scram.DescribeUserScramCredentialsRequest(users=None)
        users = (await peer.ask(every, 0, scram.DescribeUserScramCredentialsResponse)).results
        assert [(each.user, each.error_code) for each in users] == [("a", 0), ("damaged", -1)]
        stored = commit.OffsetCommitRequest(group_id="g", topics=[offset])
        for _ in range(2):
            await peer.ask(stored, 0, commit.OffsetCommitResponse)
        fetched = committed.OffsetFetchRequest(group_id="g", topics=[wanted])
        found = (await peer.ask(fetched, 0, committed.OffsetFetchResponse)).topics[0].partitions[0]
        assert found.committed_offset == 7
        assert calls
        assert {name for name, is_on_loop in calls if is_on_loop} == set()
        peer.close()
