"""`magicbyte doctor`: what is wrong with log directories, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from magicbyte.access.clock import SystemClock
from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.output import bad, complain, doubtful, good, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import many, size_text
from magicbyte.engine.printable import printable
from magicbyte.public.sources import doubts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magicbyte.ask.doctor import Diagnosis
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.engine.records.layout import Dialect


@click.command(
    cls=Command,
    examples=(
        "magicbyte doctor tour/logs",
        "magicbyte doctor tour/logs --topic crash-flip --json",
    ),
)
@options.paths_argument
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@click.option("--min-bytes", callback=options.size, default="64MiB", show_default=True, metavar="SIZE",
              help="Do not report partitions that grow or differ by less.")  # fmt: skip
@options.format_option
@options.dialect_option
@options.as_option
@options.max_batch_bytes_option
def doctor(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    min_bytes: int,
    form: str,
    dialect: Dialect | None,
    as_: TopicPartition | None,
    max_batch_bytes: int,
) -> None:
    """Say what is wrong with log directories, in order of gravity, each with its evidence and what to do.

    Damage, missing parts, ignored folders, hanging transactions, logs that the cleaner does not compact, timestamps in
    the future, old formats, small batches, skew. Only headers and the files beside the logs are read: `verify --deep`
    checks every record. PATH is not changed.

    Exit status: 0 nothing but notes, 1 errors or warnings, 2 wrong use.
    """
    from magicbyte.ask.doctor import DoctorOptions, examine
    from magicbyte.engine.log.files.directory import survey
    from magicbyte.tools.offline.findings import Severity

    logs = survey(paths, as_)
    for partition in logs.partitions:
        for doubt in doubts([partition], dialect):
            complain(f"warning: {doubt}")
    chosen = DoctorOptions(
        now_ms=SystemClock().now_ms(), topics=topics, dialect=dialect, min_bytes=min_bytes, limit=max_batch_bytes
    )
    with progress(sum(each.size for each in logs.partitions)) as advance:
        diagnoses = examine(logs, chosen, advance)
    if form == "json":
        say_json({"diagnoses": [each.to_json() for each in diagnoses], "partitions": len(logs.partitions)})
    else:
        say(*_lines(diagnoses, len(logs.partitions)))
    if any(each.severity is not Severity.NOTE for each in diagnoses):
        click.get_current_context().exit(1)


def _lines(diagnoses: Sequence[Diagnosis], partitions: int) -> list[str]:
    counts = {
        severity: sum(each.severity.value == severity for each in diagnoses)
        for severity in ("error", "warning", "note")
    }
    counted = ", ".join(many(count, severity) for severity, count in counts.items())
    lines = [
        f"{many(partitions, 'partition')}: {counted}"
        if diagnoses
        else good(f"{many(partitions, 'partition')}: nothing found")
    ]
    paint: dict[str, Callable[[str], str]] = {"error": bad, "warning": doubtful, "note": str}
    for diagnosis in diagnoses:
        severity = diagnosis.severity.value
        size = f" ({size_text(diagnosis.bytes)})" if diagnosis.bytes else ""
        lines += [
            "",
            paint[severity](f"{severity}: {diagnosis.kind}: {printable(diagnosis.where)}{size}"),
            f"  {printable(diagnosis.what)}",
            f"  evidence: {printable(diagnosis.evidence)}",
            f"  do: {printable(diagnosis.advice)}",
        ]
    return lines
