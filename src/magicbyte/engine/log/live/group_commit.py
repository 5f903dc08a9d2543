"""`log.flush.policy=group-commit`: an append is acknowledged after a sync shared with all concurrent appends.

It has no thread and no timer: the owner appends, registers the waiting appends, and runs a round in a thread while
other appends continue. The round returns the appends to acknowledge.

Invariants:
1. One round runs at a time. An append is acknowledged by a round that began after its registration, never by the one
   that was running: a sync covers only earlier writes.
2. An append is not acknowledged if its records were truncated meanwhile (`generation`), even if the recovery point is
   above its end: other records may have its offsets.
3. A round that fails acknowledges no append. An I/O error takes the directories offline: a later sync may succeed
   although the data are lost.

Only `Round.run` is called in another thread. `test_partition_log.py` has 1 to 3 (`test_one_sync_…`,
`test_a_failing_sync_…`), `tests/simulation/test_planted_bugs.py` breaks 1 and 2.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from magicbyte.engine.log.live.partition_log import Flush, PartitionLog

T = TypeVar("T")


class Outcome(Struct, Generic[T], frozen=True):
    """The waiters to answer after a round: those with durable records, and those whose records were truncated."""

    durable: list[T]
    lost: list[T]


class Round(Struct, Generic[T], frozen=True):
    """One sync of every log with waiters. Only `run` may be called from another thread."""

    flushes: list[tuple[PartitionLog, Flush | None]]
    waiting: list[tuple[PartitionLog, int, int, T]]

    def run(self) -> None:
        """Sync. Raises OSError from the first log that fails."""
        for _, flush in self.flushes:
            if flush is not None:
                flush.run()


class GroupCommit(Generic[T]):
    """Appends that wait until they are durable; `T` is the owner's name for a waiter."""

    def __init__(self) -> None:
        self._waiting: list[tuple[PartitionLog, int, int, T]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, log: PartitionLog, waiter: T) -> None:
        """Register that `waiter` waits for all present records of `log`."""
        self._waiting.append((log, log.log_end_offset, log.generation, waiter))

    def begin(self) -> Round[T]:
        """Return the sync for all present waiters; later ones wait for the next."""
        logs = {id(log): log for log, *_ in self._waiting}
        begun = Round([(log, log.begin_flush()) for log in logs.values()], self._waiting)
        # A new list: an append that is registered from here on may have bytes that this sync does not cover.
        self._waiting = []
        return begun

    def end(self, finished: Round[T], monotonic_ms: int) -> Outcome[T]:
        """Record that a round was run; return its waiters. Records that were truncated meanwhile are lost."""
        for log, flush in finished.flushes:
            if flush is not None:
                log.flushed(flush, monotonic_ms)
        durable: list[T] = []
        lost: list[T] = []
        for log, end_offset, generation, waiter in finished.waiting:
            # A truncation since `wait` began a new generation. The offsets may hold other records by now, so the
            # recovery point alone would acknowledge records that are gone.
            kept = log.generation == generation and log.recovery_point >= end_offset and log.health.error is None
            (durable if kept else lost).append(waiter)
        return Outcome(durable, lost)

    def fail(self, failed: Round[T], error: Exception) -> list[T]:
        """Record that a round failed. Return all of its waiters; none is acknowledged.

        An I/O error takes its directories offline; a lack of descriptors, which is transient, and a bug do not.
        """
        if isinstance(error, OSError):
            for log, _ in failed.flushes:
                log.health.fail(error)
        return [waiter for *_, waiter in failed.waiting]
