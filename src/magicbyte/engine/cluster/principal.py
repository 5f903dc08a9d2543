"""The principal of a connection."""

from __future__ import annotations

from typing import Final, NamedTuple

from magicbyte.engine.errors import InvalidRequestError


class Principal(NamedTuple):
    """A type, which is User except with a custom principal builder, and a name. Both are case sensitive."""

    type: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Parse a principal such as `User:alice`; the name may contain colons, or be empty.

        Raises InvalidRequestError.
        """
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise InvalidRequestError(f"expected a principal such as User:alice, found {text[:80]!r}")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The principal of connections without authentication: without SASL and client certificates."""
EVERYBODY: Final = Principal("User", "*")


def parse_super_users(text: str) -> frozenset[Principal]:
    """Parse a list such as `User:CN=a,O=b;User:bob`. Raises InvalidRequestError."""
    return frozenset(Principal.parse(each.strip()) for each in text.split(";") if each.strip())
