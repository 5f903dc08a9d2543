"""The simulated tree: sessions that are cut off, healed, and expire by a clock that the test turns."""

import asyncio
from collections.abc import Callable

import pytest

from magicbyte.engine.cluster.brokers import Registration
from magicbyte.engine.errors import NetworkError, NoNodeError, SessionExpiredError, UnknownOutcomeError
from magicbyte.engine.ports import MetadataStore, NodeEvent, SessionEvent
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.stores.znodes.cluster import OwnRegistration, register
from magicbyte.server.stores.znodes.election import ControllerElection, elect
from magicbyte.testing.tree import SimulatedTree


class Clock:
    """A clock that only the test turns."""

    def __init__(self) -> None:
        self.ms = 1000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tree(clock: Clock) -> SimulatedTree:
    return SimulatedTree(clock)


def calls(store: MetadataStore) -> list[Callable[[], object]]:
    return [
        lambda: store.get("/a"),
        lambda: store.exists("/a"),
        lambda: store.children("/"),
        lambda: store.get_many(["/a"]),
        lambda: store.children_many(["/"]),
        lambda: store.create("/b"),
        lambda: store.set("/a", b""),
        lambda: store.delete("/a"),
        lambda: store.transaction([]),
    ]


def test_a_session_that_is_cut_off_for_less_than_its_timeout_continues(tree: SimulatedTree, clock: Clock) -> None:
    told: list[object] = []
    store, other = tree.session(listener=told.append, timeout_ms=6000), tree.session()

    def watched(event: NodeEvent, path: str) -> None:
        told.append((event, path))

    store.create("/a", ephemeral=True)
    store.get("/a", watched)
    store.children("/", watched)
    tree.cut(store)
    for call in calls(store):
        with pytest.raises(NetworkError, match="cut off"):
            call()
    other.set("/a", b"unseen")
    other.create("/unseen")
    clock.ms += 5999
    assert tree.expire_overdue() == []
    assert tree.next_expiry_ms() == 7000
    tree.heal(store)
    lost = [(NodeEvent.WATCH_LOST, "/a"), (NodeEvent.WATCH_LOST, "/")]
    assert told == [SessionEvent.SUSPENDED, SessionEvent.RECONNECTED, *lost]
    other.set("/a", b"unwatched")
    assert store.get("/a").ephemeral_owner == store.session_id
    assert len(told) == 4
    assert tree.next_expiry_ms() is None


def test_a_session_that_is_cut_off_for_its_timeout_loses_its_nodes_and_learns_it_later(
    tree: SimulatedTree, clock: Clock
) -> None:
    told: list[object] = []
    store, other = tree.session(listener=told.append, timeout_ms=6000), tree.session()
    store.create("/a", ephemeral=True)
    gone: list[NodeEvent] = []
    other.get("/a", lambda event, _path: gone.append(event))
    tree.cut(store)
    clock.ms += 6000
    assert tree.expire_overdue() == [store.session_id]
    assert gone == [NodeEvent.DELETED]
    assert told == [SessionEvent.SUSPENDED]  # it cannot know yet
    with pytest.raises(NetworkError):
        store.get("/a")
    tree.heal(store)
    assert told == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED]
    for call in calls(store):
        with pytest.raises(SessionExpiredError):
            call()
    tree.cut(store)
    tree.heal(store)
    assert tree.expire_overdue() == []
    assert len(told) == 2


def test_a_session_that_the_tree_ends_learns_it_at_once(tree: SimulatedTree) -> None:
    told: list[object] = []
    store = tree.session(listener=told.append)
    store.create("/a", ephemeral=True)
    store.get("/a", lambda event, _path: told.append(event))
    tree.expire_session(store)
    assert told == [SessionEvent.EXPIRED]
    with pytest.raises(SessionExpiredError):
        store.get("/a")
    assert tree.session().exists("/a") is None


def test_sessions_expire_in_the_order_in_which_they_are_due(tree: SimulatedTree, clock: Clock) -> None:
    slow, quick, later = tree.session(timeout_ms=900), tree.session(timeout_ms=500), tree.session(timeout_ms=900)
    for each in (slow, quick, later):
        each.create(f"/{each.session_id}", ephemeral=True)
        tree.cut(each)
    order: list[str] = []
    watcher = tree.session()
    watcher.get_many([f"/{each.session_id}" for each in (slow, quick, later)], lambda _event, path: order.append(path))
    clock.ms += 2000
    assert tree.expire_overdue() == [quick.session_id, slow.session_id, later.session_id]
    assert order == [f"/{quick.session_id}", f"/{slow.session_id}", f"/{later.session_id}"]


def test_a_session_that_is_closed_while_it_is_cut_off_leaves_its_nodes_until_the_timeout(
    tree: SimulatedTree, clock: Clock
) -> None:
    told: list[object] = []
    store, other = tree.session(listener=told.append, timeout_ms=6000), tree.session()
    store.create("/a", ephemeral=True)
    tree.cut(store)
    store.close()
    tree.heal(store)
    assert other.exists("/a") is not None
    clock.ms += 6000
    assert tree.expire_overdue() == [store.session_id]
    assert other.exists("/a") is None
    assert told == [SessionEvent.SUSPENDED]


def test_a_change_may_be_made_without_an_answer(tree: SimulatedTree) -> None:
    store, other = tree.session(), tree.session()
    store.loses_next_answer = True
    with pytest.raises(UnknownOutcomeError):
        store.create("/a")
    assert other.exists("/a") is not None
    with pytest.raises(NetworkError):
        store.get("/a")
    tree.heal(store)
    store.delete("/a")
    with pytest.raises(NoNodeError):
        store.get("/a")


async def test_a_controller_that_is_cut_off_is_followed_by_another_and_learns_it(
    tree: SimulatedTree, clock: Clock
) -> None:
    """As brokers do it: a session each, elections when the controller goes, a new session after the old one expired."""

    told: list[SessionEvent] = []
    sessions = [tree.session(listener=told.append), tree.session()]
    one, two = (LoopStore(each) for each in sessions)
    await one.create("/brokers/ids", parents=True)
    own = OwnRegistration(Registration((), None), 0, 5)
    epochs = [await register(each, index, own) for index, each in enumerate((one, two))]
    assert await elect(one, 0, clock.now_ms) == ControllerElection(0, 1, 0, True)
    elected = asyncio.Event()
    await elect(two, 1, clock.now_ms, lambda _event, _path: elected.set())
    tree.cut(sessions[0])
    clock.ms += 18_000
    tree.expire_overdue()
    await elected.wait()
    assert await elect(two, 1, clock.now_ms) == ControllerElection(1, 2, 1, True)
    tree.heal(sessions[0])
    assert told == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED]
    again = await LoopStore.open(tree.session)
    assert await register(again, 0, own) > epochs[1]
    assert await elect(again, 0, clock.now_ms) == ControllerElection(1, 2, 1, False)
