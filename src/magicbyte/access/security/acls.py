"""Decisions by Kafka's ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from magicbyte.engine.cluster.acls import (
    ANY_NAME,
    AccessControlEntry,
    AclOperation,
    Entries,
    Pattern,
    Permission,
    ResourcePattern,
    ResourceType,
)
from magicbyte.engine.cluster.principal import Principal

MOST_KEPT: Final = 10_000  # decisions that are kept, for requests that ask for the same again
_LONGEST_KEPT: Final = 500  # characters of both names: topics may have 249, others may be as long as a request or token


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
                if len(self._decisions) >= MOST_KEPT:
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
