"""Plan a migration: the stage of each topic, its next step and the cost, and when the old format is gone.

The plan uses whatever is available: log directories (exact stored formats), a cluster (samples of stored formats,
settings, groups), the metrics of magicbyte's brokers (traffic by client, conversions). Costs are measured on this
machine, with records of the topic: see `rehearsal`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from magicbyte.access.client.admin import ConfigResource, SettingInForce, describe_configs
from magicbyte.access.client.fetch import FetchOptions, fetch_sets
from magicbyte.access.client.group_admin import describe_group, list_groups
from magicbyte.access.client.offsets import bounds
from magicbyte.access.net.scrape import Scrape, scrape
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import (
    BrokerError,
    CorruptRecordError,
    NetworkError,
    UnsupportedCompressionError,
    UnsupportedVersionError,
)
from magicbyte.engine.log.append.rules import stored_format
from magicbyte.engine.log.live.config import LogConfig
from magicbyte.engine.printable import time_text
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import KAFKA_FORMATS, Format
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.records.scan import scan
from magicbyte.tools.migration.brokers import NOTHING_GIVEN, GivenSettings, look_at_brokers
from magicbyte.tools.migration.rehearsal import Cost, Load, rehearse
from magicbyte.tools.migration.sightings import CLIENT_ID, is_fetcher
from magicbyte.tools.offline.migration import (
    Phase,
    SegmentFacts,
    Step,
    StoredEntries,
    TopicEvidence,
    TopicStage,
    Use,
    format_read_by,
    leaves_ms,
    segment_facts,
    stage_of,
)

if TYPE_CHECKING:
    from magicbyte.access.client.client import Client, Topic
    from magicbyte.engine.log.files.directory import PartitionDirectory
    from magicbyte.engine.records.columns import Record
    from magicbyte.engine.records.scan import BatchTable
    from magicbyte.tools.migration.status import BrokerFacts

SAMPLE_BYTES: Final = 512 << 10  # of a topic, for rehearsals
MOST_RECORDS: Final = 4000
LOOK_BYTES: Final = 16 << 10  # of each fetch that samples stored formats
MOST_READERS: Final = 8  # of one kind in a rehearsal
_SLOW: Final = "a rehearsal ran without compiled loops: the figures apply to a broker without them"
_SLOW_BROKER: Final = (
    "the rehearsal used compiled loops, which the broker has not loaded yet: until then a step costs it more"
)
MOST_SETS: Final = 64  # per fetch of a rehearsal
_UPGRADED: Final = {Format.V0: 1, Format.V1: 3, Format.V2: 11}  # the version of Fetch
_FORMAT: Final = "message.format.version"
_RETENTION: Final = frozenset({"retention.ms", "retention.bytes", "cleanup.policy"})
_SETTINGS: Final = {
    _FORMAT: "log.message.format.version",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "segment.ms": "log.roll.ms",
    "segment.bytes": "log.segment.bytes",
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "message.downconversion.enable": "log.message.downconversion.enable",
}
"""The topic settings that affect the plan, with the names of the brokers' defaults for them."""


Stored = dict[tuple[Format, Codec], StoredEntries]


@dataclass(frozen=True, slots=True)
class Sample:
    """Records of a topic, their codec, records per entry, and their size as stored."""

    records: Sequence[Record]
    codec: Codec
    per_entry: float
    bytes_per_record: float


