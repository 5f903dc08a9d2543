"""`magicbyte space`: show what fills log directories."""

from __future__ import annotations

import sys
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from magicbyte.access.clock import SystemClock
from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.gaps import complain_of_gaps
from magicbyte.cli.output import DamagePolicy, complain, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import many, size_text, table_lines
from magicbyte.engine.printable import printable, time_text
from magicbyte.public.sources import doubts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

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
        "magicbyte space tour/logs --older-than 7d --html space.html",
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
@click.option("--html", "page", type=options.OutputPath(), metavar="FILE", help="Also write an HTML page.")
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
    page: Path | None,
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
    from magicbyte.engine.log.files.outputs import inputs_of, put_whole, refuse_overlap
    from magicbyte.engine.log.files.partitions import choose

    if not delimiters.isascii():
        raise click.BadParameter(f"{delimiters!r}: expected ASCII characters", param_hint="--delimiters")
    logs = survey(paths, as_, needs_partition=True)
    partitions = choose(logs.partitions, topics)
    if page is not None:
        refuse_overlap(page, inputs_of(paths, partitions))
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
    if page is not None:
        put_whole(page, html_page(measured, top).encode())
    if form == "json":
        say_json(measured.to_json(top))
    else:
        say(*_lines(measured, top))
    damage.exit()


# ---- sections


class SpaceRow(NamedTuple):
    """A line of a section: what it is, its bytes, the sum of which they are a share, and a note.

    `whole` None: no share. `share`: another text in place of a percentage.
    """

    label: str
    bytes: int
    whole: int | None
    note: str
    share: str = ""

    @property
    def share_text(self) -> str:
        """The share of the whole."""
        return self.share if self.whole is None else _percent(self.bytes, self.whole)


class Section(NamedTuple):
    """A titled table. `remark`: a line below it, such as how many rows are not shown."""

    title: str
    rows: list[SpaceRow]
    remark: str = ""


def sections_of(measured: Space, top: int) -> list[Section]:
    """Return the report as tables, without those that have no rows."""
    topics, partitions = measured.topics(), measured.partitions
    total = sum(each.bytes for each in partitions)
    largest = sorted(partitions, key=lambda each: -each.bytes)
    folders = [
        SpaceRow(
            each.partition.name,
            each.bytes,
            total,
            "; ".join(filter(None, [many(len(each.partition.segments), "segment"), each.why_left_out])),
        )
        for each in largest[:top]
    ]
    sections = [
        Section("topics", [_topic_row(each, total) for each in topics[:top]], _more(len(topics) - top, "topic")),
        Section("largest partitions", folders, _more(len(partitions) - top, "partition")),
        Section("age of segments, by their newest record", _age_rows(measured)),
        Section("formats and codecs", _format_rows(measured)),
        Section("sizes of batches", _batch_rows(measured)),
        Section("beside the logs", [
            SpaceRow(_KINDS[kind], amount.bytes, None, many(amount.files, "file"))
            for kind, amount in measured.beside().items() if amount.files
        ]),
        *_notes(measured),
        *_content_sections(measured, top),
    ]  # fmt: skip
    return [each for each in sections if each.rows]


def _more(count: int, what: str) -> str:
    return f"and {many(count, what)} more" if count > 0 else ""


def _topic_row(topic: TopicSpace, total: int) -> SpaceRow:
    tally = topic.tally
    codecs = sorted(tally.formats.items(), key=lambda each: -each[1].bytes)
    facts = [", ".join(f"v{magic} {codec}" for (magic, codec), _ in codecs[:2])] if codecs else ["no entries"]
    if tally.records:
        facts.append(f"{many(tally.records, 'record')} in {_batches(tally.batches)}")
    if tally.max_timestamp is not None:
        facts.append(f"newest {time_text(tally.max_timestamp)[:10]}")
    return SpaceRow(topic.name, topic.bytes, total, "; ".join(facts))


def _age_rows(measured: Space) -> list[SpaceRow]:
    amounts = [*zip(_AGES, measured.ages, strict=True), ("without timestamps", measured.undated)]
    return _amount_rows([(name, amount, "") for name, amount in amounts])


def _format_rows(measured: Space) -> list[SpaceRow]:
    from magicbyte.ask.space import Amount

    rows = []
    for (magic, codec), count in sorted(measured.whole.formats.items(), key=lambda each: -each[1].bytes):
        records = "records inside wrappers are not in headers"
        if count.records is not None:
            records = many(count.records, "record")
        rows.append((f"v{magic} {codec}", Amount(count.batches, count.bytes), records))
    return _amount_rows(rows)


def _batch_rows(measured: Space) -> list[SpaceRow]:
    from magicbyte.ask.space import BATCH_SIZES

    names = [f"under {size_text(size)}" for size in BATCH_SIZES] + [f"{size_text(BATCH_SIZES[-1])} and more"]
    rows = []
    for name, amount in zip(names, measured.batch_sizes, strict=True):
        share = 100 * amount.header_bytes / max(amount.bytes, 1)
        rows.append((name, amount, f"{share:.0f}% of the bytes are batch headers" if share >= 1 else ""))
    return _amount_rows(rows)


def _amount_rows(rows: Iterable[tuple[str, Amount, str]]) -> list[SpaceRow]:
    chosen = [(name, amount, note) for name, amount, note in rows if amount.batches]
    total = sum(amount.bytes for _, amount, _ in chosen)
    return [
        SpaceRow(name, amount.bytes, total, "; ".join(filter(None, [_batches(amount.batches), note])))
        for name, amount, note in chosen
    ]


