"""Who was seen asking brokers for what: client, address, API and version, how often and when last, from any source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

MOST_SIGHTINGS: Final = 50_000
"""Combinations that are told apart. Further clients are counted together, as `OTHERS`, still by version."""


class Caller(NamedTuple):
    """A client: its id, what its library says of itself, its address; "" where a source does not tell."""

    client_id: str = ""
    software: str = ""
    version: str = ""
    address: str = ""


OTHERS: Final = Caller("(others)")
UNNAMED: Final = Caller()


class Asking(NamedTuple):
    """Requests of a client in one version of the API with this key."""

    caller: Caller
    api_key: int
    version: int


@dataclass(slots=True)
class Seen:
    """How many requests there were, 0 where only a rate is known, and the time of the last in ms, None if not known."""

    count: int = 0
    last_ms: int | None = None


class Sightings:
    """All that was seen, added up."""

    def __init__(self) -> None:
        self._seen: dict[Asking, Seen] = {}

    def add(self, caller: Caller, api_key: int, version: int, count: int = 1, last_ms: int | None = None) -> None:
        """Add some requests."""
        asking = Asking(caller, api_key, version)
        if asking not in self._seen and len(self._seen) >= MOST_SIGHTINGS:
            asking = Asking(OTHERS, api_key, version)
        seen = self._seen.setdefault(asking, Seen())
        seen.count += count
        if last_ms is not None:
            seen.last_ms = max(last_ms, seen.last_ms or 0)

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[tuple[Asking, Seen]]:
        return iter(sorted(self._seen.items(), key=lambda item: item[0]))
