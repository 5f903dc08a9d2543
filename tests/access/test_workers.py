"""Work of several threads whose results are dropped."""

import threading
from collections.abc import Iterator

from magicbyte.access.workers import in_order


def test_who_drops_the_results_does_not_wait_for_work_in_progress() -> None:
    proceed, begun = threading.Event(), threading.Event()

    def work(number: int) -> Iterator[int]:
        if number:
            begun.set()
            assert proceed.wait(60)
        yield number

    results = in_order(iter(range(9)), work, 2)
    assert next(results) == 0
    assert begun.wait(60)
    del results  # as a garbage collection does, in any thread
    proceed.set()


def test_items_that_have_not_begun_are_not_done_when_the_results_are_dropped() -> None:
    proceed, done = threading.Event(), list[int]()

    def work(number: int) -> Iterator[int]:
        if number:
            assert proceed.wait(60)
        done.append(number)
        yield number

    results = in_order(iter(range(9)), work, 2)
    next(results)
    del results
    proceed.set()
    for each in threading.enumerate():
        if each.name.startswith("magicbyte-decode"):
            each.join(60)
    assert len(done) <= 3
