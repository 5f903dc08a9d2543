"""`magicbyte consume`: print the records of a topic of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, NamedTuple

import click

from magicbyte.cli import render
from magicbyte.cli.base import Command
from magicbyte.cli.brokers import bootstrap_option, client_of, kcat_options, parsed
from magicbyte.cli.output import binary_output
from magicbyte.cli.templates import Part, parse_template, templated, unescape
from magicbyte.engine.compiled.kernel import expect
from magicbyte.engine.errors import UnknownTopicError
from magicbyte.engine.log.files import units
from magicbyte.public.sources import explained

if TYPE_CHECKING:
    from magicbyte.access.client import Client
    from magicbyte.engine.records.columns import RecordColumns

MAX_WAIT_MS: Final = 500  # how long a broker delays an empty response for a partition
_LEAST_WAIT_MS: Final = 10
_KCAT: Final = {
    "-L": "`magicbyte topics list` and `topics describe` show topics and their brokers",
    "-Q": "`-o s@TIME -c 1 -f '%p %o\\n'` shows the offset of a time, `magicbyte topics describe` those of the ends",
    "-P": "`magicbyte produce` writes",
    "-G": "nothing is committed here; `-p` chooses partitions, `magicbyte groups` shows and moves groups",
    "-Z": "-J, or %S and %K in -f, tell null and empty apart",
    "-s": "-f prints the bytes as they are, and -J with --values base64 or json",
    "-r": "there is no support for a schema registry",
    "-F": "--config names a file of settings; MAGICBYTE_BOOTSTRAP stands for -b",
    "-d": "there are no debug contexts",
}
WORTH_A_THREAD: Final = 64 << 10  # bytes of sets, from which on a thread decodes and writes them


@dataclass(frozen=True, slots=True)
class ReadBound:
    """A start or end. `number`: an offset, a count of offsets before the end, or a time in ms."""

    kind: Literal["beginning", "end", "offset", "last", "time"]
    number: int = 0


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """The selected records of a topic. `until`: the time of the first record beyond the selection."""

    topic: str
    partitions: tuple[int, ...]
    start: ReadBound
    until: int | None
    ends: bool
    committed: bool


def _places(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, ReadBound]:
    """Option callback: return `start` and `until` from several -o."""
    bounds: dict[str, ReadBound] = {}
    for value in values:
        side = "until" if value.startswith("e@") else "start"
        if side in bounds:
            raise click.BadParameter(f"{value!r}: expected one place to begin, and one e@TIME")
        try:
            bounds[side] = _place(value)
        except (ValueError, OverflowError) as error:
            expected = "beginning, end, an offset, -N for the last N offsets of each partition, s@TIME or e@TIME"
            raise click.BadParameter(f"{value!r}: expected {expected}") from error
    return bounds


def _place(value: str) -> ReadBound:
    if value in ("beginning", "end"):
        return ReadBound("beginning" if value == "beginning" else "end")
    if value.startswith(("s@", "e@")):
        return ReadBound("time", units.parse_time(value[2:]))
    number = int(value)
    return ReadBound("last", -number) if number < 0 else ReadBound("offset", number)


@click.command(
    cls=Command,
    examples=(
        "magicbyte consume -b localhost:9092 -t orders -e -J",
        "magicbyte consume -b localhost:9092 -t orders -o -10 -e -f '%T %k %s\\n'",
    ),
)
@bootstrap_option
@click.option("-t", "--topic", required=True, help="The topic to read.")
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, metavar="N",
              help="Only this partition. Can be given several times.")  # fmt: skip
@click.option("-o", "--offset", "places", multiple=True, callback=_places, metavar="WHERE",
              help="Where to begin: beginning, end, an offset, -N for the last N offsets of each partition, or s@TIME; "
              "and with e@TIME where to end. TIME is ISO 8601 (default UTC), or ms.  "
              "[default: beginning]")  # fmt: skip
@click.option("-e", "--exit", "ends", is_flag=True, help="End at the present end of the topic.")
@click.option("-c", "--count", type=click.IntRange(0), metavar="N", help="End after this many records.")
@click.option("-f", "--template", callback=parsed(parse_template), metavar="TEMPLATE",
              help="The format of each record, as in kcat: %s value, %k key, %S and %K their sizes (-1: null), "
              r"%t topic, %p partition, %o offset, %T time in ms, %h headers; \n, \t, \xHH.")  # fmt: skip
@click.option("-J", "--json", "as_json", is_flag=True, help="Print a JSON object per line, as `cat` does.")
@click.option("-K", "--key-delimiter", "delimiter", callback=parsed(unescape), metavar="DELIMITER",
              help=r"Print the key and this before the value; \t is a tab.")  # fmt: skip
@click.option("-D", "--delimiter", "end", callback=parsed(unescape), default=r"\n", show_default=True,
              metavar="DELIMITER", help="Print this after each value.")  # fmt: skip
@render.values_option
@click.option("--isolation", type=click.Choice(["read_uncommitted", "read_committed"]), default="read_uncommitted",
              show_default=True, help="As a consumer's isolation.level.")  # fmt: skip
@kcat_options(_KCAT, "Cqu")
def consume(
    bootstrap: str,
    topic: str,
    partitions: tuple[int, ...],
    places: dict[str, ReadBound],
    ends: bool,
    count: int | None,
    template: list[Part] | None,
    as_json: bool,
    delimiter: bytes | None,
    end: bytes,
    values: str | None,
    isolation: str,
) -> None:
    r"""Print the records of a topic, one value per line, and wait for more until Ctrl-C.

    With -e or e@TIME, records are printed partition by partition, in the order of their offsets; without, as they
    arrive. No offsets are committed, and a missing topic is not created.
    """
    chosen = [
        name for name, given in (("-f", template), ("-J", as_json or None), ("-K", delimiter)) if given is not None
    ]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} contradict each other")
    if values is not None and not as_json:
        raise click.UsageError("--values is for -J: without it bytes are printed as they are")
    keyed: list[Part] = [] if delimiter is None else ["k", delimiter]
    parts = [*keyed, "s", *([end] if end else [])] if template is None else template
    until = places.get("until")
    wanted = WantedTopic(
        topic,
        partitions,
        places.get("start", ReadBound("beginning")),
        None if until is None else until.number,
        ends or until is not None,
        isolation == "read_committed",
    )

    def renderer(partition: int) -> render.Renderer:
        if not as_json:
            return templated(parts, topic, partition)
        return render.jsonl(values or render.DEFAULT_VALUES, topic, partition)

    with binary_output(None) as stream:
        asyncio.run(_consume(bootstrap, wanted, _RecordOutput(stream, renderer, count)))


class Records(NamedTuple):
    """Sets of a partition: their size in bytes, and their records, decoded lazily."""

    size: int
    columns: Iterator[RecordColumns]


class _RecordOutput:
    """The output of records, up to a number of them (None: all)."""

    def __init__(self, stream: BinaryIO, renderer: Callable[[int], render.Renderer], count: int | None) -> None:
        self._stream = stream
        self._renderer = renderer
        self._left = count
        self._turn = asyncio.Lock()

    @property
    def is_full(self) -> bool:
        return self._left == 0

    async def take(self, partition: int, blocks: AsyncIterator[Records]) -> None:
        """Write the records of a partition, until the output is full.

        Large sets are decoded and written in a thread, while the next ones are fetched.
        """
        if self.is_full:
            return
        lines, size = self._renderer(partition), 0
        async for records in blocks:
            size += records.size
            expect(size)
            async with self._turn:
                if records.size < WORTH_A_THREAD:
                    self._write(lines, records.columns)
                else:
                    await asyncio.to_thread(self._write, lines, records.columns)
            if self.is_full:
                return

    def _write(self, lines: render.Renderer, found: Iterable[RecordColumns]) -> None:
        for columns in found:
            if self.is_full:
                break
            part = columns if self._left is None else columns.slice(0, self._left)
            self._stream.write(lines(part))
            if self._left is not None:
                self._left -= len(part)
        self._stream.flush()


async def _consume(bootstrap: str, wanted: WantedTopic, output: _RecordOutput) -> None:
    from magicbyte.access.client.fetch import FetchOptions, read_sets, records_of

    with explained("read committed records", "brokers from 0.11 on can do it"):
        async with client_of(bootstrap) as client:
            partitions = await _partitions(client, wanted)
            ranges = await asyncio.gather(*(_range(client, wanted, each) for each in partitions))
            # A broker answers the requests of a connection in order, so a long wait would delay the other partitions.
            wait_ms = max(MAX_WAIT_MS // len(partitions), _LEAST_WAIT_MS)
            options = FetchOptions(committed=wanted.committed, max_wait_ms=wait_ms, ahead=wanted.ends)

            async def records(partition: int, start: int, end: int | None) -> AsyncGenerator[Records]:
                async with contextlib.aclosing(read_sets(client, wanted.topic, partition, start, end, options)) as sets:
                    async for found in sets:
                        yield Records(len(found.data), records_of(found, start, end, options))

            async def read(partition: int, start: int, end: int | None) -> None:
                async with contextlib.aclosing(records(partition, start, end)) as found:
                    await output.take(partition, found)

            if wanted.ends:
                for partition, ends in zip(partitions, ranges, strict=True):
                    await read(partition, *ends)
            else:
                await _first_of(read(partition, *ends) for partition, ends in zip(partitions, ranges, strict=True))


async def _first_of(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait until the first coroutine ends or fails, and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _partitions(client: Client, wanted: WantedTopic) -> list[int]:
    found = sorted((await client.existing_topic(wanted.topic)).partitions)
    for each in wanted.partitions:
        if each not in found:
            raise UnknownTopicError(f"partition {each} of {wanted.topic!r}: expected one of 0 to {len(found) - 1}")
    return sorted(set(wanted.partitions)) or found


async def _range(client: Client, wanted: WantedTopic, partition: int) -> tuple[int, int | None]:
    """Return the first offset and the end offset, None for no end."""
    from magicbyte.access.client.offsets import EARLIEST, LATEST, list_offset

    async def at(timestamp: int) -> int:
        found = await list_offset(client, wanted.topic, partition, timestamp)
        return await at(LATEST) if found.offset is None else found.offset

    bound = wanted.start
    match bound.kind:
        case "offset":
            start = bound.number
        case "last":
            start = max(await at(LATEST) - bound.number, await at(EARLIEST))
        case _:
            start = await at({"beginning": EARLIEST, "end": LATEST}.get(bound.kind, bound.number))
    if not wanted.ends:
        return start, None
    return start, await at(LATEST if wanted.until is None else wanted.until)
