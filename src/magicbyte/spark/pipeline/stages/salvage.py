"""What is sound in a damaged partition."""

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
    """Write what is sound into a log of its own."""
    from magicbyte.archive.salvage import SalvageOptions, salvage_logs

    folder = work.next_folder()
    options = SalvageOptions(
        version=stage.options["kafka"],
        dialect=work.log.dialect,
        limit=work.unit.limit,
        new_cluster=not stage.options["same-cluster"],
    )
    (done,) = salvage_logs({work.key: work.log}, folder, options)
    work.take(folder)
    report = done.report
    return {
        "batches": report.entries,
        "moved": report.moved,
        "endedTransactions": report.ended_transactions,
        "lost": [each.to_json() for each in report.lost],
        "leftOut": [each.to_json() for each in report.aside],
    }
