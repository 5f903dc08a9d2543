"""The authorizer: the cluster's ACLs as this broker knows them, changes to them, and the audit log.

An unreadable node denies its resource to all but super users, and an error is logged.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from magicbyte.access.security import acls
from magicbyte.access.security.acls import Acls
from magicbyte.engine.cluster.acls import (
    DENY_ALL,
    AccessControlEntry,
    AclOperation,
    Entries,
    Pattern,
    ResourcePattern,
    ResourceType,
)
from magicbyte.engine.errors import (
    BadVersionError,
    MagicbyteError,
    MetadataError,
    NodeExistsError,
    NoNodeError,
)
from magicbyte.engine.ports import CreateNode, DeleteNode, NodeChange, NodeEvent, SetNode
from magicbyte.engine.printable import logger
from magicbyte.server.metadata import acl_nodes
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.metadata.readable import check_acls, knows_prefixed_acls, knows_resource_type

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore, Node
    from magicbyte.server.serving.request import ClientConnection
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.stores.membership import Membership

log = logger(__name__)
audit = logger("magicbyte.audit")

_ATTEMPTS: Final = 10
_NOTES_KEPT_MS: Final = 15 * 60_000
_RETRY_S: Final = 1.0
_DAMAGED: Final = frozenset({DENY_ALL})


class Authorizer:
    """Decide by the ACLs in the tree. `start` it before any request is served."""

    acls: Acls

    def __init__(self, runtime: Runtime, metadata: MetadataStore, membership: Membership | None) -> None:
        """`metadata` is the tree for threads; a `membership` has its own store, as its session is renewed."""
        self._runtime, self._membership = runtime, membership
        self._super_users = runtime.config.super_users
        self._alone = LoopStore(metadata, runtime.writing.run)
        self._is_reading = self._is_stale = False
        self._own = dict[ResourcePattern, Entries]()  # changes made here since the last reading began

    @property
    def _store(self) -> LoopStore:
        return self._alone if self._membership is None else self._membership.store

    async def start(self) -> None:
        """Read all ACLs, and follow their changes from now on."""
        for path in self._places():
            if await self._store.exists(path) is None:
                try:
                    await self._store.create(path, parents=True)
                except NodeExistsError:
                    log.debug("%s was made by another broker meanwhile", path)
        await self._read()

    def _places(self) -> list[str]:
        """Return the nodes that a broker of the cluster's protocol creates: others keep older ones from starting."""
        protocol = self._runtime.config.tree_protocol
        patterns = [Pattern.LITERAL, *([Pattern.PREFIXED] if knows_prefixed_acls(protocol) else [])]
        changes = {Pattern.LITERAL: acl_nodes.LITERAL_CHANGES, Pattern.PREFIXED: acl_nodes.PREFIXED_CHANGES}
        return [
            *(
                acl_nodes.type_path(kind, each)
                for each in patterns
                for kind in ResourceType
                if knows_resource_type(kind.name, protocol)
            ),
            *(changes[each] for each in patterns),
        ]

    # ---- decisions

    def allows(self, connection: ClientConnection, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Return whether a connection may perform an operation on a resource, and log it for the audit."""
        is_allowed = self.acls.allows(connection.principal, connection.host, operation, kind, name)
        self._note(connection, operation, kind, name, is_allowed=is_allowed)
        return is_allowed

    def allows_any(self, connection: ClientConnection, operation: AclOperation, kind: ResourceType) -> bool:
        """Return whether a connection may perform an operation on any resource of a type, and log it for the audit."""
        is_allowed = self.acls.allows_any(connection.principal, connection.host, operation, kind)
        self._note(connection, operation, kind, "(any)", is_allowed=is_allowed)
        return is_allowed

    def operations(self, connection: ClientConnection, kind: ResourceType, name: str) -> int:
        """Return all operations that a connection may perform on a resource, as bits."""
        may = (
            each
            for each in acls.OPERATIONS[kind]
            if self.acls.allows(connection.principal, connection.host, each, kind, name)
        )
        return sum(1 << each for each in may)

    def _note(
        self, connection: ClientConnection, operation: AclOperation, kind: ResourceType, name: str, *, is_allowed: bool
    ) -> None:
        level = logging.DEBUG if is_allowed else logging.INFO
        if audit.isEnabledFor(level):
            facts = {
                "principal": str(connection.principal),
                "host": connection.host,
                "listener": connection.listener.name,
                "operation": operation.name,
                "resource_type": kind.name,
                "resource": name,
                "allowed": is_allowed,
            }
            said = " ".join(f"{key}={value!r}" for key, value in facts.items())
            audit.log(level, "%s: %s", "allowed" if is_allowed else "denied", said, extra={"fields": facts})

    # ---- the tree

    def _changed(self, _event: NodeEvent, _path: str) -> None:
        self.look_again()

    def look_again(self) -> None:
        """Read the ACLs again soon: they have changed, or may have changed without a session."""
        self._is_stale = True
        if not self._is_reading:
            self._is_reading = True
            self._runtime.spawn(self._read_until_fresh())

    async def _read_until_fresh(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                try:
                    await self._read()
                except MagicbyteError as error:
                    log.warning("changed ACLs cannot be read yet, the former ones apply: %s", error)
                    self._is_stale = True
                    await asyncio.sleep(_RETRY_S)
        finally:
            self._is_reading = False

    async def _read(self) -> None:
        store = self._store
        self._own.clear()
        for path in (acl_nodes.LITERAL_CHANGES, acl_nodes.PREFIXED_CHANGES):
            if await store.exists(path, self._changed) is not None:
                await store.children(path, self._changed)
        resources = [
            ResourcePattern(kind, name, pattern)
            for (pattern, kind), names in zip(_PLACES, await store.children_many(_TYPE_PATHS), strict=True)
            for name in names or ()
        ]
        nodes = await store.get_many([acl_nodes.acls_path(each) for each in resources])
        found = {
            resource: _entries(resource, node)
            for resource, node in zip(resources, nodes, strict=True)
            if node is not None
        }
        self.acls = self._acls(found | self._own)  # the reading may have begun before a change that was acknowledged

    def _acls(self, found: dict[ResourcePattern, Entries]) -> Acls:
        return Acls(found, self._super_users, or_else=self._runtime.config.allow_everyone_if_no_acl_found)

    async def change(
        self, resource: ResourcePattern, *, add: Entries = frozenset(), remove: Entries = frozenset()
    ) -> None:
        """Change the ACLs of a resource in the tree, notify all brokers, and apply them.

        Raises MetadataError, and ProtocolTooOldError for ACLs that brokers of the cluster cannot read.
        """
        if add:
            check_acls(
                resource.type.name,
                {each.operation.name for each in add},
                self._runtime.config.tree_protocol,
                is_prefixed=resource.pattern is Pattern.PREFIXED,
            )
        async with self._runtime.directory:
            for _ in range(_ATTEMPTS):
                try:
                    await self._change(resource, add, remove)
                except (BadVersionError, NodeExistsError, NoNodeError) as error:
                    log.debug("another one changes ACLs at the same time: %s", error)
                else:
                    return
        raise MetadataError(acl_nodes.acls_path(resource), f"{_ATTEMPTS} attempts failed because of concurrent changes")

    async def _change(self, resource: ResourcePattern, add: Entries, remove: Entries) -> None:
        store, path = self._store, acl_nodes.acls_path(resource)
        node = await store.exists(path)
        before = frozenset[AccessControlEntry]() if node is None else acl_nodes.load_entries(path, node.data)
        after = (before | add) - remove
        if after == before:
            return
        data = acl_nodes.dump_entries(after)
        if len(data) > acl_nodes.MOST_NODE_BYTES:
            raise MetadataError(path, f"expected at most {acl_nodes.MOST_NODE_BYTES} bytes of ACLs, found {len(data)}")
        change: NodeChange
        if node is None:
            change = CreateNode(path, data)
        elif after:
            change = SetNode(path, data, node.version)
        else:
            change = DeleteNode(path, node.version)
        note, said = acl_nodes.acl_change(resource, is_old=not knows_prefixed_acls(self._runtime.config.tree_protocol))
        old = await self._old_notes(note.rpartition("/")[0], self._runtime.clock.now_ms())
        await store.transaction([change, *old, CreateNode(note, said, sequence=True)])
        self._own[resource] = after
        self.acls = self._acls({**self.acls.of, resource: after})

    async def _old_notes(self, parent: str, now_ms: int) -> list[NodeChange]:
        paths = [f"{parent}/{each}" for each in (await self._store.children(parent))[:_MOST_NOTES]]
        nodes = await self._store.get_many(paths)
        return [
            DeleteNode(path)
            for path, node in zip(paths, nodes, strict=True)
            if node is not None and node.ctime_ms < now_ms - _NOTES_KEPT_MS
        ]


_MOST_NOTES: Final = 100  # notifications checked when one is written
_PLACES: Final = [(pattern, kind) for pattern in Pattern for kind in ResourceType]


_TYPE_PATHS: Final = [acl_nodes.type_path(kind, pattern) for pattern, kind in _PLACES]


def _entries(resource: ResourcePattern, node: Node) -> Entries:
    try:
        return acl_nodes.load_entries(acl_nodes.acls_path(resource), node.data)
    except MetadataError as error:
        why = "only super users have access to the resource of this node until it is repaired: %s"
        log.error(why, error)  # noqa: TRY400 (a trace says nothing more)
        return _DAMAGED
