"""Our broker and a real one in one cluster: under either controller, as leader and follower, through crashes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from builders import run
from interop import jvm, kafka_oracle
from interop.real_cluster import RealCluster, until
from magicbyte.access.client import Client
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files.directory import LOG
from magicbyte.engine.records.columns import Record
from magicbyte.server.broker.broker import Broker
from magicbyte.server.partitions.partition import ServedPartition
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.znodes import layout

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

REAL, OURS = 0, 7
PARTITIONS = 2


class Ours:
    """Our broker. Its directory stays from start to start."""

    def __init__(self, cluster: RealCluster, folder: Path, protocol: str, stored: str) -> None:
        self._cluster, self._folder = cluster, folder / "ours"
        self._settings = {
            "broker.id": str(OURS),
            "log.dirs": str(self._folder),
            "listeners": f"PLAINTEXT://{kafka_oracle.LOOPBACK}:0",
            "zookeeper.connect": cluster.zookeeper,
            "zookeeper.session.timeout.ms": "20000",
            "inter.broker.protocol.version": protocol,
            "log.message.format.version": stored,
            "replica.lag.time.max.ms": "5000",
            "log.retention.ms": "-1",  # records of 1970
        }
        self.served: Broker

    async def start(self, protocol: str | None = None) -> None:
        path = layout.broker_path(OURS)
        await until(lambda: self._cluster.is_gone(path), "our session of before has ended")
        if protocol is not None:
            self._settings["inter.broker.protocol.version"] = protocol
        self.served = Broker(BrokerConfig(self._settings))
        await self.served.start()

    async def knows_both(self) -> bool:
        return self.served.cluster_view.broker_ids() == [REAL, OURS]

    async def is_controller(self) -> bool:
        return self.served.cluster_view.controller_id == OURS

    @property
    def bootstrap(self) -> str:
        return f"{kafka_oracle.LOOPBACK}:{self.served.ports['PLAINTEXT']}"

    def partition(self, index: int) -> ServedPartition | None:
        return self.served.replicas.partitions.get(("t", index))

    def stored(self, index: int) -> bytes:
        return stored(self._folder, index)


def stored(folder: Path, index: int) -> bytes:
    """Return the bytes of a partition's log, wherever it lies below a folder."""
    (found,) = folder.rglob(f"t-{index}")
    return b"".join(each.read_bytes() for each in sorted(found.glob(f"*{LOG}")))


@asynccontextmanager
async def mixed(release: str, protocol: str, stored_as: str, folder: Path) -> AsyncIterator[tuple[RealCluster, Ours]]:
    settings = f"inter.broker.protocol.version={protocol}", f"log.message.format.version={stored_as}"
    cluster = RealCluster(release, folder, *settings, "controlled.shutdown.enable=true", jvm.SHORT_SESSION)
    async with cluster.running():
        ours = Ours(cluster, folder, protocol, stored_as)
        await cluster.start(REAL)
        await ours.start()
        try:
            yield cluster, ours
        finally:
            await ours.served.abort()


def test_a_broker_that_speaks_a_later_protocol_than_an_old_leader_knows(tmp_path: Path) -> None:
    """KIP-31's order of steps is broken: ours fetches with version 2 from a broker of 0.9, which knows 0 and 1.

    Such a broker reads the request, and answers as to version 1: the bytes are the same.
    """

    async def work() -> None:
        async with mixed("0.9.0.1", "0.9.0", "0.9.0", tmp_path) as (cluster, ours):
            await until(ours.knows_both, "the real controller has told of both brokers")
            await ours.served.topics.create("t", None, None, assignments={0: [REAL, OURS]})
            await until(lambda: cluster.is_led("t", REAL, REAL, OURS), "the topic is there")
            await ours.served.stop()
            await until(lambda: cluster.is_led("t", REAL, REAL), "ours has left")
            await ours.start("0.10.0")
            await produce(cluster.bootstrap, 0, Codec.NONE, partitions=1)
            await until(lambda: cluster.is_led("t", REAL, REAL, OURS), "ours is in sync")
            assert ours.stored(0) == stored(tmp_path / f"broker-{REAL}", 0)

    run(work(), 600)


