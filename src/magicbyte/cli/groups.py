"""`magicbyte groups`: list, describe, delete and reset the consumer groups of a cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

from magicbyte.cli.base import CommandGroup
from magicbyte.cli.brokers import bootstrap_option, connected
from magicbyte.cli.options import format_option
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.render import many, table_lines
from magicbyte.engine.log.files.units import parse_time
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.access.client.group_report import Kind

Json = dict[str, Any]

NO_LIST: Final = "brokers from 0.9 on can do it; groups of older ones are in ZooKeeper only"
NO_DELETE: Final = "brokers from 1.1 on can do it; offsets of older ones go when they expire"
EVERY: Final = "brokers from 0.8.2 on can do it"


@click.group(cls=CommandGroup)
def groups() -> None:
    """List, describe and delete consumer groups, and set their offsets. Works with brokers of 0.8.2 to 4.x."""


# ---- list


@groups.command("list", examples=("magicbyte groups list -b localhost:9092",))
@bootstrap_option
@format_option
def list_(bootstrap: str, form: str) -> None:
    """List groups with their kind and state.

    Brokers from 2.6 on return the state, those from 3.8 on the kind. Needs brokers from 0.9 on.
    """
    found = asyncio.run(_listed(bootstrap))
    if form == "json":
        say_json(found)
        return
    rows = [["group", "for", "kind", "state"]]
    rows += [[_shown(each[name]) for name in ("group", "protocolType", "kind", "state")] for each in found]
    say(*table_lines(rows, left={0, 1, 2, 3}))


async def _listed(bootstrap: str) -> list[Json]:
    from magicbyte.access.client.group_admin import list_groups

    with explained("list groups", NO_LIST):
        async with connected(bootstrap) as client:
            listed = await list_groups(client)
    if listed.hidden:
        _warn(listed.warning)
    return [each.to_json() for each in listed.groups]


# ---- describe


@groups.command(
    examples=(
        "magicbyte groups describe -b localhost:9092 readers",
        "magicbyte groups describe -b localhost:9092 --all-groups --json",
    )
)
@bootstrap_option
@click.argument("names", nargs=-1, metavar="GROUP...")
@click.option("--all-groups", is_flag=True, help="Every group that `list` shows. Needs brokers from 0.9 on.")
@click.option("--zookeeper", is_flag=True, help="Also read offsets in ZooKeeper for groups that have offsets in Kafka.")
@format_option
def describe(bootstrap: str, names: tuple[str, ...], all_groups: bool, zookeeper: bool, form: str) -> None:
    """Show offsets, lag and members of groups.

    For each partition: committed offset, lag, and the member that reads it. Offsets that old consumers store in
    ZooKeeper are marked; brokers before 4.0 return them. Their members are registered in ZooKeeper only.
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
    """Return the descriptions of groups, of all if `names` is None."""
    from magicbyte.access.client.group_report import find_group, find_groups, report_of

    with explained("describe groups", NO_LIST if names is None else EVERY):
        async with connected(bootstrap) as client:
            if names is None:
                found = await find_groups(client, zookeeper=zookeeper, warn=_warn)
            else:
                found = [await find_group(client, name, zookeeper=zookeeper) for name in names]
            return [(await report_of(client, each)).to_json() for each in found]


def _warn(line: str) -> None:
    complain(f"warning: {line}")


def _text(group: Json) -> list[str]:
    rows = [["partition", "offset", "end", "lag", "member", "client", "host"]]
    members = {each["id"]: each for each in group["members"] or ()}
    for each in group["partitions"]:
        member = members.get(each["member"], {})
        numbers = [_shown(each[name]) for name in ("offset", "end", "lag")]
        who = "(ZooKeeper)" if each["keptIn"] == "zookeeper" else _shown(member.get("id"))
        rows.append([_name(each), *numbers, who, _shown(member.get("clientId")), _shown(member.get("host"))])
    idle = [each for each in members.values() if not each["partitions"]]
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


@groups.command(examples=("magicbyte groups delete -b localhost:9092 readers",))
@bootstrap_option
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
def delete(bootstrap: str, names: tuple[str, ...]) -> None:
    """Delete groups that have no members, with all their offsets.

    Nothing is deleted if any of the groups does not exist or has members. Needs brokers from 1.1 on.
    """
    asyncio.run(_delete(bootstrap, names))


