"""Plan which topics are mirrored and how, from metadata of both clusters, without changes."""

from __future__ import annotations

import asyncio
import enum
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magicbyte.access.client import Client, admin
from magicbyte.access.client.client import Topic
from magicbyte.access.client.fetch import FetchOptions, fetch_sets
from magicbyte.access.client.groups import STABLE
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import newest_format
from magicbyte.access.client.source import Source
from magicbyte.access.client.versions import BrokerVersions
from magicbyte.engine.errors import BrokerError, ErrorCode, MirrorError
from magicbyte.engine.internal_topics import CLUSTER_METADATA, OFFSETS_TOPIC, SHARE_TOPIC, STATE_TOPIC
from magicbyte.engine.log.append.rules import stored_format
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.releases import MAGIC_AS_RELEASE
from magicbyte.tools.mirror.offset_topic import OFFSET_TOPIC
from magicbyte.tools.mirror.oversize import OnOversize
from magicbyte.tools.mirror.progress import DEFAULT_GROUP, BegunTopic, Origin, begun
from magicbyte.tools.mirror.rewrite import Storage

# brokers before 0.10 do not flag internal topics
INTERNAL: Final = frozenset({OFFSETS_TOPIC, STATE_TOPIC, SHARE_TOPIC, OFFSET_TOPIC, CLUSTER_METADATA})
IDENTICAL: Final = "mirror.identical"
NOT_COPIED: Final = frozenset(
    {
        "follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "min.insync.replicas",
        "unclean.leader.election.enable", "message.downconversion.enable", "remote.storage.enable", IDENTICAL,
    }
)  # fmt: skip
"""Topic settings about the source cluster, not about the content."""
OURS: Final = frozenset(
    {"enriched.append.mode", "log.flush.policy", "log.head.truncation", "max.decompressed.message.bytes"}
)
"""Topic settings that Kafka's brokers do not have."""
HEARD_SECONDS: Final = 30.0  # until all brokers know a new topic
_HEARD_AGAIN_SECONDS: Final = 0.1
KEEP_ALL: Final = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic created for files, whose retention is unknown."""
_FORMAT: Final = "message.format.version"
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
_DIFFERENCES: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
_SEGMENT_BYTES: Final = "segment.bytes"
_LEAST_SEGMENT: Final = 1 << 20  # bytes
_SPOKEN: Final = "inter.broker.protocol.version"
_ONE_FORMAT: Final = 3  # from this version on magic 2 is stored, whatever the topic's setting
_OLD_PRODUCE, _ZSTD = range(3), range(7, 13)
_PEEK: Final = FetchOptions(max_bytes=1 << 16, max_wait_ms=0)


class Mode(enum.Enum):
    """The treatment of a topic's sets; the value is printed."""

    CLOSED = "closed"
    CONVERTED = "converted"
    KEYED = "keyed"
    IDENTICAL = "identical"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Choice:
    """The topics to mirror: those whose whole name matches. `group` stores the progress at the target.

    `prefix` is prepended to each name at the target. `park`: the log directory for parked sets. `from_dialect` and
    `to_dialect`: the dialect used by the listeners at both ends for topics that are enriched there.
    """

    topics: re.Pattern[str]
    group: str = DEFAULT_GROUP
    prefix: str = ""
    on_oversize: OnOversize = OnOversize.STOP
    park: Path | None = None
    from_dialect: Dialect = Dialect.KAFKA
    to_dialect: Dialect = Dialect.KAFKA
    merge: bool = False
    """Whether topics of the target may already contain other records when mirroring begins."""
    identical: bool = False
    """Whether the target, magicbyte brokers, gets the source's bytes with their offsets."""
    sync_groups: bool = False
    """Whether offsets of the source's consumer groups are synchronized."""
    append_time: bool = False
    """Whether records keep the time of the append at the source: see `Storage`."""
    transactional_id: str | None = None
    """The prefix of transactional ids, one for each partition, for records and progress. None: no transactions."""


