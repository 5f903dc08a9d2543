"""The partitions of `__consumer_offsets` that a coordinator has: each in a term, which begins when it is to be led."""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass

from magicbyte.errors import ErrorCode


class LoadState(enum.Enum):
    """Whether the groups of a partition are known."""

    LOADING = enum.auto()
    ACTIVE = enum.auto()
    FAILED = enum.auto()  # its log could not be read: what it says of its groups is not known


_REFUSAL = {
    LoadState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    LoadState.ACTIVE: ErrorCode.NONE,
    LoadState.FAILED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Term:
    """The term of a partition. No two terms of a coordinator have the same number."""

    number: int
    state: LoadState


class CoordinatorTerms(dict[int, Term]):
    """The present terms, by partition. What was begun in an earlier one can be told by its number, and is void."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    def begin(self, partition: int) -> int:
        """Begin a term, in which the groups are to be loaded first; return its number."""
        number = next(self._numbers)
        self[partition] = Term(number, LoadState.LOADING)
        return number

    def is_present(self, partition: int, number: int) -> bool:
        """Whether this term of a partition lasts still."""
        found = self.get(partition)
        return found is not None and found.number == number

    def is_loading(self, partition: int, number: int) -> bool:
        """Whether this term of a partition lasts still, and its groups are to be loaded."""
        return self.get(partition) == Term(number, LoadState.LOADING)

    def is_active(self, partition: int) -> bool:
        """Whether the groups of a partition are served."""
        return self.refusal(partition) is ErrorCode.NONE

    def end_loading(self, partition: int, number: int, state: LoadState) -> bool:
        """Take in what became of a load; return whether its term lasts still."""
        is_loading = self.is_loading(partition, number)
        if is_loading:
            self[partition] = Term(number, state)
        return is_loading

    def refusal(self, partition: int) -> ErrorCode:
        """Return why the groups of a partition are not served, NONE if they are."""
        found = self.get(partition)
        return ErrorCode.NOT_COORDINATOR if found is None else _REFUSAL[found.state]
