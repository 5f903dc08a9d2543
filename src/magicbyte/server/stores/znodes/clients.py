"""The nodes of users, clients and addresses, which have their quotas and SCRAM credentials.

/config/users/U, /config/users/U/clients/C, /config/clients/C, /config/ips/I; `<default>` instead of a name stands for
all without a quota of their own.
"""

from __future__ import annotations

import math
from typing import Final
from urllib.parse import quote, unquote

from magicbyte.access.security.quotas import CONNECTION_RATE, QuotaType
from magicbyte.engine.cluster.quotas import NOBODY, QuotaEntity
from magicbyte.server.metadata import layout
from magicbyte.server.settings.settings import INT_MAX, LONG_MAX

USERS: Final = "users"
CLIENTS: Final = "clients"
ADDRESSES: Final = "ips"
WHOLE_LIMITS: Final = {
    QuotaType.PRODUCE.value: LONG_MAX,
    QuotaType.FETCH.value: LONG_MAX,
    CONNECTION_RATE: INT_MAX,
}
"""Quotas that are whole numbers, with their maximum."""


def limit_text(name: str, value: float) -> str:
    """Return the value of a quota as stored in the tree, in Java's format."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if name in WHOLE_LIMITS and value.is_integer():
        return str(min(int(value), WHOLE_LIMITS[name]))  # a double cannot represent 2**63 - 1
    return repr(value)


def sanitised(user: str) -> str:
    """Return a user's name as stored in the tree."""
    return quote(user, safe="").replace("~", "%7E")


def place_of(entity: QuotaEntity) -> tuple[str, str]:
    """Return the kind and name of an entity's settings in the tree."""
    client_id = _written(entity.client_id)
    if entity.user == NOBODY:
        return CLIENTS, client_id
    user = _written(entity.user)
    return USERS, user if entity.client_id == NOBODY else f"{user}/{CLIENTS}/{client_id}"


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
    return QuotaEntity(_read_name(user), _read_name(client_id) if between else NOBODY)


def address_at(name: str) -> str | None:
    """Return the address of a name in the tree."""
    return _read_name(name)


def _written(name: str | None) -> str:
    return layout.DEFAULT_ENTITY if name is None else sanitised(name)


def _read_name(name: str) -> str | None:
    return None if name == layout.DEFAULT_ENTITY else unquote(name)
