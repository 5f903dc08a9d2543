"""Checks of a partition; damage ends its way."""

from __future__ import annotations

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
    """Check a partition; return the findings."""
    from magicbyte.archive.findings import Depth, Severity
    from magicbyte.archive.verify import verify

    found = list(verify([work.log], depth=Depth(stage.options["depth"]), limit=work.unit.limit))
    damage = next((str(each) for each in found if each.severity is Severity.ERROR), None)
    return {"findings": [jsonable(each) for each in found], "damage": damage}
