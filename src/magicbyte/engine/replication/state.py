"""The state of a partition, shared by brokers and the controller."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.replication.reassignment import NO_MOVE, OngoingMove

NEW_NODE: Final = -1
"""Used instead of a version: the state node must be created."""


class PartitionState(Struct, frozen=True):
    """The leader of a partition (`NO_BROKER` for none), its epoch, the in-sync replicas, and the controller's epoch."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class KnownState(NamedTuple):
    """A partition's state, and the version of its node."""

    state: PartitionState
    version: int


class PartitionOrder(Struct, frozen=True):
    """The roles of all brokers for a partition, as a controller orders them. `version` is that of its state.

    `is_new`: the replica was just created. `offline`: dead replicas.
    """

    partition: TopicPartition
    state: PartitionState
    version: int
    replicas: tuple[int, ...]
    is_new: bool = False
    move: OngoingMove = NO_MOVE
    offline: tuple[int, ...] = ()
