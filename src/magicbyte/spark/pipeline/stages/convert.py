"""A partition in another format; a large one by several workers, each some of its segments."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.errors import MagicbyteError
from magicbyte.log.files.directory import SNAPSHOT, TRANSACTION_INDEX, PartitionDirectory
from magicbyte.ports import TopicPartition
from magicbyte.records.convert import ConversionReport
from magicbyte.spark.pipeline.config import Stage, convert_options
from magicbyte.spark.pipeline.sink import files_of, remove
from magicbyte.spark.pipeline.units import LARGEST_PIECE, pieces
from magicbyte.spark.pipeline.work import (
    Json,
    TaskOutcome,
    Work,
    digest_of,
    failed,
    raise_first,
)

if TYPE_CHECKING:
    from magicbyte.archive.convert import ConvertOptions
    from magicbyte.archive.parts import WrittenSegment


def run(work: Work, stage: Stage) -> Json:
    """Convert a partition; return what a conversion says."""
    from magicbyte.archive.convert import STATE, convert_partitions

    folder = work.next_folder()
    options = convert_options(stage, dialect=work.log.dialect, limit=work.unit.limit)
    (done,) = convert_partitions({work.key: work.log}, folder, options)
    if done.error is not None:
        raise done.error
    (folder / STATE).unlink()
    work.take(folder)
    return _said(done.report, done.lz4_headers)


@dataclass(frozen=True, slots=True)
class ConvertPart:
    """Some neighbouring segments of a partition that is converted by several workers. `folder`: in which they go.

    `following`: the base of the segment behind them; `segment_bytes` of the whole partition.
    """

    partition: PartitionDirectory
    key: TopicPartition
    stage: Stage
    limit: int
    folder: Path
    following: int | None
    segment_bytes: int

    @property
    def options(self) -> ConvertOptions:
        """How it is converted."""
        options = convert_options(self.stage, dialect=self.partition.dialect, limit=self.limit)
        return replace(options, following=self.following, segment_bytes=self.segment_bytes)


class Converted(NamedTuple):
    """What became of a part. `error`, if there is one, with the outcome that it makes; digests are SHA-256 by name."""

    segments: list[WrittenSegment]
    report: ConversionReport
    lz4_headers: int
    seconds: float
    source_digests: dict[str, str]
    digests: dict[str, str]
    error: tuple[TaskOutcome, str] | None = None


def parts(work: Work, stage: Stage) -> list[ConvertPart]:
    """Part a partition by its segments."""
    assert work.root is not None
    above = work.root / f"{work.step + 1}.parts"
    above.mkdir()
    groups = pieces(work.log, min(LARGEST_PIECE, stage.options["part-above"]))
    bases: list[int | None] = [group.segments[0].base_offset if group.segments else 0 for group in groups]
    size = max([1 << 30, *(segment.log.size for segment in work.log.segments)])
    return [
        ConvertPart(group, work.key, stage, work.unit.limit, above / str(base), following, size)
        for group, base, following in zip(groups, bases, [*bases[1:], None], strict=True)
    ]


def do(part: ConvertPart) -> Converted:
    """Convert a part. Runs in a worker; nothing is raised for what is wrong with it."""
    from magicbyte.archive.convert import convert_part

    begun = time.monotonic()
    try:
        own = part.folder / uuid.uuid4().hex  # Spark may make two attempts at a part, both at once
        done, segments = convert_part(part.partition, part.key, own, part.options)
        if done.error is not None:
            raise done.error
        read = {each.log.name: digest_of(part.partition, each.log.name) for each in part.partition.segments}
        bases = {f"{each.base_offset:020}" for each in segments}
        made = {each["name"]: each["sha256"] for each in files_of(done.folder) if each["name"][:20] in bases}
        lasting = {name: each for name, each in made.items() if not name.endswith((TRANSACTION_INDEX, SNAPSHOT))}
        seconds = time.monotonic() - begun
        return Converted(segments, done.report, done.lz4_headers, seconds, read, lasting)
    except (MagicbyteError, OSError) as error:
        return Converted([], ConversionReport(), 0, time.monotonic() - begun, {}, {}, failed(error))


def join(work: Work, stage: Stage, parts: list[Converted]) -> Json:
    """Put the parts together; return what a conversion says."""
    from magicbyte.archive.convert import add_report, join_parts

    raise_first(part.error for part in parts)
    folder, is_source = work.next_folder(), not work.owned
    options = convert_options(stage, dialect=work.log.dialect, limit=work.unit.limit)
    join_parts(work.log, work.key, folder, options, (segment for part in parts for segment in part.segments))
    remove(folder.with_name(f"{folder.name}.parts"))
    work.take(folder)
    report = ConversionReport()
    for part in parts:
        add_report(report, part.report)
        work.digests |= part.digests
        if is_source:
            work.source_digests |= part.source_digests
    fixed = sum(part.lz4_headers for part in parts)
    return {**_said(report, fixed), "parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}


def _said(report: ConversionReport, lz4_headers: int) -> Json:
    found = report.to_json(lz4_headers)
    return {name: found[name] for name in ("records", "bytesPassedThrough", "lz4HeadersFixed", "lost")}
