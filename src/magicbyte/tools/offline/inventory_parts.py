"""Take the inventory of one partition with several workers, each of some of its segments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.log.files.missing import CheckpointedOffsets, missing_of
from magicbyte.tools.offline.inventory import CompanionCheck, EntryCounter, PartitionInventory, count_log, end_of

if TYPE_CHECKING:
    from magicbyte.engine.errors import CorruptRecordError
    from magicbyte.engine.log.files.directory import PartitionDirectory


class CountedSegments(NamedTuple):
    """The counts of adjacent segments, with the damage found in their logs and in their indexes. Picklable."""

    counter: EntryCounter
    damage: list[CorruptRecordError]
    index_damage: list[CorruptRecordError]


def count_segments(part: PartitionDirectory, *, deep: bool, limit: int) -> CountedSegments:
    """Count the entries of some segments of a partition."""
    counted = CountedSegments(EntryCounter(part.dialect, deep=deep, is_part=True), [], [])
    CompanionCheck(part, counted.index_damage).indexes()
    count_log(part, counted.counter, limit, 1, part.size, counted.damage.append)
    return counted


def join_counts(partition: PartitionDirectory, parts: Iterable[CountedSegments], *, deep: bool) -> PartitionInventory:
    """Return the result of `take_inventory` for a partition whose segments are all counted in `parts`, in order."""
    counter = EntryCounter(partition.dialect, deep=deep)
    result = PartitionInventory(partition, counter.dialect, 0, counter.tally, [], [])
    check = CompanionCheck(partition, result.index_damage)
    result.log_start_offset = check.log_start_offset()
    for part in parts:
        counter.follow(part.counter)
        result.damage += part.damage
        result.index_damage += part.index_damage
    check.beside()
    counter.finish()
    result.tally = counter.tally
    result.missing = missing_of(partition, CheckpointedOffsets(), end_of(partition, counter.tally))
    return result
