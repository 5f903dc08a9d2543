"""Count the requests that clients sent to brokers, from any source: client, address, API, version, last time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

CLIENT_ID: Final = "magicbyte-plan"
"""The client id of these commands, which plans and checks ignore."""
MOST_SIGHTINGS: Final = 50_000
"""Combinations that are counted separately. Further clients are counted together as `OTHERS`, by version."""


MOST_TEXT: Final = 1000
"""Characters of a client's id, library and address. These texts are untrusted."""


class SeenClient(NamedTuple):
    """A client: its id, library, library version and address; "" if the source does not have them."""

    client_id: str = ""
    software: str = ""
    version: str = ""
    address: str = ""


OTHERS: Final = SeenClient("(others)")
UNNAMED: Final = SeenClient()
_FETCHER = re.compile(r"broker-\d+-fetcher-\d+|ReplicaFetcherThread-.*")


def is_fetcher(client_id: str) -> bool:
    """Return whether a client is a broker's replica fetcher, by the client ids of Kafka's and magicbyte's brokers."""
    return _FETCHER.fullmatch(client_id) is not None


def caller_text(caller: SeenClient) -> str:
    """Return a client's id, with its library and address if they are known."""
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
    """The number of requests, 0 if only a rate is known, and the time of the last one in ms, None if unknown."""

    count: int = 0
    last_ms: int | None = None


class Sightings:
    """Counts of requests by client, API and version."""

    def __init__(self) -> None:
        self._seen: dict[SeenRequests, Seen] = {}

    def add(self, caller: SeenClient, api_key: int, version: int, count: int = 1, last_ms: int | None = None) -> bool:
        """Add requests. Texts of the client are cut to `MOST_TEXT` characters. Return whether they are a new kind."""
        asking = SeenRequests(SeenClient(*(text[:MOST_TEXT] for text in caller)), api_key, version)
        is_new = asking not in self._seen
        if is_new and len(self._seen) >= MOST_SIGHTINGS:
            asking = SeenRequests(OTHERS, api_key, version)
            is_new = asking not in self._seen
        seen = self._seen.setdefault(asking, Seen())
        seen.count += count
        if last_ms is not None:
            seen.last_ms = max(last_ms, seen.last_ms or 0)
        return is_new

    def add_all(self, other: Sightings) -> None:
        """Add the requests of other counts."""
        for asking, seen in other:
            self.add(*asking, seen.count, seen.last_ms)

    @property
    def count(self) -> int:
        """The number of requests."""
        return sum(seen.count for seen in self._seen.values())

    def forget_before(self, date_ms: int) -> int:
        """Remove requests last sent before a date. Return the number of combinations. Those without a date are kept."""
        old = [asking for asking, seen in self._seen.items() if seen.last_ms is not None and seen.last_ms < date_ms]
        for asking in old:
            del self._seen[asking]
        return len(old)

    @property
    def has_clients(self) -> bool:
        """Whether anybody but this command and the brokers themselves was seen."""
        callers = (asking.caller.client_id for asking in self._seen)
        return any(client_id != CLIENT_ID and not is_fetcher(client_id) for client_id in callers)

    def __len__(self) -> int:
        return len(self._seen)

    def __iter__(self) -> Iterator[tuple[SeenRequests, Seen]]:
        return iter(sorted(self._seen.items(), key=lambda item: item[0]))
