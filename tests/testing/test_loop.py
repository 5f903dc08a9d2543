"""The loop under virtual time: it jumps, keeps one order, and stops and ends processes."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from magicbyte.testing.loop import Process, StuckError, VirtualClock, VirtualLoop


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop(most_virtual_s=10_000)


def test_time_jumps_to_the_next_timer(loop: VirtualLoop) -> None:
    async def work() -> list[float]:
        begun, times = loop.time(), list[float]()
        for delay_s in (0.2, 3600.0, 0.0):
            await asyncio.sleep(delay_s)
            times.append(loop.time() - begun)
        return times

    assert loop.run(work()) == pytest.approx([0.2, 3600.2, 3600.2])
    loop.shut_down()


def test_both_clocks_follow_the_time_and_one_of_them_can_be_turned(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)
    date_ms, monotonic_ms = clock.now_ms(), clock.monotonic_ms()
    loop.run(asyncio.sleep(2))
    clock.ahead_ms = -5000
    assert (clock.now_ms() - date_ms, clock.monotonic_ms() - monotonic_ms) == (-3000, 2000)
    loop.shut_down()


def test_work_for_threads_is_done_on_the_loop(loop: VirtualLoop) -> None:
    loop.work_delay_s = lambda: 2.5

    async def work() -> float:
        assert await asyncio.to_thread(asyncio.get_running_loop) is loop
        with pytest.raises(ValueError, match="planted"):
            await asyncio.to_thread(int, "planted")
        return loop.time()

    before = loop.time()
    assert loop.run(work()) - before == pytest.approx(5)
    loop.shut_down()


def test_a_paused_process_runs_nothing_and_then_everything_in_its_order(loop: VirtualLoop) -> None:
    process, told = Process(loop, "one"), list[str]()

    async def ticks(name: str, every_s: float) -> None:
        for at in range(3):
            await asyncio.sleep(every_s)
            told.append(f"{name} {at}")

    async def history() -> None:
        tasks = [process.spawn(ticks("a", 1.0)), process.spawn(ticks("b", 1.5))]
        cancelled = loop.call_later(5, told.append, "of no process")
        await asyncio.sleep(1.2)
        process.pause()
        await asyncio.sleep(10)
        cancelled.cancel()
        assert told == ["a 0", "of no process"]
        process.resume()
        await asyncio.gather(*tasks)

    loop.run(history())
    assert told == ["a 0", "of no process", "b 0", "a 1", "a 2", "b 1", "b 2"]
    loop.shut_down()


def test_a_timer_that_became_due_in_a_pause_may_still_be_cancelled(loop: VirtualLoop) -> None:
    process, told = Process(loop, "one"), list[str]()

    async def work() -> None:
        second = loop.call_later(3, told.append, "second")
        loop.call_later(2, second.cancel)
        await asyncio.sleep(1)

    async def history() -> None:
        await process.spawn(work())
        process.pause()
        await asyncio.sleep(10)
        process.resume()
        await asyncio.sleep(10)

    loop.run(history())
    assert not told
    loop.shut_down()


def test_a_killed_process_ends_its_tasks_and_starts_nothing_that_lasts(loop: VirtualLoop) -> None:
    process, told = Process(loop, "one"), list[str]()

    def again() -> None:
        told.append("timer")
        loop.call_later(40, again)

    async def lives_on() -> None:
        again()
        try:
            await asyncio.sleep(1000)
        finally:
            told.append("end")
            asyncio.create_task(lives_on())  # noqa: RUF006 (it ends before it begins)

    async def history() -> None:
        task = process.spawn(lives_on())
        await asyncio.sleep(1)
        process.kill()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.sleep(1000)

    loop.run(history())
    assert told == ["timer", "end", "timer"]
    assert process.tasks() == []
    loop.shut_down()


@pytest.mark.parametrize(
    ("why", "most_turns"),
    [
        ("no event is left", 1000),
        ("more than 100 turns of the loop", 100),
        ("more than 10000 virtual seconds", 1000),
    ],
)
def test_a_history_that_does_not_end_is_an_error_which_names_the_tasks(why: str, most_turns: int) -> None:
    loop = VirtualLoop(most_virtual_s=10_000, most_turns=most_turns)

    async def waits_for_ever() -> None:
        while "virtual" in why or "turns" in why:
            await asyncio.sleep(100 if "virtual" in why else 0.001)
        await loop.create_future()

    process = Process(loop, "broker")

    async def history() -> None:
        await process.spawn(waits_for_ever())

    with pytest.raises(StuckError, match=why) as caught:
        loop.run(history())
    assert "outside: " in str(caught.value)
    assert "broker: " in str(caught.value)
    assert "waits_for_ever" in str(caught.value)
    loop.shut_down()
