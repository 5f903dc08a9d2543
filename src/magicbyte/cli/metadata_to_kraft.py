"""The options of `magicbyte metadata export --to-kraft`, and what it prints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magicbyte.cli.brokers import parsed
from magicbyte.cli.metadata_format import listener_of
from magicbyte.cli.options import OutputPath
from magicbyte.cli.output import complain, say
from magicbyte.cli.render import many
from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.internal_topics import CLUSTER_METADATA
from magicbyte.engine.releases import LINES, Release, release_meant, release_of_level

if TYPE_CHECKING:
    from magicbyte.cli.options import F
    from magicbyte.tools.offline.quorum import DescribedCluster
    from magicbyte.tools.offline.quorum_export import ExportedNode


def to_kraft_options(command: F) -> F:
    """Add --to-kraft, as `out`, and the options that belong to it."""
    for add in (
        click.option("--standalone", metavar="LISTENER://HOST:PORT", callback=parsed(listener_of), help="Of "
                     "--to-kraft: a dynamic quorum that begins with this node, which listens there.  "
                     "[default: a static quorum]"),
        click.option("--metadata-version", "level", metavar="LEVEL", help="Of --to-kraft: the level of "
                     "metadata.version.  [default: that of SOURCE, or of the release]"),
        click.option("--release", metavar="RELEASE", callback=parsed(release_meant), help="Of --to-kraft: the release "
                     f"of Kafka that starts on it.  [default: {LINES[-1]}]"),
        click.option("--cluster-id", metavar="ID", help="Of --to-kraft: the id of the cluster.  [default: that of "
                     "SOURCE]"),
        click.option("--node-id", type=click.IntRange(0), metavar="N", help="Of --to-kraft: the node.id.  [default: "
                     "that of SOURCE]"),
        click.option("--alone", "is_alone", is_flag=True, help="Of --to-kraft: the node becomes the only replica of "
                     "each partition, and other nodes are forgotten."),
        click.option("--logs", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR",
                     help="Of --to-kraft: copy the logs of this log directory, of a stopped broker, into OUT."),
        click.option("--to-kraft", "out", type=OutputPath(folder=True), metavar="OUT", help="Write a log directory of "
                     "a KRaft node: a new name."),
    ):  # fmt: skip
        command = add(command)
    return command


def export_to(source: DescribedCluster, given: Mapping[str, Any], not_kafkas: Collection[str]) -> None:
    """Write the directory that the options describe."""
    from magicbyte.access.clock import SystemClock
    from magicbyte.engine.cluster.features import level_of
    from magicbyte.tools.offline.quorum_export import ControllerListener, ExportOptions, export_to_kraft
    from magicbyte.tools.offline.quorum_format import parse_id

    for note in source.notes:
        complain(f"note: {source.path}: {note}")
    out: Path = given["out"]
    try:
        options = ExportOptions(
            release=given["release"] or Release.of(LINES[-1]),
            node_id=given["node_id"],
            cluster_id=None if given["cluster_id"] is None else parse_id(given["cluster_id"]),
            level=None if given["level"] is None else level_of(given["level"]),
            listener=None if given["standalone"] is None else ControllerListener(*given["standalone"]),
            logs=() if given["logs"] is None else (given["logs"],),
            is_alone=given["is_alone"],
            not_kafkas=not_kafkas,
        )
        done = export_to_kraft(source, out, options, SystemClock().now_ms())
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for each in done.left_out:
        complain(f"left out: {each}")
    _say(done)


def repair_to(paths: Sequence[str], out: Path, node_id: int | None, cluster_id: str | None) -> None:
    """Write a directory from what can be read of those of a node. Exit status 1 if anything was dropped."""
    from magicbyte.access.clock import SystemClock
    from magicbyte.engine.cluster.features import METADATA_VERSION
    from magicbyte.tools.offline.quorum import quorum_folder, read_quorum
    from magicbyte.tools.offline.quorum_check import OF_ONE_NODE, check_node
    from magicbyte.tools.offline.quorum_export import ExportOptions, export_to_kraft
    from magicbyte.tools.offline.quorum_format import parse_id

    try:
        chosen = None if cluster_id is None else parse_id(cluster_id)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    log = f"{CLUSTER_METADATA}-0"
    holders = [each for each in paths if Path(each).name == log or Path(each, log).exists()] or paths[:1]
    others = [each for each in check_node(paths).findings if each.what in OF_ONE_NODE] if len(paths) > 1 else []
    if others or len(holders) > 1:
        why = f"{log} is in {' and '.join(holders)}"
        if others:
            why = f"{others[0].path}: {others[0].what}: expected {others[0].expected}, found {others[0].found}"
        raise LogDirectoryError(f"expected the log directories of one node: {why}")
    path = holders[0]
    source = read_quorum(quorum_folder(path), salvages=True)
    level = source.image.features.get(METADATA_VERSION)
    if level is None:
        raise LogDirectoryError(f"{path}: nothing before the damage says a level of {METADATA_VERSION}: no node starts")
    try:
        release = max(release_of_level(level), Release.of("3.9"), key=lambda each: each.number)
    except ValueError as error:
        raise LogDirectoryError(f"{path}: {error}: a later release of Kafka wrote it") from error
    options = ExportOptions(
        release=release,
        node_id=node_id,
        cluster_id=chosen,
        logs=[Path(each) for each in paths if Path(each).name != log],
        repairs=True,
    )
    done = export_to_kraft(source, out, options, SystemClock().now_ms())
    dropped = [*map(str, source.notes), *done.left_out]
    for each in dropped:
        complain(f"dropped: {each}")
    _say(done)
    if dropped:
        click.get_current_context().exit(1)


def _say(done: ExportedNode) -> None:
    from magicbyte.engine.cluster.features import LEVEL_NAMES, METADATA_VERSION

    level = done.image.features[METADATA_VERSION]
    say(
        f"wrote {done.out} for node {done.node_id} of cluster {done.cluster_id}: {METADATA_VERSION} {level} "
        f"({LEVEL_NAMES[level]}), {many(len(done.image.topics), 'topic')}, "
        f"{many(len(done.copied), 'copied log')}, {done.snapshot}"
    )