@dataclass(frozen=True, slots=True)
class TopicMirrorPlan:
    """The plan for a topic. `configs` and `replicas` are used if the target's topic must be created.

    `to` is its name at the target, `origin` the identity of the source, `dialect` that of the source's responses.
    `once`: nothing is duplicated, whatever fails; else the last sets may be, after a failure. `committed`: aborted
    records are left out. `mode` and `why` follow from the formats at the two ends of each partition.
    """

    name: str
    to: str
    origin: Origin
    partitions: int
    target_partitions: int | None
    replicas: int
    storage: Storage
    once: bool
    committed: bool
    mode: Mode
    why: str
    dialect: Dialect = Dialect.KAFKA
    configs: Mapping[str, str] = field(default_factory=dict)
    begun: bool = field(default=False, compare=False)
    """Whether this mirror has written into the topic before."""

    def transactional_id(self, beginning: str | None, partition: int) -> str | None:
        """Return the transactional id for a partition of the source; `beginning`: of all ids, None without any."""
        return None if beginning is None else f"{beginning}.{self.to}-{partition}"

    def explain(self) -> str:
        """Return the plan as a line of text."""
        if self.mode is Mode.LEFT_OUT:
            return f"{self.name}: {self.mode.value}: {self.why}"
        count = f"{self.partitions} partition" + "s" * (self.partitions != 1)
        there = "to be created at the target" if self.target_partitions is None else "there at the target"
        if self.grows_from is not None:
            there = f"{self.grows_from} there at the target, the others to be added"
        promise = "exactly once" if self.once else "at least once"
        name = self.name if self.to == self.name else f"{self.name} as {self.to}"
        return f"{name}: {self.mode.value}: {self.why}; {count}, {there}; {promise}"

    @property
    def lanes(self) -> int:
        """How many partitions of the target are chosen by key; 0: each goes to the partition of the same number."""
        return (self.target_partitions or self.partitions) if self.mode is Mode.KEYED else 0

    @property
    def grows_from(self) -> int | None:
        """The number of partitions of the target, if it must be increased; else None."""
        if self.mode is Mode.KEYED or self.target_partitions is None or self.target_partitions >= self.partitions:
            return None
        return self.target_partitions


async def plan(source: Source, target: Client, choice: Choice) -> list[TopicMirrorPlan]:
    """Return the plan of each chosen topic, by name; Kafka's internal topics are never mirrored.

    Raises MirrorError if both are one cluster, or for a cycle; BrokerError and NetworkError.
    """
    here, there = await source.topics(), await target.topics()
    known = source.cluster.cluster_id
    if known is not None and known == target.cluster.cluster_id:
        raise MirrorError(f"source and target are the same cluster, {known}")
    chosen = _chosen(here, choice)
    names = {topic.name: choice.prefix + topic.name for topic in chosen}
    _check_told(chosen)
    _check_told(there[name] for name in names.values() if name in there)
    versions = await target.versions()
    planner = _MirrorPlanner(
        source,
        target,
        choice,
        await source.versions(),
        versions,
        await _broker_settings(target, versions),
        # If no group ever committed, a request for offsets would create the offsets topic.
        await begun(source, choice.group, _sizes(here, names))
        if OFFSETS_TOPIC in here and isinstance(source, Client)
        else {},
        await begun(target, choice.group, _sizes(there, names.values())) if OFFSETS_TOPIC in there else {},
    )
    return [await planner.plan(topic, names[topic.name], there.get(names[topic.name])) for topic in chosen]


async def plan_folder(source: Source, folder: Path, choice: Choice) -> list[TopicMirrorPlan]:
    """Return the plan of each chosen topic for a copy into a log directory, by name, without changes.

    Raises MirrorError for an enriched topic through a listener that converts it, BrokerError and NetworkError.
    """
    chosen = _chosen(await source.topics(), choice)
    _check_told(chosen)
    versions, plans = await source.versions(), []
    for topic in chosen:
        name = choice.prefix + topic.name
        there = sum((folder / f"{name}-{partition}").exists() for partition in topic.partitions)
        configs = await _configs(source, topic.name, versions)
        plans.append(_identical(topic, name, there or None, _origin(source, topic), choice, configs))
    return plans


def _chosen(here: Mapping[str, Topic], choice: Choice) -> list[Topic]:
    return [
        topic
        for name, topic in sorted(here.items())
        if choice.topics.fullmatch(name) and not topic.is_internal and name not in INTERNAL
    ]


def _check_told(topics: Iterable[Topic]) -> None:
    """Raise BrokerError for a topic without partitions, which brokers return until they know them after a start."""
    for topic in topics:
        if not topic.partitions:
            code = topic.error or ErrorCode.LEADER_NOT_AVAILABLE
            raise BrokerError(f"topic {topic.name}", code, broker="the cluster")


