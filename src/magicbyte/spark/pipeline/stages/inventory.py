"""Count the content of a partition; of a large one with several workers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.errors import MagicbyteError
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.units import LARGEST_PIECE, pieces
from magicbyte.spark.pipeline.work import (
    Json,
    TaskOutcome,
    Work,
    failed,
    raise_first,
)

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.tools.offline.inventory import PartitionInventory
    from magicbyte.tools.offline.inventory_parts import CountedSegments


@dataclass(frozen=True, slots=True)
class InventoryPart:
    """Adjacent segments of a partition to count."""

    partition: PartitionDirectory
    deep: bool
    limit: int


class Counted(NamedTuple):
    """The counts of a part."""

    counted: CountedSegments | None
    seconds: float
    error: tuple[TaskOutcome, str] | None = None


def run(work: Work, stage: Stage) -> Json:
    """Count the content of a partition."""
    from magicbyte.tools.offline.inventory import take_inventory

    return _report(take_inventory(work.log, deep=stage.options["deep"], limit=work.unit.limit))


def parts(work: Work, stage: Stage) -> list[InventoryPart]:
    """Divide a partition by its segments."""
    groups = pieces(work.log, min(LARGEST_PIECE, stage.options["part-above"]))
    return [InventoryPart(group, stage.options["deep"], work.unit.limit) for group in groups]


def do(to_count: InventoryPart) -> Counted:
    """Count a part. Runs in a worker; errors are part of the result."""
    from magicbyte.tools.offline.inventory_parts import count_segments

    begun = time.monotonic()
    try:
        counted = count_segments(to_count.partition, deep=to_count.deep, limit=to_count.limit)
        return Counted(counted, time.monotonic() - begun)
    except (MagicbyteError, OSError) as error:
        return Counted(None, time.monotonic() - begun, failed(error))


def join(work: Work, stage: Stage, parts: list[Counted]) -> Json:
    """Return the sums over all parts, with the check of the files beside the segments."""
    from magicbyte.tools.offline.inventory_parts import join_counts

    raise_first(part.error for part in parts)
    counted = [part.counted for part in parts if part.counted is not None]
    found = _report(join_counts(work.log, counted, deep=stage.options["deep"]))
    return {**found, "parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}


def _report(inventory: PartitionInventory) -> Json:
    return {
        "firstOffset": inventory.tally.first_offset,
        "lastOffset": inventory.tally.last_offset,
        **inventory.tally.to_json(),
        "damagedIndexes": [each.to_json() for each in inventory.index_damage],
        "damage": next((str(each) for each in inventory.damage), None),
    }
