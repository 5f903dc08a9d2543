"""`magicbyte transactions`: list and describe transactions of a cluster, find and abort hanging ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import click

from magicbyte.cli.asking import confirm
from magicbyte.cli.base import CommandGroup
from magicbyte.cli.brokers import bootstrap_option, connected
from magicbyte.cli.options import format_option
from magicbyte.cli.output import complain, say, say_json
from magicbyte.cli.render import table_lines
from magicbyte.engine.printable import time_text
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.access.client.transaction_admin import HangingTransactions, PartitionTransaction

Json = dict[str, Any]

EARLIEST: Final = "brokers from 3.0 on can do it; dump and verify show transactions in the logs of older ones"
_FOUND: Final = 1  # exit status
_DEFAULT_MINUTES: Final = 15  # as kafka-transactions.sh


@click.group(cls=CommandGroup)
def transactions() -> None:
    """List and describe transactions, find and abort hanging ones. Needs brokers from 3.0 on."""


# ---- list


@transactions.command("list", examples=("magicbyte transactions list -b localhost:9092",))
@bootstrap_option
@click.option("--state", "states", multiple=True, metavar="STATE",
              help="Only those in this state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, "
              "CompleteAbort. Can be given several times.")  # fmt: skip
@click.option("--producer-id", "producer_ids", multiple=True, type=click.IntRange(0), metavar="ID",
              help="Only those of this producer. Can be given several times.")  # fmt: skip
@format_option
def list_(bootstrap: str, states: tuple[str, ...], producer_ids: tuple[int, ...], form: str) -> None:
    """List transactional ids with their coordinator, producer id and state."""
    rows = asyncio.run(_listed(bootstrap, states, producer_ids))
    if form == "json":
        say_json(rows)
        return
    table = [["transactional id", "coordinator", "producer id", "state"]]
    table += [[str(each[key]) for key in ("transactionalId", "coordinator", "producerId", "state")] for each in rows]
    say(*table_lines(table, left={0, 3}))


async def _listed(bootstrap: str, states: tuple[str, ...], producer_ids: tuple[int, ...]) -> list[Json]:
    from magicbyte.access.client.transaction_admin import list_transactions

    with explained("list transactions", EARLIEST):
        async with connected(bootstrap) as client:
            return [each.to_json() for each in await list_transactions(client, states, producer_ids)]


# ---- describe


@transactions.command(examples=("magicbyte transactions describe -b localhost:9092 payments-1",))
@bootstrap_option
@click.argument("names", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@format_option
def describe(bootstrap: str, names: tuple[str, ...], form: str) -> None:
    """Show the coordinator's state of transactional ids: state, epoch, timeout, partitions without a marker."""
    found = asyncio.run(_described(bootstrap, names))
    if form == "json":
        say_json(found)
        return
    for at, each in enumerate(found):
        say(*([""] if at else []), *_text(each))


async def _described(bootstrap: str, names: tuple[str, ...]) -> list[Json]:
    from magicbyte.access.client.transaction_admin import describe_transaction

    with explained("describe transactions", EARLIEST):
        async with connected(bootstrap) as client:
            return [(await describe_transaction(client, name)).to_json() for name in names]


def _text(found: Json) -> list[str]:
    start = "no transaction is open" if found["startMs"] is None else f"began {time_text(found['startMs'])}"
    places = ", ".join(f"{each['topic']}-{each['partition']}" for each in found["partitions"])
    return [
        f"{found['transactionalId']}: {found['state']}, coordinator {found['coordinator']}",
        f"producer {found['producerId']}, epoch {found['producerEpoch']}, timeout {found['timeoutMs']} ms; {start}",
        f"partitions without a marker: {places or '-'}",
    ]


# ---- find-hanging


@transactions.command("find-hanging", examples=("magicbyte transactions find-hanging -b localhost:9092",))
@bootstrap_option
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC",
              help="Only in this topic. Can be given several times.  [default: all topics]")  # fmt: skip
@click.option("--max-transaction-timeout", "minutes", type=click.IntRange(0), default=_DEFAULT_MINUTES,
              show_default=True, metavar="MINUTES",
              help="Only those whose producer was silent for longer. At least the brokers' "
              "transaction.max.timeout.ms.")  # fmt: skip
@format_option
def find_hanging(bootstrap: str, topics: tuple[str, ...], minutes: int, form: str) -> None:
    """Find transactions in partitions that no coordinator will end.

    Consumers with read_committed cannot pass them, and the cleaner and retention wait for them. Exit status: 0 if there
    are none, 1 if there are some, or if some partitions could not be asked.
    """
    result = asyncio.run(_hanging(bootstrap, topics, minutes * 60_000))
    for each in result.unasked:
        complain(f"warning: not asked: {each}")
    if form == "json":
        say_json([each.to_json() for each in result.transactions])
    elif result.transactions:
        table = [["partition", "producer id", "epoch", "coordinator epoch", "start offset", "last timestamp"]]
        table += [_row(each) for each in result.transactions]
        say(*table_lines(table, left={0, 5}))
    else:
        say("no hanging transactions")
    if result.transactions or result.unasked:
        click.get_current_context().exit(_FOUND)


def _row(each: PartitionTransaction) -> list[str]:
    numbers = (each.producer_id, each.producer_epoch, each.coordinator_epoch, each.start_offset)
    return [f"{each.topic}-{each.partition}", *map(str, numbers), time_text(each.last_timestamp)]


async def _hanging(bootstrap: str, topics: tuple[str, ...], idle_ms: int) -> HangingTransactions:
    from magicbyte.access.client.transaction_admin import find_hanging

    with explained("find hanging transactions", EARLIEST):
        async with connected(bootstrap) as client:
            return await find_hanging(client, topics or None, idle_ms)


# ---- abort


@transactions.command(examples=("magicbyte transactions abort -b localhost:9092 -t orders -p 0 --start-offset 7",))
@bootstrap_option
@click.option("-t", "--topic", required=True, metavar="TOPIC", help="The topic.")
@click.option("-p", "--partition", required=True, type=click.IntRange(0), metavar="N", help="The partition.")
@click.option("--start-offset", required=True, type=click.IntRange(0), metavar="OFFSET",
              help="The start offset shown by find-hanging.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask.")
def abort(bootstrap: str, topic: str, partition: int, start_offset: int, yes: bool) -> None:
    """Abort a hanging transaction in one partition, so that the last stable offset advances.

    A transaction that its coordinator still knows is refused: the coordinator ends it, and may commit its other
    partitions. This cannot be undone.
    """
    with explained("abort a transaction", EARLIEST):
        asyncio.run(_abort(bootstrap, topic, partition, start_offset, yes=yes))


async def _abort(bootstrap: str, topic: str, partition: int, start_offset: int, *, yes: bool) -> None:
    from magicbyte.access.client.transaction_admin import abort_transaction, hanging_at

    async with connected(bootstrap) as client:
        await client.existing_topic(topic)
        hung = await hanging_at(client, topic, partition, start_offset)
        what = (
            f"transaction of producer {hung.producer_id}, epoch {hung.producer_epoch}, from offset {start_offset} of "
            f"{topic}-{partition} on"
        )
        if not yes:
            silent = time_text(hung.last_timestamp)
            question = f"Abort the {what} (its producer wrote last at {silent})?"
            await confirm(question)
        await abort_transaction(client, hung)
    say(f"aborted: {what}")
