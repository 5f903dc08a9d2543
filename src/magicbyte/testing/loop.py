"""An asyncio event loop under virtual time: it never waits, and is deterministic.

Time stands still while callbacks are ready, and then jumps to the next timer. Work for threads is done on the loop.
Tasks and callbacks belong to a `Process`, which can be paused, as by SIGSTOP, and killed.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import selectors
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from contextvars import Context

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_MS: Final = 1_700_000_000_000
"""The date at the start, in ms since 1970."""
START_NS: Final = 1_000_000_000_000
"""Virtual time at the start, later than the longest timeout of any process."""
MOST_TURNS_AT_ONCE: Final = 200_000
"""Turns of the loop without any time passing, above which it counts as an endless loop."""
_LAST_S: Final = 60.0  # for a killed process: its later timers never fire
_process: Final = contextvars.ContextVar["Process | None"]("process", default=None)


class StuckError(RuntimeError):
    """A simulation does not end: no event is left, or it exceeds its time or turns."""


class VirtualClock:
    """A `ports.Clock` of one machine. `ahead_ms`: how far its date is ahead of the others."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.ahead_ms = 0
        self._loop = loop

    def now_ms(self) -> int:
        """Return the date in ms since 1970."""
        return START_MS + (self._loop.now_ns - START_NS) // 1_000_000 + self.ahead_ms

    def monotonic_ms(self) -> int:
        """Return the virtual time in ms."""
        return self._loop.now_ns // 1_000_000


class Process:
    """The tasks and callbacks of one process on a `VirtualLoop`: those that it spawns, and all that these create."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.is_paused = False
        self.killed_s: float | None = None
        self._loop = loop
        self._context = contextvars.Context()
        self._context.run(_process.set, self)
        self._parked: list[tuple[asyncio.Handle, Context]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._most_tasks = 64
        loop.processes.append(self)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task of this process."""
        return self._loop.create_task(work, context=self._context.copy())

    def pause(self) -> None:
        """Pause it. Callbacks and timers that become ready meanwhile run in order when it is resumed."""
        self.is_paused = True

    def resume(self) -> None:
        """Resume it."""
        self.is_paused = False
        parked, self._parked = self._parked, []
        for handle, context in parked:
            self._loop.call_soon(_run_parked, handle, context=context)

    def kill(self) -> None:
        """Cancel all tasks. Isolate them from others first, so that their clean-up has no effect."""
        self.killed_s = self._loop.time()
        self.resume()
        for task in self.tasks():
            task.cancel()

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the unfinished tasks, in the order of their start."""
        self._tasks = [task for task in self._tasks if not task.done()]
        return self._tasks.copy()

    def add(self, task: asyncio.Task[Any]) -> None:
        """Register a started task; one started by a killed process is cancelled immediately."""
        if self.killed_s is not None:
            task.cancel()
        if len(self._tasks) >= self._most_tasks:
            self._most_tasks = max(2 * len(self.tasks()), 64)
        self._tasks.append(task)

    def park(self, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context) -> asyncio.Handle:
        """Keep a callback until the process is resumed."""
        handle = _Parked(callback, arguments, self._loop, context)
        self._parked.append((handle, context))
        return handle


def current_process() -> Process | None:
    """Return the running process."""
    return _process.get()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop under virtual time. `work_delay_s` returns the duration of the next thread work.

    `run` raises StuckError when no event is left, when `most_virtual_s` have passed, and after `most_turns`
    of the loop; it lists the waiting tasks.
    """

    def __init__(self, *, most_virtual_s: float = 86_400, most_turns: int = 20_000_000) -> None:
        self.now_ns = START_NS
        self.turns = 0
        self.faults: list[str] = []
        """Unhandled exceptions of callbacks, and of tasks that were never awaited."""
        self.work_delay_s: Callable[[], float] = _at_once
        self._end_ns = START_NS + int(most_virtual_s * 1e9)
        self._most_turns = most_turns
        self._turns_now = 0
        self.processes: list[Process] = []
        self._outside = Process(self, "outside")
        super().__init__(_Jumps(self._jump))
        self.set_task_factory(_task)
        self.set_exception_handler(_fault)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.now_ns / 1e9

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a task until it ends, with everything else meanwhile; return its result."""
        try:
            return self.run_until_complete(self._outside.spawn(work))
        finally:
            for process in self.processes:
                process.tasks()  # releases finished tasks, which reports their exceptions

    def shut_down(self) -> None:
        """Kill all processes, let their tasks end, and close the loop."""
        self._most_turns, self._end_ns = self.turns + MOST_TURNS_AT_ONCE, self.now_ns + int(2 * _LAST_S * 1e9)
        for process in self.processes:
            process.kill()
        ending = asyncio.sleep(_LAST_S / 2)
        self.run_until_complete(self.create_task(ending, context=contextvars.Context()))
        left = list(self.waiting())
        self.close()
        assert not left, "\n".join(["tasks that do not end:", *left])

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call something in this turn or the next; if its process is paused, after it is resumed."""
        process = _process.get() if context is None else context.get(_process)
        if process is not None and process.is_paused:
            return process.park(callback, args, contextvars.copy_context() if context is None else context)
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call as `call_soon` does: there is only one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something at a virtual time; if its process is paused then, after it is resumed."""
        process = _process.get() if context is None else context.get(_process)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        own = list[asyncio.TimerHandle]()
        handle = super().call_at(when, _due, process, own, callback, args, context=context)
        own.append(handle)
        if process.killed_s is not None and when > process.killed_s + _LAST_S:
            handle.cancel()
        return handle

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run work for a thread on the loop, `work_delay_s` later."""
        del executor  # there are no threads
        future: asyncio.Future[T] = self.create_future()
        self.call_later(self.work_delay_s(), _do, future, func, args)
        return future

    def waiting(self) -> Iterator[str]:
        """Yield the process and waiting position of each unfinished task."""
        for process in self.processes:
            paused = ", paused" if process.is_paused else ""
            for task in process.tasks():
                yield f"{process.name}{paused}: {_place(task)}"

    def _jump(self, timeout_s: float | None) -> None:
        """Advance the time to the next timer."""
        self.turns += 1
        if timeout_s is None:
            raise self._stuck("no event is left")
        if self.turns > self._most_turns:
            raise self._stuck(f"more than {self._most_turns} turns of the loop")
        if timeout_s > 0:
            self._turns_now = 0
            self.now_ns += math.ceil(timeout_s * 1e9)
            if self.now_ns > self._end_ns:
                raise self._stuck(f"more than {(self._end_ns - START_NS) // 10**9} virtual seconds")
        else:
            self._turns_now += 1
            if self._turns_now > MOST_TURNS_AT_ONCE:
                raise self._stuck(f"more than {MOST_TURNS_AT_ONCE} turns of the loop without any time passing")

    def _stuck(self, why: str) -> StuckError:
        return StuckError("\n  ".join([f"the simulation does not end: {why}; what waits:", *self.waiting()]))


