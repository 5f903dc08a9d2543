"""Compute a balanced assignment of existing partitions to given brokers, copying as few replicas as possible.

Balanced means: the brokers' numbers of replicas of each topic differ by one at most, then those of all topics together,
then the same for leaders. Of two equally balanced assignments, the one that copies fewer replicas is better; for
leaders, the one that moves fewer. Racks and sizes of partitions are ignored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.assignment import check_factor

Holders: TypeAlias = dict[TopicPartition, set[int]]
"""The brokers of each partition, or its one leader."""

_TOPIC, _ALL = 1 << 40, 1 << 20
"""The cost of imbalance, within a topic and overall: each outweighs all of the next, and that outweighs any copies."""

_COSTS: Final = (-1, 0, 1)
"""The costs of a step: to a broker that had the partition from one that had not; neutral; the reverse."""


def balance(
    current: Mapping[TopicPartition, Sequence[int]], brokers: Collection[int], factor: int | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of each partition on `brokers`, the preferred leader first.

    `factor`: the number of replicas of each partition; None: as many as it has. A balanced assignment does not change.
    Raises InvalidReplicationFactorError if there are fewer brokers than replicas.
    """
    ordered = sorted(set(brokers))
    for replicas in current.values():
        check_factor(factor or len(replicas), ordered)
    present = {partition: set(replicas) for partition, replicas in current.items()}
    kept = _filled(current, ordered, factor)
    _level(kept, dict.fromkeys(kept, ordered), present)
    leaders: Holders = {}
    for partition, replicas in current.items():
        leaders[partition] = {next((broker for broker in replicas if broker in kept[partition]), min(kept[partition]))}
    _level(leaders, kept, {partition: set(replicas[:1]) for partition, replicas in current.items()})
    return {
        partition: (*leaders[partition], *_rest(replicas, kept[partition] - leaders[partition]))
        for partition, replicas in current.items()
    }


def _rest(current: Sequence[int], wanted: set[int]) -> list[int]:
    """Return the followers: the remaining ones in their order, then the new ones."""
    return [each for each in current if each in wanted] + sorted(wanted.difference(current))


def _filled(current: Mapping[TopicPartition, Sequence[int]], brokers: list[int], factor: int | None) -> Holders:
    """Return the replicas of each partition that may stay, filled up with the least loaded brokers."""
    kept = {
        partition: set([broker for broker in replicas if broker in brokers][: factor or len(replicas)])
        for partition, replicas in current.items()
    }
    loads = Counter(broker for holders in kept.values() for broker in holders)
    for partition, holders in kept.items():
        while len(holders) < (factor or len(current[partition])):
            least = min((broker for broker in brokers if broker not in holders), key=lambda each: (loads[each], each))
            holders.add(least)
            loads[least] += 1
    return kept


class _Step(NamedTuple):
    """A partition moved from one broker to another."""

    giver: int
    taker: int
    partition: TopicPartition


def _level(
    holders: Holders, allowed: Mapping[TopicPartition, Collection[int]], present: Mapping[TopicPartition, set[int]]
) -> None:
    """Level `holders` within the `allowed` brokers, topic by topic until no topic improves.

    Each topic by chains of steps of least cost: convex minimum-cost flow by successive shortest paths. It terminates
    because every chain reduces the total cost.
    """
    of_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in holders:
        of_topic[partition.topic].append(partition)
    total = Counter(broker for each in holders.values() for broker in each)
    changed = True
    while changed:
        changed = False
        for partitions in of_topic.values():
            steps = _Steps(partitions, holders, allowed, present)
            own = Counter(broker for each in partitions for broker in holders[each])
            while chain := steps.cheapest(own, total):
                changed = True
                for load in (own, total):
                    load[chain[0].giver] -= 1
                    load[chain[-1].taker] += 1
                for step in chain:
                    steps.do(step)


class _Steps:
    """The possible steps of a topic's partitions, by brokers and cost."""

    def __init__(
        self,
        partitions: Collection[TopicPartition],
        holders: Holders,
        allowed: Mapping[TopicPartition, Collection[int]],
        present: Mapping[TopicPartition, set[int]],
    ) -> None:
        self._holders, self._allowed, self._present = holders, allowed, present
        self._brokers = sorted({broker for each in partitions for broker in allowed[each]})
        self._possible: dict[tuple[int, int], dict[int, dict[TopicPartition, None]]] = {
            (giver, taker): {cost: {} for cost in _COSTS}
            for giver in self._brokers
            for taker in self._brokers
            if giver != taker
        }
        for each in partitions:
            self._add(each)

    def _each_of(self, partition: TopicPartition) -> list[dict[TopicPartition, None]]:
        holders, present = self._holders[partition], self._present[partition]
        takers = [each for each in self._allowed[partition] if each not in holders]
        return [
            self._possible[giver, taker][(giver in present) - (taker in present)]
            for giver in holders
            for taker in takers
        ]

    def _add(self, partition: TopicPartition) -> None:
        for each in self._each_of(partition):
            each[partition] = None

    def do(self, step: _Step) -> None:
        """Move a partition from one broker to another."""
        for each in self._each_of(step.partition):
            del each[step.partition]
        self._holders[step.partition] ^= {step.giver, step.taker}
        self._add(step.partition)

    def cheapest(self, own: Counter[int], total: Counter[int]) -> list[_Step]:
        """Return the chain of steps that reduces the cost most, or an empty one. Bellman-Ford."""

        def grown(broker: int, by: int) -> int:
            """Return the cost of a change of a broker's load by `by`: loads count by their squares."""
            return by * (_TOPIC * (2 * own[broker] + by) + _ALL * (2 * total[broker] + by))

        costs = {broker: grown(broker, -1) for broker in self._brokers}
        last: dict[int, _Step] = {}
        edges = [
            (cost, _Step(giver, taker, next(iter(partitions))))
            for (giver, taker), by_cost in self._possible.items()
            for cost, partitions in list(by_cost.items())
            if partitions and not any(by_cost[less] for less in range(-1, cost))
        ]
        for _ in self._brokers:
            shorter = False
            for cost, step in edges:
                if costs[step.giver] + cost < costs[step.taker] and not _passes(last, step.giver, step.taker):
                    costs[step.taker], last[step.taker], shorter = costs[step.giver] + cost, step, True
            if not shorter:
                break
        end = min(self._brokers, key=lambda each: (costs[each] + grown(each, 1), each))
        if end not in last or costs[end] + grown(end, 1) >= 0:
            return []
        chain = [last[end]]
        while chain[0].giver in last:
            chain.insert(0, last[chain[0].giver])
        return chain


def _passes(last: Mapping[int, _Step], broker: int, by: int) -> bool:
    """Return whether the chain to a broker already passes another one."""
    while broker in last:
        broker = last[broker].giver
        if broker == by:
            return True
    return False
