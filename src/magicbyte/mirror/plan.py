"""Which topics are mirrored and how: looked up at both clusters, changed at neither."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from magicbyte.client import Client, admin
from magicbyte.client.client import Topic
from magicbyte.client.fetch import FetchOptions, fetch_sets
from magicbyte.client.offsets import bounds
from magicbyte.client.produce import newest_format
from magicbyte.client.versions import BrokerVersions
from magicbyte.errors import MirrorError
from magicbyte.log.append_rules import stored_format
from magicbyte.mirror.rewrite import Storage
from magicbyte.protocol import APIS
from magicbyte.records.encode import Format

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})  # brokers before 0.10 do not say which are
NOT_COPIED: Final = frozenset(
    {
        "follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "min.insync.replicas",
        "unclean.leader.election.enable", "message.downconversion.enable", "remote.storage.enable",
    }
)  # fmt: skip
"""Settings of a topic that speak of its cluster, not of what is in it."""
_FORMAT: Final = "message.format.version"
_SPOKEN: Final = "inter.broker.protocol.version"
_ONE_FORMAT: Final = 3  # from this version on magic 2 is stored, whatever the topic says
_PRODUCE, _FETCH, _CREATE_TOPICS, _INIT_PRODUCER_ID, _DESCRIBE_CONFIGS = 0, 1, 19, 22, 32
_OLD_PRODUCE, _ZSTD, _COMMITTED = range(3), range(7, 13), range(4, 13)
_PEEK: Final = FetchOptions(max_bytes=1 << 16, max_wait_ms=0)


class Mode(enum.Enum):
    """What happens to the sets of a topic; the value is what is printed."""

    CLOSED = "closed"
    CONVERTED = "converted"
    KEYED = "keyed"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """How a topic is mirrored. `configs` and `replicas` are for the one that is made where the target lacks it.

    `once`: nothing is copied twice, whatever fails; else what was sent last may be, after a failure. `committed`: what
    was aborted is left out. `mode` and `why` go by the formats at the two ends of each partition.
    """

    name: str
    partitions: int
    target_partitions: int | None
    replicas: int
    storage: Storage
    once: bool
    committed: bool
    mode: Mode
    why: str
    configs: Mapping[str, str] = field(default_factory=dict)

    def explain(self) -> str:
        """Return it as a line of text."""
        count = f"{self.partitions} partition" + "s" * (self.partitions != 1)
        there = "there" if self.target_partitions is not None else "to be made"
        promise = "exactly once" if self.once else "at least once"
        return f"{self.name}: {self.mode.value}: {self.why}; {count}, {there} at the target; {promise}"


async def plan(source: Client, target: Client, topics: re.Pattern[str]) -> list[TopicPlan]:
    """Return how each topic whose whole name matches is mirrored, by name; Kafka's own topics never are.

    Raises MirrorError if both are one cluster, BrokerError and NetworkError.
    """
    here, there = await source.topics(), await target.topics()
    known = source.cluster.cluster_id
    if known is not None and known == target.cluster.cluster_id:
        raise MirrorError(f"source and target are the same cluster, {known}")
    theirs, ours = await _versions(target), await _versions(source)
    chosen = [
        topic
        for name, topic in sorted(here.items())
        if topics.fullmatch(name) and not topic.is_internal and name not in INTERNAL
    ]
    return [await _plan_topic(source, target, topic, there.get(topic.name), ours, theirs) for topic in chosen]


async def _plan_topic(
    source: Client, target: Client, topic: Topic, there: Topic | None, ours: BrokerVersions, theirs: BrokerVersions
) -> TopicPlan:
    configs = await _configs(source, topic.name, ours)
    if theirs.latest(APIS[_PRODUCE], _OLD_PRODUCE) is None:
        configs.pop(_FORMAT, None)  # from 4.0 on there is one format alone
    stored = await _format(target, topic.name, configs, theirs, exists=there is not None)
    storage = Storage(stored, stored is Format.V2 and theirs.latest(APIS[_PRODUCE], _ZSTD) is not None)
    mode, why = await _mode(source, topic, there, storage)
    replicas = max((len(each.replicas) for each in topic.partitions.values()), default=1)
    return TopicPlan(
        topic.name,
        len(topic.partitions),
        None if there is None else len(there.partitions),
        min(replicas, len(target.cluster.brokers)),
        storage,
        once=stored is Format.V2 and theirs.latest(APIS[_INIT_PRODUCER_ID]) is not None,
        committed=ours.latest(APIS[_FETCH], _COMMITTED) is not None,
        mode=mode,
        why=why,
        configs=configs,
    )


async def _mode(source: Client, topic: Topic, there: Topic | None, storage: Storage) -> tuple[Mode, str]:
    if there is not None and len(there.partitions) != len(topic.partitions):
        return Mode.KEYED, f"{len(topic.partitions)} partitions become {len(there.partitions)}, so keys decide"
    found: set[int] = set()
    for partition in topic.partitions:
        start, end = await bounds(source, topic.name, partition)
        for offset in {start, end - 1} if start < end else ():
            sets = await fetch_sets(source, topic.name, partition, offset, _PEEK)
            found.update(int(sets.table.magic[row]) for row in range(len(sets.table)))
    stored = storage.format.magic
    if found <= {stored}:
        return Mode.CLOSED, f"magic {stored} at both" if found else f"nothing yet; the target stores magic {stored}"
    listed = " and ".join(str(each) for each in sorted(found))
    return Mode.CONVERTED, f"magic {listed} at the source, {stored} at the target"


async def _configs(client: Client, topic: str, versions: BrokerVersions) -> dict[str, str]:
    """Return a topic's own settings, as far as they say something about its records; none before 0.11."""
    if versions.latest(APIS[_DESCRIBE_CONFIGS]) is None:
        return {}
    found = await admin.describe_configs(client, admin.Resource.TOPIC, topic)
    return {
        each.name: each.value
        for each in found.values()
        if each.is_own and each.value is not None and each.name not in NOT_COPIED
    }


