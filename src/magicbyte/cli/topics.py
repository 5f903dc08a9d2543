"""`magicbyte topics`: list, describe, create, move and delete topics of a cluster."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Final

import click

from magicbyte.cli.base import CommandGroup
from magicbyte.cli.brokers import bootstrap_option, client_of
from magicbyte.cli.options import format_option, key_values
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.render import table_lines
from magicbyte.cli.topics_elect import elect
from magicbyte.cli.topics_reassign import reassign
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.access.client import Client
    from magicbyte.access.client.client import Topic
    from magicbyte.access.client.topic_report import PartitionReport

Json = dict[str, Any]

TOO_OLD: Final = "brokers from 0.10.1 on can do it; for older ones there are the tools of their release"
EVERY: Final = "brokers from 0.8.2 on can do it"
NOT_ENABLED: Final = "brokers before 1.0 delete nothing unless delete.topic.enable is set"
_OWN_NUMBERS: Final = 4  # the first version of CreateTopics with -1 for the brokers' defaults


@click.group(cls=CommandGroup)
def topics() -> None:
    """List, describe, create, move and delete the topics of a cluster with brokers of 0.8.2 to 4.x."""


topics.add_command(elect)
topics.add_command(reassign)


# ---- list


@topics.command("list", examples=("magicbyte topics list -b localhost:9092",))
@bootstrap_option
@click.option("--internal", is_flag=True, help="Also internal topics, such as __consumer_offsets.")
@format_option
def list_(bootstrap: str, internal: bool, form: str) -> None:
    """List topics with the number of their partitions and replicas."""
    found = asyncio.run(_all(bootstrap))
    shown = [topic for _, topic in sorted(found.items()) if internal or not topic.is_own]
    if form == "json":
        say_json([topic.to_json() for topic in shown])
        return
    rows = [["topic", "partitions", "replicas"]]
    rows += [[each.name, str(len(each.partitions)), str(each.replicas)] for each in shown]
    say(*table_lines(rows, left={0}))


async def _all(bootstrap: str) -> dict[str, Topic]:
    with explained("list topics", EVERY):
        async with client_of(bootstrap) as client:
            return await client.topics()


# ---- describe


@topics.command(
    examples=(
        "magicbyte topics describe -b localhost:9092 orders",
        "magicbyte topics describe -b localhost:9092 --under-replicated --json",
    )
)
@bootstrap_option
@click.argument("names", nargs=-1, metavar="[TOPIC]...")
@click.option("--under-replicated", is_flag=True, help="Only partitions with a replica that is not in sync.")
@click.option("--unavailable", is_flag=True, help="Only partitions without a live leader.")
@format_option
def describe(bootstrap: str, names: tuple[str, ...], under_replicated: bool, unavailable: bool, form: str) -> None:
    """Show each partition of topics, of all topics if none is named.

    Brokers, log start offset and high watermark. Replicas that a reassignment is adding count as moving, not as out
    of sync. Offsets of a partition without a leader are unknown.
    """
    from magicbyte.access.client.topic_report import MOVES_UNKNOWN

    partitions = asyncio.run(_described(bootstrap, names, under_replicated=under_replicated, unavailable=unavailable))
    if any(each.adding is None and each.is_under_replicated for each in partitions):
        complain(MOVES_UNKNOWN)
    if form == "json":
        by_topic = itertools.groupby(partitions, key=lambda each: each.topic)
        say_json([{"topic": topic, "partitions": [each.to_json() for each in of]} for topic, of in by_topic])
        return
    rows = [["partition", "leader", "epoch", "replicas", "in sync", "offline", "start", "end", "state"]]
    rows += [_cells(each) for each in partitions]
    say(*table_lines(rows, left={0, 3, 4, 5, 8}))


async def _described(
    bootstrap: str, names: tuple[str, ...], *, under_replicated: bool, unavailable: bool
) -> list[PartitionReport]:
    from magicbyte.access.client.topic_report import report_partitions, with_offsets

    with explained("describe topics", EVERY):
        async with client_of(bootstrap) as client:
            if names:
                topics = [await client.existing_topic(name) for name in names]
            else:
                topics = [topic for _, topic in sorted((await client.topics()).items())]
            wanted = [
                each
                for each in await report_partitions(client, topics)
                if not (under_replicated or unavailable)
                or (under_replicated and each.is_under_replicated)
                or (unavailable and each.leader is None)
            ]
            return await with_offsets(client, wanted)


def _cells(partition: PartitionReport) -> list[str]:
    brokers = (partition.replicas, partition.in_sync, partition.offline)
    return [
        f"{partition.topic}-{partition.partition}",
        *map(_known, (partition.leader, partition.leader_epoch)),
        *(",".join(map(str, each)) or "-" for each in brokers),
        *map(_known, (partition.start, partition.end)),
        partition.state,
    ]


def _known(number: int | None) -> str:
    return "-" if number is None else str(number)


# ---- create


@topics.command(examples=("magicbyte topics create -b localhost:9092 events retention.ms=86400000",))
@bootstrap_option
@click.option("--partitions", type=click.IntRange(1), metavar="N",
              help="[default: the brokers' setting; 1 with brokers before 2.4]")  # fmt: skip
@click.option("--replicas", type=click.IntRange(1), metavar="N", help="[default: the same]")
@click.argument("name", metavar="TOPIC")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
def create(bootstrap: str, partitions: int | None, replicas: int | None, name: str, settings: tuple[str, ...]) -> None:
    """Create a topic.

    Settings have Kafka's names, such as cleanup.policy=compact. Needs brokers from 0.10.1 on.
    """
    asyncio.run(_create(bootstrap, name, partitions, replicas, key_values(settings)))


async def _create(
    bootstrap: str, name: str, partitions: int | None, replicas: int | None, settings: dict[str, str]
) -> None:
    with explained(f"create topic {name}", TOO_OLD):
        async with client_of(bootstrap) as client:
            await create_topic(client, name, partitions, replicas, settings)


async def create_topic(
    client: Client, name: str, partitions: int | None, replicas: int | None, settings: dict[str, str]
) -> None:
    """Create a topic, with the brokers' defaults for None. Raises UnsupportedVersionError for old brokers."""
    from magicbyte.access.client.admin import NewTopic
    from magicbyte.access.client.admin import create_topic as create
    from magicbyte.engine.protocol import APIS

    connection = await client.any_connection()
    latest = connection.versions.choose(APIS[ApiKey.CREATE_TOPICS], None, connection.name)
    own = -1 if latest >= _OWN_NUMBERS else 1
    await create(client, NewTopic(name, partitions or own, replicas or own, settings))


# ---- delete


@topics.command(examples=("magicbyte topics delete -b localhost:9092 events",))
@bootstrap_option
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
def delete(bootstrap: str, names: tuple[str, ...]) -> None:
    """Delete topics with all their records.

    Nothing is deleted if any of the topics does not exist. Needs brokers from 0.10.1 on.
    """
    asyncio.run(_delete(bootstrap, names))


async def _delete(bootstrap: str, names: tuple[str, ...]) -> None:
    from magicbyte.access.client.admin import delete_topic
    from magicbyte.engine.protocol import APIS

    with explained(f"delete topic {', '.join(names)}", TOO_OLD):
        async with client_of(bootstrap) as client:
            connection = await client.any_connection()
            connection.versions.choose(APIS[ApiKey.DELETE_TOPICS], None, connection.name)
            for name in names:
                await client.existing_topic(name)
            for name in names:
                try:
                    await delete_topic(client, name)
                except BrokerError as error:
                    if error.code is ErrorCode.REQUEST_TIMED_OUT:
                        error.detail = NOT_ENABLED
                    raise
