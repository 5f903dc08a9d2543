"""The model of Kafka's ACLs: who may do what, from where, on which resources."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from magicbyte.engine.cluster.principal import EVERYBODY, Principal

CLUSTER_NAME: Final = "kafka-cluster"
ANY_NAME: Final = "*"


class ResourceType(enum.IntEnum):
    """A type of resource, by its number in the protocol."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(enum.IntEnum):
    """An operation on a resource, by its number in the protocol."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(enum.IntEnum):
    """Allow or deny, by its number in the protocol."""

    DENY = 2
    ALLOW = 3


class Pattern(enum.IntEnum):
    """The pattern type of a resource name, by its number in the protocol."""

    LITERAL = 3
    PREFIXED = 4


class ResourcePattern(NamedTuple):
    """The resources of an ACL: a name, all names (`*`), or all with a prefix."""

    type: ResourceType
    name: str
    pattern: Pattern = Pattern.LITERAL


class AccessControlEntry(NamedTuple):
    """One ACL of a resource. `host` is an address as text, or `*`."""

    principal: Principal
    permission: Permission
    operation: AclOperation
    host: str = ANY_NAME

    def is_about(self, who: Principal, host: str) -> bool:
        """Return whether it applies to a caller."""
        return self.principal in (who, EVERYBODY) and self.host in (host, ANY_NAME)


Entries = frozenset[AccessControlEntry]
DENY_ALL: Final = AccessControlEntry(EVERYBODY, Permission.DENY, AclOperation.ALL)
