"""A broker as an older release beside that release itself: clients send both the same requests in the same versions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from interop import jvm
from interop.relay import Relay, relay
from magicbyte.broker.versions import SERVED
from magicbyte.protocol import APIS
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

RELEASES = ("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2", "0.11.0.3", "2.4.1", "2.8.2", "3.9.1", "4.1.0")
ASKED_FOR = {"0.8.2.2": (0, 8, 2), "0.9.0.1": (0, 9)}
WITHOUT_AIOKAFKA = ("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2")
"""It asks for versions in any case, and sends batches of magic 2 to those that take none."""
VALUES = [b"value-%d" % number for number in range(3)]
BY_CHANCE = {12}  # Heartbeat is sent, or not, as time goes by


@contextlib.contextmanager
def theirs(release: str, folder: Path) -> Iterator[Relay]:
    front = jvm.free_port()
    told = [f"advertised.listeners=PLAINTEXT://127.0.0.1:{front}"]
    if release.startswith("0.8"):
        told = ["advertised.host.name=127.0.0.1", f"advertised.port={front}"]
    port = jvm.free_port()
    with relay(front, port) as found, jvm.broker(release, folder, *told, port=port):
        yield found


@contextlib.contextmanager
def ours(release: str) -> Iterator[Relay]:
    front = jvm.free_port()
    settings = {"as.version": release, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{front}"}
    with Broker(settings) as broker:
        ((_, port),) = broker.served.ports.items()
        with relay(front, port) as found:
            yield found


def with_confluent(bootstrap: str, release: str) -> list[bytes]:
    """Produce, and read again as a group."""
    settings = {
        "bootstrap.servers": bootstrap,
        "api.version.request": not release.startswith(("0.8", "0.9")),
        "broker.version.fallback": "0.8.2" if release.startswith("0.8") else "0.9.0",
        "enable.metrics.push": False,
    }
    producer = confluent_kafka.Producer({**settings, "acks": 1, "compression.type": "gzip", "linger.ms": 50})
    for value in VALUES:
        producer.produce("confluent", value, partition=0)
    assert producer.flush(30) == 0
    reader = {
        **settings,
        "session.timeout.ms": 10_000,
        "group.id": "confluent",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer(reader)
    if release.startswith("0.8"):
        consumer.assign([confluent_kafka.TopicPartition("confluent", 0, 0)])
    else:
        consumer.subscribe(["confluent"])
    found = []
    while len(found) < len(VALUES):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def with_kafka_python(bootstrap: str, release: str) -> list[bytes]:
    """Produce, and read again as a group. Brokers before 0.10 cannot say what they know: the client is told."""
    settings = {"bootstrap_servers": bootstrap, "api_version": ASKED_FOR.get(release)}
    producer = kafka.KafkaProducer(compression_type="gzip", enable_idempotence=False, **settings)
    for value in VALUES:
        producer.send("python", value, partition=0).get(timeout=30)
    producer.close()
    consumer = kafka.KafkaConsumer(
        group_id=None if release.startswith("0.8") else "python",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=30_000,
        session_timeout_ms=10_000,
        **settings,
    )
    if release.startswith("0.8"):
        consumer.assign([kafka.TopicPartition("python", 0)])
    else:
        consumer.subscribe(["python"])
    found = [message.value for _, message in zip(VALUES, consumer, strict=False)]
    if not release.startswith("0.8"):
        consumer.commit()
    consumer.close()
    return found


def with_aiokafka(bootstrap: str, release: str) -> list[bytes]:
    """Produce, and read again."""

    async def work() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for value in VALUES:
                await producer.send_and_wait("aiokafka", value, partition=0)
        consumer = aiokafka.AIOKafkaConsumer("aiokafka", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in VALUES]

    return asyncio.run(work())


CLIENTS = {"confluent-kafka": with_confluent, "kafka-python": with_kafka_python, "aiokafka": with_aiokafka}


def outcome(
    work: Callable[[str, str], list[bytes]], release: str, front: Relay
) -> tuple[list[bytes], set[tuple[int, int]]]:
    """Return what a client reads, and what it sent of requests that are served here."""
    front.seen.clear()
    found = work(f"127.0.0.1:{front.port}", release)
    return found, {(key, min(version, SERVED[key].versions[-1])) for key, version in front.seen if key in SERVED}


@pytest.mark.parametrize("release", RELEASES)
def test_clients_send_what_they_send_to_that_release(release: str, tmp_path: Path) -> None:
    found = []
    names = [name for name in CLIENTS if name != "aiokafka" or release not in WITHOUT_AIOKAFKA]
    for served in (theirs(release, tmp_path), ours(release)):
        with served as front:
            found.append({name: outcome(CLIENTS[name], release, front) for name in names})
    real, here = found
    for name in names:
        (read_there, theirs_sent), (read_here, ours_sent) = real[name], here[name]
        assert read_here == read_there == VALUES, name
        differ = {(APIS[key].name, version) for key, version in theirs_sent ^ ours_sent if key not in BY_CHANCE}
        assert not differ, name
