"""The requests that clients sent to brokers, from any source: client, address, API, version, count and last time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

CLIENT_ID: Final = "magicbyte-plan"
"""The client id of these commands, which is left out of plans and checks."""
MOST_SIGHTINGS: Final = 50_000
"""Combinations that are counted separately. Further clients are counted together, as `OTHERS`, still by version."""


MOST_TEXT: Final = 1000
"""Characters of a client's id, library and address: these texts are untrusted."""


class SeenClient(NamedTuple):
    """A client: its id, library, library version and address; "" where a source does not name them."""

    client_id: str = ""
    software: str = ""
    version: str = ""
    address: str = ""


OTHERS: Final = SeenClient("(others)")
UNNAMED: Final = SeenClient()
_FETCHER = re.compile(r"broker-\d+-fetcher-\d+|ReplicaFetcherThread-.*")


def is_fetcher(client_id: str) -> bool:
    """Whether a client is the replication of a broker, by the ids that Kafka's brokers and ours have."""
    return _FETCHER.fullmatch(client_id) is not None


def caller_text(caller: SeenClient) -> str:
    """Return a client by its id, and by library and address where they are known."""
    about = [f"{caller.software} {caller.version}".strip(), caller.address]
    known = ", ".join(each for each in about if each)
    return (caller.client_id or "without a client id") + (f" ({known})" if known else "")


class SeenRequests(NamedTuple):
    """Requests of a client in one version of the API with this key."""

    caller: SeenClient
    api_key: int
    version: int


@dataclass(slots=True)
class Seen:
    """How many requests there were, 0 where only a rate is known, and the time of the last in ms, None if not known."""

    count: int = 0
    last_ms: int | None = None


class Sightings:
    """Counts of requests by client, API and version."""

    def __init__(self) -> None:
        self._seen: dict[SeenRequests, Seen] = {}

    def add(self, caller: SeenClient, api_key: int, version: int, count: int = 1, last_ms: int | None = None) -> None:
        """Add some requests. Of each text about the caller `MOST_TEXT` characters are kept."""
        asking = SeenRequests(SeenClient(*(text[:MOST_TEXT] for text in caller)), api_key, version)
        if asking not in self._seen and len(self._seen) >= MOST_SIGHTINGS:
            asking = SeenRequests(OTHERS, api_key, version)
        seen = self._seen.setdefault(asking, Seen())
        seen.count += count
        if last_ms is not None:
            seen.last_ms = max(last_ms, seen.last_ms or 0)

    def forget_before(self, date_ms: int) -> int:
        """Forget requests whose last one was before a date, and return how many kinds; those without a date stay."""
        old = [asking for asking, seen in self._seen.items() if seen.last_ms is not None and seen.last_ms < date_ms]
        for asking in old:
            del self._seen[asking]
        return len(old)

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[tuple[SeenRequests, Seen]]:
        return iter(sorted(self._seen.items(), key=lambda item: item[0]))
