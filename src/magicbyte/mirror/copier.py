"""Copies one partition, and goes on where it stopped, however it was stopped.

A place (progress.py) is kept before the first set is sent, and then now and then. After a crash the target may hold
more than the last place says. With a producer id it is found out: the headers of the target's sets from there on tell
how many records of ours arrived, and so many are skipped. A request that was still on its way then carries the same
sequence numbers as its successor, of which the target takes one. Without producer ids those sets are copied twice.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Final

from magicbyte.client import Client
from magicbyte.client.fetch import ClosedSets, FetchOptions, read_sets
from magicbyte.client.offsets import LATEST, bounds, list_offset
from magicbyte.client.produce import new_producer_id, send_made
from magicbyte.errors import (
    BrokerError,
    CorruptRecordError,
    ErrorCode,
    MirrorError,
    UnsupportedForMessageFormatError,
)
from magicbyte.mirror import progress
from magicbyte.mirror.progress import Place
from magicbyte.mirror.rewrite import NOBODY, Identity, Made, Parcel, Storage, forward, parcels
from magicbyte.records.batch import RecordBatch
from magicbyte.records.entry import parse_entry

SAVE_BYTES: Final = 32 << 20  # that are sent until the place is kept again
SAVE_SECONDS: Final = 5.0


@dataclass(slots=True)
class Copied:
    """What was copied: bytes of sets that stayed closed, and of those that were opened; records of each.

    `records` counts what headers tell: the ones in closed wrappers of magic 0 and 1 are not among them. `lost`: offsets
    that the source had deleted before they were copied. `lag`: offsets that were still to come when it was last asked.
    """

    closed_sets: int = 0
    closed_bytes: int = 0
    opened_sets: int = 0
    opened_bytes: int = 0
    records: int = 0
    lost: int = 0
    lag: int = 0

    def add(self, parcel: Parcel, made: Made) -> None:
        """Count a parcel that was sent."""
        if parcel.why is None:
            self.closed_sets += 1
            self.closed_bytes += len(parcel.data)
        else:
            self.opened_sets += 1
            self.opened_bytes += len(parcel.data)
        self.records += max(made.records, 0)


@dataclass(frozen=True, slots=True)
class Route:
    """From where to where. `group` keeps the progress; `committed`: the source knows transactions."""

    source: Client
    target: Client
    topic: str
    partition: int
    group: str
    storage: Storage
    committed: bool
    once: bool
    """Whether the target tells what it has already: it stores magic 2, and gives producer ids."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionCopier:
    """Copies a partition piece by piece; `copied` grows meanwhile. Setting `stop` ends it behind the set at hand."""

    def __init__(self, route: Route, stop: asyncio.Event) -> None:
        self.copied = Copied()
        self._route = route
        self._stop = stop
        self._place: Place | None = None
        self._skip = 0
        self._at_boundary = True
        self._unsaved_bytes = 0
        self._saved_at = 0.0

    async def catch_up(self) -> None:
        """Copy what the source has now, and keep the place.

        Raises MirrorError where going on would lose records or copy some twice, CorruptRecordError for damage at the
        source, BrokerError and NetworkError.
        """
        try:
            place = self._place = self._place or await self._resume()
            await self._copy(place)
        except CorruptRecordError as error:
            error.locate(path=str(self._route))
            raise
        if self._place != place:
            await self._save(self._place)

    async def _copy(self, place: Place) -> None:
        """Send what the source has from a place on."""
        route = self._route
        end = (await list_offset(route.source, route.topic, route.partition, LATEST, committed=route.committed)).offset
        assert end is not None, "every partition has an end"
        self._note_lag(end)
        options = FetchOptions(committed=route.committed)
        async for found in read_sets(route.source, route.topic, route.partition, place.offset, end, options):
            await self._send_all(found, end)
            if self._stop.is_set():
                return
        if self._skip:
            raise MirrorError(f"{route}: {self._skip} records of the target are not at the source any more")

    async def _send_all(self, found: ClosedSets, end: int) -> None:
        """Send what is to be sent of some sets, and go on behind them: behind markers, aborted and empty ones, too."""
        assert self._place is not None, "resumed before"
        for parcel in parcels(found, self._place.offset, self._route.storage, at_boundary=self._at_boundary):
            if self._stop.is_set():
                return
            await self._send(parcel)
            self._note_lag(end)
        if len(found.table):
            last = parse_entry(found.data[found.table.position[len(found.table) - 1] :])
            assert last is not None, "the scan has seen all of it"
            assert last.next_offset is not None, "Kafka's own formats tell it"
            self._place = replace(self._place, offset=max(self._place.offset, min(last.next_offset, end)))
            self._at_boundary = True
            self._note_lag(end)

    def _note_lag(self, end: int) -> None:
        assert self._place is not None, "resumed before"
        self.copied.lag = max(end - self._place.offset, 0)

    async def _resume(self) -> Place:
        """Find out where to go on, and keep it with a producer id for what comes."""
        route = self._route
        source_id = route.source.cluster.cluster_id
        known = await progress.load(route.target, route.group, route.topic, route.partition)
        start, end = await bounds(route.source, route.topic, route.partition)
        if known is None:
            place = await self._begin(start, source_id)
        elif known.source != source_id:
            raise MirrorError(f"{route}: group {route.group} mirrors cluster {known.source}, not {source_id}")
        elif known.offset > end:
            raise MirrorError(f"{route}: at offset {known.offset} of a source that ends at {end}: was it made anew?")
        else:
            place = await self._catch_up_with_target(known, start)
        # The log's start may be inside a set, and be where nothing was sent from yet; what was sent ended with a set.
        self._at_boundary = not place.offset or place.offset > start
        await self._save(place)
        return place

    async def _begin(self, start: int, source_id: str | None) -> Place:
        route = self._route
        _, target_end = await bounds(route.target, route.topic, route.partition)
        if target_end:
            raise MirrorError(
                f"{route}: the target holds records already, and group {route.group} does not know of any mirror"
            )
        return Place(start, target_end, await self._identity(), source_id)

    async def _identity(self) -> Identity:
        return Identity(*await new_producer_id(self._route.target), 0) if self._route.once else NOBODY

    async def _catch_up_with_target(self, known: Place, start: int) -> Place:
        """Return the place with what the target holds of ours beyond it, which is then to be skipped."""
        route = self._route
        target_start, target_end = await bounds(route.target, route.topic, route.partition)
        place = replace(known, target=target_end)
        if known.identity == NOBODY and route.once:
            place = replace(place, identity=await self._identity())
        elif known.identity != NOBODY:
            following = await self._sequence_at_target(known, max(known.target, target_start), target_end)
            self._skip = (following - known.identity.sequence) & 0x7FFFFFFF
            # Kept as it was: after another crash it has to be counted from the same record again.
            place = known
        if place.offset < start:
            if self._skip:
                raise MirrorError(f"{route}: the source begins at {start}, behind {place.offset}, where a crash was")
            self.copied.lost += start - place.offset
            place = replace(place, offset=start)
        return place

    async def _sequence_at_target(self, known: Place, start: int, end: int) -> int:
        """Return the sequence number behind the last set of ours at the target. Headers alone are looked at."""
        route, following = self._route, known.identity.sequence
        async for found in read_sets(route.target, route.topic, route.partition, start, end):
            for row in range(len(found.table)):
                if found.table.magic[row] == 2:
                    batch = RecordBatch(found.data[found.table.position[row] :])
                    if (batch.producer_id, batch.producer_epoch) == known.identity[:2]:
                        following = (batch.last_sequence + 1) & 0x7FFFFFFF
        return following

    async def _send(self, parcel: Parcel) -> None:
        route, place = self._route, self._place
        assert place is not None, "resumed before"
        try:
            made = forward(parcel, route.storage, place.identity.behind(self._skip), self._skip)
        except UnsupportedForMessageFormatError as error:
            raise MirrorError(f"{self._where(parcel)}: {error}") from error
        skipped = min(self._skip, max(made.records, 0))
        if made.records < 0 or skipped < made.records:
            target = await self._produced(parcel, made)
            self.copied.add(parcel, made)
        else:
            target = place.target
        self._skip -= skipped
        self._place = Place(parcel.next_offset, target, place.identity.behind(max(made.records, 0)), place.source)
        self._unsaved_bytes += len(parcel.data)
        if self._unsaved_bytes >= SAVE_BYTES or time.monotonic() - self._saved_at >= SAVE_SECONDS:
            await self._save(self._place)

    async def _produced(self, parcel: Parcel, made: Made) -> int:
        """Produce, and return an offset that is at most the end of the target."""
        route = self._route
        try:
            done = await send_made(route.target, route.topic, route.partition, made.data, made.magic, made.codec)
        except BrokerError as error:
            if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise
            size = len(parcel.data)
            raise MirrorError(f"{self._where(parcel)}: a set of {size} bytes is more than the target takes") from error
        return done.base_offset + max(made.records - self._skip, 1)

    def _where(self, parcel: Parcel) -> str:
        return f"{self._route}, offsets {parcel.first} to {parcel.next_offset - 1}"

    async def _save(self, place: Place) -> None:
        route = self._route
        await progress.save(route.target, route.group, route.topic, route.partition, place)
        self._unsaved_bytes, self._saved_at = 0, time.monotonic()
