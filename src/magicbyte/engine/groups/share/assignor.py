"""The assignor `simple` of share groups: each partition goes to about as many members, each member has about as many.

Members keep what they had as far as that allows. Source: Kafka's SimpleAssignor (4.3).
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Iterable, Mapping, Sequence

from magicbyte.engine.groups.consumer.members import Partitions

Place = tuple[uuid.UUID, int]


def assign(
    subscriptions: Mapping[str, frozenset[uuid.UUID]],
    before: Mapping[str, Partitions],
    partitions: Mapping[uuid.UUID, Sequence[int]],
) -> dict[str, Partitions]:
    """Return the partitions of each member. `subscriptions`: topics by member. `before`: the assignment until now.

    `partitions`: those that may be assigned. If subscriptions differ, each topic is assigned by itself.
    """
    given: dict[str, list[Place]] = {member: [] for member in subscriptions}
    if len(set(subscriptions.values())) == 1:
        topics = next(iter(subscriptions.values()))
        places = [(topic, each) for topic in sorted(topics) for each in sorted(partitions.get(topic, ()))]
        _assign_alike(list(subscriptions), before, places, given)
    else:
        for topic in sorted(partitions):
            members = [member for member, topics in subscriptions.items() if topic in topics]
            _assign_alike(members, before, [(topic, each) for each in sorted(partitions[topic])], given)
    return {member: _by_topic(places) for member, places in given.items()}


def _assign_alike(
    members: Sequence[str], before: Mapping[str, Partitions], places: Sequence[Place], given: dict[str, list[Place]]
) -> None:
    """Assign partitions to members that all subscribe to them."""
    if not members or not places:
        return
    sharing = -(-len(members) // len(places))  # members of each partition
    total, among = sharing * len(places), len(members)
    free = dict.fromkeys(places, sharing)
    wanted, kept = dict[str, int](), dict[str, set[Place]]()
    for index, member in enumerate(members):
        most = -(-total * (index + 1) // among) + (-total * index // among)
        held = set[Place]()
        for topic, numbers in before.get(member, {}).items():
            for number in numbers:
                if len(held) < most and free.get((topic, number), 0):
                    held.add((topic, number))
                    free[topic, number] -= 1
        wanted[member], kept[member] = most - len(held), held
    heap = [(-left, place) for place, left in free.items() if left]
    heapq.heapify(heap)
    for member in members:
        passed = list[tuple[int, Place]]()
        while wanted[member] > 0 and heap:
            left, partition = heapq.heappop(heap)
            if partition in kept[member]:
                passed.append((left, partition))
                continue
            kept[member].add(partition)
            wanted[member] -= 1
            passed += [(left + 1, partition)] if left + 1 else []
        for each in passed:
            heapq.heappush(heap, each)
        given[member] += kept[member]


def _by_topic(places: Iterable[Place]) -> Partitions:
    found: dict[uuid.UUID, list[int]] = {}
    for topic, number in sorted(places):
        found.setdefault(topic, []).append(number)
    return {topic: tuple(numbers) for topic, numbers in found.items()}