@dataclass(slots=True)
class TopicFacts:
    """The known facts about a topic. `stored`: entries by format and codec; exact if `partitions` has the segments.

    `shares`: `stored` counts only samples. `settings`: those of `_SETTINGS` that are known. `members`: client ids of
    the members of groups that read it. `numbers`: its partitions, those in the directories or all of the cluster.
    `unread`: partitions whose formats are not known. `is_asked`: its settings were asked of the cluster; those that the
    operator gives count as all that differ from Kafka's defaults.
    """

    name: str
    partitions: list[list[SegmentFacts]] = field(default_factory=list)
    stored: Stored = field(default_factory=dict)
    shares: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    sample: Sample | None = None
    members: dict[str, list[str]] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    unread: list[int] = field(default_factory=list)
    is_asked: bool = False

    @property
    def knows_format(self) -> bool:
        """Whether `configured` is its setting, not only the newest stored format."""
        return _FORMAT in self.settings

    @property
    def knows_retention(self) -> bool:
        """Whether the settings that decide about the deletion of old records are known."""
        return bool(self.is_asked or _RETENTION & self.settings.keys())

    @property
    def config(self) -> LogConfig:
        """The settings of its logs in Kafka's own format, with Kafka's defaults for unknown ones.

        Raises InvalidConfigError.
        """
        from magicbyte.server.settings.topic_config import typed  # imports all settings of brokers

        return LogConfig.of(typed({name: text for name, text in self.settings.items() if name != _FORMAT}))

    @property
    def configured(self) -> Format | None:
        """The configured format; if unknown, the newest stored one; None for an empty topic."""
        if (text := self.settings.get(_FORMAT)) is not None:
            return Format.ENRICHED if text == Format.ENRICHED.value else stored_format(text)
        return max((form for form, _ in self.stored), key=lambda form: form.magic, default=None)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of a topic's clients per second: CPU seconds, records and bytes converted, bytes sent without copies."""

    cpu_s: float
    converted_records: float
    converted_bytes: float
    zero_copy_bytes: float
    memory_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "cpu": self.cpu_s,
            "convertedRecordsPerSecond": self.converted_records,
            "convertedBytesPerSecond": self.converted_bytes,
            "zeroCopyBytesPerSecond": self.zero_copy_bytes,
            "moreMemoryBytes": self.memory_bytes,
        }


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The plan for a topic. `leaves_ms`: when retention has deleted its older formats; 0: it has, None: see `leaves`.

    `leaves`: whether retention deletes them, None if its settings are unknown.

    `now` and `after` are estimates for today and for after the step (in phase 1: after the format is set, with the
    present clients). `memory_bytes` is the increase. They are None for a topic without traffic or rehearsal.
    `is_slow`: the rehearsal ran without compiled kernels.
    """

    facts: TopicFacts
    stage: TopicStage
    uses: tuple[Use, ...]
    leaves_ms: int | None
    leaves: bool | None = True
    now: Estimate | None = None
    after: Estimate | None = None
    is_slow: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        facts = self.facts
        stored = sorted(facts.stored.items(), key=lambda item: (item[0][0].value, item[0][1]))
        return {
            "topic": facts.name,
            "format": None if facts.configured is None else facts.configured.value,
            "formatIsKnown": facts.knows_format,
            "target": self.stage.target.value,
            "phase": self.stage.phase.value,
            "next": self.stage.step.value,
            "who": [each.to_json() for each in self.stage.who],
            "stored": [
                {"format": form.value, "codec": codec.name.lower(), "entries": each.entries, "bytes": each.bytes}
                for (form, codec), each in stored
            ],
            "sampled": facts.shares,
            "unread": facts.unread,
            "oldFormatLeaves": None if not self.leaves_ms else time_text(self.leaves_ms),
            "oldFormatIsGone": self.leaves_ms == 0 and not facts.unread,
            "retentionDeletesIt": self.leaves,
            "clients": [each.to_json() for each in self.uses],
            "groups": facts.members,
            "now": None if self.now is None else self.now.to_json(),
            "after": None if self.after is None else self.after.to_json(),
        }


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The plan of all topics. `cpu_s` and `memory_bytes`: present use of the brokers' processes, None if unknown."""

    topics: tuple[TopicPlan, ...]
    looked_s: float
    cpu_s: float | None
    memory_bytes: int | None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, with the sums of the topics' estimates."""
        return {
            "lookedSeconds": round(self.looked_s, 3),
            "broker": {"cpu": self.cpu_s, "memoryBytes": self.memory_bytes},
            "topics": [each.to_json() for each in self.topics],
            "total": {"now": self.total_now, "after": self.total_after},
            "notes": list(self.notes),
        }

    @property
    def total_now(self) -> dict[str, Any] | None:
        """The sums of all topics' estimates for today; None without any."""
        return _total(each.now for each in self.topics)

    @property
    def total_after(self) -> dict[str, Any] | None:
        """The sums of all topics' estimates for after the next steps."""
        return _total(each.after for each in self.topics)


def _total(estimates: Iterable[Estimate | None]) -> dict[str, Any] | None:
    rows = [each.to_json() for each in estimates if each is not None]
    return {name: sum(each[name] or 0 for each in rows) for name in rows[0]} if rows else None


