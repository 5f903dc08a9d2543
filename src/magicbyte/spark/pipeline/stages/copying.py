"""Copy a partition with several workers, each some segments, before a stage modifies it in place."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.log.files.directory import PartitionDirectory
from magicbyte.spark.pipeline.sink import remove
from magicbyte.spark.pipeline.units import pieces
from magicbyte.spark.pipeline.work import (
    TaskOutcome,
    Work,
    copy_partition,
    copy_segments,
    digest_of,
    failed,
    raise_first,
)


@dataclass(frozen=True, slots=True)
class CopyPart:
    """Some segments of the source, copied by one worker. `folder`: the parent of all attempts' folders."""

    partition: PartitionDirectory
    folder: Path


class CopyDone(NamedTuple):
    """The result of a copy. `digests`: SHA-256 of logs, by name. `folder`: of this attempt."""

    digests: dict[str, str]
    folder: Path
    error: tuple[TaskOutcome, str] | None = None


def parts(work: Work) -> list[CopyPart]:
    """Create the folder for a copy of the partition with all files but its segments. Return the parts with these."""
    out = work.next_folder()
    for left in (out, _copies(out)):  # of a worker that died here
        if left.exists():
            remove(left)
    copy_partition(replace(work.log, segments=()), out, work.key)
    above = _copies(out)
    above.mkdir()
    return [CopyPart(replace(piece, snapshots={}, texts={}, leftovers=()), above) for piece in pieces(work.log)]


def _copies(out: Path) -> Path:
    return out.with_name(f"{out.name}.copies")


def do(to_copy: CopyPart) -> CopyDone:
    """Copy segments. Runs in a worker; errors are part of the result."""
    own = to_copy.folder / uuid.uuid4().hex  # Spark may run two attempts at a part at once
    try:
        own.mkdir()
        copy_segments(to_copy.partition, own)
        names = [segment.log.name for segment in to_copy.partition.segments]
        return CopyDone({name: digest_of(to_copy.partition, name) for name in names}, own)
    except (MagicbyteError, OSError) as error:
        return CopyDone({}, own, failed(error))


def join(work: Work, parts: list[CopyDone]) -> None:
    """Continue with the copy of the partition."""
    raise_first(part.error for part in parts)
    out = work.next_folder()
    for each in [path for part in parts if part.folder.is_dir() for path in part.folder.iterdir()]:
        each.rename(out / str(work.key) / each.name)
    if _copies(out).is_dir():  # otherwise an earlier attempt at this task got as far
        remove(_copies(out))
    work.take(out)
    for part in parts:
        work.source_digests |= part.digests
