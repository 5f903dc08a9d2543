"""The bytes of metadata kept for members of all groups, bounded by `group.metadata.max.bytes`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

MEMBER_BYTES: Final = 512
"""Memory that is counted for a member besides its metadata."""


class Usage(Struct):
    """The bytes in use, for all groups of a coordinator."""

    used: int = 0


def weight(protocols: Iterable[tuple[str, bytes]], *texts: str | None) -> int:
    """Return the bytes that are counted for a member with these protocols and names."""
    names = sum(len(each) for each in texts if each)
    return MEMBER_BYTES + names + sum(len(name) + len(metadata) for name, metadata in protocols)