# ---- stored formats


def look_at_directories(partitions: Iterable[PartitionDirectory], settings: Mapping[str, str]) -> dict[str, TopicFacts]:
    """Return the facts about log directories, from headers alone. `settings`: of all topics."""
    topics: dict[str, TopicFacts] = {}
    for partition in partitions:
        if partition.topic is None or partition.dialect is Dialect.ENRICHED:
            continue
        facts = topics.setdefault(partition.topic, TopicFacts(partition.topic, settings=dict(settings)))
        segments = segment_facts(partition)
        facts.partitions.append(segments)
        facts.numbers.add(partition.partition or 0)
        for segment in segments:
            _add(facts.stored, segment.stored)
        if facts.sample is None and partition.size:
            facts.sample = _sample_of_directory(partition)
    return topics


def _add(total: dict[tuple[Format, Codec], StoredEntries], more: Mapping[tuple[Format, Codec], StoredEntries]) -> None:
    for kind, each in more.items():
        known = total.get(kind, StoredEntries(0, 0))
        total[kind] = StoredEntries(known.entries + each.entries, known.bytes + each.bytes)


def _sample_of_directory(partition: PartitionDirectory) -> Sample | None:
    segment = next((each for each in reversed(partition.segments) if each.log.size), None)
    if segment is None:
        return None
    with partition.files.open(segment.log.path) as file:
        return _sample(memoryview(file.read_at(0, SAMPLE_BYTES)))


def _sample(data: memoryview) -> Sample | None:
    """Return records from the first complete and sound entries."""
    table = scan(data)
    if not table.end:
        return None
    records: list[Record] = []
    total = 0
    with contextlib.suppress(CorruptRecordError, UnsupportedCompressionError):  # `verify` reports the damage
        for columns in decode(data[: table.end]):
            total += len(columns)
            if len(records) < MOST_RECORDS:
                records += columns
    codec = Codec(Counter(table.codec.tolist()).most_common(1)[0][0])
    return Sample(records[:MOST_RECORDS], codec, total / len(table), table.end / total) if total else None


@dataclass(slots=True)
class ClusterTopics:
    """The facts about the topics of a cluster, and about its brokers. `notes`: on missing facts."""

    topics: dict[str, TopicFacts]
    brokers: list[BrokerFacts]
    notes: list[str]


async def look_at_cluster(
    client: Client,
    names: Sequence[str],
    looks: int,
    settings: Mapping[str, str] | None = None,
    given: GivenSettings = NOTHING_GIVEN,
) -> ClusterTopics:
    """Return the facts about topics of a cluster. No `names`: all but internal topics.

    Stored formats are sampled at `looks` evenly spaced offsets of each partition. `settings`, `given`: of topics and of
    brokers that do not return theirs.
    """
    brokers = await look_at_brokers(client, given)
    known = await client.topics(names or None)
    topics: dict[str, TopicFacts] = {}
    notes = []
    for name, topic in sorted(known.items()):
        if not names and (topic.is_internal or name.startswith("__")):
            continue
        facts = topics[name] = TopicFacts(name, shares=True, settings=dict(settings or {}))
        try:
            _take_settings(facts, await describe_configs(client, ConfigResource.TOPIC, name), brokers)
        except UnsupportedVersionError:
            notes.append(f"{name}: no broker returns its settings, which brokers do from 0.11 on")
        except (BrokerError, NetworkError) as error:
            notes.append(f"{name}: its settings are not known ({error})")
        facts.numbers = set(topic.partitions)
        await _look_at_topic(client, facts, topic, looks, notes)
    notes += await _members(client, topics)
    return ClusterTopics(topics, brokers, notes)


def _take_settings(facts: TopicFacts, returned: Mapping[str, SettingInForce], brokers: Sequence[BrokerFacts]) -> None:
    """Add the settings of a topic that a broker returned.

    Without a format of its own, a topic has that of the broker that leads it: the oldest of all brokers counts, and
    none while one of them is unknown.
    """
    facts.is_asked = True
    facts.settings |= {each: text for each in _SETTINGS if each in returned and (text := returned[each].value)}
    if all(broker.stores_newest for broker in brokers):
        facts.settings[_FORMAT] = Format.V2.value
    elif _FORMAT not in returned or not returned[_FORMAT].is_own:
        defaults = [broker.default_format for broker in brokers]
        facts.settings.pop(_FORMAT, None)
        if None not in defaults:
            facts.settings[_FORMAT] = min((each for each in defaults if each), key=lambda form: form.magic).value


