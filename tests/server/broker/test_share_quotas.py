"""Quotas of clients that read in share groups, on a broker whose clock stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from magicbyte.engine.records.encode import Format
from server.broker.builders import made, produce, records
from server.broker.serving import OnClock, Peer
from server.broker.share_members import SETTINGS, Sharing, runs_of
from server.broker.test_quotas import CLIENT_ID, FETCH, PLAIN, TIME, put

RATE, SIZE = 100, 600
"""Of the quota, in bytes per second. It allows for 1000 bytes at once: for a batch of one record, and not for two."""


@asynccontextmanager
async def throttled(**quotas: float) -> AsyncIterator[tuple[OnClock, Sharing]]:
    """Yield a broker with four batches of a record in topic t, and a member with a session and quotas."""
    async with OnClock({**SETTINGS, **PLAIN}) as broker:
        await broker.served.topics.create("t", 1)
        await broker.served.coordinators.groups.ensure_topic()
        sharing = Sharing(broker.served, await Peer.of(broker.served))
        await sharing.join()
        assert await sharing.acquired(max_wait_ms=0) == []
        for _ in range(4):
            await produce(sharing.peer, "t", made(records(1, SIZE), Format.V2), Format.V2)
        await put(sharing.peer, {CLIENT_ID: "test"}, **{FETCH: RATE, **quotas})
        yield broker, sharing
        sharing.peer.close()


async def reconnected(sharing: Sharing) -> Peer:
    """Let a member use another connection, and return its first one: it is not read now, and has the session."""
    before, sharing.peer = sharing.peer, await Peer.of(sharing.broker)
    return before


async def test_a_share_fetch_counts_to_the_fetch_quota_and_acquires_nothing_beyond_it() -> None:
    async with throttled() as (broker, sharing):
        first = await sharing.fetch(max_records=1, batch_size=1)
        assert (runs_of(first), first.throttle_time_ms) == ([(0, 0, 1)], 0)
        second = await sharing.fetch(max_records=1, batch_size=1)
        assert runs_of(second) == [(1, 1, 1)]
        assert 4000 < second.throttle_time_ms < 7000, "1500 bytes are 5 seconds beyond 1000"
        opened = await reconnected(sharing)
        held = await sharing.fetch((0, 0, 1), max_records=1, batch_size=1)
        assert (held.error_code, runs_of(held)) == (0, [])
        assert held.responses[0].partitions[0].acknowledge_error_code == 0, "acknowledgements are not held back"
        assert held.throttle_time_ms >= second.throttle_time_ms
        broker.clock.advance(11_000)
        (await reconnected(sharing)).close()
        later = await sharing.fetch(max_records=1, batch_size=1)
        assert (runs_of(later), later.throttle_time_ms) == ([(2, 2, 1)], 0), "its first delivery"
        opened.close()


async def test_a_batch_that_is_larger_than_the_quota_of_a_window_is_delivered() -> None:
    async with throttled(**{FETCH: 10}) as (_, sharing):
        first = await sharing.fetch()
        assert runs_of(first) == [(0, 0, 1)], "as many bytes as may be had at once, but one batch at least"
        assert first.throttle_time_ms > 50_000


async def test_the_time_of_share_fetches_counts_to_the_quota_of_time() -> None:
    async with throttled(**{TIME: 1e-9, FETCH: 1e9}) as (_, sharing):
        opened = await reconnected(sharing)
        assert (await sharing.fetch(max_wait_ms=0)).throttle_time_ms == 1000
        opened.close()
