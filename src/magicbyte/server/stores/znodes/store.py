"""A cluster store over the metadata tree. Of what a member of a cluster knows, `member_store.py` has a part.

Invariants:
1. `_turn` is held from a reading of the tree until its image is published: no reading is published after a later one.
   Order of locks: `Runtime.directory`, then `_turn`.
2. A proposal reads the nodes that it changes again before it writes them. So it is compared with the tree, not with the
   last notification; between the two the versions of the nodes protect it.
3. An image is published after its changes are durable. A crash in between loses nothing: the next start reads the tree.
4. A watch is set before the reading that it guards. Each new session reads everything again that was to be notified.
5. What a session brings about (`follow`) is published at once. A reading that began before it is published on top.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from magicbyte.engine.cluster.acls import Pattern, ResourceType
from magicbyte.engine.cluster.brokers import RegisteredBroker
from magicbyte.engine.cluster.changes import (
    AclsChanged,
    BrokerRegistered,
    ClusterChange,
    ConnectionRateChanged,
    ControllerChanged,
    DamageChanged,
    DeletionEnded,
    DeletionRequested,
    PartitionsCreated,
    PartitionStateChanged,
    ProducerIdsAllocated,
    ProposedChange,
    QuotasChanged,
    ScramCredentialChanged,
    SettingsChanged,
    TopicCreated,
    TopicDeleted,
    TopicIdAssigned,
    apply_all,
    difference,
)
from magicbyte.engine.cluster.image import ClusterImage, DamagedSection, settings_part
from magicbyte.engine.errors import (
    BadVersionError,
    MagicbyteError,
    MetadataError,
    NodeExistsError,
    NoNodeError,
    StaleProposalError,
    UnknownOutcomeError,
)
from magicbyte.engine.printable import logger
from magicbyte.server.stores.znodes import acl_nodes, clients, cluster, layout
from magicbyte.server.stores.znodes.election import elect
from magicbyte.server.stores.znodes.readable import (
    knows_prefixed_acls,
    knows_resource_type,
    knows_topic_ids,
    topic_settings,
)
from magicbyte.server.stores.znodes.reading import (
    Parts,
    read_acls,
    read_producer_ids,
    read_settings,
    read_topics,
    reread,
)
from magicbyte.server.stores.znodes.writing import WritingTerms, node_changes

if TYPE_CHECKING:
    from magicbyte.engine.cluster.brokers import Registration
    from magicbyte.engine.cluster.image import PartitionImage
    from magicbyte.engine.cluster.store import Subscriber
    from magicbyte.engine.ports import MetadataStore, TopicPartition
    from magicbyte.server.metadata.on_loop import LoopStore
    from magicbyte.server.serving.threads import Threads

log = logger(__name__)

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a task that ends with the broker at the latest."""
_RETRY_S: Final = 1.0
_REPORTED_BY_READERS: Final = (
    DamagedSection.CREDENTIAL,
    DamagedSection.TOPIC_SETTINGS,
    DamagedSection.BROKER_SETTINGS,
)
_NOTED: Final = (layout.CONFIG_CHANGES, layout.GROUP_CHANGES)


class _News(NamedTuple):
    """A later image, the one before it, the changes between them, and the error that a proposal ended with."""

    base: ClusterImage
    image: ClusterImage
    changes: Sequence[ClusterChange]
    error: MagicbyteError | None = None


class FollowedPart:
    """Reads a part of the tree again when it has changed, each second until that succeeds. `what` names it."""

    def __init__(self, what: str, read: Callable[[], Coroutine[Any, Any, None]], spawn: Spawn) -> None:
        self._what, self._read, self._spawn = what, read, spawn
        self._is_reading = self._is_stale = False

    def changed(self, *_event: object) -> None:
        """Read soon: it has changed, or may have changed without a session."""
        self._is_stale = True
        if not self._is_reading:
            self._is_reading = True
            self._spawn(self._read_until_fresh())

    async def _read_until_fresh(self) -> None:
        is_told = False
        try:
            while self._is_stale:
                self._is_stale = False
                try:
                    await self._read()
                except MagicbyteError as error:
                    if not is_told:
                        log.warning("changed %s cannot be read yet, the former ones apply: %s", self._what, error)
                    is_told = self._is_stale = True
                    await asyncio.sleep(_RETRY_S)
        finally:
            self._is_reading = False