def _identical(
    topic: Topic, to: str, there: int | None, origin: Origin, choice: Choice, configs: Mapping[str, str]
) -> TopicMirrorPlan:
    """Return the plan of an identical copy. Raises MirrorError if the source would convert it."""
    is_enriched = configs.get(_FORMAT) == Format.ENRICHED.value
    if is_enriched and choice.from_dialect is Dialect.KAFKA:
        raise MirrorError(f"{topic.name}: enriched: only a listener of the enriched dialect returns its bytes")
    return TopicMirrorPlan(
        topic.name,
        to,
        origin,
        len(topic.partitions),
        there,
        1,
        Storage(Format.V2),
        once=True,
        committed=False,
        mode=Mode.IDENTICAL,
        why="offsets and bytes stay as they are",
        dialect=Dialect.ENRICHED if is_enriched else Dialect.KAFKA,
        configs={**configs, IDENTICAL: "true"},
        begun=there is not None,
    )


def _origin(source: Source, topic: Topic, there: Topic | None = None, via: tuple[str, ...] = ()) -> Origin:
    target_id = None if there is None or there.id is None else str(there.id)
    return Origin(source.cluster.cluster_id, None if topic.id is None else str(topic.id), via, target_id)


def _sizes(topics: Mapping[str, Topic], names: Iterable[str]) -> dict[str, int]:
    return {name: len(topics[name].partitions) for name in names if name in topics}


