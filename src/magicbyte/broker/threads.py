"""Threads for what may have to wait for a disk: the event loop never does.

docs/decisions/0008-no-file-on-the-loop.md has what was measured, and what else was tried.
"""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

from magicbyte.compiled import kernel
from magicbyte.printable import logger

if TYPE_CHECKING:
    from concurrent.futures import Executor

log = logger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

GRACE_MS: Final = 1
"""How long the loop stands still for a thread at most: a write to the system's cache is over long before."""
_POLL_S: Final = 0.2


class Threads(Protocol):
    """Threads that do work for the event loop: `SystemThreads`, or simulated ones (`testing/threads.py`).

    A cancellation has no effect on work that was begun: it is the caller's next wait that ends by it.
    """

    pool: Executor
    """The same threads, for callers that want an executor."""

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do `work` in a thread and return what it returns."""

    async def run_short(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run `work`, which seldom blocks, in a thread and return its result; at once if it does not block."""

    async def warm_kernels(self) -> None:
        """Load the compiled kernels."""

    def close(self) -> None:
        """End the threads, when they have nothing to do."""


class SystemThreads:
    """Up to `most` threads of this process, made when they are needed, and one for what is short."""

    def __init__(self, name: str, most: int) -> None:
        self.pool: Executor = ThreadPoolExecutor(most, name)
        self._pinned = _PinnedWorker(name)

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do `work` in a thread and return what it returns."""
        doing = asyncio.wrap_future(self.pool.submit(work, *arguments, **named))
        await ended(doing)
        return doing.result()

    async def run_short(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run `work`, which seldom blocks, in a thread and return its result; at once if it does not block.

        The loop blocks for `GRACE_MS` at most, and not at all while earlier such work is late: disks are slow then.
        """
        if self._pinned.is_busy or not hasattr(select, "poll"):
            return await self.run(work, *arguments, **named)
        result: T = await self._pinned.do(partial(work, *arguments, **named))
        return result

    async def warm_kernels(self) -> None:
        """Load the kernels; where they have to be compiled first, another process does that, as long as it takes."""
        if os.environ.get("MAGICBYTE_KERNELS") == "plain":
            return
        if not kernel.is_warm():
            compiler = subprocess.Popen([sys.executable, "-m", "magicbyte", "warm"], stdout=subprocess.DEVNULL)
            try:
                while compiler.poll() is None:
                    await asyncio.sleep(_POLL_S)
            finally:
                compiler.kill()
                compiler.wait()
            if not kernel.is_warm():
                log.warning("cannot compile the kernels: magicbyte warm exited with %d", compiler.returncode)
                return
        await asyncio.to_thread(kernel.warm)

    def close(self) -> None:
        """End the threads, when they have nothing to do."""
        self.pool.shutdown()
        self._pinned.close()


class _PinnedWorker:
    """A pinned worker: one thread, on the loop's core, that does one work at a time.

    Handing it over takes a third of the time that an executor's takes.
    Pipes tell of a work, and of its end: who writes to one lets go of the interpreter, so that who is woken can run.
    Where the system lets it, the thread is kept on the core where the loop is, which has nothing else to do while it
    waits: to wake another core that sleeps takes longer than most of this work.
    """

    def __init__(self, name: str) -> None:
        self.is_busy = False
        self._name = name
        self._thread: threading.Thread | None = None
        self._work: Callable[[], Any] | None = None
        self._result: Any = None
        self._error: BaseException | None = None

    def _start(self) -> None:
        self._begun, self._begin = os.pipe()
        self._over, self._end = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._over, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name=f"{self._name}-short", daemon=True)
        self._thread.start()
        self._core, self._core_now = -1, _core_now()

    async def do(self, work: Callable[[], Any]) -> Any:
        """Do `work` and return what it returns."""
        if self._thread is None:
            self._start()
        self.is_busy = True
        self._work = work
        if self._core_now is not None and (core := self._core_now()) != self._core:
            self._come_to(core)
        os.write(self._begin, b"!")
        if not self._poll.poll(GRACE_MS):
            await self._late()
        os.read(self._over, 1)
        result, error = self._result, self._error
        self._work = self._result = self._error = None
        self.is_busy = False
        if error is not None:
            raise error
        return result

    def _come_to(self, core: int) -> None:
        assert self._thread is not None
        assert self._thread.native_id is not None
        try:
            os.sched_setaffinity(self._thread.native_id, {core})
        except OSError:  # not allowed here: the system puts the thread where it likes
            self._core_now = None
        self._core = core

    async def _late(self) -> None:
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        loop.add_reader(self._over, _wake, over)
        try:
            await ended(over)
        finally:
            loop.remove_reader(self._over)

    def _run(self) -> None:
        while os.read(self._begun, 1):
            assert self._work is not None
            try:
                self._result = self._work()
            except BaseException as error:  # noqa: BLE001 (whatever it is, it is raised where it is waited for)
                self._error = error
            os.write(self._end, b"!")

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            os.close(self._begin)
            self._thread.join()
            self._thread = None
            for each in (self._begun, self._over, self._end):
                os.close(each)


def _core_now() -> Callable[[], int] | None:
    """Return what says on which core its caller is, None where threads cannot be put on cores."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    import ctypes

    found: Callable[[], int] | None = getattr(ctypes.CDLL(None), "sched_getcpu", None)
    return found


def _wake(late: asyncio.Future[None]) -> None:
    if not late.done():
        late.set_result(None)


async def ended(doing: asyncio.Future[Any]) -> None:
    """Wait, whatever happens; a cancellation that comes meanwhile is the next wait's."""
    cancelled = False
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled and (task := asyncio.current_task()) is not None:
        task.cancel()
