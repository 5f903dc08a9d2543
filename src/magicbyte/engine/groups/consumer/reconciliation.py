"""The reconciliation of a member: one step from what it has towards its target, decided at its heartbeat.

Source: Kafka's CurrentAssignmentBuilder (4.3).

Invariants:
1. A member gets a partition only when no other one has it, and loses it only when its client no longer owns it.
2. It reaches the epoch of the assignment only with no partition left to revoke.
3. Each step sets the previous epoch: a client that missed the last answer may repeat its request.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from magicbyte.engine.groups.consumer.members import Held, MemberProgress, MemberState, Partitions

Owned = Mapping[uuid.UUID, frozenset[int]]
"""The partitions that a client owns, as it reports them."""


def next_step(
    progress: MemberProgress,
    target: Partitions,
    target_epoch: int,
    owned: Owned | None,
    is_free: Callable[[uuid.UUID, int], bool],
    *,
    has_changed: bool,
) -> MemberProgress | None:
    """Return the progress of a member after its heartbeat; None in a state of a later release that still owns some.

    `target`: its part of the assignment of `target_epoch`, without topics to which it does not subscribe. `owned`: None
    if the client does not say. `is_free`: whether no other member has a partition. `has_changed`: its subscription has.
    """
    match progress.state:
        case MemberState.STABLE:
            if progress.epoch == target_epoch and (not has_changed or progress.assigned.keys() <= target.keys()):
                return progress
        case MemberState.UNREVOKED_PARTITIONS:
            if owns_some(progress.revoking, owned):
                return _without_unsubscribed(progress, target) if has_changed else progress
        case MemberState.UNKNOWN:
            if owned is None or owned:
                return None
    return _towards(progress, target, target_epoch, owned, is_free)


def _without_unsubscribed(progress: MemberProgress, target: Partitions) -> MemberProgress:
    """Return a member that still has to revoke partitions, and now also those of topics that it left."""
    left = {topic: epochs for topic, epochs in progress.assigned.items() if topic not in target}
    if not left:
        return progress
    assigned = {topic: epochs for topic, epochs in progress.assigned.items() if topic in target}
    revoking = {
        topic: {**progress.revoking.get(topic, {}), **left.get(topic, {})}
        for topic in progress.revoking.keys() | left.keys()
    }
    return MemberProgress(progress.epoch, progress.epoch, progress.state, assigned, revoking)


def _towards(
    progress: MemberProgress,
    target: Partitions,
    target_epoch: int,
    owned: Owned | None,
    is_free: Callable[[uuid.UUID, int], bool],
) -> MemberProgress:
    kept: dict[uuid.UUID, dict[int, int]] = {}
    revoked: dict[uuid.UUID, dict[int, int]] = {}
    for topic, epochs in progress.assigned.items():
        wanted = frozenset(target.get(topic, ()))
        for partition, epoch in epochs.items():
            (kept if partition in wanted else revoked).setdefault(topic, {})[partition] = epoch
    if revoked and owns_some(revoked, owned):
        return MemberProgress(progress.epoch, progress.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
    must_wait = False
    for topic, partitions in target.items():
        had = kept.get(topic, {})
        for partition in partitions:
            if partition in had:
                continue
            if is_free(topic, partition):
                kept.setdefault(topic, {})[partition] = target_epoch
            else:
                must_wait = True
    state = MemberState.UNRELEASED_PARTITIONS if must_wait else MemberState.STABLE
    return MemberProgress(target_epoch, progress.epoch, state, _sorted(kept), {})


def owns_some(held: Held, owned: Owned | None) -> bool:
    """Return whether a client still owns some of these partitions, as far as it says."""
    return owned is None or any(not owned.get(topic, frozenset()).isdisjoint(epochs) for topic, epochs in held.items())


def _sorted(held: Mapping[uuid.UUID, Mapping[int, int]]) -> Held:
    return {topic: dict(sorted(epochs.items())) for topic, epochs in held.items()}
