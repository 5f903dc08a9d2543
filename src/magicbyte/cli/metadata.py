"""`magicbyte metadata`: show the metadata of a KRaft node, their history and differences; export those of a log
directory to a ZooKeeper, or import them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from magicbyte.cli.base import CommandGroup
from magicbyte.cli.brokers import parsed
from magicbyte.cli.cat import parse_time
from magicbyte.cli.metadata_format import format_
from magicbyte.cli.metadata_to_kraft import export_to, repair_to, to_kraft_options
from magicbyte.cli.options import OutputPath, form_of, format_option, json_option
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.render import many, table_lines
from magicbyte.engine.addresses import zookeeper_addresses
from magicbyte.engine.extras import require
from magicbyte.engine.printable import printable, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magicbyte.engine.cluster.events import Event
    from magicbyte.server.stores.znodes.transfer import Transferred
    from magicbyte.tools.offline.quorum import DescribedCluster, PastEvent

KINDS: Final = (
    "topic", "partition", "settings", "broker", "controller", "feature", "quota", "acl", "scram", "token",
    "producer-ids", "cluster",
)  # fmt: skip
"""The kinds of changes in the metadata log of a KRaft node: `engine/cluster/events.py`."""
_IN_SUBJECT: Final = ("partition", "resourceType", "resourceName")
OURS: Final = frozenset(
    {
        "enriched.append.mode",
        "log.flush.policy",
        "log.head.truncation",
        "max.decompressed.message.bytes",
        "mirror.identical",
    }
)
"""Settings of topics that Kafka's brokers do not support."""


@click.group(cls=CommandGroup)
def metadata() -> None:
    """Show the metadata of a KRaft node, format a directory for a new one; copy a stopped broker's metadata to a
    ZooKeeper, or back, so that a broker of the other kind takes over.
    """


metadata.add_command(format_, "format")


@metadata.command(
    "show",
    examples=(
        "magicbyte metadata show kraft-combined-logs",
        "magicbyte metadata show kraft-combined-logs --topic orders --at 4200",
        "magicbyte metadata show zookeeper-data",
    ),
)
@click.argument("path", metavar="PATH")
@click.option("--at", type=click.IntRange(min=0), metavar="OFFSET",
              help="As after this offset of the metadata log. Default: its end.")  # fmt: skip
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic. Can be repeated.")
@format_option
def show(path: str, at: int | None, topics: tuple[str, ...], form: str) -> None:
    """Show the cluster that the metadata log of a stopped KRaft node, or of a copy of one, describes.

    PATH is a log directory with __cluster_metadata-0, or that folder. Reads the newest complete snapshot and the log
    after it. PATH may also be the log directory of a stopped broker of magicbyte, zookeeper://HOST:PORT[/PATH], or the
    data directory of a stopped ZooKeeper; DIR@/PATH if it has several clusters. Nothing is changed. Credentials and
    tokens are named, not shown.
    """
    from magicbyte.tools.offline.metadata_sources import read_metadata

    source = read_metadata(path, at)
    missing = [name for name in topics if name not in source.image.topics]
    if missing:
        place = "" if source.end is None else f" at offset {source.end - 1}"
        raise click.ClickException(f"{source.path}: no topic {', '.join(missing)}{place}")
    for note in source.notes:
        complain(f"note: {note}")
    described = source.to_json(topics or None)
    if form == "json":
        say_json(described)
    else:
        say(*_lines(described, only_topics=bool(topics)))


@metadata.command(
    "history",
    examples=(
        "magicbyte metadata history kraft-combined-logs --topic orders",
        "magicbyte metadata history kraft-combined-logs --kind broker --from 4200",
    ),
)
@click.argument("path", metavar="PATH")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC",
              help="Only this topic, with its partitions, settings and ACLs. Can be repeated.")  # fmt: skip
@click.option("--broker", "brokers", type=click.IntRange(min=0), multiple=True, metavar="ID",
              help="Only this broker: its registration and settings. Can be repeated.")  # fmt: skip
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True,
              help="Only changes of this kind. Can be repeated.")  # fmt: skip
@click.option("--from", "first", type=click.IntRange(min=0), metavar="OFFSET", help="Begin at this offset.")
@click.option("--to", "end", type=click.IntRange(min=0), metavar="OFFSET", help="End before this offset.")
@click.option("--since", callback=parse_time, metavar="TIME",
              help="Only changes of this time or later: ISO 8601 (default UTC), or ms.")  # fmt: skip
