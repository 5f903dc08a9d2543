"""Brokers that stop and start while a mirror runs: whatever they answer meanwhile, it continues."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builders import pass_time
from magicbyte.access.client import Client, admin
from magicbyte.access.client import client as clients
from magicbyte.access.client.groups import Committed, commit_offsets, committed_offsets
from magicbyte.access.client.produce import send
from magicbyte.engine.errors import BrokerError, ErrorCode
from magicbyte.testing import Broker
from magicbyte.tools.mirror.identical import IdenticalMirror
from magicbyte.tools.mirror.log_target import LogTarget
from magicbyte.tools.mirror.mirror import GROUP_SECONDS, Mirror
from magicbyte.tools.mirror.plan import Choice
from magicbyte.tools.mirror.rounds import PLAN_SECONDS, Rounds
from tools.mirror.pair import records
from tools.mirror.sets import some

ASKED = {
    "source": ("Metadata", "ListOffsets", "Fetch", "FindCoordinator", "OffsetFetch", "ListGroups"),
    "target": ("Metadata", "ListOffsets", "Produce", "FindCoordinator", "OffsetFetch", "OffsetCommit"),
}
FAULTS: dict[str, dict[str, Any]] = {
    "an error that says nothing": {"error": ErrorCode.UNKNOWN_SERVER_ERROR},
    "no answer": {"disconnect": "before"},
}


@pytest.fixture(scope="module")
def ends() -> Iterator[dict[str, Broker]]:
    with Broker() as source, Broker() as target:
        yield {"source": source, "target": target}


async def again(mirror: Rounds) -> None:
    """Mirror one round, and look for topics and groups, too."""
    pass_time(max(PLAN_SECONDS, GROUP_SECONDS))
    await mirror.catch_up()


async def fill(here: Client, topic: str, lap: int) -> None:
    await send(here, topic, 0, some(10 * lap, 10))
    await commit_offsets(here, topic, {(topic, 0): Committed(10 * lap + 5)})


@pytest.mark.parametrize("how", FAULTS)
@pytest.mark.parametrize("side", ASKED)
async def test_a_running_mirror_continues_whatever_a_restarting_broker_answers(
    ends: dict[str, Broker], side: str, how: str
) -> None:
    topic = f"{side}-{list(FAULTS).index(how)}"

    async with (
        Client(ends["source"].bootstrap_servers, backoff_ms=1) as here,
        Client(ends["target"].bootstrap_servers, backoff_ms=1) as there,
    ):
        await admin.create_topic(here, admin.NewTopic(topic))
        mirror = Mirror(here, there, Choice(re.compile(topic), group=f"mirror of {topic}", sync_groups=True))
        await fill(here, topic, 0)
        await again(mirror)
        for lap, api in enumerate(ASKED[side], 1):
            await fill(here, topic, lap)
            for each in (here, there):
                each.forget_coordinator(topic)
            with ends[side].fault(api, times=3, **FAULTS[how]) as fault:
                await again(mirror)
            assert fault.hits == 3, api
            assert await records(there, topic) == await records(here, topic)
            committed = await committed_offsets(there, topic, [(topic, 0)])
            assert committed[(topic, 0)].offset == 10 * lap + 5, api


@pytest.mark.parametrize("how", FAULTS)
async def test_a_running_identical_copy_continues_too(ends: dict[str, Broker], how: str, tmp_path: Path) -> None:
    topic = f"identical-{list(FAULTS).index(how)}"

    async with Client(ends["source"].bootstrap_servers, backoff_ms=1) as here:
        await admin.create_topic(here, admin.NewTopic(topic))
        with LogTarget(tmp_path / "copy") as target:
            mirror = IdenticalMirror(here, target, Choice(re.compile(topic)))
            await fill(here, topic, 0)
            await again(mirror)
            for lap, api in enumerate(("Metadata", "ListOffsets", "Fetch"), 1):
                await fill(here, topic, lap)
                with ends["source"].fault(api, times=3, **FAULTS[how]) as fault:
                    await again(mirror)
                assert fault.hits == 3, api
                assert mirror.copied()[topic].closed_sets == lap + 1


class Turned:
    """A monotonic clock for `retried`, which only sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self._thread, self._real_sleep = threading.get_ident(), asyncio.sleep
        monkeypatch.setattr(clients.asyncio, "sleep", self.sleep)

    def now_ms(self) -> int:
        raise AssertionError("retries are no matter of dates")

    def monotonic_ms(self) -> int:
        return int(self.now * 1000)

    async def sleep(self, seconds: float) -> None:
        if threading.get_ident() == self._thread:
            self.now += seconds
        else:  # a loop that an earlier test has left to another thread
            await self._real_sleep(seconds)


def fail(turned: Turned, codes: Callable[[float], int]) -> tuple[float, int]:
    """Let attempts fail in turn; return the seconds until the client gave up, and the last code."""
    client, began = Client("localhost:1", clock=turned), turned.now

    async def attempt() -> None:
        raise BrokerError("fetch", codes(turned.now - began), broker="broker 1")

    with pytest.raises(BrokerError) as error:
        asyncio.run(client.retried(attempt))
    return turned.now - began, error.value.number


def test_an_error_that_says_nothing_is_tried_again_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    turned = Turned(monkeypatch)
    seconds, _ = fail(turned, lambda _: ErrorCode.UNKNOWN_SERVER_ERROR)
    assert 10 <= seconds < 12
    seconds, _ = fail(turned, lambda passed: ErrorCode.UNKNOWN_SERVER_ERROR if passed > 15 else 6)
    assert 25 <= seconds < 28
    seconds, _ = fail(turned, lambda passed: ErrorCode.UNKNOWN_SERVER_ERROR if passed % 4 < 1 else 6)
    assert 30 <= seconds < 32
    assert fail(turned, lambda _: 9999) == (0, 9999)
    assert fail(turned, lambda _: ErrorCode.INVALID_TOPIC_EXCEPTION)[0] == 0
