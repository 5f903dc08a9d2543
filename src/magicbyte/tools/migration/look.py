"""Collect the facts for `check` and `status` from a cluster, request logs, packet captures and metrics pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from magicbyte.access.client.admin import ConfigResource, SettingInForce, describe_configs
from magicbyte.access.client.fetch import FetchOptions, fetch_from_replica
from magicbyte.access.client.topic_report import PartitionReport, report_partitions
from magicbyte.access.net.scrape import PageAccess, Scrape, scrape
from magicbyte.engine.errors import (
    BrokerError,
    InvalidRequestError,
    NetworkError,
    OffsetOutOfRangeError,
    UnsupportedVersionError,
)
from magicbyte.engine.log.files.filesystem import open_regular
from magicbyte.engine.log.files.packed import GZIP_MAGIC, gunzipped
from magicbyte.engine.records.encode import Format
from magicbyte.tools.migration import planner
from magicbyte.tools.migration.canary import BrokerRates, rates_between
from magicbyte.tools.migration.capture import read_capture
from magicbyte.tools.migration.check import Facts
from magicbyte.tools.migration.evidence import ClientSource, Unknown
from magicbyte.tools.migration.exporter import read_numbers
from magicbyte.tools.migration.request_log import lines_of, read_request_log
from magicbyte.tools.migration.rollback import LedPartition

if TYPE_CHECKING:
    from pathlib import Path

    from magicbyte.access.client.client import Client
    from magicbyte.tools.migration.sightings import Sightings

_DEFAULT: Final = "default"
_READ_THEM: Final = "look into them with magicbyte inventory on a broker, or when they have a leader"
_READ_SETTINGS: Final = {
    "broker": "look into its server.properties: brokers before 0.11 do not return theirs",
    "topic": "kafka-configs.sh --describe shows them: brokers before 0.11 do not return them",
}
_REQUEST_LOG: Final = "kafka-request.log"
_LOG_REQUESTS: Final = "a broker writes them to it with kafka.request.logger=DEBUG"
_CAPTURES: Final = (
    b"\xa1\xb2\xc3\xd4",
    b"\xd4\xc3\xb2\xa1",
    b"\xa1\xb2\x3c\x4d",
    b"\x4d\x3c\xb2\xa1",
    b"\x0a\x0d\x0d\x0a",
)
"""The first bytes of packet captures: pcap in both byte orders and both resolutions, and pcapng."""

_COPY_LOOKS, _COPY_WAIT_MS = 5, 500  # fetches of a replica at most, and the wait of each


@dataclass(slots=True)
class ClusterLook:
    """The result of `look_at_cluster`. `pages`: metrics pages of magicbyte's brokers, by broker."""

    facts: Facts
    notes: list[str]
    pages: dict[int, str]


async def look_at_cluster(client: Client, names: Sequence[str], looks: int) -> ClusterLook:
    """Return the facts of a cluster, each broker asked by itself.

    Stored formats are sampled at `looks` offsets of each partition; 0: not at all.
    """
    cluster = await planner.look_at_cluster(client, names, looks)
    facts, notes = Facts(), cluster.notes
    for name, topic in cluster.topics.items():
        formats = {form for form, _ in topic.stored} | ({Format.ENRICHED} & {topic.configured})
        facts.stored[name] = frozenset(formats)
        facts.topics[name] = await _own(client, ConfigResource.TOPIC, name, facts)
        if topic.unread:
            partitions = ", ".join(map(str, topic.unread))
            facts.unknown.append(Unknown(f"topic {name}", f"partitions {partitions} could not be read", _READ_THEM))
    if not looks:
        facts.unknown.append(Unknown("topics", "their stored formats were not sampled", "give --looks 32"))
    pages: dict[int, str] = {}
    for broker in sorted(client.cluster.brokers):
        facts.brokers[str(broker)] = await _own(client, ConfigResource.BROKER, str(broker), facts)
    answered = [broker.answered for broker in cluster.brokers if broker.answered is not None]
    facts.answered = {key: _oldest(key, answered) for key in {key for each in answered for key in each}}
    pages = await planner.metrics_pages(client, notes)
    return ClusterLook(facts, notes, pages)


