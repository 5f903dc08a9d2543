"""`magicbyte topics elect`: let the controller elect leaders of partitions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from magicbyte.cli.base import Command
from magicbyte.cli.brokers import bootstrap_option, client_of
from magicbyte.cli.options import format_option
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.render import table_lines
from magicbyte.engine.errors import UnknownTopicError
from magicbyte.engine.ports import TopicPartition
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.access.client.replicas import PartitionOutcome
    from magicbyte.engine.replication.election import ElectionType

TOO_OLD: Final = (
    "brokers from 2.2 on do it for preferred leaders, from 2.4 on for unclean ones; older ones elect preferred leaders "
    "through ZooKeeper, with kafka-preferred-replica-election of their release"
)


@click.command(
    cls=Command,
    examples=(
        "magicbyte topics elect -b localhost:9092 --all",
        "magicbyte topics elect -b localhost:9092 -t orders -p 0 -p 3",
        "magicbyte topics elect -b localhost:9092 --unclean -t orders",
    ),
)
@bootstrap_option
@click.option("--preferred/--unclean", default=True, show_default=True,
              help="Elect the first replica of the assignment, if it is in sync. Or, for a partition without a leader, "
              "any live replica: records that it lacks are lost.")  # fmt: skip
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC",
              help="Of this topic. Can be given several times.")  # fmt: skip
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, metavar="N",
              help="Of this partition of the only topic. Can be given several times. [default: all]")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Of all partitions of the cluster.")
@format_option
def elect(
    bootstrap: str, preferred: bool, topics: tuple[str, ...], partitions: tuple[int, ...], everything: bool, form: str
) -> None:
    """Elect leaders of partitions.

    Exit status: 0 if each partition has the requested leader, 2 if one has not, with the reason on stderr. Needs
    brokers from 2.2 on, --unclean from 2.4 on.
    """
    if everything == bool(topics):
        raise click.UsageError("expected either -t TOPIC or --all")
    if partitions and len(topics) != 1:
        raise click.UsageError(f"-p names partitions of one topic: expected one -t TOPIC, found {len(topics)}")
    from magicbyte.engine.replication.election import ElectionType

    kind = ElectionType.PREFERRED if preferred else ElectionType.UNCLEAN
    outcomes = asyncio.run(_elected(bootstrap, kind, topics, partitions))
    if form == "json":
        say_json([each.to_json() for each in outcomes])
    else:
        rows = [[str(each.partition), _told(each)] for each in outcomes]
        say(*table_lines([["partition", "election"], *rows], left={0, 1}))
    failed = [each.failure for each in outcomes if each.failure is not None]
    for error in failed:
        complain(error)
    if failed:
        click.get_current_context().exit(2)


async def _elected(
    bootstrap: str, kind: ElectionType, topics: tuple[str, ...], indexes: tuple[int, ...]
) -> list[PartitionOutcome]:
    from magicbyte.access.client.replicas import elect_leaders

    with explained(f"elect leaders ({kind.name.lower()})", TOO_OLD):
        async with client_of(bootstrap) as client:
            wanted: list[TopicPartition] | None = [] if topics else None
            for topic in dict.fromkeys(topics):
                known = (await client.existing_topic(topic)).partitions
                for index in indexes or sorted(known):
                    if index not in known:
                        raise UnknownTopicError(f"partition {topic}-{index}: expected 0 to {len(known) - 1}")
                    wanted = [*(wanted or ()), TopicPartition(topic, index)]
            return sorted(await elect_leaders(client, kind, wanted), key=lambda each: each.partition)


def _told(outcome: PartitionOutcome) -> str:
    if outcome.error is None:
        return "elected"
    return "not needed" if outcome.failure is None else f"failed: {outcome.failure.code.name}"
