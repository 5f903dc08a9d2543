"""`magicbyte inventory`: count the content of logs."""

from __future__ import annotations

import contextlib
import shutil
import sys
from typing import TYPE_CHECKING, Final

import click

from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.brokers import sources_at
from magicbyte.cli.client_settings import client_options
from magicbyte.cli.output import DamagePolicy, bad, complain, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import many, size_text
from magicbyte.engine.printable import time_text
from magicbyte.public.sources import doubts, is_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magicbyte.engine.log.files.directory import DirectoryFiles
    from magicbyte.engine.log.files.missing import Missing
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.tools.offline.inventory import FetchedInventory, PartitionInventory
    from magicbyte.tools.offline.tally import FormatCount, Tally

    Inventory = PartitionInventory | FetchedInventory

_NAME: Final = 34  # characters of a partition's name in a table without a terminal
_SPAN: Final = 19  # characters of its offsets
_OTHERS: Final = 51  # characters of all other columns


@click.command(
    cls=Command,
    examples=(
        "magicbyte inventory tour/logs",
        "magicbyte inventory tour/logs/kafka-4.3.1 --deep --json",
    ),
)
@options.paths_argument
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@click.option("--deep", is_flag=True, help="Decode every record and verify every checksum, too.")
@options.format_option
@options.dialect_option
@options.as_option
@options.max_batch_bytes_option
@options.threads_option
@client_options
def inventory(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    as_: TopicPartition | None,
    deep: bool,
    form: str,
    dialect: Dialect | None,
    max_batch_bytes: int,
    threads: int,
) -> None:
    """Show what logs contain: formats, codecs, offsets, times.

    Also gaps between batches, transactions, the two LZ4 header checksums, leftover files of a broker, and damage to
    headers and index files (exit status 1). Without --deep nothing is decompressed: unknown values are "?" in the table
    and null in JSON. A PATH may also be a topic of a running cluster, or one partition of it:
    kafka://HOST:PORT/TOPIC[/N]. It is fetched in full, and not decompressed.
    """
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.log.files.missing import CheckpointedOffsets, missing_partitions
    from magicbyte.engine.log.files.partitions import choose
    from magicbyte.tools.offline.inventory import add_up, report_of, take_fetched_inventory, take_inventory

    if deep and any(map(is_topic, paths)):
        raise click.UsageError("--deep is for logs on disk: of a topic in a cluster only headers are read")
    damage = DamagePolicy("skip")
    inventories: list[Inventory] = []
    directories: list[DirectoryFiles] = []
    known = CheckpointedOffsets()
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(sources_at(paths, as_, dialect, directories))
        partitions = choose(found, topics)
        total = sum(each.size for each in partitions if isinstance(each, PartitionDirectory))
        advance = stack.enter_context(progress(total))
        for partition in partitions:
            if not isinstance(partition, PartitionDirectory):
                inventories.append(take_fetched_inventory(partition, partition.dialect))
                continue
            for doubt in doubts([partition], dialect):
                complain(f"warning: {doubt}")
            inventories.append(
                take_inventory(
                    partition,
                    dialect=dialect,
                    deep=deep,
                    limit=max_batch_bytes,
                    threads=threads,
                    expected_bytes=total,
                    known=known,
                    on_damage=damage,
                    progress=advance,
                )
            )
    whole = add_up(each.tally for each in inventories)
    folders = [each for each in found if isinstance(each, PartitionDirectory)]
    missing = [each for at in directories for each in missing_partitions(at, folders, known, topics)]
    if form == "json":
        say_json(report_of(inventories, whole, missing))
    else:
        say(*_text(inventories, whole, missing))
    damage.missing([*(each for counted in inventories for each in counted.missing), *missing])
    damage.exit()


# ---- text


