"""Determine where the copy of a partition continues after any interruption.

A position (progress.py) is stored at the target; after a crash the target may hold more than the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from magicbyte.access.client.fetch import read_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import new_producer_id
from magicbyte.engine.errors import MirrorError
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.tools.mirror.progress import Lane, MirrorPlace
from magicbyte.tools.mirror.rewrite import NO_PRODUCER, ProducerIdentity
from magicbyte.tools.mirror.route import Route


@dataclass(slots=True)
class Resumed:
    """The position to continue at.

    `skip`: by lane, how many of our records the target holds after the position. `lost`: offsets that the source
    deleted before they were copied. `at_boundary`: whether a set begins at the position.
    """

    place: MirrorPlace
    skip: dict[int, int] = field(default_factory=dict)
    lost: int = 0
    at_boundary: bool = True


async def resume(route: Route) -> Resumed:
    """Determine where to continue, with a producer id for the next records. Nothing is written.

    Raises MirrorError if continuing would lose or duplicate records, BrokerError and NetworkError.
    """
    stable = route.transactional_id is not None
    known = await route.book(route.partition).load(route.target, route.lanes, stable=stable)
    start, end = await bounds(route.source, route.topic, route.partition)
    if known is None:
        resumed = Resumed(await _begin(route, start))
    else:
        route.origin.check(known.origin, str(route), route.group)
        if known.offset > end:
            raise MirrorError(f"{route}: at offset {known.offset} of a source that ends at {end}: was it recreated?")
        resumed = await _catch_up_with_target(route, known, start)
    # The log start offset may be inside a set, if nothing was sent from there yet; sent records end with a set.
    resumed.at_boundary = not resumed.place.offset or resumed.place.offset > start
    return resumed


async def _begin(route: Route, start: int) -> MirrorPlace:
    """Return the first position. The target must contain no records, except from mirrors of this topic."""
    ends = {each: (await bounds(route.target, route.to, each))[1] for each in route.targets}
    if any(ends.values()) and not route.merge and not (route.lanes and await _has_begun_elsewhere(route)):
        raise MirrorError(
            f"{route}: the target holds records already, and group {route.group} has no progress of a mirror"
        )
    identity = await _identity(route)
    return MirrorPlace(start, {each: Lane(end, identity) for each, end in ends.items()}, route.origin)


async def _has_begun_elsewhere(route: Route) -> bool:
    """Return whether another partition of the topic has a position, so that existing records may be its own."""
    others = (each for each in range(route.partitions) if each != route.partition)
    for each in others:
        if await route.book(each).load(route.target, route.lanes) is not None:
            return True
    return False


async def _identity(route: Route) -> ProducerIdentity:
    return ProducerIdentity(*await new_producer_id(route.target), 0) if route.once else NO_PRODUCER


async def _catch_up_with_target(route: Route, known: MirrorPlace, start: int) -> Resumed:
    """Return the position, with the number of our records at the target after it, which must be skipped."""
    lanes, skips = dict(known.lanes), dict[int, int]()
    identity = next(iter(lanes.values())).identity
    fresh = identity if identity != NO_PRODUCER else await _identity(route)
    for partition, lane in known.lanes.items():
        skip = await count_ahead(route, partition, lane)
        if lane.identity == NO_PRODUCER:
            lanes[partition] = Lane((await bounds(route.target, route.to, partition))[1], fresh)
        elif skip:
            # The lane keeps its old state: after another crash the count must start from the same record again.
            skips[partition] = skip
    if known.offset < start and skips:
        raise MirrorError(f"{route}: the source begins at {start}, after {known.offset}, the last committed progress")
    place = MirrorPlace(max(known.offset, start), lanes, route.origin)
    return Resumed(place, skips, lost=max(start - known.offset, 0))


async def count_ahead(route: Route, partition: int, lane: Lane) -> int:
    """Return how many of our records a lane holds after its position; 0 if that is unknown.

    Reads headers only. Raises MirrorError if the target has less than the position.
    """
    following = lane.identity.sequence
    start, end = await bounds(route.target, route.to, partition)
    if lane.target > end:
        raise MirrorError(f"{route}: the target ends at {end}, and held {lane.target} offsets: was it recreated?")
    if lane.identity == NO_PRODUCER:
        return 0
    async for found in read_sets(route.target, route.to, partition, max(lane.target, start), end):
        for row in range(len(found.table)):
            if found.table.magic[row] == 2:
                batch = RecordBatch(found.data[found.table.position[row] :])
                if (batch.producer_id, batch.producer_epoch) == lane.identity[:2]:
                    following = (batch.last_sequence + 1) & 0x7FFFFFFF
    return (following - lane.identity.sequence) & 0x7FFFFFFF
