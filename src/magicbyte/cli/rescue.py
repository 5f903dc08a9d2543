"""`magicbyte rescue`: bring an old backup into a running cluster, or into a new log directory."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from magicbyte.cli import options
from magicbyte.cli.base import Command
from magicbyte.cli.brokers import client_of, parsed
from magicbyte.cli.client_settings import client_options
from magicbyte.cli.output import bad, complain, good, say, say_json
from magicbyte.cli.progress import progress
from magicbyte.cli.render import many, size_text
from magicbyte.engine.releases import LINES, Release, release_meant

if TYPE_CHECKING:
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.tools.rescue.kraft import KraftReceipt, KraftTarget
    from magicbyte.tools.rescue.receipt import RescuedPartition, RescueReceipt

_CONVERTED: Final = "v2"
"""The value of --to that converts, beside --to-kraft."""


def _unpacked(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    from magicbyte.engine.log.files.units import size_of

    found = None if value is None else size_of(value)
    if value is not None and not found:
        raise click.BadParameter(f"{value!r}: expected a size such as 10GiB", context, parameter)
    return found


@click.command(
    cls=Command,
    examples=(
        "magicbyte rescue tour/logs/kafka-0.8.2.2 --to ./rescued",
        "magicbyte rescue old-logs.tar.gz --to localhost:9092 --dry-run",
        "magicbyte rescue old-logs.tar.gz --to localhost:9092",
    ),
)
@click.argument("backup", type=click.Path(exists=True, path_type=Path))
@click.option("--to", "target", metavar="HOST:PORT|DIR", help="Brokers of the cluster to produce into, "
              "or a new log directory: a name with a slash, such as ./rescued. With --to-kraft: v2, which converts "
              "records of formats 0 and 1; by default they stay as they are.")  # fmt: skip
@click.option("--to-kraft", "kraft", type=options.OutputPath(folder=True), metavar="DIR", help="Instead: a new "
              "log directory on which a KRaft node of Kafka starts, with the same offsets and groups.")  # fmt: skip
@click.option("--node-id", type=click.IntRange(0), default=1, show_default=True, metavar="N",
              help="Of --to-kraft: the node.id.")  # fmt: skip
@click.option("--cluster-id", metavar="ID", help="Of --to-kraft: the id of the cluster.  [default: a random one]")
@click.option("--release", metavar="RELEASE", callback=parsed(release_meant),
              help=f"Of --to-kraft: the release of Kafka that starts on it.  [default: {LINES[-1]}]")  # fmt: skip
@click.option("--metadata", metavar="SOURCE[@OFFSET]", help="Of --to-kraft: settings, ids, ACLs, quotas and users of "
              "this cluster, as for `metadata show`.")  # fmt: skip
@click.option("--keep-retention", is_flag=True, help="Of --to-kraft: leave the retention of topics as it is. "
              "By default it is -1, so that Kafka deletes nothing.")  # fmt: skip
@click.option("--keep-commit-times", is_flag=True, help="Of --to-kraft: leave the times of commits. By default they "
              "are now, so that Kafka expires no offsets.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Report sound data, losses and the plan; write nothing "
              "to the target.")  # fmt: skip
@click.option("--work", type=options.OutputPath(folder=True), metavar="DIR", help="A folder for intermediate "
              "data, removed at the end; the same folder is needed to continue.  [default: next to DIR, else in the "
              "current folder: its name, or that of BACKUP, and .rescue]")  # fmt: skip
@click.option("--topic", "topics", multiple=True, help="Only this topic. Can be given several times.")
@options.as_option
@click.option("--max-unpacked", callback=_unpacked, metavar="SIZE", help="Limit of an archive's uncompressed bytes.  "
              "[default: 100 times its own size, at least 1GiB]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the receipt as JSON.")
@options.max_batch_bytes_option
@options.threads_option
@client_options
def rescue(
    backup: Path,
    target: str | None,
    kraft: Path | None,
    dry_run: bool,
    work: Path | None,
    topics: tuple[str, ...],
    as_: TopicPartition | None,
    max_unpacked: int | None,
    as_json: bool,
    max_batch_bytes: int,
    threads: int,
    **of_kraft: Any,
) -> None:
    """Restore old logs from BACKUP into a running cluster or a new log directory, in one step.

    BACKUP is a folder of logs, at any depth, or an archive of one: .tar, .tar.gz, .tar.zst, .zip, .log.gz. It may be
    damaged, come from a killed broker, and hold several replicas of a partition; the most complete one is used.
    Sound batches are salvaged, converted to magic 2 and written, with the offsets of consumer groups. With --to-kraft
    records of formats 0 and 1 stay as they are, which Kafka 4 serves. BACKUP is not changed. After an interruption the
    same command continues, and nothing is written twice.

    Exit status: 0 everything was sound and is at the target, 1 records were lost, as reported, 2 wrong use or a
    failure to write.
    """
    from magicbyte.engine.log.files.outputs import refuse_overlap
    from magicbyte.tools.rescue.rescue import ClusterTarget, RescueOptions, rescue_into

    converts = kraft is not None and target == _CONVERTED
    if (target is None) == (kraft is None) and not converts:
        raise click.UsageError("expected either --to or --to-kraft; with --to-kraft only --to v2")
    if kraft is not None:
        refuse_overlap(kraft, [backup])
    folder = kraft if target is None or kraft is not None else options.log_directory_or_none(target, "--to")
    if work is None:
        work = Path(f"{backup.resolve().name if folder is None else folder.resolve()}.rescue")
    chosen = RescueOptions(
        _step,
        topics=topics,
        as_=as_,
        limit=max_batch_bytes,
        unpacked=max_unpacked,
        threads=threads,
        is_dry=dry_run,
        kraft=None if kraft is None else _kraft_target(**of_kraft, converts=converts),
    )
    try:
        if folder is None:
            assert target is not None
            to: ClusterTarget | Path = ClusterTarget(target, functools.partial(client_of, target, option="--to"))
        else:
            to = folder
        receipt = rescue_into(backup, to, work, chosen)
    except KeyboardInterrupt:
        complain(f"stopped: the same command continues, with the work in {work}")
        raise
    if as_json:
        say_json(receipt.to_json())
    else:
        say(*_lines(receipt))
    if not receipt.is_complete:
        click.get_current_context().exit(1)


def _kraft_target(
    *,
    node_id: int,
    cluster_id: str | None,
    release: Release | None,
    metadata: str | None,
    keep_retention: bool,
    keep_commit_times: bool,
    converts: bool,
) -> KraftTarget:
    from magicbyte.access.clock import SystemClock
    from magicbyte.cli.metadata import image_of
    from magicbyte.tools.offline.quorum_format import parse_id
    from magicbyte.tools.rescue.kraft import KraftTarget

    chosen = release or Release.of(LINES[-1])
    if chosen.metadata_version is None:
        raise click.UsageError(f"--release {chosen.version}: expected 3.3 or later")
    try:
        known_id = None if cluster_id is None else parse_id(cluster_id)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return KraftTarget(
        node_id,
        chosen,
        SystemClock().now_ms(),
        cluster_id=known_id,
        image=None if metadata is None else image_of(metadata).image,
        keeps_retention=keep_retention,
        keeps_commit_times=keep_commit_times,
        converts=converts,
    )


@contextlib.contextmanager
def _step(name: str, size: int) -> Iterator[Callable[[int], None]]:
    """Show the progress of a step."""
    with progress(size, name=name) as advance:
        yield advance


def _lines(receipt: RescueReceipt) -> Iterator[str]:
    from magicbyte.tools.mirror.offset_topic import OFFSET_TOPIC

    yield from receipt.archive
    for each in receipt.partitions:
        yield from _partition_lines(each, receipt)
    if receipt.missing:
        yield f"not in the backup: {', '.join(map(str, receipt.missing))}"
    for name, omission in receipt.left_out.items():
        line = f"{name}: left out: {omission.why}"
        yield bad(f"{line}; no other folder has it") if omission.is_loss else line
    for gap in receipt.gaps:
        yield bad(f"missing in the backup: {gap}")
    for group in receipt.groups:
        name = "{}-{}".format(*group.source)
        yield f"group {group.group}: {name}: offset {group.offset} is {group.translation.offset} there"
    if receipt.kraft is not None:
        yield from _kraft_lines(receipt.kraft)
    for kept in receipt.kept_groups:
        yield f"group {kept}: its offsets are in the directory"
    for name, why in receipt.groups_left_out.items():
        yield f"group {name}: left out: {why}"
    if receipt.is_dry:
        yield from receipt.plans
    if any(each.written is not None for each in receipt.partitions):
        yield "the topics created by this run keep all records, with retention.ms=-1, until you set it"
        yield f"the topic {OFFSET_TOPIC} at the target maps old offsets to new ones; it can be deleted"
    yield _last_line(receipt)


def _kraft_lines(made: KraftReceipt) -> Iterator[str]:
    yield f"node {made.node_id} of cluster {made.cluster_id}, metadata.version {made.metadata_version}"
    if made.unlimited:
        yield f"retention.ms and retention.bytes are -1, until you set them: {', '.join(made.unlimited)}"
    if made.old_formats:
        yield f"records of formats 0 and 1 are those of the backup, byte for byte: {', '.join(made.old_formats)}"
    if made.renewed_commits:
        yield f"the commit time is now that of the rescue: {many(made.renewed_commits, 'group offset')}"


def _partition_lines(rescued: RescuedPartition, receipt: RescueReceipt) -> Iterator[str]:
    salvaged = rescued.salvage
    whole = f"{size_text(salvaged.bytes)} of {size_text(rescued.size)} are whole"
    if receipt.is_dry:
        yield f"{rescued.name}: {whole}, from {rescued.source}"
    else:
        digest = rescued.whole.digest
        said = f"{rescued.name}: {many(digest.records, 'record')}, {whole}, from {rescued.source}"
        yield f"{said}, digest {digest.body:016x}"
    for other in rescued.replicas:
        yield f"  not taken: {other.path}: {other.why}"
        if other.differing:
            differing = many(other.differing, "record")
            yield bad(f"  {differing} at the same offsets have other content there: look at both with `magicbyte diff`")
    if rescued.error is not None:
        yield f"  {rescued.error}"
    elif not rescued.is_same and rescued.written is not None:
        written = rescued.written.digest
        yield bad(f"  the target differs: {many(written.records, 'record')}, digest {written.body:016x}")
    if rescued.whole.aborted:
        aborted = many(rescued.whole.aborted, "record")
        yield f"  of aborted transactions, for no consumer of committed records: {aborted}"
    if salvaged.moved:
        yield f"  moved back to their positions: {salvaged.moved}"
    if salvaged.ended_transactions:
        yield f"  open transactions that were aborted: {salvaged.ended_transactions}"
    for loss in salvaged.lost:
        offsets = "no offsets" if loss.offsets is None else f"offsets {loss.offsets[0]}..{loss.offsets[1]}"
        yield bad(f"  lost: {loss.path}, bytes {loss.position}..{loss.end - 1}, {offsets}: {loss.error.what}: "
                  f"expected {loss.error.expected}, found {loss.error.found}")  # fmt: skip
    for aside in salvaged.aside:
        yield (f"  left out: {aside.path}, bytes {aside.position}..{aside.end - 1}, "
               f"offsets {aside.offsets[0]}..{aside.offsets[1]}: {aside.why}")  # fmt: skip


def _last_line(receipt: RescueReceipt) -> str:
    count = many(len(receipt.rescued), "partition")
    if receipt.is_dry:
        return f"dry run: nothing was written to {receipt.to}; {count} to rescue"
    records = many(sum(each.whole.digest.records for each in receipt.rescued), "record")
    done = f"rescued into {receipt.to}: {records} of {count}, read back and compared"
    return good(done) if receipt.is_complete else bad(f"{done}; losses are listed above")
