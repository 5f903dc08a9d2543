"""Who a connection speaks for."""

from __future__ import annotations

from typing import Final, NamedTuple

from magicbyte.errors import InvalidRequestError


class Principal(NamedTuple):
    """A type, which is User unless a builder of principals says otherwise, and a name. Case counts."""

    type: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Return what `User:alice` names; the name may hold colons, or be empty. Raises InvalidRequestError."""
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise InvalidRequestError(f"expected a principal such as User:alice, found {text[:80]!r}")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""Whoever has not said who it is: on listeners without SASL and without client certificates."""
EVERYBODY: Final = Principal("User", "*")


def parse_super_users(text: str) -> frozenset[Principal]:
    """Return those that a text such as `User:CN=a,O=b;User:bob` names. Raises InvalidRequestError."""
    return frozenset(Principal.parse(each.strip()) for each in text.split(";") if each.strip())
