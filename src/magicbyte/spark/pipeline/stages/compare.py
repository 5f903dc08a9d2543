"""Compare a partition with another one, or with its source, record by record; large ones with several workers."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.log.files.directory import PartitionDirectory, discover
from magicbyte.engine.records.digest import NOTHING, Digest
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.units import LARGEST_PIECE, pieces
from magicbyte.spark.pipeline.work import (
    SALVAGE,
    DifferentError,
    Json,
    TaskOutcome,
    Work,
    failed,
    may_salvage,
    raise_first,
)


@dataclass(frozen=True, slots=True)
class ComparePart:
    """Adjacent segments of two logs with the same range of offsets.

    `ignores_control`: a stage has aborted open transactions, so the logs differ in control records.
    """

    other: PartitionDirectory
    log: PartitionDirectory
    name: str
    limit: int
    ignores_control: bool = False


class Compared(NamedTuple):
    """The result of comparing a part. `differing`: number of records. `first`: of them.

    `one_sided`: one log is empty.
    """

    compared: int
    not_held: dict[str, int]
    digest: Digest
    differing: int
    first: str
    one_sided: bool
    seconds: float
    error: tuple[TaskOutcome, str] | None = None


def do(to_compare: ComparePart) -> Compared:
    """Compare a part. Runs in a worker; errors are part of the result."""
    from magicbyte.tools.offline.diff import DiffOptions, DiffReport, Ignored, Side, diff_partition

    begun, report = time.monotonic(), DiffReport()
    ignored = frozenset({Ignored.CONTROL} if to_compare.ignores_control else ())
    options = DiffOptions(ignore=ignored, limit=to_compare.limit)
    try:
        different = list(
            diff_partition(
                Side.of(to_compare.other), Side.of(to_compare.log), options, name=to_compare.name, report=report
            )
        )
    except (MagicbyteError, OSError) as error:
        return Compared(0, {}, NOTHING, 0, "", one_sided=False, seconds=0, error=failed(error))
    (found,) = report.partitions
    first = f"{different[0].first_offset}: {', '.join(different[0].what.names)}" if different else ""
    sides = {found.digest_a.records == 0, found.digest_b.records == 0}
    return Compared(
        found.compared, dict(found.not_held), found.digest_b, sum(found.differing.values()), first,
        one_sided=len(sides) > 1, seconds=time.monotonic() - begun,
    )  # fmt: skip


def _other(work: Work, stage: Stage) -> PartitionDirectory:
    """Return the log with which a partition is compared."""
    if stage.options["with"] is None:
        return work.unit.partition
    (other,) = discover([f"{stage.options['with']}/{work.key}"])
    return other


def parts(work: Work, stage: Stage) -> list[ComparePart]:
    """Divide two logs at base offsets that both have."""
    other = _other(work, stage)
    bases = {segment.base_offset for segment in other.segments}
    groups = pieces(work.log, min(LARGEST_PIECE, stage.options["part-above"]))
    cuts = [each.segments[0].base_offset for each in groups[1:] if each.segments[0].base_offset in bases]
    bounds = itertools.pairwise([0, *cuts, 1 << 63])
    return [
        ComparePart(
            _between(other, *each), _between(work.log, *each), str(work.key), work.unit.limit, _ends_transactions(work)
        )
        for each in bounds
    ]


def _between(log: PartitionDirectory, first: int, end: int) -> PartitionDirectory:
    return replace(log, segments=tuple(each for each in log.segments if first <= each.base_offset < end))


def _ends_transactions(work: Work) -> bool:
    """Return whether a stage writes for a new cluster, and so may have added markers."""
    stages = [*work.unit.stages, *([SALVAGE] if may_salvage(work.unit) else [])]
    return any(each.do in ("convert", "salvage") and not each.options["same-cluster"] for each in stages)


def run(work: Work, stage: Stage) -> Json:
    """Compare a partition with another log. Return the record of the stage. Raises DifferentError."""
    part = ComparePart(_other(work, stage), work.log, str(work.key), work.unit.limit, _ends_transactions(work))
    return join(work, stage, [do(part)])


def join(work: Work, stage: Stage, parts: list[Compared]) -> Json:
    """Return the record of the stage. Raises DifferentError, or the error of a part."""
    raise_first(part.error for part in parts)
    if len(parts) > 1 and any(part.one_sided for part in parts):
        return run(work, stage)  # whether a control record may be missing depends on adjacent records
    if differing := sum(part.differing for part in parts):
        first = next(part.first for part in parts if part.differing)
        raise DifferentError(
            f"{work.key}: {differing} records differ from {_other(work, stage).path}, the first at offset {first}"
        )
    digest, not_held = NOTHING, Counter[str]()
    for part in parts:
        digest = digest.plus(part.digest)
        not_held.update(part.not_held)
    found = {"compared": sum(part.compared for part in parts), "notHeld": dict(not_held), "digest": digest._asdict()}
    if len(parts) > 1:
        found |= {"parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}
    return found
