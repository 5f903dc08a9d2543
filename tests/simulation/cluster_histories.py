"""Histories of a whole cluster under faults, each from one seed, and what must hold after them.

Brokers, controller and clients are the product's own code in a `World`. Producers send values, each once, with
acks=all; consumers poll; faults come and go; settings and faults are drawn from the seed. At the end everything is
healed, and then

* every partition has all of its replicas in sync, and their logs are equal byte for byte;
* every acknowledged record is in them, once, at the offset that was acknowledged;
* what clients saw is sound by `testing/checker`: nothing lost, twice, skipped, or out of order;
* no task of a broker has ended because of a bug.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from magicbyte.access.client import Client
from magicbyte.access.client.fetch import ClosedSets, FetchOptions, fetch_sets, records_of
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, ErrorCode, MagicbyteError, OffsetOutOfRangeError
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.columns import Record
from simulation.cluster_faults import HEALED_WITHIN_S, TOPIC, ClusterUnderFaults, UnsoundError, records_in

FEWEST_FAULTS = 5


class History(ClusterUnderFaults):
    """One history of producers that send at least `sends` values in all, and of consumers that poll."""

    def __init__(
        self,
        seed: int,
        *,
        sends: int = 200,
        brokers: int = 3,
        protocol: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(seed, brokers=brokers, protocol=protocol, settings=settings)
        self.sends = sends
        self._is_enough = False
        self.slowness = 1
        """How many times as long as elsewhere clients wait before they do the next thing."""

    async def _run(self) -> None:
        await self._start_all()
        producers = [self._produce(f"producer-{at}", self.sends // 2) for at in range(2)]
        consumers = [asyncio.create_task(self._consume(f"consumer-{at}")) for at in range(2)]
        faults = asyncio.create_task(self._fail())
        await asyncio.gather(*producers)
        self._is_over = True
        await asyncio.gather(faults, *consumers)
        await self._heal()
        await self._judge()

    # ---- clients

    async def _produce(self, name: str, count: int) -> None:
        """Send values, each once: as many as are asked for, and on until enough has gone wrong."""
        async with self._client(name) as client:
            for at in itertools.count():
                if at >= count and self._has_failed_enough():
                    return
                value, partition = f"{name} {at}", self.random.choice(self.partitions)
                codec = self.random.choice([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY])
                padding = b" " * self.random.choice([0, 10, 1000])
                options = self._produce_options(name, codec)
                with self.recorder.send(name, f"{TOPIC}-{partition}", value) as pending:
                    try:
                        found = await send(
                            client, TOPIC, partition, [Record(0, -1, 0, None, value.encode() + padding)], options
                        )
                    except BrokerError as error:
                        if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                            pending.fail()
                    except MagicbyteError:
                        client.forget(TOPIC)
                    else:
                        pending.ok(found[0].base_offset)
                        self._acknowledge(partition, found[0].base_offset, value)
                await asyncio.sleep(self.slowness * self.random.uniform(0.05, 0.6))

    def _has_failed_enough(self) -> bool:
        return sum(self.faults.values()) >= FEWEST_FAULTS

    def _acknowledge(self, partition: int, offset: int, value: str) -> None:
        self.acknowledged[partition, offset] = value

    def _produce_options(self, name: str, codec: Codec) -> ProduceOptions:
        return ProduceOptions(codec=codec, timeout_ms=4000)

    async def _consume(self, name: str) -> None:
        """Poll all partitions in turn."""
        positions = dict.fromkeys(self.partitions, 0)
        async with self._client(name) as client:
            self.recorder.assign(name, [f"{TOPIC}-{each}" for each in self.partitions]).ok()
            while not self._is_over:
                for partition in self.partitions:
                    with suppress(MagicbyteError):
                        await self._poll(client, name, partition, positions)
                await asyncio.sleep(self.slowness * self.random.uniform(0.05, 0.5))

    async def _poll(self, client: Client, name: str, partition: int, positions: dict[int, int]) -> bool:
        """Poll once; return whether the end was reached."""
        start, where = positions[partition], f"{TOPIC}-{partition}"
        with self.recorder.poll(name) as pending:
            try:
                found = await fetch_sets(client, TOPIC, partition, start, self._fetch_options(name))
            except OffsetOutOfRangeError:
                pending.repositioned([where])
                raise
            self._look_at(name, found)
            records = [
                (record.offset, bytes(record.value or b"").decode().rstrip())
                for columns in records_of(found, start)
                for record in columns
            ]
            pending.polled({where: records})
            pending.ok()
        positions[partition] = found.next_offset
        return found.next_offset >= found.high_watermark

    def _fetch_options(self, name: str) -> FetchOptions:
        return FetchOptions(max_wait_ms=200)

    def _look_at(self, name: str, found: ClosedSets) -> None:
        """Look at what a consumer was sent. Raises UnsoundError."""

    # ---- the end

    def _stored(self, partition: int) -> list[tuple[int, str]]:
        return records_in(self._log(self.brokers[0], TopicPartition(TOPIC, partition)))

    async def _read_all(self, client: Client, partition: int, positions: dict[int, int]) -> None:
        """Read a partition to the end of its log: a leader that is new lets consumers read less for a moment."""
        stored, until = self._stored(partition), self.world.virtual_s + HEALED_WITHIN_S
        end = stored[-1][0] + 1 if stored else 0
        while positions[partition] < end:
            if self.world.virtual_s > until:
                raise UnsoundError(f"{TOPIC}-{partition}: offsets {positions[partition]} to {end} cannot be read")
            if await self._poll(client, "judge", partition, positions):
                await asyncio.sleep(0.1)

    async def _judge(self) -> None:
        async with self.world.client("judge") as client:
            positions = dict.fromkeys(self.partitions, 0)
            self.recorder.assign("judge", [f"{TOPIC}-{each}" for each in self.partitions]).ok()
            for partition in self.partitions:
                await self._read_all(client, partition, positions)
        for partition in self.partitions:
            found = self._stored(partition)
            values = [value for _, value in found]
            twice = [value for value, count in Counter(values).items() if count > 1]
            if twice:
                raise UnsoundError(f"{TOPIC}-{partition}: twice in the log: {twice[:5]}")
            offsets = dict(found)
            wanted = {offset: value for (index, offset), value in self.acknowledged.items() if index == partition}
            lost = {offset: value for offset, value in wanted.items() if offsets.get(offset) != value}
            if lost:
                raise UnsoundError(
                    f"{TOPIC}-{partition}: acknowledged and not at their offsets: {list(lost.items())[:5]}"
                )
        self._check()
