"""A cluster store over the metadata tree: of a broker that is a cluster by itself, or of a member of a cluster.

Invariants:
1. `_turn` is held from a reading of the tree until its image is published: no reading is published after a later one.
   Order of locks: `directory` (changes of metadata, one at a time), then `_turn`.
2. A proposal reads the nodes that it changes again before it writes them. So it is compared with the tree, not with the
   last notification; between the two the versions of the nodes protect it.
3. An image is published after its changes are durable. A crash in between loses nothing: the next start reads the tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from magicbyte.engine.cluster.changes import (
    ClusterChange,
    ConnectionRateChanged,
    DamageChanged,
    ProposedChange,
    QuotasChanged,
    ScramCredentialChanged,
    apply_all,
    difference,
)
from magicbyte.engine.cluster.image import ClusterImage
from magicbyte.engine.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    StaleProposalError,
    UnknownOutcomeError,
)
from magicbyte.engine.printable import logger
from magicbyte.server.metadata import layout
from magicbyte.server.stores.znodes import clients
from magicbyte.server.stores.znodes.reading import read_clients, reread_clients
from magicbyte.server.stores.znodes.writing import WritingTerms, node_changes

if TYPE_CHECKING:
    from magicbyte.engine.cluster.store import Subscriber
    from magicbyte.engine.ports import MetadataStore
    from magicbyte.server.serving.threads import Threads

log = logger(__name__)


class TreeStore:
    """A `ClusterStore` of quotas and SCRAM credentials. `metadata` is the tree for threads, in its current session.

    `reading` and `writing` run blocking calls elsewhere. `directory` must be held to change the metadata. `terms`
    returns those of now. A member calls `reread` for each notification of changed settings, also for those that it
    missed without a session.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        reading: Threads,
        writing: Threads,
        directory: asyncio.Lock,
        terms: Callable[[], WritingTerms],
    ) -> None:
        self._metadata, self._reading, self._writing = metadata, reading, writing
        self._directory, self._terms = directory, terms
        self._turn = asyncio.Lock()
        self._subscribers: list[Subscriber] = []
        self._image = ClusterImage()

    @property
    def image(self) -> ClusterImage:
        """The latest image."""
        return self._image

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` now, with the changes from an empty image to this one, and then with each later one."""
        self._subscribers.append(subscriber)
        subscriber(self._image, difference(ClusterImage(), self._image))

    async def start(self) -> None:
        """Read the tree. Raises NetworkError, MetadataError."""
        async with self._turn:
            self._publish(await self._reading.run(read_clients, self._metadata, self._image))

    async def reread(self, kind: str, name: str) -> None:
        """Read the node of a user, client or address again. Raises NetworkError, MetadataError; the image stays."""
        if kind in (clients.USERS, clients.CLIENTS, clients.ADDRESSES):
            async with self._turn:
                self._publish(await self._reading.run(reread_clients, self._metadata, self._image, [(kind, name)]))

    async def propose(self, changes: Sequence[ProposedChange], seen: ClusterImage) -> ClusterImage:
        """Make changes that were decided by the image `seen`: see `ClusterStore.propose`."""
        places = list(dict.fromkeys(_place(change) for change in changes))
        async with self._directory, self._turn:
            now = await self._reading.run(reread_clients, self._metadata, self._image, places)
            self._publish(now)
            if any(_value(now, change) != _value(seen, change) for change in changes):
                raise _stale(places)
            after = apply_all(now, changes, now.position)
            try:
                await self._writing.run(self._write, now, changes)
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                self._publish(await self._reading.run(reread_clients, self._metadata, self._image, places))
                raise _stale(places) from error
            except UnknownOutcomeError:
                self._publish(await self._reading.run(reread_clients, self._metadata, self._image, places))
                if any(_value(self._image, change) != _value(after, change) for change in changes):
                    raise
            else:
                self._publish(after)
            return self._image

    def _write(self, image: ClusterImage, changes: Sequence[ProposedChange]) -> None:
        made = node_changes(self._metadata, image, changes, self._terms())
        if made:
            self._metadata.transaction(made)

    def _publish(self, image: ClusterImage) -> None:
        changes = difference(self._image, image)
        self._image = image
        for change in changes:
            _report(change)
        if changes:
            for subscriber in self._subscribers:
                subscriber(image, changes)


def _place(change: ProposedChange) -> tuple[str, str]:
    """Return kind and name of the node that a change is written into."""
    match change:
        case QuotasChanged(entity=entity):
            return clients.place_of(entity)
        case ConnectionRateChanged(address=address):
            return clients.address_place(address)
        case ScramCredentialChanged(user=user):
            return clients.USERS, clients.sanitised(user)
    raise AssertionError(f"{type(change).__name__} is not proposed yet")


def _value(image: ClusterImage, change: ProposedChange) -> object:
    """Return the part of an image that a change replaces."""
    match change:
        case QuotasChanged(entity=entity):
            return image.quotas.get(entity)
        case ConnectionRateChanged(address=address):
            return image.connection_rates.get(address)
        case ScramCredentialChanged(user=user, mechanism=mechanism):
            return image.scram_users.get(user, {}).get(mechanism)
    raise AssertionError(f"{type(change).__name__} is not proposed yet")


def _stale(places: Sequence[tuple[str, str]]) -> StaleProposalError:
    return StaleProposalError(layout.config_path(*places[0]), "another broker has changed it meanwhile")


def _report(change: ClusterChange) -> None:
    if isinstance(change, DamageChanged) and change.why is not None:
        log.warning("the metadata has a damaged part, which is ignored: %s: %s", change.part.name, change.why)
