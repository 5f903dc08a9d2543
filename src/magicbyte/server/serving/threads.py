"""Threads for work that may wait for a disk, so that the event loop never does.

docs/decisions/0008-no-file-on-the-loop.md has the measurements, and alternatives.
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

from magicbyte.engine.compiled import kernel
from magicbyte.engine.extras import advise
from magicbyte.engine.printable import logger

if TYPE_CHECKING:
    from concurrent.futures import Executor

log = logger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

GRACE_MS: Final = 1
"""The longest time that the loop blocks for a thread: writes to the page cache are much faster."""
_POLL_S: Final = 0.2


class Threads(Protocol):
    """Threads that work for the event loop: `SystemThreads`, or simulated ones (`testing/threads.py`).

    A cancellation does not affect work that has begun: it takes effect at the caller's next wait.
    """

    pool: Executor
    """The same threads, for callers that want an executor."""

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run `work` in a thread and return its result."""

    async def run_short(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run `work`, which seldom blocks, in a thread and return its result; immediately if it does not block."""

    async def warm_kernels(self) -> None:
        """Load the compiled kernels."""

    def close(self) -> None:
        """End the threads when they are idle."""


class SystemThreads:
    """Up to `most` threads, created on demand, and one for short work."""

    def __init__(self, name: str, most: int) -> None:
        self.pool: Executor = ThreadPoolExecutor(most, name)
        self._pinned = _PinnedWorker(name)

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run `work` in a thread and return its result."""
        doing = asyncio.wrap_future(self.pool.submit(work, *arguments, **named))
        await ended(doing)
        return doing.result()

    async def run_short(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run `work`, which seldom blocks, in a thread and return its result; immediately if it does not block.

        The loop blocks for `GRACE_MS` at most, and not at all while earlier such work is late: then disks are slow.
        """
        if self._pinned.is_busy or not hasattr(select, "poll"):
            return await self.run(work, *arguments, **named)
        result: T = await self._pinned.do(partial(work, *arguments, **named))
        return result

    async def warm_kernels(self) -> None:
        """Load the kernels; if they must be compiled first, another process does that, as long as it takes."""
        if os.environ.get("MAGICBYTE_KERNELS") == "plain":
            return
        if not await asyncio.to_thread(kernel.available):  # which imports NumPy, and reads the code of a wheel
            advise("fast", "large batches")
            return
        if not await asyncio.to_thread(kernel.is_warm):
            compiler = subprocess.Popen([sys.executable, "-m", "magicbyte", "warm"], stdout=subprocess.DEVNULL)
            try:
                while compiler.poll() is None:
                    await asyncio.sleep(_POLL_S)
            finally:
                compiler.kill()
                compiler.wait()
            if not await asyncio.to_thread(kernel.is_warm):
                log.warning("cannot compile the kernels: magicbyte warm exited with %d", compiler.returncode)
                return
        await asyncio.to_thread(kernel.warm)

    def close(self) -> None:
        """End the threads when they are idle."""
        self.pool.shutdown()
        self._pinned.close()


class _PinnedWorker:
    """A pinned worker: one thread, on the loop's core, that does one piece of work at a time.

    A hand-over takes a third of the time that an executor's takes. Pipes signal work and its end: writing to one
    releases the interpreter lock, so that the woken thread can run. If the system allows it, the thread is pinned to
    the loop's core, which is idle while the loop waits: waking another sleeping core takes longer than most of this
    work.
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
        """Run `work` and return its result."""
        if self._thread is None:
            self._start()
        self.is_busy = True
        self._work = work
        if self._core_now is not None and (core := self._core_now()) != self._core:
            self._come_to(core)
        os.write(self._begin, b"!")
        # The loop blocks here on purpose. A write to the page cache takes tens of microseconds, less than registering a
        # reader, returning to the loop and being called again. `poll` releases the interpreter lock, so the worker runs
        # on this core at once. Only if the disk makes it slow does the loop continue with other tasks; the pipe then
        # notifies it.
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
        except OSError:  # not permitted: the system chooses the core
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
    """Return a function that returns its caller's core, None if threads cannot be pinned."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    import ctypes

    found: Callable[[], int] | None = getattr(ctypes.CDLL(None), "sched_getcpu", None)
    return found


def _wake(late: asyncio.Future[None]) -> None:
    if not late.done():
        late.set_result(None)


async def ended(doing: asyncio.Future[Any]) -> None:
    """Wait for the end of work; a cancellation meanwhile takes effect at the next wait."""
    task, cancelled = asyncio.current_task(), 0
    assert task is not None, "coroutines run in tasks"
    while not doing.done():
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError:
            cancelled += 1
    for _ in range(cancelled):  # counted once: `asyncio.timeout` takes a second count for the cancellation of another
        task.uncancel()
        task.cancel()
