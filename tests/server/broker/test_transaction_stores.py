"""Appends of the transaction coordinator; waits, refusals and bugs that delay nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from builders import hurried, run
from magicbyte.engine.errors import AppendRefusedError, ErrorCode, OutOfDescriptorsError
from magicbyte.engine.internal_topics import STATE_TOPIC
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.entry import entries
from magicbyte.server.broker.broker import Broker
from magicbyte.server.coordinating import coordinating
from magicbyte.server.coordinating import markers as sending
from magicbyte.server.coordinating.markers import MarkerSender
from magicbyte.server.partitions.appends import Acknowledgement, Appended, NewSet
from server.broker.serving import Peer
from server.broker.test_transactions import A, B, markers, serving
from server.broker.transacting import Pair, add, begin, end, ended, found, init, send

Patch = pytest.MonkeyPatch
ONE = {"transaction_state_log_num_partitions": "1"}
IDS = [f"x{number}" for number in range(20)]


@asynccontextmanager
async def peers_of(broker: Broker) -> AsyncIterator[list[Peer]]:
    """Give a connection for each id."""
    peers = [await Peer.of(broker) for _ in IDS]
    yield peers
    for each in peers:
        each.close()


def counted(broker: Broker, patch: Patch, *, most_batches: int = 1000) -> list[int]:
    """Return how many batches each set has that is appended from now on; larger ones are refused."""
    sizes, real = list[int](), broker.appends.append

    async def append(new: NewSet) -> Appended:
        sizes.append(len(list(entries(new.records))))
        if sizes[-1] > most_batches:
            raise AppendRefusedError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        return await real(new)

    patch.setattr(broker.appends, "append", append)
    return sizes


def state_log(broker: Broker) -> list[int]:
    """Return the number of records of each batch of the log of the ids."""
    log = broker.logs.logs[TopicPartition(STATE_TOPIC, 0)]
    data = b"".join(each.read_at(0, each.size) for segment in log.segments for each in [segment.log])
    return [entry.record_count for _, entry in entries(memoryview(data))]  # type: ignore[union-attr]


@pytest.mark.parametrize("most_batches", [1000, 1])
async def test_what_several_ids_have_to_store_is_appended_together_or_one_by_one_where_that_is_refused(
    tmp_path: Path, monkeypatch: Patch, most_batches: int
) -> None:
    async with serving(tmp_path, **ONE) as (broker, _), peers_of(broker) as peers:
        await begin(peers[0])
        before, sizes = len(state_log(broker)), counted(broker, monkeypatch, most_batches=most_batches)
        told = await asyncio.gather(*(init(peer, key) for peer, key in zip(peers, IDS, strict=True)))
        assert [code for code, _ in told] == [0] * len(IDS)
        assert len({pair.producer_id for _, pair in told}) == len(IDS)
        assert state_log(broker)[before:] == [1] * len(IDS)
        assert max(sizes) > 1, "those that wait are appended together"


async def test_an_append_does_not_wait_until_the_replicas_have_the_one_before(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    async with serving(tmp_path, **ONE) as (broker, peer):
        await begin(peer)
        proceed, real = asyncio.Event(), broker.appends.replicated

        async def replicated(waits: Sequence[Acknowledgement], timeout_ms: int) -> list[ErrorCode]:
            await proceed.wait()
            return [ErrorCode.NONE] * len(waits)

        monkeypatch.setattr(Acknowledgement, "code", lambda _: None)
        monkeypatch.setattr(broker.appends, "replicated", replicated)
        before = len(state_log(broker))
        async with peers_of(broker) as peers:
            asked = [asyncio.create_task(init(*each)) for each in zip(peers, IDS, strict=True)]
            while len(state_log(broker)) < before + len(IDS):
                await asyncio.sleep(0.001)
            assert not any(each.done() for each in asked)
            proceed.set()
            assert [code for code, _ in await asyncio.gather(*asked)] == [0] * len(IDS)
        monkeypatch.setattr(broker.appends, "replicated", real)


def once(real: Callable[..., Any], what: Exception, times: int = 1) -> Callable[..., Any]:
    """Return a function that raises something before it does what it is to do."""
    left = [what] * times

    def failing(*given: Any, **named: Any) -> Any:
        if left:
            raise left.pop()
        return real(*given, **named)

    return failing


def test_a_bug_in_an_append_is_reported_and_the_next_request_is_served(
    tmp_path: Path, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(tmp_path, **ONE) as (broker, peer):
            pair = await begin(peer)
            monkeypatch.setattr(broker.replicas, "opened", once(broker.replicas.opened, ValueError("a fault")))
            assert await add(peer, pair, A) == [-1]
            assert await add(peer, pair, A) == [0]
            await ended(peer, pair)

    run(work())
    assert "records of transactional ids could not be stored" in caplog.text


async def test_a_bug_after_an_append_ends_no_other(tmp_path: Path, monkeypatch: Patch) -> None:
    async with AsyncExitStack() as running:
        broker, peer = await running.enter_async_context(serving(tmp_path, **ONE))
        pair = await begin(peer)
        stored = once(broker.transactions.coordinator.stored, ValueError("a fault"))
        monkeypatch.setattr(broker.transactions.coordinator, "stored", stored)
        lost = await Peer.of(broker)
        asking = asyncio.create_task(init(lost, "y"))
        while broker.transactions.coordinator.stored is stored and not state_log(broker)[1:]:
            await asyncio.sleep(0.001)
        assert await add(peer, pair, A) == [0]
        asking.cancel()
        lost.close()
        await hurried(running.aclose(), 6)  # the response that the bug kept back is awaited


@asynccontextmanager
async def loading(folder: Path) -> AsyncIterator[tuple[Broker, Peer, Callable[[], Coroutine[Any, Any, int]]]]:
    """Give a broker whose ids can be loaded again, and a function that loads them and returns the code after it."""
    async with serving(folder, **ONE) as (broker, peer):
        await begin(peer)

        async def again() -> int:
            broker.transactions.resigned(0, 1)
            broker.transactions.elected(0, 2)
            while (code := (await init(peer))[0]) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                await asyncio.sleep(0.001)
            return code

        yield broker, peer, again


async def test_a_log_for_which_there_are_no_descriptors_is_read_again(tmp_path: Path, monkeypatch: Patch) -> None:
    async with loading(tmp_path) as (_, _, again):
        read = once(coordinating.read_log, OutOfDescriptorsError("no descriptors"), times=3)
        monkeypatch.setattr(coordinating, "read_log", read)
        assert await hurried(again(), 5) == 0


def test_a_bug_in_a_load_gives_up_that_partition_until_the_next_term(
    tmp_path: Path, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with loading(tmp_path) as (broker, peer, again):
            monkeypatch.setattr(coordinating, "read_log", once(coordinating.read_log, ValueError("a fault")))
            assert await again() == ErrorCode.COORDINATOR_NOT_AVAILABLE
            broker.transactions.resigned(0, 3)
            broker.transactions.elected(0, 4)
            while (code := (await init(peer))[0]) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                await asyncio.sleep(0.001)
            assert code == 0

    run(work())
    assert "cannot be read" in caplog.text


async def completed(peer: Peer, pair: Pair) -> None:
    """Wait until a transaction whose end is decided has its markers."""
    while (code := await end(peer, pair)) in (14, 51):
        await asyncio.sleep(0.01)
    assert code == 0


@pytest.mark.parametrize("place", ["write_markers", "_known_leader", "_marked"])
def test_a_marker_that_a_bug_keeps_back_is_sent_again(
    tmp_path: Path, monkeypatch: Patch, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(tmp_path, **ONE) as (broker, peer):
            await found(peer)
            sender = broker.transactions._sender
            owner: Any = sending if place == "write_markers" else sender if place == "_marked" else MarkerSender
            pair = await begin(peer)
            await add(peer, pair, A, B)
            await send(peer, pair, A, 0, b"a")
            monkeypatch.setattr(owner, place, once(getattr(owner, place), ValueError("a fault")))
            assert await end(peer, pair) == 0
            if place != "_marked":
                await completed(peer, pair)
                assert [len(markers(broker, each)) for each in (A, B)] == [1, 1]
            else:  # its partition is marked again by the next coordinator
                while not all(markers(broker, each) for each in (A, B)):
                    await asyncio.sleep(0.001)
                broker.transactions.resigned(0, 1)
                broker.transactions.elected(0, 2)
                await completed(peer, pair)

    run(work())
    assert "a fault" in caplog.text
