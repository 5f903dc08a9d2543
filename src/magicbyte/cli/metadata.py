"""`magicbyte metadata`: show the metadata of a KRaft node, export those of a log directory to a ZooKeeper, or import
them.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from magicbyte.cli.base import CommandGroup
from magicbyte.cli.brokers import parsed
from magicbyte.cli.options import format_option
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.render import many, table_lines
from magicbyte.engine.addresses import zookeeper_addresses
from magicbyte.engine.extras import require
from magicbyte.engine.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magicbyte.cli.options import F
    from magicbyte.server.stores.znodes.transfer import Transferred

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


def _both(command: F) -> F:
    command = click.option("--zookeeper", required=True, callback=parsed(zookeeper_addresses),
                           metavar="HOST:PORT[/PATH]",
                           help="The ZooKeeper, with the cluster's chroot path if it has one.")(command)  # fmt: skip
    return click.option("--dir", "directory", required=True, metavar="DIR",
                        type=click.Path(exists=True, file_okay=False, path_type=Path),
                        help="The log directory of a stopped broker.")(command)  # fmt: skip


@click.group(cls=CommandGroup)
def metadata() -> None:
    """Show the metadata of a KRaft node; copy a stopped broker's to a ZooKeeper, or back, so that a broker of the other
    kind takes over.
    """


@metadata.command(
    "show",
    examples=(
        "magicbyte metadata show kraft-combined-logs",
        "magicbyte metadata show kraft-combined-logs --topic orders --at 4200",
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
    after it, and changes nothing. Credentials and tokens are named, not shown.
    """
    from magicbyte.tools.offline.quorum import quorum_folder, read_quorum

    quorum = read_quorum(quorum_folder(path), at)
    missing = [name for name in topics if name not in quorum.image.topics]
    if missing:
        raise click.ClickException(f"{quorum.path}: no topic {', '.join(missing)} at offset {quorum.end - 1}")
    for note in quorum.notes:
        complain(f"note: {note}")
    described = quorum.to_json(topics or None)
    if form == "json":
        say_json(described)
    else:
        say(*_lines(described, only_topics=bool(topics)))


def _lines(described: dict[str, Any], *, only_topics: bool) -> list[str]:
    """Return the text of what `show` found."""
    origin = f"up to offset {described['endOffset'] - 1}"
    if described["snapshot"] is not None:
        origin += f", from {described['snapshot']}"
    lines = [f"{described['path']}: {origin}"]
    if not only_topics:
        features = [f"{name} {level}" for name, level in described["features"].items()]
        lines += ["features: " + (", ".join(features) or "none"), *_nodes(described)]
    rows = [["topic", "id", "partition", "leader", "epoch", "replicas", "in sync", "eligible"]]
    for topic in described["topics"]:
        for each in topic["partitions"]:
            lists = (each["replicas"], each.get("isr", ()), each.get("eligibleLeaderReplicas", ()))
            state = [str(each["partition"]), str(each.get("leader", "-")), str(each.get("leaderEpoch", "-"))]
            rows.append([topic["name"], topic["id"], *state, *(",".join(map(str, part)) or "-" for part in lists)])
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
        states = [text for name, text in (("isFenced", "fenced"), ("isInControlledShutdown", "stopping")) if each[name]]
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


@metadata.command("export", examples=("magicbyte metadata export --dir data --zookeeper localhost:2181",))
@_both
def export(directory: Path, zookeeper: str) -> None:
    """Write the metadata in DIR, of `magicbyte serve`, into a ZooKeeper, for a Kafka broker."""
    done = _transfer(directory, zookeeper, to_zookeeper=True)
    for topic, names in done.left_out.items():
        complain(f"warning: {topic}: left out what Kafka's brokers do not have: {', '.join(names)}")
    say(f"exported {many(done.topics, 'topic')}, {many(done.nodes, 'node')}")


@metadata.command("import", examples=("magicbyte metadata import --dir data --zookeeper localhost:2181",))
@_both
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