@dataclass(frozen=True, slots=True)
class _MirrorPlanner:
    """The metadata of both ends: broker versions, and by name the sources mirrored into each topic.

    `settings` are those of a broker of the target.
    """

    source: Source
    target: Client
    choice: Choice
    ours: BrokerVersions
    theirs: BrokerVersions
    settings: Mapping[str, admin.SettingInForce]
    begun_here: Mapping[str, BegunTopic]
    begun_there: Mapping[str, BegunTopic]

    async def plan(self, topic: Topic, to: str, there: Topic | None) -> TopicMirrorPlan:
        """Return the plan of a topic."""
        theirs, ours = self.theirs, self.ours
        configs = await _configs(self.source, topic.name, ours)
        origin = self._origin(topic, there)
        if self.choice.identical:
            return await self._plan_identical(topic, to, there, origin, configs)
        is_enriched = configs.get(_FORMAT) == Format.ENRICHED.value
        dialect = self.choice.from_dialect if is_enriched else Dialect.KAFKA
        if not self._is_ours:
            configs = {name: value for name, value in configs.items() if name not in OURS}
            if is_enriched:
                del configs[_FORMAT]
            elif _FORMAT in configs:
                configs[_FORMAT] = MAGIC_AS_RELEASE.get(configs[_FORMAT], configs[_FORMAT])
        if theirs.latest(APIS[ApiKey.PRODUCE], _OLD_PRODUCE) is None:
            configs = _from_4_0_on(configs)
        stored = await self._format(to, configs, exists=there is not None)
        if stored is Format.ENRICHED and self.choice.to_dialect is Dialect.KAFKA:
            stored = Format.V1  # brokers convert it; magic 2 could have headers, which would be lost
        zstd = stored is Format.V2 and theirs.latest(APIS[ApiKey.PRODUCE], _ZSTD) is not None
        storage = Storage(stored, zstd, self.choice.append_time)
        self._check_transactions(to, storage)
        mode, why = await self._mode(topic, to, there, storage, origin, dialect)
        if not self._knows_format:
            why += f"; not known whether the target stores {storage} for this topic: its brokers return no settings"
        replicas = max((len(each.replicas) for each in topic.partitions.values()), default=1)
        return TopicMirrorPlan(
            topic.name,
            to,
            origin,
            len(topic.partitions),
            None if there is None else len(there.partitions),
            min(replicas, len(self.target.cluster.brokers)),
            storage,
            once=stored is Format.V2 and theirs.latest(APIS[ApiKey.INIT_PRODUCER_ID]) is not None,
            committed=ours.reads_committed,
            mode=mode,
            why=why,
            dialect=dialect,
            configs=configs,
            begun=to in self.begun_there,
        )

    def _check_transactions(self, to: str, storage: Storage) -> None:
        """Raise MirrorError if transactions are requested and the target does not support them."""
        if self.choice.transactional_id is None:
            return
        if self.theirs.latest(APIS[ApiKey.OFFSET_FETCH], STABLE) is None:
            raise MirrorError(
                "--transactional-id: brokers before 2.5 do not report pending offset commits: mirror without it"
            )
        if storage.format is not Format.V2:
            raise MirrorError(
                f"{to}: the target stores {storage}, which holds no transactions: set message.format.version there to "
                "0.11.0 or later, or mirror without --transactional-id"
            )

    def _origin(self, topic: Topic, there: Topic | None) -> Origin:
        """Return the origin of a topic: the source, and the clusters from which it is mirrored there."""
        known = self.begun_here.get(topic.name)
        before = [] if known is None else [known.origin.cluster, *known.origin.via]
        via = tuple(each for each in before if each is not None)
        return _origin(self.source, topic, there, via)

    async def _plan_identical(
        self, topic: Topic, to: str, there: Topic | None, origin: Origin, configs: Mapping[str, str]
    ) -> TopicMirrorPlan:
        """Return the plan of an identical copy. Raises MirrorError if the target cannot hold it."""
        if not self._is_ours:
            raise MirrorError(f"{to}: only magicbyte's brokers and log directories keep offsets")
        if there is not None:
            settings = await admin.describe_configs(self.target, admin.ConfigResource.TOPIC, to)
            if IDENTICAL not in settings or settings[IDENTICAL].value != "true":
                raise MirrorError(f"{to}: expected a topic with {IDENTICAL}=true at the target")
        found = _identical(topic, to, None if there is None else len(there.partitions), origin, self.choice, configs)
        if found.dialect is Dialect.ENRICHED and self.choice.to_dialect is Dialect.KAFKA:
            raise MirrorError(f"{to}: enriched: only a listener of the enriched dialect takes its bytes")
        if self._is_circle(origin):
            raise self._circle(topic)
        return found

    @property
    def _is_ours(self) -> bool:
        """Return whether the brokers of the target are ours: they return a setting that Kafka does not have."""
        return not OURS.isdisjoint(self.settings)

    @property
    def _knows_format(self) -> bool:
        """Return whether the format that the target stores is known: by its settings, or it has one only."""
        return bool(self.settings) or newest_format(self.theirs) is Format.V0

    async def _format(self, topic: str, configs: Mapping[str, str], *, exists: bool) -> Format:
        """Return the format that a topic of the target stores, or will store once it is created with `configs`."""
        newest = newest_format(self.theirs)
        if not self.settings or self.theirs.latest(APIS[ApiKey.PRODUCE], _OLD_PRODUCE) is None:
            return newest
        if exists:
            setting = (await admin.describe_configs(self.target, admin.ConfigResource.TOPIC, topic)).get(_FORMAT)
            value = None if setting is None else setting.value
        elif _FORMAT in configs:
            value = configs[_FORMAT]
        else:
            setting = self.settings.get(f"log.{_FORMAT}")
            value = None if setting is None else setting.value
        if value == Format.ENRICHED.value:
            return Format.ENRICHED
        spoken = self.settings.get(_SPOKEN)
        if spoken is not None and spoken.value is not None and int(spoken.value.split(".")[0]) >= _ONE_FORMAT:
            return newest
        return newest if value is None else min(newest, stored_format(value), key=lambda each: each.magic)

    def _is_circle(self, origin: Origin) -> bool:
        return self.target.cluster.cluster_id in origin.via

    def _circle(self, topic: Topic) -> MirrorError:
        cluster, group = self.target.cluster.cluster_id, self.choice.group
        return MirrorError(
            f"{topic.name}: it came from cluster {cluster}, the target: a loop. With --prefix such topics are left "
            f"out. If that mirror has ended, delete its group {group} at the source"
        )

    async def _mode(
        self, topic: Topic, to: str, there: Topic | None, storage: Storage, origin: Origin, dialect: Dialect
    ) -> tuple[Mode, str]:
        if self._is_circle(origin):
            if self.choice.prefix:
                return Mode.LEFT_OUT, "it came from the target"
            raise self._circle(topic)
        if dialect is Dialect.ENRICHED:
            return (
                Mode.KEYED,
                f"enriched: stored as {storage}, keys decide; sets that tell that they have none stay closed",
            )
        known = self.begun_there.get(to)
        if there is not None and (known.keyed if known else len(there.partitions) != len(topic.partitions)):
            return Mode.KEYED, f"{len(topic.partitions)} partitions become {len(there.partitions)}, so keys decide"
        return await _closed(self.source, topic, storage)


