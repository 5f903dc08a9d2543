"""`magicbyte convert`: convert a log directory to another message format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.gaps import complain_of_gaps
from magicbyte.cli.output import complain, good, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import ended_text, many, size_text
from magicbyte.engine.errors import CorruptRecordError, UnsupportedCompressionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magicbyte.engine.ports import TopicPartition
    from magicbyte.engine.records.convert import ConversionReport
    from magicbyte.engine.records.encode import Format
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.tools.offline.convert import PartitionConversion

Json = dict[str, Any]

CODECS = ("keep", "none", "gzip", "snappy", "lz4", "zstd")

_LOST = {
    "timestamps": "timestamps of {}",
    "headers": "headers of {}",
    "transaction_markers": "{} that end transactions",
    "control_records": "{} that the log itself writes",
    "transactional_batches": "the transactions that {} belonged to",
    "producer_states": "producer ids and sequences of {}",
    "leader_epochs": "leader epochs of {}",
    "delete_horizons": "delete horizons of {}",
    "tags": "unknown tags of {}",
    "wrapper_keys": "keys of {}",
}
_NOUNS = {
    "timestamps": "record",
    "headers": "record",
    "transaction_markers": "marker",
    "control_records": "control record",
    "tags": "message",
    "wrapper_keys": "wrapper",
}


@click.command(cls=Command, examples=("magicbyte convert tour/logs/kafka-0.8.2.2 --to v2 --codec zstd --out newer",))
@options.paths_argument
@click.option("--to", "target", type=options.FormatName("enriched"), required=True, help="The format to convert to.")
@click.option("--codec", type=click.Choice(CODECS), default="keep", show_default=True,
              help="Compress all batches with this codec; keep: each batch keeps its own.")  # fmt: skip
@click.option("--out", type=options.OutputPath(folder=True), required=True, metavar="DIR",
              help="The new log directory, or that of an interrupted conversion to continue.")  # fmt: skip
@click.option("--fix-lz4", is_flag=True,
              help="Give LZ4 batches of v1 the correct header checksum, those of v0 the one old clients expect; the "
              "compressed blocks are not changed.")  # fmt: skip
@click.option("--kafka", metavar="VERSION",
              help="Write indexes as this Kafka does.  [default: 0.9.0.1 for v0, 0.10.2.2 for v1, or 4.3]")  # fmt: skip
@click.option("--verify", is_flag=True, help="Compare every record written with its source.")
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@options.format_option
@options.dialect_option
@options.as_option
@options.max_batch_bytes_option
@options.threads_option
@options.new_cluster_option
def convert(
    paths: tuple[str, ...],
    target: Format,
    codec: str,
    out: Path,
    fix_lz4: bool,
    kafka: str | None,
    verify: bool,
    topics: tuple[str, ...],
    form: str,
    dialect: Dialect | None,
    as_: TopicPartition | None,
    max_batch_bytes: int,
    threads: int,
    new_cluster: bool,
) -> None:
    """Convert logs to another message format, or to another codec.

    Offsets are kept. Batches already in the target format and codec are copied byte for byte. Whatever the target
    cannot hold is counted and reported. The result is a log directory that a Kafka broker opens as its own, without
    recovery.

    Each partition appears under its name when it is complete. After an interruption or a full disk the same command
    continues with the remaining partitions, and the result is that of one undisturbed run.

    Exit status: 0 all converted, 1 damage or a difference found, 2 wrong use or a failure to write.
    """
    from magicbyte.engine.codecs import Codec
    from magicbyte.engine.log.files.directory import survey
    from magicbyte.engine.log.files.outputs import inputs_of, refuse_overlap
    from magicbyte.tools.offline.convert import ConvertOptions, chosen_by_name, convert_partitions

    logs = survey(paths, as_, needs_partition=True)
    partitions = chosen_by_name(logs.partitions, topics)
    gaps = complain_of_gaps(logs, topics)
    refuse_overlap(out, inputs_of(paths, partitions.values()))
    total = sum(each.size for each in partitions.values())
    with progress(total * (2 if verify else 1)) as advance:
        chosen = ConvertOptions(
            target,
            None if codec == "keep" else Codec[codec.upper()],
            fix_lz4=fix_lz4,
            version=kafka,
            verify=verify,
            dialect=dialect,
            limit=max_batch_bytes,
            threads=threads,
            new_cluster=new_cluster,
            progress=advance,
        )
        done = _all(convert_partitions(partitions, out, chosen), form, len(partitions), out)
    if form == "json":
        summed = _sum(done).to_json(sum(each.lz4_headers for each in done))
        say_json({"partitions": [each.to_json() for each in done], "total": summed})
    elif len(done) > 1:
        say(*_total(done))
    if gaps.count or not all(each.sound for each in done):
        click.get_current_context().exit(1)


def _all(work: Iterator[PartitionConversion], form: str, expected: int, out: Path) -> list[PartitionConversion]:
    """Report each conversion as it ends, and return all. On an interruption, print the progress."""
    done: list[PartitionConversion] = []
    try:
        for conversion in work:
            done.append(conversion)
            if conversion.error is not None:
                complain(
                    conversion.error
                    if isinstance(conversion.error, CorruptRecordError)
                    else f"{conversion.name}: {conversion.error}"
                )
                if hint := _hint(conversion):
                    complain(hint)
            if form == "text":
                say(*_lines(conversion))
    except (OSError, KeyboardInterrupt):
        finished = sum(each.error is None for each in done)
        complain(
            f"stopped: {finished} of {many(expected, 'partition')} finished in {out}; the same command continues there"
        )
        raise
    return done


def _hint(done: PartitionConversion) -> str | None:
    """Return a hint for a partition that was not converted."""
    if isinstance(done.error, UnsupportedCompressionError):
        return "--codec gzip, for example, recompresses zstd batches"
    if isinstance(done.error, CorruptRecordError) and not done.folder.exists():
        if done.error.what.startswith("lz4 header checksum"):
            return "--fix-lz4 repairs header checksums of LZ4"
        return "`magicbyte salvage` writes a sound log of the undamaged batches"
    return None


# ---- JSON


def _sum(done: list[PartitionConversion]) -> ConversionReport:
    from magicbyte.engine.records.convert import ConversionReport
    from magicbyte.tools.offline.convert import add_report

    total = ConversionReport()
    for each in done:
        add_report(total, each.report)
    return total


# ---- text


def _lines(done: PartitionConversion) -> list[str]:
    if done.error is not None:
        return [f"{done.name}: {'written, but the output is damaged' if done.folder.exists() else 'not converted'}"]
    before = ", by an earlier run" if done.resumed else ""
    lines = [f"{done.name}: {_sizes(done.report)}{before}", *_notes(done.report, done.lz4_headers)]
    if done.ended_transactions:
        lines.append(f"  {ended_text(done.ended_transactions)}")
    if done.verified:
        lines.append(good("  verified: the same records as in the source"))
    elif done.comparison is not None:
        differing = sum(done.comparison.differing.values())
        first = done.comparison.differences[0]
        lines.append(
            f"  DIFFERENT from the source: {many(differing, 'record')}, the first at offset {first.first_offset}: "
            f"{', '.join(first.what.names)}"
        )
    return lines


def _total(done: list[PartitionConversion]) -> list[str]:
    count = sum(each.error is None for each in done)
    report, fixed = _sum(done), sum(each.lz4_headers for each in done)
    text = f"total: {count} of {many(len(done), 'partition')} converted, {_sizes(report)}"
    return [text, *_notes(report, fixed)]


def _sizes(report: ConversionReport) -> str:
    text = f"{size_text(report.bytes_in)} to {size_text(report.bytes_out)}"
    if report.bytes_in and report.bytes_passed_through == report.bytes_in:
        return f"{text}, all unchanged"
    if report.bytes_passed_through:
        return f"{text}, {size_text(report.bytes_passed_through)} unchanged, {many(report.records, 'record')} converted"
    return f"{text}, {many(report.records, 'record')} converted"


def _notes(report: ConversionReport, lz4_headers: int) -> list[str]:
    """Return a line for each kind of loss in the target format, and one for repaired headers."""
    lines = []
    if lz4_headers:
        lines.append(f"  repaired: LZ4 header checksums of {many(lz4_headers, 'wrapper')}")
    for name, count in report.lost().items():
        noun = _NOUNS.get(name, "batch")
        counted = many(count, noun) if noun != "batch" else f"{count} batch{'' if count == 1 else 'es'}"
        lines.append(f"  lost: {_LOST[name].format(counted)}")
    return lines
