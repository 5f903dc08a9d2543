"""Some records of a partition."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.work import (
    Json,
    Work,
)

if TYPE_CHECKING:
    pass


def run(work: Work, stage: Stage) -> Json:
    """Write the records that are wanted into a log of their own."""
    from magicbyte.archive.filter import Wanted, filter_partition

    given, folder = stage.options, work.next_folder()
    first, end = given["from-offset"] or 0, given["to-offset"]
    limits = {} if end is None else {"end": end}
    wanted = Wanted(given["since"], given["until"], first, keys=given["keys"], prefix=given["key-prefix"], **limits)
    report = filter_partition(work.log, work.key, folder, wanted, limit=work.unit.limit)
    work.take(folder)
    return asdict(report)
