"""Producer ids: unique among the brokers of a cluster, and after each restart."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from magicbyte.engine.cluster.changes import PRODUCER_ID_BLOCK
from magicbyte.engine.cluster.image import ClusterImage
from magicbyte.engine.errors import MetadataError, NoProducerIdError, UnknownOutcomeError
from magicbyte.engine.ports import NodeChange
from magicbyte.server.metadata.memory import MemoryTree
from magicbyte.server.metadata.on_loop import LoopStore
from magicbyte.server.metadata.tree import Session
from magicbyte.server.serving.threads import SystemThreads
from magicbyte.server.stores.producer_ids import ProducerIds
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.member_store import MemberStore
from magicbyte.server.stores.znodes.writing import WritingTerms
from server.broker.serving import Clock


class Overtaken(Session):
    """A session that calls `first` before its next transaction, and may lose its connection before or after that."""

    first: Callable[[], None] | None = None
    loses_before = loses_after = False

    def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        first, self.first = self.first, None
        if first is not None:
            first()
        if self.loses_before:
            raise UnknownOutcomeError("the connection was lost")
        made = super().transaction(changes)
        if self.loses_after:
            raise UnknownOutcomeError("the connection was lost")
        return made


@pytest.fixture
def tree() -> MemoryTree:
    made = MemoryTree(Clock())
    session = made.session()
    for path in layout.ALWAYS_THERE:
        session.create(path, parents=True)
    return made


class Broker:
    """The store of one broker, and its producer ids."""

    def __init__(self, tree: MemoryTree, broker_id: int, last_in_logs: int = -1) -> None:
        self.session = session = Overtaken(tree, tree.session().session_id)
        threads, watching, self.tasks = SystemThreads("test", 1), LoopStore(session), list[asyncio.Task[None]]()

        def spawn(work: object) -> None:
            self.tasks.append(asyncio.ensure_future(work))  # type: ignore[arg-type] # a coroutine

        terms = WritingTerms(1_700_000_000_000, None)
        self.store = MemberStore(session, lambda: watching, threads, threads, spawn, lambda: terms)
        self.ids = ProducerIds(self.store, broker_id, asyncio.Lock(), spawn, lambda: last_in_logs)

    async def next(self) -> int:
        await self.ids.fill()
        return self.ids.next()


async def started(tree: MemoryTree, broker_id: int, last_in_logs: int = -1) -> Broker:
    broker = Broker(tree, broker_id, last_in_logs)
    await broker.store.start()
    return broker


def block(tree: MemoryTree) -> dict[str, object]:
    return layout.load("", tree.session().get(layout.PRODUCER_IDS).data)


async def test_producer_ids_begin_in_an_empty_node_which_kafka_creates_at_its_start(tree: MemoryTree) -> None:
    tree.session().create(layout.PRODUCER_IDS)
    assert await (await started(tree, 3, last_in_logs=41)).next() == 42
    assert layout.load_last_producer_id(tree.session().get(layout.PRODUCER_IDS).data) == 1041


async def test_producer_ids_continue_after_the_recorded_block(tree: MemoryTree) -> None:
    assert [await (await started(tree, 3)).next() for _ in range(2)] == [0, 1000]
    assert block(tree) == {"version": 1, "broker": 3, "block_start": "1000", "block_end": "1999"}


async def test_a_block_is_in_the_image_from_its_start_on_and_before_any_of_its_ids_is_given(tree: MemoryTree) -> None:
    broker = await started(tree, 3)
    assert broker.store.image.next_producer_id is None
    assert await broker.next() == 0
    assert broker.store.image.next_producer_id == PRODUCER_ID_BLOCK
    assert (await started(tree, 4)).store.image.next_producer_id == PRODUCER_ID_BLOCK


async def test_brokers_that_take_producer_ids_at_once_take_different_ones(tree: MemoryTree) -> None:
    first, second = await started(tree, 1), await started(tree, 2)
    for _ in ("the first block", "a later one"):
        taken = list[int]()

        def overtake(taken: list[int] = taken) -> None:
            taken.append(asyncio.run(first.ids.reserve(1)))

        second.session.first = overtake
        assert await second.ids.reserve(2) == taken[0] + PRODUCER_ID_BLOCK


@pytest.mark.parametrize("is_made", [False, True])
async def test_a_block_whose_reservation_has_no_answer_is_not_used_as_another_broker_may_have_the_same(
    tree: MemoryTree, is_made: bool
) -> None:
    """The tree shows that the ids are reserved, but not by whom."""
    first, second = await started(tree, 1), await started(tree, 2)
    second.session.loses_after = is_made
    second.session.loses_before = not is_made
    if not is_made:
        second.session.first = lambda: asyncio.run(first.ids.fill())
    with pytest.raises(UnknownOutcomeError):
        await second.ids.fill()
    second.session.loses_after = second.session.loses_before = False
    assert second.store.image.next_producer_id == PRODUCER_ID_BLOCK
    assert await second.next() == PRODUCER_ID_BLOCK


async def test_without_an_id_the_caller_is_refused_and_a_block_is_reserved_soon(tree: MemoryTree) -> None:
    broker = await started(tree, 1)
    with pytest.raises(NoProducerIdError):
        broker.ids.next()
    await asyncio.gather(*broker.tasks)
    assert broker.ids.next() == 0


async def test_a_damaged_node_is_an_error_for_those_that_need_ids_alone(tree: MemoryTree) -> None:
    tree.session().create(layout.PRODUCER_IDS, b"no JSON")
    broker = await started(tree, 1)
    assert broker.store.image == ClusterImage(position=broker.store.image.position)
    with pytest.raises(MetadataError, match="latest_producer_id_block"):
        await broker.ids.fill()
