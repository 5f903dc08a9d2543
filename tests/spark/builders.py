"""What tests of several files do with Spark's parts: rows into logs, streams, pipelines."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadLimit

from cli.command import is_in_use, state
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import SegmentReader
from magicbyte.engine.records.columns import Record, arrow_schema
from magicbyte.spark.options import parse_options
from magicbyte.spark.pipeline import driver
from magicbyte.spark.pipeline.config import Pipeline, load
from magicbyte.spark.pipeline.driver import PipelineRun
from magicbyte.spark.stream import LogStream
from spark.in_process import InProcess
from spark.logs import some_records

Json = dict[str, Any]
Place = tuple[str, int, int]
"""Topic, partition, offset."""


def run(given: Pipeline, *, resume: bool = False, context: Any = None) -> PipelineRun:
    """Run a pipeline, by default in this process, where it also checks that the sources are unchanged."""
    if context is not None:
        return driver.run(given, context=context, resume=resume)
    paths = [Path(each.removeprefix("file://")) for source in given.sources for each in source.paths]
    before = {path: state(path) for path in paths if path.exists() and not is_in_use(path)}
    done = driver.run(given, context=InProcess(), resume=resume)
    assert {path: state(path) for path in before} == before, "a pipeline changed what it was to read"
    return done


NOW = "now = 2026-01-07T00:00:00Z\n"


def ran(folder: Path, source: Path, sink: str | None, stages: str, above: int | None) -> PipelineRun:
    """Run stages; each with `{above}` is shared in parts of at most so many bytes, or not shared."""
    path = folder / f"{above}.toml"
    ends = f'[source]\npath = "{source}"\n' + (f'[sink]\npath = "{sink}"\n' if sink else "")
    path.write_text(f"{NOW}{stages.replace('{above}', f'part-above = {above}' if above else '')}\n{ends}")
    return driver.run(load(path), context=InProcess())


def comparable(run: PipelineRun) -> list[Any]:
    """Return the report of each partition, without the worker, the date and the duration."""
    found = []
    for unit in run.units:
        stages = [{**stage, "seconds": 0} for stage in unit["stages"]]
        for stage in stages:
            stage.pop("parts", None)
        files = [each["files"] for each in unit.get("outputs", [])]
        found.append({**unit, "stages": stages, "seconds": 0, "outputs": files})
    return found


SCHEMA = arrow_schema(headers=True)


RECORDS = some_records(300)


Rows = list[dict[str, Any]]


def rows(count: int, *, first: int = 0, topic: str = "orders", partition: int | None = 0) -> Rows:
    """Return some records as a source gives them."""
    return [
        {
            "key": each.key,
            "value": each.value,
            "topic": topic,
            "partition": partition,
            "timestamp": datetime.fromtimestamp(each.timestamp / 1000, UTC),
            "headers": [{"key": name, "value": value} for name, value in each.headers] or None,
        }
        for each in RECORDS[first : first + count]
    ]


def arrow(given: Rows) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of 40, the second one a slice, as Arrow has them."""
    whole = pa.RecordBatch.from_pylist([given[0], *given], schema=SCHEMA)
    for at in range(1, whole.num_rows, 40):
        yield whole.slice(at, 40)


def read(folder: Path, partition: str = "orders-0") -> list[Record]:
    """Return the records of a partition in a log directory."""
    (found,) = discover([str(folder / partition)])
    return [record for columns in SegmentReader(found).records() for record in columns]


class CutError(Exception):
    """The process ends here."""


def stream_reader(options: dict[str, str]) -> LogStream:
    """Return the reader of a stream of records without headers."""
    return LogStream(parse_options(options, stream=True), arrow_schema())


def step(stream: LogStream, start: Json, limit: ReadLimit | None = None) -> tuple[Json, list[Place]]:
    """Plan a batch as Spark does, places as JSON; return its end, and its records."""
    end = stream.latestOffset(start, stream.getDefaultReadLimit() if limit is None else limit)
    end = json.loads(json.dumps(end))
    return end, ([] if end == start else records(stream, start, end))


def records(stream: LogStream, start: Json, end: Json) -> list[Place]:
    """Return the records of a batch, in order."""
    batches = [batch for task in stream.partitions(start, end) for batch in stream.read(task)]
    rows = pa.Table.from_batches(batches, stream.columns).to_pylist()
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


def steps(stream: LogStream, start: Json) -> Iterator[tuple[Json, list[Place]]]:
    """Yield batches until nothing comes."""
    while True:
        end, found = step(stream, start)
        if end == start:
            return
        yield end, found
        start = end


def below(pid: int) -> dict[int, str]:
    """Return the command lines of all processes below one."""
    parents, lines = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            lines[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
    ours = {pid}
    while more := {each for each, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return {each: lines[each] for each in ours - {pid}}
