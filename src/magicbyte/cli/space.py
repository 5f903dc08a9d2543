"""`magicbyte space`: show what fills log directories."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from magicbyte.access.clock import SystemClock
from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.gaps import complain_of_gaps
from magicbyte.cli.output import DamagePolicy, complain, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import many, size_text, table_lines
from magicbyte.engine.printable import time_text
from magicbyte.public.sources import doubts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magicbyte.ask.contents import Contents
    from magicbyte.ask.heavy import HeavyItem, HeavyItems
    from magicbyte.ask.space import Amount, Space, TopicSpace
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.engine.records.layout import Dialect

_BAR: Final = 20  # characters
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_ASCII_ENCODINGS: Final = ("ascii", "latin-1", "iso8859-1")
_AGES: Final = (
    "in the future",
    "under an hour",
    "under a day",
    "under a week",
    "under 30 days",
    "under a year",
    "older",
)
_KINDS: Final = {
    "indexes": "indexes",
    "snapshots": "producer snapshots",
    "checkpoints": "leader epochs, partition.metadata",
    "leftovers": ".deleted, .cleaned and .swap files: a broker deletes them when it starts",
    "orphans": "index files without a .log",
    "others": "files that are not Kafka's",
}
_LABEL: Final = 40  # characters of a key


@click.command(
    cls=Command,
    examples=(
        "magicbyte space tour/logs",
        "magicbyte space tour/logs/kafka-4.3.1 --deep --top 5",
        "magicbyte space tour/logs --older-than 7d --json",
    ),
)
@options.paths_argument
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@click.option("--deep", is_flag=True,
              help="Decode the records: bytes by key, by prefix of keys and by header name.")  # fmt: skip
@click.option("--top", type=click.IntRange(1, 10_000), default=10, show_default=True, metavar="N",
              help="Topics, partitions, keys and headers to show.")  # fmt: skip
@click.option("--older-than", "retention_ms", callback=options.duration, metavar="TIME",
              help="Count what a retention of 7d, 12h or 30m would remove.")  # fmt: skip
@click.option("--delimiters", default=":/.|", show_default=True, metavar="CHARACTERS",
              help="The prefix of a key ends before the first of these.")  # fmt: skip
@click.option("--exact", is_flag=True,
              help="Keep every key and header name in memory, not only the 10,000 heaviest.")  # fmt: skip
@options.format_option
@options.dialect_option
@options.as_option
@options.max_batch_bytes_option
@options.threads_option
def space(
    paths: tuple[str, ...],
    topics: tuple[str, ...],
    deep: bool,
    top: int,
    retention_ms: int | None,
    delimiters: str,
    exact: bool,
    form: str,
    dialect: Dialect | None,
    as_: TopicPartition | None,
    max_batch_bytes: int,
    threads: int,
) -> None:
    """Show what fills log directories: topics, partitions, ages, formats, codecs, sizes of batches, other files.

    Only headers are read. With --deep records are decoded: the heaviest keys, prefixes of keys and header names follow,
    by the bytes of their records before compression. PATH is not changed.

    Exit status: 0 measured, 1 damage, which is reported, 2 wrong use.
    """
    from magicbyte.ask.space import Space, SpaceOptions
    from magicbyte.engine.log.files.directory import survey
    from magicbyte.engine.log.files.partitions import choose

    if not delimiters.isascii():
        raise click.BadParameter(f"{delimiters!r}: expected ASCII characters", param_hint="--delimiters")
    logs = survey(paths, as_, needs_partition=True)
    partitions = choose(logs.partitions, topics)
    complain_of_gaps(logs, topics)
    damage, total = DamagePolicy("skip"), sum(each.size for each in partitions)
    measured = Space(
        SpaceOptions(
            now_ms=SystemClock().now_ms(),
            dialect=dialect,
            retention_ms=retention_ms,
            contents=deep,
            kept=None if exact else 10_000,
            delimiters=delimiters.encode(),
            limit=max_batch_bytes,
            threads=threads,
        ),
        total,
    )
    with progress(total * (1 + deep)) as advance:
        for partition in partitions:
            for doubt in doubts([partition], dialect):
                complain(f"warning: {doubt}")
            measured.add(partition, on_damage=damage, progress=advance)
    if form == "json":
        say_json(measured.to_json(top))
    else:
        say(*_lines(measured, top))
    damage.exit()


# ---- text


def _lines(measured: Space, top: int) -> list[str]:
    topics, partitions = measured.topics(), measured.partitions
    total = sum(each.bytes for each in partitions)
    lines = [
        f"{size_text(total)} in {many(len(partitions), 'partition')} of {many(len(topics), 'topic')}",
        *_section("topics", [_topic_row(each, total) for each in topics[:top]], len(topics) - top, "topic"),
    ]
    largest = sorted(partitions, key=lambda each: -each.bytes)
    rows = [
        [each.partition.name, _bar(each.bytes, total), size_text(each.bytes), _percent(each.bytes, total),
         many(len(each.partition.segments), "segment") + (f"; {each.why_left_out}" if each.why_left_out else "")]
        for each in largest[:top]
    ]  # fmt: skip
    lines += _section("largest partitions", rows, len(partitions) - top, "partition")
    lines += _section("age of segments, by their newest record", _age_rows(measured))
    lines += _section("formats and codecs", _format_rows(measured))
    lines += _section("sizes of batches", _batch_rows(measured))
    beside = [
        [_KINDS[kind], "", size_text(amount.bytes), "", many(amount.files, "file")]
        for kind, amount in measured.beside().items()
        if amount.files
    ]
    lines += _section("beside the logs", beside)
    lines += _notes(measured)
    if measured.contents is not None:
        lines += _content_lines(measured.contents, measured, top)
    return lines


def _section(title: str, rows: list[list[str]], more: int = 0, what: str = "") -> list[str]:
    if not rows:
        return []
    lines = ["", title, *(f"  {line}".rstrip() for line in table_lines(rows, {0, 1, len(rows[0]) - 1}))]
    return [*lines, f"  and {many(more, what)} more"] if more > 0 else lines


def _topic_row(topic: TopicSpace, total: int) -> list[str]:
    tally = topic.tally
    codecs = sorted(tally.formats.items(), key=lambda each: -each[1].bytes)
    facts = [", ".join(f"v{magic} {codec}" for (magic, codec), _ in codecs[:2])] if codecs else ["no entries"]
    if tally.records:
        facts.append(f"{many(tally.records, 'record')} in {_batches(tally.batches)}")
    if tally.max_timestamp is not None:
        facts.append(f"newest {time_text(tally.max_timestamp)[:10]}")
    return [
        topic.name,
        _bar(topic.bytes, total),
        size_text(topic.bytes),
        _percent(topic.bytes, total),
        "; ".join(facts),
    ]


def _age_rows(measured: Space) -> list[list[str]]:
    found = [*zip(_AGES, measured.ages, strict=True), ("without timestamps", measured.undated)]
    return _amount_rows([(name, amount, "") for name, amount in found])


def _format_rows(measured: Space) -> list[list[str]]:
    from magicbyte.ask.space import Amount

    rows = []
    for (magic, codec), count in sorted(measured.whole.formats.items(), key=lambda each: -each[1].bytes):
        records = "records inside wrappers unknown without --deep"
        if count.records is not None:
            records = many(count.records, "record")
        rows.append((f"v{magic} {codec}", Amount(count.batches, count.bytes), records))
    return _amount_rows(rows)


def _batch_rows(measured: Space) -> list[list[str]]:
    from magicbyte.ask.space import BATCH_SIZES

    names = [f"under {size_text(size)}" for size in BATCH_SIZES] + [f"{size_text(BATCH_SIZES[-1])} and more"]
    rows = []
    for name, amount in zip(names, measured.batch_sizes, strict=True):
        share = 100 * amount.header_bytes / max(amount.bytes, 1)
        rows.append((name, amount, f"{share:.0f}% of the bytes are batch headers" if share >= 1 else ""))
    return _amount_rows(rows)


def _amount_rows(rows: Iterable[tuple[str, Amount, str]]) -> list[list[str]]:
    chosen = [(name, amount, note) for name, amount, note in rows if amount.batches]
    total = sum(amount.bytes for _, amount, _ in chosen)
    return [
        [name, _bar(amount.bytes, total), size_text(amount.bytes), _percent(amount.bytes, total),
         "; ".join(filter(None, [_batches(amount.batches), note]))]
        for name, amount, note in chosen
    ]  # fmt: skip


def _notes(measured: Space) -> list[str]:
    lines = []
    past = measured.past_retention
    if past is not None:
        lines += ["", f"older than the retention: {size_text(past.bytes)} in {_batches(past.batches)}"]
    held = [(each, one) for each in measured.partitions for one in each.held_back]
    if held:
        lines += ["", "held back from cleaning by open transactions"]
        lines += [
            f"  {each.partition.name}: producer {one.transaction.producer_id} from offset "
            f"{one.transaction.first_offset}, last written {time_text(one.transaction.last_timestamp)}: "
            f"{size_text(one.bytes)}"
            for each, one in held
        ]
    return lines


def _content_lines(contents: Contents, measured: Space, top: int) -> list[str]:
    rows = []
    for topic in measured.topics()[:top]:
        sums = contents.topics[topic.name]
        log_bytes = sum(each.log_bytes for each in topic.partitions)
        rows.append(
            [
                topic.name,
                "",
                size_text(sums.bytes),
                f"{sums.bytes / max(log_bytes, 1):.1f} x",
                f"{many(sums.records, 'record')}; keys {_percent(sums.key_bytes, sums.bytes)}, values "
                f"{_percent(sums.value_bytes, sums.bytes)}, headers {_percent(sums.header_bytes, sums.bytes)}; "
                f"{many(sums.tombstones, 'tombstone')}, {sums.keyless} without a key",
            ]
        )
    lines = _section("records before compression, and as a multiple of the log", rows)
    for title, items, unit in (
        ("heaviest keys, by bytes of their records", contents.keys, "record"),
        ("heaviest prefixes of keys", contents.prefixes, "record"),
        ("heaviest header names, by bytes of name and value", contents.headers, "header"),
    ):
        lines += _section(title, [_heavy_row(each, items, unit) for each in items.heaviest(top)])
        if items.missed_bytes and len(items):
            lines.append(f"  each may have up to {size_text(items.missed_bytes)} more (--exact counts all)")
    return lines


def _heavy_row(item: HeavyItem, items: HeavyItems, unit: str) -> list[str]:
    label = item.label
    if label.content is None:
        text = "(no key)"
    else:
        text = label.content.decode(errors="backslashreplace")
        text = text or "(empty)"
        text = text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"
    return [
        text,
        _bar(item.bytes, items.total_bytes),
        size_text(item.bytes),
        _percent(item.bytes, items.total_bytes),
        f"{many(item.count, unit)} of {label.topic}",
    ]


def _batches(count: int) -> str:
    return f"{count} batch{'' if count == 1 else 'es'}"


def _bar(part: int, whole: int) -> str:
    eighths = round(8 * _BAR * part / whole) if whole else 0
    if (sys.stdout.encoding or "").lower() in _ASCII_ENCODINGS:
        return "#" * (eighths // 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "0.0%"
