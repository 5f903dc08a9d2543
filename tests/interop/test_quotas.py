"""Quotas beside a real Kafka 2.8.2: the same requests to both; Kafka's tools and real clients against ours."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from interop import jvm, kafka_oracle
from interop.processes import Pauses
from magicbyte.access.client.connection import Connection
from magicbyte.engine.protocol import Message
from magicbyte.engine.protocol.messages import alter_client_quotas as altering
from magicbyte.engine.protocol.messages import create_topics, delete_topics
from magicbyte.engine.protocol.messages import describe_client_quotas as describing
from magicbyte.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magicbyte.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from magicbyte.engine.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.server.metadata.zookeeper import ZooKeeperStore
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

REAL: Final = "2.8.2"
SETTINGS: Final = {"auto.create.topics.enable": "true", "num.partitions": "1"}
NEAR_MS: Final = 400  # of a time to wait: two requests follow each other a little faster or slower
ATTEMPTS: Final = 3  # at what depends on how long requests take: a machine may stand still for a second
HELD_BACK_S: Final = 30  # until a client hears of it
TOLD_S: Final = 3  # until a broker has read a change, which it does not announce
PATIENCE_S: Final = 240
Entity = dict[str, str | None]


@contextlib.contextmanager
def ours(**settings: str) -> Iterator[str]:
    with Broker(SETTINGS | settings) as broker:
        yield broker.bootstrap_servers


@contextlib.contextmanager
def theirs(folder: Path) -> Iterator[str]:
    with jvm.broker(REAL, folder, *(f"{name}={value}" for name, value in SETTINGS.items()), scratch=True) as state:
        yield str(state["bootstrap"])


class Session:
    """Requests to one broker, whichever it is."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._host, _, port = bootstrap.rpartition(":")
        self._port, self._client_id = int(port), client_id

    async def ask(self, message: Message, version: int) -> Any:
        """Return the answer on a connection of its own, so that no request waits for a muted one."""
        connection = await Connection.open(self._host, self._port, client_id=self._client_id)
        try:
            return await connection.send(message, versions=range(version, version + 1))
        finally:
            await connection.aclose()

    async def until_topic(self, name: str) -> None:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        while (await self.ask(asked, 4)).topics[0].error_code:
            await asyncio.sleep(0.2)

    async def put(self, *entities: tuple[Entity, dict[str, float | None]], only: bool = False) -> list[int]:
        """Return the code of each change, in the order of the entities' texts."""
        entries = [
            altering.AlterClientQuotasRequestEntryData(
                entity=[
                    altering.AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.items()
                ],
                ops=[altering.OpData(key=key, value=value or 0, remove=value is None) for key, value in values.items()],
            )
            for entity, values in entities
        ]
        answer = await self.ask(altering.AlterClientQuotasRequest(entries=entries, validate_only=only), 1)
        told = {str([(part.entity_type, part.entity_name) for part in each.entity]): each for each in answer.entries}
        return [told[name].error_code for name in sorted(told)]

    async def told(self, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
        """Return all that a filter finds, or the code."""
        asked = [
            describing.ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components
        ]
        answer = await self.ask(describing.DescribeClientQuotasRequest(components=asked, strict=strict), 1)
        if answer.error_code:
            return answer.error_code
        return sorted(
            (
                sorted((part.entity_type, str(part.entity_name)) for part in each.entity),
                sorted((one.key, one.value) for one in each.values),
            )
            for each in answer.entries
        )


ENTITIES: Final[list[tuple[Entity, dict[str, float | None]]]] = [
    ({"user": "a b*~"}, {"producer_byte_rate": 1024, "request_percentage": 12.5}),
    ({"user": None}, {"consumer_byte_rate": 2048}),
    ({"user": "a b*~", "client-id": "c/d"}, {"producer_byte_rate": 1}),
    ({"user": None, "client-id": None}, {"controller_mutation_rate": 0.001}),
    ({"client-id": "c/d"}, {"request_percentage": 1e20}),
    ({"client-id": None}, {"producer_byte_rate": 0}),
    ({"ip": "10.0.0.1"}, {"connection_creation_rate": 7}),
    ({"ip": None}, {"connection_creation_rate": 100_000}),
]
BAD: Final[list[tuple[Entity, dict[str, float | None]]]] = [
    ({}, {"producer_byte_rate": 1}),
    ({"user": ""}, {"producer_byte_rate": 1}),
    ({"group": "g"}, {"producer_byte_rate": 1}),
    ({"ip": "10.0.0.1", "user": "a"}, {"connection_creation_rate": 1}),
    ({"ip": "::1"}, {"connection_creation_rate": 1}),
    ({"user": "foo"}, {"foo": 1}),
    ({"user": "wrong key"}, {"connection_creation_rate": 1}),
    ({"ip": "10.0.0.9"}, {"producer_byte_rate": 1}),
    ({"user": "fraction"}, {"producer_byte_rate": 10.5}),
    ({"user": "negative"}, {"producer_byte_rate": -1}),
    ({"user": "negative time"}, {"request_percentage": -5}),
    ({"user": "scram"}, {"SCRAM-SHA-256": 1}),
    ({"user": "gone"}, {"foo": None, "producer_byte_rate": None}),
    ({"user": "nothing"}, {}),
]
FILTERS: Final[list[tuple[list[tuple[str, int, str | None]], bool]]] = [
    ([], False), ([], True),
    ([("user", 0, "a b*~")], False), ([("user", 0, "a b*~")], True), ([("user", 1, None)], True),
    ([("user", 2, None)], False), ([("user", 2, None), ("client-id", 2, None)], True),
    ([("client-id", 0, "c/d")], False), ([("client-id", 1, None)], True),
    ([("ip", 0, "10.0.0.1")], False), ([("ip", 1, None)], True), ([("ip", 2, None)], False),
    ([("group", 0, "g")], False), ([("", 0, "g")], False), ([("user", 0, "a"), ("user", 1, None)], False),
    ([("ip", 0, "10.0.0.1"), ("user", 1, None)], False), ([("user", 3, None)], False), ([("user", 0, None)], False),
]  # fmt: skip


async def codes(bootstrap: str) -> dict[str, Any]:
    session = Session(bootstrap, "codes")
    found: dict[str, Any] = {"good": await session.put(*ENTITIES), "checked": await session.put(*ENTITIES, only=True)}
    for number, each in enumerate(BAD):
        found[f"bad {number}"] = await session.put(each)
    for components, strict in FILTERS:
        found[f"{components} {strict}"] = await session.told(*components, strict=strict)
    taken = [(entity, dict.fromkeys(values)) for entity, values in ENTITIES]
    found["taken"] = await session.put(*taken)
    await session.put(({"user": "negative time"}, {"request_percentage": None}))
    found["left"] = await session.told()
    return found


def test_codes_and_filters_are_those_of_a_real_broker(tmp_path: Path) -> None:
    with ours() as bootstrap:
        here = asyncio.run(asyncio.wait_for(codes(bootstrap), PATIENCE_S))
    with theirs(tmp_path) as bootstrap:
        there = asyncio.run(asyncio.wait_for(codes(bootstrap), PATIENCE_S))
    assert {name: (here[name], there[name]) for name in here if here[name] != there[name]} == {}


def produced(size: int) -> ProduceRequest:
    data = encode_records([Record(0, 1_700_000_000_000, 0, None, b"x" * size)], Format.V2)
    part = PartitionProduceData(index=0, records=data)
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name="t", partition_data=[part])])


