"""`magicbyte salvage`: write the sound batches of damaged logs into a new log directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.gaps import complain_of_gaps
from magicbyte.cli.output import bad, complain, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import ended_text, many, size_text

if TYPE_CHECKING:
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.tools.offline.salvage import SalvagedPartition


@click.command(cls=Command, examples=("magicbyte salvage tour/logs/kafka-0.8.2.2/basic-none-0 --out whole",))
@options.paths_argument
@click.option("--out", type=options.OutputPath(folder=True), required=True, metavar="DIR",
              help="The new log directory, or that of an interrupted salvage to continue.")  # fmt: skip
@click.option("--kafka", metavar="VERSION",
              help="Write indexes as this Kafka version does.  [default: the newest]")  # fmt: skip
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@options.format_option
@options.dialect_option
@options.as_option
@options.max_batch_bytes_option
@options.new_cluster_option
def salvage(
    paths: tuple[str, ...],
    out: Path,
    kafka: str | None,
    topics: tuple[str, ...],
    form: str,
    dialect: Dialect | None,
    as_: TopicPartition | None,
    max_batch_bytes: int,
    new_cluster: bool,
) -> None:
    """Write every sound batch of damaged logs into a new log directory, with indexes.

    After damage the search continues with the next batch whose length, magic byte and checksum hold, and never with
    batches that are only the content of a record. Losses are reported by bytes and offsets. PATH is not changed. A
    Kafka broker opens the result as its own.

    Exit status: 0 nothing was damaged, 1 damage, which is reported, 2 wrong use or a failure to write.
    """
    from magicbyte.engine.log.files.directory import survey
    from magicbyte.engine.log.files.outputs import inputs_of, refuse_overlap
    from magicbyte.tools.offline.convert import chosen_by_name
    from magicbyte.tools.offline.salvage import SalvageOptions, salvage_logs

    logs = survey(paths, as_, needs_partition=True)
    partitions = chosen_by_name(logs.partitions, topics)
    gaps = complain_of_gaps(logs, topics)
    refuse_overlap(out, inputs_of(paths, partitions.values()))
    total = sum(each.size for each in partitions.values())
    done: list[SalvagedPartition] = []
    with progress(total) as advance:
        chosen = SalvageOptions(
            version=kafka, dialect=dialect, limit=max_batch_bytes, new_cluster=new_cluster, progress=advance
        )
        try:
            for each in salvage_logs(partitions, out, chosen):
                done.append(each)
                if form == "text":
                    say(*_lines(each))
        except (OSError, KeyboardInterrupt):
            complain(
                f"stopped: {len(done)} of {many(len(partitions), 'partition')} finished in {out}; "
                "the same command continues there"
            )
            raise
    if form == "json":
        say_json({"partitions": [each.to_json() for each in done]})
    if gaps.count or not all(each.report.is_sound for each in done):
        click.get_current_context().exit(1)


def _lines(done: SalvagedPartition) -> list[str]:
    report = done.report
    batches = f"{report.entries} batch{'' if report.entries == 1 else 'es'}"
    before = ", by an earlier run" if done.resumed else ""
    lines = [f"{done.name}: {batches} recovered, {size_text(report.bytes)} of {size_text(done.size)}{before}"]
    if report.moved:
        lines.append(f"  moved back to their positions: {report.moved}")
    if report.ended_transactions:
        lines.append(f"  {ended_text(report.ended_transactions)}")
    for loss in report.lost:
        offsets = "no offsets" if loss.offsets is None else f"offsets {loss.offsets[0]}..{loss.offsets[1]}"
        place = f"{loss.path}, bytes {loss.position}..{loss.end - 1}"
        error = loss.error
        lines.append(bad(f"  lost: {place}, {offsets}: {error.what}: expected {error.expected}, found {error.found}"))
    for aside in report.aside:
        place = f"{aside.path}, bytes {aside.position}..{aside.end - 1}, offsets {aside.offsets[0]}..{aside.offsets[1]}"
        lines.append(f"  left out: {place}: {aside.why}")
    return lines
