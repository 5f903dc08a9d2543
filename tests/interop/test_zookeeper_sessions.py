"""Sessions of a real ZooKeeper that lose their connection, or end: what the store tells, raises and leaves behind."""

import asyncio
import contextlib
import os
import queue
import signal
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from kazoo.client import KazooClient

from interop import jvm, kafka_oracle
from magicbyte.engine.cluster.brokers import Registration
from magicbyte.engine.errors import (
    BadVersionError,
    MetadataError,
    NetworkError,
    NodeExistsError,
    SessionExpiredError,
    UnknownOutcomeError,
)
from magicbyte.engine.ports import CreateNode, NodeEvent, SessionEvent, SetNode
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.metadata.zookeeper import ZooKeeperStore
from magicbyte.server.serving.threads import SystemThreads
from magicbyte.server.stores.znodes.cluster import OwnRegistration, register
from ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

VERSION = "3.9.1"
TIMEOUT_MS = 30_000  # which no process on a busy machine stands still for
SHORT_MS = 6000  # the least that a ZooKeeper with ticks of two seconds grants is 4000
PATIENCE_S = 60


class Server(NamedTuple):
    """A ZooKeeper in a process."""

    address: str
    pid: int

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Let the process stand still. Its threads run for a moment after the signal."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            end = time.monotonic() + PATIENCE_S
            while any(_state(each) != "T" for each in Path(f"/proc/{self.pid}/task").iterdir()):
                assert time.monotonic() < end, "ZooKeeper does not stand still"
                time.sleep(0.01)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


def _state(task: Path) -> str:
    """Return the letter for what a thread does."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder, port = tmp_path / "zookeeper", free_port()
    folder.mkdir()
    pid = kafka_oracle.start_zookeeper(VERSION, folder, port, jvm.SECONDS)
    yield Server(f"127.0.0.1:{port}", pid)
    os.kill(pid, signal.SIGCONT)
    kafka_oracle.stop_process(pid, str(folder), 15)


Told = queue.Queue[object]
Open = Callable[..., ZooKeeperStore]


@pytest.fixture
def session(server: Server) -> Iterator[Open]:
    with contextlib.ExitStack() as opened:

        def opens(root: str = "", timeout_ms: int = TIMEOUT_MS, **options: object) -> ZooKeeperStore:
            store = ZooKeeperStore(server.address + root, session_timeout_ms=timeout_ms, **options)
            opened.callback(store.close)
            return store

        yield opens


def watch_into(told: Told) -> Callable[[NodeEvent, str], None]:
    return lambda event, path: told.put((event, path))


def connections(server: Server) -> int:
    """Return how many clients are connected, by ZooKeeper's own count."""
    host, _, port = server.address.partition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as asking:
        asking.sendall(b"srvr")
        told = b"".join(iter(lambda: asking.recv(4096), b""))
    return int(told.partition(b"Connections: ")[2].split()[0])


def end_by_force(store: ZooKeeperStore, address: str) -> None:
    """Have ZooKeeper close the session: another connection that has its id and password says so."""
    thief = KazooClient(hosts=address, client_id=store._client.client_id)
    thief.start()
    thief.stop()
    thief.close()


def test_a_session_that_ended_says_so_and_another_one_takes_over(server: Server, session: Open) -> None:
    told: Told = queue.Queue()
    store, other = session(listener=told.put), session()
    store.create("/mine", ephemeral=True)
    other.exists("/mine", watch_into(gone := queue.Queue()))
    store.get("/mine", watch_into(told))
    end_by_force(store, server.address)
    assert gone.get(timeout=PATIENCE_S) == (NodeEvent.DELETED, "/mine")
    while (event := told.get(timeout=PATIENCE_S)) is not SessionEvent.EXPIRED:
        assert event in (SessionEvent.SUSPENDED, (NodeEvent.DELETED, "/mine"))
    for call in (store.get, store.exists, store.create, store.delete, store.children):
        with pytest.raises(SessionExpiredError):
            call("/mine")
    again = session()
    again.create("/mine", ephemeral=True)
    assert again.session_id != store.session_id
    store.close()  # has nothing more to do, and takes nothing from the new session
    assert other.get("/mine").ephemeral_owner == again.session_id


def test_a_session_that_ended_leaves_no_connection_and_begins_no_other_session(server: Server, session: Open) -> None:
    told: Told = queue.Queue()
    stays = session()
    before = connections(server)
    store = session(listener=told.put)
    assert connections(server) == before + 1
    end_by_force(store, server.address)
    while told.get(timeout=PATIENCE_S) is not SessionEvent.EXPIRED:
        pass
    end = time.monotonic() + PATIENCE_S
    while connections(server) != before and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(2)  # an absence: by itself the client connects again within a second
    assert connections(server) == before
    assert stays.exists("/") is not None


def test_a_server_that_stands_still_past_the_timeout_ends_sessions(server: Server, session: Open) -> None:
    told: Told = queue.Queue()
    store = session(listener=told.put, timeout_ms=SHORT_MS)
    store.create("/mine", ephemeral=True)
    with server.stopped():
        assert told.get(timeout=PATIENCE_S) is SessionEvent.SUSPENDED
        with pytest.raises(NetworkError) as refused:
            store.create("/never")
        assert not isinstance(refused.value, UnknownOutcomeError)  # nothing was sent
        time.sleep(SHORT_MS / 1000)
    event = told.get(timeout=PATIENCE_S)
    if event is SessionEvent.RECONNECTED:  # the server counted in ticks, of which it had none while it stood still
        assert store.get("/mine").ephemeral_owner == store.session_id
    else:
        assert event is SessionEvent.EXPIRED
        with pytest.raises(SessionExpiredError):
            store.get("/mine")
    assert session().exists("/never") is None


