"""Handle sets that are too large for the target: fail, split, or put aside (park).

Sets that must be decompressed anyway are always split: their new form is too large. Parked sets are stored in a log
directory (log_target.py), by topic and partition of the source, with its offsets.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from magicbyte.engine.codecs import Codec
from magicbyte.engine.printable import logger
from magicbyte.engine.records.columns import RecordColumns
from magicbyte.engine.records.encode import encode
from magicbyte.engine.records.layout import Dialect
from magicbyte.tools.mirror.log_target import LogTarget
from magicbyte.tools.mirror.rewrite import Parcel, records_of
from magicbyte.tools.mirror.spread import ParcelLoad, Portion

log = logger(__name__)

LARGE: Final = "it is larger than the target takes"


class OnOversize(enum.Enum):
    """The treatment of a source's set that the target does not accept."""

    STOP = "stop"
    SPLIT = "split"
    PARK = "park"


class Parked(NamedTuple):
    """A set of the source, or one record of it, to be put aside, from the offset `first` on."""

    first: int
    data: memoryview


def smaller(parcel: Parcel, portion: Portion, policy: OnOversize) -> list[Portion] | Parked | None:
    """Return the treatment of a portion that is too large: several portions, a parked set, or None: fail."""
    is_one_set = portion.records is None and parcel.why is None and parcel.entry.size == len(parcel.data)
    if is_one_set and policy is not OnOversize.SPLIT:
        return Parked(parcel.first, parcel.data) if policy is OnOversize.PARK else None
    records = records_of(parcel) if portion.records is None else portion.records
    half = len(records) // 2
    if half:
        parts = records.slice(0, half), records.slice(half, len(records))
        return [Portion(portion.partition, each) for each in parts]
    return Parked(int(records.offset[0]), _alone(parcel, records)) if policy is OnOversize.PARK else None


def is_single(load: ParcelLoad) -> bool:
    """Return whether a load is one closed set, or one record."""
    records = _opened(load)
    return not records or sum(len(each) for _, each in records) == 1


def halves(load: ParcelLoad) -> list[ParcelLoad]:
    """Split a load of at least two records in two: the lower and the higher offsets."""
    records = _opened(load)
    offsets = [np.asarray(each.offset) for _, each in records]
    together = np.sort(np.concatenate(offsets))
    middle = together[len(together) // 2]
    halved = []
    for is_lower in (True, False):
        rows = [np.flatnonzero((each < middle) == is_lower) for each in offsets]
        parts = zip(records, rows, strict=True)
        portions = [Portion(partition, each.take(chosen)) for (partition, each), chosen in parts if len(chosen)]
        halved.append(ParcelLoad(load.parcel, portions))
    return halved


def _opened(load: ParcelLoad) -> list[tuple[int, RecordColumns]]:
    return [(each.partition, each.records) for each in load.portions if each.records is not None]


def _alone(parcel: Parcel, record: RecordColumns) -> memoryview:
    """Return one record as an uncompressed set of the source's format."""
    return encode(record, parcel.form, Codec.NONE)


def without(loads: Iterable[ParcelLoad], parked: Collection[int]) -> Iterator[ParcelLoad]:
    """Yield loads without the records at the given offsets, which were parked before."""
    gone = np.fromiter(parked, np.int64)
    for load in loads:
        parcel = load.parcel
        if not ((gone >= parcel.first) & (gone < parcel.next_offset)).any():
            yield load
            continue
        portions = []
        for portion in load.portions:
            records = records_of(parcel) if portion.records is None else portion.records
            rows = np.flatnonzero(~np.isin(np.asarray(records.offset), gone))
            portions += [Portion(portion.partition, records.take(rows))] if len(rows) else []
        yield ParcelLoad(parcel, portions)


def not_passed(parked: Collection[int], reached: int) -> set[int]:
    """Return the parked offsets that are still ahead of a copy whose next record is at `reached`."""
    return {offset for offset in parked if offset >= reached}


class Park:
    """The log directory of parked sets, created for the first of them, and open only while needed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()

    def add(self, topic: str, partition: int, parked: Parked, dialect: Dialect) -> None:
        """Park a set of a partition, durably and only once, however often it is added."""
        with self._lock, LogTarget(self.directory) as target:
            target.append(target.log(topic, partition, dialect=dialect), parked.data)
        log.warning("%s-%d, offset %d: put aside in %s", topic, partition, parked.first, self.directory)

    def offsets(self, topic: str, partition: int, start: int) -> set[int]:
        """Return the offsets of parked records from `start` on."""
        if not self.directory.exists():
            return set()
        with self._lock, LogTarget(self.directory) as target:
            return target.offsets(topic, partition, start)