async def _closed(source: Source, topic: Topic, storage: Storage) -> tuple[Mode, str]:
    """Return whether the sets of a topic can stay closed, by the formats at the two ends of each partition."""
    magics: set[int] = set()
    for partition in topic.partitions:
        start, end = await bounds(source, topic.name, partition)
        for offset in {start, end - 1} if start < end else ():
            sets = await fetch_sets(source, topic.name, partition, offset, _PEEK)
            magics.update(int(sets.table.magic[row]) for row in range(len(sets.table)))
    stored = storage.format.magic
    if magics <= {stored}:
        return Mode.CLOSED, f"magic {stored} at both" if magics else f"nothing yet; the target stores magic {stored}"
    listed = " and ".join(str(each) for each in sorted(magics))
    return Mode.CONVERTED, f"magic {listed} at the source, {stored} at the target"


async def _configs(source: Source, topic: str, versions: BrokerVersions) -> dict[str, str]:
    """Return a topic's own settings that concern its records; none before 0.11."""
    if not isinstance(source, Client):
        return dict(KEEP_ALL)
    if versions.latest(APIS[ApiKey.DESCRIBE_CONFIGS]) is None:
        return {}
    found = await admin.describe_configs(source, admin.ConfigResource.TOPIC, topic)
    return {
        each.name: each.value
        for each in found.values()
        if each.is_own and each.value is not None and each.name not in NOT_COPIED
    }


def _from_4_0_on(configs: Mapping[str, str]) -> dict[str, str]:
    """Convert a topic's settings for brokers from 4.0 on.

    These have one format only, a minimum segment size, and separate limits of timestamps before and after.
    """
    from magicbyte.server.settings.topic_config import (
        own_value,  # a mirror to older brokers needs none of these modules
    )

    settings = {name: value for name, value in configs.items() if name not in (_FORMAT, _DIFFERENCE)}
    segment_bytes = own_value(settings, _SEGMENT_BYTES)
    if segment_bytes is not None and segment_bytes < _LEAST_SEGMENT:
        settings[_SEGMENT_BYTES] = str(_LEAST_SEGMENT)
    if _DIFFERENCE in configs:
        settings = dict.fromkeys(_DIFFERENCES, configs[_DIFFERENCE]) | settings
    return settings


async def _broker_settings(client: Client, versions: BrokerVersions) -> dict[str, admin.SettingInForce]:
    """Return the settings of a broker, none before 0.11."""
    if versions.latest(APIS[ApiKey.DESCRIBE_CONFIGS]) is None:
        return {}
    return await admin.describe_configs(client, admin.ConfigResource.BROKER, str(next(iter(client.cluster.brokers))))


async def make_topics(
    client: Client, look: Callable[[], Awaitable[list[TopicMirrorPlan]]], stop: asyncio.Event
) -> list[TopicMirrorPlan]:
    """Return the plan from `look`, once all of its topics exist; after `stop` is set none is created.

    A topic that was just created is looked up again until brokers return it: they learn of it after their controller.
    Raises as `look` and `make_topic` do.
    """
    end = asyncio.get_running_loop().time() + HEARD_SECONDS
    while True:
        planned = [each for each in await look() if each.mode is not Mode.LEFT_OUT]
        try:
            for each in planned:
                if not stop.is_set():
                    await make_topic(client, each)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS or asyncio.get_running_loop().time() >= end:
                raise
        else:
            return planned
        await asyncio.sleep(_HEARD_AGAIN_SECONDS)


async def make_topic(client: Client, wanted: TopicMirrorPlan) -> None:
    """Create a planned topic at the target, or add missing partitions.

    Raises BrokerError, and MirrorError if brokers are too old for it.
    """
    versions = await client.versions()
    if wanted.target_partitions is None:
        if versions.latest(APIS[ApiKey.CREATE_TOPICS]) is None:
            raise MirrorError(
                f"{wanted.to}: brokers before 0.10.1 cannot create topics on request: create it there first"
            )
        made = admin.NewTopic(wanted.to, wanted.partitions, wanted.replicas, wanted.configs)
        await admin.create_topic(client, made)
    elif wanted.grows_from is not None:
        if versions.latest(APIS[ApiKey.CREATE_PARTITIONS]) is None:
            raise MirrorError(
                f"{wanted.to}: brokers before 1.0 cannot add partitions on request: create it with {wanted.partitions}"
            )
        await admin.create_partitions(client, wanted.to, wanted.partitions)