@click.option("--until", callback=parse_time, metavar="TIME", help="Only changes of an earlier time.")
@json_option("jsonl")
@click.option("--format", "form", type=click.Choice(["text", "jsonl"]), default="text", show_default=True,
              callback=form_of)  # fmt: skip
def history(path: str, form: str, **wanted: Any) -> None:
    """Show what changed in the cluster of a stopped KRaft node, or of a copy of one: who led a partition when, which
    replicas were in sync, which settings were changed, when a broker was fenced.

    PATH is a log directory with __cluster_metadata-0, or that folder. The history goes as far back as its log. Nothing
    is changed. Credentials and tokens are named, not shown.
    """
    from magicbyte.tools.offline.quorum import Note, quorum_folder, read_history

    notes = list[Note]()
    chosen = _Chosen(**wanted)
    for past in read_history(quorum_folder(path), notes):
        if not chosen.has(past):
            continue
        if form == "jsonl":
            say_json(past.to_json(), indent=None)
        else:
            say(f"{time_text(past.timestamp)}  {past.offset:>8}  {_event_line(past.event)}")
    for note in notes:
        complain(f"note: {note}")


@metadata.command(
    "diff",
    examples=(
        "magicbyte metadata diff kraft-combined-logs@4200 kraft-combined-logs",
        "magicbyte metadata diff node-1/metadata node-2/metadata",
    ),
)
@click.argument("old", metavar="PATH[@OFFSET]")
@click.argument("new", metavar="PATH[@OFFSET]")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic. Can be repeated.")
@format_option
def diff(old: str, new: str, topics: tuple[str, ...], form: str) -> None:
    """Show how two clusters differ: those of two metadata logs, or that of one log at two offsets.

    PATH is as for `metadata show`; with @OFFSET as after this offset of a metadata log. Status 1 if they differ.
    """
    from magicbyte.tools.offline.quorum import ClusterDifference

    compared = ClusterDifference.of(image_of(old), image_of(new), topics or None)
    for each in (compared.old, compared.new):
        for note in each.notes:
            complain(f"note: {each.path}: {note}")
    if form == "json":
        say_json(compared.to_json())
    else:
        say(*map(_event_line, compared.events), many(len(compared.events), "difference"))
    if compared.events:
        sys.exit(1)


@metadata.command(
    "check",
    examples=(
        "magicbyte metadata check kraft-combined-logs",
        "magicbyte metadata check disk-1/kafka disk-2/kafka",
        "magicbyte metadata check kraft-combined-logs --repair --out repaired",
    ),
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--repair", is_flag=True, help="Write a directory from what can be read of the one at PATH, on which the "
              "node starts, and say what was dropped.")  # fmt: skip
@click.option("--out", type=OutputPath(folder=True), metavar="OUT", help="Of --repair: the directory, a new name.")
@click.option("--node-id", type=click.IntRange(0), metavar="N", help="Of --repair: if no meta.properties says it.")
@click.option("--cluster-id", metavar="ID", help="Of --repair: another cluster id, or one that no meta.properties "
              "says.")  # fmt: skip
@format_option
def check(
    paths: tuple[str, ...], repair: bool, out: Path | None, node_id: int | None, cluster_id: str | None, form: str
) -> None:
    """Say what Kafka would do with the log directories of a stopped KRaft node at its next start, or of a copy of them:
    whether it starts, and which folders it would rename to -stray or make empty.

    Give all log directories of one node; --repair makes one of them. Nothing is changed, and logs of topics are not
    read. Status 1 if something keeps the node from starting, or hides a folder; with --repair if anything was dropped.
    """
    from magicbyte.engine.log.files.outputs import refuse_overlap

    if repair != (out is not None):
        raise click.UsageError("expected --repair with --out OUT, or neither")
    if out is not None:
        if form != "text":
            raise click.UsageError("--repair: expected no --format")
        refuse_overlap(out, paths)
        repair_to(paths, out, node_id, cluster_id)
        return
    from magicbyte.cli.verify import finding_lines
    from magicbyte.tools.offline.quorum_check import check_node

    checked = check_node(paths)
    if form == "json":
        say_json(checked.to_json())
    else:
        for finding in checked.findings:
            say(*finding_lines(finding))
        sound = "nothing here keeps the node from starting or hides a folder; `magicbyte verify` checks the logs"
        verdict = sound if checked.is_sound else "see above"
        say(f"{many(len(checked.findings), 'finding')}: {verdict}")
    if not checked.is_sound:
        sys.exit(1)