def test_a_short_loss_keeps_the_session_and_tells_that_watches_were_lost(server: Server, session: Open) -> None:
    told: Told = queue.Queue()
    store = session(listener=told.put)
    store.create("/mine", ephemeral=True)
    store.create("/a")
    watch = watch_into(told)
    store.get("/a", watch)
    store.children("/a", watch)
    store.get("/mine", watch)
    store._client._connection._socket.shutdown(2)  # as a network that cuts connections
    expected = [SessionEvent.SUSPENDED, SessionEvent.RECONNECTED]
    assert [told.get(timeout=PATIENCE_S) for _ in expected] == expected
    lost = {told.get(timeout=PATIENCE_S) for _ in range(2)}
    assert lost == {(NodeEvent.WATCH_LOST, "/a"), (NodeEvent.WATCH_LOST, "/mine")}
    assert store.get("/mine", watch).ephemeral_owner == store.session_id
    session().set("/mine", b"x")
    assert store.get("/mine").data == b"x"
    assert told.get(timeout=PATIENCE_S) == (NodeEvent.DATA_CHANGED, "/mine")
    assert told.empty()


def test_a_change_that_was_not_answered_may_have_been_made(server: Server, session: Open) -> None:
    told: Told = queue.Queue()
    store = session(listener=told.put, timeout_ms=SHORT_MS)
    store.create("/a", b"0")
    with server.stopped(), pytest.raises(UnknownOutcomeError, match="before the response to a change of /a"):
        store.transaction([SetNode("/a", b"1", 0), CreateNode("/mine", ephemeral=True)])
    assert told.get(timeout=PATIENCE_S) is SessionEvent.SUSPENDED
    if told.get(timeout=PATIENCE_S) is SessionEvent.EXPIRED:
        store = session()
    found = store.get("/a")
    assert found.data in (b"0", b"1")
    if found.data == b"1":  # a second try meets its own first
        with pytest.raises(BadVersionError):
            store.transaction([SetNode("/a", b"1", 0)])


def test_a_read_waits_for_the_connection_to_come_back(server: Server, session: Open) -> None:
    store = session()
    store.create("/a", b"x")
    store._client._connection._socket.shutdown(2)
    assert store.get("/a").data == b"x"


def test_no_more_is_sent_than_the_server_takes(session: Open) -> None:
    store = session()
    changes = [CreateNode(f"/n{index}", bytes(100_000)) for index in range(11)]
    with pytest.raises(MetadataError, match=r"11 changes of 11\d+ bytes in one request.*jute.maxbuffer.*split"):
        store.transaction(changes)
    with pytest.raises(MetadataError, match="1 changes of"):
        store.set("/", bytes(1 << 20))
    assert len(store.transaction(changes[:10])) == 10
    store.transaction([CreateNode(f"/many{index}") for index in range(5000)])
    assert len(store.children("/")) == 5011  # with /zookeeper


def test_sessions_with_a_root_of_their_own_see_nothing_above_it(session: Open) -> None:
    inside, outside = session("/kafka/one"), session()
    told: Told = queue.Queue()
    inside.exists("/a", watch_into(told))
    inside.transaction([CreateNode("/a", b"x"), CreateNode("/a/n", sequence=True)])
    assert inside.create("/a/n", sequence=True) == "/a/n0000000001"
    assert inside.children("/") == ["a"]
    assert told.get(timeout=PATIENCE_S) == (NodeEvent.CREATED, "/a")
    assert outside.get("/kafka/one/a").data == b"x"
    assert outside.children("/kafka/one/a") == ["n0000000000", "n0000000001"]
    again = session("/kafka/one")
    with pytest.raises(NodeExistsError):
        again.create("/a")


def test_no_server_is_an_error_within_the_timeout() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(NetworkError, match=f"no ZooKeeper answers at {address}"):
        ZooKeeperStore(address, session_timeout_ms=1000)


def test_closing_needs_no_server(server: Server) -> None:
    store = ZooKeeperStore(server.address, session_timeout_ms=SHORT_MS)
    with server.stopped():
        store.close()
    with pytest.raises(SessionExpiredError):
        store.get("/")
    store.close()


OWN = OwnRegistration(Registration((), None), 0, 2)


def test_coroutines_see_watches_first_and_a_new_session_takes_the_place_of_an_expired_one(
    server: Server,
) -> None:
    threads = [SystemThreads(f"test-zookeeper-{name}", 1) for name in ("one", "two")]
    opens = partial(ZooKeeperStore, server.address, session_timeout_ms=TIMEOUT_MS)

    async def go() -> None:
        told: asyncio.Queue[SessionEvent] = asyncio.Queue()
        one = await LoopStore.open(opens, threads[0].run, told.put_nowait)
        two = await LoopStore.open(opens, threads[1].run)
        await one.create("/brokers/ids", parents=True)
        seen: list[str] = []
        for count in range(1, 101):
            await two.exists("/brokers", lambda _event, path: seen.append(path))
            await one.set("/brokers", b"%d" % count)
            node = await two.get("/brokers")
            assert len(seen) == node.version == count
        epoch = await register(one, 3, OWN)
        waiting = asyncio.create_task(register(two, 3, OWN, 1000 * PATIENCE_S))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        end_by_force(cast("ZooKeeperStore", one._store), server.address)
        assert await waiting > epoch
        while (event := await told.get()) is not SessionEvent.EXPIRED:
            assert event is SessionEvent.SUSPENDED
        again = await LoopStore.open(opens, threads[0].run)
        with pytest.raises(NodeExistsError, match="give this one another"):
            await register(again, 3, OWN, 100)
        for each in (one, two, again):
            await each.close()

    asyncio.run(go())
    for each in threads:
        each.close()
