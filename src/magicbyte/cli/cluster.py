"""`magicbyte cluster`: brokers and a ZooKeeper as processes of this machine; the health of any cluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from magicbyte.cli.base import CommandGroup
from magicbyte.cli.brokers import client_of, parsed
from magicbyte.cli.client_settings import client_options
from magicbyte.cli.options import format_option, key_values
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.render import many, table_lines
from magicbyte.engine.addresses import zookeeper_addresses
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.access.client.cluster_report import ClusterReport
    from magicbyte.cli.options import F
    from magicbyte.tools.launch.cluster import LaunchedBroker, LocalCluster

_UNHEALTHY: Final = 1  # exit status
_MOST_NAMED: Final = 20  # partitions named in the text


def _directory_option(command: F) -> F:
    """Add --dir: a Path."""
    return click.option(
        "--dir", "--directory", "directory", type=click.Path(file_okay=False, path_type=Path),
        default=Path("magicbyte-cluster"),
        envvar="MAGICBYTE_CLUSTER", show_envvar=True, show_default=True, metavar="DIR",
        help="The folder of the cluster: logs, metadata, output of each process.",
    )(command)  # fmt: skip


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Start, show and stop a cluster of brokers on this machine."""


# ---- up


@cluster.command(
    examples=(
        "magicbyte cluster up --brokers 3",
        "magicbyte cluster up --dir /tmp/old --port 0 --as-version 0.10.2",
        "magicbyte cluster up --zookeeper localhost:2181 --set min.insync.replicas=2",
    )
)
@_directory_option
@click.option(
    "--brokers", type=click.IntRange(1, 100), metavar="N", help="Number of brokers. [default: 3, or as before]"
)
@click.option("--port", type=click.IntRange(0, 65535), metavar="N",
              help="Port of the first broker; the others have the next ones. 0: any free ports. "
              "[default: 9092, or as before]")  # fmt: skip
@click.option("--http", type=click.IntRange(0, 65535), metavar="N",
              help="Port of /metrics and /health of the first broker; the others have the next ones.")  # fmt: skip
@click.option("--zookeeper", callback=parsed(zookeeper_addresses), metavar="HOST:PORT[/PATH]",
              help="A running ZooKeeper. [default: one is started with the cluster]")  # fmt: skip
@click.option("--zookeeper-classpath", "jars", metavar="PATH",
              help="The jars of the ZooKeeper to start: a folder or a Java class path. [default: Debian's "
              "package, or a ZooKeeper or Kafka in /opt]")  # fmt: skip