async def _look_at_topic(client: Client, facts: TopicFacts, topic: Topic, looks: int, notes: list[str]) -> None:
    for number in topic.partitions if looks else ():
        if topic.partitions[number].leader < 0:  # the client would wait for one
            facts.unread.append(number)
            notes.append(f"{topic.name}-{number}: its formats are not known: no broker leads it")
            continue
        try:
            _add(facts.stored, await look_at_partition(client, topic.name, number, looks))
            if facts.sample is None and facts.stored:
                start, end = await bounds(client, topic.name, number)
                place = max(start, end - MOST_RECORDS)
                found = await fetch_sets(client, topic.name, number, place, FetchOptions(max_bytes=SAMPLE_BYTES))
                facts.sample = _sample(found.data)
        except (BrokerError, NetworkError, CorruptRecordError) as error:
            facts.unread.append(number)
            notes.append(f"{topic.name}-{number}: its formats are not known ({error})")


async def look_at_partition(client: Client, topic: str, number: int, looks: int) -> Stored:
    """Return the entries at `looks` evenly spaced offsets of a partition."""
    stored: Stored = {}
    async for table in tables_of(client, topic, number, looks):
        _add(stored, _stored_in(table))
    return stored


async def tables_of(
    client: Client, topic: str, number: int, looks: int, *, at_end: bool = False
) -> AsyncGenerator[BatchTable]:
    """Yield the entries at `looks` evenly spaced offsets of a partition and, with `at_end`, its last entry."""
    start, end = await bounds(client, topic, number)
    places = {start + (end - start) * at // looks for at in range(looks)} | ({end - 1} if at_end else set())
    for offset in sorted(places) if start < end else ():
        yield (await fetch_sets(client, topic, number, offset, FetchOptions(max_bytes=LOOK_BYTES))).table


def _stored_in(table: BatchTable) -> Stored:
    found: Stored = {}
    codecs = table.codec.tolist()
    for row in range(len(table)):
        _add(found, {(Format(str(table.magic[row])), Codec(codecs[row])): StoredEntries(1, int(table.size[row]))})
    return found


async def _members(client: Client, topics: Mapping[str, TopicFacts]) -> list[str]:
    """Add the client ids of group members to their topics. Return notes on missing facts."""
    try:
        listed = await list_groups(client)
        for group in listed.groups:
            for member in (await describe_group(client, group.name)).members:  # by its coordinator
                for topic, _ in member.partitions:
                    if topic in topics and member.client_id not in topics[topic].members.setdefault(group.name, []):
                        topics[topic].members[group.name].append(member.client_id)
    except (UnsupportedVersionError, BrokerError) as error:
        return [f"groups are unknown ({error})"]
    return [listed.warning] if listed.hidden else []


def joined(stored: Mapping[str, TopicFacts], reported: Mapping[str, TopicFacts]) -> dict[str, TopicFacts]:
    """Return the facts about topics, combined from their directories (`stored`) and the cluster (`reported`).

    Partitions of the cluster that no directory holds are unread: they are on other brokers.
    """
    if not stored:
        return dict(reported)
    topics = {name: replace(facts, unread=sorted(facts.numbers)) for name, facts in reported.items()}
    for name, facts in stored.items():
        known = reported.get(name)
        if known is not None:
            facts.settings = {**facts.settings, **known.settings}
            facts.members, facts.is_asked = known.members, known.is_asked
            facts.unread = sorted(known.numbers - facts.numbers)
        topics[name] = facts
    return topics


async def metrics_pages(client: Client, notes: list[str]) -> dict[int, str]:
    """Return, by broker, the addresses of metrics pages: those in the setting `http.address` that answer.

    Each address that does not answer adds a note: it may be bound to the broker's loopback interface.
    """
    await client.topics([])
    places = dict[int, tuple[str, str]]()
    for broker, node in client.cluster.brokers.items():
        try:
            settings = await describe_configs(client, ConfigResource.BROKER, str(broker))
        except (BrokerError, NetworkError, UnsupportedVersionError):  # not a magicbyte broker, or one that is away
            continue
        address = settings["http.address"].value if "http.address" in settings else None
        if address is None or address.endswith(":0"):
            continue
        places[broker] = address, address if not address.startswith(":") else f"{node.host}{address}"
    pages = dict[int, str]()
    # in parallel: an address without an answer takes seconds
    answers = await asyncio.gather(*(scrape(where) for _, where in places.values()), return_exceptions=True)
    for (broker, (address, where)), answer in zip(places.items(), answers, strict=True):
        if isinstance(answer, NetworkError):
            notes.append(f"metrics of broker {broker} are unavailable: {answer} (its http.address is {address})")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            pages[broker] = where
    return pages


# ---- who uses it


@dataclass(frozen=True, slots=True)
class BrokerUsage:
    """The usage of a broker between two scrapes, or since its start. `has_kernels`: compiled kernels are loaded."""

    uses: Mapping[str, tuple[Use, ...]]
    looked_s: float
    cpu_s: float
    memory_bytes: int | None
    has_kernels: bool

    @property
    def has_clients(self) -> bool:
        """Whether any client was seen."""
        return any(self.uses.values())


async def look_at_metrics(address: str, window_s: float) -> BrokerUsage:
    """Return the usage of each topic over the next `window_s` seconds; 0: since the start. Raises NetworkError."""
    if not window_s:
        return usage(None, await scrape(address))
    before = await scrape(address)
    await asyncio.sleep(window_s)
    return usage(before, await scrape(address))


async def look_at_all_metrics(addresses: Iterable[str], window_s: float) -> BrokerUsage | None:
    """Return the sum of `look_at_metrics` over several brokers, None without brokers."""
    found = await asyncio.gather(*(look_at_metrics(each, window_s) for each in addresses))
    return _together(found) if found else None


def _together(usages: Sequence[BrokerUsage]) -> BrokerUsage:
    uses: dict[str, tuple[Use, ...]] = {}
    for each in usages:
        for topic, more in each.uses.items():
            uses[topic] = (*uses.get(topic, ()), *more)
    memory = [each.memory_bytes for each in usages if each.memory_bytes is not None]
    return BrokerUsage(
        uses,
        max(each.looked_s for each in usages),
        sum(each.cpu_s for each in usages),
        sum(memory) if len(memory) == len(usages) else None,
        all(each.has_kernels for each in usages),
    )


def usage(before: Scrape | None, after: Scrape) -> BrokerUsage:
    """Return the usage between two scrapes; without `before`, since the start."""
    if before is None:
        passed = after.at.date_ms / 1000 - (after.one("process_start_time_seconds") or 0.0)
    else:
        passed = (after.at.monotonic_ms - before.at.monotonic_ms) / 1000
    seconds = max(passed, 0.001)
    tables: dict[str, dict[tuple[tuple[str, str], ...], list[float]]] = {}
    for at, name in enumerate(("bytes", "sets", "records")):
        for found, sign in ((after, 1), (before, -1)):
            for each in () if found is None else found.all(f"magicbyte_moved_{name}_total"):
                row = tables.setdefault(each.labels["topic"], {}).setdefault(
                    tuple(sorted(each.labels.items())), [0.0] * 3
                )
                row[at] += sign * each.value
    cpu = (after.one("process_cpu_seconds_total") or 0.0) - (
        (before and before.one("process_cpu_seconds_total")) or 0.0
    )
    resident = after.one("process_resident_memory_bytes")
    return BrokerUsage(
        {topic: tuple(_uses(rows, seconds)) for topic, rows in tables.items()},
        seconds,
        cpu / seconds,
        None if resident is None else int(resident),
        bool(after.one("magicbyte_kernels_loaded")),
    )


def _uses(rows: Mapping[tuple[tuple[str, str], ...], Sequence[float]], seconds: float) -> Iterable[Use]:
    """Yield the clients of a topic, from rows of labels and of bytes, sets and records."""
    merged: dict[tuple[bool, Format, int, str, str], Use] = {}
    for labels, (size, sets, records) in rows.items():
        about = dict(labels)
        is_ours = about["client_id"] == CLIENT_ID or is_fetcher(about["client_id"])
        if is_ours or Format.ENRICHED.value in (about["source"], about["target"]) or not sets:
            continue
        is_consumer, version = about["direction"] == "fetch", int(about["version"])
        form = format_read_by(version) if is_consumer else Format(about["source"])
        closed = about["source"] == about["target"]
        counts_sets = closed or not is_consumer
        one = Use(
            is_consumer=is_consumer,
            format=form,
            request_version=version,
            client_id=about["client_id"],
            software=f"{about['software']} {about['software_version']}".strip(),
            seconds=seconds,
            bytes=size,
            records=records,
            converted=0 if closed else records,
            closed_sets=sets if counts_sets else 0,
            closed_bytes=size if counts_sets else 0,
        )
        key = (is_consumer, form, version, one.client_id, one.software)
        known = merged.get(key)
        merged[key] = one if known is None else _joined(known, one)
    yield from sorted(merged.values(), key=lambda each: (each.is_consumer, each.format.magic, each.client_id))


def _joined(one: Use, other: Use) -> Use:
    counts = ("bytes", "records", "converted", "closed_sets", "closed_bytes")
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in counts})