def _columns() -> int:
    """Return the width of the table: that of the terminal; elsewhere enough for names of 34 characters."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _NAME + _OTHERS + _SPAN


def _text(inventories: list[Inventory], whole: Tally, missing: Sequence[Missing]) -> list[str]:
    """Return a table of the partitions, with notes on anything unusual, and a table of the formats."""
    spans = [
        f"{_known(each.tally.first_offset)}..{_known(each.tally.last_offset)}" if each.tally.batches else "-"
        for each in inventories
    ]
    columns, longest = _columns(), max(map(len, ["offsets", *spans]))
    span_width = max(longest, min(_SPAN, columns - _OTHERS - _NAME))  # only as wide as needed on a narrow terminal
    room = max(columns - _OTHERS - span_width, len("partition"))
    width = min(max(len("partition"), *(len(each.partition.name) for each in inventories)), room)
    lines = [f"{'partition':<{width}} segments {'bytes':>10} {'records':>11}  {'offsets':<{span_width}} newest"]
    for counted, offsets in zip(inventories, spans, strict=True):
        tally, partition, folder = counted.tally, counted.partition, counted.folder
        name = partition.name if len(partition.name) <= width else "…" + partition.name[1 - width :]
        newest = "-" if tally.max_timestamp is None else time_text(tally.max_timestamp)[:16]
        lines.append(
            f"{name:<{width}} {'-' if folder is None else len(folder.segments):>8} {size_text(counted.size):>10} "
            f"{_known(tally.records):>11}"
            f"  {offsets:<{span_width}} {newest}"
        )
        lines += [f"    {note}" for note in _notes(counted)]
        lines += [bad(f"    damaged: {what}") for what in _damage(counted)]
        lines += [_missing_line(each) for each in counted.missing]
    lines += [_missing_line(each) for each in missing]
    size = sum(each.size for each in inventories)
    segments = sum(len(folder.segments) for folder in (each.folder for each in inventories) if folder is not None)
    lines += [
        "",
        f"total: {many(len(inventories), 'partition')}, {many(segments, 'segment')}, {size_text(size)}, "
        f"{_known(whole.records)} records",
        *_span(whole),
    ]
    lines += [f"    {note}" for note in _tally_notes(whole)]
    lines += ["", f"format     codec      {'batches':>11} {'records':>11} {'bytes':>10}  share"]
    for (magic, codec), count in sorted(whole.formats.items()):
        share = 100 * count.bytes / max(whole.bytes, 1)
        lines.append(
            f"magic {magic}    {codec:<10} {count.batches:>11} {_known(count.records):>11} "
            f"{size_text(count.bytes):>10} {share:>5.1f}%"
        )
    return lines


def _missing_line(missing: Missing) -> str:
    line = f"    missing: {missing}"
    return bad(line) if missing.may_have_records else line


def _notes(counted: Inventory) -> list[str]:
    """Return the notes on one partition."""
    from magicbyte.engine.log.files.left_out import QUORUMS_OWN, is_quorums_own

    tally, folder = counted.tally, counted.folder
    notes = [", ".join(_share(*each, tally) for each in sorted(tally.formats.items()))] if tally.formats else []
    notes += _tally_notes(tally)
    notes += [
        f"open transaction of producer {each.producer_id}, epoch {each.producer_epoch}, from offset "
        f"{each.first_offset}; last written {time_text(each.last_timestamp)}"
        for each in tally.open_transactions
    ]
    if counted.log_start_offset > (tally.first_offset or 0):
        notes.append(f"starts at offset {counted.log_start_offset}: records before it are deleted")
    if folder is not None and folder.state.value != "current":
        notes.append(f"the folder's name says: {folder.state.value}")
    if is_quorums_own(counted.partition.topic):
        notes.append(QUORUMS_OWN)
    if folder is not None and folder.leftovers:
        notes.append(f"left behind by a broker: {_names([entry.name for entry in folder.leftovers])}")
    if folder is not None and folder.orphans:
        notes.append(f"without a .log: {_names([entry.name for entry in folder.orphans])}")
    return notes


def _damage(found: Inventory) -> list[str]:
    """Return the damage of one partition."""
    indexes = [f"{(error.path or '').rpartition('/')[2]}: {error.what}" for error in found.index_damage]
    logs = [f"{(error.path or '').rpartition('/')[2]}, position {error.position}" for error in found.damage]
    return indexes + logs


def _tally_notes(tally: Tally) -> list[str]:
    notes = []
    if tally.deep is not None:
        deep = tally.deep
        notes.append(
            f"{deep.with_key} with a key, {deep.without_key} without, {many(deep.tombstones, 'tombstone')}, "
            f"{deep.with_headers} with headers"
        )
    lz4 = tally.lz4_headers
    if lz4.broken or lz4.other:
        others = f", {lz4.other} neither" if lz4.other else ""
        notes.append(f"LZ4 header checksums: {lz4.correct} correct, {lz4.broken} broken{others}")
    if tally.holes is not None and tally.holes.count:
        notes.append(f"{many(tally.holes.count, 'hole')} between batches, {many(tally.holes.offsets, 'offset')}")
    if tally.committed or tally.aborted or tally.open_transactions:
        ends = f"{tally.committed} committed, {tally.aborted} aborted, {len(tally.open_transactions)} open"
        notes.append(f"transactions: {ends}")
    return notes


def _share(name: tuple[int, str], count: FormatCount, tally: Tally) -> str:
    magic, codec = name
    return f"magic {magic} {codec} {100 * count.bytes / max(tally.bytes, 1):.0f}%"


def _span(whole: Tally) -> list[str]:
    if whole.max_timestamp is None:
        return []
    if whole.min_timestamp is not None:
        first = time_text(whole.min_timestamp)
    else:
        assert whole.min_batch_timestamp is not None, "there is one wherever there is a largest"
        first = f"about {time_text(whole.min_batch_timestamp)}"
    return [f"    from {first} to {time_text(whole.max_timestamp)}"]


def _names(names: list[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _known(number: int | None) -> str:
    return "?" if number is None else str(number)
