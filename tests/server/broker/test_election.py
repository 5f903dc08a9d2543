"""Brokers in one tree: who is registered, in which words, and who is the controller."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from magicbyte.engine.cluster.brokers import BrokerEndpoint, Registration
from magicbyte.engine.errors import BadVersionError, MetadataError, NodeExistsError, UnknownOutcomeError
from magicbyte.engine.ports import Node, NodeChange, NodeEvent, SetNode, Watch
from magicbyte.engine.releases import registration_version
from magicbyte.server.metadata.memory import MemoryTree
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.metadata.tree import Session
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.cluster import OwnRegistration, found_cluster, register
from magicbyte.server.stores.znodes.election import ControllerElection, candidacy, elect, outcome
from server.broker.serving import Clock

ENDPOINTS = [BrokerEndpoint("INSIDE", "SSL", "a", 9093), BrokerEndpoint("OUTSIDE", "PLAINTEXT", "::1", 9092)]
ALWAYS = {"version", "host", "port", "jmx_port", "timestamp"}
OWN = OwnRegistration(Registration((), None), 1_700_000_000_000, 5)


@pytest.fixture
def tree() -> MemoryTree:
    made = MemoryTree(Clock())
    session = made.session()
    session.create("/brokers/ids", parents=True)
    session.close()
    return made


class Unsure(Session):
    """A session that loses its connection after the first transactions: they are made, and not answered."""

    lost = 1

    def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        done = super().transaction(changes)
        if self.lost:
            self.lost -= 1
            raise UnknownOutcomeError("the connection was lost")
        return done


# ---- registration


@pytest.mark.parametrize(
    ("protocol", "version", "fields"),
    [
        ((0, 8, 2), 1, set()),
        ((0, 9, 0), 2, {"endpoints"}),
        ((0, 10, 0), 3, {"endpoints", "rack"}),
        ((0, 10, 1), 3, {"endpoints", "rack"}),
        ((0, 10, 2), 4, {"endpoints", "rack", "listener_security_protocol_map"}),
        ((2, 6), 4, {"endpoints", "rack", "listener_security_protocol_map"}),
        ((2, 7), 5, {"endpoints", "rack", "listener_security_protocol_map", "features"}),
        ((3, 9), 5, {"endpoints", "rack", "listener_security_protocol_map", "features"}),
    ],
)
def test_a_registration_has_the_fields_of_its_version(
    protocol: tuple[int, ...], version: int, fields: set[str]
) -> None:
    assert registration_version(protocol) == version
    told = layout.load("b", layout.dump_broker(ENDPOINTS, "attic", 5, version))
    assert told.keys() == ALWAYS | fields
    assert (told["version"], told["host"], told["port"], told["timestamp"]) == (version, "::1", 9092, "5")
    if version >= 4:
        assert told["endpoints"] == ["INSIDE://a:9093", "OUTSIDE://[::1]:9092"]
        assert told["listener_security_protocol_map"] == {"INSIDE": "SSL", "OUTSIDE": "PLAINTEXT"}
    elif version >= 2:  # which knows no names of listeners
        assert told["endpoints"] == ["SSL://a:9093", "PLAINTEXT://[::1]:9092"]


def test_without_a_rack_or_a_plain_listener_it_says_so() -> None:
    told = layout.load("b", layout.dump_broker(ENDPOINTS[:1], None, 5, 5))
    assert (told["host"], told["port"]) == (None, -1)
    assert "rack" not in told


async def test_a_registered_broker_has_the_transaction_number_as_its_epoch(tree: MemoryTree) -> None:
    store = LoopStore(tree.session())
    epoch = await register(store, 3, OWN)
    node = await store.get("/brokers/ids/3")
    assert (node.czxid, node.ephemeral_owner) == (epoch, store.session_id)
    assert layout.load_broker("/brokers/ids/3", node.data) == OWN.content
    assert await register(store, 3, OWN) == epoch  # again in the same session: nothing is to be done


async def test_a_registration_waits_until_the_session_before_has_expired(tree: MemoryTree) -> None:
    before, store = LoopStore(tree.session()), LoopStore(tree.session())
    first = await register(before, 3, OWN)
    waiting = asyncio.create_task(register(store, 3, OWN))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await (await LoopStore.open(lambda **_: tree.session())).set("/brokers/ids/3", b"changed")
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await before.close()
    assert await waiting > first


def test_a_registration_fails_while_another_broker_has_the_number(
    tree: MemoryTree, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        await register(LoopStore(tree.session()), 3, OWN)
        with pytest.raises(NodeExistsError, match="registered broker 3 and has not ended for 20 ms: stop the other"):
            await register(LoopStore(tree.session()), 3, OWN, patience_ms=20)

    asyncio.run(go())
    (line,) = (each.getMessage() for each in caplog.records)  # one line, before the wait
    assert line.startswith("broker 3 is already registered, by another broker with this id")


async def test_a_registration_whose_answer_was_lost_is_found(tree: MemoryTree) -> None:
    session = tree.session()
    store = LoopStore(Unsure(tree, session.session_id))
    epoch = await register(store, 3, OWN)
    assert epoch == session.get("/brokers/ids/3").czxid


# ---- several brokers at once


class Overtaken(Session):
    """A session whose next transaction comes after that of another broker."""

    first: Callable[[], object] | None = None

    def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        first, self.first = self.first, None
        if first is not None:
            first()
        return super().transaction(changes)


def overtaken(tree: MemoryTree, first: Callable[[], object]) -> Overtaken:
    made = Overtaken(tree, tree.session().session_id)
    made.first = first
    return made


def test_brokers_that_start_at_once_found_one_cluster() -> None:
    tree = MemoryTree(Clock())
    first: list[str] = []
    store = overtaken(tree, lambda: first.append(found_cluster(tree.session(), None, uuid.uuid4)))
    assert [found_cluster(store, None, uuid.uuid4)] == first


@pytest.mark.parametrize("looks", range(1, 8))
def test_a_broker_that_is_overtaken_while_it_looks_founds_no_second_cluster(looks: int) -> None:
    """Whichever of its looks the other one comes behind."""
    tree = MemoryTree(Clock())
    other: list[str] = []

    class Looks(Session):
        count = 0

        def exists(self, path: str, watch: Watch | None = None) -> Node | None:
            found = super().exists(path, watch)
            self.count += 1
            if self.count == looks:
                other.append(found_cluster(tree.session(), None, uuid.uuid4))
            return found

    store = Looks(tree, tree.session().session_id)
    assert [found_cluster(store, None, uuid.uuid4)] == other


# ---- election


async def test_the_first_broker_wins_and_the_others_learn_who(tree: MemoryTree) -> None:
    one, two = LoopStore(tree.session()), LoopStore(tree.session())
    assert await elect(one, 1, Clock().now_ms) == ControllerElection(1, 1, 0, True)
    assert await elect(two, 2, Clock().now_ms) == ControllerElection(1, 1, 0, False)
    assert await elect(one, 1, Clock().now_ms) == ControllerElection(1, 1, 0, True)


async def test_the_next_controller_has_the_next_epoch_and_the_one_before_cannot_write(tree: MemoryTree) -> None:
    one, two = LoopStore(tree.session()), LoopStore(tree.session())
    changed: list[NodeEvent] = []
    first = await elect(one, 1, Clock().now_ms)
    await elect(two, 2, Clock().now_ms, lambda event, _path: changed.append(event))
    await one.close()
    again = LoopStore(tree.session())
    second = await elect(two, 2, Clock().now_ms)
    assert changed == [NodeEvent.DELETED]
    assert second == ControllerElection(2, 2, 1, True)
    assert await elect(again, 1, Clock().now_ms) == ControllerElection(2, 2, 1, False)
    with pytest.raises(BadVersionError):
        await again.transaction([SetNode(layout.CONTROLLER_EPOCH, b"1", first.epoch_version)])


async def test_a_controller_of_an_earlier_session_of_this_broker_is_another_one(tree: MemoryTree) -> None:
    await elect(LoopStore(tree.session()), 1, Clock().now_ms)
    assert await elect(LoopStore(tree.session()), 1, Clock().now_ms) == ControllerElection(1, 1, 0, False)


async def test_an_election_whose_answer_was_lost_is_won_once(tree: MemoryTree) -> None:
    store = LoopStore(Unsure(tree, tree.session().session_id))
    assert await elect(store, 1, Clock().now_ms) == ControllerElection(1, 1, 0, True)


async def test_of_brokers_that_stand_at_once_one_wins(tree: MemoryTree) -> None:
    async def slowly(work: Any, *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(0)
        return work(*arguments, **named)

    stores = [LoopStore(tree.session(), slowly) for _ in range(5)]
    for epoch in (1, 2, 3):
        found = await asyncio.gather(*(elect(store, index, Clock().now_ms) for index, store in enumerate(stores)))
        (winner,) = [each for each in found if each.won]
        assert {(each.controller, each.epoch) for each in found} == {(winner.controller, epoch)}
        await stores[winner.controller].close()
        stores[winner.controller] = LoopStore(tree.session(), slowly)


def test_nodes_that_say_nothing_of_a_controller_are_an_error(tree: MemoryTree) -> None:
    session = tree.session()
    session.create(layout.CONTROLLER, b"{}")
    session.create(layout.CONTROLLER_EPOCH, b"three")
    with pytest.raises(MetadataError, match="expected a brokerid"):
        outcome(session.get(layout.CONTROLLER), session.get(layout.CONTROLLER_EPOCH), 1)
    with pytest.raises(MetadataError, match="expected a number"):
        candidacy(session.get(layout.CONTROLLER_EPOCH), 1, 0)