# ---- the plan


def load_of(facts: TopicFacts, uses: Sequence[Use], stored: Format) -> Load | None:
    """Return a topic's load for a rehearsal, None without clients or records."""
    sample = facts.sample
    if sample is None or not uses:
        return None
    producers = [each for each in uses if not each.is_consumer]
    consumers = [each for each in uses if each.is_consumer]
    sets, records = sum(each.closed_sets for each in producers), sum(each.records for each in producers)
    written = records * sample.bytes_per_record  # in stored bytes, the unit of consumers' bytes
    versions: list[int] = []
    for each in consumers:
        copies = round(each.bytes / written) if written else 1
        versions += [each.request_version] * min(max(copies, 1), MOST_READERS)
    slices = sum(each.closed_sets for each in consumers)
    slice_bytes = sum(each.closed_bytes for each in consumers) / slices if slices else 0
    return Load(
        stored=stored,
        records=sample.records,
        codec=sample.codec,
        records_per_set=max(1, round(records / sets if sets else sample.per_entry)),
        producers=_shares(producers) or {stored: 1},
        consumers=versions,
        sets_per_fetch=min(max(1, round(slice_bytes * sets / written)), MOST_SETS) if slices and sets else 1,
        settings={name: facts.settings[name] for name in ("compression.type",) if name in facts.settings},
    )


