"""`magicbyte serve`: run a broker until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from magicbyte.cli.base import Command
from magicbyte.cli.logs import log_options, set_up
from magicbyte.cli.options import OutputPath, key_values
from magicbyte.cli.output import say
from magicbyte.cli.stopping import stops
from magicbyte.engine.addresses import host_and_port
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files.filesystem import read_regular

if TYPE_CHECKING:
    from magicbyte.server.broker.broker import Broker
    from magicbyte.server.settings.config import BrokerConfig

_FULL_COLLECTIONS = 1000  # collections of the middle generation before a full one


@click.command(
    cls=Command,
    examples=(
        "magicbyte serve --dir data --listen 127.0.0.1:9092",
        "magicbyte serve --dir tour/logs/kafka-0.8.2.2 --overlay overlay",
        "magicbyte serve --config server.properties log.message.format.version=0.10.0",
    ),
)
@click.option("--config", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="A server.properties, with Kafka's names.")  # fmt: skip
@click.option("--dir", "directory", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="The log directory: log.dirs.")  # fmt: skip
@click.option("--listen", metavar="HOST:PORT", help="The address to listen at: listeners. Port 0: any free one.")
@click.option("--http", metavar="HOST:PORT",
              help="The address of /metrics (for Prometheus) and /health: http.address.")  # fmt: skip
@click.option("--as-version", metavar="RELEASE",
              help="Behave as this Kafka release does, 0.8.2 to 4.4: as.version.")  # fmt: skip
@click.option("--repair", is_flag=True,
              help="Also open damaged logs; bytes that cannot be kept are moved to DIR/quarantine.")  # fmt: skip
@click.option("--adopt", is_flag=True,
              help="Take over a directory that no magicbyte broker has served.")  # fmt: skip
@click.option("--overlay", type=OutputPath(folder=True), metavar="DIR",
              help="Serve a copy of the directory, which is not changed. DIR is created if needed; its files "
              "share blocks with the original on file systems that can do that.")  # fmt: skip
@log_options
@click.option("-v", "--verbose", is_flag=True, help="Log more: --log-level info.")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
def serve(
    path: Path | None,
    directory: Path | None,
    listen: str | None,
    http: str | None,
    as_version: str | None,
    repair: bool,
    adopt: bool,
    overlay: Path | None,
    log_level: str,
    log_format: str,
    verbose: bool,
    settings: tuple[str, ...],
) -> None:
    """Run a broker: any Kafka client may produce and consume, in any message format.

    Settings have Kafka's names. KEY=VALUE overrides the options, which override the file. Ends cleanly with Ctrl-C or
    SIGTERM.

    A broker changes its directory: it adds records, repairs and deletes files. A directory of another broker is served
    with --adopt, or with --overlay, which leaves it unchanged.
    """

    set_up("info" if verbose and log_level == "warning" else log_level, log_format)
    given = _given(directory, listen, {"http.address": http, "as.version": as_version}) | key_values(settings)
    config = _config(path, given)
    if overlay is not None:
        _lay_over(Path(config.log_directory), overlay)
        config = _config(path, given | {"log.dirs": str(overlay)})
    elif adopt:
        _say_missing(Path(config.log_directory))
    elif config.zookeeper_connect is None:  # a cluster's brokers may exchange their directories
        _refuse_foreign(Path(config.log_directory))
    if (node_id := _id_of(config)) is not None:
        config = _config(path, given | {"log.dirs": config.log_directory, "broker.id": node_id})
    _refuse_misspelt(key_values(settings), config)
    for warning in config.warnings():
        say(f"warning: {warning}", err=True)
    asyncio.run(_run(config, repairs=repair))


def _config(path: Path | None, given: Mapping[str, str]) -> BrokerConfig:
    from magicbyte.server.settings.config import BrokerConfig

    return BrokerConfig(given) if path is None else BrokerConfig.parse(read_regular(path), given)


def _refuse_misspelt(typed: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise UsageError for a misspelled setting on the command line. A file may have unknown settings."""
    for name, meant in config.misspelt().items():
        if name in typed:
            raise click.UsageError(f"no setting {name!r}: did you mean {meant!r}?")