def _oldest(key: int, answered: Sequence[Mapping[int, range]]) -> range:
    """Return the versions of a request of the oldest broker that has it: a client may have asked that one."""
    return min((each[key] for each in answered if key in each), key=lambda versions: versions.stop)


async def _own(client: Client, resource: ConfigResource, name: str, facts: Facts) -> dict[str, str]:
    """Return the non-default settings of a topic or broker. Settings that no broker returns are unknown."""
    kind = resource.name.lower()
    try:
        settings = await describe_configs(client, resource, name)
    except (BrokerError, NetworkError, UnsupportedVersionError) as error:
        facts.unknown.append(Unknown(f"{kind} {name}", f"its settings are not known ({error})", _READ_SETTINGS[kind]))
        return {}
    return {key: each.value or "" for key, each in settings.items() if _is_set(each, resource)}


def _is_set(setting: SettingInForce, resource: ConfigResource) -> bool:
    if resource is ConfigResource.TOPIC:
        return setting.is_own
    return setting.is_own or setting.source not in (None, _DEFAULT)


async def look_at_numbers(page: str, into: Sightings, access: PageAccess | None = None) -> ClientSource:
    """Add the clients on a metrics page. Raises NetworkError."""
    if count := read_numbers(await scrape(page, access), into):
        return ClientSource(page, count)
    why = Unknown(page, "no counters of requests by API and version", "Kafka's brokers have them from 2.0 on")
    return ClientSource(page, 0, why)


def look_at_request_logs(path: Path, into: Sightings) -> ClientSource:
    """Add the requests in a request log, or in the request logs of a folder, including rolled and compressed ones.

    Raises OSError, LogDirectoryError.
    """
    if not path.is_dir():
        return _look_at_request_log(path, into)
    sources = [_look_at_request_log(each, into) for each in sorted(path.glob(f"{_REQUEST_LOG}*"))]
    requests = sum(source.requests for source in sources)
    notes = "; ".join(source.note for source in sources if source.note is not None) or None
    if requests:
        return ClientSource(str(path), requests, note=notes)
    what = f"no requests in its {len(sources)} files {_REQUEST_LOG}*" if sources else f"no file {_REQUEST_LOG}* in it"
    return ClientSource(str(path), 0, Unknown(str(path), what, _LOG_REQUESTS), notes)


def _look_at_request_log(path: Path, into: Sightings) -> ClientSource:
    with _content_of(path) as (file, damage):
        if file.read(len(_CAPTURES[0])) in _CAPTURES:
            is_capture = Unknown(str(path), "it is a packet capture, no request log", "give it as --capture")
            return ClientSource(str(path), 0, is_capture)
    with _content_of(path) as (file, damage):
        requests = read_request_log(lines_of(file), into)
        note = damage()
    why = None if requests else Unknown(str(path), "no requests in it", _LOG_REQUESTS)
    return ClientSource(str(path), requests, why, note)


def look_at_capture(path: Path, into: Sightings) -> ClientSource:
    """Add the requests in a packet capture, which may be compressed by gzip.

    Raises OSError, LogDirectoryError, InvalidRequestError.
    """
    with _content_of(path) as (file, damage):
        try:
            summary = read_capture(file, into)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{path}: {error}") from error
        notes = [note for note in (summary.note, damage()) if note is not None]
    note = f"{path}: {'; '.join(notes)}" if notes else None
    if summary.requests:
        return ClientSource(str(path), summary.requests, note=note)
    what = summary.note or "no Kafka requests in it"
    return ClientSource(str(path), 0, Unknown(str(path), what, "capture the brokers' port, with tcpdump -s 0"))


