"""The process side of a broker: settings, clock, random source, threads, tasks, memory, locks, counters, quotas.

It knows no topic, no log and no other broker: these are passed individually to their users (docs/decisions/0015).
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable, Coroutine
from importlib import import_module
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from magicbyte.access.clock import SystemClock
from magicbyte.access.net.complaints import Complaints
from magicbyte.access.net.memory import Budget
from magicbyte.access.net.network import Network, SocketNetwork
from magicbyte.engine.printable import logger
from magicbyte.server.serving.metrics import Metrics, now_ns
from magicbyte.server.serving.quotas import BrokerQuotas
from magicbyte.server.serving.shared_lock import SharedLock
from magicbyte.server.serving.threads import SystemThreads, Threads
from magicbyte.server.serving.trimming import Trimming

if TYPE_CHECKING:
    from random import Random

    class OnDisk(Protocol):
        """What lies on a disk, with whether its last short work took long."""

        is_slow: bool

    from magicbyte.engine.errors import MagicbyteError
    from magicbyte.engine.ports import Clock
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.settings.offer import Offer

log = logger(__name__)
T = TypeVar("T")

MOST_THREADS: Final = 32  # for disks, of each kind
_LOGIN_BYTES: Final = 16 << 20  # for large frames of all clients before their login: not of the memory of others
_SLOW_NS: Final = 5_000_000  # for short work: a look-up, a write to the page cache


class Runtime:
    """The process side of one broker. Created before anything is opened, and the same until the broker has stopped.

    `directory` must be held to create or delete logs, write checkpoints, or change the metadata; `logs_lock` to change
    the content of logs outside their partitions' locks. Work that may wait for a disk runs in a thread, `reading` or
    `writing`: long reads do not delay writes. `messages` is the thread that parses and encodes long requests and
    responses. `offer`: the supported API versions. `slow_ns`: requests from this duration on are logged.
    """

    def __init__(
        self,
        config: BrokerConfig,
        offer: Offer,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        network: Network | None = None,
        threads: Callable[[str, int], Threads] = SystemThreads,
    ) -> None:
        self.config, self.offer = config, offer
        self.node_id = config.broker_id
        self.clock: Clock = clock or SystemClock()
        self.random: Random = random or SystemRandom()
        self.network: Network = network or SocketNetwork()
        self.reading, self.writing = threads("reading", MOST_THREADS), threads("writing", MOST_THREADS)
        self.messages = threads("messages", 1)
        self.directory, self.logs_lock = asyncio.Lock(), SharedLock()
        self.metrics = Metrics()
        self.memory = Budget(config.queued_max_request_bytes)
        self.login_memory = Budget(_LOGIN_BYTES)
        self.complaints = Complaints(lambda: self.clock.monotonic_ms() / 1000)
        self.quotas = BrokerQuotas(config, offer, self.clock)
        self.trimming = Trimming(self.clock, self.messages, self.spawn)
        self.is_stopping = False
        self.failure: MagicbyteError | None = None
        self.failed = asyncio.Event()
        self.slow_ns = math.inf
        self.has_numpy = False
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order of their start

    # ---- tasks

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task that ends with the broker at the latest; an error that ends it is logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the broker ended because of a bug", exc_info=error)

    def fail(self, error: MagicbyteError) -> None:
        """Notify the owner of the broker, which awaits `failed`, of a fatal error."""
        log.error("the broker ends, as it cannot continue in its cluster: %s", error)
        self.failure = error
        self.failed.set()

    def stop(self) -> None:
        """Mark the broker as stopping: waiting requests are answered, and memory is no longer trimmed."""
        self.is_stopping = True
        self.trimming.is_stopping = True

    async def cancel_tasks(self) -> None:
        """Cancel all tasks, and those that they start meanwhile."""
        while tasks := list(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # ---- threads

    async def run_short(self, threads: Threads, partition: OnDisk, work: Callable[[], T]) -> T:
        """Run short work on a partition's log: by `Threads.run_short`, unless the disk is known to be slow."""
        started = now_ns()
        try:
            return await (threads.run(work) if partition.is_slow else threads.run_short(work))
        finally:
            partition.is_slow = now_ns() - started > _SLOW_NS

    async def load_numpy(self) -> None:
        """Import NumPy, which takes a tenth of a second and 13 MB, so that a broker starts without it."""
        if not self.has_numpy:
            await self.reading.run(import_module, "numpy")
            self.has_numpy = True

    def close_threads(self) -> None:
        """End the threads when they are idle."""
        for threads in (self.reading, self.writing, self.messages):
            threads.close()

    # ---- random

    def new_uuid(self) -> uuid.UUID:
        """Return a random UUID."""
        return uuid.UUID(int=self.random.getrandbits(128), version=4)
