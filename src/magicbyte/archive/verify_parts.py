"""Checks of one partition by several workers, each of some of its segments; what lies beside them comes last."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.archive.findings import Depth, Finding, Severity
from magicbyte.archive.verify import PartitionCheck, check_log_directory
from magicbyte.compiled import kernel
from magicbyte.log.files.directory import log_directories
from magicbyte.ports import TopicPartition

if TYPE_CHECKING:
    from magicbyte.log.files.directory import PartitionDirectory
    from magicbyte.log.files.producer_state import LeaderEpochs


class CheckedSegments(NamedTuple):
    """What a check of neighbouring segments found, and what the rest of the log has to know of them. May be pickled."""

    findings: list[Finding]
    base_offset: int
    end_offset: int
    epochs: LeaderEpochs
    ends_with_batch: bool | None


def check_segments(partition: PartitionDirectory, count: int, depth: Depth, limit: int) -> CheckedSegments:
    """Check the first `count` segments of a partition, as if there were none in front of them."""
    kernel.expect(sum(segment.log.size for segment in partition.segments[:count]))
    with ThreadPoolExecutor(1, "magicbyte-verify") as pool:
        check = PartitionCheck(partition, depth, partition.dialect, limit, pool)
        findings = [finding for segment in partition.segments[:count] for finding in check.segment(segment)]
    base = partition.segments[0].base_offset
    return CheckedSegments(findings, base, check.end_offset, check.epochs, check.ends_with_batch)


def join_checks(
    partition: PartitionDirectory, depth: Depth, limit: int, parts: Sequence[CheckedSegments]
) -> list[Finding] | None:
    """Return what `verify` finds in a partition, of which all segments are checked in `parts`, in order.

    None where a check of all segments, one behind the other, may find something else: there is damage, or a segment
    has offsets of the next one.
    """
    findings = [finding for part in parts for finding in part.findings]
    if any(each.severity is not Severity.NOTE for each in findings):
        return None
    if any(before.end_offset > part.base_offset for before, part in itertools.pairwise(parts)):
        return None
    return [*findings, *_beside(partition, depth, limit, parts)]


def _beside(
    partition: PartitionDirectory, depth: Depth, limit: int, parts: Sequence[CheckedSegments]
) -> Iterator[Finding]:
    """Yield the findings of what lies beside the segments."""
    if depth is Depth.QUICK:
        return
    with ThreadPoolExecutor(1, "magicbyte-verify") as pool:
        check = PartitionCheck(partition, depth, partition.dialect, limit, pool)
        for part in parts:
            check.follow(part.end_offset, part.epochs, ends_with_batch=part.ends_with_batch)
        yield from check.beside()
    ends: dict[TopicPartition, int] = {}
    if partition.topic is not None and partition.partition is not None:
        ends[TopicPartition(partition.topic, partition.partition)] = check.end_offset
    for directory in log_directories([partition]):
        yield from check_log_directory(directory, ends)