def _shares(producers: Sequence[Use]) -> dict[Format, int]:
    """Return how many of ten sets have each format, by the number of records, at least one for each format in use."""
    by_format = {form: sum(each.records for each in producers if each.format is form) for form in KAFKA_FORMATS}
    total = sum(by_format.values())
    return {form: max(1, round(10 * count / total)) for form, count in by_format.items() if count}


def upgraded(uses: Sequence[Use], stage: TopicStage) -> list[Use]:
    """Return the clients after a step that upgrades some of them."""
    version = _UPGRADED[stage.target]
    return [
        each if each not in stage.who
        else replace(each, format=stage.target, request_version=version if each.is_consumer else each.request_version)
        for each in uses
    ]  # fmt: skip


async def plan(
    topics: Mapping[str, TopicFacts],
    used: BrokerUsage | None,
    *,
    now_ms: int,
    target: Format | None = None,
    rehearsals: int = 4,
    notes: Sequence[str] = (),
    brokers: Sequence[BrokerFacts] | None = None,
    knows_clients: bool = False,
) -> MigrationPlan:
    """Return the plan. `target`: the format to migrate to; None: the next one of each topic.

    `brokers`: None if they are not known. `knows_clients`: whether all clients are known. The steps of the `rehearsals`
    busiest topics are rehearsed, for a few seconds each. Raises NetworkError if no broker can be started here.
    """
    plans = []
    for name, facts in sorted(topics.items()):
        configured = facts.configured
        if configured is Format.ENRICHED:
            continue
        uses = () if used is None else tuple(used.uses.get(name, ()))
        due_ms = _leaves(facts, configured or Format.V2, uses, now_ms)
        known = TopicEvidence(
            format=facts.knows_format, clients=knows_clients, stored=not facts.unread, leaves=_deletes(facts, due_ms)
        )
        stage = stage_of(configured, [form for form, _ in facts.stored], uses, target, known)
        if stage.step is Step.SET_FORMAT and not _is_ready(brokers, stage.target):
            stage = replace(stage, step=Step.SEE_BROKERS)
        plans.append(TopicPlan(facts, stage, uses, due_ms, known.leaves))
    busiest = sorted(plans, key=lambda each: -sum(use.bytes for use in each.uses))[:rehearsals]
    done = {each.facts.name: await _rehearsed(each) for each in busiest if each.uses}
    return MigrationPlan(
        tuple(done.get(each.facts.name, each) for each in plans),
        0.0 if used is None else used.looked_s,
        None if used is None else used.cpu_s,
        None if used is None else used.memory_bytes,
        (*notes, *_notes_on_kernels(used, done.values())),
    )


