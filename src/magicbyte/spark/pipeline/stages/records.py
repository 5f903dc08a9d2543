"""The records of a partition as tables, one for each segment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from magicbyte.log.files.outputs import whole_file
from magicbyte.spark.pipeline.config import Stage
from magicbyte.spark.pipeline.work import (
    Json,
    Work,
)

if TYPE_CHECKING:
    pass


def run(work: Work, stage: Stage) -> Json:
    """Write a table for each segment."""
    from magicbyte.log.files.reader import SegmentReader, Selection
    from magicbyte.records.columnar import ParquetWriter
    from magicbyte.records.decode import DecodeOptions

    assert work.root is not None
    rows = size = 0
    for segment in work.log.segments:
        path = work.root / f"{work.key}-{segment.base_offset:020}.parquet"
        reader = SegmentReader(replace(work.log, segments=(segment,)))
        options = DecodeOptions(packed=True, limit=work.unit.limit)
        with whole_file(path) as file, ParquetWriter(file, codec=stage.options["codec"]) as table:
            for columns in reader.records(Selection(first=work.unit.first), options):
                table.write(columns, *work.key)
                rows += len(columns)
        work.tables.append(path)
        size += path.stat().st_size
    return {"records": rows, "tableBytes": size}
