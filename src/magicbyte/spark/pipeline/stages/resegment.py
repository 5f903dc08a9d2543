"""The same log in segments of another size: the stages `split` and `merge`."""

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
    """Write the log in other segments."""
    from magicbyte.archive.resegment import resegment

    folder, before, size = work.next_folder(), len(work.log.segments), stage.options["segment-bytes"]
    resegment(work.log, work.key, folder, size, joins=stage.do == "merge", limit=work.unit.limit)
    work.take(folder)
    return {"segmentsIn": before, "segmentsOut": len(work.log.segments)}
