"""The server-side assignors: range and uniform, with the results of Kafka's.

Source: Kafka's RangeAssignor, UniformHomogeneousAssignmentBuilder and UniformHeterogeneousAssignmentBuilder (4.3).
Where those iterate over a hash table of Java, its order is part of the result: `_java_order`.

Invariants of each: no partition is assigned twice, every partition of a topic with subscribers is assigned, and only
to a subscriber.
"""

from __future__ import annotations

import uuid
from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from magicbyte.engine.coordination.partitioning import java_hash
from magicbyte.engine.groups.consumer.config import RANGE, UNIFORM
from magicbyte.engine.groups.consumer.members import Partitions, by_topic

_LEAST_TABLE: Final = 16
_ROUNDS: Final = 16  # of balancing in a heterogeneous group
_LOW_64: Final = (1 << 64) - 1

T = TypeVar("T")


class AssignedMember(Struct, frozen=True):
    """A member: the topics that it subscribes to, and its partitions so far. `instance_id`: of a static member."""

    instance_id: str | None
    topics: frozenset[uuid.UUID]
    target: Partitions


Members = Mapping[str, AssignedMember]
Counts = Mapping[uuid.UUID, int]


def assign(name: str, members: Members, counts: Counts) -> dict[str, Partitions]:
    """Return the partitions of each member. `counts`: how many partitions each topic has that exists."""
    return _ASSIGNORS[name](members, counts)


def _range(members: Members, counts: Counts) -> dict[str, Partitions]:
    """Assign consecutive partitions of each topic, in the order of instance ids, then of member ids."""
    given: dict[str, dict[uuid.UUID, tuple[int, ...]]] = {member_id: {} for member_id in members}
    ordered = sorted(members, key=lambda each: _place(each, members[each].instance_id))
    subscribers: dict[uuid.UUID, list[str]] = {}
    for member_id in ordered:
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(member_id)
    for topic, those in subscribers.items():
        each, more = divmod(counts.get(topic, 0), len(those))
        first = 0
        for place, member_id in enumerate(those):
            last = first + each + (place < more)
            if last > first:
                given[member_id][topic] = tuple(range(first, last))
            first = last
    return dict(given)


def _place(member_id: str, instance_id: str | None) -> tuple[bool, bytes]:
    """Return the place of a member: Java compares texts by their UTF-16 units."""
    text = member_id if instance_id is None else instance_id
    return instance_id is None, text.encode("utf-16-be", "surrogatepass")


def _uniform(members: Members, counts: Counts) -> dict[str, Partitions]:
    if not members:
        return {}
    topics = next(iter(members.values())).topics
    if all(each.topics == topics for each in members.values()):
        return _homogeneous(members, counts, topics)
    return _Heterogeneous(members, counts).assign()


def _homogeneous(members: Members, counts: Counts, subscribed: frozenset[uuid.UUID]) -> dict[str, Partitions]:
    """Assign all partitions evenly; each member keeps as many of its own as it may."""
    ordered, topics = _java_order(members, java_hash), _java_order(subscribed & counts.keys(), _uuid_hash)
    owned = {
        (topic, partition)
        for member in members.values()
        for topic, partitions in member.target.items()
        for partition in partitions
    }
    free = [
        (topic, partition) for topic in topics for partition in range(counts[topic]) if (topic, partition) not in owned
    ]
    least, extras = divmod(sum(counts[topic] for topic in topics), len(members))
    kept: dict[str, list[tuple[uuid.UUID, int]]] = {}
    wanting: dict[str, int] = {}
    for index, member_id in enumerate(ordered):
        takes_extra = extras > 0
        quota = least + takes_extra
        mine = kept[member_id] = list[tuple[uuid.UUID, int]]()
        target = members[member_id].target
        for topic in _java_order(target, _uuid_hash):
            if topic not in subscribed or topic not in counts:
                continue
            for partition in target[topic]:
                if partition >= counts[topic]:
                    continue
                (mine if len(mine) < quota else free).append((topic, partition))
        missing = quota - len(mine)
        if missing > 0 and takes_extra and len(members) - index > extras:  # later members may have more to keep
            takes_extra = False
            missing -= 1
        extras -= takes_extra
        wanting[member_id] = missing
    rest = iter(free)
    for member_id, missing in wanting.items():
        for _ in range(missing):
            kept[member_id].append(next(rest))
    return {member_id: by_topic(places) for member_id, places in kept.items()}


