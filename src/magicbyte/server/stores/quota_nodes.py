"""Quotas in the metadata tree, at Kafka's paths.

Values are text. Invalid ones are logged, and ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from magicbyte.access.security.quotas import CONNECTION_RATE, TYPES, StoredQuotas, Values
from magicbyte.engine.cluster.quotas import QuotaEntity
from magicbyte.engine.errors import MetadataError
from magicbyte.engine.ports import CreateNode, NodeChange, SetNode
from magicbyte.engine.printable import logger
from magicbyte.server.metadata import layout
from magicbyte.server.stores.cluster import tell_of_config_change
from magicbyte.server.stores.topic_nodes import settings_in, settings_of
from magicbyte.server.stores.znodes.clients import ADDRESSES, CLIENTS, USERS, address_at, entity_at

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore, Node

log = logger(__name__)


def read_all(metadata: MetadataStore) -> StoredQuotas:
    """Return all quotas. Blocks. Raises MetadataError, NetworkError."""
    kinds = (USERS, CLIENTS, ADDRESSES)
    users, clients, addresses = (
        names or [] for names in metadata.children_many([f"{layout.CONFIG}/{kind}" for kind in kinds])
    )
    below = metadata.children_many([f"{layout.CONFIG}/{USERS}/{user}/{CLIENTS}" for user in users])
    places = [
        *((USERS, user) for user in users),
        *((USERS, f"{user}/{CLIENTS}/{each}") for user, own in zip(users, below, strict=True) for each in own or ()),
        *((CLIENTS, each) for each in clients),
    ]
    quotas: dict[QuotaEntity, Values] = {}
    for place, values in zip(places, _read_many(metadata, places), strict=True):
        if values and (entity := entity_at(*place)) is not None:
            quotas[entity] = values
    rates = _read_many(metadata, [(ADDRESSES, each) for each in addresses])
    return StoredQuotas(
        quotas,
        {
            address_at(name): values[CONNECTION_RATE]
            for name, values in zip(addresses, rates, strict=True)
            if CONNECTION_RATE in values
        },
    )


def read_one(metadata: MetadataStore, kind: str, name: str) -> Values:
    """Return the quotas of one node. Blocks. Raises MetadataError, NetworkError."""
    return _values(layout.config_path(kind, name), settings_of(metadata, kind, name))


def _read_many(metadata: MetadataStore, places: Sequence[tuple[str, str]]) -> list[Values]:
    paths = [layout.config_path(*each) for each in places]
    return [_read_node(path, node) for path, node in zip(paths, metadata.get_many(paths), strict=True)]


def _read_node(path: str, node: Node | None) -> Values:
    try:
        return {} if node is None or not node.data else _values(path, layout.load_config(path, node.data))
    except MetadataError as error:
        log.warning("quotas are ignored: %s", error)
        return {}


def _values(path: str, settings: Mapping[str, str]) -> Values:
    limits = {}
    for name, text in settings.items():
        if name in TYPES or name == CONNECTION_RATE:
            try:
                limits[name] = float(text)
            except ValueError:
                log.warning("%s: %s is ignored: expected a number, found %r", path, name, text)
    return limits


def change_of(
    metadata: MetadataStore,
    kind: str,
    name: str,
    changes: Mapping[str, str | None],
    now_ms: int,
    protocol: tuple[int, ...] | None,
) -> list[NodeChange]:
    """Return the changes that set quotas, delete those that are None, and notify all brokers.

    A user's credentials are in the same node. A concurrent change of it makes this one fail.
    """
    path = layout.config_path(kind, name)
    node = metadata.exists(path)
    kept = {each: text for each, text in settings_in(path, node).items() if each not in changes}
    data = layout.dump_config(kept | {each: text for each, text in changes.items() if text is not None})
    made: list[NodeChange] = []
    if node is None:
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(2, len(parts)))
        made += [CreateNode(each) for each in above if metadata.exists(each) is None]
        made.append(CreateNode(path, data))
    else:
        made.append(SetNode(path, data, node.version))
    return [*made, *tell_of_config_change(metadata, kind, name, now_ms, protocol)]
