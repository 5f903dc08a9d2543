"""The evidence of a migration's conclusions: what a command could not ask, and which sources told of clients.

A conclusion is drawn from its evidence only. Where some is missing, the conclusion is an `Unknown`, which says what
would tell it; "done", "nothing breaks" or the next step are concluded without any `Unknown` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from magicbyte.tools.migration.sightings import Sightings

GIVE_CLIENTS: Final = "give --request-log, --capture or --metrics"
"""The options of the commands that take facts about clients from elsewhere."""


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


def unknown_clients(sources: Sequence[ClientSource], sightings: Sightings, silent: Sequence[int] = ()) -> list[Unknown]:
    """Return why the clients of a cluster are not known, empty if they are.

    `silent`: the brokers whose own pages do not count clients; they matter where no other source was given.
    """
    unknown = [source.unknown for source in sources if source.unknown is not None]
    if not any(source.requests for source in sources) or not sightings.has_clients:
        return [Unknown("clients", "no client was seen", GIVE_CLIENTS), *unknown]
    if silent:
        brokers = ", ".join(map(str, silent))
        unknown.append(Unknown("clients", f"those of the brokers {brokers} were not seen", GIVE_CLIENTS))
    return unknown
