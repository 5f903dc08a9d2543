"""Histories of a migration between message formats: the documents' procedure at any speed, under faults.

A cluster goes from one format to the next: canaries before and after the protocol is raised, rolled back or kept, then
phase 2, broker after broker in any order. Producers and consumers of the old and the new format work all the time, and
from some moment on the last old ones only read. In addition to the checks of `cluster_histories`, no client is ever
sent a format that the version of its Fetch does not have.

Old formats have no leader epochs: two failures at a time lose acknowledged records (KIP-101), with Kafka's brokers as
with ours. So a fault and a restart of the procedure wait for each other until all replicas are in sync, as the
procedure says, and until all of them know the high watermark: that takes them half a second longer. Where the canary's
peers fetch in the old version their copies are converted: then logs hold equal records, not equal bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from magicbyte.access.client import Client
from magicbyte.access.client.fetch import ClosedSets, FetchOptions, fetch_sets
from magicbyte.access.client.produce import ProduceOptions
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.encode import Format
from magicbyte.server.stores.znodes.layout import load_state, state_path
from magicbyte.testing.world import SimulatedBroker
from simulation.cluster_faults import TOPIC, UnsoundError, records_in
from simulation.cluster_histories import History

IN_SYNC_WITHIN_S: Final = 240


@dataclass(frozen=True)
class FormatStep:
    """A migration: protocols and formats before and behind, and the newest Fetch version that knows the old format."""

    protocols: tuple[str, str]
    formats: tuple[Format, Format]
    old_fetch: int


STEPS: Final = (
    FormatStep(("0.9.0", "0.10.2"), (Format.V0, Format.V1), 1),
    FormatStep(("0.10.2", "0.11.0"), (Format.V1, Format.V2), 3),
    FormatStep(("0.10.2", "2.4"), (Format.V1, Format.V2), 3),
    FormatStep(("0.9.0", "1.1"), (Format.V0, Format.V2), 1),
)


class MigrationHistory(History):
    """One history. Which migration it is, and what happens when, is drawn from the seed."""

    def __init__(self, seed: int, *, sends: int = 240, step: FormatStep | None = None) -> None:
        self.seed, self.step = seed, step or STEPS[seed % len(STEPS)]
        super().__init__(seed, sends=sends, protocol=self.step.protocols[0])
        self.slowness = 3
        self.steps_taken: list[str] = []
        self._set(self.brokers, 0, 0)
        self._one_at_a_time = asyncio.Lock()
        self.read_again = 0
        self._was_converted = False
        """Whether a canary's peers fetched in the old version."""

    async def _run(self) -> None:
        await self._start_all()
        clients = [
            *(asyncio.create_task(self._consume(name)) for name in ("old-consumer", "new-consumer")),
            *(asyncio.create_task(self._read_again(name)) for name in ("old-reader", "new-reader")),
            asyncio.create_task(self._fail()),
        ]
        producers = [asyncio.create_task(self._produce(name, self.sends // 2)) for name in ("old-producer", "producer")]
        migration = asyncio.create_task(self._migrate())
        try:
            await migration
            self._is_enough = True
            await asyncio.gather(*producers)
        finally:
            self._is_over = True
        await asyncio.gather(*clients)
        await self._heal()
        await self._judge()

    # ---- clients

    def _produce_options(self, name: str, codec: Codec) -> ProduceOptions:
        form = self.step.formats[0] if name.startswith("old") else None
        return ProduceOptions(codec=codec, timeout_ms=4000, format=form)

    def _fetch_options(self, name: str) -> FetchOptions:
        if name.startswith("old"):
            return FetchOptions(max_wait_ms=200, versions=range(self.step.old_fetch + 1))
        return super()._fetch_options(name)

    def _look_at(self, name: str, found: ClosedSets) -> None:
        magics = {int(magic) for magic in found.table.magic}
        if name.startswith("old") and magics and max(magics) > self.step.formats[0].magic:
            raise UnsoundError(f"{name} was sent magic {max(magics)}, which Fetch {self.step.old_fetch} does not have")

    async def _read_again(self, name: str) -> None:
        """Read all partitions from their beginning, again and again: what was there has to be there, and readable."""
        known: dict[tuple[int, int], str] = {}
        async with self._client(name) as client:
            while not self._is_over:
                await asyncio.sleep(self.random.uniform(1, 6))
                partition = self.random.choice(self.partitions)
                with suppress(MagicbyteError):
                    await self._read_from_start(client, name, partition, known)
                    self.read_again += 1

    async def _read_from_start(
        self, client: Client, name: str, partition: int, known: dict[tuple[int, int], str]
    ) -> None:
        offset = 0
        while True:
            found = await fetch_sets(client, TOPIC, partition, offset, self._fetch_options(name))
            self._look_at(name, found)
            for at, value in records_in(bytes(found.data)):
                if known.setdefault((partition, at), value) != value:
                    raise UnsoundError(
                        f"{name}: {TOPIC}-{partition}, offset {at}: {value}, before {known[partition, at]}"
                    )
            if found.next_offset >= found.high_watermark:
                return
            offset = found.next_offset

    # ---- the procedure

    async def _migrate(self) -> None:
        brokers = list(self.brokers)
        self.random.shuffle(brokers)
        await self._wait()
        if self.random.random() < 0.5:
            await self._canary_before(brokers[0])
        for each in brokers:
            await self._bounce(each, 1, 0)
        canary = self.random.choice(brokers)
        if self.random.random() < 0.7:
            await self._bounce(canary, 1, 1)
            await self._wait()
            if self.random.random() < 0.5:
                await self._bounce(canary, 1, 0)
        self.random.shuffle(brokers)
        for each in brokers:
            await self._bounce(each, 1, 1)
            if self.random.random() < 0.1:  # an operator who hesitates
                await self._bounce(each, 1, 0)
                await self._bounce(each, 1, 1)

    async def _canary_before(self, canary: SimulatedBroker) -> None:
        """A canary whose peers fetch in the old version, and which goes back as the documents or as we have it."""
        self._was_converted = True
        await self._bounce(canary, 1, 1)
        await self._wait()
        if self.random.random() < 0.3:
            return
        if self.random.random() < 0.5:
            await self._bounce(canary, 0, 0)
        else:
            await self._bounce(canary, 0, 0, removed=True)

    async def _bounce(self, broker: SimulatedBroker, protocol: int, form: int, *, removed: bool = False) -> None:
        """Restart a broker with other settings, wait until all replicas are in sync, then for any time at all.

        `removed`: what it led is removed, and replicated again.
        """
        async with self._one_at_a_time, self._is_busy[broker.id]:
            what = f"{'removes what it led; ' if removed else ''}protocol {protocol}, format {form}"
            self.steps_taken.append(f"{self.world.virtual_s:.3f} {broker.name}: {what}")
            self._note("step", broker, what)
            led = [each for each in self._places() if load_state("", self._state(each)).leader == broker.id]
            if self.random.random() < 0.2:
                broker.kill()
            else:
                await self._stop_now(broker)
            if removed:
                await self._elsewhere(broker, led)
                self._remove(broker, led)
            self._set([broker], protocol, form)
            await self._start(broker)
            await self._settled()
        await self._wait()

    async def _stop_now(self, broker: SimulatedBroker) -> None:
        try:
            async with asyncio.timeout(60):
                await broker.stop()
        except TimeoutError:
            broker.kill()

    async def _elsewhere(self, broker: SimulatedBroker, led: list[TopicPartition]) -> None:
        """Wait until others lead the partitions of a broker: its removed data is then in sync elsewhere."""

        def not_led() -> list[str]:
            states = {each: load_state("", self._state(each)) for each in led}
            return [f"{key}: {state}" for key, state in states.items() if state.leader in (broker.id, -1)]

        await self._until(not_led)

    def _remove(self, broker: SimulatedBroker, led: list[TopicPartition]) -> None:
        for place in led:
            folder = f"/data/{place}"
            for path in [path for path, _ in broker.disk.walk() if path.startswith(f"{folder}/")]:
                broker.disk.delete(path)
            broker.disk.delete(folder)
            broker.disk.sync_directory("/data")

    def _set(self, brokers: list[SimulatedBroker], protocol: int, form: int) -> None:
        for each in brokers:
            each.settings["inter.broker.protocol.version"] = self.step.protocols[protocol]
            each.settings["log.message.format.version"] = str(self.step.formats[form].magic)

    async def _wait(self) -> None:
        await asyncio.sleep(self.random.choice([0, 1, 10]) * self.random.random())

    # ---- faults

    async def _fail(self) -> None:
        """Have one thing go wrong after the other."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self._down, self._pause, self._cut, self._cut_from_tree, self._cut_one_way, self._slow_link, self._reset,
            self._expire, self._lose_answer, self._turn_clock, self._slow_disk, self._stop,
        ]  # fmt: skip
        while not self._is_over:
            await asyncio.sleep(self.random.uniform(0.5, 10))
            async with self._one_at_a_time:
                if not self._is_over:
                    await self.random.choice(kinds)()
                    await self._settled()

    async def _settled(self) -> None:
        """Wait until all replicas are in sync, hold what is acknowledged now, and know that it is committed."""
        wanted = dict.fromkeys(self.partitions, 0)
        for partition, offset in self.acknowledged:
            wanted[partition] = max(wanted[partition], offset + 1)

        def missing() -> list[str]:
            found = [] if self._are_in_sync() else ["not all replicas are in sync"]
            for broker in self.brokers:
                replicas = broker.served.replicas.partitions if broker.is_running else {}
                for partition, end in wanted.items():
                    replica = replicas.get((TOPIC, partition))
                    if replica is None:
                        found.append(f"{broker.name} has no replica of {TOPIC}-{partition}")
                    elif min(replica.log.log_end_offset, replica.log.high_watermark) < end:
                        found.append(
                            f"{broker.name}, {TOPIC}-{partition}: log end {replica.log.log_end_offset}, high watermark "
                            f"{replica.log.high_watermark}, acknowledged up to {end}"
                        )
            return found

        await self._until(missing)

    async def _for_a_while(self, most_s: float = 8) -> None:
        await super()._for_a_while(most_s)

    async def _until(self, missing: Callable[[], list[str]]) -> None:
        end = self.world.virtual_s + IN_SYNC_WITHIN_S
        while wrong := missing():
            if self.world.virtual_s > end:
                raise UnsoundError(f"after {IN_SYNC_WITHIN_S} virtual seconds: {'; '.join(wrong)}")
            await asyncio.sleep(0.5)

    def _state(self, place: TopicPartition) -> bytes:
        return self.tree.get(state_path(*place)).data

    def _are_in_sync(self) -> bool:
        states = [load_state("", self._state(each)) for each in self._places()]
        return all(len(each.isr) == len(self.brokers) and each.leader != -1 for each in states)

    # ---- the end

    def _not_whole(self) -> str | None:
        found = super()._not_whole()
        if found is None or "logs differ" not in found or not self._was_converted:
            return found
        for index in self.partitions:
            place = TopicPartition(TOPIC, index)
            if len({tuple(records_in(self._log(each, place))) for each in self.brokers}) > 1:
                return found
        return None
