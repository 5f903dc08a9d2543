"""A thread with an event loop of its own, which ends with its block or with the process.

Python joins the workers of a `ThreadPoolExecutor` when it exits, for ever if they do not end: a broker that was not
stopped would keep the process alive. Order at the exit: `_stop_all` runs before the executors are shut down, because
a broker that stops cleanly still uses them; it is registered after them, and such functions are called last in, first
out. The threads are daemons, so that one that does not end within `_EXIT_S` cannot keep the process either.

After a fork the child has the objects but not the thread. There is nothing to stop, and the sockets of the broker are
replaced by the null device: the parent is then the only owner of its address and of its connections. They are not
closed by the loop, whose epoll instance is the parent's as well.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401  (registers its own exit function first)
import contextlib
import os
import socket
import stat
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Final, TypeAlias, TypeVar

from magicbyte.engine.printable import logger

log = logger(__name__)
T = TypeVar("T")

Serving: TypeAlias = Callable[[Callable[[], None], asyncio.Event], Coroutine[Any, Any, None]]
"""Runs on the loop: calls its first argument once it has started, and ends soon after the event is set."""

_BEGIN_S: Final = 10.0  # for a thread that was started to run its loop
_EXIT_S: Final = 20.0  # for all threads together, when the process exits
_DESCRIPTORS: Final = "/dev/fd"
_monotonic: Final = time.monotonic

_running: weakref.WeakSet[LoopThread] = weakref.WeakSet()
_ports_of: weakref.WeakKeyDictionary[object, Callable[[], Iterable[int]]] = weakref.WeakKeyDictionary()


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose timers run although a test has replaced `time.monotonic` by a clock that stands still."""

    def time(self, _monotonic: Callable[[], float] = time.monotonic) -> float:  # bound before anything replaces it
        """Return seconds of the machine's monotonic clock."""
        return _monotonic()


class LoopThread:
    """A thread that runs `serving` from `start` to `stop`, or until the process exits."""

    def __init__(self, name: str, serving: Serving) -> None:
        self._name, self._serving = name, serving
        self._process = os.getpid()
        self._ended: Future[None] = Future()
        self._started: Future[None] = Future()
        self._running: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Return when `serving` has started. Raises its error; an interrupted wait stops it."""
        try:
            _running.add(self)
            self._thread.start()
            wait((self._started, self._ended), return_when=FIRST_COMPLETED)
        except BaseException:  # for instance Ctrl-C, before or after the thread has begun
            with contextlib.suppress(asyncio.CancelledError):
                self.stop()
            raise
        if not self._started.done():
            self.stop()

    def stop(self) -> None:
        """End `serving`, and return when it has ended. Raises its error. Does nothing in a forked child."""
        if os.getpid() != self._process:
            return
        _running.discard(self)
        if self._request_stop():
            self._ended.result()
            self._thread.join()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that runs on the loop. Raises RuntimeError in a forked child."""
        if os.getpid() != self._process:
            work.close()
            raise RuntimeError(f"the {self._name} runs in the process {self._process}, of which this one is a fork")
        return asyncio.run_coroutine_threadsafe(work, self._running.result()).result()

    def _request_stop(self) -> bool:
        """Return whether there is an end to wait for: not if the thread never began."""
        either: list[Future[Any]] = [self._running, self._ended]
        if not wait(either, timeout=_BEGIN_S, return_when=FIRST_COMPLETED).done:
            return False
        if not self._ended.done():
            with contextlib.suppress(RuntimeError):  # the loop was closed in between
                self._running.result().call_soon_threadsafe(self._set_stop)
        return True

    def _set_stop(self) -> None:
        if self._started.done():
            self._stop.set()
        elif self._task is not None:  # interrupted while it starts
            self._task.cancel()

    def _work(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_Loop) as runner:
                runner.run(self._run())
        except BaseException as error:  # noqa: BLE001  (`stop` raises it)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _run(self) -> None:
        self._task = asyncio.current_task()
        self._running.set_result(asyncio.get_running_loop())
        await self._serving(lambda: self._started.set_result(None), self._stop)


def own_sockets(owner: object, ports: Callable[[], Iterable[int]]) -> None:
    """Take the sockets with these local ports from each child that is forked while `owner` lives and has any."""
    _ports_of[owner] = ports


def _stop_all() -> None:
    """Stop what still runs, as the process exits: errors are logged, as no caller is left."""
    end = _monotonic() + _EXIT_S
    threads = [each for each in _running if each._process == os.getpid()]
    for thread in [each for each in threads if each._request_stop()]:
        thread._thread.join(max(0.0, end - _monotonic()))
        if not thread._ended.done():
            log.error("the %s did not stop within %d s; the process ends all the same", thread._name, _EXIT_S)
        elif (error := thread._ended.exception()) is not None:
            log.error("the %s failed while the process ended", thread._name, exc_info=error)


def _drop_sockets() -> None:
    """Replace the sockets of brokers by the null device, in a forked child."""
    ports = {port for listening in list(_ports_of.values()) for port in listening()}
    if not ports:
        return
    try:
        descriptors = [int(name) for name in os.listdir(_DESCRIPTORS)]  # noqa: PTH208  (names, without paths)
        null = os.open(os.devnull, os.O_RDWR)
    except OSError:
        return
    for descriptor in descriptors:
        if _local_port(descriptor) in ports:
            os.dup2(null, descriptor, inheritable=False)
    os.close(null)


def _local_port(descriptor: int) -> int | None:
    """Return the local TCP port of a descriptor, None if it is not such a socket."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        with socket.socket(fileno=os.dup(descriptor)) as found:
            is_tcp = found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM
            return int(found.getsockname()[1]) if is_tcp else None
    except OSError:
        return None


# Python has no public function for "before the executors shut down"; `atexit` comes after them, when a broker can no
# longer stop cleanly, but its thread is a daemon then.
getattr(threading, "_register_atexit", atexit.register)(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_sockets)
