"""`magicbyte verify`: check whether logs are sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.output import bad, complain, doubtful, good, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import many, size_text
from magicbyte.public.sources import doubts

if TYPE_CHECKING:
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.tools.offline.findings import Finding

Json = dict[str, Any]


@click.command(
    cls=Command,
    examples=(
        "magicbyte verify tour/logs/kafka-4.3.1",
        "magicbyte verify tour/logs/kafka-4.3.1 --deep --json",
    ),
)
@options.paths_argument
@click.option("--quick", is_flag=True, help="Only sizes, checksums and offsets of batches.")
@click.option("--deep", is_flag=True, help="Also every record and every checksum of nested messages.")
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@options.format_option
@options.dialect_option
@options.as_option
@options.max_batch_bytes_option
@options.threads_option
def verify(
    paths: tuple[str, ...],
    quick: bool,
    deep: bool,
    topics: tuple[str, ...],
    form: str,
    dialect: Dialect | None,
    as_: TopicPartition | None,
    max_batch_bytes: int,
    threads: int,
) -> None:
    """Check whether logs are sound; if not, show what is wrong, where, and what to do.

    Checks sizes, checksums and offsets of all batches, their headers, and whether indexes, snapshots, leader epochs and
    checkpoints match them. After damage the check continues with the next sound batch. Nothing is written.

    Exit status: 0 sound (with notes at most), 1 a fault was found, 2 wrong use.
    """
    from magicbyte.engine.log.files.directory import survey
    from magicbyte.engine.log.files.left_out import in_use
    from magicbyte.engine.log.files.partitions import choose
    from magicbyte.tools.offline.findings import Depth, Severity
    from magicbyte.tools.offline.verify import verify_all

    if quick and deep:
        raise click.UsageError("--quick and --deep exclude each other")
    depth = Depth.QUICK if quick else Depth.DEEP if deep else Depth.USUAL
    logs = survey(paths, as_)
    partitions = choose(in_use(logs.partitions, quorum=True), topics)
    for doubt in doubts(partitions, dialect):
        complain(f"warning: {doubt}")
    total = sum(each.size for each in partitions)
    counts = dict.fromkeys(Severity, 0)
    listed: list[Json] = []
    with progress(total) as advance:
        findings = verify_all(
            logs,
            topics,
            depth=depth,
            dialect=dialect,
            limit=max_batch_bytes,
            threads=threads,
            progress=advance,
        )
        for finding in findings:
            counts[finding.severity] += 1
            if form == "json":
                listed.append(finding.to_json())
            else:
                say(*finding_lines(finding))
    segments = sum(len(each.segments) for each in partitions)
    if form == "json":
        numbers = {severity.value: count for severity, count in counts.items()}
        summary = {"partitions": len(partitions), "segments": segments, "bytes": total, **numbers}
        say_json({"findings": listed, "total": summary})
    else:
        where = f"{many(len(partitions), 'partition')}, {many(segments, 'segment')}, {size_text(total)}"
        verdict = ", ".join(many(count, severity.value) for severity, count in counts.items() if count) or "sound"
        color = bad if counts[Severity.ERROR] else doubtful if counts[Severity.WARNING] else good
        say(color(f"{where}: {verdict}"))
    if counts[Severity.ERROR] or counts[Severity.WARNING]:
        click.get_current_context().exit(1)


def finding_lines(finding: Finding) -> list[str]:
    """Return a finding in two lines: what it is, in the color of its severity, and what to do."""
    from magicbyte.tools.offline.findings import Severity

    line = f"{finding.severity.value}: {finding}"
    if finding.severity is not Severity.NOTE:
        line = bad(line) if finding.severity is Severity.ERROR else doubtful(line)
    return [line, f"    to do: {finding.advice}"]
