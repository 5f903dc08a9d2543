"""Find the work of a pipeline, partition by partition. Runs on the driver, and reads only names and sizes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magicbyte import __version__
from magicbyte.access.workers import requests_at_once
from magicbyte.engine.errors import LogDirectoryError, UnknownTopicError
from magicbyte.engine.log.files.checkpoints import LOG_START
from magicbyte.engine.log.files.directory import PartitionDirectory, discover, log_directories
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.files.left_out import in_use
from magicbyte.engine.log.files.outputs import inputs_of, refuse_overlap
from magicbyte.engine.log.files.partitions import log_start_offset
from magicbyte.engine.ports import TopicPartition
from magicbyte.spark.missing import report_missing
from magicbyte.spark.pipeline.config import Pipeline, PipelineSource, Stage, matches
from magicbyte.spark.pipeline.sink import FORM
from magicbyte.tools.offline.compact import compacted_before
from magicbyte.tools.offline.convert import by_name

if TYPE_CHECKING:
    from magicbyte.spark.pipeline.topics import Aim, Live

LARGEST_PIECE = 256 << 20
"""Bytes of a piece of a partition, if its stages allow pieces. A segment is never divided."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A partition, or some of its segments, and its stages. Pickled to the workers.

    `fingerprint`: changes with the input and the stages. `inputs`: the identity of the segments. `first`: the log start
    offset. `now_ms`: the time from which ages are computed. `sink`: None if nothing is written. `run`: the number of
    the run, for a sink in an object store, whose output is built in `scratch`. `live`: the source partition of a
    cluster, which is fetched first. `aim`: the target topic of a cluster.
    """

    name: str
    partition: PartitionDirectory
    stages: tuple[Stage, ...]
    fingerprint: str
    inputs: tuple[tuple[str, int, int], ...]
    first: int
    now_ms: int
    sink: str | None
    tables: bool
    on_damage: str
    limit: int
    run: int = 0
    scratch: str | None = None
    live: Live | None = None
    aim: Aim | None = None

    @property
    def size(self) -> int:
        """Bytes of its segments."""
        return self.partition.size


def find(pipeline: Pipeline, now_ms: int) -> list[Unit]:
    """Return all units, the largest first, so that cores finish at about the same time.

    Raises LogDirectoryError or UnknownTopicError for missing sources, and for sources that the sink cannot hold
    together.
    """
    partitions, live = _partitions(pipeline)
    _refuse_unknown(pipeline, partitions)
    _refuse_overlap(pipeline, [each for each in partitions if each.path not in live])
    if pipeline.sink is not None or pipeline.target is not None:
        partitions = list(by_name(partitions).values())
    known = {each.path for each in compacted_before(partitions)} if _needs_compacted(pipeline) else set()
    known |= {path for path, each in live.items() if each.compacts}
    units = [
        unit
        for each, first in zip(partitions, _log_starts(partitions), strict=True)
        for unit in _units(pipeline, each, first, now_ms, was_compacted=each.path in known, live=live.get(each.path))
    ]
    return sorted(units, key=lambda unit: (-unit.size, unit.name))


def _refuse_unknown(pipeline: Pipeline, found: Sequence[PartitionDirectory]) -> None:
    """Raise UnknownTopicError for a pattern of a stage that matches no topic, because it is probably a typo."""
    for stage in pipeline.stages:
        for pattern in stage.topics:
            if not any(matches(each.topic, (pattern,)) for each in found):
                raise UnknownTopicError(f"stage {stage.do!r}: no topic {pattern!r} in the sources")


def _refuse_overlap(pipeline: Pipeline, found: Iterable[PartitionDirectory]) -> None:
    """Raise LogDirectoryError if the sink, the scratch folder or the report overlaps with an input."""
    compared = [stage.options["with"] for stage in pipeline.stages if stage.do == "compare" and stage.options["with"]]
    given = [path for source in pipeline.sources for path in source.paths]
    inputs = inputs_of([*given, *compared], found)
    if pipeline.sink is not None:
        refuse_overlap(pipeline.sink, inputs)
    for folder in (pipeline.report, pipeline.scratch):
        if folder is not None:
            refuse_overlap(folder, inputs, fills=False)


def _is_chosen(source: PipelineSource, topic: str | None, number: int | None) -> bool:
    return (not source.topics or matches(topic, source.topics)) and (
        not source.partitions or number in source.partitions
    )


def _partitions(pipeline: Pipeline) -> tuple[list[PartitionDirectory], dict[str, Live]]:
    """Return the partitions of all sources, and by path those that are fetched from a cluster."""
    chosen: list[PartitionDirectory] = []
    live: dict[str, Live] = {}
    for source in pipeline.sources:
        if source.bootstrap is not None:
            from magicbyte.spark.pipeline.topics import look_up  # it loads the client

            live |= {each.directory().path: each for each in look_up(source)}
            continue
        with requests_at_once() as many:
            found = discover(source.paths, many=many)
        report_missing(found, partial(_is_chosen, source))
        partitions = in_use(found, source.topics)
        for pattern in source.topics:
            if not any(matches(each.topic, (pattern,)) for each in partitions):
                raise UnknownTopicError(f"{', '.join(source.paths)}: no topic {pattern!r}")
        if source.topics:
            partitions = [each for each in partitions if matches(each.topic, source.topics)]
        if lost := set(source.partitions) - {each.partition for each in partitions}:
            raise UnknownTopicError(f"{', '.join(source.paths)}: no selected topic has a partition {min(lost)}")
        if source.partitions:
            partitions = [each for each in partitions if each.partition in source.partitions]
        chosen += [each if source.dialect is None else replace(each, dialect=source.dialect) for each in partitions]
    chosen += [each.directory() for each in live.values()]
    if not chosen:
        raise LogDirectoryError("the topics and partitions of the sources select no partition")
    return chosen, live


def _log_starts(found: Iterable[PartitionDirectory]) -> list[int]:
    """Return the log start offset of each partition. Each checkpoint file is read once."""
    found = list(found)
    known = {each.path: each.offsets(LOG_START) or {} for each in log_directories(found)}
    starts = []
    for each in found:
        if each.log_directory is None or each.topic is None or each.partition is None:
            starts.append(log_start_offset(each))
        else:
            starts.append(known[each.log_directory].get(TopicPartition(each.topic, each.partition), 0))
    return starts


def _needs_compacted(pipeline: Pipeline) -> bool:
    return any(stage.do == "compact" and not stage.topics for stage in pipeline.stages)


def _units(
    pipeline: Pipeline,
    partition: PartitionDirectory,
    first: int,
    now_ms: int,
    *,
    was_compacted: bool,
    live: Live | None,
) -> list[Unit]:
    stages = tuple(
        stage
        for stage in pipeline.stages
        if stage.applies_to(partition.topic) and (stage.do != "compact" or stage.topics or was_compacted)
    )
    tables = any(stage.do == "records" for stage in stages)
    if pipeline.writes_tables and not tables:
        return []
    writes_a_log = not tables and (pipeline.sink is not None or pipeline.target is not None)
    pieces = [partition] if writes_a_log else _pieces(partition, stages)
    units = []
    for piece in pieces:
        name = partition.name if len(pieces) == 1 else f"{partition.name}@{piece.segments[0].base_offset:020}"
        inputs = identity(piece, listed=True) if live is None else (("offsets", live.first, live.end),)
        decides = {
            "form": FORM,
            "magicbyte": __version__,
            "stages": [stage.identity() for stage in stages],
            "salvages": pipeline.on_damage == "salvage",
            "dialect": partition.dialect.value,
            "limit": pipeline.max_batch_bytes,
            "first": first,
            "now": pipeline.now_ms,
            "inputs": inputs,
        } | ({} if live is None else {"topic": str(live.topic_id)})
        units.append(
            Unit(
                name, piece, stages, _hash(decides), inputs, first, now_ms,
                _whole(pipeline.sink), tables, pipeline.on_damage, pipeline.max_batch_bytes,
                scratch=None if pipeline.scratch is None else str(pipeline.scratch.resolve()), live=live,
            )
        )  # fmt: skip
    return units


def _hash(decides: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


def _pieces(partition: PartitionDirectory, stages: Iterable[Stage]) -> list[PartitionDirectory]:
    """Divide a partition by its segments, if all its stages can process segments separately."""
    names = [stage.do for stage in stages]
    return pieces(partition) if names and set(names) <= {"digest", "records"} else [partition]


def pieces(partition: PartitionDirectory, largest: int | None = None) -> list[PartitionDirectory]:
    """Divide a partition into pieces of whole segments, of at most `largest` (LARGEST_PIECE) bytes or one segment."""
    groups: list[list[Any]] = []
    room = 0
    for segment in partition.segments:
        if not groups or segment.log.size > room:
            groups.append([])
            room = LARGEST_PIECE if largest is None else largest
        groups[-1].append(segment)
        room -= segment.log.size
    return [replace(partition, segments=tuple(group)) for group in groups] or [partition]


def _whole(sink: Path | str | None) -> str | None:
    return str(sink.resolve()) if isinstance(sink, Path) else sink


def identity(partition: PartitionDirectory, *, listed: bool = False) -> tuple[tuple[str, int, int], ...]:
    """Return the current name, size and modification time (ms; 0 for remote files) of each segment's log.

    `listed`: remote files have just been listed, so use these sizes.
    """
    segments = partition.segments
    if isinstance(partition.files, LocalFiles):
        return tuple((segment.log.name, *_size_and_time(segment.log.path)) for segment in segments)
    if listed:
        return tuple((segment.log.name, segment.log.size, 0) for segment in segments)
    sizes = {entry.path: entry.size for entry in partition.files.list(partition.path)}
    return tuple((segment.log.name, sizes.get(segment.log.path, 0), 0) for segment in segments)


def has_changed(unit: Unit) -> bool:
    """Return whether the input has changed since planning. Fetched offsets do not change."""
    return unit.live is None and identity(unit.partition) != unit.inputs


def _size_and_time(path: str) -> tuple[int, int]:
    found = os.stat(path)  # noqa: PTH116 (a Path for each of 100,000 takes longer than all else)
    return found.st_size, found.st_mtime_ns // 1_000_000