async def _format(
    target: Client, topic: str, configs: Mapping[str, str], versions: BrokerVersions, *, exists: bool
) -> Format:
    """Return the format that a topic of the target stores, or will once it is made with `configs`."""
    newest = newest_format(versions)
    if versions.latest(APIS[_DESCRIBE_CONFIGS]) is None or versions.latest(APIS[_PRODUCE], _OLD_PRODUCE) is None:
        return newest
    node = str(next(iter(target.cluster.brokers)))
    broker = await admin.describe_configs(target, admin.Resource.BROKER, node)
    spoken = broker.get(_SPOKEN)
    if spoken is not None and spoken.value is not None and int(spoken.value.split(".")[0]) >= _ONE_FORMAT:
        return newest
    if exists:
        setting = (await admin.describe_configs(target, admin.Resource.TOPIC, topic)).get(_FORMAT)
        value = None if setting is None else setting.value
    elif _FORMAT in configs:
        value = configs[_FORMAT]
    else:
        setting = broker.get(f"log.{_FORMAT}")
        value = None if setting is None else setting.value
    if value == Format.ENRICHED.value:
        raise MirrorError(f"{topic}: enriched at the target, which is not mirrored to yet")
    return newest if value is None else min(newest, stored_format(value), key=lambda each: each.magic)


async def _versions(client: Client) -> BrokerVersions:
    node = next(iter(client.cluster.brokers.values()))
    return (await client.connection(node)).versions


async def make_topic(client: Client, wanted: TopicPlan) -> None:
    """Make a planned topic at the target. Raises BrokerError, and MirrorError where brokers are too old for it."""
    if (await _versions(client)).latest(APIS[_CREATE_TOPICS]) is None:
        raise MirrorError(f"{wanted.name}: brokers before 0.10.1 make no topics for clients: make it there first")
    made = admin.NewTopic(wanted.name, wanted.partitions, wanted.replicas, wanted.configs)
    await admin.create_topic(client, made)
