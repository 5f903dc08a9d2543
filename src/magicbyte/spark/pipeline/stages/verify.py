"""Check a partition, a large one with several workers. Damage ends its run."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.errors import MagicbyteError
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.units import LARGEST_PIECE, pieces
from magicbyte.spark.pipeline.work import (
    Json,
    TaskOutcome,
    Work,
    failed,
    raise_first,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.tools.offline.findings import Finding
    from magicbyte.tools.offline.verify_parts import CheckedSegments


@dataclass(frozen=True, slots=True)
class VerifyPart:
    """The first `count` of adjacent segments of a partition. The segment after them shows where they end."""

    partition: PartitionDirectory
    count: int
    depth: str
    limit: int


class Verified(NamedTuple):
    """The findings of a part."""

    checked: CheckedSegments | None
    seconds: float
    error: tuple[TaskOutcome, str] | None = None


def run(work: Work, stage: Stage) -> Json:
    """Check a partition. Return the findings."""
    from magicbyte.tools.offline.findings import Depth
    from magicbyte.tools.offline.verify import verify

    return _report(verify([work.log], depth=Depth(stage.options["depth"]), limit=work.unit.limit))


def parts(work: Work, stage: Stage) -> list[VerifyPart]:
    """Divide a partition by its segments."""
    segments, at, parts_of_it = work.log.segments, 0, []
    alone = replace(work.log, snapshots={}, texts={}, leftovers=(), orphans=(), others=())
    for group in pieces(work.log, min(LARGEST_PIECE, stage.options["part-above"])):
        count = len(group.segments)
        some = replace(alone, segments=segments[at : at + count + 1])
        parts_of_it.append(VerifyPart(some, count, stage.options["depth"], work.unit.limit))
        at += count
    return parts_of_it


def do(to_verify: VerifyPart) -> Verified:
    """Check a part. Runs in a worker; errors are part of the result."""
    from magicbyte.tools.offline.findings import Depth
    from magicbyte.tools.offline.verify_parts import check_segments

    begun = time.monotonic()
    try:
        checked = check_segments(to_verify.partition, to_verify.count, Depth(to_verify.depth), to_verify.limit)
        return Verified(checked, time.monotonic() - begun)
    except (MagicbyteError, OSError) as error:
        return Verified(None, time.monotonic() - begun, failed(error))


def join(work: Work, stage: Stage, parts: list[Verified]) -> Json:
    """Return the findings of all parts and of the files beside them. Damage is checked again by one worker."""
    from magicbyte.tools.offline.findings import Depth
    from magicbyte.tools.offline.verify_parts import join_checks

    raise_first(part.error for part in parts)
    checked = [part.checked for part in parts if part.checked is not None]
    findings = join_checks(work.log, Depth(stage.options["depth"]), work.unit.limit, checked)
    found = run(work, stage) if findings is None else _report(findings)
    return {**found, "parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}


def _report(findings: Iterable[Finding]) -> Json:
    from magicbyte.tools.offline.findings import Severity

    found = list(findings)
    damage = next((str(each) for each in found if each.severity is Severity.ERROR), None)
    return {"findings": [each.to_json() for each in found], "damage": damage}
