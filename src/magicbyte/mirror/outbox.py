"""Sets on their way to one broker of the target: many partitions in a request, several requests at a time.

Who has sets is a `Sender`; it is asked for the next one when there is room, and told what became of each, in the order
in which it gave them. A request holds one set of a partition at most, as brokers want it.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple, Protocol

from magicbyte.client import Client
from magicbyte.client.client import Node
from magicbyte.client.produce import Addressed, Produced, send_together
from magicbyte.errors import BrokerError, MagicbyteError
from magicbyte.mirror.rewrite import Made

AT_ONCE: Final = 5  # requests on their way: of so many sets a broker remembers what it has of a producer
MOST_BYTES: Final = 1 << 20  # of a request, more only for a single set that is larger


class Sending(NamedTuple):
    """A set of about `size` bytes on its way to a partition of the target. Those of one `kind` go together."""

    addressed: Addressed
    made: Made
    size: int
    kind: range


class Sender(Protocol):
    """Who has sets for one partition of the target."""

    def waiting(self) -> Sending | None:
        """Return the set that is to go next, None while there is none or it may not go now. Does not raise."""

    def sent(self) -> None:
        """Hear that the set that was waiting is on its way."""

    def answered(self, answer: Produced | MagicbyteError) -> None:
        """Hear what became of the first set on its way. Does not raise."""


class Outboxes:
    """An outbox for each broker of the target. Whatever ends one of their tasks ends the group of tasks."""

    def __init__(self, client: Client, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._tasks = tasks
        self._outboxes: dict[Node, Outbox] = {}

    async def of_leader(self, topic: str, partition: int) -> Outbox:
        """Return the outbox of the broker that leads a partition. Raises BrokerError and NetworkError."""

        async def look(node: Node) -> Outbox:
            return self._outboxes.get(node) or self._outboxes.setdefault(node, Outbox(self._client, node, self._tasks))

        return await self._client.at_leader(topic, partition, look)


class Outbox:
    """Sends to one broker what senders have. `offer` says that there is something to take."""

    def __init__(self, client: Client, node: Node, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._node = node
        self._tasks = tasks
        self._ready: dict[Sender, None] = {}
        self._under_way = 0

    def offer(self, sender: Sender) -> None:
        """Take from this sender, until it has no more."""
        self._ready.setdefault(sender)
        self._fill()

    def _fill(self) -> None:
        while self._ready and self._under_way < AT_ONCE:
            row = self._row()
            if not row:
                return
            self._under_way += 1
            self._tasks.create_task(self._send(row))

    def _row(self) -> list[tuple[Sender, Sending]]:
        """Take a set of each sender, as many as go in one request. Who gave one comes last the next time."""
        row: list[tuple[Sender, Sending]] = []
        size, kind = 0, range(0)
        for sender in list(self._ready):
            found = sender.waiting()
            if found is None:
                del self._ready[sender]
                continue
            if row and (found.kind is not kind or size + found.size > MOST_BYTES):
                continue
            size, kind = size + found.size, found.kind
            row.append((sender, found))
            sender.sent()
            del self._ready[sender]
            self._ready[sender] = None
        return row

    async def _send(self, row: list[tuple[Sender, Sending]]) -> None:
        first = row[0][1].made
        sets = [each.addressed for _, each in row]
        answers: list[Produced | BrokerError] | list[MagicbyteError]
        try:
            answers = await send_together(self._client, self._node, sets, first.magic, first.codec)
        except MagicbyteError as error:
            answers = [error] * len(row)
        for (sender, _), answer in zip(row, answers, strict=True):
            sender.answered(answer)
            if isinstance(answer, Produced):
                self._ready.setdefault(sender)
            else:  # whoever leads the partition now may be another broker
                self._ready.pop(sender, None)
        self._under_way -= 1
        self._fill()
