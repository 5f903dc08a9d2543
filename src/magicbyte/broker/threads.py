"""Threads for what may have to wait for a disk: the event loop never does.

docs/decisions/0008-no-file-on-the-loop.md has what was measured, and what else was tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

GRACE_S: Final = 0.0005
"""How long the loop stands still for a thread: a write to the system's cache is over long before, waking up is not."""


class Threads:
    """Up to `most` threads, made when they are needed. `pool` is for who wants an executor.

    A cancellation has no effect on work that was begun: it is the caller's next wait that ends by it.
    """

    def __init__(self, name: str, most: int) -> None:
        self.pool = ThreadPoolExecutor(most, name)
        self._late = 0  # works that took longer than their grace, and still do

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do `work` in a thread and return what it returns."""
        return await _ended(self.pool.submit(work, *arguments, **named))

    async def soon(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do `work`, which seldom waits, in a thread; return what it returns, at once if it does not wait.

        The loop stands still for `GRACE_S` at most, and not at all while such work is late: then disks are slow.
        """
        doing = self.pool.submit(work, *arguments, **named)
        if not self._late:
            try:
                return doing.result(GRACE_S)
            except TimeoutError:  # one of the work's own is raised below
                pass
        self._late += 1
        try:
            return await _ended(doing)
        finally:
            self._late -= 1

    def close(self) -> None:
        """End the threads, when they have nothing to do."""
        self.pool.shutdown()


async def _ended(doing: Future[T]) -> T:
    waiting = asyncio.wrap_future(doing)
    cancelled = False
    while not waiting.done():
        try:
            await asyncio.wait({waiting})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled and (task := asyncio.current_task()) is not None:
        task.cancel()
    return waiting.result()
