"""Convert a partition to another format; a large one with several workers, each some of its segments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from magicbyte.engine.records.convert import ConversionReport
from magicbyte.spark.pipeline.config import Stage, convert_options
from magicbyte.spark.pipeline.stages import writing
from magicbyte.spark.pipeline.stages.writing import WritePart, Written, WrittenPart
from magicbyte.spark.pipeline.work import (
    Json,
    Work,
)


def run(work: Work, stage: Stage) -> Json:
    """Convert a partition. Return the record of the stage."""
    from magicbyte.tools.offline.convert import STATE, convert_partitions

    folder = work.next_folder()
    options = convert_options(stage, dialect=work.log.dialect, limit=work.unit.limit)
    (done,) = convert_partitions({work.key: work.log}, folder, options)
    if done.error is not None:
        raise done.error
    (folder / STATE).unlink()
    work.take(folder)
    return _report(done.report, done.lz4_headers)


def parts(work: Work, stage: Stage) -> list[WritePart]:
    """Divide a partition by its segments."""
    return writing.parts(work, stage, convert_options(stage).rules)


def write(to_write: WritePart, out: Path) -> Written:
    """Convert a part."""
    from magicbyte.tools.offline.convert import convert_part

    options = replace(
        convert_options(to_write.stage, dialect=to_write.partition.dialect, limit=to_write.limit),
        following=None if to_write.following is None else to_write.following.base_offset,
        segment_bytes=to_write.segment_bytes,
    )
    done, segments = convert_part(to_write.partition, to_write.key, out, options)
    if done.error is not None:
        raise done.error
    end = segments[-1].end_offset if segments else 0
    return Written(segments, end, (done.report, done.lz4_headers))


def join(work: Work, stage: Stage, parts: list[WrittenPart]) -> Json:
    """Join the parts. Return the record of the stage."""
    from magicbyte.tools.offline.convert import add_report, join_parts

    def put(folder: Path, made: list[Written]) -> Json:
        options = convert_options(stage, dialect=work.log.dialect, limit=work.unit.limit)
        join_parts(work.log, work.key, folder, options, (segment for each in made for segment in each.segments))
        report, fixed = ConversionReport(), 0
        for each in made:
            add_report(report, each.report[0])
            fixed += each.report[1]
        return _report(report, fixed)

    return writing.join(work, parts, lambda: run(work, stage), put)


def _report(report: ConversionReport, lz4_headers: int) -> Json:
    found = report.to_json(lz4_headers)
    return {name: found[name] for name in ("records", "bytesPassedThrough", "lz4HeadersFixed", "lost")}
