"""`magicbyte cat`: print the records of logs."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from magicbyte.cli import options, render
from magicbyte.cli.base import Command
from magicbyte.cli.brokers import sources_at
from magicbyte.cli.client_settings import client_options
from magicbyte.cli.gaps import complain_of_gaps
from magicbyte.cli.output import DamagePolicy, binary_output, complain
from magicbyte.cli.progress import progress
from magicbyte.engine.log.files import units
from magicbyte.public.sources import doubts, is_topic, read_source, served, with_key

if TYPE_CHECKING:
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.engine.records.columns import RecordColumns
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.public.sources import Source

BINARY = ("arrow", "parquet")


def parse_time(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Option callback: return a time in ms since 1970."""
    try:
        return None if value is None else units.parse_time(value)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(
            f"{value!r}: expected a time such as 2024-01-31T12:00:00Z, or ms since 1970"
        ) from error


def parse_key(_context: click.Context, _parameter: click.Parameter, value: str | None) -> bytes | None:
    """Option callback: return the bytes of a key given as text, base64:… or hex:…"""
    if value is None:
        return None
    prefix, _, rest = value.partition(":")
    try:
        if prefix == "base64":
            return base64.b64decode(rest, validate=True)
        if prefix == "hex":
            return bytes.fromhex(rest)
    except (binascii.Error, ValueError) as error:
        raise click.BadParameter(f"{value!r}: expected the key's bytes in {prefix} after {prefix}:") from error
    return value.encode(errors="surrogateescape")


