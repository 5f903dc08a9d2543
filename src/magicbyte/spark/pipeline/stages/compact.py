"""Keep the latest record of every key; in large partitions by marks of the shuffle, with several workers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.log.cleaning.compaction import CompactionConfig, CompactionReport
from magicbyte.engine.log.files.directory import PartitionDirectory
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.shuffle import GroupPart, Marks
from magicbyte.spark.pipeline.sink import files_of
from magicbyte.spark.pipeline.work import (
    Json,
    TaskOutcome,
    Work,
    failed,
    raise_first,
)
from magicbyte.tools.offline.compact import CompactOptions, compact_logs, mend
from magicbyte.tools.offline.compact_groups import WrittenGroup, join_groups


def options_of(work: Work, stage: Stage) -> CompactOptions:
    """Return the compaction options of a stage."""
    given = stage.options
    config = CompactionConfig(
        dedupe_buffer_bytes=given["dedupe-buffer"],
        delete_retention_ms=given["delete-retention"],
        min_lag_ms=given["min-lag"],
        max_message_bytes=given["max-message-bytes"],
        merge_sets=given["merge-sets"],
    )
    return CompactOptions(
        now_ms=work.unit.now_ms,
        secret=os.urandom(16),
        config=config,
        segment_bytes=given["segment-bytes"],
        from_start=given["from-start"],
        rules=work.recognised() if given["kafka"] is None else IndexRules.of(given["kafka"]),
    )


def opened(work: Work, options: CompactOptions) -> PartitionDirectory:
    """Return the partition in a folder of its own, with all index files.

    Raises CorruptRecordError for a damaged log.
    """
    work.own()
    mend(work.log, options)
    work.refresh()
    return work.log


class GroupDone(NamedTuple):
    """The result of compacting a group of segments. `digests`: SHA-256 of its files, by name."""

    written: WrittenGroup | None
    digests: dict[str, str]
    seconds: float
    error: tuple[TaskOutcome, str] | None = None


def do(part: GroupPart) -> GroupDone:
    """Compact a group. Runs in a worker; errors are part of the result."""
    begun = time.monotonic()
    try:
        written = part.write()
        digests = {each["name"]: each["sha256"] for each in files_of(Path(written.folder))}
        return GroupDone(written, digests, time.monotonic() - begun)
    except (MagicbyteError, OSError) as error:
        return GroupDone(None, {}, time.monotonic() - begun, failed(error))


def run(work: Work, stage: Stage, marks: Marks | None = None, parts: list[GroupDone] | None = None) -> Json:
    """Compact a partition, by `marks` if they are given. `parts`: the groups that workers have written already."""
    options = options_of(work, stage)
    if marks is not None:
        options = replace(options, marks=marks.load())
    if parts is None:
        (done,) = compact_logs([opened(work, options)], options)
        if done.error is not None:
            raise done.error
        return _report(work, done.rounds, shuffled=marks is not None)
    raise_first(part.error for part in parts)
    report = join_groups(work.log, options, [part.written for part in parts if part.written is not None])
    found = _report(work, [report], shuffled=True)
    for part in parts:
        work.digests |= part.digests
    return {**found, "parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}


def _report(work: Work, rounds: list[CompactionReport], *, shuffled: bool) -> Json:
    work.refresh()
    if rounds:
        work.clean_to = rounds[-1].end_offset
    reports = [each.to_json() for each in rounds]
    return {
        "rounds": len(rounds),
        "shuffled": shuffled,
        "cleanTo": work.clean_to,
        "keys": [each["keys"] for each in reports],
        "dropped": [each["dropped"] for each in reports],
    }
