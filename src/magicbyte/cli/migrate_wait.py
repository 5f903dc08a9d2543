"""`magicbyte migrate next --wait`: wait until brokers were restarted for a step, and print the progress."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from magicbyte.access.clock import SystemClock
from magicbyte.cli.brokers import client_of
from magicbyte.cli.output import complain
from magicbyte.engine.errors import BrokerError, NetworkError

if TYPE_CHECKING:
    from magicbyte.tools.migration.status import ClusterStage
    from magicbyte.tools.migration.waiting import StepProgress

_BETWEEN_S: Final = 1.0


async def wait_for(bootstrap: str, begun: ClusterStage, expected: Collection[int], seconds: float) -> StepProgress:
    """Return the progress of a step when nothing is left of it to wait for, or after `seconds`.

    Print each change to stderr meanwhile.
    """
    clock = SystemClock()
    end, last_text = clock.monotonic_ms() + seconds * 1000, ""
    while True:
        progress = await _progress(bootstrap, begun, expected)
        if progress.text != last_text:
            last_text = progress.text
            complain(last_text)
            if len(progress.away) > 1:
                complain("several brokers are away at once: restart one, and wait until its replicas are in sync")
        left_s = (end - clock.monotonic_ms()) / 1000
        if progress.is_over or left_s <= 0:
            return progress
        await asyncio.sleep(min(_BETWEEN_S, left_s))


async def _progress(bootstrap: str, begun: ClusterStage, expected: Collection[int]) -> StepProgress:
    from magicbyte.tools.migration.brokers import look_at_brokers
    from magicbyte.tools.migration.look import look_at_sync
    from magicbyte.tools.migration.sightings import CLIENT_ID
    from magicbyte.tools.migration.waiting import progress_of

    try:
        async with client_of(bootstrap, client_id=CLIENT_ID) as client:
            brokers = await look_at_brokers(client)
            return progress_of(begun, expected, brokers, await look_at_sync(client))
    except (NetworkError, BrokerError):  # the brokers in -b may be the ones that are restarting
        return progress_of(begun, expected, (), None)