@click.option("--as-version", metavar="RELEASE", help="Behave as this Kafka release does, 0.8.2 to 4.4.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="A setting of all brokers, with Kafka's name. Can be given several times.")  # fmt: skip
def up(
    directory: Path,
    brokers: int | None,
    port: int | None,
    http: int | None,
    zookeeper: str | None,
    jars: str | None,
    as_version: str | None,
    settings: tuple[str, ...],
) -> None:
    """Start a cluster, and print its bootstrap address. Only this machine can reach it.

    An existing cluster is started again: running processes continue, dead brokers are restarted, and --brokers may add
    brokers. The processes run until `cluster down`.
    """
    from magicbyte.tools.launch.cluster import WantedCluster, held

    given = key_values(settings)
    for name in ("broker.id", "zookeeper.connect", "log.dirs", "listeners"):
        if name in given:
            raise click.BadParameter(f"{name}: each broker gets its own", param_hint="--set")
    with held(directory, lambda line: say(line, err=True), makes=True) as found:
        found.up(WantedCluster(brokers, zookeeper, jars, port, http, as_version, given), os.environ)
    say(f"bootstrap {found.bootstrap}", f"zookeeper {found.zookeeper}")
    say(*(f"broker {each.id}: metrics at http://127.0.0.1:{each.http}/metrics" for each in found.members if each.http))
    say(f"try: magicbyte cluster status --dir {directory}; cluster down stops it", err=True)


# ---- status


@cluster.command(
    examples=(
        "magicbyte cluster status --dir /tmp/old",
        "magicbyte cluster status -b localhost:9092 --json",
    )
)
@_directory_option
@click.option(
    "-b",
    "--bootstrap",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT[,…]",
    help="Show this cluster, of any Kafka version, instead of DIR's.",
)
@client_options
@format_option
def status(directory: Path, bootstrap: str | None, form: str) -> None:
    """Show brokers, controller, and how many partitions are unavailable or under-replicated.

    Exit status: 0 no fault, 1 problems, 2 no broker answers.
    """
    from magicbyte.access.client.cluster_report import unknown_health
    from magicbyte.tools.launch.cluster import LocalCluster

    local = None if bootstrap is not None else LocalCluster.load(directory, say)
    report: ClusterReport | None = None
    if local is None or any(each.is_alive for each in local.members):
        report = asyncio.run(_report(bootstrap or _alive(local)))
    elif form == "text":
        complain(f"no broker of {directory} runs: `magicbyte cluster up --dir {directory}` starts them")
    if form == "json":
        document = unknown_health() if report is None else report.to_json()
        say_json(document if local is None else document | {"processes": [each.to_json() for each in local.members]})
    else:
        _say_status(report, local)
    is_well = report is not None and not report.has_fault and all(each.is_alive for each in _members(local))
    click.get_current_context().exit(0 if is_well else 2 if report is None else _UNHEALTHY)


def _members(local: LocalCluster | None) -> list[LaunchedBroker]:
    return [] if local is None else local.members


def _alive(local: LocalCluster | None) -> str:
    return ",".join(each.address for each in _members(local) if each.is_alive)


async def _report(bootstrap: str) -> ClusterReport:
    from magicbyte.access.client.cluster_report import report_cluster

    with explained("describe the cluster", "brokers from 0.8.2 on can do it"):
        async with client_of(bootstrap) as client:
            return await report_cluster(client)


def _say_status(report: ClusterReport | None, local: LocalCluster | None) -> None:
    nodes = {} if report is None else {broker.id: broker for broker in report.brokers}
    rows = [["broker", "address", "process", "state"]]
    for member in _members(local):
        number = str(member.process.pid) if member.is_alive and member.process is not None else "-"
        state = "in the cluster" if member.id in nodes else "not in the cluster"
        rows.append([str(member.id), member.address, number, state if member.is_alive else "stopped"])
    if local is None:
        rows += [[str(each.id), f"{each.host}:{each.port}", "-", "in the cluster"] for each in nodes.values()]
    say(*table_lines(rows, left={1, 3}))
    if local is not None and local.zookeeper_port is not None:
        process = local.zookeeper_process
        runs = process is not None and process.is_alive
        say(f"ZooKeeper at {local.zookeeper}: {f'process {process.pid}' if runs and process else 'stopped'}")
    if report is None:
        return
    say(f"cluster {report.cluster_id or '-'}, controller {_controller(report)}")
    counts = f"{len(report.unavailable)} unavailable, {len(report.under_replicated)} under-replicated"
    partitions = f"{many(report.topics, 'topic')}, {many(len(report.partitions), 'partition')}"
    say(f"{partitions}: {counts}, {many(report.offline_replicas, 'replica')} offline")
    bad = [each for each in report.partitions if each.state != "ok"]
    say(*(f"{each.topic}-{each.partition}: {each.state}" for each in bad[:_MOST_NAMED]))
    if len(bad) > _MOST_NAMED:
        say(f"and {len(bad) - _MOST_NAMED} more: `magicbyte topics describe --under-replicated` has all")


def _controller(report: ClusterReport) -> str:
    if not report.knows_controller:
        return "not known: brokers before 0.10 do not report it"
    return "none" if report.controller is None else str(report.controller)


# ---- down


@cluster.command(
    examples=(
        "magicbyte cluster down",
        "magicbyte cluster down --delete",
    )
)
@_directory_option
@click.option("--delete", is_flag=True, help="Delete the folder with all records of the cluster, too.")
def down(directory: Path, delete: bool) -> None:
    """Stop the brokers, one after the other, then the ZooKeeper that was started with them. The records are kept."""
    from magicbyte.tools.launch.cluster import held

    with held(directory, lambda line: say(line, err=True)) as found:
        found.down()
        if delete:
            found.delete()
    say("stopped and deleted" if delete else f"stopped; the records are in {directory}", err=True)
