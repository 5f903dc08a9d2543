"""Threads that work ahead: in order, damage after the results before it, and not far ahead with large results."""

from collections.abc import Iterator

import pytest

from magicbyte.access.workers import HELD_BYTES, in_order
from magicbyte.engine.errors import CorruptRecordError


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("size", [1, HELD_BYTES // 3, HELD_BYTES])
def test_results_come_in_order(threads: int, size: int) -> None:
    def work(item: int) -> Iterator[tuple[int, int]]:
        for number in range(item):
            yield item, number

    found = list(in_order(iter(range(20)), work, threads, size=lambda _: size))
    assert found == [(item, number) for item in range(20) for number in range(item)]


def test_a_thread_waits_with_what_would_fill_the_memory() -> None:
    made = []

    def work(item: int) -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    results = in_order(iter([0]), work, 2, size=lambda _: HELD_BYTES // 4)
    assert next(results) == 0
    assert made == [0, 1, 2, 3]
    assert list(results) == list(range(1, 100))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("size", [1, HELD_BYTES])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_damage_comes_behind_what_was_made_before_it(threads: int, size: int, place: int) -> None:
    def work(item: int) -> Iterator[tuple[int, int]]:
        for number in range(4):
            if (item, number) == (3, place):
                raise CorruptRecordError("record", expected="sound", found="damage")
            yield item, number

    found: list[tuple[int, int]] = []
    with pytest.raises(CorruptRecordError, match="expected sound"):
        found.extend(in_order(iter(range(20)), work, threads, size=lambda _: size))
    assert found == [(item, number) for item in range(4) for number in range(4) if (item, number) < (3, place)]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_damage_among_the_items_comes_behind_their_results(threads: int) -> None:
    def items() -> Iterator[int]:
        yield from range(7)
        raise CorruptRecordError("entry", expected="sound", found="damage")

    found: list[int] = []
    with pytest.raises(CorruptRecordError, match="entry"):
        found.extend(in_order(items(), lambda item: iter([item]), threads))
    assert found == list(range(7))
