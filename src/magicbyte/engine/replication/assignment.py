"""Assign brokers to new partitions. Source: Kafka's AdminUtils."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from magicbyte.engine.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError


def check_factor(factor: int, brokers: Sequence[int]) -> None:
    """Raise InvalidReplicationFactorError unless there are enough brokers for the replication factor."""
    if not 1 <= factor <= len(brokers):
        there = "is one broker" if len(brokers) == 1 else f"are {len(brokers)} brokers"
        raise InvalidReplicationFactorError(f"replication factor {factor}: there {there}")


def check_assignments(
    assignments: Mapping[int, Sequence[int]], partitions: Iterable[int], brokers: Sequence[int]
) -> None:
    """Raise InvalidReplicaAssignmentError unless exactly these partitions are assigned, to known brokers.

    All must have the same number of replicas, without repeated brokers.
    """
    if sorted(assignments) != list(partitions):
        raise InvalidReplicaAssignmentError(f"expected brokers of each partition, found those of {list(assignments)}")
    factor = len(next(iter(assignments.values()), ()))
    for partition, found in assignments.items():
        if not found or len(found) != factor or len(set(found)) < factor or not set(found) <= set(brokers):
            expected = f"{factor or 1} of the brokers {', '.join(map(str, brokers))}, each once"
            raise InvalidReplicaAssignmentError(f"partition {partition}: expected {expected}, found {list(found)}")


def assign(
    partitions: Iterable[int],
    factor: int,
    brokers: Sequence[int],
    *,
    start: int = 0,
    shift: int = 0,
    racks: Mapping[int, str] | None = None,
) -> dict[int, list[int]]:
    """Return the brokers of each partition, the preferred leader first.

    Leaders rotate over the brokers from the one at `start` on; the others follow their leader at a distance, which
    begins with `shift` and grows by one with each round, so that the partitions of a failed leader move to different
    brokers. With the `racks` of all brokers no two replicas share a rack while another rack has none (KIP-36).
    """
    ordered = brokers if racks is None else _alternated(brokers, racks)
    rack_of = {broker: str(broker) for broker in brokers} if racks is None else racks
    count, distinct = len(ordered), len({rack_of[each] for each in ordered})
    assigned: dict[int, list[int]] = {}
    for partition in partitions:
        first, moved = (partition + start) % count, shift + partition // count
        chosen = [ordered[first]]
        step = moved if racks is None else moved * distinct
        while len(chosen) < factor:
            broker = ordered[(first + 1 + step % (count - 1)) % count]
            used = {rack_of[each] for each in chosen}
            if broker not in chosen and (rack_of[broker] not in used or len(used) == distinct):
                chosen.append(broker)
            step += 1
        assigned[partition] = chosen
    return assigned


def _alternated(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """Return brokers in an order that alternates between racks."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(racks[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    rows = zip_longest(*queues)
    return [each for row in rows for each in row if each is not None]
