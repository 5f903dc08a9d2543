"""The port to a store of the cluster's metadata, and how to change it by a decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from magicbyte.engine.cluster.brokers import Registration
from magicbyte.engine.cluster.changes import ClusterChange, ProposedChange
from magicbyte.engine.cluster.image import ClusterImage, PartitionImage
from magicbyte.engine.errors import StaleProposalError
from magicbyte.engine.ports import TopicPartition

Subscriber: TypeAlias = Callable[[ClusterImage, Sequence[ClusterChange]], None]
Decision: TypeAlias = Callable[[ClusterImage], Sequence[ProposedChange]]
"""Returns the changes that a request needs in a cluster. It may raise, and has no other effect."""

_ATTEMPTS: Final = 10  # an attempt fails only if another broker changes the same part meanwhile


class ClusterStore(Protocol):
    """What is known of the cluster now, and the way to change it. All calls are made on the event loop.

    Readers: `image` is the latest one. It lags behind the store by the time that a notification takes. If the store
    cannot be reached, the last image stays in use, for as long as that lasts. Subscribers are called with each new
    image and the changes that led to it, in order, before `image` returns it to others. They must not raise.

    Proposers: `propose` returns once its changes are durable and in `image`. They are all made, or none.

    Sessions: `register` makes a broker live until its session ends.
    """

    @property
    def image(self) -> ClusterImage:
        """The latest image."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` now, with the changes from an empty image to this one, and then with each later one."""

    async def follow_acls(self) -> None:
        """Have the ACLs in the image from now on. Raises NetworkError, MetadataError."""

    async def stored_partition(self, key: TopicPartition) -> PartitionImage | None:
        """Return a partition as it is stored, known in the image or not. Raises NetworkError, MetadataError."""

    @property
    def has_topic_ids(self) -> bool:
        """Whether all brokers of the cluster give topics ids."""

    def readable(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return a topic's settings as all brokers of the cluster read them. Raises ProtocolTooOldError."""

    async def propose(self, changes: Sequence[ProposedChange], seen: ClusterImage) -> ClusterImage:
        """Make the changes that were decided by the image `seen`; return the image after them.

        Raises StaleProposalError if a part that they change is another one by now; the error has an image with it, and
        nothing was changed. Raises UnknownOutcomeError if the connection was lost meanwhile and the store cannot say
        whether they were made; a later image shows it. Raises NetworkError, MetadataError, ProtocolTooOldError; nothing
        was changed.
        """

    async def register(self, broker_id: int, registration: Registration) -> int:
        """Register a broker for as long as its session lasts; return the epoch of the registration.

        Waits as `wait_for_earlier_session` does, and raises as it does. A broker that is registered in this session
        keeps its epoch. Raises InvalidConfigError if other brokers have other features; NetworkError, MetadataError.
        """

    async def wait_for_earlier_session(self, broker_id: int) -> None:
        """Wait until no other session has a broker registered: this one before a crash, or another with its id.

        Raises NodeExistsError if that session does not end, NetworkError, MetadataError.
        """


async def change(store: ClusterStore, decide: Decision) -> ClusterImage:
    """Make the changes that a decision returns, and decide again if another broker was faster; return the image then.

    Raises as `decide` and `ClusterStore.propose` do; StaleProposalError after ten attempts.
    """
    seen = store.image
    for _ in range(_ATTEMPTS - 1):
        try:
            return await store.propose(decide(seen), seen)
        except StaleProposalError as error:
            seen = error.image or store.image
    return await store.propose(decide(seen), seen)
