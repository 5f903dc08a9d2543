"""The metadata tree as read, watched and written by the controller of one epoch.

Calls wait for a lost connection: only SessionExpiredError ends a call, and StaleControllerEpochError a change, once
another controller has been elected: each transaction checks the version of `/controller_epoch`. So a deposed controller
changes nothing, even if it does not know it yet.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from magicbyte.engine.cluster.brokers import ControllerElection, RegisteredBroker
from magicbyte.engine.cluster.controller_store import PartChanged, WatchedPart
from magicbyte.engine.errors import (
    BadVersionError,
    MetadataError,
    NetworkError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    StaleControllerEpochError,
    UnknownOutcomeError,
)
from magicbyte.engine.ports import (
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    NodeChange,
    NodeEvent,
    SetNode,
    TopicPartition,
)
from magicbyte.engine.printable import logger
from magicbyte.engine.replication.controller import AssignmentChange, StateChange
from magicbyte.engine.replication.state import NEW_NODE, KnownState
from magicbyte.server.settings.topic_config import own_value
from magicbyte.server.stores.znodes import election, layout
from magicbyte.server.stores.znodes.layout import TopicNode
from magicbyte.server.stores.znodes.readable import knows_moves_of_topics
from magicbyte.server.stores.znodes.reading import topic_of

if TYPE_CHECKING:
    import uuid

    from magicbyte.engine.cluster.image import TopicImage
    from magicbyte.server.metadata.on_loop import LoopStore

P = ParamSpec("P")
T = TypeVar("T")

RETRY_S: Final = 0.1
_ATTEMPTS: Final = 10
_MOST_CHANGES: Final = 1000
_MOST_BYTES: Final = 500_000  # of a transaction: half of ZooKeeper's limit
_OVERHEAD: Final = 200  # upper bound of bytes besides a change's data, including the path and parent nodes
_UNCLEAN: Final = "unclean.leader.election.enable"
log = logger(__name__)


async def retry_while_disconnected(call: Callable[P, Awaitable[T]], *arguments: P.args, **named: P.kwargs) -> T:
    """Return the result of a call to the tree, waiting for a connection. Raises UnknownOutcomeError for a change."""
    is_told = False
    while True:
        try:
            return await call(*arguments, **named)
        except UnknownOutcomeError:
            raise
        except NetworkError as error:
            if not is_told:
                log.warning("controller: waiting for the metadata tree: %s", error)
            is_told = True
            await asyncio.sleep(RETRY_S)


class ElectionNodes:
    """The elections of one session's tree: `Elections`. `now_ms` returns the date."""

    def __init__(self, store: LoopStore, broker_id: int, now_ms: Callable[[], int], protocol: tuple[int, ...]) -> None:
        self._store, self._broker_id, self._now_ms, self._protocol = store, broker_id, now_ms, protocol

    async def stand(self, changed: Callable[[], None]) -> ControllerElection:
        """Become the controller if there is none: see `Elections.stand`."""
        watch = _Changed(changed)
        while True:
            try:
                return await retry_while_disconnected(election.elect, self._store, self._broker_id, self._now_ms, watch)
            except UnknownOutcomeError:
                await asyncio.sleep(RETRY_S)

    async def resign(self, won: ControllerElection, *, waits: bool = False) -> None:
        """Resign, if this session is still the controller: see `Elections.resign`."""
        if waits:
            await retry_while_disconnected(election.resign, self._store, won)
        else:
            await election.resign(self._store, won)

    def store_of(self, won: ControllerElection, changed: PartChanged) -> ControllerTree:
        """Return the tree for the controller of an epoch."""
        return ControllerTree(self._store, won.epoch_version, self._protocol, changed)


