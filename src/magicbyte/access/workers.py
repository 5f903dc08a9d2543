"""Run work on items in several threads, and return the results in the order of the items."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from magicbyte.engine.errors import CorruptRecordError

if TYPE_CHECKING:
    from magicbyte.engine.ports import Many

T = TypeVar("T")
R = TypeVar("R")

HELD_BYTES = 128 << 20
"""The limit of the results of one item that wait to be consumed."""
REQUESTS = 64
"""Concurrent requests to an object store: a request of 50 ms is idle time, and 30,000 must take less than a minute."""


@contextlib.contextmanager
def requests_at_once() -> Iterator[Many]:
    """Yield a replacement of `map` that uses REQUESTS threads, for short requests to a store."""
    with ThreadPoolExecutor(REQUESTS, "magicbyte-requests") as pool:
        yield pool.map


@contextlib.contextmanager
def worker_threads(count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Yield so many threads for an iterator. They are waited for at its end, but not if it is dropped or closed.

    A garbage collection may drop it, in any thread: even in one that is being started, and has a lock that the end of
    other threads needs. Then pending work is cancelled, and work in progress ends by itself.
    """
    pool, is_dropped = ThreadPoolExecutor(count, name), False
    try:
        yield pool
    except GeneratorExit:
        is_dropped = True
        raise
    finally:
        pool.shutdown(wait=not is_dropped, cancel_futures=is_dropped)


def in_order(
    items: Iterator[T], work: Callable[[T], Iterator[R]], threads: int, *, size: Callable[[R], int] = lambda _: 1
) -> Iterator[R]:
    """Yield the results of `work` for each item, in order, with `threads` items in progress at a time.

    A thread pauses an item when its results reach HELD_BYTES, measured by `size`; the rest is computed on demand, so
    that no item, whatever it decompresses to, fills the memory. Damage in the items or in the work on one of them is
    raised after all results before it. An iterator that is dropped or closed does not wait for items in progress.
    """
    if threads < 2:
        for item in items:
            yield from work(item)
        return
    with worker_threads(threads, "magicbyte-decode") as pool:
        pending: deque[Future[_ItemResults[R]]] = deque()
        damage: CorruptRecordError | None = None
        try:
            for item in items:
                pending.append(pool.submit(_begin, work(item), size))
                if len(pending) > threads:
                    yield from _delivered(pending)
        except CorruptRecordError as error:  # raised by the walk, which is ahead: the results before it come first
            damage = error
        while pending:
            yield from _delivered(pending)
        if damage is not None:
            raise damage


class _ItemResults(NamedTuple, Generic[R]):
    """Results of an item, and the rest: an iterator of more results, or the damage that ended the work."""

    results: list[R]
    rest: Iterator[R]
    damage: CorruptRecordError | None


def _begin(work: Iterator[R], size: Callable[[R], int]) -> _ItemResults[R]:
    """Return the first results of `work`, at most one more than fill HELD_BYTES."""
    results: list[R] = []
    held = 0
    try:
        for each in work:
            results.append(each)
            held += size(each)
            if held >= HELD_BYTES:
                return _ItemResults(results, work, None)
    except CorruptRecordError as error:
        return _ItemResults(results, iter(()), error)
    return _ItemResults(results, iter(()), None)


def _delivered(pending: deque[Future[_ItemResults[R]]]) -> Iterator[R]:
    """Yield the results of the first of `pending`; raise the damage after them."""
    made = pending.popleft().result()
    yield from made.results
    try:
        yield from made.rest
        if made.damage is not None:
            raise made.damage
    except CorruptRecordError:
        pending.clear()
        raise