def fetched(offset: int) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[part])])


def topics(*sizes: int, prefix: str) -> create_topics.CreateTopicsRequest:
    made = [
        create_topics.CreatableTopic(name=f"{prefix}-{number}", num_partitions=size, replication_factor=1)
        for number, size in enumerate(sizes)
    ]
    return create_topics.CreateTopicsRequest(topics=made, timeout_ms=30_000)


async def waits(bootstrap: str) -> dict[str, list[int]]:
    """Return for each situation codes and sizes, and last the time to wait."""
    session, found = Session(bootstrap, "writer"), dict[str, list[int]]()
    await session.until_topic("t")
    for size in (5000, 5000, 5000):
        await session.ask(produced(size), 7)
    await session.put(({"client-id": "writer"}, {"producer_byte_rate": 1000}))
    await asyncio.sleep(TOLD_S)
    for version in (7, 2):
        answer = await session.ask(produced(15_000) if version == 7 else _old(15_000), version)
        code = answer.responses[0].partition_responses[0].error_code
        found[f"produce {version}"] = [code, answer.throttle_time_ms]

    reader = Session(bootstrap, "reader")
    await session.put(({"user": "ANONYMOUS", "client-id": "reader"}, {"consumer_byte_rate": 1000}))
    await asyncio.sleep(TOLD_S)
    for number, offset in enumerate((0, 1)):  # of later ones a slow machine has paid off more
        answer = await reader.ask(fetched(offset), 4)
        parts = [part for topic in answer.responses for part in topic.partitions]
        found[f"fetch {number}"] = [answer.error_code, len(parts), answer.throttle_time_ms]

    maker = Session(bootstrap, "maker")
    await session.put(({"user": "ANONYMOUS", "client-id": "maker"}, {"controller_mutation_rate": 1}))
    await asyncio.sleep(TOLD_S)
    answer = await maker.ask(topics(60, prefix="first"), 6)  # so many that a slow broker owes some after it, too
    found["60 partitions"] = [*(each.error_code for each in answer.topics), answer.throttle_time_ms]
    answer = await maker.ask(topics(1, prefix="refused"), 6)
    found["refused"] = [*(each.error_code for each in answer.topics), 0]
    answer = await maker.ask(topics(5, prefix="lenient"), 5)
    found["lenient"] = [*(each.error_code for each in answer.topics), answer.throttle_time_ms]
    gone = delete_topics.DeleteTopicsRequest(topic_names=["first-0"], timeout_ms=30_000)
    answer = await maker.ask(gone, 5)
    found["deletion refused"] = [*(each.error_code for each in answer.responses), 0]
    answer = await maker.ask(gone, 4)
    found["deletion"] = [*(each.error_code for each in answer.responses), answer.throttle_time_ms]

    slow = Session(bootstrap, "slow")
    await session.put(({"user": "ANONYMOUS", "client-id": "slow"}, {"request_percentage": 1e-9}))
    await asyncio.sleep(TOLD_S)
    found["time"] = [(await slow.ask(MetadataRequest(topics=[]), 4)).throttle_time_ms]
    return found


