"""`magicbyte diff`: compare the records of two logs."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import click

from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.brokers import sources_at
from magicbyte.cli.client_settings import client_options
from magicbyte.cli.gaps import complain_of_gaps
from magicbyte.cli.output import DamagePolicy, bad, good, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import many
from magicbyte.engine.printable import readable, shortened, time_text
from magicbyte.public.sources import served

if TYPE_CHECKING:
    from collections.abc import Callable

    from magicbyte.cli.options import F
    from magicbyte.engine.log.files.directory import DirectoryFiles
    from magicbyte.engine.records.columns import Record
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.public.sources import Source
    from magicbyte.tools.offline.diff import Difference, DiffReport


IGNORABLE = ("timestamps", "headers", "control")
_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def ignored_names(_context: click.Context, _parameter: click.Parameter, value: str | None) -> list[str]:
    """Option callback: return the names in a comma-separated list."""
    names = [name.strip() for name in value.split(",")] if value else []
    for name in names:
        if name not in IGNORABLE:
            raise click.BadParameter(f"{name!r}: expected some of {', '.join(IGNORABLE)}, with commas between them")
    return names


def _dialect(side: str) -> Callable[[F], F]:
    """Add --dialect-a or --dialect-b: a Dialect, or None for that of the folder."""
    return click.option(
        f"--dialect-{side}",
        type=click.Choice(["kafka", "enriched"]),
        callback=options.dialect_name,
        help=f"How to read magic byte 1 in {side.upper()}.  [default: that of a message.dialect file, else kafka]",
    )


@click.command(
    cls=Command,
    examples=(
        "magicbyte diff tour/logs/kafka-4.3.1 tour/logs/kafka-4.3.1",
        "magicbyte diff tour/logs/kafka-0.8.2.2 newer --ignore timestamps",
    ),
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@click.option("--ignore", callback=ignored_names, metavar="WHAT,…",
              help="Do not compare timestamps (times and types), headers, or control records.")  # fmt: skip
@options.format_option
@click.option("--limit", type=click.IntRange(0), default=100, show_default=True, metavar="N",
              help="Describe at most N differences of a partition; all are counted.")  # fmt: skip
@_dialect("a")
@_dialect("b")
@options.on_damage_option
@options.max_batch_bytes_option
@options.threads_option
@client_options
def diff(
    a: str,
    b: str,
    topics: tuple[str, ...],
    ignore: list[str],
    form: str,
    limit: int,
    dialect_a: Dialect | None,
    dialect_b: Dialect | None,
    on_damage: str,
    max_batch_bytes: int,
    threads: int,
) -> None:
    """Show whether two logs hold the same records, and where they differ.

    A and B are log directories, partition folders, segments, or topics or single partitions of a running cluster:
    kafka://HOST:PORT/TOPIC[/N]. Partitions are matched by topic and number or, if A and B have one each, regardless of
    their names. Keys, values, timestamps, timestamp types and headers are compared as far as the formats of both sides
    support them; other fields are counted. Batching, compression, producer ids, sequences and leader epochs are
    ignored.

    Exit status: 0 the same, 1 different or damaged.
    """
    from magicbyte.engine.log.files.directory import FoundLogs, PartitionDirectory
    from magicbyte.engine.log.files.partitions import choose
    from magicbyte.tools.offline.diff import DiffOptions, Ignored, compare

    damage = DamagePolicy(on_damage)
    with contextlib.ExitStack() as stack:
        dialects = dialect_a, dialect_b

        def opened(path: str, dialect: Dialect | None) -> list[Source]:
            directories: list[DirectoryFiles] = []
            found = stack.enter_context(sources_at([path], None, dialect, directories))
            folders = [each for each in found if isinstance(each, PartitionDirectory)]
            complain_of_gaps(FoundLogs(folders, directories), topics)
            return choose(served(found, topics), topics)

        left, right = opened(a, dialect_a), opened(b, dialect_b)
        total = sum(each.size for each in (*left, *right) if isinstance(each, PartitionDirectory))
        advance = stack.enter_context(progress(total))
        chosen = DiffOptions(frozenset(map(Ignored, ignore)), max_batch_bytes, threads, damage, advance)
        report = compare(left, right, chosen, dialects=dialects, described=limit)
    if form == "json":
        found = {"same": report.same, "ignored": ignore, "partitions": [each.to_json() for each in report.partitions]}
        say_json(found)
    else:
        say(*_text(report, ignore))
    damage.exit()
    if not report.same:
        click.get_current_context().exit(1)


# ---- text


def _text(report: DiffReport, ignore: list[str]) -> list[str]:
    lines: list[str] = []
    for compared in report.partitions:
        if compared.path_a is None or compared.path_b is None:
            lines.append(f"{compared.partition}: only in {compared.path_b or compared.path_a}")
        elif not compared.same:
            differing = sum(compared.differing.values())
            lines.append(
                f"{compared.partition}: {many(differing, 'record')} {'differs' if differing == 1 else 'differ'}"
            )
            for difference in compared.differences:
                lines += [f"  {line}" for line in _described(difference)]
            if (more := differing - sum(difference.records for difference in compared.differences)) > 0:
                lines.append(f"  and {more} more (--limit)")
    records = sum(compared.compared for compared in report.partitions)
    what = f"{many(records, 'record')} in {many(len(report.partitions), 'partition')} compared"
    names = [name for name in ("timestamps", "headers") if name not in ignore]
    verdict = f"{what}: offset, key, value{', '.join(['', *names])}"
    lines.append(good(f"same: {verdict}") if report.same else bad(f"different: {verdict}"))
    lacking = sum((compared.not_held for compared in report.partitions), start=Counter[str]())
    for name, count in sorted(lacking.items()):
        counted = many(count, "control record") if name == "control records" else f"{name} of {many(count, 'record')}"
        lines.append(f"  not compared: {counted}, for which the other side's format has no place")
    return lines


def _described(difference: Difference) -> list[str]:
    first, last = difference.first_offset, difference.last_offset
    where = f"offset {first}" if first == last else f"offsets {first}..{last} ({many(difference.records, 'record')})"
    lines = [f"{where}: {', '.join(difference.what.names)}"]
    a, b = difference.a, difference.b
    for side, record, other in (("a", a, b), ("b", b, a)):
        if record is not None:
            place = "" if first == last else f" {record.offset}"
            lines.append(f"  {side}{place}: {', '.join(_fields(record, other))}")
    return lines


def _fields(record: Record, other: Record | None) -> list[str]:
    """Return the fields that `other` lacks, or has with another value."""
    fields = {
        "key": f"key {_of_bytes(record.key)}",
        "value": f"value {_of_bytes(record.value)}",
        "timestamp": f"timestamp {time_text(record.timestamp)}",
        "timestamp_type": _TYPES.get(record.timestamp_type, f"timestamp type {record.timestamp_type}"),
        "headers": f"headers {', '.join(f'{name}={_of_bytes(value)}' for name, value in record.headers) or 'none'}",
    }
    return [text for name, text in fields.items() if other is None or getattr(record, name) != getattr(other, name)]


def _of_bytes(cell: bytes | None) -> str:
    from magicbyte.tools.offline.diff import SHOWN

    return readable(cell) if not cell else f"{shortened(cell, SHOWN)} ({len(cell)} bytes)"
