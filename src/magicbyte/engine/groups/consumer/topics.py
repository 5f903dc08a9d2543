"""The topics of the cluster as consumer groups see them, and the hash by which a group notices their changes.

Source: Kafka's Utils.computeTopicHash and computeGroupHash (4.3), which hash with XXH3 over little-endian integers.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable
from typing import Final, Protocol

from msgspec import Struct

from magicbyte.engine.wire.checksum import xxh3_64

_ID: Final = struct.Struct("<BQQ")
_INT: Final = struct.Struct("<i")
_LONG: Final = struct.Struct("<Q")
_MAGIC: Final = 0  # of the hash of a topic
_LOW_64: Final = (1 << 64) - 1


class GroupTopic(Struct, eq=False):
    """A topic: its id, and how many partitions it has. `racks`: of each partition, those of its replicas, sorted.

    Nothing of it changes, so that its hash is computed once.
    """

    name: str
    id: uuid.UUID
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()
    _known_hash: bytes = b""

    @property
    def hash(self) -> bytes:
        """The 8 bytes of its hash, in which a group finds any change of it."""
        if not self._known_hash:
            self._known_hash = _LONG.pack(_topic_hash(self))
        return self._known_hash


class GroupTopics(Protocol):
    """The topics of the cluster."""

    @property
    def version(self) -> object:
        """An object that is another one after each change of topics."""

    @property
    def position(self) -> int:
        """The position of the cluster's image, which grows."""

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""

    def find(self, name: str) -> GroupTopic | None:
        """Return a topic that has an id, or None; the same object as long as it does not change."""

    def find_id(self, topic_id: uuid.UUID) -> GroupTopic | None:
        """Return the topic with this id, or None."""


def metadata_hash(topics: GroupTopics, names: Iterable[str]) -> int:
    """Return the hash of those of the topics that exist, as an int64; 0 without any."""
    found = [topic for name in sorted(names) if (topic := topics.find(name)) is not None]
    if not found:
        return 0
    return _signed(xxh3_64(b"".join([each.hash for each in found])))


def _topic_hash(topic: GroupTopic) -> int:
    data = bytearray(_ID.pack(_MAGIC, topic.id.int >> 64, topic.id.int & _LOW_64))
    data += _text(topic.name) + _INT.pack(topic.partitions)
    for partition in range(topic.partitions):
        data += _INT.pack(partition)
        for rack in topic.racks[partition] if topic.racks else ():
            data += _INT.pack(len(_units(rack)) // 2) + _text(rack)
    return xxh3_64(data)


def _text(text: str) -> bytes:
    units = _units(text)
    return units + _INT.pack(len(units) // 2)


def _units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _signed(value: int) -> int:
    return value - (value >> 63 << 64)
