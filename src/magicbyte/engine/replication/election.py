"""Elect the next leader of a partition, and its in-sync replicas.

Source: Kafka's PartitionLeaderElectionAlgorithms. `replicas` are the assigned brokers, the preferred leader first;
`live` the registered ones.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence

from magicbyte.engine.replication.state import PartitionState
from magicbyte.engine.sentinels import NO_BROKER


class ElectionType(enum.IntEnum):
    """The type of a requested election, by its number in ElectLeaders."""

    PREFERRED = 0
    """The first replica of the assignment, if it is live and in sync."""
    UNCLEAN = 1
    """Any live replica, if the partition has no leader. Records that it does not have are lost."""


def _led_by(state: PartitionState, leader: int, isr: Sequence[int], controller_epoch: int) -> PartitionState:
    return PartitionState(leader, state.leader_epoch + 1, tuple(isr), controller_epoch)


def first_state(replicas: Sequence[int], live: Collection[int], controller_epoch: int) -> PartitionState | None:
    """Return the state of a new partition, None without a live replica: the first leads, all live ones are in sync."""
    isr = tuple(broker for broker in replicas if broker in live)
    return PartitionState(isr[0], 0, isr, controller_epoch) if isr else None


def offline(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], controller_epoch: int, *, unclean: bool
) -> PartitionState | None:
    """Elect a leader of a partition whose leader is gone: the first live in-sync replica; None if there is none.

    `unclean` (`unclean.leader.election.enable`): then the first live replica, which may lack committed records.
    """
    isr = [broker for broker in state.isr if broker in live]
    for broker in replicas:
        if broker in isr:
            return _led_by(state, broker, isr, controller_epoch)
    if unclean:
        for broker in replicas:
            if broker in live:
                return _led_by(state, broker, [broker], controller_epoch)
    return None


def without_dead(
    state: PartitionState, replicas: Collection[int], live: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Remove dead brokers from the ISR and from leadership; None if nothing changes.

    The last member of the ISR stays, although dead: it alone may lead again without loss. One that is no longer a
    replica, and was added to the ISR by a leader that does not know that yet, stays only if there is no other.
    """
    assigned = tuple(broker for broker in state.isr if broker in replicas) or state.isr
    isr = tuple(broker for broker in assigned if broker in live) or assigned[-1:]
    leader = state.leader if state.leader in live else NO_BROKER
    if (leader, isr) == (state.leader, state.isr):
        return None
    return _led_by(state, leader, isr, controller_epoch)


def preferred(
    state: PartitionState, replicas: Sequence[int], live: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Make the first assigned replica the leader; None if it leads, or is not live and in sync."""
    first = replicas[0]
    if first == state.leader or first not in live or first not in state.isr:
        return None
    return _led_by(state, first, state.isr, controller_epoch)


def confined(
    state: PartitionState, replicas: Collection[int], live: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Remove brokers that are no longer replicas from leadership and from the ISR.

    None if no other can lead. A reassignment begins and ends with this: the new epoch informs the leader of its
    replicas.
    """
    isr = tuple(broker for broker in state.isr if broker in replicas)
    if state.leader in isr and state.leader in live:
        return _led_by(state, state.leader, isr, controller_epoch)
    for broker in replicas:
        if broker in live and broker in isr:
            return _led_by(state, broker, isr, controller_epoch)
    return None


def controlled_shutdown(
    state: PartitionState,
    replicas: Sequence[int],
    live: Collection[int],
    shutting_down: Collection[int],
    controller_epoch: int,
) -> PartitionState | None:
    """Remove brokers that shut down from leadership and from the ISR; None if no other can lead."""
    isr = [broker for broker in state.isr if broker not in shutting_down]
    for broker in replicas:
        if broker in live and broker in isr:
            leader = state.leader if state.leader in isr and state.leader in live else broker
            return _led_by(state, leader, isr, controller_epoch)
    return None


def shrunk(state: PartitionState, broker_id: int, controller_epoch: int) -> PartitionState | None:
    """Remove one follower from the ISR; None if it is not a member, or the only one."""
    isr = tuple(broker for broker in state.isr if broker != broker_id)
    if not isr or isr == state.isr:
        return None
    return _led_by(state, state.leader, isr, controller_epoch)
