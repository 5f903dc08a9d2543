"""Histories in which bits of one replica of three flip, and brokers repair them from the others.

Brokers, clients and the other faults are those of `cluster_histories`, with `log.flush.policy=group-commit` and
`replica.scrub.interval.ms`. Bits flip on one broker, anywhere below its high watermark, while all replicas are in sync:
a record that the others do not have is none that they could repair. All that holds in those histories holds here: at
the end the replicas are equal byte for byte, and everything acknowledged is in them.
"""

from __future__ import annotations

from typing import Final

from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.scan import scan
from magicbyte.server.stores.znodes.layout import load_state, state_path
from magicbyte.testing.world import SimulatedBroker
from simulation.cluster_faults import TOPIC, Fault
from simulation.cluster_histories import History

FEWEST_FLIPS: Final = 3
PROTOCOLS: Final = ("2.4", "2.8")
"""From 2.4 on consumers, and so other replicas, may fetch from followers."""


class ScrubHistory(History):
    """One history. `flips`: file, position and bit of each; `victim` is the broker that has them.

    `replaced`: how often its directory was replaced, because a bit had flipped and a crash came before the repair.
    """

    def __init__(self, seed: int, *, sends: int = 120, protocol: str | None = None) -> None:
        settings = {
            "log.flush.interval.messages": str(2**63 - 1),
            "log.flush.policy": "group-commit",
            "replica.scrub.interval.ms": "5000",
            "replica.scrub.bytes.per.second": "100000",
        }
        super().__init__(seed, sends=sends, protocol=protocol or PROTOCOLS[seed % len(PROTOCOLS)], settings=settings)
        self.is_durable = True
        self.victim = self.random.choice(self.brokers)
        self.flips = list[tuple[str, int, int]]()
        self.replaced = 0

    def figures(self) -> dict[str, int]:
        """Return what is recorded of the history."""
        return {
            "bitFlips": len(self.flips),
            "otherFaults": sum(self.faults.values()) - len(self.flips),
            "acknowledgedRecords": len(self.acknowledged),
            "replacedDirectories": self.replaced,
        }

    def _kinds(self) -> list[Fault]:
        return [*super()._kinds(), *[self._flip] * 6]

    def _has_failed_enough(self) -> bool:
        return super()._has_failed_enough() and len(self.flips) >= FEWEST_FLIPS

    async def _flip(self) -> None:
        """Flip a bit of a committed batch, unless a replica lags."""
        place = TopicPartition(TOPIC, self.random.choice(self.partitions))
        state = load_state("", self.tree.get(state_path(*place)).data)
        if len(state.isr) < len(self.brokers) or not all(each.is_running for each in self.brokers):
            return
        high_watermark = min(each.served.logs[place].high_watermark for each in self.brokers)
        batches = [
            (path, int(position), int(size))
            for path, content in self.victim.disk.walk()
            if path.startswith(f"/data/{place}/") and path.endswith(".log")
            for table in [scan(memoryview(content))]
            for position, size, offset, count in zip(table.position, table.size, table.offset, table.count, strict=True)
            if offset + count <= high_watermark
        ]
        if not batches:
            return
        path, position, size = self.random.choice(batches)
        at, bit = position + self.random.randrange(size), self.random.randrange(8)
        self._note("bit flips", self.victim, f"{path} {at}")
        self.victim.disk.flip_bit(path, at, bit)
        self.flips.append((path, at, bit))

    async def _start(self, broker: SimulatedBroker) -> None:
        """Start a broker; one with damage that its recovery would have to cut gets an empty directory."""
        await super()._start(broker)
        if broker.served.logs.offline:
            self._note("replaced", broker)
            self.replaced += 1
            broker.kill()
            await self._start_empty(broker)
