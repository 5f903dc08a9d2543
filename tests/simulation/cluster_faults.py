"""A cluster in a `World` to which things happen: what the histories of clusters have in common.

Settings and faults are drawn from the seed. At the end everything is healed, and every partition has all of its
replicas in sync, with logs that are equal byte for byte.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from magicbyte.access.client import Client
from magicbyte.access.client.admin import NewTopic, create_topic
from magicbyte.engine.errors import (
    CorruptRecordError,
    LogDirectoryError,
    NetworkError,
    NodeExistsError,
    SessionExpiredError,
)
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.scan import scan
from magicbyte.engine.replication.state import PartitionState
from magicbyte.server.stores.znodes.layout import load_controller, load_state, state_path
from magicbyte.server.stores.znodes.reading import image_of
from magicbyte.testing.checker import HistoryRules, Recorder, check
from magicbyte.testing.disk import SimulatedDisk
from magicbyte.testing.world import TREE, SimulatedBroker, World

log = logging.getLogger("magicbyte.history")
TOPIC = "topic"
FORMATS = {"0.9.0": 0, "0.10.2": 1, "0.11.0": 2, "1.1": 2, "2.4": 2, "2.8": 2}
"""Values of `inter.broker.protocol.version`, and the newest magic that each allows."""
WITHOUT_EPOCHS = ("0.9.0", "0.10.2")
"""Followers that truncate by the high watermark lose acknowledged records (KIP-101): as Kafka of the time does."""
HEALED_WITHIN_S = 180
Fault: TypeAlias = Callable[[], Awaitable[None]]


class UnsoundError(AssertionError):
    """What must hold after a history does not."""


class ClusterUnderFaults(ABC):
    """One history. `protocol` and whether each message is flushed are drawn from the seed unless given.

    `partitions`: of `TOPIC`. `recorder` has what clients did, `acknowledged` where their values are said to be.
    """

    most_turns = 3_000_000
    """Of the loop, after which a history is stuck."""

    def __init__(
        self,
        seed: int,
        *,
        partitions: int = 2,
        brokers: int = 3,
        protocol: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.seed = seed
        self.world = World(seed, most_virtual_s=7200, most_turns=self.most_turns)
        self.random = self.world.random_of("history")
        self.protocol = protocol or self.random.choice([each for each in FORMATS if each not in WITHOUT_EPOCHS])
        self.is_durable = self.random.random() < 0.5
        self.world.settings = {
            "inter.broker.protocol.version": self.protocol,
            "log.flush.interval.messages": "1" if self.is_durable else str(2**63 - 1),
            "log.segment.bytes": self.random.choice(["2000", "20000", "1000000"]),
            "min.insync.replicas": str(min(brokers, 2)),
            "replica.lag.time.max.ms": self.random.choice(["3000", "10000"]),
            "leader.imbalance.check.interval.seconds": "20",
            "controller.socket.timeout.ms": "5000",
            "controlled.shutdown.max.retries": "2",
            "offsets.topic.num.partitions": "4",
            "unclean.leader.election.enable": "false",
            **(settings or {}),
        }
        if self.protocol in WITHOUT_EPOCHS:
            self.world.settings["log.message.format.version"] = self.protocol
        self.brokers = [self.world.broker(number) for number in range(brokers)]
        for each in self.brokers:
            each.session_timeout_ms = 6000
        self.partitions = range(partitions)
        self.acknowledged: dict[tuple[int, int], str] = {}
        self.faults = Counter[str]()
        self.events: list[str] = []
        self.recorder = Recorder(self.world.clock.monotonic_ms)
        self.tree = self.world.tree.session()
        self._is_over = False
        self._is_busy = {each.id: asyncio.Lock() for each in self.brokers}

    def run(self) -> None:
        """Run it. Raises UnsoundError, AssertionError, StuckError."""
        try:
            self.world.run(self._run())
        finally:
            self.world.close()

    @abstractmethod
    async def _run(self) -> None:
        """Do all that happens in the history, and judge it."""

    def _client(self, name: str) -> Client:
        return self.world.client(name, retry_ms=0, request_timeout_ms=3000, connect_timeout_ms=2000)

    async def _start_all(self) -> None:
        await asyncio.gather(*(each.start() for each in self.brokers))
        async with self.world.client("admin") as client:
            await create_topic(client, NewTopic(TOPIC, len(self.partitions), len(self.brokers)))

    # ---- faults

    async def _fail(self) -> None:
        """Have things go wrong, several at a time."""
        kinds = self._kinds()
        going = list[asyncio.Task[None]]()
        while not self._is_over:
            await asyncio.sleep(self.random.uniform(0.5, 8))
            going.append(asyncio.create_task(_done(self.random.choice(kinds)())))
        await asyncio.gather(*going)

    def _kinds(self) -> list[Fault]:
        """Return the faults to draw from, some more often than others."""
        kinds: list[Fault] = [
            self._down, self._down, self._pause, self._cut, self._cut, self._cut_from_tree, self._cut_one_way,
            self._slow_link, self._reset, self._expire, self._lose_answer, self._turn_clock, self._slow_disk,
            self._stop,
        ]  # fmt: skip
        if len(self.brokers) == 1:
            kinds = [each for each in kinds if each not in (self._cut, self._cut_one_way, self._slow_link, self._reset)]
        return kinds

    def _note(self, what: str, broker: SimulatedBroker | None = None, other: str = "") -> None:
        states = [] if broker is None else self._states(broker)
        self.faults.update(f"{what} {each}".rstrip() for each in states or [""])
        state = ", ".join(states)
        name = "" if broker is None else broker.name
        self.events.append(f"{self.world.virtual_s:.3f} {what} {name} {other} {state}")
        log.info("---- %s %s %s %s", what, name, other, state)

    def _states(self, broker: SimulatedBroker) -> list[str]:
        """Return what a broker is just now, by the tree: faults are counted by it."""
        controller = self.tree.exists("/controller")
        roles = ["controller"] if controller and load_controller(controller.data) == broker.id else []
        states = [self.tree.exists(state_path(TOPIC, each)) for each in self.partitions]
        leaders = [load_state("", each.data).leader for each in states if each is not None]
        return ["+".join([*roles, "leader" if broker.id in leaders else "follower"])]

    async def _for_a_while(self, most_s: float = 20) -> None:
        await asyncio.sleep(self.random.uniform(0.1, most_s))

    async def _down(self, broker: SimulatedBroker | None = None) -> None:
        broker = broker or self.random.choice(self.brokers)
        async with self._is_busy[broker.id]:
            if self.is_durable and self.random.random() < 0.5:
                self._note("power cut", broker)
                broker.cut_power()
            else:
                self._note("kill", broker)
                broker.kill()
            await self._for_a_while()
            await self._start(broker)

    async def _stop(self, broker: SimulatedBroker | None = None) -> None:
        broker = broker or self.random.choice(self.brokers)
        async with self._is_busy[broker.id]:
            self._note("stop", broker)
            try:
                async with asyncio.timeout(60):
                    await broker.stop()
            except TimeoutError:
                self._note("stop takes too long", broker)
                broker.kill()
            await self._for_a_while()
            await self._start(broker)

    async def _start(self, broker: SimulatedBroker) -> None:
        while not broker.is_running:
            try:
                await broker.start()
            except (NetworkError, NodeExistsError, LogDirectoryError, SessionExpiredError) as error:
                self.events.append(f"{self.world.virtual_s:.3f} {broker.name} does not start: {error}")
                await asyncio.sleep(1)

    async def _start_empty(self, broker: SimulatedBroker) -> None:
        """Start a broker with an empty directory when it is out of sync everywhere, as after a replaced disk."""
        while any(broker.id in state.isr for state in self._partition_states()):
            await asyncio.sleep(1)
        lies, broker.disk = broker.disk.lies, SimulatedDisk(self.random.getrandbits(32), broker.clock)
        broker.disk.lies = lies
        await self._start(broker)

    def _partition_states(self) -> list[PartitionState]:
        return [load_state("", self.tree.get(state_path(*place)).data) for place in self._places()]

    async def _pause(self, broker: SimulatedBroker | None = None) -> None:
        broker = broker or self.random.choice(self.brokers)
        async with self._is_busy[broker.id]:
            self._note("pause", broker)
            broker.pause()
            await self._for_a_while()
            broker.resume()

    async def _cut(self) -> None:
        one, other = self.random.sample(self.brokers, 2)
        self._note("cut", one, other.name)
        self.world.network.cut(one.name, other.name)
        await self._for_a_while()
        self.world.network.heal(one.name, other.name)

    async def _cut_one_way(self) -> None:
        one, other = self.random.sample(self.brokers, 2)
        self._note("cut one way", one, other.name)
        self.world.network.cut(one.name, other.name, one_way=True)
        await self._for_a_while()
        self.world.network.heal(one.name, other.name)

    async def _cut_from_tree(self, broker: SimulatedBroker | None = None) -> None:
        broker = broker or self.random.choice(self.brokers)
        self._note("cut from tree", broker)
        self.world.network.cut(broker.name, TREE)
        await self._for_a_while()
        self.world.network.heal(broker.name, TREE)

    async def _slow_link(self) -> None:
        one, other = self.random.sample([*self.brokers], 2)
        self._note("slow link", one, other.name)
        self.world.network.delay(one.name, other.name, self.random.choice([20, 500, 5000]))
        await self._for_a_while()
        self.world.network.delay(one.name, other.name, 0)

    async def _reset(self) -> None:
        one, other = self.random.sample(self.brokers, 2)
        self._note("reset", one, other.name)
        self.world.network.reset(one.name, other.name)

    async def _expire(self, broker: SimulatedBroker | None = None) -> None:
        broker = broker or self.random.choice(self.brokers)
        if broker.sessions:
            self._note("session expires", broker)
            self.world.tree.expire_session(broker.sessions[-1])

    async def _lose_answer(self) -> None:
        broker = self.random.choice(self.brokers)
        if broker.sessions:
            self._note("answer of the tree is lost", broker)
            broker.sessions[-1].loses_next_answer = True

    async def _turn_clock(self) -> None:
        broker = self.random.choice(self.brokers)
        self._note("clock jumps", broker)
        broker.clock.ahead_ms += self.random.choice([-86_400_000, -60_000, 60_000, 86_400_000])

    async def _slow_disk(self) -> None:
        broker = self.random.choice(self.brokers)
        self._note("slow disk", broker)
        broker.disk_ms = self.random.choice([50.0, 1000.0])
        await self._for_a_while()
        broker.disk_ms = None

    # ---- the end

    async def _heal(self) -> None:
        """Let everything work again, and wait until the cluster is whole."""
        self.world.network.heal_all()
        for each in self.brokers:
            async with self._is_busy[each.id]:
                await self._start(each)
        end = self.world.virtual_s + HEALED_WITHIN_S
        while (wrong := self._not_whole()) is not None:
            if self.world.virtual_s > end:
                raise UnsoundError(f"not healed after {HEALED_WITHIN_S} virtual seconds: {wrong}")
            await asyncio.sleep(1)

    def _places(self) -> list[TopicPartition]:
        """Return the partitions that are to be whole at the end."""
        return [TopicPartition(TOPIC, each) for each in self.partitions]

    def _not_whole(self) -> str | None:
        for place in self._places():
            state = load_state("", self.tree.get(state_path(*place)).data)
            if len(state.isr) < len(self.brokers):
                return f"{place}: {state}"
            logs = {each.name: self._log(each, place) for each in self.brokers}
            if len(set(logs.values())) > 1:
                return f"{place}: logs differ: { {name: _outline(each) for name, each in logs.items()} }"
        return self._unlike_image()

    def _unlike_image(self) -> str | None:
        """Return the differences between a broker's state and the image of the tree."""
        image = image_of(self.tree)
        for broker in self.brokers:
            known = broker.served.cluster_store.image
            if sorted(known.brokers) != sorted(image.brokers) or known.controller_id != image.controller_id:
                return f"{broker.name} knows brokers {sorted(known.brokers)}, controller {known.controller_id}: {image}"
            for place in self._places():
                ours, partition = known.partition(place), image.partition(place)
                if ours is None or ours.known is None or partition is None or partition.known is None:
                    return f"{broker.name} knows {ours} of {place}: {partition}"
                if (ours.replicas, ours.known.state) != (partition.replicas, partition.known.state):
                    return f"{broker.name} knows {ours} of {place}: {partition}"
            if sorted(known.topics) != sorted(image.topics):
                return f"{broker.name} knows topics {sorted(known.topics)}: {sorted(image.topics)}"
            for section in ("settings", "quotas", "scram_users"):
                if getattr(known, section) != getattr(image, section):
                    return f"{broker.name} knows other {section}: {image}"
        return None

    def _log(self, broker: SimulatedBroker, place: TopicPartition) -> bytes:
        """Return what the segments of a replica hold, one behind the other."""
        folder = f"/data/{place}/"
        return b"".join(
            content for path, content in broker.disk.walk() if path.startswith(folder) and path.endswith(".log")
        )

    def _check(self) -> None:
        """Raise UnsoundError unless what clients saw is sound."""
        report = check(self.recorder.history, HistoryRules())
        if not report.is_sound:
            raise UnsoundError(str(report))


async def _done(work: Awaitable[None]) -> None:
    await work


def records_in(log: bytes) -> list[tuple[int, str]]:
    table = scan(memoryview(log))
    assert table.damage is None, table.damage
    return [
        (record.offset, bytes(record.value or b"").decode(errors="replace").rstrip())
        for columns in decode(memoryview(log))
        for record in columns
    ]


def _outline(log: bytes) -> str:
    try:
        found = records_in(log)
    except (AssertionError, CorruptRecordError) as error:
        return f"{len(log)} bytes, damaged: {error}"
    return f"{len(log)} bytes, {len(found)} records, the last {found[-1:]}"