class _Heterogeneous:
    """Assign partitions to members with different subscriptions: evenly as far as those allow."""

    def __init__(self, members: Members, counts: Counts) -> None:
        self._ids = _java_order(members, java_hash)
        self._subscribers: dict[uuid.UUID, list[int]] = {}
        self._load = [0] * len(self._ids)
        self._owner: dict[uuid.UUID, list[int]] = {}
        for index, member_id in enumerate(self._ids):
            for topic in members[member_id].topics & counts.keys():
                self._subscribers.setdefault(topic, []).append(index)
        for topic in self._subscribers:
            self._owner[topic] = [-1] * counts[topic]
        for index, member_id in enumerate(self._ids):
            member = members[member_id]
            for topic in member.target.keys() & member.topics & counts.keys():
                for partition in member.target[topic]:
                    if partition < counts[topic]:
                        self._give(topic, partition, index)

    def _give(self, topic: uuid.UUID, partition: int, index: int) -> None:
        before = self._owner[topic][partition]
        if before >= 0:
            self._load[before] -= 1
        self._owner[topic][partition] = index
        self._load[index] += 1

    def assign(self) -> dict[str, Partitions]:
        """Return the partitions of each member."""
        topics = sorted(self._subscribers, key=self._rank)
        for topic in topics:
            for partition, owner in enumerate(self._owner[topic]):
                if owner < 0:
                    self._give(topic, partition, self._least(topic))
        shared = [topic for topic in topics if len(self._subscribers[topic]) > 1]
        for _ in range(_ROUNDS):
            if not sum([self._balance(topic) for topic in shared]):
                break
        places: dict[int, list[tuple[uuid.UUID, int]]] = {index: [] for index in range(len(self._ids))}
        for topic, owners in self._owner.items():
            for partition, owner in enumerate(owners):
                places[owner].append((topic, partition))
        return {self._ids[index]: by_topic(each) for index, each in places.items()}

    def _rank(self, topic: uuid.UUID) -> tuple[float, int, int, int]:
        """Return the place of a topic: first those with the most partitions for each subscriber."""
        subscribers = len(self._subscribers[topic])
        high, low = topic.int >> 64, topic.int & _LOW_64
        return -len(self._owner[topic]) / subscribers, subscribers, _signed(high), _signed(low)

    def _least(self, topic: uuid.UUID) -> int:
        return min(self._subscribers[topic], key=lambda index: (self._load[index], index))

    def _balance(self, topic: uuid.UUID) -> int:
        """Move partitions of a topic from the most to the least loaded of its subscribers; return how many."""
        moved, owners = 0, self._owner[topic]
        mine: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            mine.setdefault(owner, []).append(partition)
        while True:
            least = self._least(topic)
            having = [index for index in self._subscribers[topic] if mine.get(index)]
            most = max(having, key=lambda index: (self._load[index], -index), default=least)
            if self._load[most] - self._load[least] <= 1:
                return moved
            partition = mine[most].pop()
            self._give(topic, partition, least)
            insort(mine.setdefault(least, []), partition)
            moved += 1


def _signed(value: int) -> int:
    return value - (value >> 63 << 64)


def _uuid_hash(topic: uuid.UUID) -> int:
    """Return the result of Kafka's Uuid.hashCode, as 32 bits."""
    mixed = (topic.int >> 64) ^ (topic.int & _LOW_64)
    return (mixed >> 32) ^ (mixed & 0xFFFF_FFFF)


def _java_order(items: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """Return items in the order in which a HashMap of Java has them, in which they were put one by one."""
    listed: Sequence[T] = list(items)
    size = _LEAST_TABLE
    while len(listed) > size * 3 // 4:
        size *= 2

    def bucket(item: T) -> int:
        found = hash_of(item) & 0xFFFF_FFFF
        return (found ^ found >> 16) & (size - 1)

    return sorted(listed, key=bucket)


_ASSIGNORS: Final[Mapping[str, Callable[[Members, Counts], dict[str, Partitions]]]] = {
    RANGE: _range,
    UNIFORM: _uniform,
}
