"""A cluster store over a tree that other brokers share: a controller decides about topics, and announces them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from magicbyte.engine.cluster import topics
from magicbyte.engine.cluster.changes import (
    DeletionEnded,
    DeletionRequested,
    PartitionsCreated,
    ProposedChange,
    SettingsChanged,
    TopicCreated,
)
from magicbyte.engine.errors import MetadataError, NetworkError
from magicbyte.engine.printable import logger
from magicbyte.server.settings.offer import TRANSACTION_VERSION
from magicbyte.server.stores.orders import changes_of, changes_of_partitions
from magicbyte.server.stores.znodes.features import finalize
from magicbyte.server.stores.znodes.reading import Parts, reread
from magicbyte.server.stores.znodes.store import FollowedPart, TreeStore

if TYPE_CHECKING:
    from magicbyte.engine.cluster.brokers import Registration
    from magicbyte.engine.cluster.image import ClusterImage, PartitionImage
    from magicbyte.engine.ports import TopicPartition
    from magicbyte.server.stores.orders import MetadataUpdate

log = logger(__name__)

_OF_CONTROLLER: Final = (TopicCreated, PartitionsCreated, DeletionRequested, DeletionEnded)
"""Proposed changes that a member's image lacks: the controller announces what follows from them."""


class MemberStore(TreeStore):
    """The store of a member of a cluster.

    Its image has the topics that the controller has announced, without requested deletions, with the brokers and states
    of its latest UpdateMetadata.
    """

    @cached_property
    def _topics(self) -> FollowedPart:
        return FollowedPart("topics", self._read_unread, self._spawn)

    @cached_property
    def _unread(self) -> dict[TopicPartition, PartitionImage]:
        """Announced partitions of topics that are not read yet."""
        return {}

    def _read_all(self, image: ClusterImage) -> ClusterImage:
        return self._read_shared(image)

    def _parts(self, changes: Iterable[ProposedChange]) -> Parts:
        parts = super()._parts(changes)
        parts.deletions.clear()
        return parts

    def _known(self, base: ClusterImage, read: ClusterImage) -> ClusterImage:  # topics only as announced
        return replace(read, topics=base.topics, topic_names=base.topic_names)

    def _made_here(self, changes: Sequence[ProposedChange]) -> Sequence[ProposedChange]:
        new = {topics.entity_of(change.topic.name) for change in changes if isinstance(change, TopicCreated)}
        return [
            change
            for change in changes
            if not isinstance(change, _OF_CONTROLLER)
            and not (isinstance(change, SettingsChanged) and change.entity in new)
        ]

    async def register(self, broker_id: int, registration: Registration) -> int:
        """Register a broker, which the controller announces: see `ClusterStore.register`."""
        level = registration.features.get(TRANSACTION_VERSION, 0)
        await finalize(self._watching(), broker_id, level)
        epoch = await self._register(broker_id, registration)
        await finalize(self._watching(), broker_id, level)
        return epoch

    # ---- what the controller decides

    async def announced(self, names: Collection[str]) -> None:
        """Read topics and their settings: new ones, and those that have grown. Unknown names are ignored.

        Raises NetworkError, MetadataError; the image stays.
        """
        await self._reread(Parts(topics=dict.fromkeys(sorted(names))))

    async def updated(self, update: MetadataUpdate) -> None:
        """Apply what the controller announces. Topics that are new to this broker are read, with their settings.

        If that is impossible now, it is repeated until it succeeds, and they are unknown until then.
        """
        async with self._turn:
            self.follow(changes_of(self._image, update))
            for key, partition in update.partitions.items():
                if key.topic not in self._image.topics:
                    self._unread[key] = partition
            for key in [key for key in self._unread if key.topic in update.deleted]:
                del self._unread[key]
        if self._unread:
            try:
                await self._read_unread()
            except (MetadataError, NetworkError) as error:
                names = sorted({key.topic for key in self._unread})
                log.warning("topics %s cannot be read from the metadata tree: %s", ", ".join(names[:20]), error)
                self._topics.changed()

    async def _read_unread(self) -> None:
        async with self._turn:  # so that no topic is read whose deletion is announced meanwhile
            parts = Parts(topics=dict.fromkeys(sorted({key.topic for key in self._unread})))
            self._publish(await self._reading.run(self._news, lambda image: reread(self._metadata, image, parts).image))
            partitions, self._unread = self._unread, {}
            self.follow(changes_of_partitions(self._image, partitions))
