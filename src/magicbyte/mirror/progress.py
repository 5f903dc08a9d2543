"""How far a mirror has come, kept at the target: offsets of a consumer group, a partition of the source each.

The committed offset is where to go on at the source. Its metadata say from which offset on the target may hold more
than that, and as whom it was produced: see copier.py for what is made of it. docs/decisions/0006 has the reasons.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from magicbyte.client import Client
from magicbyte.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.errors import MirrorError
from magicbyte.mirror.rewrite import NOBODY, Identity

DEFAULT_GROUP: Final = "magicbyte-mirror"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a mirror is in a partition: everything below `offset` of the source is below `target` at the target.

    `identity`: as whom, and with which sequence number, the next record is produced. `source`: the source's cluster
    id, None where it has none (before 0.10.1).
    """

    offset: int
    target: int
    identity: Identity = NOBODY
    source: str | None = None

    def metadata(self) -> str:
        """Return all but the offset as text."""
        return json.dumps(
            {"magicbyte-mirror": _VERSION, "target": self.target, "as": list(self.identity), "source": self.source}
        )


async def load(client: Client, group: str, topic: str, partition: int) -> Place | None:
    """Return the place of a partition, None where there is none yet. Raises MirrorError for what others committed."""
    found = (await committed_offsets(client, group, [(topic, partition)])).get((topic, partition))
    return None if found is None else _place(found, f"group {group}, {topic}-{partition}")


async def save(client: Client, group: str, topic: str, partition: int, place: Place) -> None:
    """Keep the place of a partition. Raises BrokerError and NetworkError."""
    await commit_offsets(client, group, {(topic, partition): Committed(place.offset, place.metadata())})


def _place(found: Committed, what: str) -> Place:
    try:
        told = json.loads(found.metadata)
        if told["magicbyte-mirror"] != _VERSION:
            raise ValueError(told["magicbyte-mirror"])
        return Place(found.offset, int(told["target"]), Identity(*map(int, told["as"])), told["source"])
    except (ValueError, KeyError, TypeError) as error:
        raise MirrorError(f"{what}: expected the progress of a mirror, found metadata {found.metadata!r}") from error
