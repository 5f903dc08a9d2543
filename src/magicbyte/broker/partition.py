"""A partition that this broker leads: its log, who changes it now, and who waits for records in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from magicbyte.errors import CorruptRecordError
from magicbyte.log.live.segment import FileSlice, Segment
from magicbyte.printable import logger

if TYPE_CHECKING:
    from magicbyte.log.live.partition_log import PartitionLog

T = TypeVar("T")

log = logger(__name__)

MOST_DAMAGE_TOLD: Final = 100
"""Lines on damage in one partition, as long as it is open."""


class _Place(NamedTuple):
    """Where a set begins, and its size in bytes."""

    segment: Segment
    generation: int
    position: int
    size: int


class Partition:
    """What the broker keeps beside the log of a partition. Changes of the log are made with `lock` held.

    `is_slow`: the disk took its time when something short was asked of it last.
    """

    __slots__ = (
        "_newest",
        "_recent",
        "_told",
        "index",
        "is_slow",
        "lock",
        "log",
        "topic",
        "waiting",
    )

    RECENT = 256

    def __init__(self, topic: str, index: int, log: PartitionLog) -> None:
        self.topic, self.index, self.log = topic, index, log
        self.lock = asyncio.Lock()
        self.waiting: dict[asyncio.Event, None] = {}  # in the order of their coming
        self.is_slow = False
        self._recent: dict[int, _Place] = {}  # by offset, the oldest first: what those ask for who are at the end
        self._newest = WeakKeyDictionary[Segment, tuple[int, int, int]]()  # generation; of its beginning: end, magic
        self._told = set[tuple[str | None, int | None]]()  # files and positions of damage

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def appended(self, first_offset: int, size: int, magic: int) -> None:
        """Take in that a set was written, of so many bytes, all of one format."""
        active = self.log.active
        position = active.size - size
        self.saw(active, position, active.size, magic)
        if len(self._recent) >= self.RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[first_offset] = _Place(active, self.log.generation, position, size)

    def recent(self, offset: int, max_bytes: int) -> FileSlice | None:
        """Return what `log.read` would from a set on that was written lately; None where the log has to be asked."""
        place = self._recent.get(offset)
        active = self.log.active
        if place is None or place.segment is not active or place.generation != self.log.generation:
            return None
        if max_bytes < place.size or offset < self.log.log_start_offset:
            return None
        length = min(max_bytes, active.size - place.position)
        file = active.log.opened_now()  # to open it is for a thread
        return None if file is None else FileSlice(file, place.position, length, active)

    def saw(self, segment: Segment, position: int, end: int, magic: int) -> None:
        """Take in that no entry of a segment from `position` to `end` has a newer format than `magic`."""
        known_end, newest = self._known(segment)
        if position <= known_end:
            self._newest[segment] = self.log.generation, max(known_end, end), max(newest, magic)

    def newest_up_to(self, segment: Segment, end: int) -> int | None:
        """Return a magic that no entry of a segment in front of `end` is newer than, None if it is not known."""
        known_end, newest = self._known(segment)
        return newest if end <= known_end else None

    def _known(self, segment: Segment) -> tuple[int, int]:
        generation, known_end, newest = self._newest.get(segment, (-1, 0, -1))
        return (known_end, newest) if generation == self.log.generation else (0, -1)

    def tell_damage(self, error: CorruptRecordError) -> None:
        """Log damage that a reader met: each place once, as readers come again and again, and some of the first."""
        place = error.path, error.position
        if place in self._told or len(self._told) > MOST_DAMAGE_TOLD:
            return
        self._told.add(place)
        if len(self._told) > MOST_DAMAGE_TOLD:
            log.warning("%s: more damage is found, which is not logged: `magicbyte verify --deep` lists all", self)
        else:
            log.warning("%s: damage, which is not given to readers: %s", self, error)

    def telling_damage(self, read: Iterator[T]) -> Iterator[T]:
        """Yield what `read` does, and log damage that ends it."""
        try:
            yield from read
        except CorruptRecordError as error:
            self.tell_damage(error)
            raise

    def advance(self, offset: int) -> None:
        """Let readers have what is below `offset`, and wake those that wait for it."""
        if offset > self.log.high_watermark:
            self.log.high_watermark = offset
            self.wake()

    def wake(self) -> None:
        """Have all who wait look again."""
        for event in self.waiting:
            event.set()
