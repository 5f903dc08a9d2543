"""Who a connection speaks for."""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """A type, which is User unless a builder of principals says otherwise, and a name. Case counts."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""Whoever has not said who it is: on listeners without SASL and without client certificates."""
