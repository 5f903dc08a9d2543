"""The nodes of users, clients and addresses, which have their quotas and SCRAM credentials; the secret of challenges.

/config/users/U, /config/users/U/clients/C, /config/clients/C, /config/ips/I; `<default>` instead of a name stands for
all without a quota of their own.
"""

from __future__ import annotations

import math
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from magicbyte.access.security.quotas import WHOLE_QUOTAS
from magicbyte.engine.cluster.quotas import NO_NAME, QuotaEntity
from magicbyte.engine.errors import NodeExistsError
from magicbyte.server.metadata.tree import check_path
from magicbyte.server.stores.znodes import layout

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore

USERS: Final = "users"
CLIENTS: Final = "clients"
ADDRESSES: Final = "ips"


def limit_text(name: str, value: float) -> str:
    """Return the value of a quota as stored in the tree, in Java's format."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if name in WHOLE_QUOTAS and value.is_integer():
        return str(min(int(value), WHOLE_QUOTAS[name]))  # a double cannot represent 2**63 - 1
    return repr(value)


def sanitised(user: str) -> str:
    """Return a user's name as stored in the tree."""
    return quote(user, safe="").replace("~", "%7E")


def check_user(user: str) -> None:
    """Raise MetadataError for a user whose name no node can have, such as `..`."""
    check_path(layout.config_path(USERS, sanitised(user)))


def place_of(entity: QuotaEntity) -> tuple[str, str]:
    """Return the kind and name of an entity's settings in the tree."""
    client_id = _written(entity.client_id)
    if entity.user == NO_NAME:
        return CLIENTS, client_id
    user = _written(entity.user)
    return USERS, user if entity.client_id == NO_NAME else f"{user}/{CLIENTS}/{client_id}"


def address_place(address: str | None) -> tuple[str, str]:
    """Return the kind and name of an address's settings in the tree."""
    return ADDRESSES, _written(address)


def entity_at(kind: str, name: str) -> QuotaEntity | None:
    """Return the entity of a kind and name in the tree; None: neither a user nor a client."""
    if kind == CLIENTS:
        return QuotaEntity(client_id=_read_name(name))
    if kind != USERS:
        return None
    user, between, client_id = name.partition(f"/{CLIENTS}/")
    return QuotaEntity(_read_name(user), _read_name(client_id) if between else NO_NAME)


def user_at(kind: str, name: str) -> str | None:
    """Return the user whose credentials are in the node of a kind and name; None: it is not a user's."""
    user = unquote(name)
    return user if kind == USERS and name == sanitised(user) else None


def address_at(name: str) -> str | None:
    """Return the address of a name in the tree."""
    return _read_name(name)


def _written(name: str | None) -> str:
    return layout.DEFAULT_ENTITY if name is None else sanitised(name)


def _read_name(name: str) -> str | None:
    return None if name == layout.DEFAULT_ENTITY else unquote(name)


def secret_of_decoys(metadata: MetadataStore) -> bytes:
    """Return the cluster's secret for the challenges of unknown users; it is made at the first call.

    In the tree, so that all brokers give a name the same salt, before and after a restart. Raises MetadataError.
    """
    with suppress(NodeExistsError):
        metadata.create(layout.SCRAM_DECOYS, secrets.token_hex(32).encode(), parents=True)
    return metadata.get(layout.SCRAM_DECOYS).data
