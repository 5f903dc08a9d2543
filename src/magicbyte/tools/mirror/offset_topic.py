"""Store the offset maps of mirrors in a compacted topic of the target: one record for each run.

Keys are JSON, {"group": "magicbyte-mirror", "topic": "t", "partition": 0, "source": 17}, and so are values: {"target":
12, "exact": true}. `topic` is the target's. A tombstone removes its run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, ErrorCode, MirrorError
from magicbyte.engine.protocol import APIS
from magicbyte.engine.protocol.api_key import ApiKey
from magicbyte.engine.records.columns import Record
from magicbyte.engine.sentinels import NO_TIMESTAMP
from magicbyte.tools.mirror.offset_map import MirrorOffsetMap, OffsetRun, Translation, run_told
from magicbyte.tools.mirror.progress import MirrorPlace

OFFSET_TOPIC: Final = "__magicbyte_mirror_offsets"
MOST_REPLICAS: Final = 3
_OPTIONS: Final = ProduceOptions(codec=Codec.GZIP)  # a codec of brokers of every era

TopicPartition: TypeAlias = tuple[str, int]


async def make_offset_topic(client: Client) -> bool:
    """Create the topic if needed; return whether it exists. Brokers before 0.10.1 cannot create it for clients."""
    if OFFSET_TOPIC in await client.topics():
        return True
    connection = await client.any_connection()
    if connection.versions.latest(APIS[ApiKey.CREATE_TOPICS]) is None:
        return False
    replicas = min(MOST_REPLICAS, len(client.cluster.brokers))
    wanted = admin.NewTopic(OFFSET_TOPIC, 1, replicas, {"cleanup.policy": "compact"})
    try:
        await admin.create_topic(client, wanted)
    except BrokerError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return True


async def note(client: Client, group: str, topic: str, partition: int, runs: Iterable[OffsetRun]) -> None:
    """Add runs to the map of a partition. Raises BrokerError and NetworkError."""
    records = []
    for each in runs:
        key = {"group": group, "topic": topic, "partition": partition, "source": each.source}
        value = {"target": each.target, "exact": each.exact}
        records.append(Record(0, NO_TIMESTAMP, 0, json.dumps(key).encode(), json.dumps(value).encode()))
    await send(client, OFFSET_TOPIC, 0, records, _OPTIONS)


@dataclass(frozen=True, slots=True)
class Reach:
    """A mirrored partition: its name at the target, the map, and the end of the copied records."""

    target: TopicPartition
    known: MirrorOffsetMap
    end: OffsetRun

    def translate(self, offset: int) -> Translation:
        """Return where a consumer at `offset` of the source continues at the target."""
        return self.known.translate(offset, self.end)


@dataclass(slots=True)
class KnownMaps:
    """The maps of a group, as far as they were read."""

    group: str
    maps: dict[TopicPartition, MirrorOffsetMap] = field(default_factory=dict)
    _position: int = 0

    async def refresh(self, client: Client) -> None:
        """Read new records of the topic. Raises MirrorError for an invalid run, BrokerError and NetworkError."""
        if OFFSET_TOPIC not in await client.topics():
            return
        start, end = await bounds(client, OFFSET_TOPIC, 0)
        async for columns in read_records(client, OFFSET_TOPIC, 0, max(self._position, start), end):
            for each in columns:
                self._take(each)
        self._position = end

    def reach(self, partition: TopicPartition, place: MirrorPlace) -> Reach:
        """Return the state of a partition of the target, for the stored position of its source."""
        end = OffsetRun(place.offset, place.lanes[partition[1]].target)
        return Reach(partition, self.maps.get(partition) or MirrorOffsetMap(), end)

    def _take(self, record: Record) -> None:
        try:
            key = json.loads(record.key or b"")
            group, partition, source = key["group"], (str(key["topic"]), int(key["partition"])), int(key["source"])
            run = None if record.value is None else run_told({"source": source} | json.loads(record.value))
        except (ValueError, KeyError, TypeError) as error:
            where = f"{OFFSET_TOPIC}, offset {record.offset}"
            raise MirrorError(f"{where}: expected a run of an offset map, found key {record.key!r}") from error
        if group != self.group:
            return
        known = self.maps.setdefault(partition, MirrorOffsetMap())
        if run is None:
            known.remove(source)
        else:
            known.add(run)
