"""The server-side assignors: range and uniform, with the results of Kafka's.

Source: Kafka's RangeAssignor, UniformHomogeneousAssignmentBuilder and UniformHeterogeneousAssignmentBuilder (4.3).
Where those iterate over a hash table of Java, its order is part of the result: `_java_order`.

Invariants of each: no partition is assigned twice, every partition of a topic with subscribers is assigned, and only
to a subscriber.
"""

from __future__ import annotations

import uuid
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import Final, TypeVar

from msgspec import Struct

from magicbyte.engine.coordination.partitioning import java_hash
from magicbyte.engine.groups.consumer.config import RANGE, UNIFORM
from magicbyte.engine.groups.consumer.members import Partitions

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
    owned: dict[uuid.UUID, set[int]] = {}
    for member in members.values():
        for topic, partitions in member.target.items():
            owned.setdefault(topic, set()).update(partitions)
    free = list[tuple[uuid.UUID, int]]()
    for topic in topics:
        taken = owned.get(topic, ())
        free += [(topic, partition) for partition in range(counts[topic]) if partition not in taken]
    least, extras = divmod(sum(counts[topic] for topic in topics), len(members))
    kept: dict[str, dict[uuid.UUID, list[int]]] = {}
    wanting: dict[str, int] = {}
    for index, member_id in enumerate(ordered):
        takes_extra = extras > 0
        missing = least + takes_extra
        mine = kept[member_id] = dict[uuid.UUID, list[int]]()
        target = members[member_id].target
        for topic in _java_order(target, _uuid_hash):
            if topic not in subscribed or topic not in counts:
                continue
            there = [partition for partition in target[topic] if partition < counts[topic]]
            if missing and there:
                mine[topic] = there[:missing]
            free += [(topic, partition) for partition in there[missing:]]
            missing -= min(missing, len(there))
        if missing > 0 and takes_extra and len(members) - index > extras:  # later members may have more to keep
            takes_extra = False
            missing -= 1
        extras -= takes_extra
        wanting[member_id] = missing
    rest = iter(free)
    for member_id, missing in wanting.items():
        for topic, partition in islice(rest, missing):
            kept[member_id].setdefault(topic, []).append(partition)
    return {
        member_id: {topic: tuple(sorted(partitions)) for topic, partitions in mine.items()}
        for member_id, mine in kept.items()
    }


class _Heterogeneous:
    """Assign partitions to members with different subscriptions: evenly as far as those allow."""

    def __init__(self, members: Members, counts: Counts) -> None:
        self._ids = _java_order(members, java_hash)
        self._topics = list(counts)  # known below by their index, which is hashed faster than an id
        index_of = {topic: at for at, topic in enumerate(self._topics)}
        self._subscribers: list[list[int]] = [[] for _ in self._topics]
        self._load = [0] * len(self._ids)
        self._owner = [[-1] * counts[topic] for topic in self._topics]
        known: dict[frozenset[uuid.UUID], list[int]] = {}  # most members share a subscription
        for index, member_id in enumerate(self._ids):
            topics = members[member_id].topics
            if topics not in known:
                known[topics] = [index_of[topic] for topic in topics if topic in index_of]
            for at in known[topics]:
                self._subscribers[at].append(index)
        for index, member_id in enumerate(self._ids):
            member = members[member_id]
            for topic, partitions in member.target.items():
                if topic in member.topics and topic in index_of:
                    at = index_of[topic]
                    for partition in partitions:
                        if partition < counts[topic]:
                            self._give(at, partition, index)

    def _give(self, at: int, partition: int, index: int) -> None:
        before = self._owner[at][partition]
        if before >= 0:
            self._load[before] -= 1
        self._owner[at][partition] = index
        self._load[index] += 1

    def assign(self) -> dict[str, Partitions]:
        """Return the partitions of each member."""
        wanted = sorted((at for at, those in enumerate(self._subscribers) if those), key=self._rank)
        for at in wanted:
            self._fill(at)
        shared = [at for at in wanted if len(self._subscribers[at]) > 1]
        for _ in range(_ROUNDS):
            if not sum([self._balance(at) for at in shared]):
                break
        places: list[dict[uuid.UUID, list[int]]] = [{} for _ in self._ids]
        for at in wanted:
            mine: dict[int, list[int]] = {}
            for partition, owner in enumerate(self._owner[at]):
                mine.setdefault(owner, []).append(partition)
            for owner, partitions in mine.items():
                places[owner][self._topics[at]] = partitions
        return {
            self._ids[index]: {topic: tuple(partitions) for topic, partitions in each.items()}
            for index, each in enumerate(places)
        }

    def _rank(self, at: int) -> tuple[float, int, int, int]:
        """Return the place of a topic: first those with the most partitions for each subscriber."""
        subscribers, topic = len(self._subscribers[at]), self._topics[at]
        high, low = topic.int >> 64, topic.int & _LOW_64
        return -len(self._owner[at]) / subscribers, subscribers, _signed(high), _signed(low)

    def _fill(self, at: int) -> None:
        """Give each partition of a topic without an owner to the least loaded of its subscribers."""
        free = [partition for partition, owner in enumerate(self._owner[at]) if owner < 0]
        if not free:
            return
        lightest = self._lightest(at)
        for partition in free:
            least = lightest[0][1]
            self._give(at, partition, least)
            heapreplace(lightest, (self._load[least], least))

    def _lightest(self, at: int) -> list[tuple[int, int]]:
        """Return a heap of a topic's subscribers: load and index."""
        heap = [(self._load[index], index) for index in self._subscribers[at]]
        heapify(heap)
        return heap

    def _balance(self, at: int) -> int:
        """Move partitions of a topic from the most to the least loaded of its subscribers; return how many."""
        moved, owners, load = 0, self._owner[at], self._load
        loads = [load[index] for index in self._subscribers[at]]
        if max(loads) - min(loads) <= 1:
            return 0
        mine: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            mine.setdefault(owner, []).append(partition)
        # Each move adds the new loads of its two members. Older entries of these are dropped when they come to the top.
        lightest, heaviest = self._lightest(at), [(-load[index], index) for index in mine]
        heapify(heaviest)
        while True:
            while lightest[0][0] != load[lightest[0][1]]:
                heappop(lightest)
            while heaviest and (-heaviest[0][0] != load[heaviest[0][1]] or not mine[heaviest[0][1]]):
                heappop(heaviest)
            least = lightest[0][1]
            most = heaviest[0][1] if heaviest else least
            if load[most] - load[least] <= 1:
                return moved
            partition = mine[most].pop()
            self._give(at, partition, least)
            insort(mine.setdefault(least, []), partition)
            for index in (most, least):
                heappush(lightest, (load[index], index))
                heappush(heaviest, (-load[index], index))
            moved += 1


def _signed(value: int) -> int:
    return value - (value >> 63 << 64)


def _uuid_hash(topic: uuid.UUID) -> int:
    """Return the result of Kafka's Uuid.hashCode, as 32 bits."""
    mixed = (topic.int >> 64) ^ (topic.int & _LOW_64)
    return (mixed >> 32) ^ (mixed & 0xFFFF_FFFF)


def _java_order(items: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """Return items in the order in which a HashMap of Java has them, in which they were put one by one."""
    listed = list(items)
    if len(listed) < 2:
        return listed
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
