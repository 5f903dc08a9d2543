"""`magicbyte topics reassign`: move partitions to other brokers, by Kafka's JSON file or a balanced plan."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from magicbyte.cli.base import Command
from magicbyte.cli.brokers import bootstrap_option, client_of
from magicbyte.cli.options import format_option, size
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.render import many, size_text, table_lines
from magicbyte.engine.log.files.filesystem import read_regular
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from collections.abc import Iterable

    from magicbyte.access.client import Client
    from magicbyte.access.client.reassignment import Assignment, Move, ReassignmentProgress
    from magicbyte.engine.ports import TopicPartition

TOO_OLD: Final = (
    "brokers from 2.4 on can do it; older ones do it through ZooKeeper, with kafka-reassign-partitions of their "
    "release, which takes the file that `--format json` prints here"
)
_UNFINISHED: Final = 1  # exit status


def _names(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in (value or "").split(",") if name.strip()))


def _ids(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    names = _names(context, parameter, value)
    for each in names:
        if not each.isdecimal():
            raise click.BadParameter(f"{each!r}: expected broker ids with commas, such as 1,2,3")
    return tuple(map(int, names))


def _rate(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else size(context, parameter, value)


@click.command(
    cls=Command,
    examples=(
        "magicbyte topics reassign -b localhost:9092 --topics orders --brokers 1,2",
        "magicbyte topics reassign -b localhost:9092 --topics orders --json > plan.json",
        "magicbyte topics reassign -b localhost:9092 --plan plan.json --execute",
        "magicbyte topics reassign -b localhost:9092 --plan plan.json --wait",
        "magicbyte topics reassign -b localhost:9092 --plan plan.json --cancel",
    ),
)
@bootstrap_option
@click.option("--plan", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="The replicas of each partition, in the JSON of kafka-reassign-partitions.")  # fmt: skip
@click.option("--topics", callback=_names, metavar="T1,T2,…",
              help="Plan an even distribution of these topics, with as few moves as possible.")  # fmt: skip
@click.option("--brokers", callback=_ids, metavar="1,2,…",
              help="The brokers that the plan for --topics may use. [default: all live brokers]")  # fmt: skip
@click.option("--replicas", type=click.IntRange(1), metavar="N",
              help="The number of replicas in the plan for --topics. [default: the present one]")  # fmt: skip
@click.option("--execute", is_flag=True,
              help="Start the moves, and print the present assignment: the plan that undoes them.")  # fmt: skip
@click.option("--wait", is_flag=True, help="Follow the moves until they have ended; with --execute or later.")
@click.option("--verify", is_flag=True, help="Show the progress of the moves, once.")
@click.option("--cancel", is_flag=True, help="Cancel the moves under way: partitions keep the replicas they had.")
@click.option("--throttle", callback=_rate, metavar="SIZE",
              help="With --execute: bytes per second that each broker may send, and receive, for moves.")  # fmt: skip
@click.option("--keep-throttle", is_flag=True, help="Keep throttles after the moves have ended.")
@format_option
def reassign(
    bootstrap: str,
    path: Path | None,
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    replicas: int | None,
    execute: bool,
    wait: bool,
    verify: bool,
    cancel: bool,
    throttle: int | None,
    keep_throttle: bool,
    form: str,
) -> None:
    """Move partitions to other brokers. Without --execute the plan is only shown.

    A throttle is a setting of topics and brokers, as with Kafka's own tool. --wait, --verify and --cancel remove it
    once the moves have ended.

    --format json prints the plan as the file that --plan and kafka-reassign-partitions read. With --wait, --verify and
    --cancel, --topics alone means the ongoing moves of these topics. With --execute and --wait it prints two lines: the
    present assignment before the moves, and their state at the end. --cancel prints a line for each move that it ended.

    Exit status: 0; 1 if --wait or --verify found a partition without the replicas of the plan; 2 if nothing could be
    done. Needs brokers from 2.4 on, except for making a plan.
    """
    _check(path, topics, brokers, replicas, execute, wait, verify, cancel, throttle)
    plan = None if path is None else _read(path)
    task = _Task(bootstrap, plan, topics, brokers, replicas, throttle, form, keeps_throttle=keep_throttle)
    if cancel:
        work = task.cancel()
    elif execute:
        work = task.execute(waits=wait)
    elif wait or verify:
        work = task.follow(waits=wait)
    else:
        work = task.show()
    click.get_current_context().exit(asyncio.run(work))


def _check(
    path: Path | None,
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    replicas: int | None,
    execute: bool,
    wait: bool,
    verify: bool,
    cancel: bool,
    throttle: int | None,
) -> None:
    """Raise UsageError for options that contradict each other."""
    if (path is None) == (not topics):
        raise click.UsageError("expected either --plan FILE or --topics T1,T2,…")
    if path is not None and (brokers or replicas):
        raise click.UsageError("--brokers and --replicas are for a plan made for --topics; --plan FILE has its own")
    if cancel + verify + (execute or wait) > 1:
        raise click.UsageError("expected one of --execute, --verify and --cancel; --wait goes with --execute or alone")
    if not execute and (cancel or verify or wait) and (brokers or replicas):
        raise click.UsageError("--brokers and --replicas are for a new plan, not for moves under way")
    if throttle is not None and not execute:
        raise click.UsageError("--throttle goes with --execute")


def _read(path: Path) -> Assignment:
    from magicbyte.access.client.reassignment import parse_plan

    return parse_plan(read_regular(path))


class _Task:
    """One run of the command against a cluster. Its coroutines return the exit status."""

    def __init__(
        self,
        bootstrap: str,
        plan: Assignment | None,
        topics: tuple[str, ...],
        brokers: tuple[int, ...],
        replicas: int | None,
        throttle: int | None,
        form: str,
        *,
        keeps_throttle: bool,
    ) -> None:
        self._bootstrap, self._plan, self._topics = bootstrap, plan, topics
        self._brokers, self._replicas = brokers, replicas
        self._throttle, self._form, self._keeps_throttle = throttle, form, keeps_throttle

    async def show(self) -> int:
        with explained("plan a reassignment", TOO_OLD):
            async with client_of(self._bootstrap) as client:
                moves = await self._moves(client)
                if self._form == "json":
                    _say_plan({each.partition: each.target for each in moves})
                    return 0
                changed = [each for each in moves if each.current != each.target]
                rows = [["partition", "now", "planned", "copies to", "deletes from"]]
                rows += [
                    [str(each.partition), *map(_brokers_text, (each.current, each.target, each.adding, each.removing))]
                    for each in changed
                ]
                if changed:
                    say(*table_lines(rows, left={0, 1, 2, 3, 4}))
                say(await _summary(client, moves, changed), err=True)
        return 0

    async def execute(self, *, waits: bool) -> int:
        from magicbyte.access.client.reassignment import throttle
        from magicbyte.access.client.replicas import alter_reassignments

        with explained("reassign partitions", TOO_OLD):
            async with client_of(self._bootstrap) as client:
                await _check_age(client)
                moves = await self._moves(client)
                _say_plan({each.partition: each.current for each in moves}, indent=None)
                if self._throttle is not None:
                    await throttle(client, moves, self._throttle)
                outcomes = await alter_reassignments(client, {each.partition: each.target for each in moves})
                refused = {each.partition: each.error for each in outcomes if each.error is not None}
                for error in refused.values():
                    complain(error)
                target = {each.partition: each.target for each in moves if each.partition not in refused}
                say(f"{len(target)} of {many(len(moves), 'partition')} reassigned: the brokers copy now", err=True)
                if not target and self._throttle is not None:
                    await self._unthrottle(client, [each.partition for each in moves])
                status = await self._follow(client, target, indent=None) if target and waits else 0
        return 2 if refused else status

    async def follow(self, *, waits: bool) -> int:
        with explained("follow reassignments", TOO_OLD):
            async with client_of(self._bootstrap) as client:
                await _check_age(client)
                return await self._follow(client, await self._target(client), waits=waits)

    async def cancel(self) -> int:
        from magicbyte.access.client.reassignment import row_of
        from magicbyte.access.client.replicas import alter_reassignments, list_reassignments

        with explained("cancel reassignments", TOO_OLD):
            async with client_of(self._bootstrap) as client:
                await _check_age(client)
                target = await self._target(client)
                moving = await list_reassignments(client, target) if target else {}
                outcomes = await alter_reassignments(client, dict.fromkeys(moving)) if moving else []
                failed = {each.partition: each.error for each in outcomes if each.error is not None}
                for error in failed.values():
                    complain(error)
                if self._form == "json":
                    for partition in sorted(moving.keys() - failed.keys()):
                        move = moving[partition]
                        say_json(row_of(partition, "cancelled", move.replicas, move.target), indent=None)
                say(f"{many(len(moving) - len(failed), 'move')} cancelled", err=True)
                if not failed and not self._keeps_throttle:
                    await self._unthrottle(client, target)
        return 2 if failed else 0

    async def _moves(self, client: Client) -> list[Move]:
        """Return the moves of the given plan, or of a new one."""
        from magicbyte.access.client.reassignment import assignment_of, check_brokers, moves_of
        from magicbyte.engine.replication.balance import balance

        if self._plan is not None:
            return await moves_of(client, self._plan)
        current = await assignment_of(client, self._topics)
        brokers = self._brokers or tuple(client.cluster.brokers)
        check_brokers(client, brokers)
        return await moves_of(client, balance(current, brokers, self._replicas))

    async def _target(self, client: Client) -> Assignment:
        """Return the target of the plan, or the ongoing moves of the topics."""
        from magicbyte.access.client.reassignment import moves_of
        from magicbyte.access.client.replicas import list_reassignments

        if self._plan is not None:
            return {each.partition: each.target for each in await moves_of(client, self._plan)}
        for topic in self._topics:
            await client.existing_topic(topic)
        return {
            each: move.target for each, move in (await list_reassignments(client)).items() if each.topic in self._topics
        }

    async def _follow(self, client: Client, target: Assignment, *, waits: bool = True, indent: int | None = 2) -> int:
        from magicbyte.access.client.reassignment import follow, progress_of

        lines = _Lines()
        progress = await follow(client, target, lines.show) if waits else await progress_of(client, target)
        if self._form == "json":
            say_json(progress.to_json(target), indent=indent)
        else:
            rows = [["partition", "state", "replicas", "planned"]]
            rows += [[str(each), "complete", _brokers_text(target[each]), "-"] for each in progress.completed]
            rows += [
                [str(each), "moving", _brokers_text(move.replicas), _brokers_text(move.target)]
                for each, move in sorted(progress.moving.items())
            ]
            rows += [
                [str(each), "not as planned", _brokers_text(replicas), _brokers_text(target[each])]
                for each, replicas in sorted(progress.differing.items())
            ]
            say(*table_lines(rows, left={0, 1, 2, 3}))
            if not waits:
                say(_progress_text(progress), err=True)
        if not progress.moving and not self._keeps_throttle:
            await self._unthrottle(client, target)
        return _UNFINISHED if progress.moving or progress.differing else 0

    async def _unthrottle(self, client: Client, target: Iterable[TopicPartition]) -> None:
        from magicbyte.access.client.reassignment import unthrottle

        if await unthrottle(client, {each.topic for each in target} | set(self._topics)):
            say("throttle removed", err=True)


async def _check_age(client: Client) -> None:
    """Raise UnsupportedVersionError for old brokers, before anything is changed."""
    from magicbyte.engine.protocol import APIS

    connection = await client.any_connection()
    connection.versions.choose(APIS[ApiKey.ALTER_PARTITION_REASSIGNMENTS], None, connection.name)


def _say_plan(assignment: Assignment, *, indent: int | None = 2) -> None:
    from magicbyte.access.client.reassignment import dump_plan

    say_json(dump_plan(assignment), indent=indent)


def _brokers_text(replicas: tuple[int, ...]) -> str:
    return ",".join(map(str, replicas)) or "-"


async def _summary(client: Client, moves: list[Move], changed: list[Move]) -> str:
    """Print how much a plan moves, with bytes if brokers report sizes."""
    if not changed:
        return f"nothing to move: {many(len(moves), 'partition')} as planned"
    from magicbyte.access.client.reassignment import sizes_of
    from magicbyte.engine.protocol import APIS

    copies = sum(len(each.adding) for each in changed)
    summary = f"{len(changed)} of {many(len(moves), 'partition')} change, {many(copies, 'replica')} to copy"
    connection = await client.any_connection()
    if copies and connection.versions.latest(APIS[ApiKey.DESCRIBE_LOG_DIRS]) is not None:
        sizes = await sizes_of(client, [each.partition for each in changed])
        whole = {
            each: max((sizes.get((each.partition, broker), 0) for broker in each.current), default=0)
            for each in changed
        }
        summary += f" ({size_text(sum(len(each.adding) * whole[each] for each in changed))})"
    return f"{summary}; --execute does it"


def _progress_text(found: ReassignmentProgress) -> str:
    count = len(found.completed) + len(found.moving) + len(found.differing)
    summary = f"{len(found.completed)} of {many(count, 'partition')} complete"
    if found.moving:
        summary += f", {len(found.moving)} moving: {size_text(found.copied)} of {size_text(found.to_copy)} copied"
    return summary


class _Lines:
    """Prints the progress of moves to stderr, a line per change."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, found: ReassignmentProgress) -> None:
        text = _progress_text(found)
        if text != self._last:
            self._last = text
            say(text, err=True)
