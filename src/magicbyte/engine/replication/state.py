"""The state of a partition, shared by brokers and the controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

NEW_NODE: Final = -1
"""Used instead of a version: the state node must be created."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The leader of a partition (`NO_BROKER` for none), its epoch, the in-sync replicas, and the controller's epoch."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class KnownState(NamedTuple):
    """A partition's state, and the version of its node."""

    state: PartitionState
    version: int