@dataclass(frozen=True)
class WantedRecords:
    """The selected records of each partition."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    first: int | None
    end: int | None
    since: int | None
    until: int | None
    key: bytes | None
    isolation: str
    dialect: Dialect | None
    limit: int
    threads: int
    count: int | None


@click.command(
    cls=Command,
    examples=(
        "magicbyte cat tour/logs/kafka-4.3.1/basic-zstd-0 --from 34 -n 5",
        "magicbyte cat tour/logs/kafka-4.3.1/basic-zstd-0 --json --values hex",
        "magicbyte cat tour/logs/kafka-4.3.1 --format parquet -o records.parquet",
    ),
)
@options.paths_argument
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@click.option("--partition", "partitions", type=click.IntRange(0), multiple=True, metavar="N",
              help="Only this partition. Can be given several times.")  # fmt: skip
@click.option("--from", "first", type=click.IntRange(0), metavar="OFFSET", help="Begin at this offset.")
@click.option("--to", "end", type=click.IntRange(0), metavar="OFFSET", help="End before this offset.")
@click.option("--since", callback=parse_time, metavar="TIME",
              help="Only records of this time or later: ISO 8601 (default UTC), or ms.")  # fmt: skip
@click.option("--until", callback=parse_time, metavar="TIME", help="Only records of an earlier time.")
@click.option(
    "--key", callback=parse_key, metavar="KEY", help="Only records with exactly this key: text, base64:… or hex:…"
)
@click.option("-n", "--count", type=click.IntRange(0), metavar="N", help="End after this many records.")
@click.option("--isolation", type=click.Choice(["read_uncommitted", "read_committed"]), default="read_uncommitted",
              show_default=True, help="As a consumer's isolation.level.")  # fmt: skip
@options.json_option("jsonl")
@click.option("--format", "form", type=click.Choice(["text", "jsonl", "csv", "arrow", "parquet"]), default=None,
              callback=options.form_of,
              help="[default: text, and jsonl with --batches]")  # fmt: skip
@render.values_option
@click.option("--timestamp-millis", is_flag=True,
              help="Add the column timestampMillis, which holds every timestamp, to arrow and parquet.")  # fmt: skip
@click.option("--batches", is_flag=True, help="Print a line per batch, not per record.")
@click.option("-o", "--output", type=options.OutputPath(), metavar="FILE",
              help="Write to this file, which appears when it is complete, not to stdout.")  # fmt: skip
@options.dialect_option
@options.as_option
@options.on_damage_option
@options.max_batch_bytes_option
@options.threads_option
@client_options
def cat(
    paths: tuple[str, ...],
    as_: TopicPartition | None,
    form: str | None,
    values: str | None,
    timestamp_millis: bool,
    batches: bool,
    output: Path | None,
    on_damage: str,
    max_batch_bytes: int,
    **wanted: object,
) -> None:
    """Print records, or write them as Arrow, Parquet, CSV.

    Records are printed partition by partition, in offset order, as a consumer sees them: without control batches and
    records below the log start offset. A PATH may also be a topic of a running cluster, or one partition of it:
    kafka://HOST:PORT/TOPIC[/N].

    \b
    text    offset, time (UTC), key, value and headers, separated by tabs;
            bytes that are not printable UTF-8 are escaped; of several
            partitions each line begins with its own
    jsonl   one object per line: topic, partition, offset, timestamp (ms),
            timestampType, key, value, headers, as of consume --json
    csv     the same in columns; a null is empty, an empty key or value is ""
    arrow   an IPC stream with the columns of Spark's Kafka source
    parquet the same columns; needs -o FILE
    """
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.outputs import inputs_of

    form = form or ("jsonl" if batches else "text")
    request = WantedRecords(limit=max_batch_bytes, **wanted)  # type: ignore[arg-type]
    _check(form, values, output, request, batches=batches)
    if timestamp_millis and form not in BINARY:
        raise click.UsageError("--timestamp-millis is for --format arrow and parquet: the others show every timestamp")
    damage = DamagePolicy(on_damage)
    with contextlib.ExitStack() as stack:
        partitions = _partitions(stack, paths, as_, request, damage)
        total = sum(each.size for each in partitions if isinstance(each, PartitionDirectory))
        folders = [each for each in partitions if isinstance(each, PartitionDirectory)]
        inputs = inputs_of([path for path in paths if not is_topic(path)], folders)
        stream = stack.enter_context(binary_output(output, inputs))
        advance = stack.enter_context(progress(total, streams=output is None))
        if batches:
            _write_batches(stream, partitions, request, damage, advance)
        elif form in BINARY:
            records = _records(partitions, request, damage, advance, packed=True)
            _write_columnar(form, stream, records, millis=timestamp_millis)
        else:
            _write_lines(form, values or render.DEFAULT_VALUES, stream, partitions, request, damage, advance)
    damage.exit()


def _check(form: str, values: str | None, output: Path | None, wanted: WantedRecords, *, batches: bool) -> None:
    """Refuse options that contradict each other. Raises UsageError."""
    to_stdout = output is None or str(output) == "-"
    if values is not None and form not in ("jsonl", "csv"):
        raise click.UsageError(f"--values is for --format jsonl and csv: {form} has its own encoding")
    if values is not None and batches:
        raise click.UsageError("--values is for records, not for --batches")
    if form == "parquet" and to_stdout:
        raise click.UsageError("--format parquet: expected -o FILE to write to")
    if form == "arrow" and to_stdout and sys.stdout.isatty():
        raise click.UsageError("--format arrow is binary: expected -o FILE, or a pipe")
    if batches and form != "jsonl":
        raise click.UsageError("--batches: expected --format jsonl")
    filters = {"--since": wanted.since, "--until": wanted.until, "--key": wanted.key}
    given = [name for name, value in filters.items() if value is not None]
    if batches and (given or wanted.isolation != "read_uncommitted"):
        raise click.UsageError(f"{(given or ['--isolation'])[0]} is for records, not for --batches")
    if wanted.first is not None and wanted.end is not None and wanted.end < wanted.first:
        raise click.UsageError(f"--to {wanted.end}: expected an offset from {wanted.first} (--from) on")


def _partitions(
    stack: contextlib.ExitStack,
    paths: tuple[str, ...],
    as_: TopicPartition | None,
    wanted: WantedRecords,
    damage: DamagePolicy,
) -> list[Source]:
    """Return the selected partitions, and complain about folders that are not read and about what is missing.

    Connections to brokers are closed with `stack`.
    """
    from magicbyte.engine.compiled import kernel
    from magicbyte.engine.log.files.directory import DirectoryFiles, FoundLogs, PartitionDirectory
    from magicbyte.engine.log.files.partitions import choose

    directories: list[DirectoryFiles] = []
    found = stack.enter_context(sources_at(paths, as_, wanted.dialect, directories))
    used = served(found, wanted.topics)
    folders = [each for each in found if isinstance(each, PartitionDirectory)]
    damage.missing(complain_of_gaps(FoundLogs(folders, directories), wanted.topics).missing)
    kernel.expect(sum(each.size for each in used if isinstance(each, PartitionDirectory)))
    return choose(used, wanted.topics, wanted.partitions)


def _records(
    partitions: list[Source],
    wanted: WantedRecords,
    damage: DamagePolicy,
    advance: Callable[[int], None],
    *,
    packed: bool,
) -> Iterator[tuple[Source, RecordColumns]]:
    """Yield the selected records, each chunk with its partition."""
    from magicbyte.engine.log.files.reader import EVERYTHING, Isolation, Selection
    from magicbyte.engine.records.decode import DecodeOptions

    decoding = DecodeOptions(packed=packed, limit=wanted.limit)
    selection = Selection(
        wanted.first or 0,
        EVERYTHING.end if wanted.end is None else wanted.end,
        since=wanted.since,
        until=wanted.until,
        isolation=Isolation(wanted.isolation),
    )
    left = sys.maxsize if wanted.count is None else wanted.count
    for partition in partitions:
        if not left:
            return
        for doubt in doubts([partition], wanted.dialect):
            complain(f"warning: {doubt}")
        records = read_source(
            partition, selection, decoding,
            dialect=wanted.dialect, threads=wanted.threads, on_damage=damage, progress=advance,
        )  # fmt: skip
        for columns in records:
            chosen = columns if wanted.key is None else with_key(columns, wanted.key)
            chosen = chosen.slice(0, left)
            left -= len(chosen)
            if len(chosen):
                yield partition, chosen
            if not left:
                break


def _write_lines(
    form: str,
    values: str,
    stream: BinaryIO,
    partitions: list[Source],
    wanted: WantedRecords,
    damage: DamagePolicy,
    advance: Callable[[int], None],
) -> None:
    named = len(partitions) > 1
    if form == "csv":
        stream.write(render.CSV_HEAD)
    of: Source | None = None
    lines: render.Renderer | None = None
    for partition, columns in _records(partitions, wanted, damage, advance, packed=False):
        if lines is None or partition is not of:
            of, name = partition, (partition.topic, partition.partition)
            if form == "text":
                lines = render.text(*name, named=named)
            else:
                lines = (render.jsonl if form == "jsonl" else render.csv)(values, *name)
        stream.write(lines(columns))


def _write_columnar(
    form: str, stream: BinaryIO, records: Iterator[tuple[Source, RecordColumns]], *, millis: bool
) -> None:
    from magicbyte.engine.records.columnar import ArrowWriter, ParquetWriter

    kind = ArrowWriter if form == "arrow" else ParquetWriter
    with kind(stream, millis=millis) as writer:
        for partition, columns in records:
            writer.write(columns, partition.topic, partition.partition)
    if writer.far.count:
        remedy = "timestampMillis has them" if millis else "--timestamp-millis adds a column that has them"
        complain(f"warning: {writer.far.text}: null in the column timestamp; {remedy}")


def _write_batches(
    stream: BinaryIO,
    partitions: list[Source],
    wanted: WantedRecords,
    damage: DamagePolicy,
    advance: Callable[[int], None],
) -> None:
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.reader import SegmentReader
    from magicbyte.tools.offline.batch_list import list_batches

    left = sys.maxsize if wanted.count is None else wanted.count
    for partition in partitions:
        name = {"topic": partition.topic, "partition": partition.partition}
        reader = SegmentReader(partition, wanted.dialect) if isinstance(partition, PartitionDirectory) else partition
        lines = list_batches(
            reader, first=wanted.first or 0, end=wanted.end, limit=wanted.limit, on_damage=damage, progress=advance
        )
        for line in lines:
            if not left:
                return
            stream.write(f"{json.dumps(name | line)}\n".encode())
            left -= 1
