"""The parcels of one partition on their way to the target, several at a time, each behind the one in front of it.

With a producer id up to five sets are under way: the target takes none of them before those in front of it. Without one
a set that is refused could be overtaken, so there is one at a time. The first set goes alone in any case: only a target
that has one of a producer's sets refuses those with a gap before them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from magicbyte.client.produce import Addressed, Produced, goes_with
from magicbyte.errors import CorruptRecordError, MagicbyteError
from magicbyte.mirror.outbox import AT_ONCE, Outbox, Sending
from magicbyte.mirror.rewrite import NOBODY, Identity, Made, Parcel, Storage, forward

T = TypeVar("T")


@dataclass(slots=True)
class UnderWay:
    """A set that the target has not acknowledged. Once it has, all in front of `following` is copied."""

    parcel: Parcel
    made: Made
    following: int


class Flow:
    """Sends parcels to one partition. `arrived` hears of each, in order, and the offset that it got.

    After a failure nothing more is sent. What is not known to have arrived is then in `under_way`, what was not sent in
    `rest`; `damage` is what ended `rest` early. A set that cannot be made is a failure, and the first of `rest`.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        storage: Storage,
        identity: Identity,
        arrived: Callable[[UnderWay, int], None],
        stop: asyncio.Event,
    ) -> None:
        self.under_way = deque[UnderWay]()
        self.rest: Iterator[Parcel] = iter(())
        self.failure: MagicbyteError | None = None
        self.damage: CorruptRecordError | None = None
        self._topic = topic
        self._partition = partition
        self._storage = storage
        self._arrived = arrived
        self._stop = stop
        self._identity = identity
        self._depth = 1
        self._flying = 0
        self._next: tuple[UnderWay, Sending] | None = None
        self._is_empty = True
        self._awaited: asyncio.Future[None] | None = None

    async def send(self, found: Iterator[Parcel], outbox: Outbox) -> None:
        """Take all parcels; return when the last one is on its way, or nothing more will be taken."""
        self.rest, self._is_empty = found, False
        outbox.offer(self)
        while not self._is_empty and self.failure is None:
            await self._change()

    async def arrive(self) -> None:
        """Return when nothing is under way, or after a failure nothing more can become of it."""
        while self._flying:
            await self._change()

    def reach(self, following: int) -> bool:
        """Say that all in front of an offset is copied with the last set; False: nothing is under way."""
        if self.under_way:
            self.under_way[-1].following = following
        return bool(self.under_way)

    # ---- what the outbox asks and tells

    def waiting(self) -> Sending | None:
        """Return the next set, unless so many are under way that it may not go now."""
        if self._next is None and self.failure is None and not self._is_empty and self._flying < self._depth:
            self._next = self._made()
        return None if self._next is None else self._next[1]

    def _made(self) -> tuple[UnderWay, Sending] | None:
        parcel = None
        try:
            parcel = None if self._stop.is_set() else next(self.rest, None)
        except CorruptRecordError as error:
            self.damage = error
        if parcel is None:
            self._is_empty = True
            self._wake()
            return None
        try:
            made = forward(parcel, self._storage, self._identity)
        except MagicbyteError as error:
            self._fail(error, parcel)
            return None
        addressed = Addressed(self._topic, self._partition, made.data)
        sending = Sending(addressed, made, len(parcel.data), goes_with(made.magic, made.codec))
        return UnderWay(parcel, made, parcel.next_offset), sending

    def _fail(self, failure: MagicbyteError, first: Parcel | None) -> None:
        """Send nothing more; `first` was taken and not sent."""
        self.failure, self._next = failure, None
        if first is not None:
            self.rest = chain([first], self.rest)
        self._wake()

    def sent(self) -> None:
        """Hear that the next set is on its way."""
        assert self._next is not None, "it was waiting"
        each, _ = self._next
        self._next = None
        self.under_way.append(each)
        self._identity = self._identity.behind(max(each.made.records, 0))
        self._flying += 1

    def answered(self, answer: Produced | MagicbyteError) -> None:
        """Hear what became of the first set under way."""
        self._flying -= 1
        if self.failure is None and isinstance(answer, Produced):
            self._arrived(self.under_way.popleft(), answer.base_offset)
            self._depth = AT_ONCE if self._identity != NOBODY else 1
        elif self.failure is None:
            assert isinstance(answer, MagicbyteError)
            self._fail(answer, None if self._next is None else self._next[0].parcel)
        if not self._flying:
            self._wake()

    def _wake(self) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    async def _change(self) -> None:
        self._awaited = asyncio.get_running_loop().create_future()
        try:
            await self._awaited
        finally:
            self._awaited = None


async def ahead(found: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """Yield what `found` does; what comes next is asked for already."""
    following = asyncio.ensure_future(anext(found, None))
    try:
        while (each := await following) is not None:
            following = asyncio.ensure_future(anext(found, None))
            yield each
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
