"""`magicbyte pipeline`: process whole archives, partition by partition, on Spark."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magicbyte.cli.base import CommandGroup
from magicbyte.cli.options import OutputPath, format_option
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.render import many, size_text
from magicbyte.cli.sides import SIDES, side_options, side_settings

if TYPE_CHECKING:
    from magicbyte.spark.pipeline import Pipeline
    from magicbyte.spark.pipeline.driver import PipelineRun, RunPlan

Json = dict[str, Any]


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Verify, convert, compact and clean whole archives on Spark, as described in a file.

    The same file runs on this machine with nothing else installed, and on any Spark master.
    """


@pipeline.command(
    examples=(
        "magicbyte pipeline run archive.toml --dry-run",
        "magicbyte pipeline run archive.toml --resume --json",
        "magicbyte pipeline run into-cluster.toml -X target.security.protocol=SSL",
    )
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--master", default="local[*]", show_default=True, metavar="URL", help="The Spark master to run at.")
@click.option("--dry-run", is_flag=True, help="Check the file and show the plan, and do nothing.")
@click.option("--resume", is_flag=True, help="Continue an earlier run in its sink: finished partitions are kept.")
@side_options("master=URL")
@format_option
@click.pass_context
def run(context: click.Context, file: Path, master: str, dry_run: bool, resume: bool, form: str) -> None:
    """Run the pipeline in FILE, a TOML file.

    Each partition goes through all stages in one task. The outputs get their names when the run commits. After a crash
    the same command with --resume does the remaining work, and the result is that of one undisturbed run.

    Exit status: 0 all done, 1 damage or a difference stopped a partition, 2 wrong use or a failure.
    """
    from magicbyte.spark.pipeline import driver
    from magicbyte.spark.pipeline.config import load
    from magicbyte.spark.pipeline.report import as_json, write_report

    source, target = (side_settings(context, side) for side in SIDES)
    given = load(file, source_client=source, target_client=target)
    if dry_run:
        planned = driver.plan(given)
        if form == "json":
            say_json(planned.to_json())
        else:
            say(*_plan_text(planned))
        return
    try:
        with _progress(given) as advance:
            done = driver.run(given, master=master, resume=resume, progress=advance)
    except KeyboardInterrupt:
        complain("stopped; --resume continues after the finished work" if given.sink else "stopped")
        raise
    where = write_report(done)
    if form == "json":
        say_json(as_json(done))
    else:
        say(*_text(done))
    for unit in done.units:
        if unit["error"] is not None:
            complain(f"{unit['outcome']}: {unit['unit']}: {unit['error']}")
        for stage in unit["stages"]:
            if far := stage.get("farTimestamps", 0):
                complain(
                    f"warning: {unit['unit']}: {many(far, 'timestamp')} beyond the range of microseconds: null in the "
                    "column timestamp; timestamp-millis = true adds a column that has them"
                )
    if where is not None:
        say(f"report: {where}", err=True)
    context.exit(done.status)


@pipeline.command(examples=("magicbyte pipeline materialize s3://archive/converted --to ./logs",))
@click.argument("url")
@click.option("--to", type=OutputPath(folder=True), required=True, metavar="DIR")
def materialize(url: str, to: Path) -> None:
    """Download the output of a pipeline from URL, in an object store, as a log directory DIR.

    Each file is compared with the manifest by SHA-256. Kafka opens the directory as its own. After a crash the same
    command continues.
    """
    from magicbyte.cli.progress import progress
    from magicbyte.engine.log.files.manifest import read_stored
    from magicbyte.engine.log.files.store import ObjectStore
    from magicbyte.tools.offline.materialize import materialize as make

    stored = read_stored(ObjectStore(url.rstrip("/")))
    total = 0 if stored is None else sum(size for output in stored.outputs for _, size, _ in output.files)
    with progress(total) as advance:
        count = make(url, to, advance)
    say(many(count, "partition"))


def _memory(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Option callback: return a size in Spark's notation. Spark's worker answers others only with its usage."""
    if not re.fullmatch(r"[1-9][0-9]*[mgt]b?", value, re.IGNORECASE):
        raise click.BadParameter(f"{value!r}: expected a size such as 512m or 1g")
    return value


@pipeline.group(cls=CommandGroup)
def cluster() -> None:
    """Run a Spark cluster on this machine, to try a pipeline before it runs on many machines."""


@cluster.command(examples=("magicbyte pipeline cluster up --workers 2",))
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, metavar="N")
@click.option("--cores", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Of each worker.")
@click.option("--memory", callback=_memory, default="1g", show_default=True, metavar="SIZE",
              help="Of each worker, for executors.")  # fmt: skip
def up(workers: int, cores: int, memory: str) -> None:
    """Start a master and workers from the installed PySpark; stop them at Ctrl-C.

    Prints the URL for `pipeline run --master URL`.
    """
    from magicbyte.spark.pipeline.cluster import cluster as started

    with started(workers, cores=cores, memory=memory) as running:
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: stop.set())
        say(running.url)
        complain(f"{many(workers, 'worker')} at {running.url}; Ctrl-C stops them")
        stop.wait()


@contextlib.contextmanager
def _progress(given: Pipeline) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback for a stage, and bytes and partitions just done: a bar per stage, and one for all.

    The bars are shown on stderr, if it is a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _stage, _bytes, _units: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from magicbyte.spark.pipeline import plan

    planned = plan(given)
    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True),
        TextColumn("{task.fields[units]} of {task.fields[of]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bars = {
            name: bar.add_task(name or "all", total=size, units=0, of=count)
            for name, (size, count) in _due(planned).items()
        }

        def advance(stage: str, size: int, units: int) -> None:
            if stage not in bars:
                bars[stage] = bar.add_task(stage, total=None, units=0, of="?")  # salvage is not in the plan
            task = bar.tasks[bar.task_ids.index(bars[stage])]
            bar.update(bars[stage], advance=size, units=task.fields["units"] + units)

        yield advance


def _due(planned: RunPlan) -> dict[str, tuple[int, int]]:
    """Return bytes of sources and partitions due in each stage, and under "" in the whole run."""
    from magicbyte.spark.pipeline.runner import stage_names

    sums: dict[str, tuple[int, int]] = {}
    for unit in planned.due:
        for name in [*stage_names(stage.do for stage in unit.stages), ""]:
            size, count = sums.get(name, (0, 0))
            sums[name] = size + unit.size, count + 1
    size, count = sums.pop("", (0, 0))
    return {**sums, "": (size + sum(unit["bytes"] for unit in planned.done), count + len(planned.done))}


def _plan_text(planned: RunPlan) -> list[str]:
    lines = [
        f"{unit.name}: {size_text(unit.size)}, {many(len(unit.partition.segments), 'segment')}: "
        f"{', '.join(stage.do for stage in unit.stages) or 'copy'}"
        for unit in planned.due
    ]
    size = sum(unit.size for unit in planned.due)
    lines.append(
        f"{many(len(planned.due), 'partition')}, {size_text(size)}, to be done; {len(planned.done)} done before"
    )
    return lines


def _text(done: PipelineRun) -> list[str]:
    """Return a line per kind of stage, and one for all."""
    from magicbyte.spark.pipeline.report import stage_sums

    lines = [
        f"{each['do']}: {many(each['partitions'], 'partition')}, {size_text(each['bytesIn'])} to "
        f"{size_text(each['bytesOut'])}, {each['seconds']:.1f} s of workers"
        for each in stage_sums(done.units)
    ]
    outcomes: dict[str, int] = {}
    for unit in done.units:
        outcomes[unit["outcome"]] = outcomes.get(unit["outcome"], 0) + 1
    counts_text = ", ".join(f"{count} {name}" for name, count in outcomes.items())
    lines.append(f"{many(len(done.units), 'partition')}: {counts_text}; {done.kept} of them by earlier runs")
    return lines
