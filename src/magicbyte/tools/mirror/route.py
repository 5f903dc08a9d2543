"""The route of one partition from its source to its target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from magicbyte.access.client import Client
from magicbyte.access.client.fetch import ClosedSets
from magicbyte.access.client.source import Source
from magicbyte.engine.records.layout import Dialect
from magicbyte.tools.mirror.oversize import OnOversize, Park
from magicbyte.tools.mirror.progress import Book, Origin
from magicbyte.tools.mirror.rewrite import Storage, parcels
from magicbyte.tools.mirror.spread import ParcelLoad, by_key, straight


@dataclass(frozen=True, slots=True)
class Route:
    """Source and target of a partition. `group` stores the progress; `committed`: the source has transactions."""

    source: Source
    target: Client
    topic: str
    partition: int
    group: str
    storage: Storage
    committed: bool
    once: bool
    """Whether the target reveals what it already has: it stores magic 2, and assigns producer ids."""
    to: str
    """The topic at the target."""
    origin: Origin
    partitions: int
    """The number of partitions at the source."""
    lanes: int = 0
    """The number of target partitions among which keys decide; 0: each goes to the partition of the same number."""
    dialect: Dialect = Dialect.KAFKA
    """The dialect of the source's responses."""
    on_oversize: OnOversize = OnOversize.STOP
    park: Park | None = None
    """Where oversized sets are parked."""
    merge: bool = False
    """Whether others may have written to the target before."""
    has_map: bool = False
    """Whether the target stores an offset map. There is none with keys, nor in transactions."""
    transactional_id: str | None = None
    """The transactional id for records and progress; None: no transactions."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def targets(self) -> range:
        """The partitions of the target."""
        return range(self.lanes) if self.lanes else range(self.partition, self.partition + 1)

    def loads(self, sets: ClosedSets, start: int, lanes: int, *, at_boundary: bool) -> Iterator[ParcelLoad]:
        """Yield the loads of fetched sets, from the offset `start` on, for `lanes` partitions.

        `at_boundary`: as for `parcels`. Raises CorruptRecordError, after yielding everything before the damage.
        """
        each = parcels(sets, start, self.storage, at_boundary=at_boundary)
        if self.lanes:
            return by_key(each, sets.data, self.partition if lanes == self.partitions else -1, lanes)
        return straight(each, self.partition)

    def book(self, partition: int) -> Book:
        """Return the stored position of a partition of the source."""
        return Book(self.group, self.to, partition, keyed=self.lanes > 0)