def _notes(measured: Space) -> list[Section]:
    sections, total = [], sum(each.log_bytes for each in measured.partitions)
    past = measured.past_retention
    if past is not None:
        row = SpaceRow("batches whose records are all older", past.bytes, total, _batches(past.batches))
        sections.append(Section("older than the retention", [row]))
    held_back = [
        SpaceRow(
            folder.partition.name,
            held.bytes,
            total,
            f"producer {held.transaction.producer_id} from offset {held.transaction.first_offset}, last written "
            f"{time_text(held.transaction.last_timestamp)}",
        )
        for folder in measured.partitions
        for held in folder.held_back
    ]
    return [*sections, Section("held back from cleaning by open transactions", held_back)]


def _content_sections(measured: Space, top: int) -> list[Section]:
    contents = measured.contents
    if contents is None:
        return []
    rows, overwritten = [], []
    for topic in measured.topics()[:top]:
        sums = contents.topics[topic.name]
        log_bytes = sum(each.log_bytes for each in topic.partitions)
        note = (
            f"{many(sums.records, 'record')}; keys {_percent(sums.key_bytes, sums.bytes)}, values "
            f"{_percent(sums.value_bytes, sums.bytes)}, headers {_percent(sums.header_bytes, sums.bytes)}; "
            f"{many(sums.tombstones, 'tombstone')}, {sums.keyless} without a key"
        )
        rows.append(SpaceRow(topic.name, sums.bytes, None, note, f"{sums.bytes / max(log_bytes, 1):.1f} x"))
        if sums.overwritten_records:
            note = many(sums.overwritten_records, "record") + (" at least" if sums.is_overwritten_partial else "")
            overwritten.append(SpaceRow(topic.name, sums.overwritten_bytes, sums.bytes, note))
    return [
        Section("records before compression, and as a multiple of the log", rows),
        Section("overwritten by a later record of the same key: compaction would free it", overwritten),
        *(
            Section(title, [_heavy_row(each, items, unit) for each in items.heaviest(top)], _missed(items))
            for title, items, unit in (
                ("heaviest keys, by bytes of their records", contents.keys, "record"),
                ("heaviest prefixes of keys", contents.prefixes, "record"),
                ("heaviest header names, by bytes of name and value", contents.headers, "header"),
            )
        ),
    ]


def _missed(items: HeavyItems) -> str:
    return (
        f"each may have up to {size_text(items.missed_bytes)} more (--exact counts all)" if items.missed_bytes else ""
    )


def _heavy_row(item: HeavyItem, items: HeavyItems, unit: str) -> SpaceRow:
    label = item.label
    if label.content is None:
        text = "(no key)"
    else:
        text = label.content.decode(errors="backslashreplace") or "(empty)"
        text = text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"
    return SpaceRow(text, item.bytes, items.total_bytes, f"{many(item.count, unit)} of {label.topic}")


# ---- text


def _lines(measured: Space, top: int) -> list[str]:
    lines = [_title(measured)]
    for section in sections_of(measured, top):
        cells = [
            [row.label, _bar(row.bytes, row.whole or 0), size_text(row.bytes), row.share_text, row.note]
            for row in section.rows
        ]
        lines += ["", section.title, *(f"  {line}".rstrip() for line in table_lines(cells, {0, 1, 4}))]
        lines += [f"  {section.remark}"] * bool(section.remark)
    return lines


def _title(measured: Space) -> str:
    total = sum(each.bytes for each in measured.partitions)
    partitions = many(len(measured.partitions), "partition")
    return f"{size_text(total)} in {partitions} of {many(len(measured.topics()), 'topic')}"


def _batches(count: int) -> str:
    return f"{count} batch{'' if count == 1 else 'es'}"


def _bar(part: int, whole: int) -> str:
    eighths = round(8 * _BAR * part / whole) if whole else 0
    if (sys.stdout.encoding or "").lower() in _ASCII_ENCODINGS:
        return "#" * (eighths // 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "0.0%"


# ---- HTML

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1b2733}"
    "h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}"
    "td,th{padding:.25rem .8rem .25rem 0;text-align:left;border-bottom:1px solid #dde3ea;vertical-align:top}"
    "td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}td.l{overflow-wrap:anywhere}"
    ".bar{width:12rem}.bar span{display:block;height:1rem;background:#3d7ea6;min-width:1px}"
    "@media(prefers-color-scheme:dark){body{background:#12181f;color:#dfe7ef}td,th{border-color:#2b3744}}"
)


def html_page(measured: Space, top: int) -> str:
    """Return the report as one HTML file, without scripts or external links. Text from logs is escaped."""
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>What fills the logs</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{_escaped(_title(measured))}</h1>"
    ]
    for section in sections_of(measured, top):
        rows = "\n".join(map(_html_row, section.rows))
        parts.append(
            f"<h2>{_escaped(section.title)}</h2>\n<table><thead><tr><th>Name</th><th>Share</th>"
            f'<th class="n">Bytes</th><th class="n">%</th><th>Note</th></tr></thead><tbody>\n{rows}\n</tbody></table>'
        )
        parts += [f"<p>{_escaped(section.remark)}</p>"] * bool(section.remark)
    return "\n".join([*parts, "</body></html>\n"])


def _html_row(row: SpaceRow) -> str:
    width = 100 * row.bytes / row.whole if row.whole else 0
    bar = f'<span style="width:{width:.1f}%"></span>' if row.whole else ""
    return (
        f'<tr><td class="l">{_escaped(row.label)}</td><td class="bar">{bar}</td>'
        f'<td class="n">{size_text(row.bytes)}</td><td class="n">{_escaped(row.share_text)}</td>'
        f"<td>{_escaped(row.note)}</td></tr>"
    )


def _escaped(text: str) -> str:
    return escape(printable(text))
