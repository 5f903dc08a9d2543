"""The budget of bytes for requests and the work on them: which wait, for how long, and how bytes are returned."""

import asyncio

import pytest

from magicbyte.access.net.memory import Budget
from magicbyte.engine.errors import BusyError


async def test_work_waits_while_all_memory_is_in_use_and_one_part_of_it_always_proceeds() -> None:
    budget, order = Budget(100), list[str]()
    await budget.take(120)

    async def part(name: str, until: asyncio.Event) -> None:
        async with budget.work(50):
            order.append(name)
            await until.wait()

    ends = [asyncio.Event() for _ in range(3)]
    tasks = [asyncio.create_task(part(str(at), each)) for at, each in enumerate(ends)]
    await asyncio.sleep(0)
    assert (order, budget.used) == (["0"], 170)  # else those that hold the memory would wait for each other
    ends[0].set()
    await tasks[0]
    await asyncio.sleep(0)
    assert (order, budget.used) == (["0", "1"], 170)
    budget.give(120)
    await asyncio.sleep(0)
    assert (order, budget.used) == (["0", "1", "2"], 100)
    for each in ends:
        each.set()
    await asyncio.gather(*tasks)
    assert (budget.used, budget.peak) == (0, 170)


async def test_a_wait_for_memory_ends_and_leaves_nothing_behind() -> None:
    budget = Budget(10, patience_s=0.01)
    await budget.take(10)
    with pytest.raises(BusyError, match=r"no memory for 5 bytes within 0\.01 s: 10 of 10 are in use"):
        await budget.take(5)
    async with budget.work(1):
        with pytest.raises(BusyError):
            async with budget.work(5):
                raise AssertionError
        assert budget.used == 11
    budget.give(10)
    assert budget.used == 0
    await budget.take(5)
    assert budget.used == 5


async def test_a_wait_that_is_cancelled_in_the_moment_of_its_turn_gives_back_what_it_got() -> None:
    budget = Budget(10)
    await budget.take(10)
    first = asyncio.create_task(budget.take(7))
    await asyncio.sleep(0)
    budget.give(10)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert budget.used == 0


async def test_without_a_limit_no_request_waits() -> None:
    budget = Budget(-1)
    for _ in range(5):
        await budget.take(1 << 40)
    async with budget.work(1 << 40), budget.work(1 << 40):
        assert budget.used == 7 << 40


async def test_messages_that_fill_all_memory_do_not_wait_for_work_on_themselves() -> None:
    budget, done = Budget(100, patience_s=0.5), list[str]()

    async def answered(name: str) -> None:
        await budget.take(60)
        async with budget.message(80):
            await asyncio.sleep(0)
            async with budget.work(40):
                await asyncio.sleep(0)
            done.append(name)
        budget.give(60)

    await asyncio.gather(*[answered(str(at)) for at in range(6)])
    assert (sorted(done), budget.used) == (list("012345"), 0)
    assert budget.peak <= 2 * 60 + 80 + 40  # requests before it was full, and one of each kind
