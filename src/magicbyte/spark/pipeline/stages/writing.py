"""Write a log with several workers, each some of its segments: shared by the stages that rewrite logs."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.log.files.directory import SNAPSHOT, TRANSACTION_INDEX
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.ports import TopicPartition
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.sink import files_of, remove
from magicbyte.spark.pipeline.units import LARGEST_PIECE, pieces
from magicbyte.spark.pipeline.work import Json, TaskOutcome, Work, digest_of, failed, raise_first

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory, SegmentFiles
    from magicbyte.tools.offline.parts import WrittenSegment


@dataclass(frozen=True, slots=True)
class WritePart:
    """Adjacent segments of a partition for which a worker writes the output of a stage.

    `following`: the segment after them, None at the end. `folder`: the parent of all attempts' folders. `rules`: of the
    index files to write. `segment_bytes`: the size of the partition's largest segment, at least 1 GiB.
    """

    partition: PartitionDirectory
    following: SegmentFiles | None
    key: TopicPartition
    stage: Stage
    limit: int
    folder: Path
    rules: IndexRules
    segment_bytes: int

    @property
    def base_offset(self) -> int:
        """The base offset of the part."""
        return self.partition.segments[0].base_offset


class Written(NamedTuple):
    """The output of a part: segments, the last offset read + 1, and the stage's report.

    `is_independent`: no other part could change it.
    """

    segments: list[WrittenSegment]
    next_offset: int
    report: Any
    is_independent: bool = True


class WrittenPart(NamedTuple):
    """The result of a part. Digests are SHA-256 by name, of the logs read and of the files written."""

    base_offset: int
    made: Written | None
    source_digests: dict[str, str]
    digests: dict[str, str]
    seconds: float
    error: tuple[TaskOutcome, str] | None = None


def parts(work: Work, stage: Stage, rules: IndexRules) -> list[WritePart]:
    """Divide a partition by its segments. `rules`: of the index files to write."""
    above = _above(work)
    above.mkdir(exist_ok=True)  # it exists if the task is repeated
    groups = pieces(work.log, min(LARGEST_PIECE, stage.options["part-above"]))
    following = [*(group.segments[0] for group in groups[1:]), None]
    size = max([1 << 30, *(segment.log.size for segment in work.log.segments)])
    return [
        WritePart(replace(group, leftovers=()), after, work.key, stage, work.unit.limit, above, rules, size)
        for group, after in zip(groups, following, strict=True)
    ]


def do(to_write: WritePart, write: Callable[[WritePart, Path], Written]) -> WrittenPart:
    """Write a part. Runs in a worker; errors are part of the result."""
    begun, base = time.monotonic(), to_write.base_offset
    own = to_write.folder / uuid.uuid4().hex  # Spark may run two attempts at a part at once
    try:
        made = write(to_write, own)
        read = {each.log.name: digest_of(to_write.partition, each.log.name) for each in to_write.partition.segments}
        bases = {f"{each.base_offset:020}" for each in made.segments if each.size}  # `put` may append to an empty one
        files = [each for folder in {each.folder for each in made.segments} for each in files_of(folder)]
        lasting = {
            each["name"]: each["sha256"]
            for each in files
            if each["name"][:20] in bases and not each["name"].endswith((TRANSACTION_INDEX, SNAPSHOT))
        }
        return WrittenPart(base, made, read, lasting, time.monotonic() - begun)
    except (MagicbyteError, OSError) as error:
        return WrittenPart(base, None, {}, {}, time.monotonic() - begun, failed(error))


def join(
    work: Work,
    parts: Sequence[WrittenPart],
    run: Callable[[], Json],
    put: Callable[[Path, list[Written]], Json],
) -> Json:
    """Join the parts in the work's next folder.

    If a part overlaps with the next in offsets, or depends on others, one worker repeats the stage. `put` is called
    again if its worker dies, so it leaves the parts unchanged.
    """
    costs = {"parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}
    folder, is_source = work.next_folder(), not work.owned
    if folder.exists():  # of a worker that died here
        remove(folder)
    overlaps = any(part.made and part.made.next_offset > _begin(later) for part, later in itertools.pairwise(parts))
    if overlaps or any(part.made and not part.made.is_independent for part in parts):
        return {**run(), **costs}
    raise_first(part.error for part in parts)
    result = put(folder, [part.made for part in parts if part.made is not None])
    work.take(folder)
    for part in parts:
        work.digests |= part.digests
        if is_source:
            work.source_digests |= part.source_digests
    return {**result, **costs}


def _begin(part: WrittenPart) -> int:
    """Return the first offset of a part: that of its first segment's name, or a lower one that was written."""
    written = part.made.segments if part.made else []
    return min([part.base_offset, *(segment.base_offset for segment in written)])


def _above(work: Work) -> Path:
    folder = work.next_folder()
    return folder.with_name(f"{folder.name}.parts")