@contextmanager
def _content_of(path: Path) -> Iterator[tuple[BinaryIO, Callable[[], str | None]]]:
    """Open a file, decompressed if it is a gzip file whatever its name, and a function that describes its damage."""
    with open_regular(path) as file:
        is_packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        file.seek(0)
        if not is_packed:
            yield file, lambda: None
            return
        content, packed = gunzipped(file)
        yield content, lambda: None if packed.damage is None else _damage_text(path, packed.damage)


def _damage_text(path: Path, damage: Exception) -> str:
    return f"{path}: damaged or cut off, and read up to there ({damage})"


async def look_at_led(client: Client, broker: int, looks: int, to: Format) -> list[LedPartition]:
    """Return the partitions that a broker leads, with the newest format at `looks` offsets and the end of each.

    Where it is newer than `to`, the other replicas are asked for the format of their copy at the same offset.
    """
    topics = await client.topics()
    led = []
    for report in await report_partitions(client, [topic for _, topic in sorted(topics.items())]):
        if report.leader != broker:
            continue
        newest, newest_offset = None, 0
        async for table in planner.tables_of(client, report.topic, report.partition, looks, at_end=True):
            for row in range(len(table)):
                if newest is None or table.magic[row] >= newest.magic:
                    newest, newest_offset = Format(str(table.magic[row])), int(table.offset[row])
        copies: dict[int, Format | None] = {}
        if newest is not None and newest.magic > to.magic:
            for number in report.replicas:
                if number != broker:
                    copies[number] = await _format_of_copy(client, number, report, newest_offset)
        led.append(LedPartition(report.topic, report.partition, report.replicas, report.in_sync, newest, copies))
    return led


async def _format_of_copy(client: Client, broker: int, report: PartitionReport, offset: int) -> Format | None:
    """Return the format of a replica's entry at an offset, None if the replica does not answer or lacks it."""
    node = client.cluster.brokers.get(broker)
    if node is None:
        return None
    # A follower returns records up to the high watermark that it knows, which reaches it with its next fetch only.
    options = FetchOptions(max_bytes=planner.LOOK_BYTES, max_wait_ms=_COPY_WAIT_MS)
    for _ in range(_COPY_LOOKS):
        try:
            table = await fetch_from_replica(client, node, report.topic, report.partition, offset, options)
        except OffsetOutOfRangeError:
            await asyncio.sleep(_COPY_WAIT_MS / 1000)
            continue
        except (BrokerError, NetworkError, UnsupportedVersionError):
            return None
        rows = (row for row in range(len(table)) if table.offset[row] >= offset)  # a response may begin before it
        if (row := next(rows, None)) is not None:
            return Format(str(table.magic[row]))
    return None


async def look_at_leads(client: Client) -> tuple[dict[int, int], int | None]:
    """Return the number of partitions that each live broker leads, and the controller, None if there is none."""
    topics = await client.topics()
    leads = dict.fromkeys(client.cluster.brokers, 0)
    for topic in topics.values():
        for each in topic.partitions.values():
            if each.leader in leads:
                leads[each.leader] += 1
    return leads, client.cluster.controller


async def look_at_sync(client: Client) -> int:
    """Return the number of under-replicated partitions of a cluster. Raises NetworkError."""
    topics = await client.topics()
    partitions = [each for topic in topics.values() for each in topic.partitions.values()]
    return sum(len(each.isr) < len(each.replicas) for each in partitions)


async def look_at_rates(pages: Mapping[int, tuple[str, PageAccess | None]], watch_s: float) -> list[BrokerRates]:
    """Return the rates of brokers over the next `watch_s` seconds, from their metrics. Raises NetworkError."""

    async def looks() -> list[Scrape]:
        return await asyncio.gather(*(scrape(page, access) for page, access in pages.values()))

    before = await looks()
    await asyncio.sleep(watch_s)
    return [rates_between(*each) for each in zip(pages, before, await looks(), strict=True)]