async def _delete(bootstrap: str, names: tuple[str, ...]) -> None:
    from magicbyte.access.client.group_admin import delete_group
    from magicbyte.access.client.group_report import find_group
    from magicbyte.engine.protocol import APIS

    with explained(f"delete group {', '.join(names)}", NO_DELETE):
        async with connected(bootstrap) as client:
            connection = await client.any_connection()
            connection.versions.choose(APIS[ApiKey.DELETE_GROUPS], None, connection.name)
            for name in names:
                (await find_group(client, name)).check_empty("delete group")
            for name in names:
                await delete_group(client, name)


# ---- reset-offsets


def _topic(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, list[int]]:
    """Option callback: return the partitions of each TOPIC or TOPIC:N,N; none means all."""
    partitions: dict[str, list[int]] = {}
    for value in values:
        topic, colon, numbers = value.partition(":")
        try:
            partitions.setdefault(topic, []).extend(int(each) for each in numbers.split(",") if colon)
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: expected TOPIC or TOPIC:N,N…") from error
    return partitions


def _time(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_time(value)
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(f"{value!r}: expected a time such as 2024-01-31T12:00:00Z, or ms") from error


@groups.command(
    "reset-offsets",
    examples=(
        "magicbyte groups reset-offsets -b localhost:9092 readers --to-latest --dry-run",
        "magicbyte groups reset-offsets -b localhost:9092 readers --shift-by -5",
    ),
)
@bootstrap_option
@click.argument("name", metavar="GROUP")
@click.option("-t", "--topic", "topics", multiple=True, callback=_topic, metavar="TOPIC[:N,…]",
              help="Only this topic, or these partitions of it, which the group need not have read. "
              "Can be given several times.  [default: all topics of the group's offsets]")  # fmt: skip
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-offset", type=click.IntRange(0), metavar="OFFSET", help="To an offset.")
@click.option("--to-datetime", callback=_time, metavar="TIME",
              help="To the first record of this time or later: ISO 8601 (default UTC), or ms.")  # fmt: skip
@click.option("--shift-by", type=int, metavar="N", help="By N offsets from the committed one; back if negative.")
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
    """Reset the offsets of a group without members.

    An offset outside of a partition becomes its start or end, with a note.
    """
    asked: dict[Kind, int | None] = {"earliest": to_earliest or None, "latest": to_latest or None, "offset": to_offset,
             "datetime": to_datetime, "shift": shift_by}  # fmt: skip
    given: list[tuple[Kind, int]] = [(kind, int(number)) for kind, number in asked.items() if number is not None]
    if len(given) != 1:
        every = "--to-earliest, --to-latest, --to-offset, --to-datetime and --shift-by"
        raise click.UsageError(f"expected one of {every}, found {len(given)}")
    (chosen,) = given
    rows = asyncio.run(_reset(bootstrap, name, topics, chosen, dry_run=dry_run, zookeeper=zookeeper))
    if form == "json":
        say_json({"group": name, "dryRun": dry_run, "partitions": rows})
        return
    table = [["partition", "was", "is" if not dry_run else "would be", "start", "end", "lag"]]
    table += [[_name(each), *(_shown(each[key]) for key in ("was", "offset", "start", "end", "lag"))] for each in rows]
    say(*table_lines(table, left={0}))


async def _reset(
    bootstrap: str,
    name: str,
    topics: dict[str, list[int]],
    target: tuple[Kind, int],
    *,
    dry_run: bool,
    zookeeper: bool,
) -> list[Json]:
    from magicbyte.access.client.group_report import OffsetTarget
    from magicbyte.access.client.group_report import reset_offsets as reset

    refused = "those of 4.0 and later have no ZooKeeper" if zookeeper else EVERY
    with explained(f"reset offsets of group {name}", refused):
        async with connected(bootstrap) as client:
            done = await reset(
                client, name, topics, OffsetTarget(*target), dry_run=dry_run, zookeeper=zookeeper, warn=_warn
            )
            return [each.to_json() for each in done]
