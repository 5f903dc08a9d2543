"""Kafka's ACLs: model and decisions."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from magicbyte.access.security.principal import EVERYBODY, Principal

CLUSTER_NAME: Final = "kafka-cluster"
ANY_NAME: Final = "*"

_MOST_KEPT: Final = 10_000  # decisions that are kept, for requests that ask for the same again
_LONGEST_KEPT: Final = 500  # characters of both names: topics may have 249, others may be as long as a request or token


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


_IMPLIED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    AclOperation.DESCRIBE: frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""By operation: the other operations whose permission implies it. A denial implies nothing."""

OPERATIONS: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: tuple(map(AclOperation, (3, 4, 5, 6, 7, 8, 10, 11))),
    ResourceType.GROUP: tuple(map(AclOperation, (3, 6, 8))),
    ResourceType.CLUSTER: tuple(map(AclOperation, (5, 7, 8, 9, 10, 11, 12))),
}
"""By resource type: the operations that responses list as authorized."""


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


class Acls:
    """The ACLs of a cluster at one moment."""

    def __init__(
        self, of: Mapping[ResourcePattern, Entries], super_users: frozenset[Principal], *, or_else: bool
    ) -> None:
        self.of = {resource: entries for resource, entries in of.items() if entries}
        self._super_users, self._or_else = super_users, or_else
        self._decisions = dict[tuple[Principal, str, AclOperation, ResourceType, str], bool]()
        self._prefixes = dict[ResourceType, dict[int, None]]()  # the existing lengths
        for resource in self.of:
            if resource.pattern is Pattern.PREFIXED:
                self._prefixes.setdefault(resource.type, {})[len(resource.name)] = None

    def about(self, kind: ResourceType, name: str) -> list[AccessControlEntry]:
        """Return the ACLs of a name: literal, wildcard, and prefixed ones."""
        resources = [ResourcePattern(kind, name)]
        if name != ANY_NAME:
            resources.append(ResourcePattern(kind, ANY_NAME))
        lengths = self._prefixes.get(kind, ())
        resources += [ResourcePattern(kind, name[:each], Pattern.PREFIXED) for each in lengths if each <= len(name)]
        return [entry for each in resources for entry in self.of.get(each, ())]

    def allows(self, who: Principal, host: str, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Return whether a caller may perform an operation: a denial takes precedence over any permission."""
        question = (who, host, operation, kind, name)
        decision = self._decisions.get(question)
        if decision is None:
            decision = self._decide(*question)
            if len(name) + len(who.name) <= _LONGEST_KEPT:
                if len(self._decisions) >= _MOST_KEPT:
                    self._decisions.clear()
                self._decisions[question] = decision
        return decision

    def _decide(self, who: Principal, host: str, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        if who in self._super_users:
            return True
        entries = self.about(kind, name)
        if not entries:
            return self._or_else
        ours = [each for each in entries if each.is_about(who, host)]
        denying = (operation, AclOperation.ALL)
        if any(each.permission is Permission.DENY and each.operation in denying for each in ours):
            return False
        allowing = {operation, AclOperation.ALL, *_IMPLIED_BY.get(operation, ())}
        return any(each.permission is Permission.ALLOW and each.operation in allowing for each in ours)

    def allows_any(self, who: Principal, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        """Return whether there may be a name of this type on which a caller may perform an operation."""
        if who in self._super_users:
            return True
        ours = [
            (resource, each.permission)
            for resource, entries in self.of.items()
            if resource.type is kind
            for each in entries
            if each.operation in (operation, AclOperation.ALL) and each.is_about(who, host)
        ]
        denied = {resource for resource, permission in ours if permission is Permission.DENY}
        if ResourcePattern(kind, ANY_NAME) in denied:
            return False
        return self._or_else or any(
            permission is Permission.ALLOW and not _is_covered(resource, denied) for resource, permission in ours
        )


def _is_covered(resource: ResourcePattern, denied: Iterable[ResourcePattern]) -> bool:
    """Return whether a denial covers all names of a resource; denials for `*` are checked before."""
    if resource == ResourcePattern(resource.type, ANY_NAME):
        return False
    return any(
        each == resource or (each.pattern is Pattern.PREFIXED and resource.name.startswith(each.name))
        for each in denied
    )


class Filter(NamedTuple):
    """The filter of a request for ACLs, by the protocol's numbers: 1 is any; None any text; pattern 2 matches."""

    type: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def takes(self, resource: ResourcePattern, entry: AccessControlEntry) -> bool:
        """Return whether an ACL matches."""
        return (
            self.type in (_ANY, resource.type)
            and self._takes_name(resource)
            and self.principal in (None, str(entry.principal))
            and self.host in (None, entry.host)
            and self.operation in (_ANY, entry.operation)
            and self.permission in (_ANY, entry.permission)
        )

    def _takes_name(self, resource: ResourcePattern) -> bool:
        if self.pattern not in (_ANY, _MATCH, resource.pattern):
            return False
        if self.name is None or self.name == resource.name:
            return True
        if self.pattern != _MATCH:
            return False
        if resource.pattern is Pattern.LITERAL:
            return resource.name == ANY_NAME
        return self.name.startswith(resource.name)


_ANY, _MATCH = 1, 2
