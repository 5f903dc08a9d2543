"""Threads of a simulated broker: their work is done on the loop, after individual delays, and so in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from magicbyte.server.serving.threads import ended

P = ParamSpec("P")
T = TypeVar("T")


class SimulatedThreads:
    """A `broker.threads.Threads` on a `VirtualLoop`.

    Short work is treated as other work, because the distinction depends on the speed of a real disk.
    """

    def __init__(self, _name: str, _most: int) -> None:
        self.pool: Executor = _AtOnce()

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run `work` when the loop says that a thread would have done it."""
        doing = asyncio.get_running_loop().run_in_executor(self.pool, partial(work, *arguments, **named))
        await ended(doing)
        return doing.result()

    run_short = run

    async def warm_kernels(self) -> None:
        """Do nothing: kernels and their plain twins return the same."""

    def close(self) -> None:
        """Do nothing."""


class _AtOnce(Executor):
    """Runs work immediately."""

    def submit(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[Any]:
        """Run `work` now."""
        future: Future[Any] = Future()
        future.set_result(work(*arguments, **named))
        return future
