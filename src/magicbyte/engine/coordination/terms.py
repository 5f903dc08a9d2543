"""The coordinator's partitions of `__consumer_offsets`, each with a term that begins when the broker becomes leader."""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass

from magicbyte.engine.errors import ErrorCode


class LoadState(enum.Enum):
    """The state of a partition's groups."""

    LOADING = enum.auto()
    ACTIVE = enum.auto()
    FAILED = enum.auto()  # its log could not be read, so its groups are unknown


_REFUSAL = {
    LoadState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    LoadState.ACTIVE: ErrorCode.NONE,
    LoadState.FAILED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Term:
    """The term of a partition. Numbers are unique within a coordinator."""

    number: int
    state: LoadState


class CoordinatorTerms(dict[int, Term]):
    """The current terms, by partition. Work of an earlier term is identified by its number, and void."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    def begin(self, partition: int) -> int:
        """Begin a term, in which the groups must be loaded first; return its number."""
        number = next(self._numbers)
        self[partition] = Term(number, LoadState.LOADING)
        return number

    def is_present(self, partition: int, number: int) -> bool:
        """Return whether this is the current term of a partition."""
        found = self.get(partition)
        return found is not None and found.number == number

    def is_loading(self, partition: int, number: int) -> bool:
        """Return whether this is the current term of a partition, and its groups are still loading."""
        return self.get(partition) == Term(number, LoadState.LOADING)

    def is_active(self, partition: int) -> bool:
        """Return whether the groups of a partition are served."""
        return self.refusal(partition) is ErrorCode.NONE

    def end_loading(self, partition: int, number: int, state: LoadState) -> bool:
        """Record the outcome of a load; return whether its term is still current."""
        is_loading = self.is_loading(partition, number)
        if is_loading:
            self[partition] = Term(number, state)
        return is_loading

    def refusal(self, partition: int) -> ErrorCode:
        """Return why the groups of a partition are not served, or NONE."""
        found = self.get(partition)
        return ErrorCode.NOT_COORDINATOR if found is None else _REFUSAL[found.state]
