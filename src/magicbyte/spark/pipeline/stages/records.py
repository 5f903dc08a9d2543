"""Write the records of a partition as Parquet tables, one per segment; of a large one with several workers."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.errors import MagicbyteError
from magicbyte.engine.log.files.filesystem import sync_directory
from magicbyte.engine.log.files.outputs import whole_file
from magicbyte.engine.ports import TopicPartition
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
    from magicbyte.engine.log.files.directory import PartitionDirectory


@dataclass(frozen=True, slots=True)
class TablePart:
    """Some segments that a worker writes as tables. `folder`: the parent of all attempts' folders."""

    partition: PartitionDirectory
    key: TopicPartition
    codec: str
    millis: bool
    limit: int
    first: int
    folder: Path


class Tables(NamedTuple):
    """The result of writing tables: files in this attempt's `folder`, in the order of their segments.

    `far`: the number of timestamps that are null in the tables, because microseconds cannot hold them.
    """

    folder: Path
    names: list[str]
    records: int
    size: int
    far: int
    seconds: float
    error: tuple[TaskOutcome, str] | None = None


def run(work: Work, stage: Stage) -> Json:
    """Write a table per segment."""
    assert work.root is not None
    done = _written(_part(work, stage, work.log, work.root), work.root)
    work.tables += [work.root / name for name in done.names]
    return _report([done])


def _report(written: list[Tables]) -> Json:
    size = sum(tables.size for tables in written)
    return {
        "records": sum(tables.records for tables in written),
        "tableBytes": size,
        "bytesOut": size,
        "farTimestamps": sum(tables.far for tables in written),
    }


def parts(work: Work, stage: Stage) -> list[TablePart]:
    """Divide a partition by its segments."""
    above = _above(work)
    above.mkdir(exist_ok=True)  # it exists if the task is repeated
    groups = pieces(work.log, min(LARGEST_PIECE, stage.options["part-above"]))
    return [_part(work, stage, group, above) for group in groups]


def do(part: TablePart) -> Tables:
    """Write the tables of a part. Runs in a worker; errors are part of the result."""
    begun, own = time.monotonic(), part.folder / uuid.uuid4().hex  # as in `writing.do`
    try:
        own.mkdir()
        return _written(part, own)
    except (MagicbyteError, OSError) as error:
        return Tables(own, [], 0, 0, 0, time.monotonic() - begun, failed(error))


def join(work: Work, _stage: Stage, parts: list[Tables]) -> Json:
    """Move the tables of all parts into one folder."""
    raise_first(part.error for part in parts)
    assert work.root is not None
    for part in parts:
        for name in part.names:
            if (made := part.folder / name).exists():  # otherwise an earlier attempt at this task moved it
                made.rename(work.root / name)
            work.tables.append(work.root / name)
    sync_directory(work.root)
    if _above(work).is_dir():
        remove(_above(work))
    return {**_report(parts), "parts": len(parts), "workerSeconds": sum(part.seconds for part in parts)}


def _above(work: Work) -> Path:
    assert work.root is not None
    return work.root / f"{work.step + 1}.tables"


def _part(work: Work, stage: Stage, partition: PartitionDirectory, folder: Path) -> TablePart:
    codec, millis = stage.options["codec"], stage.options["timestamp-millis"]
    return TablePart(partition, work.key, codec, millis, work.unit.limit, work.unit.first, folder)


def _written(to_write: TablePart, folder: Path) -> Tables:
    """Write the tables of some segments into a folder."""
    from magicbyte.engine.log.files.reader import SegmentReader, Selection
    from magicbyte.engine.records.columnar import ParquetWriter
    from magicbyte.engine.records.decode import DecodeOptions

    begun, names, rows, size, far = time.monotonic(), [], 0, 0, 0
    options = DecodeOptions(packed=True, limit=to_write.limit)
    for segment in to_write.partition.segments:
        path = folder / f"{to_write.key}-{segment.base_offset:020}.parquet"
        reader = SegmentReader(replace(to_write.partition, segments=(segment,)))
        with whole_file(path) as file, ParquetWriter(file, codec=to_write.codec, millis=to_write.millis) as table:
            for columns in reader.records(Selection(first=to_write.first), options):
                table.write(columns, *to_write.key)
                rows += len(columns)
        names.append(path.name)
        size += path.stat().st_size
        far += table.far.count
    return Tables(folder, names, rows, size, far, time.monotonic() - begun)