def _is_ready(brokers: Sequence[BrokerFacts] | None, target: Format) -> bool:
    """Return whether every broker is known to know a format, and to replicate it."""
    return brokers is not None and all(
        broker.knows is not None and broker.knows.magic >= target.magic and not broker.lacks_protocol(target)
        for broker in brokers
    )


def _deletes(facts: TopicFacts, due_ms: int | None) -> bool | None:
    """Return whether retention deletes a topic's old records, None if its settings are unknown."""
    if not facts.knows_retention:
        return None
    if facts.partitions:
        return due_ms is not None
    config = facts.config
    return config.delete and (config.retention_ms >= 0 or config.retention_bytes >= 0)


def _notes_on_kernels(used: BrokerUsage | None, done: Iterable[TopicPlan]) -> Iterable[str]:
    """Yield notes if the broker and the rehearsal may differ in compiled kernels."""
    rehearsed = [each for each in done if each.now is not None]
    if any(each.is_slow for each in rehearsed):
        yield _SLOW
    if used is not None and not used.has_kernels and not all(each.is_slow for each in rehearsed):
        yield _SLOW_BROKER


def _leaves(facts: TopicFacts, target: Format, uses: Sequence[Use], now_ms: int) -> int | None:
    """Return when the last partition has no entries older than `target`.

    Samples only show whether there are any (0), and without the settings nothing more is known, either.
    """
    if not facts.partitions or not facts.knows_retention:
        older = any(form.magic < target.magic for form, _ in facts.stored)
        return None if older else 0
    rate = sum(each.bytes_per_s for each in uses if not each.is_consumer) / len(facts.partitions)
    due = [leaves_ms(segments, target, facts.config, now_ms=now_ms, bytes_per_s=rate) for segments in facts.partitions]
    return None if None in due else max(each for each in due if each is not None)


async def _rehearsed(topic: TopicPlan) -> TopicPlan:
    """Add a topic's estimates for today and for after the next step with an effect."""
    configured = topic.facts.configured
    if configured is None:
        return topic
    after_uses, stored = list(topic.uses), configured
    if topic.stage.phase is Phase.ONE:
        stored = topic.stage.target
    else:
        after_uses = upgraded(topic.uses, topic.stage)
    before, after = load_of(topic.facts, topic.uses, configured), load_of(topic.facts, after_uses, stored)
    if before is None or after is None or before == after:
        return topic
    costs = await rehearse(before, after)
    written = sum(each.records_per_s for each in topic.uses if not each.is_consumer)
    read = sum(each.bytes_per_s for each in topic.uses if each.is_consumer)
    rate = written or read / max(costs[0].stored_bytes * max(len(before.consumers), 1), 1)
    peaks = [cost.peak_bytes for cost in costs]
    grown = None if None in peaks else max(0, (peaks[1] or 0) - (peaks[0] or 0))
    return replace(
        topic,
        now=_estimate(costs[0], rate, 0),
        after=_estimate(costs[1], rate, grown),
        is_slow=not all(cost.has_kernels for cost in costs),
    )


def _estimate(cost: Cost, records_per_s: float, memory_bytes: int | None) -> Estimate:
    return Estimate(
        cpu_s=cost.cpu_s * records_per_s,
        converted_records=cost.converted_records * records_per_s,
        converted_bytes=cost.converted_bytes * records_per_s,
        zero_copy_bytes=cost.zero_copy_bytes * records_per_s,
        memory_bytes=memory_bytes,
    )
