"""Choose the target's partitions: that of the same number, or by the records' keys.

If keys decide, each set is decompressed, unless it is enriched and its tags suffice. A set without keys stays closed;
of the others the records of each partition become a set, several adjacent source sets together. All of this depends on
the sets only, so a mirror that restarts after a crash sends the same records to the same partitions, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from magicbyte.access.client.partitioning import partition_of, partitions_of
from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.append.reencode import joined
from magicbyte.engine.records.columns import RecordColumns
from magicbyte.engine.records.layout import INT64, Dialect
from magicbyte.tools.mirror.rewrite import RUN_BYTES, Parcel, records_of

KEYS = "its records are distributed by key"


class Portion(NamedTuple):
    """The part of a parcel for one partition of the target; `records` None: all of it, closed if possible."""

    partition: int
    records: RecordColumns | None


class ParcelLoad(NamedTuple):
    """A parcel with its portions."""

    parcel: Parcel
    portions: Sequence[Portion]


def straight(found: Iterable[Parcel], partition: int) -> Iterator[ParcelLoad]:
    """Yield each parcel for the partition of the same number."""
    return (ParcelLoad(parcel, (Portion(partition, None),)) for parcel in found)


def by_key(sent: Iterable[Parcel], data: memoryview, home: int, partitions: int) -> Iterator[ParcelLoad]:
    """Yield parcels for the partitions chosen by their records' keys; `data` is all that was fetched.

    Sets without keys go to the partition `home`, of the same number, if there are as many at both ends (`home` -1:
    there are not), else they are spread by a hash of their offsets. Raises CorruptRecordError, after yielding
    everything before the damage.
    """
    run: list[RecordColumns] = []
    whole: Parcel | None = None
    for parcel in sent:
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
    """Return whether the header shows that there are no keys: only enriched wrappers have a tag for it."""
    return parcel.why is None and parcel.dialect is Dialect.ENRICHED


def has_keys(records: RecordColumns) -> bool:
    """Return whether any record has a key."""
    assert records.key is not None, "keys are decoded"
    return bool((np.asarray(records.key.length) >= 0).any())


def _grown(run: Parcel, parcel: Parcel, data: memoryview) -> Parcel | None:
    """Return a run with one more parcel, or None if the two cannot be joined."""
    begin = run.end - len(run.data)
    apart = parcel.end - len(parcel.data) != run.end or parcel.entry.codec is not run.entry.codec
    if apart or parcel.end - begin > RUN_BYTES:
        return None
    return replace(run, data=data[begin : parcel.end], end=parcel.end, next_offset=parcel.next_offset)


def _opened(run: Parcel, pieces: Sequence[RecordColumns], home: int, partitions: int) -> ParcelLoad:
    """Return the records of a run, by partition, each in the order of the source."""
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
