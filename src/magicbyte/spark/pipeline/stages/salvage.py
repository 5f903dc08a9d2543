"""Keep the sound entries of a damaged partition; of a large one with several workers, each some of its segments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.stages import writing
from magicbyte.spark.pipeline.stages.writing import WritePart, Written, WrittenPart
from magicbyte.spark.pipeline.work import (
    Json,
    Work,
)

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.tools.offline.salvage import SalvageOptions


def run(work: Work, stage: Stage) -> Json:
    """Write the sound entries into a new log."""
    from magicbyte.tools.offline.salvage import salvage_logs

    folder = work.next_folder()
    (done,) = salvage_logs({work.key: work.log}, folder, _options(stage, work.log, work.unit.limit))
    work.take(folder)
    return done.report.to_json()


def parts(work: Work, stage: Stage) -> list[WritePart]:
    """Divide a partition by its segments."""
    return writing.parts(work, stage, _options(stage, work.log, work.unit.limit).rules)


def write(part: WritePart, out: Path) -> Written:
    """Salvage a part."""
    from magicbyte.tools.offline.salvage_parts import salvage_part

    made = salvage_part(part.partition, part.following, part.key, out, _options(part.stage, part.partition, part.limit))
    end_offset = made.segments[-1].end_offset if made.segments else 0
    return Written(made.segments, end_offset, made, is_independent=not made.report.misnamed)


def join(work: Work, stage: Stage, parts: list[WrittenPart]) -> Json:
    """Join the parts."""
    from magicbyte.tools.offline.salvage_parts import join_salvaged

    def put(folder: Path, made: list[Written]) -> Json:
        options = _options(stage, work.log, work.unit.limit)
        return join_salvaged(work.log, work.key, folder, options, [each.report for each in made]).to_json()

    return writing.join(work, parts, lambda: run(work, stage), put)


def _options(stage: Stage, partition: PartitionDirectory, limit: int) -> SalvageOptions:
    from magicbyte.tools.offline.salvage import SalvageOptions

    return SalvageOptions(
        version=stage.options["kafka"],
        dialect=partition.dialect,
        limit=limit,
        new_cluster=not stage.options["same-cluster"],
    )