async def produce(bootstrap: str, first: int, codec: Codec, *, partitions: int = PARTITIONS) -> None:
    """Produce ten records to each partition with acks=all."""
    async with Client(bootstrap, retry_ms=60_000) as client:
        for index in range(partitions):
            records = [Record(0, 1000 + at, 0, b"key %d" % at, b"value %d" % at) for at in range(first, first + 10)]
            await send(client, "t", index, records, ProduceOptions(codec=codec))


async def consumed(bootstrap: str, index: int) -> list[bytes | None]:
    async with Client(bootstrap, retry_ms=60_000) as client:
        _, end = await bounds(client, "t", index)
        return [each.value async for some in read_records(client, "t", index, 0, end) for each in some]


@pytest.mark.parametrize(
    ("release", "protocol", "stored_as"),
    [
        ("0.9.0.1", "0.9.0", "0.9.0"),
        pytest.param("0.10.2.2", "0.10.2", "0.10.2", marks=pytest.mark.campaign),
        pytest.param("0.11.0.3", "0.11.0", "0.11.0", marks=pytest.mark.campaign),
        pytest.param("2.8.2", "2.6", "0.10.2", marks=pytest.mark.campaign),
        ("2.8.2", "2.8", "2.8"),
    ],
)
def test_leadership_and_the_controller_move_both_ways_and_replicas_stay_equal(
    release: str, protocol: str, stored_as: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with mixed(release, protocol, stored_as, tmp_path) as (cluster, ours):
            real = tmp_path / f"broker-{REAL}"

            async def in_sync() -> bool:
                states = [await cluster.state("t", index) for index in range(PARTITIONS)]
                return all(each is not None and set(each.isr) == {REAL, OURS} for each in states)

            async def led_by(broker_id: int) -> bool:
                states = [await cluster.state("t", index) for index in range(PARTITIONS)]
                return all(each is not None and each.leader == broker_id for each in states)

            async def equal() -> bool:
                return all(ours.stored(index) == stored(real, index) for index in range(PARTITIONS))

            await until(ours.knows_both, "the real controller has told of both brokers")
            await ours.served.topics.create("t", PARTITIONS, 2)  # each leads one
            await until(in_sync, "the topic is there")
            both = f"{cluster.bootstrap},{ours.bootstrap}"
            await produce(both, 0, Codec.NONE)
            await produce(both, 10, Codec.GZIP)
            await until(equal, "replicas are equal under the real controller")

            await cluster.stop(REAL)  # hands over: ours is leader and controller
            await until(lambda: led_by(OURS), "ours leads")
            await produce(ours.bootstrap, 20, Codec.GZIP)
            await until(ours.is_controller, "ours is the controller")
            await cluster.start(REAL)
            await until(in_sync, "the real broker follows ours, under our controller")
            await until(equal, "replicas are equal under our controller")

            await ours.served.stop()  # hands over: the real broker is leader and controller
            await until(lambda: led_by(REAL), "the real broker leads")
            await produce(cluster.bootstrap, 30, Codec.NONE)
            await ours.start()
            await until(in_sync, "ours follows again")
            await until(equal, "replicas are equal again")

            await cluster.stop(REAL, kill=True)  # ours is the only one in sync
            await until(lambda: led_by(OURS), "ours leads behind a crash")
            await produce(ours.bootstrap, 40, Codec.NONE)
            await cluster.start(REAL)
            await until(in_sync, "the crashed broker is back in sync")
            await until(equal, "replicas are equal behind a crash")
            for index in range(PARTITIONS):
                wanted = [b"value %d" % at for at in range(50)]
                found = await consumed(ours.bootstrap, index)
                assert list(dict.fromkeys(found)) == wanted  # a producer that is not idempotent may repeat itself
                assert await consumed(cluster.bootstrap, index) == found

    run(work(), 600)
