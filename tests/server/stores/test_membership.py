"""A third kind of metadata, neither a file of nodes nor ZooKeeper: the broker needs no change for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic, delete_topic, describe_cluster
from magicbyte.access.client.produce import new_producer_id, send
from magicbyte.engine.cluster.brokers import RegisteredBroker, Registration
from magicbyte.engine.cluster.changes import BrokerRegistered, ClusterChange, ControllerChanged, apply_all, difference
from magicbyte.engine.cluster.image import ClusterImage
from magicbyte.engine.cluster.store import Subscriber
from magicbyte.engine.ports import TopicPartition
from magicbyte.server.broker import broker as module
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.lone_controller import LoneController
from magicbyte.server.stores.topic_control import OwnTopics
from magicbyte.server.stores.topics import Topics
from server.broker.builders import records
from server.broker.serving import Running


class LogStore:
    """A `ClusterStore` whose image is the fold of a list of changes, which survives its brokers."""

    has_topic_ids = True

    def __init__(self, log: list[ClusterChange]) -> None:
        self._log, self._subscribers = log, list[Subscriber]()
        self.image = apply_all(ClusterImage(), log, len(log))

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)
        subscriber(self.image, difference(ClusterImage(), self.image))

    async def propose(self, changes: Sequence[ClusterChange], _seen: ClusterImage) -> ClusterImage:
        self._log += changes
        self.image = apply_all(self.image, changes, len(self._log))
        for subscriber in self._subscribers:
            subscriber(self.image, changes)
        return self.image

    async def register(self, broker_id: int, registration: Registration) -> int:
        epoch = len(self._log)
        await self.propose([BrokerRegistered(RegisteredBroker(broker_id, epoch, registration))], self.image)
        return epoch

    def readable(self, settings: Mapping[str, str]) -> dict[str, str]:
        return dict(settings)


class LogMembership:
    """The only broker of a cluster whose metadata is a log. It lacks what brokers with others ask for."""

    broker_epoch, takes_orders, cluster_id, metadata = -1, False, "of-a-log", None

    def __init__(self, config: BrokerConfig, log: list[ClusterChange]) -> None:
        self.offer, self._log, self.calls = config.offer, log, list[str]()

    async def open(self, runtime: Any, _threads: object, _path: str, _known_id: str | None) -> None:
        self._runtime, self.cluster_store = runtime, LogStore(self._log)
        await self.cluster_store.register(runtime.node_id, Registration((), None))

    def logs_opened(self, logs: Any) -> None:
        for each in logs.logs.values():
            each.high_watermark = each.log_end_offset
        self.topic_control = OwnTopics(self._runtime.node_id, logs, self._runtime.writing)

    async def topics_opened(self, topics: Topics) -> None:
        self.controller = LoneController(self._runtime.node_id, topics, self.topic_control)
        await topics.finish_pending()

    async def wait_for_earlier_session(self) -> None:
        self.calls.append("may serve")

    async def join(self, registration: Callable[[], Registration], _lapsed: Callable[[], None]) -> None:
        self.broker_epoch = await self.cluster_store.register(self._runtime.node_id, registration())
        await self.cluster_store.propose([ControllerChanged(self._runtime.node_id, 1)], self.cluster_store.image)
        self.calls.append("joined")

    async def leave(self, _view: object) -> None:
        self.calls.append("left")

    async def close(self) -> None:
        self.calls.append("closed")


async def test_a_broker_serves_with_any_kind_of_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, made = list[ClusterChange](), list[LogMembership]()

    def membership_of(config: BrokerConfig, *_: object) -> LogMembership:
        made.append(LogMembership(config, log))
        return made[-1]

    monkeypatch.setattr(module, "membership_of", membership_of)
    async with Running(tmp_path) as broker, Client(f"127.0.0.1:{broker.ports['PLAINTEXT']}") as client:
        await create_topic(client, NewTopic("t", 2, 1, {"retention.ms": "-1"}))
        await create_topic(client, NewTopic("gone", 1, 1, {}))
        await send(client, "t", 1, records(3))
        await delete_topic(client, "gone")
        cluster = await describe_cluster(client)
        assert (cluster.cluster_id, cluster.controller, len(cluster.brokers)) == ("of-a-log", broker.node_id, 1)
        assert (await new_producer_id(client))[0] == 0
    assert made[0].calls == ["may serve", "joined", "left", "closed"]
    async with Running(tmp_path) as broker, Client(f"127.0.0.1:{broker.ports['PLAINTEXT']}") as client:
        assert broker.topics.names() == ["t"]
        assert broker.topics.known("t").configs == {"retention.ms": "-1"}
        partition = broker.replicas.partition("t", 1)
        assert (partition.log.high_watermark, broker.cluster_view.leader(TopicPartition("t", 1))) == (3, broker.node_id)
        assert (await new_producer_id(client))[0] == 1000
    assert not list(tmp_path.glob("*.sqlite*"))
