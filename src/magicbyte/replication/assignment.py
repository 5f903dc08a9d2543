"""Which brokers a new partition is assigned to. Source: Kafka's AdminUtils, for brokers without racks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from magicbyte.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError


def check_factor(factor: int, brokers: Sequence[int]) -> None:
    """Raise InvalidReplicationFactorError unless there can be so many replicas of a partition."""
    if not 1 <= factor <= len(brokers):
        there = "is one broker" if len(brokers) == 1 else f"are {len(brokers)} brokers"
        raise InvalidReplicationFactorError(f"replication factor {factor}: there {there}")


def check_assignments(
    assignments: Mapping[int, Sequence[int]], partitions: Iterable[int], brokers: Sequence[int]
) -> None:
    """Raise InvalidReplicaAssignmentError unless each of these partitions, and no other, has some of these brokers.

    All have as many, and none has one twice.
    """
    if sorted(assignments) != list(partitions):
        raise InvalidReplicaAssignmentError(f"expected brokers of each partition, found those of {list(assignments)}")
    factor = len(next(iter(assignments.values()), ()))
    for partition, found in assignments.items():
        if not found or len(found) != factor or len(set(found)) < factor or not set(found) <= set(brokers):
            expected = f"{factor or 1} of the brokers {', '.join(map(str, brokers))}, each once"
            raise InvalidReplicaAssignmentError(f"partition {partition}: expected {expected}, found {list(found)}")


def assign(
    partitions: Iterable[int], factor: int, brokers: Sequence[int], *, start: int = 0, shift: int = 0
) -> dict[int, list[int]]:
    """Return the brokers of each partition, the preferred leader first.

    Leaders go round the brokers from the one at `start` on; the others follow their leader at a distance, which begins
    with `shift` and grows by one with each round, so that the partitions of a lost leader go to different brokers.
    """
    count = len(brokers)
    found: dict[int, list[int]] = {}
    for partition in partitions:
        first = (partition + start) % count
        away = [1 + (shift + partition // count + replica) % (count - 1) for replica in range(factor - 1)]
        found[partition] = [brokers[first], *(brokers[(first + each) % count] for each in away)]
    return found
