"""Sets on their way to one broker of the target: many partitions in a request, several requests at a time.

Who has sets is a `Sender`; it is asked for the next one when there is room, and told what became of each, in the order
in which it gave them. A request holds one set of a partition at most, as brokers want it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple, Protocol

from magicbyte.client import Client
from magicbyte.client.client import BrokerNode
from magicbyte.client.produce import send_together
from magicbyte.client.produce_frames import Produced
from magicbyte.errors import BrokerError, MagicbyteError
from magicbyte.protocol.message import Records

AT_ONCE: Final = 5  # requests on their way: of so many sets a broker remembers what it has of a producer
MOST_BYTES: Final = 1 << 20  # of a request, more only for a single set that is larger


class Sending(NamedTuple):
    """A set on its way to a partition of the target, made of `source`. Those of one `kind` go together.

    Its first record is the one at the offset `first` of the source, or behind it; `records` -1: it is not known how
    many it has. All in front of `next_offset` is in it or in those before; once it has arrived, all in front of
    `following` is copied. `why` it was opened; None: it stayed closed.
    """

    topic: str
    partition: int
    data: Records
    kind: range
    records: int
    source: memoryview
    first: int
    next_offset: int
    following: int
    why: str | None


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
        self._outboxes: dict[BrokerNode, Outbox] = {}

    async def of_leader(self, topic: str, partition: int) -> Outbox:
        """Return the outbox of the broker that leads a partition. Raises BrokerError and NetworkError."""

        async def look(node: BrokerNode) -> Outbox:
            return self._outboxes.get(node) or self._outboxes.setdefault(node, Outbox(self._client, node, self._tasks))

        return await self._client.at_leader(topic, partition, look)


class Outbox:
    """Sends to one broker what senders have. `offer` says that there is something to take."""

    def __init__(self, client: Client, node: BrokerNode, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._node = node
        self._tasks = tasks
        self._ready: dict[Sender, None] = {}
        self._rows = deque[list[tuple[Sender, Sending]]]()
        self._at_work = 0

    def offer(self, sender: Sender) -> None:
        """Take from this sender, until it has no more."""
        self._ready.setdefault(sender)
        self._fill()

    def _fill(self) -> None:
        """Have as many at work as there are requests to send."""
        while self._ready and self._at_work < AT_ONCE and (row := self._row()):
            self._rows.append(row)
            self._at_work += 1
            self._tasks.create_task(self._work())

    async def _work(self) -> None:
        """Send a request, and then the next one, as long as there are any: always the one that was filled first."""
        while self._rows:
            await self._send(self._rows.popleft())
            if row := self._row():
                self._rows.append(row)
        self._at_work -= 1
        self._fill()

    def _row(self) -> list[tuple[Sender, Sending]]:
        """Take a set of each sender, as many as go in one request. Who gave one comes last the next time."""
        row: list[tuple[Sender, Sending]] = []
        size, kind = 0, range(0)
        for sender in list(self._ready):
            found = sender.waiting()
            if found is None:
                del self._ready[sender]
                continue
            if row and (found.kind is not kind or size + len(found.source) > MOST_BYTES):
                continue
            size, kind = size + len(found.source), found.kind
            row.append((sender, found))
            sender.sent()
            del self._ready[sender]
            self._ready[sender] = None
        return row

    async def _send(self, row: list[tuple[Sender, Sending]]) -> None:
        answers: list[Produced | BrokerError] | list[MagicbyteError]
        try:
            answers = await send_together(self._client, self._node, [each for _, each in row], row[0][1].kind)
        except MagicbyteError as error:
            answers = [error] * len(row)
        for (sender, _), answer in zip(row, answers, strict=True):
            sender.answered(answer)
            if isinstance(answer, Produced):
                self._ready.setdefault(sender)
            else:  # whoever leads the partition now may be another broker
                self._ready.pop(sender, None)
        self._fill()