def _old(size: int) -> ProduceRequest:
    request = produced(0)
    data = encode_records([Record(0, 1_700_000_000_000, 0, None, b"x" * size)], Format.V1)
    request.topic_data[0].partition_data[0].records = data
    return request


def test_clients_are_held_back_for_as_long_as_by_a_real_broker(tmp_path: Path) -> None:
    far = dict[str, tuple[list[int], list[int]]]()
    for attempt in range(ATTEMPTS):
        with Pauses() as pauses:
            with ours() as bootstrap:
                here = asyncio.run(asyncio.wait_for(waits(bootstrap), PATIENCE_S))
            with theirs(tmp_path / str(attempt)) as bootstrap:
                there = asyncio.run(asyncio.wait_for(waits(bootstrap), PATIENCE_S))
        # a real broker that is slow may see its rate 1 ms above the quota
        expected = {name: pytest.approx(each[:-1], abs=1) for name, each in there.items()}
        if pauses.were_long and attempt + 1 < ATTEMPTS:  # a quota may not have been known yet
            continue
        assert {name: each[:-1] for name, each in here.items()} == expected
        limits = {name: max(NEAR_MS, there[name][-1] // 10) for name in there}
        far = {name: (here[name], there[name]) for name in here if abs(here[name][-1] - there[name][-1]) > limits[name]}
        if not far:
            break
    assert far == {}


VERSIONS_ASKED: Final = bytes.fromhex("0000000b0012000000000001000163")


async def served(bootstrap: str) -> int:
    """Return how many of 15 connections at once are served, at a rate of one a second; the others are closed."""
    session = Session(bootstrap, "many")
    await session.put(({"ip": "127.0.0.1"}, {"connection_creation_rate": 1}))
    await asyncio.sleep(13)  # until no earlier connection counts
    host, _, port = bootstrap.rpartition(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(15)]
    count = 0
    for reader, writer in opened:
        with contextlib.suppress(ConnectionError):
            writer.write(VERSIONS_ASKED)
            count += bool(await reader.read(4))
        writer.close()
    return count


def test_82_connections_beyond_the_rate_of_an_address_are_closed_as_by_a_real_broker(tmp_path: Path) -> None:
    async def both(*addresses: str) -> list[int]:
        return await asyncio.wait_for(asyncio.gather(*map(served, addresses)), PATIENCE_S)

    for attempt in range(ATTEMPTS):
        with ours() as our_address, theirs(tmp_path / str(attempt)) as their_address:
            here, there = asyncio.run(both(our_address, their_address))
        if here == there == 10:
            break
    assert here == there == 10


# ---- Kafka's tools


def tool(release: str, *words: str) -> str:
    command = kafka_oracle.tool_command(release, "kafka.admin.ConfigCommand", list(words))
    done = subprocess.run(command, capture_output=True, text=True, timeout=jvm.SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("release", [pytest.param("2.8.2", marks=pytest.mark.campaign), "3.9.1"])
def test_kafka_configs_sets_and_tells_quotas(release: str) -> None:
    kafka_oracle.fetch(release)
    with ours() as bootstrap:
        reached = ("--bootstrap-server", bootstrap)
        alice = (*reached, "--entity-type", "users", "--entity-name", "alice b")
        tool(release, *reached, "--alter", "--entity-type", "users", "--entity-name", "alice b", "--add-config",
             "producer_byte_rate=1024,request_percentage=12.5")  # fmt: skip
        assert "Quota configs for user-principal 'alice b' are" in (told := tool(release, *alice, "--describe"))
        assert "producer_byte_rate=1024.0" in told
        assert "request_percentage=12.5" in told
        default = (*reached, "--entity-type", "clients", "--entity-default")
        tool(release, *default, "--alter", "--add-config", "consumer_byte_rate=2048")
        assert "consumer_byte_rate=2048.0" in tool(release, *default, "--describe")
        address = (*reached, "--entity-type", "ips", "--entity-name", "10.0.0.1")
        tool(release, *address, "--alter", "--add-config", "connection_creation_rate=7")
        assert "connection_creation_rate=7.0" in tool(release, *address, "--describe")
        tool(release, *alice, "--alter", "--delete-config", "producer_byte_rate,request_percentage")
        assert "producer_byte_rate" not in tool(release, *alice, "--describe")


def test_kafka_configs_sets_quotas_through_zookeeper(tmp_path: Path) -> None:
    port = jvm.free_port()
    pid = kafka_oracle.start_zookeeper(REAL, tmp_path, port, jvm.SECONDS)
    zookeeper = f"127.0.0.1:{port}"
    try:
        with ours(**{"zookeeper.connect": zookeeper, "listeners": "PLAINTEXT://127.0.0.1:0"}) as bootstrap:
            tool(REAL, "--zookeeper", zookeeper, "--alter", "--entity-type", "clients", "--entity-name", "writer",
                 "--add-config", "producer_byte_rate=1000")  # fmt: skip

            async def held_back() -> None:
                session = Session(bootstrap, "writer")
                await session.until_topic("t")
                while not (await session.ask(produced(15_000), 7)).throttle_time_ms:
                    await asyncio.sleep(0.2)
                assert await session.put(({"user": "new"}, {"consumer_byte_rate": 5})) == [0]

            asyncio.run(asyncio.wait_for(held_back(), PATIENCE_S))
            told = tool(REAL, "--zookeeper", zookeeper, "--describe", "--entity-type", "users", "--entity-name", "new")
            assert "consumer_byte_rate=5" in told
            with contextlib.closing(ZooKeeperStore(zookeeper)) as store:
                assert store.get("/config/users/new").data == b'{"version":1,"config":{"consumer_byte_rate":"5"}}'
    finally:
        kafka_oracle.stop_process(pid, tmp_path, 15)


# ---- real clients


def throttled(bootstrap: str) -> list[float]:
    """Return for how many seconds librdkafka says that it was held back."""

    async def prepare() -> None:
        session = Session(bootstrap, "other")
        await session.until_topic("t")
        await session.put(({"client-id": "rdkafka"}, {"producer_byte_rate": 1000}))
        await asyncio.sleep(TOLD_S)

    asyncio.run(asyncio.wait_for(prepare(), PATIENCE_S))
    found = list[float]()
    client = Producer(
        {
            "bootstrap.servers": bootstrap, "client.id": "rdkafka", "linger.ms": 0,
            "throttle_cb": lambda event: found.append(event.throttle_time),
        }
    )  # fmt: skip
    client.produce("t", b"x" * 15_000)
    assert client.flush(PATIENCE_S) == 0
    end = time.monotonic() + HELD_BACK_S
    while not found and time.monotonic() < end:
        client.poll(0.1)
    return found


def test_librdkafka_is_held_back_for_as_long_as_by_a_real_broker(tmp_path: Path) -> None:
    here = there = list[float]()
    for attempt in range(ATTEMPTS):
        with Pauses() as pauses:
            with ours() as bootstrap:
                here = throttled(bootstrap)
            with theirs(tmp_path / str(attempt)) as bootstrap:
                there = throttled(bootstrap)
        if not pauses.were_long:
            break
    assert len(here) == 1
    assert here == pytest.approx(there, abs=0.2)


@pytest.mark.parametrize("release", ["2.8.2", "3.9.1"])
def test_a_java_producer_tells_how_long_it_was_held_back(release: str) -> None:
    kafka_oracle.fetch(release)
    with ours() as bootstrap:

        async def prepare() -> None:
            session = Session(bootstrap, "other")
            await session.until_topic("t")
            await session.put(({"client-id": "perf-producer-client"}, {"producer_byte_rate": 2000}))

        asyncio.run(asyncio.wait_for(prepare(), PATIENCE_S))
        words = [
            "--topic", "t", "--num-records", "1", "--record-size", "30000", "--throughput", "-1", "--print-metrics",
            "--producer-props", f"bootstrap.servers={bootstrap}", "client.id=perf-producer-client",
        ]  # fmt: skip
        command = kafka_oracle.tool_command(release, "org.apache.kafka.tools.ProducerPerformance", words)
        done = subprocess.run(command, capture_output=True, text=True, timeout=jvm.SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        (line,) = [each for each in done.stdout.splitlines() if "produce-throttle-time-max" in each]
        assert 5000 <= float(line.rpartition(":")[2]) <= 5400