class _Jumps(selectors.SelectSelector):
    """A selector without file descriptors, which advances the time instead of waiting."""

    def __init__(self, jump: Callable[[float | None], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Advance the time."""
        self._jump(timeout)
        return []


class _Parked(asyncio.Handle):
    """A callback of a paused process."""

    def __init__(
        self, callback: Callable[..., object], arguments: tuple[Any, ...], loop: VirtualLoop, context: Context
    ) -> None:
        super().__init__(callback, arguments, loop, context)
        self.callback, self.arguments = callback, arguments


def _run_parked(handle: asyncio.Handle) -> None:
    assert isinstance(handle, _Parked)
    if not handle.cancelled():
        handle.callback(*handle.arguments)


def _due(
    process: Process, own: list[asyncio.TimerHandle], callback: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    handle = own.pop()
    if process.is_paused:
        process.park(_due_late, (handle, callback, arguments), contextvars.copy_context())
    else:
        callback(*arguments)


def _due_late(handle: asyncio.TimerHandle, callback: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    if not handle.cancelled():  # by an earlier callback after the resumption
        callback(*arguments)


def _task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    context: Context | None = more.get("context")
    process = _process.get() if context is None else context.get(_process)
    task = asyncio.Task(work, loop=loop, **more)
    if process is not None:
        process.add(task)
    return task


def _do(future: asyncio.Future[Any], work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        result = work(*arguments)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is raised where it is waited for)
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(result)


def _fault(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    loop.faults.append(f"{context.get('message')}: {context.get('exception')!r}")
    loop.default_exception_handler(context)


def _place(task: asyncio.Task[Any]) -> str:
    """Return the functions that await one another in a task, and the line of the last one."""
    names, line = list[str](), ""
    work: object = task.get_coro()
    while isinstance(work, CoroutineType):
        names.append(work.__qualname__)
        if work.cr_frame is not None:
            line = f"{work.cr_frame.f_code.co_filename.rpartition('/magicbyte/')[2]}:{work.cr_frame.f_lineno}"
        work = work.cr_await
    return f"{' > '.join(names)} ({line})"


def _at_once() -> float:
    return 0.0
