"""Reassignments of partitions from some brokers to others (KIP-455), as sets of replicas.

During a reassignment the partition has the old and the new replicas; `OngoingMove` has the difference. Once all of the
targets are in sync, the others are removed. Source: Kafka's ReplicaAssignment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from magicbyte.engine.errors import ErrorCode


class OngoingMove(Struct, frozen=True):
    """A reassignment in progress: the replicas to add, and those to remove at its end."""

    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.adding or self.removing)

    def origin(self, replicas: Sequence[int]) -> tuple[int, ...]:
        """Return the replicas before the reassignment."""
        return tuple(broker for broker in replicas if broker not in self.adding)

    def targets(self, replicas: Sequence[int]) -> tuple[int, ...]:
        """Return the replicas after the reassignment."""
        return tuple(broker for broker in replicas if broker not in self.removing)


NO_MOVE: Final = OngoingMove()


def moved(replicas: Sequence[int], move: OngoingMove, targets: Sequence[int]) -> tuple[tuple[int, ...], OngoingMove]:
    """Return the replicas of a partition while it moves to `targets`, and the move, which replaces one in progress."""
    origin = move.origin(replicas)
    everywhere = tuple(dict.fromkeys((*targets, *origin)))
    before, after = set(origin), set(targets)
    adding = tuple(each for each in everywhere if each not in before)
    return everywhere, OngoingMove(adding, tuple(each for each in everywhere if each not in after))


def fault(
    targets: Sequence[int], replicas: Sequence[int], move: OngoingMove, isr: Collection[int], live: Mapping[int, int]
) -> tuple[ErrorCode, str] | None:
    """Return why a partition with these `replicas` and in-sync replicas cannot move to `targets`; None if it can."""
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not targets:
        return code, "expected one broker at least"
    if len(set(targets)) < len(targets) or min(targets) < 0:
        return code, f"expected brokers, each once, found {list(targets)}"
    everywhere, new = moved(replicas, move, targets)
    if dead := sorted(set(new.adding) - live.keys()):
        return code, f"expected live brokers, found {dead}"
    if isr and set(isr).isdisjoint(everywhere):
        return code, f"all replicas in sync, {sorted(isr)}, would be deleted: wait until another one is in sync"
    return None
