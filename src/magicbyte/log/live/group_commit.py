"""`log.flush.policy=group-commit`: an append is acknowledged after a sync that it shares with all that came meanwhile.

No thread and no timer: the owner appends, registers the waiting appends, and runs a round in a thread while others do.
The round returns which appends to acknowledge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from magicbyte.errors import OutOfDescriptorsError
from magicbyte.log.live.partition_log import Flush, PartitionLog

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """Who is to be answered after a round: those whose records are durable, and those whose records are no more."""

    durable: list[T]
    lost: list[T]


@dataclass(frozen=True, slots=True)
class Round(Generic[T]):
    """One sync of every log that somebody waits for. Only `run` may be called from another thread."""

    flushes: list[tuple[PartitionLog, Flush | None]]
    waiting: list[tuple[PartitionLog, int, int, T]]

    def run(self) -> None:
        """Sync. Raises OSError from the first log that fails."""
        for _, flush in self.flushes:
            if flush is not None:
                flush.run()


class GroupCommit(Generic[T]):
    """Those who wait for their appends to be durable; `T` is whatever the owner knows them by."""

    def __init__(self) -> None:
        self._waiting: list[tuple[PartitionLog, int, int, T]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, log: PartitionLog, waiter: T) -> None:
        """Register that `waiter` waits for all that is in `log` by now."""
        self._waiting.append((log, log.log_end_offset, log.generation, waiter))

    def begin(self) -> Round[T]:
        """Return the sync for all who wait now; who comes later waits for the next one."""
        logs = {id(log): log for log, *_ in self._waiting}
        begun = Round([(log, log.begin_flush()) for log in logs.values()], self._waiting)
        self._waiting = []
        return begun

    def end(self, finished: Round[T], monotonic_ms: int) -> Outcome[T]:
        """Take in that a round was run; return whom it covers. What was truncated meanwhile is lost."""
        for log, flush in finished.flushes:
            if flush is not None:
                log.flushed(flush, monotonic_ms)
        durable: list[T] = []
        lost: list[T] = []
        for log, end_offset, generation, waiter in finished.waiting:
            kept = log.generation == generation and log.recovery_point >= end_offset and log.health.error is None
            (durable if kept else lost).append(waiter)
        return Outcome(durable, lost)

    def fail(self, failed: Round[T], error: OSError | OutOfDescriptorsError) -> list[T]:
        """Take in that a round failed: its directories are offline. Return all of its waiters, none to acknowledge.

        A lack of descriptors passes, and takes nothing offline.
        """
        if isinstance(error, OSError):
            for log, _ in failed.flushes:
                log.health.fail(error)
        return [waiter for *_, waiter in failed.waiting]
