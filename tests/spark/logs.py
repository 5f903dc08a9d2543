"""Logs that the tests of the Spark source write, and their records read through the source without a session."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.columns import Record, arrow_schema
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.spark.options import SourceOptions, parse_options
from magicbyte.spark.shallow import shallow_schema
from magicbyte.spark.source import LogReader, PruningReader

START = 1_700_000_000_000  # ms
SEGMENT = "00000000000000000000.log"


def some_records(count: int, *, first: int = 0, magic: int = 2, size: int = 100) -> list[Record]:
    """Return records at consecutive offsets; timestamps rise by a second each, but every seventh is a minute late."""
    rng = random.Random(20260107 + first)
    return [
        Record(
            offset,
            -1 if magic == 0 else START + 1000 * offset - (60_000 if offset % 7 == 3 else 0),
            -1 if magic == 0 else 0,
            None if offset % 5 == 0 else b"key-%d" % offset,
            None if offset % 11 == 4 else rng.randbytes(rng.randrange(size)),
            (("name", b"%d" % offset), ("empty", None)) if magic == 2 and offset % 3 == 0 else (),
        )
        for offset in range(first, first + count)
    ]


def content_of(
    records: list[Record], target: Format = Format.V2, codec: Codec = Codec.NONE, *, per_batch: int = 10
) -> bytes:
    """Return the records as log bytes, in batches of `per_batch`."""
    batches = [records[at : at + per_batch] for at in range(0, len(records), per_batch)]
    return b"".join(encode_records(batch, target, codec) for batch in batches)


def write_partition(log_directory: Path, name: str, *segments: list[Record], **how: Any) -> Path:
    """Write a partition folder with a `.log` file for each list of records, and no index."""
    folder = log_directory / name
    folder.mkdir(parents=True)
    for records in segments:
        (folder / f"{records[0].offset:020}.log").write_bytes(content_of(records, **how))
    return folder


def options_of(path: Path, **options: str) -> SourceOptions:
    return parse_options({"path": str(path), **options})


def reader_of(path: Path, **options: str) -> PruningReader:
    """Return the source's reader of all columns, as Spark would make it with pushFilters=true."""
    parsed = options_of(path, **options)
    schema = shallow_schema() if parsed.mode == "shallow" else arrow_schema(headers=parsed.include_headers)
    return PruningReader(parsed, schema)


def read_all(reader: LogReader) -> list[dict[str, Any]]:
    """Return the rows of all tasks, in their order."""
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    rows: list[dict[str, Any]] = pa.Table.from_batches(batches, reader.columns).to_pylist()
    return rows


def offsets_of(reader: LogReader) -> list[int]:
    return [row["offset"] for row in read_all(reader)]