class ControllerTree:
    """The tree of one session: a `ControllerStore`.

    `epoch_version` is that of `/controller_epoch` since the election.
    """

    def __init__(self, store: LoopStore, epoch_version: int, protocol: tuple[int, ...], changed: PartChanged) -> None:
        self.has_moves_of_topics = knows_moves_of_topics(protocol)
        self._store = store
        self._check = CheckNode(layout.CONTROLLER_EPOCH, epoch_version)
        self._watches = {part: partial(_tell, changed, part) for part in WatchedPart}
        self._known_notices = set[str]()  # of changed settings that were read

    # ---- reading

    async def _children(self, path: str, part: WatchedPart | None = None) -> list[str]:
        watch = None if part is None else self._watches[part]
        (names,) = await retry_while_disconnected(self._store.children_many, [path], watch)
        return names or []

    async def _nodes(self, paths: Sequence[str], part: WatchedPart | None = None) -> list[Node | None]:
        if not paths:
            return []
        return await retry_while_disconnected(
            self._store.get_many, paths, None if part is None else self._watches[part]
        )

    async def brokers(self) -> dict[int, RegisteredBroker]:
        """Return the registered brokers, and watch them."""
        ids = [int(name) for name in await self._children(layout.BROKER_IDS, WatchedPart.BROKERS) if name.isdigit()]
        brokers = dict[int, RegisteredBroker]()
        nodes = await self._nodes([layout.broker_path(each) for each in ids], WatchedPart.BROKER)
        for broker_id, node in zip(ids, nodes, strict=True):
            if node is not None:
                registration = _parsed(layout.load_broker, layout.broker_path(broker_id), node.data)
                if registration is not None:
                    brokers[broker_id] = RegisteredBroker(broker_id, node.czxid, registration)
        return brokers

    async def topic_names(self) -> list[str]:
        """Return the names of all topics, and watch for new ones."""
        return await self._children(layout.TOPICS, WatchedPart.TOPICS)

    async def topics(self, names: Sequence[str]) -> dict[str, TopicImage]:
        """Return topics without states, and watch them; missing ones are left out."""
        paths = [layout.topic_path(each) for each in names]
        nodes = await self._nodes(paths, WatchedPart.TOPIC)
        found = {
            name: None if node is None else _parsed(TopicNode.load, path, node.data)
            for name, path, node in zip(names, paths, nodes, strict=True)
        }
        return {name: topic_of(name, each, {}) for name, each in found.items() if each is not None}

    async def states(
        self, partitions: Collection[TopicPartition], part: WatchedPart | None = None
    ) -> dict[TopicPartition, KnownState]:
        """Return the states of partitions that have one; watch them as `part`."""
        paths = [layout.state_path(*each) for each in partitions]
        found = dict[TopicPartition, KnownState]()
        for key, path, node in zip(partitions, paths, await self._nodes(paths, part), strict=True):
            if node is not None and (state := _parsed(layout.load_state, path, node.data)) is not None:
                found[key] = KnownState(state, node.version)
        return found

    async def deletions(self, *, are_enabled: bool) -> list[str]:
        """Return the topics to delete, and watch for more; if deletion is disabled, requests are removed."""
        names = await self._children(layout.DELETE_TOPICS, WatchedPart.DELETIONS)
        if are_enabled or not names:
            return names
        log.warning("controller: delete.topic.enable is false: not deleting %s", ", ".join(names))
        await self.delete([f"{layout.DELETE_TOPICS}/{each}" for each in names])
        return []

    async def reassignments(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the reassignments requested by old tools, and watch them."""
        watch = self._watches[WatchedPart.REASSIGNMENTS]
        node = await retry_while_disconnected(self._store.exists, layout.REASSIGNMENTS, watch)
        return {} if node is None else _parsed(_reassignments, layout.REASSIGNMENTS, node.data) or {}

    async def preferred_election(self) -> list[TopicPartition] | None:
        """Return the partitions for which old tools request preferred elections, or None; watch for requests."""
        watch = self._watches[WatchedPart.PREFERRED_ELECTION]
        node = await retry_while_disconnected(self._store.exists, layout.PREFERRED_ELECTION, watch)
        return None if node is None else _parsed(layout.load_partitions, layout.PREFERRED_ELECTION, node.data) or []

    async def isr_changes(self) -> list[TopicPartition]:
        """Return the partitions whose ISRs leaders have changed; delete the notifications, and watch for more."""
        found = await self._notices(layout.ISR_CHANGES, WatchedPart.ISR_CHANGES, layout.load_partitions)
        return [key for each in found for key in each]

    async def log_directory_events(self) -> list[int]:
        """Return the brokers with a failed log directory; delete the notifications, and watch for more."""
        return await self._notices(
            layout.LOG_DIRECTORY_EVENTS, WatchedPart.LOG_DIRECTORY_EVENTS, layout.load_log_directory_event
        )

    async def _notices(self, parent: str, part: WatchedPart, load: Callable[[str, bytes], T]) -> list[T]:
        paths = [f"{parent}/{each}" for each in await self._children(parent, part)]
        nodes = await self._nodes(paths)
        found = [_parsed(load, path, node.data) for path, node in zip(paths, nodes, strict=True) if node is not None]
        await self.delete(paths)
        return [each for each in found if each is not None]

    async def config_changes(self) -> list[str]:
        """Return the topics whose settings have changed since the last call; watch for more."""
        names = await self._children(layout.CONFIG_CHANGES, WatchedPart.CONFIG_CHANGES)
        paths = [f"{layout.CONFIG_CHANGES}/{each}" for each in names if each not in self._known_notices]
        self._known_notices = set(names)
        changed = list[str]()
        for path, node in zip(paths, await self._nodes(paths), strict=True):
            said = None if node is None else _parsed(layout.load_config_change, path, node.data)
            if said is not None and said[0] == "topics":
                changed.append(said[1])
        return changed

    async def unclean(self, topics: Sequence[str]) -> dict[str, bool]:
        """Return `unclean.leader.election.enable` of the topics with their own setting."""
        paths = [layout.config_path("topics", each) for each in topics]
        values = dict[str, bool]()
        for topic, path, node in zip(topics, paths, await self._nodes(paths), strict=True):
            settings = None if node is None else _parsed(layout.load_config, path, node.data)
            value = own_value(settings or {}, _UNCLEAN)
            if value is not None:
                values[topic] = value
        return values

    # ---- changing

    async def _write(self, changes: Sequence[NodeChange]) -> None:
        """Make changes, unless another controller has been elected."""
        try:
            await retry_while_disconnected(self._store.transaction, [self._check, *changes])
        except (BadVersionError, NoNodeError) as error:
            if error.path == layout.CONTROLLER_EPOCH:
                raise StaleControllerEpochError("another controller has been elected") from error
            raise

    async def write_states(self, changes: Sequence[StateChange]) -> dict[TopicPartition, KnownState]:
        """Write states if the nodes have the expected versions; return the written ones."""
        written = dict[TopicPartition, KnownState]()
        batch, size = list[StateChange](), 0
        for change in changes:
            if len(batch) == _MOST_CHANGES or size >= _MOST_BYTES:
                written |= await self._write_batch(batch)
                batch, size = [], 0
            batch.append(change)
            size += _OVERHEAD + 3 * len(change.partition.topic.encode()) + 8 * len(change.state.isr)
        return written | await self._write_batch(batch)

    async def _write_batch(self, changes: Sequence[StateChange]) -> dict[TopicPartition, KnownState]:
        if not changes:
            return {}
        try:
            await self._write([*await self._missing_parents(changes), *map(_state_change, changes)])
        except UnknownOutcomeError:
            return await self._write_unsure(changes)
        except (BadVersionError, NoNodeError, NodeExistsError) as error:
            if len(changes) > 1:  # write them individually, to find those that fail
                middle = len(changes) // 2
                return await self._write_batch(changes[:middle]) | await self._write_batch(changes[middle:])
            if isinstance(error, NodeExistsError) and not error.path.endswith("/state"):
                return await self._write_batch(changes)  # the parent was created meanwhile
            return {}
        return {change.partition: KnownState(change.state, change.expected_version + 1) for change in changes}

    async def _write_unsure(self, changes: Sequence[StateChange]) -> dict[TopicPartition, KnownState]:
        """Determine the result of a transaction whose response was lost; write missing states."""
        found = await self.states([each.partition for each in changes])
        written, left = dict[TopicPartition, KnownState](), list[StateChange]()
        for change in changes:
            known = found.get(change.partition)
            if known == KnownState(change.state, change.expected_version + 1):
                written[change.partition] = known
            elif (NEW_NODE if known is None else known.version) == change.expected_version:
                left.append(change)
        return written | await self._write_batch(left)

    async def _missing_parents(self, changes: Iterable[StateChange]) -> list[NodeChange]:
        """Return the creations of missing parents of new states."""
        new: defaultdict[str, list[int]] = defaultdict(list)
        for change in changes:
            if change.expected_version == NEW_NODE:
                new[change.partition.topic].append(change.partition.partition)
        if not new:
            return []
        parents = [layout.partitions_path(topic) for topic in new]
        made = list[NodeChange]()
        children = await retry_while_disconnected(self._store.children_many, parents)
        for parent, names, partitions in zip(parents, children, new.values(), strict=True):
            if names is None:
                made.append(CreateNode(parent))
            there = set(names or ())
            made += [CreateNode(f"{parent}/{each}") for each in partitions if str(each) not in there]
        return made

    async def write_assignments(self, changes: Iterable[AssignmentChange]) -> list[AssignmentChange]:
        """Write replicas and moves into the nodes of topics; return those of existing topics."""
        by_topic: defaultdict[str, list[AssignmentChange]] = defaultdict(list)
        for change in changes:
            by_topic[change.partition.topic].append(change)
        written = list[AssignmentChange]()
        for topic, each in by_topic.items():
            if await self._change_topic(topic, partial(_with_replicas, each)) is not None:
                written += each
        return written

    async def give_id(self, topic: str, topic_id: uuid.UUID) -> TopicImage | None:
        """Assign an id to a topic without one; return it, None if it does not exist."""
        node = await self._change_topic(topic, lambda node: node if node.topic_id else replace(node, topic_id=topic_id))
        return None if node is None else topic_of(topic, node, {})

    async def _change_topic(self, topic: str, change: Callable[[TopicNode], TopicNode]) -> TopicNode | None:
        """Change the node of a topic; return it, None if it does not exist. Concurrently added partitions are kept."""
        path = layout.topic_path(topic)
        while True:
            (topic_node,) = await self._nodes([path])
            if topic_node is None:
                return None
            node = TopicNode.load(path, topic_node.data)
            new = change(node)
            if new == node:
                return node
            try:
                await self._write([SetNode(path, new.dump(), topic_node.version)])
            except (BadVersionError, NoNodeError, UnknownOutcomeError):
                continue  # retry
            return new

    async def remove_topic(self, topic: str) -> None:
        """Remove a topic from the tree: its states, then itself, its settings and the deletion request.

        As soon as it is gone, a topic of the same name may be created: its new node is kept.
        """
        top, created = layout.topic_path(topic), None
        wanted = [top, layout.config_path("topics", topic), f"{layout.DELETE_TOPICS}/{topic}"]
        for _ in range(_ATTEMPTS):
            (node,) = await self._nodes([top])
            if node is not None and created not in (None, node.czxid):
                return
            created = None if node is None else node.czxid
            below = await self._below(top)
            for start in range(0, len(below), _MOST_CHANGES):
                await self.delete(below[start : start + _MOST_CHANGES])
            left = [path for path, node in zip(wanted, await self._nodes(wanted), strict=True) if node is not None]
            if not left:
                return
            try:
                await self._write([DeleteNode(each) for each in left])
            except (NoNodeError, NotEmptyError, UnknownOutcomeError) as error:
                log.info("controller: deleting topic %s again: %s", topic, error)
            else:
                return
        log.error("controller: cannot delete the nodes of topic %s: others are made below them", topic)

    async def _below(self, top: str) -> list[str]:
        """Return the nodes below a node, children first."""
        levels, found = [top], list[str]()
        while levels:
            children = await retry_while_disconnected(self._store.children_many, levels)
            levels = [f"{path}/{name}" for path, names in zip(levels, children, strict=True) for name in names or ()]
            found += levels
        return found[::-1]

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete nodes; missing ones are ignored."""
        left = list(paths)
        while left:
            try:
                await self._write([DeleteNode(each) for each in left[:_MOST_CHANGES]])
                left = left[_MOST_CHANGES:]
            except (NoNodeError, UnknownOutcomeError):
                nodes = await self._nodes(left)
                left = [path for path, node in zip(left, nodes, strict=True) if node is not None]

    async def end_preferred_election(self) -> None:
        """Delete the request for preferred elections, which triggers the watch for the next one."""
        await self.delete([layout.PREFERRED_ELECTION])

    async def put_reassignments(self, wanted: Mapping[TopicPartition, Sequence[int]], *, is_new: bool) -> None:
        """Replace the reassignments in the node of old tools; `is_new`: it does not exist yet."""
        if not wanted:
            await self.delete([layout.REASSIGNMENTS])
            return
        path, data = layout.REASSIGNMENTS, layout.dump_reassignments(wanted)
        try:
            await self._write([CreateNode(path, data) if is_new else SetNode(path, data)])
        except UnknownOutcomeError:
            await self.put_reassignments(wanted, is_new=is_new)
        except NodeExistsError:
            log.info("controller: %s was created by a tool meanwhile, and is read next", path)
        except NoNodeError:  # they have all been cancelled
            log.warning("controller: %s was deleted while reassignments are in progress", layout.REASSIGNMENTS)


class _Changed(Struct, frozen=True):
    """A watch of `/controller`. Equal ones compare equal, as stores require of watches."""

    call: Callable[[], None]

    def __call__(self, _event: NodeEvent, _path: str) -> None:
        self.call()


def _tell(changed: PartChanged, part: WatchedPart, _event: NodeEvent, path: str) -> None:
    changed(part, _subject(part, path))


def _subject(part: WatchedPart, path: str) -> TopicPartition | None:
    """Return the topic or partition that a path is of."""
    names = path.split("/")
    if part is WatchedPart.TOPIC:
        return TopicPartition(names[-1], -1)
    return TopicPartition(names[-4], int(names[-2])) if part is WatchedPart.STATE else None


def _reassignments(_path: str, data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    return layout.load_reassignments(data)


def _parsed(load: Callable[[str, bytes], T], path: str, data: bytes) -> T | None:
    """Parse a node; return None for an invalid one, so that it does not affect others."""
    try:
        return load(path, data)
    except MetadataError as error:
        log.error("controller: a node is ignored: %s", error)  # noqa: TRY400 (not a bug)
        return None


def _state_change(change: StateChange) -> NodeChange:
    path, data = layout.state_path(*change.partition), layout.dump_state(change.state)
    if change.expected_version == NEW_NODE:
        return CreateNode(path, data)
    return SetNode(path, data, change.expected_version)


def _with_replicas(changes: Iterable[AssignmentChange], node: TopicNode) -> TopicNode:
    replicas, adding, removing = ({**each} for each in (node.replicas, node.adding, node.removing))
    for change in changes:
        partition = change.partition.partition
        replicas[partition] = list(change.replicas)
        for kept, new in ((adding, change.move.adding), (removing, change.move.removing)):
            kept.pop(partition, None)
            if new:
                kept[partition] = list(new)
    return replace(node, replicas=replicas, adding=adding, removing=removing)
