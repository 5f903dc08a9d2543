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
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from magicbyte.engine.cluster.acls import Pattern, ResourcePattern, ResourceType
from magicbyte.engine.cluster.changes import (
    AclsChanged,
    ClusterChange,
    ConnectionRateChanged,
    DamageChanged,
    ProposedChange,
    QuotasChanged,
    ScramCredentialChanged,
    apply_all,
    difference,
)
from magicbyte.engine.cluster.image import ClusterImage, DamagedSection
from magicbyte.engine.errors import (
    BadVersionError,
    MagicbyteError,
    NodeExistsError,
    NoNodeError,
    StaleProposalError,
    UnknownOutcomeError,
)
from magicbyte.engine.printable import logger
from magicbyte.server.metadata import acl_nodes, layout
from magicbyte.server.metadata.readable import knows_prefixed_acls, knows_resource_type
from magicbyte.server.stores.znodes import clients
from magicbyte.server.stores.znodes.reading import read_acls, read_clients, reread_acls, reread_clients
from magicbyte.server.stores.znodes.writing import WritingTerms, node_changes

if TYPE_CHECKING:
    from magicbyte.engine.cluster.store import Subscriber
    from magicbyte.engine.ports import MetadataStore
    from magicbyte.server.metadata.on_loop import LoopStore
    from magicbyte.server.serving.threads import Threads

log = logger(__name__)

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a task that ends with the broker at the latest."""
_RETRY_S: Final = 1.0


class TreeStore:
    """A `ClusterStore` of quotas, SCRAM credentials and, if they are followed, ACLs.

    `metadata` is the tree for threads, in its current session.
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
        self._is_reading_acls = self._are_acls_stale = False
        self._watching: Callable[[], LoopStore]
        self._spawn: Spawn

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

    # ---- ACLs

    async def follow_acls(self, watching: Callable[[], LoopStore], spawn: Spawn) -> None:
        """Create the nodes above all ACLs, read these, and follow their changes from now on.

        `watching` returns the tree in its current session. Raises NetworkError, MetadataError.
        """
        self._watching, self._spawn = watching, spawn
        store = watching()
        for path in _acl_roots(self._terms().protocol):
            if await store.exists(path) is None:
                try:
                    await store.create(path, parents=True)
                except NodeExistsError:
                    log.debug("%s was made by another broker meanwhile", path)
        await self._read_acls()

    def acls_changed(self, *_event: object) -> None:
        """Read the ACLs again soon: they have changed, or may have changed without a session."""
        self._are_acls_stale = True
        if not self._is_reading_acls:
            self._is_reading_acls = True
            self._spawn(self._read_until_fresh())

    async def _read_until_fresh(self) -> None:
        try:
            while self._are_acls_stale:
                self._are_acls_stale = False
                try:
                    await self._read_acls()
                except MagicbyteError as error:
                    log.warning("changed ACLs cannot be read yet, the former ones apply: %s", error)
                    self._are_acls_stale = True
                    await asyncio.sleep(_RETRY_S)
        finally:
            self._is_reading_acls = False

    async def _read_acls(self) -> None:
        """Watch for notifications, then read: a change between the two is read again."""
        store = self._watching()
        for path in (acl_nodes.LITERAL_CHANGES, acl_nodes.PREFIXED_CHANGES):
            if await store.exists(path, self.acls_changed) is not None:
                await store.children(path, self.acls_changed)
        async with self._turn:
            self._publish(await self._reading.run(read_acls, self._metadata, self._image))

    # ---- changing

    async def propose(self, changes: Sequence[ProposedChange], seen: ClusterImage) -> ClusterImage:
        """Make changes that were decided by the image `seen`: see `ClusterStore.propose`."""
        async with self._directory, self._turn:
            self._publish(await self._reading.run(self._reread, changes))
            now = self._image
            if any(_value(now, change) != _value(seen, change) for change in changes):
                raise _stale(changes)
            after = apply_all(now, changes, now.position)
            try:
                await self._writing.run(self._write, now, changes)
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                self._publish(await self._reading.run(self._reread, changes))
                raise _stale(changes) from error
            except UnknownOutcomeError:
                self._publish(await self._reading.run(self._reread, changes))
                if any(_value(self._image, change) != _value(after, change) for change in changes):
                    raise
            else:
                self._publish(after)
            return self._image

    def _reread(self, changes: Iterable[ProposedChange]) -> ClusterImage:
        """Return the image with the nodes that changes are written into."""
        image, places, resources = self._image, dict[tuple[str, str], None](), dict[ResourcePattern, None]()
        for change in changes:
            if isinstance(change, AclsChanged):
                resources[change.resource] = None
            else:
                places[_place(change)] = None
        if places:
            image = reread_clients(self._metadata, image, list(places))
        if resources:
            image = reread_acls(self._metadata, image, list(resources))
        return image

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
        case AclsChanged(resource=resource):
            return image.acls.get(resource)
        case ScramCredentialChanged(user=user, mechanism=mechanism):
            return image.scram_users.get(user, {}).get(mechanism)
    raise AssertionError(f"{type(change).__name__} is not proposed yet")


def _stale(changes: Sequence[ProposedChange]) -> StaleProposalError:
    first = changes[0]
    path = acl_nodes.acls_path(first.resource) if isinstance(first, AclsChanged) else layout.config_path(*_place(first))
    return StaleProposalError(path, "another broker has changed it meanwhile")


def _acl_roots(protocol: tuple[int, ...] | None) -> list[str]:
    """Return the nodes that a broker of the cluster's protocol creates: others keep older ones from starting."""
    patterns = [Pattern.LITERAL, *([Pattern.PREFIXED] if knows_prefixed_acls(protocol) else [])]
    changes = {Pattern.LITERAL: acl_nodes.LITERAL_CHANGES, Pattern.PREFIXED: acl_nodes.PREFIXED_CHANGES}
    kinds = [kind for kind in ResourceType if knows_resource_type(kind.name, protocol)]
    return [
        *(acl_nodes.type_path(kind, pattern) for pattern in patterns for kind in kinds),
        *(changes[pattern] for pattern in patterns),
    ]


def _report(change: ClusterChange) -> None:
    if not isinstance(change, DamageChanged) or change.why is None:
        return
    if change.part.section is DamagedSection.ACLS:
        log.error("only super users have access to the resource of this node until it is repaired: %s", change.why)
    elif change.part.section is not DamagedSection.CREDENTIAL:  # logins report it
        log.warning("the metadata has a damaged part, which is ignored: %s: %s", change.part.name, change.why)
