"""Copy one partition, and resume after any interruption.

A partition is copied to one partition of the target or, if keys decide, to all of them: each of these is a *lane*. A
position (progress.py) is stored before the first set is sent, and periodically afterwards. After a crash the target may
hold more than the last stored position. With a producer id, the headers of the target's sets after that position tell
how many of our records arrived in each lane, and these are skipped. A request that was still in flight has the same
sequence numbers as its successor, so the target stores only one. Without producer ids those sets are copied twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from magicbyte.access.client.fetch import MAX_BYTES, ClosedSets, FetchOptions, read_sets
from magicbyte.access.client.offsets import LATEST, bounds, list_offset
from magicbyte.access.client.produce import TOO_LARGE, send_made
from magicbyte.engine.compiled.kernel import WORTH_LOADING, expect
from magicbyte.engine.errors import (
    BrokerError,
    CorruptRecordError,
    MirrorError,
    UnsupportedForMessageFormatError,
)
from magicbyte.engine.printable import logger
from magicbyte.tools.mirror.flow import Flow, ahead, first_of
from magicbyte.tools.mirror.offset_map import Track
from magicbyte.tools.mirror.offset_topic import note
from magicbyte.tools.mirror.outbox import Outboxes, Sending
from magicbyte.tools.mirror.oversize import LARGE, OnOversize, Parked, halves, is_single, not_passed, smaller, without
from magicbyte.tools.mirror.progress import Lane, MirrorPlace
from magicbyte.tools.mirror.resume import Resumed, count_ahead, resume
from magicbyte.tools.mirror.rewrite import (
    Made,
    Parcel,
    end_of,
    forward,
    records_of,
)
from magicbyte.tools.mirror.route import Route
from magicbyte.tools.mirror.spread import ParcelLoad, Portion

log = logger(__name__)

FETCH_BYTES: Final = MAX_BYTES // 2  # up to three such responses of a partition are in memory
SAVE_BYTES: Final = 32 << 20  # sent between two stored positions
SAVE_SECONDS: Final = 5.0


@dataclass(slots=True)
class Copied:
    """Counts of copied data: bytes of closed sets and of decompressed ones; records of each.

    `records` is the count of headers, without those in closed wrappers of magic 0 and 1. `lost`: offsets that the
    source had deleted before they were copied. `lag`: offsets still to copy at the last request. `parked`: sets, or
    single records, that the target does not accept and that were put aside. `uncounted`: sets whose
    headers do not tell how many records they hold.
    """

    closed_sets: int = 0
    closed_bytes: int = 0
    opened_sets: int = 0
    opened_bytes: int = 0
    records: int = 0
    lost: int = 0
    lag: int = 0
    parked: int = 0
    uncounted: int = 0

    def add(self, parcel: Parcel, made: Sequence[Made]) -> None:
        """Count a parcel and its sent records: none if all had arrived before."""
        if made:
            records = sum(max(each.records, 0) for each in made)
            self.count(records, len(parcel.data), 1, is_closed=parcel.why is None)
            self.uncounted += sum(each.records < 0 for each in made)

    def count(self, records: int, size: int, sets: int, *, is_closed: bool) -> None:
        """Count sets of `size` bytes with `records` sent records, -1: unknown."""
        if is_closed:
            self.closed_sets += sets
            self.closed_bytes += size
        else:
            self.opened_sets += sets
            self.opened_bytes += size
        if records > 0:
            self.records += records
        elif records < 0:
            self.uncounted += sets


@dataclass(slots=True)
class _Sent:
    """The result of sending a parcel: the sent sets, those that the target does not accept, and whether it was split.

    `offsets`: positions of the sets at the target, including earlier ones. `is_single`: no other set is being sent.
    """

    made: list[Made] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    parked: int = 0
    is_split: bool = False
    is_single: bool = True
    records: int = 0


class _SeveralError(Exception):
    """A set is too large, and the others with it must now be sent in the order of offsets."""


@dataclass(slots=True)
class _Arrivals:
    """Adjacent sets that arrived since the position was last advanced, from the offset `first` on, at `start`.

    They end before `next_offset`, and at the target before `target`; everything before `following` is copied. If there
    are several, they have no gaps.
    """

    first: int
    start: int
    is_closed: bool
    next_offset: int
    target: int
    following: int
    records: int = 0
    size: int = 0
    sets: int = 0

    def take(self, sending: Sending, offset: int) -> bool:
        """Add a set at `offset` of the target, if it is the first, or adjacent to the others without gaps."""
        if self.sets and (
            offset != self.target
            or sending.first != self.next_offset
            or sending.records != sending.next_offset - sending.first
            or self.records != self.next_offset - self.first
            or (sending.why is None) != self.is_closed
        ):
            return False
        self.sets += 1
        self.size += len(sending.source)
        self.records += sending.records
        self.target += sending.records
        self.next_offset, self.following = sending.next_offset, sending.following
        return True


class PartitionCopier:
    """Copy a partition in rounds; `copied` grows meanwhile. Setting `stop` ends it after the current set."""

    def __init__(self, route: Route, stop: asyncio.Event, copied: Copied) -> None:
        self.copied = copied
        self.route = route
        self._stop = stop
        self._copying: _Copying | None = None

    @property
    def saved(self) -> MirrorPlace | None:
        """The position stored at the target; None before the first one."""
        return None if self._copying is None else self._copying.saved

    async def catch_up(self, outboxes: Outboxes) -> None:
        """Copy what the source has now, and store the position. The first call resumes.

        Raises MirrorError if continuing would lose or duplicate records, CorruptRecordError for damage at the source,
        BrokerError and NetworkError.
        """
        try:
            if self._copying is None:
                self._copying = await self._resume()
            await self._copying.catch_up(outboxes)
        except CorruptRecordError as error:
            error.locate(path=str(self.route))
            raise

    async def _resume(self) -> _Copying:
        route, found = self.route, await resume(self.route)
        self.copied.lost += found.lost
        parked = set[int]()
        if route.park is not None:
            parked = route.park.offsets(route.topic, route.partition, found.place.offset)
        copying = _Copying(route, self._stop, self.copied, found, parked)
        await copying.save()
        return copying


class _Copying:
    """A partition being copied, from the position on at which it was resumed."""

    def __init__(self, route: Route, stop: asyncio.Event, copied: Copied, resumed: Resumed, parked: set[int]) -> None:
        self.copied = copied
        self.route = route
        self.saved = self._place = resumed.place
        self._track = Track()
        self._stop = stop
        self._skip = resumed.skip  # by lane: records that have arrived already
        self._parked = parked  # offsets put aside before that are not passed yet
        self._flow: Flow | None = None
        self._arrivals: _Arrivals | None = None
        self._reached = 0  # at the source; sets in flight are between the position and here
        self._at_boundary = resumed.at_boundary
        self._unsaved_bytes = 0
        self._saved_at = 0.0

    async def catch_up(self, outboxes: Outboxes) -> None:
        """Copy what the source has now, and store the position. Raises as PartitionCopier.catch_up does."""
        place = self._place
        await self._copy(place, outboxes)
        if self._place != place:
            await self.save()

    async def _copy(self, progress: MirrorPlace, outboxes: Outboxes) -> None:
        """Send the source's records from a position on."""
        route, self._reached = self.route, progress.offset
        end = (await list_offset(route.source, route.topic, route.partition, LATEST, committed=route.committed)).offset
        assert end is not None, "every partition has an end"
        self._note_lag(end)
        options = FetchOptions(FETCH_BYTES, committed=route.committed, dialect=route.dialect)
        sets = read_sets(route.source, route.topic, route.partition, progress.offset, end, options)
        async with aclosing(ahead(sets)) as each:
            async for found in each:
                if len(found.data) >= FETCH_BYTES // 2:
                    expect(WORTH_LOADING)  # because the broker had more, and the kernels are worth loading
                await self._send_all(found, end, outboxes)
                if self._stop.is_set():
                    break
        if self._flow is not None:
            await self._flow.arrive()
            self._take_arrivals()
            await self._settle()
        self._note_lag(end)
        if self._skip and not self._stop.is_set():
            raise MirrorError(
                f"{route}: {sum(self._skip.values())} records of the target no longer exist at the source"
            )

    async def _send_all(self, sets: ClosedSets, end: int, outboxes: Outboxes) -> None:
        """Send the records of some sets, and advance past them, including markers, aborted and empty sets."""
        if not self._skip and len(self._place.lanes) < len(self.route.targets):
            await self._widen(self._place)
        if self.route.lanes or self._skip or self._parked:
            for load in self._loads(sets):
                if self._stop.is_set():
                    return
                await self._send(load)
                self._note_lag(end)
        else:
            await self._send_closely(sets, outboxes)
        if self._stop.is_set():
            return
        if len(sets.table):
            self._reached = end_of(sets, self._reached, end)
            self._parked = not_passed(self._parked, self._reached)
            if self._flow is None or not self._flow.reach(self._reached):
                self._take_arrivals()
                self._place = replace(self._place, offset=self._reached)
            self._at_boundary = True
        self._note_lag(end)
        await self._save_if_due()

    async def _send_closely(self, sets: ClosedSets, outboxes: Outboxes) -> None:
        """Send sets to the partition of the same number, several at a time."""
        route, place = self.route, self._place
        if self._flow is None:
            identity = place.lanes[route.partition].identity
            self._flow = Flow(route.to, route.partition, route.storage, identity, self._arrived, self._stop)
        outbox = await outboxes.of_leader(route.to, route.partition)
        await self._flow.send(sets, self._reached, outbox, at_boundary=self._at_boundary)
        self._take_arrivals()
        await self._settle()

    def _arrived(self, each: Sending, offset: int) -> None:
        """Handle a set that arrived at the target, at this offset."""
        if self._arrivals is None or not self._arrivals.take(each, offset):
            self._take_arrivals()
            self._arrivals = _Arrivals(each.first, offset, each.why is None, each.first, offset, each.following)
            self._arrivals.take(each, offset)

    def _take_arrivals(self) -> None:
        """Count arrived sets, and advance the position past them; batched, because it is costly per set."""
        arrived, self._arrivals = self._arrivals, None
        if arrived is None:
            return
        self.copied.count(arrived.records, arrived.size, arrived.sets, is_closed=arrived.is_closed)
        self._unsaved_bytes += arrived.size
        self._track.copied(arrived.first, arrived.next_offset, arrived.records, arrived.start)
        place, partition = self._place, self.route.partition
        target = arrived.target if arrived.records >= 0 else arrived.start + 1
        lane = Lane(target, place.lanes[partition].identity.behind(max(arrived.records, 0)))
        self._place = replace(place, offset=arrived.following, lanes={partition: lane})

    async def _settle(self) -> None:
        """After a failure, determine which sets arrived nevertheless, and send the others one by one, as it may be
        transient.
        """
        route, flow = self.route, self._flow
        assert flow is not None, "there was one"
        if flow.failure is None and flow.damage is None:
            return
        await flow.arrive()
        self._take_arrivals()
        place = self._place
        self._flow, partition = None, route.partition
        if flow.failure is not None:
            log.info("%s: %s: continuing one by one", route, flow.failure)
            if skip := await count_ahead(route, partition, place.lanes[partition]):
                self._skip[partition] = skip
            for parcel in flow.unsent():
                if self._stop.is_set():
                    return
                await self._send(ParcelLoad(parcel, (Portion(partition, None),)))
        if flow.damage is not None:
            raise flow.damage

    def _loads(self, found: ClosedSets) -> Iterator[ParcelLoad]:
        """Yield the loads of some sets, with their target partitions."""
        lanes = len(self._place.lanes)
        loads = self.route.loads(found, self._reached, lanes, at_boundary=self._at_boundary)
        return without(loads, self._parked) if self._parked else loads

    def _note_lag(self, end: int) -> None:
        self.copied.lag = max(end - self._place.offset, 0)

    async def _widen(self, progress: MirrorPlace) -> None:
        """Add lanes to the position for partitions that were added at the target.

        Only after all records to skip have been skipped: until then records must go where they went when they were
        sent.
        """
        route, lanes = self.route, dict(progress.lanes)
        identity = next(iter(lanes.values())).identity
        for partition in route.targets:
            if partition not in lanes:
                _, end = await bounds(route.target, route.to, partition)
                lanes[partition] = Lane(end, identity.begun())
        self._place = replace(progress, lanes=lanes)
        await self.save()

    async def _send(self, load: ParcelLoad) -> None:
        """Send a parcel to its partitions."""
        parcel, sent = load.parcel, _Sent()
        await self._deliver_all(load, sent)
        self.copied.add(replace(parcel, why=parcel.why or LARGE) if sent.is_split else parcel, sent.made)
        self._note_offsets(parcel, sent)
        self._place = replace(self._place, offset=parcel.next_offset)
        self._unsaved_bytes += len(parcel.data)
        if sent.parked:  # so that it need not be handled again
            await self.save()
        await self._save_if_due()

    def _note_offsets(self, parcel: Parcel, sent: _Sent) -> None:
        if sent.offsets and not self.route.lanes:
            together = len(sent.offsets) == 1 and not sent.parked and not self.route.merge
            offset = sent.offsets[0]
            self._track.copied(first_of(parcel), parcel.next_offset, sent.records, offset, together=together)

    async def _deliver_all(self, load: ParcelLoad, sent: _Sent) -> None:
        """Send the missing records of all portions.

        Records must be put aside in the order of offsets, and before later ones are sent: after a crash nothing else
        shows that they did not arrive. So if a record of a load for several partitions is too large, the load is
        restarted from its beginning in halves, skipping what has been sent.
        """
        before, skips, delivered = self._place, dict(self._skip), dict[int, int]()
        sent.is_single = is_single(load)
        try:
            for portion in load.portions:
                await self._deliver(load.parcel, portion, sent)
                delivered[portion.partition] = 0 if portion.records is None else len(portion.records)
        except _SeveralError:
            self._place = before
            self._skip = skips | {each: max(count, skips.get(each, 0)) for each, count in delivered.items()}
            for half in halves(load):
                await self._deliver_all(half, sent)

    async def _put_aside(self, parcel: Parcel, parked: Parked) -> None:
        route = self.route
        assert route.park is not None, "nothing is put aside without it"
        await asyncio.to_thread(route.park.add, route.topic, route.partition, parked, parcel.dialect)
        self.copied.parked += 1

    async def _deliver(self, parcel: Parcel, portion: Portion, sent: _Sent) -> None:
        """Send the missing records of a portion."""
        route, progress, partition = self.route, self._place, portion.partition
        lane, skip = progress.lanes[partition], self._skip.get(partition, 0)
        if skip and portion.records is None and route.on_oversize is OnOversize.SPLIT:
            portion = portion._replace(records=records_of(parcel))  # a part of it may have arrived
        try:
            made = forward(parcel, route.storage, lane.identity.behind(skip), skip, portion.records)
        except UnsupportedForMessageFormatError as error:
            raise MirrorError(f"{self._where(parcel)}: {error}") from error
        skipped = min(skip, max(made.records, 0))
        start, target = lane.target, lane.target + skipped
        if not 0 <= made.records == skipped:
            try:
                done = await send_made(route.target, route.to, partition, made.data, made.magic, made.codec)
            except BrokerError as error:
                if error.code not in TOO_LARGE:
                    raise
                await self._deliver_less(parcel, portion, sent, error)
                return
            start, target = done.base_offset - skipped, done.base_offset + max(made.records - skipped, 1)
            sent.made.append(made)
        sent.offsets.append(start)
        sent.records += made.records
        if skip:
            self._skip[partition] = skip - skipped
            if skip == skipped:
                del self._skip[partition]
        lane = Lane(target, lane.identity.behind(max(made.records, 0)))
        self._place = replace(progress, lanes={**progress.lanes, partition: lane})

    async def _deliver_less(self, parcel: Parcel, portion: Portion, sent: _Sent, error: BrokerError) -> None:
        """Send a portion that the target refused as too large in parts, or put it aside."""
        less = smaller(parcel, portion, self.route.on_oversize)
        if less is None:
            size = len(parcel.data)
            raise MirrorError(f"{self._where(parcel)}: a set of {size} bytes is more than the target takes") from error
        if self.route.lanes and self.route.on_oversize is OnOversize.PARK and not sent.is_single:
            raise _SeveralError
        if isinstance(less, Parked):
            await self._put_aside(parcel, less)
            sent.parked += 1
            return
        sent.is_split = True
        for part in less:
            await self._deliver(parcel, part, sent)

    def _where(self, parcel: Parcel) -> str:
        return f"{self.route}, offsets {parcel.first} to {parcel.next_offset - 1}"

    async def _save_if_due(self) -> None:
        if self._unsaved_bytes >= SAVE_BYTES or asyncio.get_running_loop().time() - self._saved_at >= SAVE_SECONDS:
            await self.save()

    async def save(self) -> None:
        """Store the position, and the collected offset map, at the target."""
        route, place = self.route, self._place
        runs = self._track.take()
        if runs and route.has_map and not route.lanes:
            await note(route.target, route.group, route.to, route.partition, runs)
        await route.book(route.partition).save(route.target, place)
        self.saved = place
        self._unsaved_bytes, self._saved_at = 0, asyncio.get_running_loop().time()
