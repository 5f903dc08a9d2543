"""A metadata store as coroutines see it: the order of watches and results, in threads as without them."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from magicbyte.engine.errors import BadVersionError, NoNodeError, SessionExpiredError
from magicbyte.engine.ports import CreateNode, NodeEvent, SetNode
from magicbyte.server.metadata.memory import MemoryTree
from magicbyte.server.metadata.on_loop import LoopStore, Runner, directly
from magicbyte.server.serving.threads import SystemThreads


class Clock:
    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


@pytest.fixture(params=["directly", "in a thread"])
def run(request: pytest.FixtureRequest) -> Iterator[Runner]:
    if request.param == "directly":
        yield directly
    else:
        threads = SystemThreads("test-metadata", 2)
        yield threads.run
        threads.close()


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree(Clock())


async def test_every_call_of_a_store_is_there(tree: MemoryTree, run: Runner) -> None:
    store = LoopStore(tree.session(), run)
    assert await store.create("/a/b", b"x", parents=True) == "/a/b"
    assert await store.transaction([SetNode("/a", b"y", 0), CreateNode("/a/n", sequence=True)])
    assert (await store.set("/a", b"z", 1)).version == 2
    with pytest.raises(BadVersionError):
        await store.delete("/a/b", 7)
    await store.delete("/a/b")
    with pytest.raises(NoNodeError):
        await store.get("/a/b")
    assert await store.exists("/a/b") is None
    assert await store.children("/a") == ["n0000000001"]
    assert [each is None for each in await store.get_many(["/a", "/b"])] == [False, True]
    assert await store.children_many(["/", "/b"]) == [["a"], None]
    await store.create("/mine", ephemeral=True)
    assert (await store.get("/mine")).ephemeral_owner == store.session_id
    await store.close()
    with pytest.raises(SessionExpiredError):
        await store.get("/a")
    assert tree.session().children("/") == ["a"]


def test_a_watch_is_called_on_the_loop_before_a_read_shows_what_it_tells(tree: MemoryTree, run: Runner) -> None:
    told: list[tuple[NodeEvent, str]] = []
    threads: set[int] = set()

    def watch(event: NodeEvent, path: str) -> None:
        told.append((event, path))
        threads.add(threading.get_ident())

    async def go() -> None:
        store, other = LoopStore(tree.session(), run), LoopStore(tree.session(), run)
        await other.create("/a")
        for count in range(1, 50):
            await store.get("/a", watch)
            await store.children("/a", watch)
            await other.set("/a", b"%d" % count)
            assert (await store.get("/a")).version == count
            assert len(told) == count
        await other.delete("/a")
        assert await store.exists("/a") is None
        assert told == [(NodeEvent.DATA_CHANGED, "/a")] * 49 + [(NodeEvent.DELETED, "/a")]

    asyncio.run(go())
    assert threads == {threading.get_ident()}


async def test_a_watch_is_called_though_no_call_is_made(tree: MemoryTree, run: Runner) -> None:
    store, other = LoopStore(tree.session(), run), LoopStore(tree.session(), run)
    came = asyncio.Event()
    await store.exists("/a", lambda _event, _path: came.set())
    await other.create("/a")
    async with asyncio.timeout(120):
        await came.wait()


def test_a_watch_that_fails_hurts_neither_calls_nor_other_watches(tree: MemoryTree, run: Runner) -> None:
    told: list[str] = []
    failures: list[Any] = []

    def fails(_event: NodeEvent, path: str) -> None:
        raise ValueError(path)

    async def go() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
        store = LoopStore(tree.session(), run)
        await store.exists("/a", fails)
        await store.exists("/a", lambda _event, path: told.append(path))
        assert await store.create("/a") == "/a"

    asyncio.run(go())
    assert told == ["/a"]
    assert [str(each) for each in failures] == ["/a"]


def test_calls_of_many_tasks_are_made_one_at_a_time() -> None:
    tree = MemoryTree(Clock())
    at_once = most = 0
    pool = ThreadPoolExecutor(4)

    async def run(work: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        result = await asyncio.wrap_future(pool.submit(work, *arguments, **named))
        at_once -= 1
        return result

    async def go() -> None:
        store = LoopStore(tree.session(), run)
        await asyncio.gather(*(store.create("/n", sequence=True) for _ in range(50)))
        assert len(await store.children("/")) == 50

    asyncio.run(go())
    pool.shutdown()
    assert most == 1
