"""`magicbyte produce`: produce the lines of stdin as records of a topic."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import click

from magicbyte.cli.base import Command
from magicbyte.cli.brokers import bootstrap_option, client_of, kcat_options, parsed
from magicbyte.cli.options import FormatName
from magicbyte.cli.output import say
from magicbyte.cli.templates import unescape
from magicbyte.engine.errors import MagicbyteError, ProtocolError, UnknownTopicError, UnsupportedVersionError
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from io import BufferedReader

    from magicbyte.access.client import Client
    from magicbyte.access.client.produce import ProduceOptions
    from magicbyte.engine.records.columns import Record
    from magicbyte.engine.records.encode import Format

Header = tuple[str, bytes]
Send: TypeAlias = "Callable[[str, int, list[Record], ProduceOptions], Awaitable[object]]"

READ_BYTES: Final = 1 << 20
LARGEST_MESSAGE: Final = 64 << 20
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_KCAT: Final = {
    "-L": "`magicbyte topics list` and `topics describe` show topics and their brokers",
    "-C": "`magicbyte consume` reads",
    "-l": "stdin is read line by line; redirect the file",
    "-T": "use `tee` before it in the pipe",
    "-c": "use `head -n N` before it in the pipe",
    "-e": "it ends when stdin does",
    "-s": "messages are sent as they are",
    "-r": "there is no support for a schema registry",
    "-F": "--config names a file of settings; MAGICBYTE_BOOTSTRAP stands for -b",
    "-d": "there are no debug contexts",
}
ACKS: Final = {"all": -1, "1": 1, "0": 0}


def _header(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r}: expected NAME=VALUE")
    return name, value.encode(errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class Shape:
    """The conversion of messages to records.

    `delimiter` None: messages have no key, and `key` is that of all records.
    """

    delimiter: bytes | None
    key: bytes | None
    headers: tuple[Header, ...]
    empty_is_null: bool

    def record(self, message: bytes) -> Record:
        """Return the record of a message. A message without the delimiter has the key `key`."""
        from magicbyte.engine.records.columns import Record

        key, value = self.key, message
        if self.delimiter is not None and self.delimiter in message:
            key, _, value = message.partition(self.delimiter)
        if self.empty_is_null:
            return Record(0, -1, 0, key or None, value or None, self.headers)
        return Record(0, -1, 0, key, value, self.headers)


@click.command(
    cls=Command,
    examples=(
        "echo hello | magicbyte produce -b localhost:9092 -t orders",
        "magicbyte produce -b localhost:9092 -t orders -K : -z zstd < lines",
    ),
)
@bootstrap_option
@click.option("-t", "--topic", required=True, help="The topic to write to.")
@click.option("-p", "--partition", type=click.IntRange(0), metavar="N", help="Write to this partition.  "
              "[default: by the hash of the key, as Java producers do; without a key, round-robin]")  # fmt: skip
@click.option("-K", "--key-delimiter", "delimiter", callback=parsed(unescape), metavar="DELIMITER",
              help=r"The delimiter between key and value in a line; \t is a tab.")  # fmt: skip
@click.option("-k", "--key", callback=parsed(unescape), metavar="KEY", help="The key of messages without one.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE",
              help="A header of all records. Can be given several times.")  # fmt: skip
@click.option("-D", "--delimiter", "end", callback=parsed(unescape), default=r"\n", show_default=True,
              metavar="DELIMITER", help="The delimiter between messages.")  # fmt: skip
@click.option("-Z", "--null", "empty_is_null", is_flag=True, help="An empty key or value is null.")
@click.option("-z", "--codec", type=click.Choice(CODECS), default="none", show_default=True)
@click.option("--magic", type=FormatName(), help="The message format to send.  "
              "[default: the newest that the broker takes]")  # fmt: skip
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True, help="As a producer's acks.")
@click.option("--create", is_flag=True, help="Create the topic if it does not exist, with the brokers' defaults.")
@click.option("--transactional-id", metavar="ID", help="Write in a transaction: readers of committed records see all "
              "of the input, or nothing. An earlier producer with this id is fenced.")  # fmt: skip
@click.option("--transaction-records", type=click.IntRange(1), metavar="N",
              help="Commit every N records.  [default: at the end]")  # fmt: skip
@click.option("--transaction-timeout", "timeout", type=click.IntRange(1), metavar="SECONDS", default=60,
              show_default=True, help="Brokers abort a transaction that is open for longer.")  # fmt: skip
@kcat_options(_KCAT, "Pqu")
def produce(
    bootstrap: str,
    topic: str,
    partition: int | None,
    delimiter: bytes | None,
    key: bytes | None,
    headers: tuple[str, ...],
    end: bytes,
    empty_is_null: bool,
    codec: str,
    magic: Format | None,
    acks: str,
    create: bool,
    transactional_id: str | None,
    transaction_records: int | None,
    timeout: int,
) -> None:
    """Write the lines of stdin to a topic, one record per line, until stdin ends.

    Lines that arrive together are sent together, in order. Transient failures are retried: at least once.
    """
    from magicbyte.access.client.produce import ProduceOptions
    from magicbyte.engine.codecs import Codec
    from magicbyte.engine.records.encode import Format

    if not end:
        raise click.BadParameter("expected at least one byte", param_hint="-D")
    try:
        shape = Shape(delimiter, key, tuple(map(_header, headers)), empty_is_null)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-H") from error
    options = ProduceOptions(Codec[codec.upper()], format=magic, acks=ACKS[acks])
    stream = cast("BufferedReader", sys.stdin.buffer)
    refused = f"they take {'no such codec, or ' if codec == 'zstd' else ''}other message formats: see --magic"
    if transactional_id is not None:
        refused = "transactions need brokers from 0.11 on"
        if acks != "all" or magic not in (None, Format.V2):
            raise click.UsageError("--transactional-id needs --acks all and --magic v2, the defaults")
    elif transaction_records is not None:
        raise click.UsageError("--transaction-records needs --transactional-id")
    with explained(f"produce to {topic}", refused), asyncio.Runner() as runner:
        client = client_of(bootstrap)
        try:
            sender = runner.run(_Sender.to(client, topic, partition, options, create=create))
            runner.run(sender.check(shape))
            batches = ([shape.record(message) for message in messages] for messages in _messages(stream, end))
            if transactional_id is None:
                # Reading stdin blocks the loop, which has nothing else to do; so Ctrl-C takes effect at once.
                for records in batches:
                    runner.run(sender.send(records))
            else:
                _in_transactions(runner, client, sender, batches, transactional_id, transaction_records, timeout)
        finally:
            runner.run(client.aclose())


def _in_transactions(
    runner: asyncio.Runner,
    client: Client,
    sender: _Sender,
    batches: Iterator[list[Record]],
    transactional_id: str,
    most: int | None,
    timeout: int,
) -> None:
    """Send records in transactions of `most` records, or in one.

    On a failure, print the number of committed records.
    """
    from magicbyte.access.client.transactions import TransactionalProducer

    committed = held = 0
    producer = runner.run(TransactionalProducer.begin(client, transactional_id, timeout_ms=1000 * timeout))
    sender.send_with(producer.send)
    try:
        for records in batches:
            while records:
                part = records if most is None else records[: most - held]
                records = records[len(part) :]
                runner.run(sender.send(part))
                held += len(part)
                if held == most:
                    runner.run(producer.commit())
                    committed, held = committed + held, 0
        runner.run(producer.commit())
    except BaseException:
        if most is not None:
            say(f"{committed} records were committed before", err=True)
        try:
            runner.run(producer.abort())
        except MagicbyteError as error:
            say(f"the brokers abort the open transaction within {timeout} s: {error}", err=True)
        raise


def _messages(stream: BufferedReader, end: bytes) -> Iterator[list[bytes]]:
    """Yield messages in groups that arrived together. The last message may lack the delimiter."""
    rest = b""
    while data := stream.read1(READ_BYTES):
        *whole, rest = (rest + data).split(end)
        if whole:
            yield whole
        if len(rest) > LARGEST_MESSAGE:
            raise ProtocolError("message", expected=f"up to {LARGEST_MESSAGE} bytes and {end!r}", found="more")
    if rest:
        yield [rest]


class _Sender:
    """Sends records to a topic. Groups of records without a key go to the partitions in turn."""

    def __init__(
        self, client: Client, topic: str, partitions: list[int], partition: int | None, options: ProduceOptions
    ) -> None:
        from magicbyte.access.client.produce import send

        self._client = client
        self._topic = topic
        self._partitions = partitions
        self._partition = partition
        self._options = options
        self._turn = 0
        self._send: Send = functools.partial(send, client)

    @classmethod
    async def to(
        cls, client: Client, topic: str, partition: int | None, options: ProduceOptions, *, create: bool
    ) -> _Sender:
        """Look up the topic, and create a missing one if `create` is set. Raises UnknownTopicError."""
        try:
            known_topic = await client.existing_topic(topic)
        except UnknownTopicError as error:
            if not create:
                raise UnknownTopicError(f"{error} --create makes it") from error
            await _make(client, topic)
            known_topic = await client.retried(lambda: client.topic(topic))
        if partition is not None and partition not in known_topic.partitions:
            known = len(known_topic.partitions) - 1
            raise UnknownTopicError(f"partition {partition} of {topic!r}: expected one of 0 to {known}")
        return cls(client, topic, sorted(known_topic.partitions), partition, options)

    def send_with(self, send: Send) -> None:
        """Use another function for sending."""
        self._send = send

    async def check(self, shape: Shape) -> None:
        """Raise BadParameter for headers if the format cannot hold them."""
        from magicbyte.access.client.produce import newest_format
        from magicbyte.engine.records.encode import Format

        target = self._options.format or newest_format((await self._client.any_connection()).versions)
        if shape.headers and target is not Format.V2:
            raise click.BadParameter(f"magic {target.value} has no headers", param_hint="-H")

    async def send(self, records: list[Record]) -> None:
        """Send records, in order within each partition."""
        from magicbyte.access.client.partitioning import partition_of

        shares: dict[int, list[Record]] = {}
        keyless = self._partitions[self._turn % len(self._partitions)]
        for record in records:
            chosen = self._partition
            if chosen is None:
                count = len(self._partitions)
                chosen = keyless if record.key is None else self._partitions[partition_of(record.key, count)]
            shares.setdefault(chosen, []).append(record)
        self._turn += keyless in shares
        sends = (self._send(self._topic, at, part, self._options) for at, part in shares.items())
        for answer in await asyncio.gather(*sends, return_exceptions=True):  # none in flight after a failure
            if isinstance(answer, BaseException):
                raise answer


async def _make(client: Client, topic: str) -> None:
    """Create a topic. Old brokers, which have no request for it, create topics that are requested by name."""
    from magicbyte.cli.topics import create_topic

    try:
        await create_topic(client, topic, None, None, {})
    except UnsupportedVersionError:
        await client.topics([topic])
