"""Check one partition with several workers, each some of its segments; the files beside them come last."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.access.workers import worker_threads
from magicbyte.engine.compiled import kernel
from magicbyte.engine.log.files.directory import log_directories
from magicbyte.tools.offline.findings import Depth, Finding, Severity
from magicbyte.tools.offline.verify import PartitionCheck, check_log_directory

if TYPE_CHECKING:
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.producer_state import LeaderEpochs
    from magicbyte.tools.offline.verify_derived import TransactionCheck


class CheckedSegments(NamedTuple):
    """The findings for adjacent segments, with the state needed for the rest of the log. It can be pickled."""

    findings: list[Finding]
    base_offset: int
    end_offset: int
    epochs: LeaderEpochs
    ends_with_batch: bool | None
    transactions: TransactionCheck


def check_segments(partition: PartitionDirectory, count: int, depth: Depth, limit: int) -> CheckedSegments:
    """Check the first `count` segments of a partition, as if there were none before them."""
    kernel.expect(sum(segment.log.size for segment in partition.segments[:count]))
    with ThreadPoolExecutor(1, "magicbyte-verify") as pool:
        check = PartitionCheck(partition, depth, partition.dialect, limit, pool)
        chosen = {segment.base_offset for segment in partition.segments[:count]}
        ranges = [each for each in check.ranges if each.segment.base_offset in chosen]
        findings = [finding for each in ranges for finding in check.segment(each)]
    base = partition.segments[0].base_offset
    return CheckedSegments(findings, base, check.end_offset, check.epochs, check.ends_with_batch, check.transactions)


def join_checks(
    partition: PartitionDirectory, depth: Depth, limit: int, parts: Sequence[CheckedSegments]
) -> list[Finding] | None:
    """Return the findings of `verify` for a partition, whose segments are checked in `parts`, in order.

    None if a check of all segments in sequence might have other findings: there is damage, a segment has offsets of the
    next one, or an aborted transaction without an entry in its index began in another part.
    """
    findings = [finding for part in parts for finding in part.findings]
    if any(each.severity is not Severity.NOTE for each in findings):
        return None
    if any(before.end_offset > part.base_offset for before, part in itertools.pairwise(parts)):
        return None
    is_open: set[int] = set()
    for part in parts:
        if any(each.producer_id in is_open for each in part.transactions.unexplained):
            return None
        is_open |= part.transactions.open_producers
    return [*findings, *_beside(partition, depth, limit, parts)]


def _beside(
    partition: PartitionDirectory, depth: Depth, limit: int, parts: Sequence[CheckedSegments]
) -> Iterator[Finding]:
    """Yield the findings for the files beside the segments."""
    with worker_threads(1, "magicbyte-verify") as pool:
        check = PartitionCheck(partition, depth, partition.dialect, limit, pool)
        for part in parts:
            check.follow(part.end_offset, part.epochs, ends_with_batch=part.ends_with_batch)
        yield from check.beside()
    if depth is not Depth.QUICK:
        for directory in log_directories([partition]):
            yield from check_log_directory(directory, {partition.path: check.end_offset})
