"""What the oldest broker of a cluster can read in the metadata tree, by the cluster's protocol version.

A node that a broker cannot read keeps it from starting, so it must not be written. `protocol` is the
`inter.broker.protocol.version`, or None for a tree that no other broker reads. Sources: real brokers of each release
(`tests/interop/test_old_readers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from magicbyte.engine.errors import ProtocolTooOldError
from magicbyte.engine.releases import (
    FIRST_WITH_ENTITY_PATHS,
    FIRST_WITH_MOVES,
    FIRST_WITH_OPERATIONS,
    FIRST_WITH_PREFIXED_ACLS,
    FIRST_WITH_RESOURCE_TYPES,
    FIRST_WITH_SETTINGS,
    FIRST_WITH_SEVERAL_POLICIES,
    FIRST_WITH_ZSTD,
    MAGIC_AS_RELEASE,
    TOPIC_IDS,
    line_of,
    protocol_version,
)
from magicbyte.server.stores.znodes import layout

Protocol = tuple[int, ...] | None


def config_change(kind: str, name: str, protocol: Protocol) -> bytes:
    """Return the data of the notification of changed settings. Raises ProtocolTooOldError for unreadable settings."""
    root = kind.partition("/")[0]
    entity = f"{root}/{name}" if f"{root}/{name}" in FIRST_WITH_SETTINGS else root
    _require(f"settings of {entity}", FIRST_WITH_SETTINGS[entity], protocol)
    is_old = protocol is not None and protocol < FIRST_WITH_ENTITY_PATHS
    return layout.dump_config_change(kind, name, version=1 if is_old else 2)


def topic_settings(own: Mapping[str, str], protocol: Protocol) -> dict[str, str]:
    """Return a topic's settings as brokers read them: formats by the name of their first release.

    Raises ProtocolTooOldError for a value that brokers do not know: they do not start with it.
    """
    written = dict(own)
    if protocol is None:
        return written
    text = written.get("message.format.version", "enriched")
    if text != "enriched":  # only brokers of magicbyte have it
        text = written["message.format.version"] = MAGIC_AS_RELEASE.get(text, text)
        _require(f"message.format.version={text}", line_of(protocol_version(text)), protocol)
    if written.get("compression.type") == "zstd":
        _require("compression.type=zstd", FIRST_WITH_ZSTD, protocol)
    if len(written.get("cleanup.policy", "").split(",")) > 1:
        _require("cleanup.policy=compact,delete", FIRST_WITH_SEVERAL_POLICIES, protocol)
    return written


def knows_moves_of_topics(protocol: Protocol) -> bool:
    """Return whether each broker, as the next controller, knows the reassignments in the nodes of topics."""
    return protocol is None or protocol >= FIRST_WITH_MOVES


def knows_topic_ids(protocol: Protocol) -> bool:
    """Return whether each broker, as the next controller, knows the ids in the nodes of topics."""
    return protocol is None or line_of(protocol) >= TOPIC_IDS


def knows_resource_type(resource_type: str, protocol: Protocol) -> bool:
    """Return whether the brokers know a type of resource, such as "TRANSACTIONAL_ID", in ACLs."""
    return protocol is None or protocol >= FIRST_WITH_RESOURCE_TYPES.get(resource_type, protocol)


def knows_prefixed_acls(protocol: Protocol) -> bool:
    """Return whether the brokers know ACLs of all resources with a prefix (KIP-290)."""
    return protocol is None or protocol >= FIRST_WITH_PREFIXED_ACLS


def check_acls(resource_type: str, operations: set[str], protocol: Protocol, *, is_prefixed: bool) -> None:
    """Raise ProtocolTooOldError for ACLs that a broker cannot read, or would ignore."""
    if is_prefixed:
        _require("an ACL of a prefix", FIRST_WITH_PREFIXED_ACLS, protocol)
    if resource_type in FIRST_WITH_RESOURCE_TYPES:
        _require(f"an ACL of a {resource_type}", FIRST_WITH_RESOURCE_TYPES[resource_type], protocol)
    for operation in sorted(operations & FIRST_WITH_OPERATIONS.keys()):
        _require(f"an ACL of the operation {operation}", FIRST_WITH_OPERATIONS[operation], protocol)


def _require(what: str, first: tuple[int, ...], protocol: Protocol) -> None:
    if protocol is not None and protocol < first:
        raise ProtocolTooOldError(what, first, protocol)
