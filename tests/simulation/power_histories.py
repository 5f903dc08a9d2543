"""Histories in which the power of a whole cluster fails: all brokers lose at once what they have not synced.

Brokers, clients and the other faults are those of `cluster_histories`. What must hold depends on the setting:

* `GROUP_COMMIT` (`log.flush.policy=group-commit`, `acks=all`, `min.insync.replicas=2`): all that holds there. Nothing
  acknowledged is lost, and nothing that a consumer has read.
* `KAFKA` (the default: a log is synced when a segment ends): all replicas are in sync again, and every record in them
  was sent, once. Acknowledged records may be lost, from the end of a log at a power failure: never one before another
  that is kept. Replicas may differ: a leader that starts before its session expires leads again in the same epoch, and
  writes other records at the offsets of lost ones.
* `LYING_DISK` (group commit, and the disk of one broker of three acknowledges syncs without doing them): nothing
  acknowledged is lost if another replica leads after the power failure. The broker with that disk is started when it
  has left the in-sync replicas, with an empty directory. If it is started first (`liar_first`), its log counts, and
  acknowledged records are lost.
"""

from __future__ import annotations

import asyncio
import enum
from collections import Counter
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from magicbyte.testing.checker.history import Sent
from magicbyte.testing.world import SimulatedBroker
from simulation.cluster_faults import TOPIC, Fault, UnsoundError
from simulation.cluster_histories import History

FEWEST_FAILURES: Final = 3
"""Power failures of the whole cluster in each history."""
EXACT_PROTOCOLS: Final = ("2.4", "2.8")
"""From 2.0 on leaders say of which epoch they speak. Before, replicas that lost records can diverge (KIP-279)."""


class Setting(enum.Enum):
    GROUP_COMMIT = "group-commit"
    KAFKA = "kafka"
    LYING_DISK = "lying disk"


class Answer(NamedTuple):
    """An acknowledged record, and the virtual time of the answer."""

    partition: int
    offset: int
    value: str
    virtual_s: float


class PowerHistory(History):
    """One history. `answers`: what was acknowledged; `lost`: of these what is not in the log at the end.

    `power_failures`: the virtual times of those of the whole cluster.
    """

    def __init__(
        self,
        seed: int,
        setting: Setting = Setting.GROUP_COMMIT,
        *,
        sends: int = 120,
        protocol: str | None = None,
        liar_first: bool = False,
    ) -> None:
        self.setting, self.liar_first = setting, liar_first
        syncs = {"log.flush.interval.messages": str(2**63 - 1)}
        if setting is Setting.KAFKA:
            protocol = protocol or EXACT_PROTOCOLS[seed % len(EXACT_PROTOCOLS)]
        else:
            syncs["log.flush.policy"] = "group-commit"
        if setting is Setting.LYING_DISK:
            syncs["replica.lag.time.max.ms"] = "30000"  # the in-sync replicas are never the lying one alone
        super().__init__(seed, sends=sends, protocol=protocol, settings=syncs)
        self.is_durable = setting is Setting.GROUP_COMMIT  # whether the power of one broker alone may fail
        self.liar = self.random.choice(self.brokers) if setting is Setting.LYING_DISK else None
        if self.liar is not None:
            self.liar.disk.lies = True
        self.power_failures = list[float]()
        self.answers, self.lost = list[Answer](), list[Answer]()
        self._fails_power = asyncio.Lock()

    # ---- faults

    def _kinds(self) -> list[Fault]:
        if self.liar is not None:  # no fault that takes an honest replica out of sync
            return [self._power_failure, self._reset, self._turn_clock, self._lose_answer]
        return [*super()._kinds(), *[self._power_failure] * 5]

    def _has_failed_enough(self) -> bool:
        return super()._has_failed_enough() and len(self.power_failures) >= FEWEST_FAILURES

    async def _power_failure(self) -> None:
        """Cut the power of all brokers at once, and start them in any order."""
        async with self._fails_power, AsyncExitStack() as stack:
            for broker in self.brokers:
                await stack.enter_async_context(self._is_busy[broker.id])
            self._note("power failure of all")
            self.power_failures.append(self.world.virtual_s)
            for broker in self.brokers:
                broker.cut_power()
            await asyncio.gather(*(self._return(broker) for broker in self.brokers))

    async def _return(self, broker: SimulatedBroker) -> None:
        if self.liar is None:
            await self._for_a_while(self.random.choice([2, 15]))
        elif broker is self.liar and not self.liar_first:
            await self._start_empty(broker)
            return
        elif broker is not self.liar and self.liar_first:
            await asyncio.sleep(20)
        await self._start(broker)

    # ---- the end

    def _not_whole(self) -> str | None:
        if self.setting is Setting.KAFKA:  # replicas may differ: see above
            in_sync = all(len(state.isr) == len(self.brokers) for state in self._partition_states())
            return None if in_sync else f"in sync: {self._partition_states()}"
        return super()._not_whole()

    def figures(self) -> dict[str, int]:
        """Return what is recorded of the history."""
        failures = len(self.power_failures)
        return {
            "powerFailures": failures,
            "otherFaults": sum(self.faults.values()) - failures,
            "acknowledgedRecords": len(self.answers),
            "lostRecords": len(self.lost),
            "historiesWithLoss": int(bool(self.lost)),
        }

    def _acknowledge(self, partition: int, offset: int, value: str) -> None:
        super()._acknowledge(partition, offset, value)
        self.answers.append(Answer(partition, offset, value, self.world.virtual_s))

    async def _judge(self) -> None:
        if self.setting is Setting.GROUP_COMMIT:
            await super()._judge()
            return
        sent = {
            (step.partition, step.value)
            for operation in self.recorder.history
            for step in operation.steps
            if isinstance(step, Sent)
        }
        for partition in self.partitions:
            stored = dict(self._stored(partition))
            twice = [value for value, count in Counter(stored.values()).items() if count > 1]
            strange = [value for value in stored.values() if (f"{TOPIC}-{partition}", value) not in sent]
            if twice or strange:
                raise UnsoundError(f"{TOPIC}-{partition}: twice in the log: {twice[:5]}, never sent: {strange[:5]}")
            answers = [each for each in self.answers if each.partition == partition]
            self._judge_lost(
                [each for each in answers if stored.get(each.offset) != each.value],
                [each for each in answers if stored.get(each.offset) == each.value],
            )

    def _judge_lost(self, lost: list[Answer], kept: list[Answer]) -> None:
        """Raise UnsoundError if an acknowledged record was lost that had to be kept: see above."""
        self.lost += lost
        if lost and self.setting is Setting.LYING_DISK and not self.liar_first:
            raise UnsoundError(f"acknowledged and not at their offsets: {lost[:5]}")
        for gone in lost:
            for later in kept:
                between = (gone.virtual_s <= failure < later.virtual_s for failure in self.power_failures)
                if later.offset > gone.offset and not any(between):
                    raise UnsoundError(f"{gone} is lost, and {later} is not, which came after it")
