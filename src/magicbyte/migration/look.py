"""Collect the facts for `check` and `status` from a cluster, request logs, packet captures and metrics pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from magicbyte.client.admin import ConfigResource, SettingInForce, describe_configs
from magicbyte.client.topic_report import report_partitions
from magicbyte.errors import BrokerError, InvalidRequestError, NetworkError, UnsupportedVersionError
from magicbyte.log.files.filesystem import open_regular
from magicbyte.migration import planner
from magicbyte.migration.canary import BrokerRates, rates_between
from magicbyte.migration.capture import read_capture
from magicbyte.migration.check import Facts
from magicbyte.migration.exporter import read_numbers
from magicbyte.migration.request_log import lines_of, read_request_log
from magicbyte.migration.rollback import LedPartition
from magicbyte.migration.status import BrokerFacts
from magicbyte.net.scrape import PageAccess, Scrape, scrape
from magicbyte.records.encode import Format

if TYPE_CHECKING:
    from pathlib import Path

    from magicbyte.client.client import BrokerNode, Client
    from magicbyte.migration.sightings import Sightings

_DEFAULT: Final = "default"
_STEERING: Final = ("inter.broker.protocol.version", "log.message.format.version")


async def look_at_cluster(client: Client, names: Sequence[str], looks: int) -> tuple[Facts, list[str], list[str]]:
    """Return the facts of a cluster, notes on missing facts, and the metrics pages of magicbyte's brokers.

    Stored formats are sampled at `looks` offsets of each partition; 0: not at all.
    """
    topics, notes = await planner.look_at_cluster(client, names, looks)
    facts = Facts(answered=(await client.any_connection()).versions.ranges)
    if not looks:
        notes.append("the stored formats of topics were not sampled")
    for name, topic in topics.items():
        formats = {form for form, _ in topic.stored} | ({Format.ENRICHED} & {topic.configured})
        facts.stored[name] = frozenset(formats)
        facts.topics[name] = {}
    if not await planner.tells_settings(client):
        return facts, notes, []
    for name in topics:
        facts.topics[name] = await _own(client, ConfigResource.TOPIC, name, notes)
    for broker in client.cluster.brokers:
        facts.brokers[str(broker)] = await _own(client, ConfigResource.BROKER, str(broker), notes)
    return facts, notes, [f"http://{each}/metrics" for each in await planner.metrics_addresses(client, notes)]


async def _own(client: Client, resource: ConfigResource, name: str, notes: list[str]) -> dict[str, str]:
    """Return the non-default settings of a topic or broker."""
    try:
        settings = await describe_configs(client, resource, name)
    except (BrokerError, NetworkError) as error:
        notes.append(f"settings of {resource.name.lower()} {name} are unknown ({error})")
        return {}
    return {key: each.value or "" for key, each in settings.items() if _is_set(each, resource)}


def _is_set(setting: SettingInForce, resource: ConfigResource) -> bool:
    if resource is ConfigResource.TOPIC:
        return setting.is_own
    return setting.is_own or setting.source not in (None, _DEFAULT)


async def look_at_numbers(page: str, into: Sightings, access: PageAccess | None = None) -> str | None:
    """Add the clients on a metrics page. Return a note if there are none. Raises NetworkError."""
    if read_numbers(await scrape(page, access), into):
        return None
    return f"{page}: no counters of requests by API and version"


def request_logs(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files among `paths`, and the request logs in folders, including rolled ones."""
    for path in paths:
        yield from sorted(path.glob("kafka-request.log*")) if path.is_dir() else (path,)


def look_at_request_log(path: Path, into: Sightings) -> str | None:
    """Add the requests in a request log. Return a note if there are none. Raises OSError, LogDirectoryError."""
    with open_regular(path) as file:
        if read_request_log(lines_of(file), into):
            return None
    return f"{path}: no requests in it: kafka.request.logger writes them at level DEBUG"


def look_at_capture(path: Path, into: Sightings) -> str | None:
    """Add the requests in a packet capture. Return a note on missing content.

    Raises OSError, LogDirectoryError, InvalidRequestError.
    """
    with open_regular(path) as file:
        try:
            note = read_capture(file, into).note
        except InvalidRequestError as error:
            raise InvalidRequestError(f"{path}: {error}") from error
    return None if note is None else f"{path}: {note}"


async def look_at_brokers(client: Client) -> list[BrokerFacts]:
    """Return the request versions and settings of each broker of a cluster. Raises NetworkError if none answers."""
    await client.topics([])
    tells = await planner.tells_settings(client)
    return [await _broker(client, number, node, tells=tells) for number, node in sorted(client.cluster.brokers.items())]


async def _broker(client: Client, number: int, node: BrokerNode, *, tells: bool) -> BrokerFacts:
    address = f"{node.host}:{node.port}"
    try:
        answered = (await client.connection(node)).versions.ranges
        settings = await describe_configs(client, ConfigResource.BROKER, str(number)) if tells else None
    except (BrokerError, NetworkError, UnsupportedVersionError):
        return BrokerFacts(number, address, None, None)
    steering = None if settings is None else {name: text for name in _STEERING if (text := _value(settings, name))}
    return BrokerFacts(number, address, answered, steering, settings is not None and "http.address" in settings)


def _value(settings: Mapping[str, SettingInForce], name: str) -> str | None:
    return settings[name].value if name in settings else None


async def look_at_led(client: Client, broker: int, looks: int) -> list[LedPartition]:
    """Return the partitions that a broker leads, with the newest format at `looks` offsets and the end of each."""
    topics = await client.topics()
    led = []
    for each in await report_partitions(client, [topic for _, topic in sorted(topics.items())]):
        if each.leader == broker:
            stored = await planner.look_at_partition(client, each.topic, each.partition, looks, at_end=True)
            newest = max((form for form, _ in stored), key=lambda form: form.magic, default=None)
            led.append(LedPartition(each.topic, each.partition, each.replicas, each.in_sync, newest))
    return led


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
