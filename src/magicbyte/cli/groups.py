"""`magicbyte groups`: which consumer groups a cluster has, how far they are, and where they go on."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import click

from magicbyte.cli.cluster import bootstrap_option, client_of, format_option
from magicbyte.cli.output import complain, say, say_json, say_text
from magicbyte.cli.render import many, table_lines
from magicbyte.errors import BrokerError, ErrorCode, UnknownTopicError, UnsupportedVersionError
from magicbyte.log.files.units import parse_time
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.client import Client
    from magicbyte.client.group_admin import DescribedGroup, GroupMember
    from magicbyte.client.groups import Committed, TopicPartition

Json = dict[str, Any]
Kind = Literal["earliest", "latest", "offset", "datetime", "shift"]

NO_LIST: Final = "brokers from 0.9 on can do it; groups of older ones are known to ZooKeeper alone"
NO_DELETE: Final = "brokers from 1.1 on can do it; offsets of older ones go when they expire"
EVERY: Final = "brokers from 0.8.2 on can do it"
OTHER_KINDS: Final = ("share", "streams")
_TIMES_KNOWN: Final = 1  # the first version of ListOffsets that looks at the times of records
_DELETE, _LIST_OFFSETS = 42, 2  # API keys


@click.group(invoke_without_command=True)
@click.pass_context
def groups(context: click.Context) -> None:
    """List, describe and delete consumer groups, and set their offsets; brokers may be of 0.8.2 to 4.x."""
    if context.invoked_subcommand is None:
        say_text(context.get_help())


# ---- list


@groups.command("list")
@bootstrap_option
@format_option
def list_(bootstrap: str, form: str) -> None:
    """List groups with their kind and state.

    Brokers from 2.6 on tell the state, those from 3.8 on the kind. Needs brokers from 0.9 on.
    """
    found = asyncio.run(_listed(bootstrap))
    if form == "json":
        say_json(found)
        return
    rows = [["group", "for", "kind", "state"]]
    rows += [[_shown(each[name]) for name in ("group", "protocolType", "kind", "state")] for each in found]
    say(*table_lines(rows, left={0, 1, 2, 3}))


async def _listed(bootstrap: str) -> list[Json]:
    from magicbyte.client.group_admin import list_groups

    with explained("list groups", NO_LIST):
        async with client_of(bootstrap) as client:
            return [
                {"group": each.name, "protocolType": each.protocol_type, "kind": each.kind, "state": each.state}
                for each in await list_groups(client)
            ]


# ---- describe


@dataclass(slots=True)
class _Group:
    """What is known of a group. `described` is None where brokers know no members: before 0.9."""

    name: str
    described: DescribedGroup | None
    offsets: dict[TopicPartition, Committed]
    in_zookeeper: dict[TopicPartition, Committed] = field(default_factory=dict)

    @property
    def members(self) -> tuple[GroupMember, ...]:
        return () if self.described is None else self.described.members


@groups.command()
@bootstrap_option
@click.argument("names", nargs=-1, metavar="GROUP...")
@click.option("--all-groups", is_flag=True, help="Every group that `list` shows. Needs brokers from 0.9 on.")
@click.option("--zookeeper", is_flag=True, help="Look for offsets in ZooKeeper even of groups that have some in Kafka.")
@format_option
def describe(bootstrap: str, names: tuple[str, ...], all_groups: bool, zookeeper: bool, form: str) -> None:
    """Show offsets, lag and members of groups.

    For each partition: how far the group is, how much lies before it, and which member reads it. Offsets that old
    consumers keep in ZooKeeper are shown as such, where the brokers are before 4.0; their members are known to nobody
    but ZooKeeper.
    """
    if all_groups == bool(names):
        raise click.UsageError("expected GROUP..., or --all-groups")
    found = asyncio.run(_described(bootstrap, None if all_groups else names, zookeeper=zookeeper))
    if form == "json":
        say_json(found)
        return
    for at, each in enumerate(found):
        say(*([""] if at else []), *_text(each))


async def _described(bootstrap: str, names: tuple[str, ...] | None, *, zookeeper: bool) -> list[Json]:
    """Return what is known of groups, all of them if `names` is None."""
    with explained("describe groups", NO_LIST if names is None else EVERY):
        async with client_of(bootstrap) as client:
            if names is None:
                found = await _find_all(client, zookeeper=zookeeper)
            else:
                found = [await _find(client, name, zookeeper=zookeeper) for name in names]
            return [await _group_json(client, each) for each in found]


async def _find_all(client: Client, *, zookeeper: bool) -> list[_Group]:
    """Return all groups that there are, but for kinds that are not known, which are said."""
    from magicbyte.client.group_admin import list_groups

    found = []
    for each in await list_groups(client):
        if each.kind in OTHER_KINDS:
            complain(f"warning: {each.name} is a {each.kind} group, which this command does not know")
            continue
        try:
            found.append(await _find(client, each.name, zookeeper=zookeeper))
        except BrokerError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:  # it has gone meanwhile
                raise
    return found


async def _find(client: Client, name: str, *, zookeeper: bool = False) -> _Group:
    """Return a group. Raises BrokerError, GROUP_ID_NOT_FOUND, for one that has neither members nor offsets.

    The brokers look in ZooKeeper partition by partition: only if they must, or if `zookeeper` says so.
    """
    from magicbyte.client.group_admin import describe_group
    from magicbyte.client.groups import committed_offsets, zookeeper_offsets

    try:
        described = await describe_group(client, name)
    except UnsupportedVersionError:
        described = None
    group = _Group(name, described, await committed_offsets(client, name, None))
    if zookeeper or not group.offsets:
        group.in_zookeeper = await zookeeper_offsets(client, name)
    if not (group.offsets or group.in_zookeeper or (described is not None and described.is_known)):
        await _not_found(client, name)
    return group


async def _not_found(client: Client, name: str) -> NoReturn:
    from magicbyte.client.group_admin import list_groups

    try:
        known = {each.name: each.kind for each in await list_groups(client)}
    except UnsupportedVersionError:
        detail = "it has committed nothing, and brokers of this age know no more of groups"
    else:
        near = difflib.get_close_matches(name, known, 3)
        detail = f"is it {' or '.join(map(repr, near))}?" if near else f"none of {len(known)} there is like it"
        if (kind := known.get(name)) in OTHER_KINDS:
            detail = f"it is a {kind} group, which this command does not know; Kafka's own tools do"
    raise BrokerError(f"group {name!r}", ErrorCode.GROUP_ID_NOT_FOUND, broker="the cluster", detail=detail)


async def _group_json(client: Client, group: _Group) -> Json:
    described = group.described
    readers = {place: member for member in group.members for place in member.partitions}
    places = sorted(group.offsets.keys() | group.in_zookeeper.keys() | readers.keys())
    ends = await _ends(client, places)
    rows = []
    for place in places:
        for kept, offsets in (("kafka", group.offsets), ("zookeeper", group.in_zookeeper)):
            if place in offsets or (kept == "kafka" and place not in group.in_zookeeper):
                rows.append(_place_json(place, kept, offsets.get(place), ends[place], readers.get(place)))
    return {
        "group": group.name,
        "state": None if described is None else described.state,
        "kind": None if described is None else described.kind,
        "protocolType": None if described is None else described.protocol_type,
        "assignor": None if described is None else described.assignor,
        "coordinator": None if described is None else described.coordinator.id,
        "members": [
            {
                "id": each.id,
                "instanceId": each.instance_id,
                "clientId": each.client_id,
                "host": each.host,
                "partitions": [f"{topic}-{index}" for topic, index in each.partitions],
            }
            for each in group.members
        ],
        "partitions": rows,
    }


async def _ends(client: Client, places: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
    """Return the end of each partition, None for those that are gone or have no leader: nobody can say."""
    from magicbyte.client.offsets import LATEST, list_offset

    known = await client.topics()
    found: dict[TopicPartition, int | None] = {}
    for topic, index in places:
        partition = known[topic].partitions.get(index) if topic in known else None
        leads = partition is not None and partition.leader in client.cluster.brokers
        found[topic, index] = (await list_offset(client, topic, index, LATEST)).offset if leads else None
    return found


def _place_json(
    place: TopicPartition, kept: str, committed: Committed | None, end: int | None, member: GroupMember | None
) -> Json:
    offset = None if committed is None else committed.offset
    return {
        "topic": place[0],
        "partition": place[1],
        "offset": offset,
        "end": end,
        "lag": None if offset is None or end is None else max(end - offset, 0),
        "metadata": None if committed is None else committed.metadata,
        "keptIn": kept,
        "member": None if member is None or kept == "zookeeper" else member.id,
    }


def _text(group: Json) -> list[str]:
    rows = [["partition", "offset", "end", "lag", "member", "client", "host"]]
    members = {each["id"]: each for each in group["members"]}
    for each in group["partitions"]:
        member = members.get(each["member"], {})
        numbers = [_shown(each[name]) for name in ("offset", "end", "lag")]
        who = "(ZooKeeper)" if each["keptIn"] == "zookeeper" else _shown(member.get("id"))
        rows.append([_name(each), *numbers, who, _shown(member.get("clientId")), _shown(member.get("host"))])
    idle = [each for each in group["members"] if not each["partitions"]]
    rows += [["-", "-", "-", "-", each["id"], each["clientId"], each["host"]] for each in idle]
    return [_title(group), *table_lines(rows, left={0, 4, 5, 6})]


def _title(group: Json) -> str:
    if group["state"] is None:
        facts = "offsets only: brokers before 0.9 know no members"
    else:
        facts = f"{group['state']}, {many(len(group['members']), 'member')}"
        facts += f", {group['assignor']}" if group["assignor"] else ""
        facts += f", coordinator {group['coordinator']}"
    if any(each["keptIn"] == "zookeeper" for each in group["partitions"]):
        facts += "; with offsets in ZooKeeper, of consumers whose members only ZooKeeper knows"
    return f"{group['group']}: {facts}"


def _name(place: Json) -> str:
    return f"{place['topic']}-{place['partition']}"


def _shown(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


# ---- delete


@groups.command()
@bootstrap_option
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
def delete(bootstrap: str, names: tuple[str, ...]) -> None:
    """Delete groups that have no members, with all their offsets.

    None is deleted if one of those named is not there or has members. Needs brokers from 1.1 on.
    """
    asyncio.run(_delete(bootstrap, names))


async def _delete(bootstrap: str, names: tuple[str, ...]) -> None:
    from magicbyte.client.group_admin import delete_group
    from magicbyte.protocol import APIS

    with explained(f"delete group {', '.join(names)}", NO_DELETE):
        async with client_of(bootstrap) as client:
            connection = await client.any_connection()
            connection.versions.choose(APIS[_DELETE], None, connection.name)
            for name in names:
                _check_empty(await _find(client, name), "delete group")
            for name in names:
                await delete_group(client, name)


def _check_empty(group: _Group, task: str) -> None:
    """Raise BrokerError, NON_EMPTY_GROUP, for a group that has members."""
    if group.members:
        clients = ", ".join(sorted({f"{each.client_id} at {each.host.lstrip('/')}" for each in group.members}))
        detail = f"{many(len(group.members), 'member')} ({clients}): stop these consumers first"
        raise BrokerError(f"{task} {group.name}", ErrorCode.NON_EMPTY_GROUP, broker="the cluster", detail=detail)


# ---- reset-offsets


@dataclass(frozen=True, slots=True)
class Target:
    """Where a group is to go on: `number` is an offset, a time in ms, or how many records further on."""

    kind: Kind
    number: int = 0


def _topic(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, list[int]]:
    """Return the partitions of each TOPIC or TOPIC:N,N, none for all: a callback."""
    found: dict[str, list[int]] = {}
    for value in values:
        topic, colon, numbers = value.partition(":")
        try:
            found.setdefault(topic, []).extend(int(each) for each in numbers.split(",") if colon)
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: expected TOPIC or TOPIC:N,N…") from error
    return found


def _time(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_time(value)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{value!r}: expected a time such as 2024-01-31T12:00:00Z, or ms") from error


@groups.command("reset-offsets")
@bootstrap_option
@click.argument("name", metavar="GROUP")
@click.option("-t", "--topic", "topics", multiple=True, callback=_topic, metavar="TOPIC[:N,…]",
              help="Only this topic, or these partitions of it, which the group need not have read. "
              "Can be given several times.  [default: all that the group has offsets for]")  # fmt: skip
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="Behind the last record.")
@click.option("--to-offset", type=click.IntRange(0), metavar="OFFSET", help="To an offset.")
@click.option("--to-datetime", callback=_time, metavar="TIME",
              help="To the first record of this time or later: ISO 8601 (UTC if it does not say), or ms.")  # fmt: skip
@click.option("--shift-by", type=int, metavar="N", help="N records on from where the group is; back if negative.")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--zookeeper", is_flag=True, help="The offsets that old consumers keep in ZooKeeper.")
@format_option
def reset_offsets(
    bootstrap: str,
    name: str,
    topics: dict[str, list[int]],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: int | None,
    shift_by: int | None,
    dry_run: bool,
    zookeeper: bool,
    form: str,
) -> None:
    """Let a group that has no members go on somewhere else.

    What lies outside a partition becomes its first offset or the one behind its last record, and is said.
    """
    asked = {"earliest": to_earliest or None, "latest": to_latest or None, "offset": to_offset,
             "datetime": to_datetime, "shift": shift_by}  # fmt: skip
    given: list[tuple[Any, int]] = [(kind, int(number)) for kind, number in asked.items() if number is not None]
    if len(given) != 1:
        every = "--to-earliest, --to-latest, --to-offset, --to-datetime and --shift-by"
        raise click.UsageError(f"expected one of {every}, found {len(given)}")
    rows = asyncio.run(_reset(bootstrap, name, topics, Target(*given[0]), dry_run=dry_run, zookeeper=zookeeper))
    if form == "json":
        say_json({"group": name, "dryRun": dry_run, "partitions": rows})
        return
    table = [["partition", "was", "is" if not dry_run else "would be", "start", "end", "lag"]]
    table += [[_name(each), *(_shown(each[key]) for key in ("was", "offset", "start", "end", "lag"))] for each in rows]
    say(*table_lines(table, left={0}))


async def _reset(
    bootstrap: str, name: str, topics: dict[str, list[int]], target: Target, *, dry_run: bool, zookeeper: bool
) -> list[Json]:
    from magicbyte.client.groups import Committed, commit_offsets

    task = f"reset offsets of group {name}"
    with explained(task, "those of 4.0 and later have no ZooKeeper" if zookeeper else EVERY):
        async with client_of(bootstrap) as client:
            group = await _group_to_reset(client, name, wanted=bool(topics), zookeeper=zookeeper)
            _check_empty(group, "reset offsets of group")
            if group.in_zookeeper and not group.offsets and not zookeeper:
                detail = "its offsets are in ZooKeeper, where its consumers look: add --zookeeper"
                raise BrokerError(task, ErrorCode.INVALID_REQUEST, broker="the cluster", detail=detail)
            was = group.in_zookeeper if zookeeper else group.offsets
            places = await _chosen(client, topics) if topics else sorted(was)
            if not places:
                detail = "it has no offsets: name topics with -t"
                raise BrokerError(task, ErrorCode.INVALID_REQUEST, broker="the cluster", detail=detail)
            await _warn_of_times(client, target)
            rows = [await _row(client, place, was.get(place), target) for place in places]
            if not dry_run:
                offsets = {(each["topic"], each["partition"]): Committed(each["offset"]) for each in rows}
                await commit_offsets(client, name, offsets, zookeeper=zookeeper)
            return rows


async def _group_to_reset(client: Client, name: str, *, wanted: bool, zookeeper: bool) -> _Group:
    """Return a group; one that is not there is made by its first offsets if topics are named (`wanted`)."""
    try:
        return await _find(client, name, zookeeper=zookeeper)
    except BrokerError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND and wanted:
            return _Group(name, None, {})
        raise


async def _chosen(client: Client, topics: dict[str, list[int]]) -> list[TopicPartition]:
    """Return the partitions that were named. Raises UnknownTopicError."""
    found: list[TopicPartition] = []
    for topic, numbers in topics.items():
        known = sorted((await client.existing_topic(topic)).partitions)
        for each in numbers:
            if each not in known:
                raise UnknownTopicError(f"partition {each} of {topic!r}: expected one of 0 to {len(known) - 1}")
        found += [(topic, each) for each in sorted(set(numbers)) or known]
    return found


async def _warn_of_times(client: Client, target: Target) -> None:
    from magicbyte.protocol import APIS

    connection = await client.any_connection()
    latest = connection.versions.latest(APIS[_LIST_OFFSETS])
    if target.kind == "datetime" and latest is not None and latest < _TIMES_KNOWN:
        complain("warning: brokers before 0.10.1 know no times of records: the start of a segment is taken")


async def _row(client: Client, place: TopicPartition, was: Committed | None, target: Target) -> Json:
    from magicbyte.client.offsets import bounds, list_offset

    start, end = await bounds(client, *place)
    match target.kind:
        case "earliest":
            wanted = start
        case "latest":
            wanted = end
        case "offset":
            wanted = target.number
        case "shift":
            if was is None:
                raise UnknownTopicError(f"{place[0]}-{place[1]}: the group has no offset there to go on from")
            wanted = was.offset + target.number
        case "datetime":
            found = (await list_offset(client, *place, target.number)).offset
            wanted = end if found is None else found
    offset = min(max(wanted, start), end)
    if offset != wanted:
        complain(f"warning: {place[0]}-{place[1]}: {wanted} is not within {start} to {end}: {offset} is taken")
    before = None if was is None else was.offset
    return {"topic": place[0], "partition": place[1], "was": before, "offset": offset, "start": start, "end": end,
            "lag": end - offset}  # fmt: skip
