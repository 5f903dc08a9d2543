"""What is in a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.work import (
    Json,
    Work,
)

if TYPE_CHECKING:
    pass


def run(work: Work, stage: Stage) -> Json:
    """Count what is in a partition; return what there is to say."""
    from magicbyte.archive.inventory import take_inventory

    found = take_inventory(work.log, deep=stage.options["deep"], limit=work.unit.limit)
    return {
        "firstOffset": found.tally.first_offset,
        "lastOffset": found.tally.last_offset,
        **found.tally.to_json(),
        "damagedIndexes": [each.to_json() for each in found.index_damage],
        "damage": next((str(each) for each in found.damage), None),
    }
