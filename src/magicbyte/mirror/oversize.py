"""Sets that are larger than the target takes: an error, or split, or put aside.

Sets that were opened in any case are always split: it is their new form that is too large. What is put aside lies in a
log directory (log_target.py), by topic and partition of the source, with its offsets there.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from magicbyte.codecs import Codec
from magicbyte.mirror.log_target import LogTarget
from magicbyte.mirror.rewrite import Parcel, records_of
from magicbyte.mirror.spread import ParcelLoad, Portion
from magicbyte.printable import logger
from magicbyte.records.columns import RecordColumns
from magicbyte.records.encode import encode
from magicbyte.records.layout import Dialect

log = logger(__name__)

LARGE: Final = "it is larger than the target takes"


class OnOversize(enum.Enum):
    """What becomes of a set of the source that the target does not take."""

    STOP = "stop"
    SPLIT = "split"
    PARK = "park"


class Parked(NamedTuple):
    """What is to be put aside, from the offset `first` on: a set, as the source has it, or one record of it."""

    first: int
    data: memoryview


def smaller(parcel: Parcel, portion: Portion, policy: OnOversize) -> list[Portion] | Parked | None:
    """Return what to do with a portion that is too large: send it as several, put it aside, or None: give up."""
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
    """Say whether a load is one closed set, or one record."""
    records = _opened(load)
    return not records or sum(len(each) for _, each in records) == 1


def halves(load: ParcelLoad) -> list[ParcelLoad]:
    """Return a load of two records or more as two: the lower offsets, and the higher ones."""
    records = _opened(load)
    offsets = [np.asarray(each.offset) for _, each in records]
    together = np.sort(np.concatenate(offsets))
    middle = together[len(together) // 2]
    found = []
    for is_lower in (True, False):
        rows = [np.flatnonzero((each < middle) == is_lower) for each in offsets]
        parts = zip(records, rows, strict=True)
        portions = [Portion(partition, each.take(chosen)) for (partition, each), chosen in parts if len(chosen)]
        found.append(ParcelLoad(load.parcel, portions))
    return found


def _opened(load: ParcelLoad) -> list[tuple[int, RecordColumns]]:
    return [(each.partition, each.records) for each in load.portions if each.records is not None]


def _alone(parcel: Parcel, record: RecordColumns) -> memoryview:
    """Return one record as an uncompressed set of the source's format."""
    return encode(record, parcel.form, Codec.NONE)


def without(loads: Iterable[ParcelLoad], parked: Collection[int]) -> Iterator[ParcelLoad]:
    """Yield loads without the records whose offsets are given: those were put aside before."""
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


class Park:
    """Where sets are put aside: a log directory, made for the first of them, open only as long as it is needed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()

    def add(self, topic: str, partition: int, parked: Parked, dialect: Dialect) -> None:
        """Put a set of a partition aside, durably, behind those that are there; once, however often it comes."""
        with self._lock, LogTarget(self.directory) as target:
            target.append(target.log(topic, partition, dialect=dialect), parked.data)
        log.warning("%s-%d, offset %d: put aside in %s", topic, partition, parked.first, self.directory)

    def offsets(self, topic: str, partition: int, start: int) -> set[int]:
        """Return the offsets from `start` on of what was put aside."""
        if not self.directory.exists():
            return set()
        with self._lock, LogTarget(self.directory) as target:
            return target.offsets(topic, partition, start)
