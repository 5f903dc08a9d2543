"""`magicbyte mirror`: copy topics of a cluster to another, until Ctrl-C or SIGTERM, or until the end is reached."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from collections.abc import AsyncIterator, Sized
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from magicbyte.cli.asking import confirm
from magicbyte.cli.base import Command
from magicbyte.cli.brokers import client_of
from magicbyte.cli.mirror_display import display, line, total
from magicbyte.cli.options import OutputPath, log_directory_or_none
from magicbyte.cli.output import say
from magicbyte.cli.render import many
from magicbyte.cli.sides import side_arguments, side_options
from magicbyte.cli.stopping import stops
from magicbyte.engine.addresses import host_and_port
from magicbyte.engine.errors import MagicbyteError, MirrorError, UnknownTopicError

if TYPE_CHECKING:
    from magicbyte.access.client import Client
    from magicbyte.access.net.exposition import Family
    from magicbyte.tools.mirror.log_source import LogSource
    from magicbyte.tools.mirror.plan import Choice, TopicMirrorPlan
    from magicbyte.tools.mirror.rounds import Rounds
    from magicbyte.tools.mirror.saving import Savings

_TELL_SECONDS = 1.0
_LOOK_SECONDS = 5.0  # interval of sampling the CPU cost that closed copies avoid


class _Mirror(Command):
    """The command, with `mirror translate` as a subcommand with its own options."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the subcommand or of the command itself."""
        if args[:1] != ["translate"]:
            return super().make_context(info_name, args, parent, **extra)
        from magicbyte.cli.mirror_translate import translate

        return translate.make_context(f"{info_name} translate", args[1:], parent, **extra)


def _pattern(_context: click.Context, _parameter: click.Parameter, value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"{value!r}: {error}") from error


