"""Syncs of `log.flush.policy=group-commit`, shared by all appends of a broker: those of leaders and of followers.

A leader acknowledges an append, and shows it to readers, after the sync. A follower acknowledges by its next fetch,
whose offset counts for the leader's high watermark: it syncs first (`replica_fetchers.py`). So a record that `acks=all`
acknowledged is durable on each in-sync replica, and survives a power failure of all of them at once.

Invariants:
1. One round of syncs runs at a time (`log/live/group_commit.py` has which appends it covers).
2. A round holds `Runtime.logs_lock` shared: no log is deleted while it is synced. Locks of partitions are not needed.
3. A waiter gets False for records that were truncated meanwhile, and when the disk fails. Nothing is acknowledged then.

`tests/simulation/test_power_bugs.py` breaks the rules of leaders and of followers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.errors import OutOfDescriptorsError
from magicbyte.engine.log.live.group_commit import GroupCommit, Outcome
from magicbyte.engine.printable import logger
from magicbyte.server.serving.metrics import now_ns

if TYPE_CHECKING:
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.serving.runtime import Runtime

log = logger(__name__)


class _Waiter(NamedTuple):
    """An append that waits for a sync. Afterwards readers may read up to `end_offset`."""

    partition: ServedPartition
    end_offset: int
    done: asyncio.Future[bool]

    def tell(self, *, durable: bool) -> None:
        if not self.done.done():
            self.done.set_result(durable)


class Syncs:
    """The syncs of group commit. Runs in the event loop; a round runs in a thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._commits = GroupCommit[_Waiter]()
        self._committer: asyncio.Task[None] | None = None

    def next(self, partition: ServedPartition) -> asyncio.Future[bool]:
        """Return a future of the durability of all records in a partition's log."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        end = partition.log.log_end_offset
        self._commits.wait(partition.log, _Waiter(partition, end, done))
        if self._committer is None:
            self._committer = self._runtime.spawn(self._commit())
        return done

    async def _commit(self) -> None:
        """Sync for all current waiters, repeatedly until there are none."""
        try:
            while len(self._commits):
                await self._runtime.logs_lock.acquire_shared()  # no log is deleted while it is synced
                try:
                    # Appends that arrive during this sync are not covered by it and wait for the next round: an fsync
                    # guarantees only the writes before its start. So one slow disk operation serves all appends
                    # that came during the previous one, and the batch grows by itself when the disk is slow. A timer
                    # would add its delay to an idle broker as well.
                    running, started = self._commits.begin(), now_ns()
                    try:
                        await self._runtime.writing.run(running.run)
                    except Exception as error:
                        if not isinstance(error, OSError | OutOfDescriptorsError):
                            log.exception("a sync ended because of a bug; its appends are refused")
                        outcome = Outcome(durable=[], lost=self._commits.fail(running, error))
                    else:
                        outcome = self._commits.end(running, self._runtime.clock.monotonic_ms())
                        self._runtime.metrics.syncs.add([now_ns() - started])
                finally:
                    self._runtime.logs_lock.release_shared()
                monotonic_ms = self._runtime.clock.monotonic_ms()
                for waiter in outcome.durable:
                    waiter.partition.advance_leader(waiter.end_offset, monotonic_ms)
                    waiter.tell(durable=True)
                for waiter in outcome.lost:
                    waiter.tell(durable=False)
        finally:
            self._committer = None
