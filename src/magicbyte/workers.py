"""This machine's threads: several of them work on items, and their results come in the order of the items."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from magicbyte.errors import CorruptRecordError

if TYPE_CHECKING:
    from magicbyte.ports import Many

T = TypeVar("T")
R = TypeVar("R")

HELD_BYTES = 128 << 20
"""That the results of one item may have before they are taken."""
REQUESTS = 64
"""To a store at a time: one of 50 ms is nothing but waiting, and 30,000 of them are to take less than a minute."""


@contextlib.contextmanager
def requests_at_once() -> Iterator[Many]:
    """Give what is called as `map` is, and has REQUESTS threads at a time: for short requests to a store."""
    with ThreadPoolExecutor(REQUESTS, "magicbyte-requests") as pool:
        yield pool.map


def in_order(
    items: Iterator[T], work: Callable[[T], Iterator[R]], threads: int, *, size: Callable[[R], int] = lambda _: 1
) -> Iterator[R]:
    """Yield what `work` makes of each item, in order, with `threads` of them under way at a time.

    A thread goes on with an item until the results have HELD_BYTES, by `size`; the rest is made when it is asked for,
    so that no item, whatever it decompresses to, fills the memory. Damage that ends the items, or the work on one of
    them, is raised behind what was made before it.
    """
    if threads < 2:
        for item in items:
            yield from work(item)
        return
    with ThreadPoolExecutor(threads, "magicbyte-decode") as pool:
        pending: deque[Future[_Made[R]]] = deque()
        damage: CorruptRecordError | None = None
        try:
            for item in items:
                pending.append(pool.submit(_begin, work(item), size))
                if len(pending) > threads:
                    yield from _delivered(pending)
        except CorruptRecordError as error:  # in the walk, which is ahead: what lies before it is to be given first
            damage = error
        while pending:
            yield from _delivered(pending)
        if damage is not None:
            raise damage


class _Made(NamedTuple, Generic[R]):
    """Results of an item, and what else there may be: more of them, or the damage that ended the work."""

    results: list[R]
    rest: Iterator[R]
    damage: CorruptRecordError | None


def _begin(work: Iterator[R], size: Callable[[R], int]) -> _Made[R]:
    """Return the first results of `work`, of HELD_BYTES and one more at most."""
    found: list[R] = []
    held = 0
    try:
        for each in work:
            found.append(each)
            held += size(each)
            if held >= HELD_BYTES:
                return _Made(found, work, None)
    except CorruptRecordError as error:
        return _Made(found, iter(()), error)
    return _Made(found, iter(()), None)


def _delivered(pending: deque[Future[_Made[R]]]) -> Iterator[R]:
    """Yield the results of the first of `pending`; raise the damage behind them."""
    made = pending.popleft().result()
    yield from made.results
    try:
        yield from made.rest
        if made.damage is not None:
            raise made.damage
    except CorruptRecordError:
        pending.clear()
        raise