def _http(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    if value is None:
        return None
    try:
        return host_and_port(value, example="localhost:9100", host="localhost", free=True)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _group(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value == "":
        raise click.BadParameter("expected a name")
    return value


def _client(context: click.Context, side: str, option: str, addresses: str) -> Client:
    return client_of(addresses, settings=side_arguments(context, side), option=option)


def _source(context: click.Context, source: str) -> Client | LogSource:
    """Return a client of a cluster, or the source in a log directory (a value with a slash). Raises BadParameter.

    A directory is identified by the cluster id in it, or else by its path.
    """
    folder = log_directory_or_none(source, "--from")
    if folder is None:
        return _client(context, "source", "--from", source)
    from magicbyte.engine.log.files.partitions import meta_properties
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.tools.mirror.log_source import LogSource
    from magicbyte.tools.offline.convert import partitions_to_convert

    partitions = partitions_to_convert([str(folder)]).values()
    for each in partitions:
        if each.dialect is Dialect.ENRICHED:
            raise MirrorError(f"{each.path}: enriched: its records are copied from a broker, or converted to v2 before")
    cluster = None if meta_properties(partitions) else f"directory {folder.resolve()}"
    return LogSource(partitions, cluster)


def _target(context: click.Context, target: str) -> Client | Path:
    """Return a client of a cluster, or a log directory (a value with a slash). Raises BadParameter."""
    return log_directory_or_none(target, "--to") or _client(context, "target", "--to", target)


@click.command(
    cls=_Mirror,
    examples=(
        "magicbyte mirror --from old:9092 --to new:9092 --topics orders --explain",
        "magicbyte mirror --from old:9092 --to new:9092 --topics orders --yes",
        "magicbyte mirror --from old:9092 --to ./copy --topics '.*' --until-caught-up",
    ),
)
@side_options("topics=REGEX")
@click.option("--from", "source", required=True, metavar="HOST:PORT|DIR", help="Brokers of the cluster to copy from, "
              "or a log directory of this machine, which is only read and copied once.")  # fmt: skip
@click.option("--to", "target", required=True, metavar="HOST:PORT|DIR", help="Brokers of the cluster to copy to, or a "
              "log directory of this machine: a name with a slash, such as ./copy.")  # fmt: skip
@click.option("--topics", required=True, callback=_pattern, metavar="REGEX", help="Topics whose full name matches.")
@click.option("--group", callback=_group, metavar="NAME", help="Consumer group at the target that stores the "
              "progress.  [default: magicbyte-mirror]")  # fmt: skip
@click.option("--prefix", default="", metavar="TEXT", help="Prefix of the topics' names at the target. "
              "Topics mirrored from there are left out.")  # fmt: skip
@click.option("--identical", is_flag=True, help="Keep offsets and bytes. Needs a magicbyte broker. "
              "A log directory gets them in any case.")  # fmt: skip
@click.option("--merge", is_flag=True, help="Also copy into topics that hold other records.")
@click.option("--on-oversize", type=click.Choice(["stop", "split", "park"]), default="stop", show_default=True,
              help="What to do with a set above the target's size limit.")  # fmt: skip
@click.option("--park", type=OutputPath(folder=True), metavar="DIR",
              help="Log directory for sets of --on-oversize=park.")  # fmt: skip
@click.option("--from-dialect", type=click.Choice(["kafka", "enriched"]), default="kafka", show_default=True,
              help="The dialect that the source's listener returns for enriched topics.")  # fmt: skip
@click.option("--to-dialect", type=click.Choice(["kafka", "enriched"]), default="kafka", show_default=True,
              help="The dialect that the target's listener accepts for enriched topics.")  # fmt: skip
@click.option("--sync-groups", is_flag=True, help="Also copy the offsets of the source's consumer "
              "groups that have no members at the target.")  # fmt: skip
@click.option("--transactional-id", metavar="ID", help="Write records and progress in transactions; their ids begin "
              "with ID. A mirror fences its predecessor when it starts.")  # fmt: skip
@click.option("--http", metavar="HOST:PORT", callback=_http,
              help="Serve metrics for Prometheus at this address, path /metrics.")  # fmt: skip
@click.option("--until-caught-up", is_flag=True, help="End at the offsets that the source has at the start.")
@click.option("--explain", is_flag=True, help="Print the plan for each topic, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before the first write into a cluster.")
@click.pass_context
def mirror(
    context: click.Context,
    source: str,
    target: str,
    topics: re.Pattern[str],
    group: str | None,
    prefix: str,
    identical: bool,
    merge: bool,
    on_oversize: str,
    park: Path | None,
    from_dialect: str,
    to_dialect: str,
    sync_groups: bool,
    transactional_id: str | None,
    http: tuple[str, int] | None,
    until_caught_up: bool,
    explain: bool,
    yes: bool,
) -> None:
    """Copy topics to another cluster, without decompression where possible.

    Before the first write it names the target and asks for confirmation. Missing topics are created at the target.
    Ctrl-C and SIGTERM end it cleanly, and the next start continues. A broker's address is HOST:PORT, or several
    separated by commas.

    "mirror translate" translates offsets and consumer groups of the source to the target.
    """
    from magicbyte.access.client import Client
    from magicbyte.engine.log.files.outputs import refuse_overlap
    from magicbyte.engine.records.layout import Dialect
    from magicbyte.tools.mirror.oversize import OnOversize
    from magicbyte.tools.mirror.plan import Choice
    from magicbyte.tools.mirror.progress import DEFAULT_GROUP

    if (on_oversize == OnOversize.PARK.value) != (park is not None):
        raise click.UsageError("--on-oversize=park and --park go together")
    choice = Choice(
        topics,
        DEFAULT_GROUP if group is None else group,
        prefix,
        OnOversize(on_oversize),
        park,
        Dialect(from_dialect),
        Dialect(to_dialect),
        merge=merge,
        identical=identical,
        sync_groups=sync_groups,
        transactional_id=transactional_id,
    )
    here, there = _source(context, source), _target(context, target)
    if sync_groups and (identical or isinstance(there, Path)):
        raise click.UsageError("--sync-groups: not with identical copies: their offsets are those of the source")
    if transactional_id is not None and (identical or isinstance(there, Path) or sync_groups or park is not None):
        raise click.UsageError(
            "--transactional-id: not with --identical, a log directory, --sync-groups or --on-oversize=park"
        )
    if not isinstance(here, Client):
        if sync_groups:
            raise click.UsageError("--sync-groups: not from a log directory; `magicbyte rescue` also brings its groups")
        if isinstance(there, Path):
            refuse_overlap(there, [str(Path(source).resolve())])
        until_caught_up = True  # no broker appends to a log directory
    asked = None if yes or isinstance(there, Path) else target
    asyncio.run(_run(here, there, choice, asked, until_caught_up=until_caught_up, explain=explain, http=http))


async def _run(
    source: Client | LogSource,
    target: Client | Path,
    choice: Choice,
    asked: str | None,
    *,
    until_caught_up: bool,
    explain: bool,
    http: tuple[str, int] | None,
) -> None:
    """Mirror, or explain. `asked`: the target's address, if the user must confirm the first write."""
    from magicbyte.tools.mirror.saving import Savings

    async with source, AsyncExitStack() as stack:
        if explain:
            planned = await _plan(source, target, choice, stack)
            for each in planned:
                say(each.explain())
            _check_some(planned, choice)
            return
        mirror = await _mirror(source, target, choice, stack)
        if asked is not None:
            assert not isinstance(target, Path), "a directory is not asked about"
            await _ask(asked, target, await mirror.plan())
        savings = Savings(source)
        if http is not None:
            await _serve(mirror, savings, http, stack)
        stops(mirror.stop)
        began = time.monotonic()
        try:
            async with _watching(mirror, savings, wanted=sys.stderr.isatty() or http is not None):
                await (mirror.catch_up() if until_caught_up else mirror.run())
        finally:
            copied = mirror.copied()
            saved = savings.seconds(copied)
            for topic, found in copied.items():
                say(f"{topic}: {line(found, time.monotonic() - began, saved.get(topic))}")
            if copied:
                say(total(copied.values()))
            for group, why in mirror.groups_left_out.items():
                say(f"group {group} is left out: {why}")
        if until_caught_up:
            _check_some(mirror.copied(), choice)


async def _ask(address: str, target: Client, planned: list[TopicMirrorPlan]) -> None:
    """Name the target and ask for confirmation before this mirror's first write to it. Raises Abort, UsageError."""
    from magicbyte.tools.mirror.plan import Mode

    wanted = [each for each in planned if each.mode is not Mode.LEFT_OUT]
    if not wanted or any(each.begun for each in wanted):
        return
    to = f"to {address}, cluster {target.cluster.cluster_id or 'without an ID'}, {many(len(wanted), 'topic')}"
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"{to}: this mirror has never written to this target: start it with --yes, or see its plan with --explain"
        )
    await confirm(f"{to}: begin to write?", err=True)


async def _plan(
    source: Client | LogSource, target: Client | Path, choice: Choice, stack: AsyncExitStack
) -> list[TopicMirrorPlan]:
    """Return the plan, without creating a log directory."""
    from magicbyte.tools.mirror.plan import plan_folder

    if isinstance(target, Path):
        return await plan_folder(source, target, choice)
    return await (await _mirror(source, target, choice, stack)).plan()


async def _mirror(source: Client | LogSource, target: Client | Path, choice: Choice, stack: AsyncExitStack) -> Rounds:
    """Return the mirror. Its resources at the target are released with the stack."""
    from magicbyte.tools.mirror.identical import IdenticalMirror
    from magicbyte.tools.mirror.log_target import LogTarget
    from magicbyte.tools.mirror.mirror import Mirror

    if isinstance(target, Path):
        return IdenticalMirror(source, stack.enter_context(LogTarget(target)), choice)
    await stack.enter_async_context(target)
    return (IdenticalMirror if choice.identical else Mirror)(source, target, choice)


async def _serve(mirror: Rounds, savings: Savings, address: tuple[str, int], stack: AsyncExitStack) -> None:
    """Serve the mirror's metrics until the stack is closed."""
    from magicbyte.access.net.descriptors import for_pages, limit
    from magicbyte.access.net.exposition import metrics_page
    from magicbyte.access.net.http import Pages
    from magicbyte.tools.mirror.metrics import families

    def collected() -> list[Family]:
        copied = mirror.copied()
        return families(copied, savings.seconds(copied))

    pages = Pages({"/metrics": metrics_page(collected)}, for_pages(limit()))
    port = await pages.listen(*address)
    stack.push_async_callback(pages.aclose)
    say(f"metrics at http://{address[0]}:{port}/metrics")


def _check_some(found: Sized, choice: Choice) -> None:
    """Raise an error if no topic matches. A run without an end waits for one."""
    if not found:
        raise UnknownTopicError(
            f"--topics {choice.topics.pattern!r}: expected matching topics at the source, found none"
        )


async def _watch(mirror: Rounds, savings: Savings) -> None:
    """Show the state of the topics on a terminal, each second, and sample the savings from time to time."""
    looked = time.monotonic()
    with display() if sys.stderr.isatty() else contextlib.nullcontext() as shown:
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            copied = mirror.copied()
            if shown is not None and mirror.stop.is_set():
                say("stopping after the sets in progress; press Ctrl-C again to stop at once", err=True)
                return
            if shown is not None and copied:
                shown.show(copied, savings.seconds(copied), time.monotonic())
            if time.monotonic() - looked >= _LOOK_SECONDS or len(savings.seconds(copied)) < len(copied):
                with contextlib.suppress(MagicbyteError):  # the copiers have the same error, and report it
                    await savings.look(mirror.planned, copied)
                looked = time.monotonic()


@contextlib.asynccontextmanager
async def _watching(mirror: Rounds, savings: Savings, *, wanted: bool) -> AsyncIterator[None]:
    """Watch the mirror inside the block, if `wanted`."""
    task = asyncio.create_task(_watch(mirror, savings)) if wanted else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