def _refuse_foreign(directory: Path) -> None:
    """Raise LogDirectoryError for a directory with another broker's logs."""
    from magicbyte.cli.render import many
    from magicbyte.server.broker.adoption import foreign_partitions

    if found := foreign_partitions(directory):
        raise LogDirectoryError(
            f"{directory}: magicbyte has not served it before, and it holds {many(len(found), 'partition')}, such as "
            f"{found[0]}: serving changes it: --adopt serves it and owns it from then on, --overlay DIR serves a copy"
        )


def _id_of(config: BrokerConfig) -> str | None:
    """Return the broker id in the directory's meta.properties, which holds if no id is given; else None."""
    from magicbyte.engine.log.files import checkpoints

    if "broker.id" in config.static:
        return None
    try:
        content = Path(config.log_directory, checkpoints.META_PROPERTIES).read_bytes()
        node_id = checkpoints.parse_meta_properties(content).node_id
    except (OSError, CorruptRecordError):  # the broker reports it at its start
        return None
    return None if node_id is None else str(node_id)


def _lay_over(directory: Path, overlay: Path) -> None:
    """Create the overlay. One of an earlier run is continued."""
    from magicbyte.server.stores.znodes.salvage import is_served
    from magicbyte.tools.offline.copies import lay_over

    if is_served(overlay):
        return
    if not directory.is_dir():
        raise LogDirectoryError(f"{directory}: expected a log directory to lay {overlay} over")
    _say_missing(directory)
    lay_over(directory, overlay)


def _say_missing(directory: Path) -> None:
    """Warn about what a directory proves to be missing, before this broker replaces its checkpoints."""
    from magicbyte.engine.log.files.directory import FoundLogs, survey
    from magicbyte.engine.log.files.left_out import in_use
    from magicbyte.engine.log.files.missing import missing_in

    with contextlib.suppress(LogDirectoryError):  # an empty directory, or one that is made
        found = survey(str(directory))
        for missing in missing_in(FoundLogs(in_use(found.partitions), found.directories)):
            say(f"warning: missing: {missing}", err=True)


def _given(directory: Path | None, listen: str | None, others: Mapping[str, str | None]) -> dict[str, str]:
    given = {} if directory is None else {"log.dirs": str(directory)}
    if listen is not None:
        try:
            host_and_port(listen, host="", free=True)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--listen") from error
        given["listeners"] = f"PLAINTEXT://{listen}"
    return given | {name: value for name, value in others.items() if value is not None}


async def _run(config: BrokerConfig, *, repairs: bool) -> None:
    from magicbyte.server.broker.broker import Broker
    from magicbyte.server.serving.trimming import keep_freed

    keep_freed()
    broker, ended = Broker(config, repairs=repairs), asyncio.Event()
    stops(ended)
    await broker.start()
    # A full collection scans every object and blocks the interpreter. Permanent objects are frozen, and large requests
    # have no cycles, so full collections can be rare.
    gc.freeze()
    gc.set_threshold(700, 10, _FULL_COLLECTIONS)
    try:
        _greet(broker)
        waiting = [asyncio.create_task(each.wait()) for each in (ended, broker.runtime.failed)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()
    finally:
        await broker.stop()
    if broker.runtime.failure is not None:
        raise broker.runtime.failure
    say("stopped", err=True)


def _greet(broker: Broker) -> None:
    """Print the broker's address, and a command to try."""
    addresses = {each.name: "{}:{}".format(*broker.address_of(each)) for each in broker.config.listeners}
    for name, address in addresses.items():
        say(f"listening on {address} ({name}), logs in {broker.logs.path}")
    if broker.config.http is not None:
        host = broker.config.http[0]
        shown = f"[{host}]" if ":" in host else host
        say(f"metrics at http://{shown}:{broker.http_port}/metrics, health at /health")
    first = next(iter(addresses.values()))
    say(f"try: kcat -b {first} -t test -P, then kcat -b {first} -t test -C; Ctrl-C stops the broker", err=True)
    sys.stdout.flush()
