"""Which replica leads a partition next, and which are in sync with it then.

Source: Kafka's PartitionLeaderElectionAlgorithms. `replicas` are the assigned brokers, the preferred leader first;
`live` those that are registered.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence

from magicbyte.replication.state import NO_LEADER, PartitionState


class ElectionType(enum.IntEnum):
    """Which replica an election that is asked for makes the leader, by its number in ElectLeaders."""

    PREFERRED = 0
    """The first replica of the assignment, if it is live and in sync."""
    UNCLEAN = 1
    """Any live replica, if the partition has no leader. Records that it does not have are lost."""


def _led_by(state: PartitionState, leader: int, isr: Sequence[int], controller_epoch: int) -> PartitionState:
    return PartitionState(leader, state.leader_epoch + 1, tuple(isr), controller_epoch)


def first_state(replicas: Sequence[int], live: Collection[int], controller_epoch: int) -> PartitionState | None:
    """Return the state of a new partition, None without a live replica: the first leads, all of them are in sync."""
    isr = tuple(each for each in replicas if each in live)
    return PartitionState(isr[0], 0, isr, controller_epoch) if isr else None


def offline(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], controller_epoch: int, *, unclean: bool
) -> PartitionState | None:
    """Elect a leader of a partition whose leader is gone: the first live replica in sync; None if there is none.

    `unclean` (`unclean.leader.election.enable`): then the first live replica, which may lack committed records.
    """
    isr = [each for each in state.isr if each in live]
    for each in replicas:
        if each in isr:
            return _led_by(state, each, isr, controller_epoch)
    if unclean:
        for each in replicas:
            if each in live:
                return _led_by(state, each, [each], controller_epoch)
    return None


def without_dead(
    state: PartitionState, replicas: Collection[int], live: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Remove dead brokers from the in-sync replicas and from the lead; None where that changes nothing.

    The last member of the in-sync replicas stays, dead as it is: it alone may lead again without loss. One that is a
    replica no more, and was taken into sync by a leader that does not know that yet, stays only if there is no other.
    """
    assigned = tuple(each for each in state.isr if each in replicas) or state.isr
    isr = tuple(each for each in assigned if each in live) or assigned[-1:]
    leader = state.leader if state.leader in live else NO_LEADER
    if (leader, isr) == (state.leader, state.isr):
        return None
    return _led_by(state, leader, isr, controller_epoch)


def preferred(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Give the lead to the first assigned replica; None where it leads, or is not live and in sync."""
    first = replicas[0]
    if first == state.leader or first not in live or first not in state.isr:
        return None
    return _led_by(state, first, state.isr, controller_epoch)


def confined(
    state: PartitionState, replicas: Collection[int], live: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Take brokers that are not to be replicas any more out of the lead and of the in-sync replicas.

    None where no other can lead. A reassignment begins and ends with this: the new epoch tells the leader its replicas.
    """
    isr = tuple(each for each in state.isr if each in replicas)
    if state.leader in isr and state.leader in live:
        return _led_by(state, state.leader, isr, controller_epoch)
    for each in replicas:
        if each in live and each in isr:
            return _led_by(state, each, isr, controller_epoch)
    return None


def controlled_shutdown(
    state: PartitionState,
    replicas: Sequence[int],
    live: Collection[int],
    shutting_down: Collection[int],
    controller_epoch: int,
) -> PartitionState | None:
    """Take brokers that shut down out of the lead and of the in-sync replicas; None where no other can lead."""
    isr = [each for each in state.isr if each not in shutting_down]
    for each in replicas:
        if each in live and each in isr:
            leader = state.leader if state.leader in isr and state.leader in live else each
            return _led_by(state, leader, isr, controller_epoch)
    return None


def shrunk(state: PartitionState, broker_id: int, controller_epoch: int) -> PartitionState | None:
    """Remove one follower from the in-sync replicas; None where it is not one of them, or the only one."""
    isr = tuple(each for each in state.isr if each != broker_id)
    if not isr or isr == state.isr:
        return None
    return _led_by(state, state.leader, isr, controller_epoch)
