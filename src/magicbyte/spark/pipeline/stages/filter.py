"""Some records of a partition; of a large one by several workers, each some of its segments."""

from __future__ import annotations

import itertools
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.archive.rebuild import recognise
from magicbyte.errors import MagicbyteError
from magicbyte.log.files.index_writer import LATEST_RULES, IndexRules
from magicbyte.ports import TopicPartition
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.sink import remove
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
    from magicbyte.archive.filter import FilteredPart, RecordFilter
    from magicbyte.log.files.directory import PartitionDirectory


@dataclass(frozen=True, slots=True)
class FilterPart:
    """Some neighbouring segments of a partition that is filtered. `folder`: in which they go. `rules`: of the whole."""

    partition: PartitionDirectory
    key: TopicPartition
    stage: Stage
    limit: int
    folder: Path
    rules: IndexRules


class Filtered(NamedTuple):
    """What became of a part, which begins at `base_offset`. `source_digests`: SHA-256 of logs by name."""

    base_offset: int
    made: FilteredPart | None
    source_digests: dict[str, str]
    seconds: float
    error: tuple[TaskOutcome, str] | None = None


def run(work: Work, stage: Stage) -> Json:
    """Write the records that are wanted into a log of their own."""
    from magicbyte.archive.filter import filter_partition

    folder = work.next_folder()
    report = filter_partition(work.log, work.key, folder, _wanted(stage), limit=work.unit.limit)
    work.take(folder)
    return asdict(report)


def parts(work: Work, stage: Stage) -> list[FilterPart]:
    """Part a partition by its segments."""
    above, rules = _above(work), recognise(work.log) or LATEST_RULES
    above.mkdir()
    groups = pieces(work.log, min(LARGEST_PIECE, stage.options["part-above"]))
    return [FilterPart(group, work.key, stage, work.unit.limit, above, rules) for group in groups]


def do(part: FilterPart) -> Filtered:
    """Filter a part. Runs in a worker; nothing is raised for what is wrong with it."""
    from magicbyte.archive.filter import filter_part

    begun, base = time.monotonic(), part.partition.segments[0].base_offset
    own = part.folder / uuid.uuid4().hex  # as in `convert.do`
    try:
        made = filter_part(part.partition, part.key, own, _wanted(part.stage), rules=part.rules, limit=part.limit)
        read = {each.log.name: digest_of(part.partition, each.log.name) for each in part.partition.segments}
        return Filtered(base, made, read, time.monotonic() - begun)
    except (MagicbyteError, OSError) as error:
        return Filtered(base, None, {}, time.monotonic() - begun, failed(error))


def join(work: Work, stage: Stage, parts: list[Filtered]) -> Json:
    """Put the parts together. Where one has offsets of the next, one worker does all, who tells of it."""
    from magicbyte.archive.filter import join_filtered

    told = {"parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}
    if any(part.made and part.made.next_offset > later.base_offset for part, later in itertools.pairwise(parts)):
        remove(_above(work))
        return {**run(work, stage), **told}
    raise_first(part.error for part in parts)
    folder, is_source = work.next_folder(), not work.owned
    made, rules = [part.made for part in parts if part.made is not None], recognise(work.log) or LATEST_RULES
    report = join_filtered(work.log, work.key, folder, made, rules=rules)
    remove(_above(work))
    work.take(folder)
    if is_source:
        for part in parts:
            work.source_digests |= part.source_digests
    return {**asdict(report), **told}


def _above(work: Work) -> Path:
    folder = work.next_folder()
    return folder.with_name(f"{folder.name}.parts")


def _wanted(stage: Stage) -> RecordFilter:
    from magicbyte.archive.filter import RecordFilter

    given = stage.options
    first, end = given["from-offset"] or 0, given["to-offset"]
    limits = {} if end is None else {"end": end}
    return RecordFilter(given["since"], given["until"], first, keys=given["keys"], prefix=given["key-prefix"], **limits)