def image_of(given: str) -> DescribedCluster:
    """Return the cluster at PATH[@OFFSET]."""
    from magicbyte.tools.offline.metadata_sources import read_metadata

    path, _, offset = given.rpartition("@")
    if path and offset.isdigit() and not Path(given).exists():
        return read_metadata(path, int(offset))
    return read_metadata(given)


class _Chosen(NamedTuple):
    """The changes to show: by topic or broker, kind, offset and time."""

    topics: Collection[str]
    brokers: Collection[int]
    kinds: Collection[str]
    first: int | None
    end: int | None
    since: int | None
    until: int | None

    def has(self, past: PastEvent) -> bool:
        event, offset, time = past.event, past.offset, past.timestamp
        is_named = event.topic in self.topics or event.broker in self.brokers
        return (
            (is_named or not (self.topics or self.brokers))
            and (not self.kinds or event.kind in self.kinds)
            and (self.first is None or offset >= self.first)
            and (self.end is None or offset < self.end)
            and (self.since is None or time >= self.since)
            and (self.until is None or time < self.until)
        )


def _event_line(event: Event) -> str:
    """Return a change in one line: what is new or gone, or which values are others."""
    before, after = event.before, event.after
    if after is None:
        return f"{event.subject}: removed"
    if before is None:
        shown = {name: each for name, each in after.items() if name not in _IN_SUBJECT and not _is_empty(each)}
        return f"{event.subject}: new: {', '.join(f'{name} {_value(each)}' for name, each in shown.items())}"
    changed = (f"{name} {_value(before[name])} -> {_value(after[name])}" for name in after)
    return f"{event.subject}: {', '.join(changed)}"


def _is_empty(value: object) -> bool:
    return value is None or value is False or value in ([], {})


