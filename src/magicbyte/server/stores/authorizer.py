"""The authorizer: the cluster's ACLs as this broker knows them, changes to them, and the audit log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from magicbyte.access.security import acls
from magicbyte.access.security.acls import Acls
from magicbyte.engine.cluster import store
from magicbyte.engine.cluster.acls import AclOperation, Entries, ResourcePattern, ResourceType
from magicbyte.engine.cluster.changes import AclsChanged, ClusterChange, ProposedChange
from magicbyte.engine.printable import logger

if TYPE_CHECKING:
    from magicbyte.engine.cluster.image import ClusterImage
    from magicbyte.engine.cluster.store import ClusterStore
    from magicbyte.server.serving.request import ClientConnection
    from magicbyte.server.settings.config import BrokerConfig

audit = logger("magicbyte.audit")


class Authorizer:
    """Decide by the ACLs of the cluster, which its store follows already."""

    def __init__(self, config: BrokerConfig, cluster_store: ClusterStore) -> None:
        self._config, self._store = config, cluster_store
        self.acls = self._acls({})
        cluster_store.subscribe(self._cluster_changed)

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

    # ---- the cluster

    def _cluster_changed(self, image: ClusterImage, changes: Iterable[ClusterChange]) -> None:
        if any(isinstance(each, AclsChanged) for each in changes):
            self.acls = self._acls(image.acls)

    def _acls(self, entries: Mapping[ResourcePattern, Entries]) -> Acls:
        config = self._config
        return Acls(entries, config.super_users, or_else=config.allow_everyone_if_no_acl_found)

    async def change(
        self, resource: ResourcePattern, *, add: Entries = frozenset(), remove: Entries = frozenset()
    ) -> None:
        """Change the ACLs of a resource in the cluster. They apply here from then on.

        Raises MetadataError, and ProtocolTooOldError for ACLs that brokers of the cluster cannot read.
        """

        def decide(image: ClusterImage) -> list[ProposedChange]:
            return [AclsChanged(resource, (image.acls.get(resource, frozenset()) | add) - remove)]

        await store.change(self._store, decide)
