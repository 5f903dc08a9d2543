"""Send a partition to a cluster."""

from __future__ import annotations

from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.work import (
    Json,
    Work,
)


def run(work: Work, _stage: Stage) -> Json:
    """Send a partition to the target cluster, if there is one."""
    unit = work.unit
    if unit.aim is None:
        work.own()
        return {}
    from magicbyte.spark.pipeline.topics import send

    return send(unit.aim, work.key.partition, work.log if work.owned or unit.live is None else unit.live)
