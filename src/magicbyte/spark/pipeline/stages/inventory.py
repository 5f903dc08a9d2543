"""What is in a partition."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.work import (
    Json,
    Work,
    jsonable,
)

if TYPE_CHECKING:
    pass


def run(work: Work, stage: Stage) -> Json:
    """Count what is in a partition; return what there is to say."""
    from magicbyte.archive.inventory import take_inventory

    found = take_inventory(work.log, deep=stage.options["deep"], limit=work.unit.limit)
    tally, damage = found.tally, next((str(error) for error in found.damage), None)
    formats = [
        {"magic": magic, "codec": codec, "batches": each.batches, "bytes": each.bytes, "records": each.records}
        for (magic, codec), each in sorted(tally.formats.items())
    ]
    sums = jsonable({name: each for name, each in asdict(tally).items() if name != "formats"})
    return {**sums, "formats": formats, "batches": tally.batches, "records": tally.records,
            "indexDamage": jsonable(found.index_damage), "damage": damage}  # fmt: skip
