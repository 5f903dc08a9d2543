"""ACLs in the metadata tree: the node of each resource, its JSON, and the nodes that tell brokers of changes."""

from __future__ import annotations

from typing import Any, Final

from magicbyte.engine.cluster.acls import (
    AccessControlEntry,
    AclOperation,
    Entries,
    Pattern,
    Permission,
    ResourcePattern,
    ResourceType,
)
from magicbyte.engine.cluster.principal import Principal
from magicbyte.engine.errors import InvalidRequestError, MetadataError
from magicbyte.server.stores.znodes.layout import dump, load

LITERAL_ROOT: Final = "/kafka-acl"
PREFIXED_ROOT: Final = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES: Final = "/kafka-acl-changes"
PREFIXED_CHANGES: Final = "/kafka-acl-extended-changes"
CHANGE_NAME: Final = "acl_changes_"
MOST_NODE_BYTES: Final = 1 << 20
"""The maximum size of the ACLs of one resource: that of a ZooKeeper node."""


def acls_path(resource: ResourcePattern) -> str:
    """Return the path of a resource's ACLs. Names are not escaped there: groups may contain slashes."""
    root = LITERAL_ROOT if resource.pattern is Pattern.LITERAL else PREFIXED_ROOT
    return f"{root}/{_words(resource.type.name)}/{resource.name}"


def type_path(kind: ResourceType, pattern: Pattern) -> str:
    """Return the path above the ACLs of all resources of a type."""
    return acls_path(ResourcePattern(kind, "", pattern)).rstrip("/")


def acl_change(resource: ResourcePattern, *, is_old: bool = False) -> tuple[str, bytes]:
    """Return the node, without its number, that notifies brokers of changed ACLs; and its data.

    `is_old`: brokers before 2.0 read it. They know TransactionalId, and not TRANSACTIONAL_ID; 0.11 does not start
    with that.
    """
    if resource.pattern is Pattern.LITERAL:
        kind = _words(resource.type.name) if is_old else resource.type.name
        return f"{LITERAL_CHANGES}/{CHANGE_NAME}", f"{kind}:{resource.name}".encode()
    said = {"version": 1, "resourceType": resource.type.name, "name": resource.name, "patternType": "PREFIXED"}
    return f"{PREFIXED_CHANGES}/{CHANGE_NAME}", dump(said)


def dump_entries(entries: Entries) -> bytes:
    """Return the data of a node, as Kafka 2.8 writes it."""
    acls = [
        {
            "principal": str(each.principal),
            "permissionType": _words(each.permission.name),
            "operation": _words(each.operation.name),
            "host": each.host,
        }
        for each in sorted(entries)
    ]
    return dump({"version": 1, "acls": acls})


def load_entries(path: str, data: bytes) -> Entries:
    """Parse a node of any Kafka release. Raises MetadataError."""
    if len(data) > MOST_NODE_BYTES:
        raise MetadataError(path, f"expected at most {MOST_NODE_BYTES} bytes of ACLs, found {len(data)}")
    try:
        fields = load(path, data)
    except MetadataError:  # Kafka 1.0 and older did not escape the backslashes of certificates' names
        fields = load(path, data.replace(b"\\", b"\\\\"))
    if fields.get("version") != 1:
        raise MetadataError(path, f"expected ACLs of version 1, found {data[:80]!r}")
    try:
        return frozenset(_entry(each) for each in fields["acls"])
    except (KeyError, TypeError, AttributeError, InvalidRequestError) as error:
        raise MetadataError(path, f"expected ACLs, found {data[:80]!r}") from error


def _entry(said: Any) -> AccessControlEntry:
    permission, operation = _member(Permission, said["permissionType"]), _member(AclOperation, said["operation"])
    return AccessControlEntry(Principal.parse(said["principal"]), permission, operation, str(said["host"]))


def _words(name: str) -> str:
    return "".join(each.capitalize() for each in name.split("_"))


def _member(kind: Any, text: str) -> Any:
    return kind[{_words(each.name).lower(): each.name for each in kind}[text.lower()]]
