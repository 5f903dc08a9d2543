"""The progress of a mirror, stored at the target as offsets of consumer groups. docs/decisions/0006 has the reasons.

A partition of the source that is copied to the partition of the same number has one offset, in the mirror's group. One
whose records are spread has a group of its own, with an offset for each target partition. The committed offset is the
next one to read at the source. Its metadata tell from which offset on the target may hold more than that, and by which
producer it was written: copier.py uses both.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct, field

from magicbyte.access.client import Client
from magicbyte.access.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.engine.errors import MirrorError
from magicbyte.tools.mirror.rewrite import NO_PRODUCER, ProducerIdentity

DEFAULT_GROUP: Final = "magicbyte-mirror"
_VERSION: Final = 1


class Lane(NamedTuple):
    """A mirror's position in a partition of the target: records sent before the position have offsets below
    `target`.

    `identity`: producer and sequence number of the next record.
    """

    target: int
    identity: ProducerIdentity = NO_PRODUCER


class Origin(NamedTuple):
    """The source. `cluster`: its id, None if it has none (before 0.10.1); `topic_id`: None before 2.8.

    `via`: the clusters from which the source itself mirrors this topic, the nearest first. `target_id`: of the target's
    topic, None while it does not exist, and before 2.8.
    """

    cluster: str | None = None
    topic_id: str | None = None
    via: tuple[str, ...] = ()
    target_id: str | None = None

    def check(self, known: Origin, what: str, group: str) -> None:
        """Raise MirrorError unless a stored position with the origin `known` belongs to this source."""
        if known.cluster != self.cluster:
            raise MirrorError(f"{what}: group {group} mirrors cluster {known.cluster}, not {self.cluster}")
        if None not in (known.topic_id, self.topic_id) and known.topic_id != self.topic_id:
            raise MirrorError(f"{what}: the topic was recreated: its id was {known.topic_id}, and is {self.topic_id}")
        if None not in (known.target_id, self.target_id) and known.target_id != self.target_id:
            raise MirrorError(
                f"{what}: the topic was recreated at the target: its id was {known.target_id}, and is {self.target_id}"
            )


class MirrorPlace(Struct, frozen=True):
    """A mirror's position in a partition of the source: all records below `offset` are in the lanes, by partition."""

    offset: int
    lanes: Mapping[int, Lane]
    origin: Origin = field(default_factory=Origin)

    def metadata(self, partition: int) -> str:
        """Return the metadata of a lane, everything but the offset, as text."""
        lane, origin = self.lanes[partition], self.origin
        told = {"magicbyte-mirror": _VERSION, "target": lane.target, "as": list(lane.identity), "of": len(self.lanes)}
        of = {"source": origin.cluster, "topic": origin.topic_id, "via": list(origin.via), "to": origin.target_id}
        return json.dumps(told | of)


class Book(Struct, frozen=True):
    """The stored position of a partition of the source. `topic` is the target's; `keyed`: with several lanes."""

    group: str
    topic: str
    partition: int
    keyed: bool = False

    @property
    def name(self) -> str:
        """The consumer group."""
        return f"{self.group}.keyed-{self.partition}" if self.keyed else self.group

    async def load(self, client: Client, partitions: int, *, stable: bool = False) -> MirrorPlace | None:
        """Return the position, None if there is none yet. `partitions`: the target topic's number of partitions.

        `stable`: it is committed in transactions. Raises MirrorError for offsets committed by others, or an incomplete
        position.
        """
        lanes = range(partitions) if self.keyed else [self.partition]
        found = await committed_offsets(client, self.name, [(self.topic, each) for each in lanes], stable=stable)
        return _place(found, f"group {self.name}, {self.topic}-{self.partition}") if found else None

    async def save(self, client: Client, place: MirrorPlace) -> None:
        """Store the position, atomically. Raises BrokerError and NetworkError."""
        await commit_offsets(client, self.name, self.offsets(place))

    def offsets(self, place: MirrorPlace) -> dict[tuple[str, int], Committed]:
        """Return the offsets that represent a position."""
        return {(self.topic, each): Committed(place.offset, place.metadata(each)) for each in place.lanes}


class BegunTopic(NamedTuple):
    """A topic that is already mirrored: `keyed` tells whether records are spread by key."""

    keyed: bool
    origin: Origin


async def begun(client: Client, group: str, topics: Mapping[str, int]) -> dict[str, BegunTopic]:
    """Return the topics that are already mirrored into a cluster of `topics` (partition counts by name), by name.

    Offsets of other groups with this prefix are ignored. Raises BrokerError and NetworkError.
    """
    partitions = [(topic, each) for topic, count in topics.items() for each in range(count)]
    begun_topics = {}
    for keyed in (False, True):
        book = Book(group, "", 0, keyed=keyed)
        for (topic, partition), each in (await committed_offsets(client, book.name, partitions)).items():
            with contextlib.suppress(MirrorError):
                begun_topics[topic] = BegunTopic(keyed, _place({(topic, partition): each}, topic, whole=False).origin)
    return begun_topics


def _place(found: Mapping[tuple[str, int], Committed], what: str, *, whole: bool = True) -> MirrorPlace:
    lanes, origins, offsets, count = {}, set(), set(), 1
    for (_, partition), committed in found.items():
        try:
            told = json.loads(committed.metadata)
            if told["magicbyte-mirror"] != _VERSION:
                raise ValueError(told["magicbyte-mirror"])
            lanes[partition] = Lane(int(told["target"]), ProducerIdentity(*map(int, told["as"])))
            origins.add(Origin(told["source"], told.get("topic"), tuple(told.get("via", ())), told.get("to")))
            count = told.get("of", 1)
        except (ValueError, KeyError, TypeError) as error:
            raise MirrorError(
                f"{what}: expected the progress of a mirror, found metadata {committed.metadata!r}"
            ) from error
        offsets.add(committed.offset)
    if (whole and len(lanes) != count) or len(offsets) != 1 or len(origins) != 1:
        raise MirrorError(f"{what}: expected the progress of {count} lanes, found {len(lanes)} at {sorted(offsets)}")
    return MirrorPlace(offsets.pop(), lanes, origins.pop())
