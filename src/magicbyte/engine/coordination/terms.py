"""The terms of a coordinator: its work for one partition of its topic, in one leader epoch or several without a gap.

Invariants:
1. A partition has at most one term. Numbers of terms are unique within a coordinator, and never used again.
2. A term begins with a load, and serves only when it has ended well.
3. Orders of an earlier leader epoch than the latest known one are stale, also when the partition has no term.
"""

from __future__ import annotations

import enum
import itertools

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.sentinels import NO_EPOCH


class LoadState(enum.Enum):
    """The state of the content of a partition."""

    LOADING = enum.auto()
    ACTIVE = enum.auto()
    FAILED = enum.auto()  # its log could not be read, so its content is unknown


_REFUSAL = {
    LoadState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    LoadState.ACTIVE: ErrorCode.NONE,
    LoadState.FAILED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class Term(Struct, frozen=True):
    """The term of a partition. `leader_epoch` is the latest one in which it is led in this term."""

    number: int
    leader_epoch: int
    state: LoadState


class CoordinatorTerms(dict[int, Term]):
    """The current terms, by partition. Work of an earlier term is identified by its number, and void."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()
        self._known_epochs: dict[int, int] = {}  # leader epochs by partition, also of those without a term

    def is_stale(self, partition: int, leader_epoch: int) -> bool:
        """Return whether a later epoch of a partition is known; otherwise record this one."""
        if leader_epoch < self._known_epochs.get(partition, NO_EPOCH):
            return True
        self._known_epochs[partition] = leader_epoch
        return False

    def forget_epochs(self) -> None:
        """Forget the known epochs: the topic was deleted, and those of a new one start again."""
        self._known_epochs.clear()

    def begin(self, partition: int, leader_epoch: int) -> int:
        """Begin a term, in which the content must be loaded first; return its number."""
        number = next(self._numbers)
        self[partition] = Term(number, leader_epoch, LoadState.LOADING)
        return number

    def continue_term(self, partition: int, leader_epoch: int) -> None:
        """Record that a partition is led in a later epoch, without another leader in between."""
        self[partition] = replace(self[partition], leader_epoch=leader_epoch)

    def is_present(self, partition: int, number: int) -> bool:
        """Return whether this is the current term of a partition."""
        found = self.get(partition)
        return found is not None and found.number == number

    def is_loading(self, partition: int, number: int) -> bool:
        """Return whether this is the current term of a partition, and its content is still loading."""
        return self.is_present(partition, number) and self[partition].state is LoadState.LOADING

    def is_active(self, partition: int) -> bool:
        """Return whether the content of a partition is served."""
        return self.refusal(partition) is ErrorCode.NONE

    def end_loading(self, partition: int, number: int, state: LoadState) -> bool:
        """Record the outcome of a load; return whether its term is still current."""
        is_loading = self.is_loading(partition, number)
        if is_loading:
            self[partition] = replace(self[partition], state=state)
        return is_loading

    def refusal(self, partition: int) -> ErrorCode:
        """Return why the content of a partition is not served, or NONE."""
        found = self.get(partition)
        return ErrorCode.NOT_COORDINATOR if found is None else _REFUSAL[found.state]

    @property
    def are_loading(self) -> bool:
        """Whether the content of some partition is still loading."""
        return any(each.state is LoadState.LOADING for each in self.values())
