"""`magicbyte metadata`: export the metadata of a log directory to a ZooKeeper, or import it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from magicbyte.cli.base import CommandGroup
from magicbyte.cli.brokers import parsed
from magicbyte.cli.output import complain, say
from magicbyte.cli.render import many
from magicbyte.engine.addresses import zookeeper_addresses
from magicbyte.engine.extras import require

if TYPE_CHECKING:
    from magicbyte.cli.options import F
    from magicbyte.server.metadata.transfer import Transferred

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
    """Copy a stopped broker's metadata to a ZooKeeper, or back, so that a broker of the other kind takes over."""


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
    from magicbyte.server.broker.adoption import forget
    from magicbyte.server.metadata.salvage import is_served, open_metadata
    from magicbyte.server.metadata.sqlite import FILE_NAME
    from magicbyte.server.metadata.transfer import transfer
    from magicbyte.server.stores.topic_nodes import keep_all

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
            forget(store)  # other brokers had the directory: only its records show its present format
            return done
        finally:
            store.close()
