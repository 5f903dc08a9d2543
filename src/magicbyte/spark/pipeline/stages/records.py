"""The records of a partition as tables, one for each segment; of a large one by several workers."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.errors import MagicbyteError
from magicbyte.log.files.filesystem import sync_directory
from magicbyte.log.files.outputs import whole_file
from magicbyte.ports import TopicPartition
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.sink import remove
from magicbyte.spark.pipeline.units import LARGEST_PIECE, pieces
from magicbyte.spark.pipeline.work import (
    Json,
    TaskOutcome,
    Work,
    failed,
    raise_first,
)

if TYPE_CHECKING:
    from magicbyte.log.files.directory import PartitionDirectory


@dataclass(frozen=True, slots=True)
class TablePart:
    """Some segments whose records a worker writes as tables. `folder`: in which they go, until all are there."""

    partition: PartitionDirectory
    key: TopicPartition
    codec: str
    limit: int
    first: int
    folder: Path


class Tables(NamedTuple):
    """What became of it: files of this attempt's `folder`, in the order of their segments."""

    folder: Path
    names: list[str]
    records: int
    size: int
    seconds: float
    error: tuple[TaskOutcome, str] | None = None


def run(work: Work, stage: Stage) -> Json:
    """Write a table for each segment."""
    assert work.root is not None
    done = _written(_part(work, stage, work.log, work.root), work.root)
    work.tables += [work.root / name for name in done.names]
    return {"records": done.records, "tableBytes": done.size}


def parts(work: Work, stage: Stage) -> list[TablePart]:
    """Part a partition by its segments."""
    above = _above(work)
    above.mkdir(exist_ok=True)  # a task that is repeated finds its own
    groups = pieces(work.log, min(LARGEST_PIECE, stage.options["part-above"]))
    return [_part(work, stage, group, above) for group in groups]


def do(part: TablePart) -> Tables:
    """Write the tables of a part. Runs in a worker; nothing is raised for what is wrong with it."""
    begun, own = time.monotonic(), part.folder / uuid.uuid4().hex  # as in `convert.do`
    try:
        own.mkdir()
        return _written(part, own)
    except (MagicbyteError, OSError) as error:
        return Tables(own, [], 0, 0, time.monotonic() - begun, failed(error))


def join(work: Work, _stage: Stage, parts: list[Tables]) -> Json:
    """Put the tables beside each other."""
    raise_first(part.error for part in parts)
    assert work.root is not None
    for part in parts:
        for name in part.names:
            if (made := part.folder / name).exists():  # else this is a second attempt, and the first one came as far
                made.rename(work.root / name)
            work.tables.append(work.root / name)
    sync_directory(work.root)
    if _above(work).is_dir():
        remove(_above(work))
    return {
        "records": sum(part.records for part in parts),
        "tableBytes": sum(part.size for part in parts),
        "parts": len(parts),
        "workerSeconds": sum(part.seconds for part in parts),
    }


def _above(work: Work) -> Path:
    assert work.root is not None
    return work.root / f"{work.step + 1}.tables"


def _part(work: Work, stage: Stage, partition: PartitionDirectory, folder: Path) -> TablePart:
    return TablePart(partition, work.key, stage.options["codec"], work.unit.limit, work.unit.first, folder)


def _written(part: TablePart, folder: Path) -> Tables:
    """Write the tables of some segments into a folder."""
    from magicbyte.log.files.reader import SegmentReader, Selection
    from magicbyte.records.columnar import ParquetWriter
    from magicbyte.records.decode import DecodeOptions

    begun, names, rows, size = time.monotonic(), [], 0, 0
    options = DecodeOptions(packed=True, limit=part.limit)
    for segment in part.partition.segments:
        path = folder / f"{part.key}-{segment.base_offset:020}.parquet"
        reader = SegmentReader(replace(part.partition, segments=(segment,)))
        with whole_file(path) as file, ParquetWriter(file, codec=part.codec) as table:
            for columns in reader.records(Selection(first=part.first), options):
                table.write(columns, *part.key)
                rows += len(columns)
        names.append(path.name)
        size += path.stat().st_size
    return Tables(folder, names, rows, size, time.monotonic() - begun)
