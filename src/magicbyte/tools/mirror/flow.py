"""The parcels of one partition in flight to the target, several at a time, in order.

With a producer id up to five sets are in flight: the target accepts none of them before its predecessors. Without one,
a refused set could be overtaken, so there is one at a time. The first set always goes alone: only a target that has a
set of the producer refuses those after a gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from itertools import chain
from typing import Final, TypeVar

from magicbyte.access.client.fetch import ClosedSets
from magicbyte.access.client.produce import goes_with
from magicbyte.access.client.produce_frames import Produced
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import CorruptRecordError, MagicbyteError
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.entry import parse_entry
from magicbyte.engine.records.forward import Forwarded
from magicbyte.engine.records.forward_kernels import HEADER
from magicbyte.engine.records.layout import Dialect
from magicbyte.tools.mirror.outbox import AT_ONCE, Outbox, Sending
from magicbyte.tools.mirror.rewrite import NO_PRODUCER, Parcel, ProducerIdentity, Storage, forward, pieces

T = TypeVar("T")

_KINDS: Final = [goes_with(2, codec) for codec in Codec]


class Flow:
    """Send sets to one partition. `arrived` is called for each, in order, with its offset at the target.

    After a failure nothing more is sent; `unsent` then yields sets that may not have arrived, and those that were not
    sent. `damage` is the error that ended the sets early. A set that cannot be encoded is a failure, and is among the
    unsent.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        storage: Storage,
        identity: ProducerIdentity,
        arrived: Callable[[Sending, int], None],
        stop: asyncio.Event,
    ) -> None:
        self.failure: MagicbyteError | None = None
        self.damage: CorruptRecordError | None = None
        self._topic = topic
        self._partition = partition
        self._storage = storage
        self._arrived = arrived
        self._stop = stop
        self._identity = identity
        self._dialect = Dialect.KAFKA
        self._under_way = deque[Sending]()
        self._ready = deque[Sending]()
        self._rest: Iterator[Parcel | Forwarded] = iter(())
        self._depth = 1
        self._most = AT_ONCE if identity != NO_PRODUCER else 1
        self._flying = 0
        self._is_empty = True
        self._awaited: asyncio.Future[None] | None = None

    async def send(self, sets: ClosedSets, start: int, outbox: Outbox, *, at_boundary: bool) -> None:
        """Send the records of some sets, as `parcels` yields them.

        Returns when the last one is in flight, or when nothing more will be sent.
        """
        self._rest = pieces(sets, start, self._storage, at_boundary=at_boundary, whose=lambda: self._identity)
        self._dialect, self._is_empty = sets.table.dialect, False
        outbox.offer(self)
        while not self._is_empty and self.failure is None:
            await self._change()

    async def arrive(self) -> None:
        """Return when nothing is in flight, or after a failure when no pending set can arrive."""
        while self._flying:
            await self._change()

    def reach(self, following: int) -> bool:
        """Mark everything before an offset as copied with the last set; False: nothing is in flight."""
        if self._under_way:
            self._under_way[-1] = self._under_way[-1]._replace(following=following)
        return bool(self._under_way)

    def unsent(self) -> Iterator[Parcel]:
        """Yield the sets that may not have arrived, and those that were not sent. Raises CorruptRecordError."""
        yield from map(self._parcel, chain(self._under_way, self._ready))
        for each in self._rest:
            if isinstance(each, Forwarded):
                yield from map(self._parcel, self._closed(each))
            else:
                yield each

    # ---- the interface for the outbox

    def waiting(self) -> Sending | None:
        """Return the next set, unless too many are in flight."""
        if self._flying >= self._depth:
            return None
        if self._stop.is_set():
            self._end()
            return None
        if not self._ready and not self._is_empty:
            self._make()
        return self._ready[0] if self._ready else None

    def sent(self) -> None:
        """Mark the next set as in flight."""
        self._under_way.append(self._ready.popleft())
        self._flying += 1

    def answered(self, answer: Produced | MagicbyteError) -> None:
        """Handle the response for the oldest set in flight."""
        self._flying -= 1
        if self.failure is None and isinstance(answer, Produced):
            self._arrived(self._under_way.popleft(), answer.base_offset)
            self._depth = self._most
        elif self.failure is None:
            assert isinstance(answer, MagicbyteError)
            self._fail(answer)
        if not self._flying:
            self._wake()

    # ---- encoding

    def _make(self) -> None:
        """Encode the next set, or several."""
        piece = None
        try:
            piece = next(self._rest, None)
        except CorruptRecordError as error:
            self.damage = error
        if piece is None:
            self._end()
        elif isinstance(piece, Forwarded):
            self._ready.extend(self._closed(piece))
            self._identity = self._identity._replace(sequence=piece.sequence)
        else:
            self._make_one(piece)

    def _make_one(self, parcel: Parcel) -> None:
        try:
            made = forward(parcel, self._storage, self._identity)
        except MagicbyteError as error:
            self._rest = chain([parcel], self._rest)
            self._fail(error)
            return
        self._identity = self._identity.behind(max(made.records, 0))
        kind, following = goes_with(made.magic, made.codec), parcel.next_offset
        self._ready.append(
            Sending(
                self._topic, self._partition, made.data, kind, made.records, parcel.data, first_of(parcel), following,
                following, parcel.why,
            )
        )  # fmt: skip

    def _closed(self, found: Forwarded) -> Iterator[Sending]:
        """Yield batches that were rewritten together."""
        topic, partition, data, heads = self._topic, self._partition, found.data, found.heads
        head = 0
        for position, size, first, following, records, codec in found.rows:
            source = data[position : position + size]
            made = [heads[head : head + HEADER], source[HEADER:]]
            head += HEADER
            yield Sending(
                topic, partition, made, _KINDS[codec], records, source, first, following, following, None
            )  # fmt: skip

    def _parcel(self, each: Sending) -> Parcel:
        entry = parse_entry(each.source, self._dialect)
        assert entry is not None, "it was one"
        return Parcel(each.source, len(each.source), entry, each.first, each.next_offset, each.why)

    def _end(self) -> None:
        self._is_empty = True
        self._wake()

    def _fail(self, failure: MagicbyteError) -> None:
        """Stop sending."""
        self.failure, self._depth = failure, 0
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
    """Yield the items of `found`, requesting each next one in advance."""
    following = asyncio.ensure_future(anext(found, None))
    try:
        while (each := await following) is not None:
            following = asyncio.ensure_future(anext(found, None))
            yield each
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def first_of(parcel: Parcel) -> int:
    """Return the offset of the first record of a parcel by its header, or else the offset after the previous entry."""
    entry = parcel.entry
    return max(parcel.first, entry.base_offset) if isinstance(entry, RecordBatch) else parcel.first
