"""Write the log in segments of another size: the stages `split` and `merge`. Several workers share a large `split`."""

from __future__ import annotations

from pathlib import Path

from magicbyte.engine.log.files.index_writer import LATEST_RULES
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.stages import writing
from magicbyte.spark.pipeline.stages.writing import WritePart, Written, WrittenPart
from magicbyte.spark.pipeline.work import (
    Json,
    Work,
)
from magicbyte.tools.offline.rebuild import recognise


def run(work: Work, stage: Stage) -> Json:
    """Write the log in other segments."""
    from magicbyte.tools.offline.resegment import resegment

    folder, before, size = work.next_folder(), len(work.log.segments), stage.options["segment-bytes"]
    resegment(work.log, work.key, folder, size, joins=stage.do == "merge", limit=work.unit.limit)
    work.take(folder)
    return {"segmentsIn": before, "segmentsOut": len(work.log.segments)}


def parts(work: Work, stage: Stage) -> list[WritePart]:
    """Divide a partition by its segments."""
    return writing.parts(work, stage, recognise(work.log) or LATEST_RULES)


def write(part: WritePart, out: Path) -> Written:
    """Split the segments of a part."""
    from magicbyte.tools.offline.resegment import split_part

    size = part.stage.options["segment-bytes"]
    made = split_part(part.partition, part.key, out, size, rules=part.rules, limit=part.limit)
    return Written(made, made[-1].end_offset, None)


def join(work: Work, stage: Stage, parts: list[WrittenPart]) -> Json:
    """Join the parts."""
    from magicbyte.tools.offline.resegment import join_split

    before = len(work.log.segments)

    def put(folder: Path, made: list[Written]) -> Json:
        rules, size = recognise(work.log) or LATEST_RULES, stage.options["segment-bytes"]
        segments = [segment for each in made for segment in each.segments]
        join_split(work.log, work.key, folder, size, segments, rules=rules)
        return {"segmentsIn": before, "segmentsOut": len(segments)}

    return writing.join(work, parts, lambda: run(work, stage), put)
