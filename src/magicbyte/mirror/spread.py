"""Which partition of the target gets what: the one of the same number, or the one that a record's key decides.

Where keys decide, each set is looked into, unless it is enriched and tells. One without any key stays closed; of the
others the records of each partition become a set, several neighbours of the source together. Everything follows from
the sets themselves, so a mirror that starts again after a crash sends the same records to the same partitions, in the
same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from magicbyte.client.partitioning import partition_of, partitions_of
from magicbyte.errors import CorruptRecordError
from magicbyte.log.append.reencode import joined
from magicbyte.mirror.rewrite import RUN_BYTES, Parcel, records_of
from magicbyte.records.columns import RecordColumns
from magicbyte.records.layout import INT64, Dialect

KEYS = "keys decide where its records go"


class Portion(NamedTuple):
    """What of a parcel goes to one partition of the target; `records` None: all of it, closed if it can be."""

    partition: int
    records: RecordColumns | None


class ParcelLoad(NamedTuple):
    """A parcel, and what of it goes where."""

    parcel: Parcel
    portions: Sequence[Portion]


def straight(found: Iterable[Parcel], partition: int) -> Iterator[ParcelLoad]:
    """Yield each parcel for the partition of the same number."""
    return (ParcelLoad(parcel, (Portion(partition, None),)) for parcel in found)


def by_key(found: Iterable[Parcel], data: memoryview, home: int, partitions: int) -> Iterator[ParcelLoad]:
    """Yield parcels, of which `data` is all that was fetched, for the partitions that the keys of their records decide.

    Sets without any key go to the partition `home`, of the same number, where there are as many at both ends
    (`home` -1: there are not), else they are spread by a hash of their offsets. Raises CorruptRecordError, after all in
    front of the damage was given.
    """
    run: list[RecordColumns] = []
    whole: Parcel | None = None
    for parcel in found:
        try:
            records = None if _is_known_keyless(parcel) else records_of(parcel)
        except CorruptRecordError:
            if whole is not None:
                yield _opened(whole, run, home, partitions)
            raise
        closed = records is None or (parcel.why is None and not has_keys(records))
        grown = None if whole is None or closed else _grown(whole, parcel, data)
        if whole is not None and grown is None:
            yield _opened(whole, run, home, partitions)
            whole, run = None, []
        if closed:
            yield ParcelLoad(parcel, (Portion(_place_of_keyless(parcel, home, partitions), None),))
        elif records is not None:
            whole = grown or replace(parcel, why=parcel.why or KEYS)
            run.append(records)
    if whole is not None:
        yield _opened(whole, run, home, partitions)


def _is_known_keyless(parcel: Parcel) -> bool:
    """Say whether nothing has to be looked into: only enriched wrappers tell that no message inside has a key."""
    return parcel.why is None and parcel.dialect is Dialect.ENRICHED


def has_keys(records: RecordColumns) -> bool:
    """Say whether any record has a key."""
    assert records.key is not None, "keys are decoded"
    return bool((np.asarray(records.key.length) >= 0).any())


def _grown(run: Parcel, parcel: Parcel, data: memoryview) -> Parcel | None:
    """Return a run with one more parcel, None where the two cannot become sets of their own together."""
    begin = run.end - len(run.data)
    apart = parcel.end - len(parcel.data) != run.end or parcel.entry.codec is not run.entry.codec
    if apart or parcel.end - begin > RUN_BYTES:
        return None
    return replace(run, data=data[begin : parcel.end], end=parcel.end, next_offset=parcel.next_offset)


def _opened(run: Parcel, pieces: Sequence[RecordColumns], home: int, partitions: int) -> ParcelLoad:
    """Return the records of a run, by partition; in each they are in the order of the source."""
    records = joined(pieces)
    assert records.key is not None, "keys are decoded"
    targets = partitions_of(records.key, partitions)
    targets[targets < 0] = _place_of_keyless(run, home, partitions)
    chosen: Any = np.unique(targets)
    return ParcelLoad(
        run, [Portion(int(each), records.take(np.flatnonzero(targets == each))) for each in chosen.tolist()]
    )


def _place_of_keyless(parcel: Parcel, home: int, partitions: int) -> int:
    return home if home >= 0 else partition_of(INT64.pack(parcel.next_offset), partitions)