class TreeStore:
    """A `ClusterStore` of settings, quotas, SCRAM credentials and topics; of ACLs, if they are followed.

    `metadata` is the tree for threads, in its current session; `watching` returns the same for coroutines. `reading`
    and `writing` run blocking calls elsewhere. `terms` returns those of now. An earlier session of a broker may take
    `patience_ms` to end.

    No other broker has the tree: this one decides about topics, so that the image has all that it proposes.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        watching: Callable[[], LoopStore],
        reading: Threads,
        writing: Threads,
        spawn: Spawn,
        terms: Callable[[], WritingTerms],
        patience_ms: int = cluster.PATIENCE_MS,
    ) -> None:
        self._metadata, self._watching, self._reading, self._writing = metadata, watching, reading, writing
        self._terms, self._patience_ms, self._spawn = terms, patience_ms, spawn
        self._turn = asyncio.Lock()
        self._subscribers: list[Subscriber] = []
        self._image = ClusterImage()
        # by the node above them: the notifications of changed settings, as far as they are in the image
        self._notes: dict[str, set[str]] = {}
        self._settings = FollowedPart("settings", self._read_noted, spawn)
        self._acls = FollowedPart("ACLs", self._read_acls, spawn)
        self._follows_acls = False

    @property
    def image(self) -> ClusterImage:
        """The latest image."""
        return self._image

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` now, with the changes from an empty image to this one, and then with each later one."""
        self._subscribers.append(subscriber)
        subscriber(self._image, difference(ClusterImage(), self._image))

    async def start(self) -> None:
        """Read the tree, and follow changes of settings from now on. Raises NetworkError, MetadataError."""
        notes = {parent: set(await self._watch_notes(parent)) for parent in _NOTED}
        async with self._turn:
            self._publish(await self._reading.run(self._news, self._read_all))
            self._notes = notes

    async def _watch_notes(self, parent: str) -> list[str]:
        return await self._watching().children(parent, self._settings.changed)

    def _news(self, read: Callable[[ClusterImage], ClusterImage]) -> _News:
        """Read an image; compare it with the one of now here, in a thread, as it may be large."""
        base = self._image
        image = read(base)
        return _News(base, image, difference(base, image))

    def _read_all(self, image: ClusterImage) -> ClusterImage:
        return read_topics(self._metadata, self._read_shared(image))

    def _read_shared(self, image: ClusterImage) -> ClusterImage:
        """Read the parts for which there is no controller: settings, quotas, credentials and producer ids."""
        image = read_settings(self._metadata, image)
        with contextlib.suppress(MetadataError):  # an error when a block is reserved
            image = read_producer_ids(self._metadata, image)
        return image

    def session_renewed(self) -> None:
        """Follow changes in a new session, with those that were missed without one."""
        self._settings.changed()
        if self._follows_acls:
            self._acls.changed()

    async def reread(self, places: Collection[tuple[str, str]]) -> None:
        """Read the settings of topics and brokers, and the nodes of users, clients and addresses again.

        Each is given by kind and name. Raises NetworkError, MetadataError; the image stays.
        """
        if places:
            await self._reread(Parts(places=dict.fromkeys(places)))

    async def _reread(self, parts: Parts) -> None:
        async with self._turn:
            self._publish(await self._reading.run(self._news, lambda image: reread(self._metadata, image, parts).image))

    async def _read_noted(self) -> None:
        """Read the settings of which there are new notifications. A later reading has those of a failed one."""
        store = self._watching()
        notes = {parent: await self._watch_notes(parent) for parent in _NOTED}
        paths = [
            f"{parent}/{name}" for parent, names in notes.items() for name in names if name not in self._notes[parent]
        ]
        places = dict[tuple[str, str], None]()
        for path, node in zip(paths, await store.get_many(paths) if paths else [], strict=True):
            try:
                if node is not None:
                    places[layout.load_config_change(path, node.data)] = None
            except MetadataError as error:
                log.warning("a change of settings is ignored: %s", error)
        await self.reread(list(places))
        self._notes = {parent: set(names) for parent, names in notes.items()}

    def readable(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return a topic's settings as all brokers of the cluster read them. Raises ProtocolTooOldError."""
        return topic_settings(settings, self._terms().protocol)

    @property
    def has_topic_ids(self) -> bool:
        """Whether all brokers of the cluster give topics ids."""
        return knows_topic_ids(self._terms().protocol)

    async def stored_partition(self, key: TopicPartition) -> PartitionImage | None:
        """Return a partition as the tree has it, announced or not. Raises NetworkError, MetadataError."""
        parts = Parts(topics={key.topic: None})
        return (await self._reading.run(reread, self._metadata, ClusterImage(), parts)).image.partition(key)

    def follow(self, changes: Sequence[ClusterChange]) -> None:
        """Publish changes that the session of this broker brings about: registrations and elections."""
        if changes:
            self._publish(_News(self._image, apply_all(self._image, changes, self._image.position), changes))

    # ---- sessions

    async def register(self, broker_id: int, registration: Registration) -> int:
        """Register a broker, and publish it: see `ClusterStore.register`."""
        epoch = await self._register(broker_id, registration)
        self.follow([BrokerRegistered(RegisteredBroker(broker_id, epoch, registration))])
        return epoch

    async def _register(self, broker_id: int, registration: Registration) -> int:
        terms = self._terms()
        own = cluster.OwnRegistration(registration, terms.now_ms, terms.registration_version)
        return await cluster.register(self._watching(), broker_id, own, self._patience_ms)

    async def wait_for_earlier_session(self, broker_id: int) -> None:
        """Wait until no other session has a broker registered: see `ClusterStore.wait_for_earlier_session`."""
        await cluster.wait_for_earlier_session(self._watching(), broker_id, self._patience_ms)

    async def take_control(self, broker_id: int) -> None:
        """Make the only broker the controller, and publish it. Raises NetworkError, MetadataError."""
        election = await elect(self._watching(), broker_id, lambda: self._terms().now_ms)
        self.follow([ControllerChanged(election.controller, election.epoch)])

    # ---- ACLs

    async def follow_acls(self) -> None:
        """Create the nodes above all ACLs, read these, and follow their changes from now on.

        Raises NetworkError, MetadataError.
        """
        self._follows_acls = True
        store = self._watching()
        for path in _acl_roots(self._terms().protocol):
            if await store.exists(path) is None:
                try:
                    await store.create(path, parents=True)
                except NodeExistsError:
                    log.debug("%s was made by another broker meanwhile", path)
        await self._read_acls()

    def acls_changed(self) -> None:
        """Read the ACLs again soon."""
        self._acls.changed()

    async def _read_acls(self) -> None:
        """Watch for notifications, then read: a change between the two is read again."""
        store, changed = self._watching(), self._acls.changed
        for path in (acl_nodes.LITERAL_CHANGES, acl_nodes.PREFIXED_CHANGES):
            if await store.exists(path, changed) is not None:
                await store.children(path, changed)
        async with self._turn:
            self._publish(await self._reading.run(self._news, lambda image: read_acls(self._metadata, image)))

    # ---- changing

    async def propose(self, changes: Sequence[ProposedChange], seen: ClusterImage) -> ClusterImage:
        """Make changes that were decided by the image `seen`: see `ClusterStore.propose`."""
        async with self._turn:
            news = await self._writing.run(self._attempt, changes, seen)
            self._publish(news)
            if news.error is not None:
                raise news.error
            return self._image

    def _attempt(self, changes: Sequence[ProposedChange], seen: ClusterImage) -> _News:
        """Read the parts that changes replace, and write the changes if these are as they were seen."""
        base, parts = self._image, self._parts(changes)
        now, nodes = reread(self._metadata, base, parts)
        if any(_value(now, change) != _value(seen, change) for change in changes):
            return self._failed(base, now, _stale(changes, now))
        try:
            if made := node_changes(self._metadata, now, changes, self._terms(), nodes):
                self._metadata.transaction(made)
        except (BadVersionError, NodeExistsError, NoNodeError) as error:
            later = reread(self._metadata, base, parts).image
            stale = _stale(changes, later)
            stale.__cause__ = error
            return self._failed(base, later, stale)
        except UnknownOutcomeError as error:
            later, after = reread(self._metadata, base, parts).image, apply_all(now, changes, now.position)
            # another broker that has reserved the same producer ids leaves the same value
            if any(
                isinstance(change, ProducerIdsAllocated) or _value(later, change) != _value(after, change)
                for change in changes
            ):
                return self._failed(base, later, error)
        except MagicbyteError as error:
            return self._failed(base, now, error)
        read = self._known(base, now)
        own = list[ClusterChange]()
        for change in self._made_here(changes):
            own.append(change)
            if isinstance(change, SettingsChanged) and (part := settings_part(change.entity)) in read.damage:
                own.append(DamageChanged(part, None))  # its node is whole now
        return _News(base, apply_all(read, own, read.position), [*difference(base, read), *own])

    def _failed(self, base: ClusterImage, read: ClusterImage, error: MagicbyteError) -> _News:
        known = self._known(base, read)
        return _News(base, known, difference(base, known), error)

    def _parts(self, changes: Iterable[ProposedChange]) -> Parts:
        """Return the parts of the tree that changes are written into, as far as the image has them."""
        return _parts(changes)

    def _known(self, _base: ClusterImage, read: ClusterImage) -> ClusterImage:
        """Return the part of an image, as read for a proposal, that the own one may have."""
        return read

    def _made_here(self, changes: Sequence[ProposedChange]) -> Sequence[ProposedChange]:
        """Return the changes that the image has as soon as they are written."""
        return changes

    def _publish(self, news: _News) -> None:
        image, now = news.image, self._image
        if now is not news.base:  # `follow` was called meanwhile
            image = apply_all(now, news.changes, max(now.position, image.position))
        self._image = image
        for change in news.changes:
            _report(change)
        if news.changes:
            for subscriber in self._subscribers:
                subscriber(image, news.changes)


def _parts(changes: Iterable[ProposedChange]) -> Parts:
    """Return the parts of the tree that changes are written into."""
    parts = Parts()
    for change in changes:
        match change:
            case AclsChanged(resource=resource):
                parts.resources[resource] = None
            case TopicCreated(topic=topic):
                parts.topics[topic.name] = None
            case TopicDeleted(name=name) | TopicIdAssigned(name=name) | PartitionsCreated(topic=name):
                parts.topics[name] = None
            case PartitionStateChanged(partition=key):
                parts.states[key] = None
            case DeletionRequested(topic=name) | DeletionEnded(topic=name):
                parts.deletions[name] = None
            case ProducerIdsAllocated():
                parts.has_producer_ids = True
            case _:
                parts.places[_place(change)] = None
    return parts


def _place(change: ProposedChange) -> tuple[str, str]:
    """Return kind and name of the node that a change is written into."""
    match change:
        case SettingsChanged(entity=entity):
            return layout.settings_place(entity)
        case QuotasChanged(entity=entity):
            return clients.place_of(entity)
        case ConnectionRateChanged(address=address):
            return clients.address_place(address)
        case ScramCredentialChanged(user=user):
            return clients.USERS, clients.sanitised(user)
    raise AssertionError(f"{type(change).__name__} is not proposed yet")


def _path(change: ProposedChange) -> str:
    """Return the node that a change is written into."""
    match change:
        case AclsChanged(resource=resource):
            return acl_nodes.acls_path(resource)
        case TopicCreated(topic=topic):
            return layout.topic_path(topic.name)
        case TopicDeleted(name=name) | TopicIdAssigned(name=name) | PartitionsCreated(topic=name):
            return layout.topic_path(name)
        case PartitionStateChanged(partition=key):
            return layout.state_path(*key)
        case DeletionRequested(topic=name) | DeletionEnded(topic=name):
            return f"{layout.DELETE_TOPICS}/{name}"
        case ProducerIdsAllocated():
            return layout.PRODUCER_IDS
        case _:
            return layout.config_path(*_place(change))


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
        case SettingsChanged(entity=owner):
            return image.settings.get(owner)
        case TopicCreated(topic=topic):
            return image.topics.get(topic.name)
        case TopicDeleted(name=name) | TopicIdAssigned(name=name) | PartitionsCreated(topic=name):
            return image.topics.get(name)
        case PartitionStateChanged(partition=key):
            return None if (partition := image.partition(key)) is None else partition.known
        case DeletionRequested(topic=name) | DeletionEnded(topic=name):
            return name in image.deletions
        case ProducerIdsAllocated():
            return image.next_producer_id
    raise AssertionError(f"{type(change).__name__} is not proposed yet")


def _stale(changes: Sequence[ProposedChange], now: ClusterImage) -> StaleProposalError:
    error = StaleProposalError(_path(changes[0]), "another broker has changed it meanwhile")
    error.image = now
    return error


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
    elif change.part.section not in _REPORTED_BY_READERS:
        log.warning("the metadata has a damaged part, which is ignored: %s: %s", change.part.name, change.why)
