"""The way of one partition from its source to its target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from magicbyte.client import Client
from magicbyte.client.fetch import ClosedSets
from magicbyte.client.source import Source
from magicbyte.mirror.oversize import OnOversize, Park
from magicbyte.mirror.progress import Book, Origin
from magicbyte.mirror.rewrite import Storage, parcels
from magicbyte.mirror.spread import ParcelLoad, by_key, straight
from magicbyte.records.layout import Dialect


@dataclass(frozen=True, slots=True)
class Route:
    """From where to where. `group` keeps the progress; `committed`: the source knows transactions."""

    source: Source
    target: Client
    topic: str
    partition: int
    group: str
    storage: Storage
    committed: bool
    once: bool
    """Whether the target tells what it has already: it stores magic 2, and gives producer ids."""
    to: str
    """The topic at the target."""
    origin: Origin
    partitions: int
    """How many there are at the source."""
    lanes: int = 0
    """How many partitions of the target the keys of records decide between; 0: all goes to the same number."""
    dialect: Dialect = Dialect.KAFKA
    """Of what the source gives."""
    on_oversize: OnOversize = OnOversize.STOP
    park: Park | None = None
    """Where sets are put aside."""
    merge: bool = False
    """Whether others may have written to the target before."""
    has_map: bool = False
    """Whether the target keeps a map of offsets. There is none where keys decide, nor in transactions."""
    transactional_id: str | None = None
    """Of the transactions that hold records and progress; None: there are none."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def targets(self) -> range:
        """The partitions of the target."""
        return range(self.lanes) if self.lanes else range(self.partition, self.partition + 1)

    def loads(self, found: ClosedSets, start: int, lanes: int, *, at_boundary: bool) -> Iterator[ParcelLoad]:
        """Yield what is to be sent of what was fetched, from the offset `start` on, and to which of `lanes` partitions.

        `at_boundary`: as of `parcels`. Raises CorruptRecordError, after all in front of the damage was given.
        """
        each = parcels(found, start, self.storage, at_boundary=at_boundary)
        if self.lanes:
            return by_key(each, found.data, self.partition if lanes == self.partitions else -1, lanes)
        return straight(each, self.partition)

    def book(self, partition: int) -> Book:
        """Where the place of a partition of the source is kept."""
        return Book(self.group, self.to, partition, keyed=self.lanes > 0)
