"""Clusters of several brokers in one process, on one tree in memory: real sockets, real files, real clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.offsets import bounds
from magicbyte.access.clock import SystemClock
from magicbyte.engine.ports import MetadataStore, SessionListener, WritableFileSystem
from magicbyte.server.broker.broker import Broker
from magicbyte.server.metadata.on_loop import OpenSession
from magicbyte.server.partitions.partition import ServedPartition
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.testing.tree import SimulatedSession, SimulatedTree
from server.broker.serving import KEEP_ALL

QUICK = {
    **KEEP_ALL,
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "replica.fetch.wait.max.ms": "50",
    "replica.fetch.backoff.ms": "20",
    "controlled.shutdown.retry.backoff.ms": "50",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "auto.leader.rebalance.enable": "false",  # leaders stay where a test has put them: the first check comes after 5 s
}
PATIENCE_S = 120


class Members:
    """The brokers of a cluster, by number. `settings` are those of all."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.folder, self.settings = folder, {**QUICK, **(settings or {})}
        self.tree = SimulatedTree(SystemClock())
        self.brokers: dict[int, Broker] = {}
        self.sessions: dict[int, SimulatedSession] = {}

    async def start(self, broker_id: int, files: WritableFileSystem | None = None, **settings: str) -> Broker:
        """Start a broker, for the first time or again."""
        own = {name.replace("_", "."): value for name, value in settings.items()}
        fixed = {"broker.id": str(broker_id), "log.dirs": str(self.folder / str(broker_id))}
        config = BrokerConfig({**self.settings, **own, **fixed})
        broker = Broker(config, files=files, session=self.session_of(broker_id))
        await broker.start()
        self.brokers[broker_id] = broker
        return broker

    def session_of(self, broker_id: int) -> OpenSession:
        def session(*, listener: SessionListener) -> MetadataStore:
            opened = self.sessions[broker_id] = self.tree.session(listener=listener)
            return opened

        return session

    async def stop(self, broker_id: int) -> None:
        """Stop a broker as an operator does."""
        await self.brokers.pop(broker_id).stop()

    async def kill(self, broker_id: int) -> None:
        """End a broker as a crash does; its session expires at once."""
        await self.brokers.pop(broker_id).abort()
        self.tree.cut(self.sessions[broker_id])
        self.tree.expire_session(self.sessions[broker_id])

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{each.ports['PLAINTEXT']}" for each in self.brokers.values())

    def leaders(self, topic: str, index: int = 0) -> list[Broker]:
        """Return the brokers that take themselves for the leader of a partition now."""
        return [each for each in self.brokers.values() if (found := self.replica(each, topic, index)) and found.leader]

    def leader(self, topic: str, index: int = 0) -> Broker:
        """Return the broker that leads a partition now: one without the news of its successor has an older epoch."""
        return max(self.leaders(topic, index), key=lambda each: self._epoch(each, topic, index))

    def _epoch(self, broker: Broker, topic: str, index: int) -> int:
        partition = self.replica(broker, topic, index)
        assert partition is not None
        return partition.led().state.leader_epoch

    @staticmethod
    def replica(broker: Broker, topic: str, index: int = 0) -> ServedPartition | None:
        return broker.replicas.partitions.get((topic, index))

    def isr(self, topic: str, index: int = 0) -> set[int]:
        """Return the in-sync replicas that the leader knows, none while there is no leader."""
        if not self.leaders(topic, index):
            return set()
        partition = self.replica(self.leader(topic, index), topic, index)
        assert partition is not None
        return set(partition.led().state.isr)

    def is_settled(self, topic: str, index: int = 0) -> bool:
        """Whether every broker has a replica in sync that ends as the leader's does, and knows that all is committed.

        In sync is less: a follower learns the high watermark with its next fetch, and one whose records have no leader
        epoch cuts its log there when the leader changes (KIP-101).
        """
        if not self.leaders(topic, index) or self.isr(topic, index) != set(self.brokers):
            return False
        end = self.leader(topic, index).replicas.partitions[(topic, index)].log.log_end_offset
        logs = [found.log for each in self.brokers.values() if (found := self.replica(each, topic, index)) is not None]
        return all(each.high_watermark == each.log_end_offset == end for each in logs) and len(logs) == len(
            self.brokers
        )

    def contents(self, topic: str, index: int = 0) -> dict[int, bytes]:
        """Return the bytes of each replica's log."""
        return {
            number: b"".join(each.log.read_at(0, each.size) for each in found.log.segments)
            for number, broker in self.brokers.items()
            if (found := self.replica(broker, topic, index)) is not None
        }


@asynccontextmanager
async def cluster(folder: Path, brokers: int = 3, **settings: str) -> AsyncIterator[Members]:
    """Give a cluster whose brokers are 1 and so on."""
    members = Members(folder, {name.replace("_", "."): value for name, value in settings.items()})
    try:
        for number in range(1, brokers + 1):
            await members.start(number)
        numbers = list(range(1, brokers + 1))
        await until(lambda: all(each.cluster_view.broker_ids() == numbers for each in members.brokers.values()))
        yield members
    finally:
        for broker in list(members.brokers.values()):
            await broker.abort()


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that the brokers bring about by themselves."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def make(members: Members, client: Client, factor: int = 3, partitions: int = 1, **configs: str) -> None:
    """Make topic t, and wait until its leaders know that they are."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    await create_topic(client, NewTopic("t", partitions, factor, settings))
    await until(lambda: all(len(members.leaders("t", index)) == 1 for index in range(partitions)))


@asynccontextmanager
async def replicated(
    folder: Path, brokers: int = 3, *, partitions: int = 1, **settings: str
) -> AsyncIterator[tuple[Members, Client]]:
    """Give a cluster in which each broker has a replica of each partition of topic t, and a client."""
    async with cluster(folder, brokers, **settings) as members, Client(members.bootstrap) as client:
        await make(members, client, brokers, partitions)
        yield members, client


async def values(client: Client, topic: str, index: int = 0) -> list[bytes | None]:
    _, end = await bounds(client, topic, index)
    return [each.value async for columns in read_records(client, topic, index, 0, end) for each in columns]


def replicas(members: Members) -> list[ServedPartition]:
    """Return the replicas of topic t's first partition."""
    return [found for each in members.brokers.values() if (found := members.replica(each, "t")) is not None]
