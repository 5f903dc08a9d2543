"""The owners of client quotas."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_NAME: Final = ""
"""In an entity: it has no user part, or no client part. No entity has this name."""


class QuotaEntity(NamedTuple):
    """The user and client of a quota, by name. None: Kafka's `<default>`, for those without their own. Or `NO_NAME`."""

    user: str | None = NO_NAME
    client_id: str | None = NO_NAME
