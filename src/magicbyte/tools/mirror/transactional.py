"""Copy one partition in transactions, each with records and the position after them.

Consumers of committed records see both or neither, so a restart simply continues at the committed position. Of two
mirrors with one transactional id the later one fences the earlier one. Sets are sent one by one, so it is slower than a
`PartitionCopier`, and there is no offset map.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from msgspec.structs import replace

from magicbyte.access.client.fetch import FetchOptions, read_sets
from magicbyte.access.client.offsets import LATEST, bounds, list_offset
from magicbyte.access.client.produce import TOO_LARGE
from magicbyte.access.client.transactions import TransactionalProducer
from magicbyte.engine.compiled.kernel import WORTH_LOADING, expect
from magicbyte.engine.errors import BrokerError, CorruptRecordError, MirrorError
from magicbyte.engine.protocol.message import Records
from magicbyte.engine.records.encode import BatchHeader
from magicbyte.tools.mirror.copier import FETCH_BYTES, Copied
from magicbyte.tools.mirror.flow import ahead
from magicbyte.tools.mirror.oversize import smaller
from magicbyte.tools.mirror.progress import Lane, MirrorPlace
from magicbyte.tools.mirror.resume import resume
from magicbyte.tools.mirror.rewrite import Made, Parcel, ProducerIdentity, end_of, forward
from magicbyte.tools.mirror.route import Route
from magicbyte.tools.mirror.spread import ParcelLoad, Portion


class TransactionalCopier:
    """Copy a partition in rounds; `copied` grows meanwhile. Setting `stop` ends it after the current transaction."""

    def __init__(self, route: Route, stop: asyncio.Event, copied: Copied) -> None:
        self.copied = copied
        self.route = route
        self.saved: MirrorPlace | None = None
        self._stop = stop
        self._producer: TransactionalProducer | None = None
        self._at_boundary = True

    async def catch_up(self) -> None:
        """Copy what the source has now. The first call, and one after a failure, resumes.

        Raises MirrorError if continuing would lose records, CorruptRecordError for damage at the source, BrokerError,
        also if another mirror has taken over, and NetworkError.
        """
        try:
            if self._producer is None or self.saved is None:
                self._producer, self.saved = await self._begin()
            await self._copy(self._producer, self.saved)
        except BaseException as error:
            self._producer = None
            if isinstance(error, CorruptRecordError):
                error.locate(path=str(self.route))
            raise

    async def _begin(self) -> tuple[TransactionalProducer, MirrorPlace]:
        """Fence an earlier mirror, and return its committed position, or commit the first one."""
        route = self.route
        assert route.transactional_id is not None, "else another one copies"
        producer = await TransactionalProducer.begin(route.target, route.transactional_id)
        resumed = await resume(route)
        if resumed.skip:
            raise MirrorError(
                f"{route}: group {route.group} lacks the last {sum(resumed.skip.values())} records at the "
                "target: run the mirror without transactions first (--until-caught-up)"
            )
        lanes = {partition: Lane(lane.target) for partition, lane in resumed.place.lanes.items()}
        for partition in route.targets:
            if partition not in lanes:  # of added partitions
                lanes[partition] = Lane((await bounds(route.target, route.to, partition))[1])
        progress = replace(resumed.place, lanes=lanes)
        # Before the first record: records at the target without a position are not from this mirror.
        await self._keep(producer, progress)
        await producer.commit()
        self.copied.lost += resumed.lost
        self._at_boundary = resumed.at_boundary
        return producer, progress

    async def _keep(self, producer: TransactionalProducer, place: MirrorPlace) -> None:
        book = self.route.book(self.route.partition)
        await producer.commit_offsets(book.name, book.offsets(place))

    async def _copy(self, producer: TransactionalProducer, progress: MirrorPlace) -> None:
        """Send the source's records from a position on, in a transaction per fetch response."""
        route = self.route
        end = (await list_offset(route.source, route.topic, route.partition, LATEST, committed=route.committed)).offset
        assert end is not None, "every partition has an end"
        self.copied.lag = max(end - progress.offset, 0)
        options = FetchOptions(FETCH_BYTES, committed=route.committed, dialect=route.dialect)
        sets = read_sets(route.source, route.topic, route.partition, progress.offset, end, options)
        async with aclosing(ahead(sets)) as each:
            async for fetched in each:
                if self._stop.is_set():
                    break
                if len(fetched.data) >= FETCH_BYTES // 2:
                    expect(WORTH_LOADING)  # because the broker had more, and the kernels are worth loading
                copied: list[tuple[Parcel, list[Made]]] = []
                async with producer.transaction():
                    loads = route.loads(fetched, progress.offset, len(progress.lanes), at_boundary=self._at_boundary)
                    for load in loads:
                        made, progress = await self._send(producer, load, progress)
                        copied.append((load.parcel, made))
                    progress = replace(progress, offset=end_of(fetched, progress.offset, end))
                    await self._keep(producer, progress)
                self.saved, self._at_boundary = progress, True
                for parcel, made in copied:
                    self.copied.add(parcel, made)
                self.copied.lag = max(end - progress.offset, 0)

    async def _send(
        self, producer: TransactionalProducer, load: ParcelLoad, progress: MirrorPlace
    ) -> tuple[list[Made], MirrorPlace]:
        """Send a parcel to its partitions; return the sets, and the position with its advanced lanes."""
        sent: list[Made] = []
        lanes, waiting = dict(progress.lanes), list(load.portions)
        while waiting:
            portion = waiting.pop(0)
            try:
                made, offset = await self._produce(producer, load.parcel, portion)
            except BrokerError as error:
                if error.code not in TOO_LARGE:
                    raise
                waiting = [*self._less(load.parcel, portion, error), *waiting]
                continue
            lanes[portion.partition] = Lane(offset + made.records)
            sent.append(made)
        return sent, replace(progress, lanes=lanes)

    async def _produce(self, producer: TransactionalProducer, parcel: Parcel, portion: Portion) -> tuple[Made, int]:
        """Send a set; return it, and its offset at the target."""
        sets: list[Made] = []

        def make(header: BatchHeader) -> tuple[Records, int]:
            identity = ProducerIdentity(header.producer_id, header.producer_epoch, header.base_sequence)
            sets.append(forward(parcel, self.route.storage, identity, records=portion.records, transactional=True))
            return sets[0].data, sets[0].records

        answer = await producer.send_made(self.route.to, portion.partition, make, parcel.entry.codec)
        return sets[0], answer.base_offset

    def _less(self, parcel: Parcel, portion: Portion, error: BrokerError) -> list[Portion]:
        """Return the parts of a portion that the target refused as too large."""
        less = smaller(parcel, portion, self.route.on_oversize)
        if not isinstance(less, list):
            where = f"{self.route}, offsets {parcel.first} to {parcel.next_offset - 1}"
            raise MirrorError(f"{where}: a set of {len(parcel.data)} bytes is more than the target takes") from error
        return less