def _value(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case list():
            return ",".join(map(str, value)) or "none"
        case dict():
            return " ".join(f"{name}={each}" for name, each in value.items()) or "none"
    return str(value)


def _lines(described: dict[str, Any], *, only_topics: bool) -> list[str]:
    """Return the text of what `show` found."""
    lines = [described["path"]]
    if described["endOffset"]:
        lines[0] += f": up to offset {described['endOffset'] - 1}"
    if described["snapshot"] is not None:
        lines[0] += f", from {described['snapshot']}"
    if not only_topics:
        features = [f"{name} {level}" for name, level in described["features"].items()]
        lines += ["features: " + (", ".join(features) or "none"), *_nodes(described)]
    rows = [["topic", "id", "partition", "leader", "epoch", "replicas", "in sync", "eligible"]]
    for topic in described["topics"]:
        for each in topic["partitions"]:
            lists = (each["replicas"], each.get("isr", ()), each.get("eligibleLeaderReplicas", ()))
            state = [str(each["partition"]), str(each.get("leader", "-")), str(each.get("leaderEpoch", "-"))]
            rows.append(
                [topic["name"], topic["id"] or "-", *state, *(",".join(map(str, part)) or "-" for part in lists)]
            )
    lines += ["", *table_lines(rows, left={0, 1, 5, 6, 7})]
    lines += _section("settings", (
        [f"{each['type']} {each['name'] or '(default)'}", *_pairs(each["settings"])] for each in described["settings"]
    ))  # fmt: skip
    if not only_topics:
        lines += _section("quotas", (
            [*_pairs({kind: name or "(default)" for kind, name in each["entity"].items()}), *_pairs(each["limits"])]
            for each in described["quotas"]
        ))  # fmt: skip
        lines += _section("ACLs", (
            [each["principal"], each["permission"], each["operation"], each["resourceType"], each["resourceName"],
             f"({each['patternType']})", "from", each["host"]] for each in described["acls"]
        ))  # fmt: skip
        users = described["scramUsers"].items()
        lines += _section("SCRAM users", ([user, *mechanisms] for user, mechanisms in users))
        lines += _section("delegation tokens", ([each] for each in described["delegationTokens"]))
    return lines


def _nodes(described: dict[str, Any]) -> list[str]:
    rows = [["node", "role", "endpoints", "rack", "state"]]
    for each in described["brokers"]:
        named = (("isFenced", "fenced"), ("isInControlledShutdown", "stopping"))
        states = [text for name, text in named if each.get(name)]
        rows.append(
            [str(each["id"]), "broker", ",".join(each["endpoints"]), each["rack"] or "-", ",".join(states) or "active"]
        )
    rows += [
        [str(each["id"]), "controller", ",".join(each["endpoints"]), "-", "-"] for each in described["controllers"]
    ]
    return ["", *table_lines(rows, left={1, 2, 3, 4})]


def _pairs(values: dict[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def _section(title: str, rows: Iterable[list[str]]) -> list[str]:
    lines = [f"  {' '.join(map(printable, row))}" for row in rows]
    return ["", f"{title}:", *lines] if lines else []


@metadata.command(
    "export",
    examples=(
        "magicbyte metadata export --dir data --zookeeper localhost:2181",
        "magicbyte metadata export data --to-kraft kraft-data --logs data --alone",
        "magicbyte metadata export kraft-combined-logs@4200 --to-kraft earlier",
    ),
)
@click.argument("source", required=False, metavar="[SOURCE[@OFFSET]]")
@click.option("--dir", "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="The log directory of a stopped broker, with --zookeeper.")  # fmt: skip
@click.option("--zookeeper", callback=parsed(zookeeper_addresses), metavar="HOST:PORT[/PATH]",
              help="The ZooKeeper to write to, with the cluster's chroot path if it has one.")  # fmt: skip
@to_kraft_options
def export(source: str | None, directory: Path | None, zookeeper: str | None, **to_kraft: Any) -> None:
    """Write the metadata in DIR, of `magicbyte serve`, into a ZooKeeper, for a Kafka broker. Or, with --to-kraft, those
    of SOURCE into a new directory, on which a KRaft node of Kafka starts.

    SOURCE is as for `metadata show`: a log directory of a KRaft node, with @OFFSET as after this offset, that of a
    stopped broker of magicbyte, zookeeper://HOST:PORT[/PATH], or the data directory of a stopped ZooKeeper. Sources are
    not changed.
    """
    from magicbyte.engine.log.files.outputs import refuse_overlap

    if to_kraft["out"] is not None:
        if source is None or directory is not None or zookeeper is not None:
            raise click.UsageError("--to-kraft: expected SOURCE, and neither --dir nor --zookeeper")
        refuse_overlap(to_kraft["out"], [source] if Path(source).exists() else [])
        export_to(image_of(source), to_kraft, OURS)
        return
    if source is not None or directory is None or zookeeper is None:
        raise click.UsageError("expected --dir DIR with --zookeeper, or SOURCE with --to-kraft OUT")
    done = _transfer(directory, zookeeper, to_zookeeper=True)
    for topic, names in done.left_out.items():
        complain(f"warning: {topic}: left out what Kafka's brokers do not have: {', '.join(names)}")
    say(f"exported {many(done.topics, 'topic')}, {many(done.nodes, 'node')}")


@metadata.command("import", examples=("magicbyte metadata import --dir data --zookeeper localhost:2181",))
@click.option("--dir", "directory", required=True, metavar="DIR",
              type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="The log directory of a stopped broker.")  # fmt: skip
@click.option("--zookeeper", required=True, callback=parsed(zookeeper_addresses), metavar="HOST:PORT[/PATH]",
              help="The ZooKeeper, with the cluster's chroot path if it has one.")  # fmt: skip
def import_(directory: Path, zookeeper: str) -> None:
    """Write the metadata in a ZooKeeper into DIR, for `magicbyte serve`."""
    done = _transfer(directory, zookeeper, to_zookeeper=False)
    say(f"imported {many(done.topics, 'topic')}, {many(done.nodes, 'node')}")


def _transfer(directory: Path, address: str, *, to_zookeeper: bool) -> Transferred:
    from magicbyte.access.clock import SystemClock
    from magicbyte.server.metadata.sqlite import FILE_NAME
    from magicbyte.server.stores.znodes.kept_settings import forget_settings
    from magicbyte.server.stores.znodes.salvage import is_served, open_metadata
    from magicbyte.server.stores.znodes.salvaged import keep_all
    from magicbyte.server.stores.znodes.transfer import transfer

    require("cluster", "ZooKeeper")
    from magicbyte.server.metadata.zookeeper import ZooKeeperStore

    if to_zookeeper and not is_served(directory):
        raise click.UsageError(f"{directory} has no {FILE_NAME}: magicbyte has not served it")
    with contextlib.closing(ZooKeeperStore(address)) as keeper:
        store, salvaged = open_metadata(directory, SystemClock(), keep_all)
        try:
            if salvaged is not None:
                complain(f"warning: {salvaged}")
            if to_zookeeper:
                return transfer(store, keeper, ours=OURS)
            done = transfer(keeper, store)
            forget_settings(store)  # other brokers had the directory: only its records show its present format
            return done
        finally:
            store.close()
