"""Sets in flight to one broker of the target: many partitions per request, several requests at a time.

A `Sender` provides sets; it is asked for the next one when there is room, and gets the responses in order. A request
has at most one set per partition, as brokers require.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple, Protocol

from magicbyte.access.client import Client
from magicbyte.access.client.client import BrokerNode
from magicbyte.access.client.produce import send_together
from magicbyte.access.client.produce_frames import Produced
from magicbyte.engine.errors import BrokerError, MagicbyteError
from magicbyte.engine.protocol.message import Records

AT_ONCE: Final = 5  # requests in flight: brokers remember as many batches of a producer
MOST_BYTES: Final = 1 << 20  # of a request, more only for a single larger set


class Sending(NamedTuple):
    """A set for a partition of the target, made from `source`. Sets of the same `kind` can share a request.

    Its first record is at the offset `first` of the source, or after it; `records` -1: unknown. Everything before
    `next_offset` is in it or in earlier ones; once it has arrived, everything before `following` is copied. `why` it
    was decompressed; None: it stayed closed.
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
    """A provider of sets for one partition of the target."""

    def waiting(self) -> Sending | None:
        """Return the next set, None if there is none or it must wait. Does not raise."""

    def sent(self) -> None:
        """Mark the next set as in flight."""

    def answered(self, answer: Produced | MagicbyteError) -> None:
        """Handle the response for the oldest set in flight. Does not raise."""


class Outboxes:
    """An outbox for each broker of the target. A failure of one of their tasks ends the task group."""

    def __init__(self, client: Client, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._tasks = tasks
        self._outboxes: dict[BrokerNode, Outbox] = {}

    async def of_leader(self, topic: str, partition: int) -> Outbox:
        """Return the outbox of a partition's leader. Raises BrokerError and NetworkError."""

        async def look(node: BrokerNode) -> Outbox:
            return self._outboxes.get(node) or self._outboxes.setdefault(node, Outbox(self._client, node, self._tasks))

        return await self._client.at_leader(topic, partition, look)


class Outbox:
    """Send the sets of senders to one broker. `offer` announces a sender with sets."""

    def __init__(self, client: Client, node: BrokerNode, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._node = node
        self._tasks = tasks
        self._ready: dict[Sender, None] = {}
        self._rows = deque[list[tuple[Sender, Sending]]]()
        self._at_work = 0

    def offer(self, sender: Sender) -> None:
        """Take sets from this sender, until it has no more."""
        self._ready.setdefault(sender)
        self._fill()

    def _fill(self) -> None:
        """Start as many workers as there are requests to send."""
        while self._ready and self._at_work < AT_ONCE and (row := self._row()):
            self._rows.append(row)
            self._at_work += 1
            self._tasks.create_task(self._work())

    async def _work(self) -> None:
        """Send requests as long as there are any, in the order in which they were filled."""
        while self._rows:
            await self._send(self._rows.popleft())
            if row := self._row():
                self._rows.append(row)
        self._at_work -= 1
        self._fill()

    def _row(self) -> list[tuple[Sender, Sending]]:
        """Take one set of each sender, as many as fit into a request. These senders come last next time."""
        row: list[tuple[Sender, Sending]] = []
        size, kind = 0, range(0)
        for sender in list(self._ready):
            sending = sender.waiting()
            if sending is None:
                del self._ready[sender]
                continue
            if row and (sending.kind is not kind or size + len(sending.source) > MOST_BYTES):
                continue
            size, kind = size + len(sending.source), sending.kind
            row.append((sender, sending))
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
            else:  # the leader may be another broker now
                self._ready.pop(sender, None)
        self._fill()
