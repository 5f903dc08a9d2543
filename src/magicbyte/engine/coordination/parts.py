"""Long requests in parts, with a turn for others after each (`Steps`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

PART: Final = 200  # elements of a long request that are decided together
STEP_BYTES: Final = 4096  # of a response, encoded in one step
WHOLE: Final = 2000  # elements, up to which a request is stored as one set

P = TypeVar("P")


def once_if_long(items: Sequence[P], name: Callable[[P], str] = str) -> Sequence[P]:
    """Return the items of a request; of a long one each name once, so that its response stays within bounds."""
    return items if len(items) <= WHOLE else list({name(each): each for each in items}.values())


def is_long(topics: Iterable[tuple[str, Sequence[object]]]) -> bool:
    """Return whether topics with their partitions are too many for one set."""
    return sum(1 + len(partitions) for _, partitions in topics) > WHOLE


def in_parts(items: Sequence[P]) -> Iterator[Sequence[P]]:
    """Yield the items in parts, at least one."""
    for at in range(0, len(items) or 1, PART):
        yield items[at : at + PART]


def topic_parts(topics: Iterable[tuple[str, Sequence[P]]]) -> Iterator[tuple[list[tuple[str, Sequence[P]]], int]]:
    """Yield topics with all their partitions in parts, each with its number of elements; at least one part.

    A topic that does not fit into a part is continued in the next one.
    """
    together, size, is_first = list[tuple[str, Sequence[P]]](), 0, True
    for topic, partitions in topics:
        for piece in in_parts(partitions):
            together.append((topic, piece))
            size += 1 + len(piece)
            if size >= PART:
                yield together, size
                together, size, is_first = [], 0, False
    if together or is_first:
        yield together, size
