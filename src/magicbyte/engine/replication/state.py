"""The state of a partition, shared by brokers and the controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The leader of a partition (`NO_LEADER` for none), its epoch, the in-sync replicas, and the controller's epoch."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
