"""Keep some records of a partition; of a large one with several workers, each some of its segments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from magicbyte.engine.log.files.index_writer import LATEST_RULES
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.stages import writing
from magicbyte.spark.pipeline.stages.writing import WritePart, Written, WrittenPart
from magicbyte.spark.pipeline.work import (
    Json,
    Work,
)
from magicbyte.tools.offline.rebuild import recognise

if TYPE_CHECKING:
    from magicbyte.tools.offline.filter import RecordFilter


def run(work: Work, stage: Stage) -> Json:
    """Write the selected records into a new log."""
    from magicbyte.tools.offline.filter import filter_partition

    folder = work.next_folder()
    report = filter_partition(work.log, work.key, folder, _wanted(stage), limit=work.unit.limit)
    work.take(folder)
    return asdict(report)


def parts(work: Work, stage: Stage) -> list[WritePart]:
    """Divide a partition by its segments."""
    return writing.parts(work, stage, recognise(work.log) or LATEST_RULES)


def write(part: WritePart, out: Path) -> Written:
    """Filter a part."""
    from magicbyte.tools.offline.filter import filter_part

    wanted = _wanted(part.stage)
    made = filter_part(part.partition, part.key, out, wanted, rules=part.rules, limit=part.limit)
    return Written(made.segments, made.next_offset, made)


def join(work: Work, stage: Stage, parts: list[WrittenPart]) -> Json:
    """Join the parts."""
    from magicbyte.tools.offline.filter import join_filtered

    def put(folder: Path, made: list[Written]) -> Json:
        rules = recognise(work.log) or LATEST_RULES
        return asdict(join_filtered(work.log, work.key, folder, [each.report for each in made], rules=rules))

    return writing.join(work, parts, lambda: run(work, stage), put)


def _wanted(stage: Stage) -> RecordFilter:
    from magicbyte.tools.offline.filter import RecordFilter

    given = stage.options
    first, end = given["from-offset"] or 0, given["to-offset"]
    limits = {} if end is None else {"end": end}
    return RecordFilter(given["since"], given["until"], first, keys=given["keys"], prefix=given["key-prefix"], **limits)
