"""The evidence of a migration's conclusions: what a command could not ask, and which sources told of clients.

A conclusion is drawn from its evidence only. Where some is missing, the conclusion is an `Unknown`, which says what
would tell it; "done", "nothing breaks" or the next step are concluded without any `Unknown` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

GIVE_CLIENTS: Final = "give --request-log, --capture or --metrics"
"""The options of the commands that take facts about clients from elsewhere."""
GIVE_PAGES: Final = "the metrics of magicbyte brokers tell them (--http, or their http.address)"
"""The sources of the commands that take facts about clients from brokers alone."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that a conclusion needs, and that no source told. `do`: what tells it."""

    subject: str
    what: str
    do: str

    @property
    def text(self) -> str:
        """The fact in one line."""
        return f"{self.subject}: {self.what}: {self.do}"

    def to_json(self) -> dict[str, Any]:
        """Return its JSON in `magicbyte migrate status --format json`."""
        return {"subject": self.subject, "what": self.what, "do": self.do}


@dataclass(frozen=True, slots=True)
class ClientSource:
    """A source of facts about clients. `requests`: how many it told. `unknown`: why it told of none.

    `note`: on parts of it that could not be read.
    """

    name: str
    requests: int
    unknown: Unknown | None = None
    note: str | None = None


def silent_brokers(brokers: Iterable[int], pages: Collection[int], *, is_told: bool) -> list[int]:
    """Return the brokers whose clients no source tells. `pages`: those whose own pages count clients.

    `is_told`: sources were named, which count as those of all brokers.
    """
    return [] if is_told else [broker for broker in brokers if broker not in pages]


def unknown_clients(
    sources: Sequence[ClientSource], silent: Sequence[int] = (), *, has_clients: bool, give: str = GIVE_CLIENTS
) -> list[Unknown]:
    """Return why the clients of a cluster are not known, empty if they are.

    `silent`: by `silent_brokers`. `has_clients`: whether any source told of a client. `give`: what would tell.
    """
    unknown = [source.unknown for source in sources if source.unknown is not None]
    if not any(source.requests for source in sources) or not has_clients:
        return [Unknown("clients", "no client was seen", give), *unknown]
    if silent:
        brokers = ", ".join(map(str, silent))
        unknown.append(Unknown("clients", f"those of the brokers {brokers} were not seen", give))
    return unknown
