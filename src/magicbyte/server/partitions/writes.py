"""Write sets to the logs of partitions: the part of an append that is the same for a leader and for a follower.

A set is written in a thread, with the lock of its partition held and `logs_lock` shared. Sets of several partitions may
be one piece of work. `appends.py` has the phases of an append, and what each lock protects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec import Struct

from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.log.append.prepare import NOTHING_STORED
from magicbyte.engine.log.live.config import FOREVER
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.decode import DEFAULT_MAX_BATCH_BYTES
from magicbyte.server.serving.metrics import now_ns

if TYPE_CHECKING:
    from types import TracebackType

    from magicbyte.engine.log.append.producer_check import Guard
    from magicbyte.engine.log.append.record_set import RecordSet
    from magicbyte.engine.log.append.rules import AppendRules
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.server.partitions.partition import ServedPartition
    from magicbyte.server.serving.runtime import Runtime

DECOMPRESSED_TIMES: Final = 4
"""Memory counted for a large set, as a multiple of its decompressed limit: it may have to be rebuilt."""
OPENED_BYTES: Final = 2 * DEFAULT_MAX_BATCH_BYTES
"""Memory counted for a large set that is stored unchanged: a wrapper in it may have to be opened for its offsets."""
_ORDER: Final = attrgetter("topic", "index")


class WrittenSet(Struct, frozen=True):
    """A set that went through the first three phases, with its offsets in the log: -1 for an empty set.

    A duplicate has the offsets of the original, not its own. `validated_ns`: the duration of the first two phases.
    """

    records: RecordSet
    first_offset: int
    last_offset: int
    validated_ns: int


Work: TypeAlias = Callable[[], WrittenSet]


class PartitionLocks:
    """The locks of partitions as a context. They are acquired by topic and index, against deadlocks."""

    def __init__(self, partitions: Iterable[ServedPartition]) -> None:
        self._partitions = sorted(partitions, key=_ORDER)
        self._held: list[asyncio.Lock] = []

    async def __aenter__(self) -> None:
        try:
            for partition in self._partitions:
                await partition.lock.acquire()
                self._held.append(partition.lock)
        except BaseException:
            self._release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._release()

    def _release(self) -> None:
        for lock in self._held:
            lock.release()


class _Set(Protocol):
    """A set to write, of one partition."""

    @property
    def partition(self) -> ServedPartition: ...


@asynccontextmanager
async def memory_for(runtime: Runtime, rules: AppendRules | None) -> AsyncIterator[None]:
    """Hold the memory for a set that does not fit into the kept scratch memory; `rules` None: it is stored unchanged.

    Locks of partitions may be held, but not `logs_lock`. Raises BusyError after a timeout.
    """
    size = OPENED_BYTES if rules is None else DECOMPRESSED_TIMES * rules.max_decompressed_bytes
    async with runtime.memory.work(size):
        runtime.trimming.ask()
        yield


async def write_all(
    runtime: Runtime, sets: Sequence[_Set], works: Sequence[Work | MagicbyteError], *, is_quick: bool = True
) -> list[WrittenSet | Exception]:
    """Do the work of sets of different partitions in one thread; return its results: a failure leaves the others alone.

    The locks of the partitions are held, and `logs_lock` shared. An error stands for work that must not be done.
    `is_quick`: the work is usually done before the loop could switch to other tasks.
    """
    slowest = sets[0].partition
    for each in sets:
        partition = each.partition
        is_quick = is_quick and partition.log.config.flush_messages == FOREVER  # otherwise a sync may be due
        if partition.is_slow:
            slowest = partition
    work: Callable[[], list[WrittenSet | Exception]] = partial(list, map(_run, works))
    if not is_quick:
        return await runtime.writing.run(work)
    written = await runtime.run_short(runtime.writing, slowest, work)
    for each in sets:
        each.partition.is_slow = slowest.is_slow  # it is unknown which of them was slow
    return written


def _run(work: Work | MagicbyteError) -> WrittenSet | Exception:
    # Apart from the list of results: a frame with both, in the traceback of an error, would keep the request's memory.
    if isinstance(work, MagicbyteError):
        return work
    try:
        return work()
    except Exception as error:  # noqa: BLE001 (it is raised where the result of the set is used)
        return error


def write(log: PartitionLog, prepare: Callable[[], RecordSet], now: Moment, guard: Guard | None = None) -> WrittenSet:
    """Validate a set, assign its offsets (`prepare`), and write it unless it is empty. Called in a thread."""
    started = now_ns()
    records = prepare()
    validated_ns = now_ns() - started
    if not records.size:
        return WrittenSet(records, NOTHING_STORED, NOTHING_STORED, validated_ns)
    return WrittenSet(records, *log.append(records, now, guard), validated_ns)
