"""Groups come and go with the partitions of `__consumer_offsets` that a broker leads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from magicbyte.engine.coordination.effects import Store
from magicbyte.engine.coordination.partitioning import partition_for
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magicbyte.engine.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from magicbyte.engine.replication.leader import Follower
from magicbyte.server.broker.broker import Broker
from magicbyte.server.coordinating import coordinating
from magicbyte.server.partitions.appends import Acknowledgement
from server.broker.builders import commit, committed
from server.broker.serving import Peer, Running

PARTITIONS = 2
MOVED = partition_for("g", PARTITIONS)
SETTINGS = {"offsets.topic.num.partitions": str(PARTITIONS), "group.initial.rebalance.delay.ms": "0"}


class Gate:
    """Loads in a thread wait until it is opened. `reached`: one has read the log and waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.reached, self.loads = threading.Event(), threading.Event(), 0
        read = coordinating.read_log

        def gated(replay: Any, log: PartitionLog) -> object:
            found = read(replay, log)
            return self._pass(found) if OFFSETS_TOPIC in str(log.folder) else found

        monkeypatch.setattr(coordinating, "read_log", gated)

    def _pass(self, found: object) -> object:
        self.loads += 1
        self.reached.set()
        assert self.open.wait(120)
        return found


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.open.set()  # what still waits would hold up the end


async def prepared(broker: Broker) -> Peer:
    """Return a connection to a broker where group `g` has committed 7."""
    await broker.groups.ensure_topic()
    await broker.topics.create("t", 1)
    peer = await Peer.of(broker)
    assert await commit(peer, 7) == ErrorCode.NONE
    return peer


async def loaded(peer: Peer) -> tuple[int, list[int]]:
    """Return code and offsets of group `g` as soon as it is loaded."""
    while (found := await committed(peer))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass
    return found


def join(member: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )


async def test_a_partition_moves_away_and_back_with_its_groups(tmp_path: Path, gate: Gate) -> None:
    async with Running(tmp_path, SETTINGS) as broker:
        peer = await prepared(broker)
        broker.groups.resigned(MOVED, 1)
        assert await committed(peer) == (ErrorCode.NOT_COORDINATOR, [])
        assert await commit(peer, 8) == ErrorCode.NOT_COORDINATOR
        broker.groups.elected(MOVED, 2)
        assert await committed(peer) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
        assert await commit(peer, 8) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        gate.open.set()
        assert await loaded(peer) == (ErrorCode.NONE, [7])
        assert await commit(peer, 8) == ErrorCode.NONE
        peer.close()


async def test_members_that_wait_at_a_move_look_for_the_coordinator(tmp_path: Path) -> None:
    async with Running(tmp_path, SETTINGS) as broker:
        peer, other = await prepared(broker), await Peer.of(broker)
        joined = await peer.ask(join(), 2, JoinGroupResponse)
        waiting = asyncio.create_task(other.ask(join(), 2, JoinGroupResponse))
        while len(broker.groups.coordinator.groups["g"].members) < 2:
            await asyncio.sleep(0)
        broker.groups.resigned(MOVED, 1)
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
        assert (await peer.ask(beat, 0, HeartbeatResponse)).error_code == ErrorCode.NOT_COORDINATOR
        peer.close()
        other.close()


@pytest.mark.parametrize("again", [False, True], ids=["resigned", "elected again"])
async def test_a_load_that_is_overtaken_installs_nothing(tmp_path: Path, gate: Gate, again: bool) -> None:
    async with Running(tmp_path, SETTINGS) as broker:
        peer = await prepared(broker)
        broker.groups.resigned(MOVED, 1)
        broker.groups.elected(MOVED, 2)
        while not gate.reached.is_set():
            await asyncio.sleep(0)
        broker.groups.resigned(MOVED, 3)
        assert await committed(peer) == (ErrorCode.NOT_COORDINATOR, [])
        if again:
            broker.groups.elected(MOVED, 4)
        gate.open.set()
        while broker.groups._loader is not None:
            await asyncio.sleep(0)
        expected = (ErrorCode.NONE, [7]) if again else (ErrorCode.NOT_COORDINATOR, [])
        assert await committed(peer) == expected
        assert gate.loads == 1 + again
        peer.close()


async def test_words_of_an_earlier_epoch_are_ignored(tmp_path: Path) -> None:
    async with Running(tmp_path, SETTINGS) as broker:
        peer = await prepared(broker)
        broker.groups.elected(MOVED, 5)
        broker.groups.resigned(MOVED, 4)
        assert await committed(peer) == (ErrorCode.NONE, [7])
        broker.groups.resigned(MOVED, 6)
        broker.groups.elected(MOVED, 5)
        assert await committed(peer) == (ErrorCode.NOT_COORDINATOR, [])
        peer.close()


async def test_a_leader_that_is_elected_again_keeps_its_members(tmp_path: Path, gate: Gate) -> None:
    async with Running(tmp_path, SETTINGS) as broker:
        peer = await prepared(broker)
        joined = await peer.ask(join(), 2, JoinGroupResponse)
        broker.groups.elected(MOVED, 1)
        beat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
        assert (await peer.ask(beat, 0, HeartbeatResponse)).error_code == ErrorCode.NONE
        assert gate.loads == 0
        peer.close()


async def test_records_that_were_decided_before_a_move_are_not_appended_after_it(tmp_path: Path) -> None:
    """The leader in between may have stored later ones."""

    async with Running(tmp_path, SETTINGS) as broker:
        peer = await prepared(broker)
        log = broker.logs.logs[TopicPartition(OFFSETS_TOPIC, MOVED)]
        store = Store(MOVED, broker.groups.coordinator.terms[MOVED].number, ((b"key", b"value"),), None)
        end = log.log_end_offset
        broker.groups.resigned(MOVED, 1)
        broker.groups.elected(MOVED, 2)
        assert await loaded(peer) == (ErrorCode.NONE, [7])
        assert await broker.groups.log._append(MOVED, [store]) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert log.log_end_offset == end
        peer.close()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_commits_are_appended_while_those_before_wait_for_the_in_sync_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, told: ErrorCode
) -> None:
    waits: list[int] = []

    async def replicated(acknowledgements: Sequence[Acknowledgement], _timeout_ms: int) -> list[ErrorCode]:
        waits.append(len(acknowledgements))
        while len(waits) == 1 and len(broker.groups.log._unacknowledged[MOVED]) < 3:  # others come
            await asyncio.sleep(0)
        return [code] * len(acknowledgements)

    async def work() -> None:
        nonlocal broker
        async with Running(tmp_path, SETTINGS) as broker:
            await prepared(broker)
            monkeypatch.setattr(Acknowledgement, "code", lambda _: None)
            monkeypatch.setattr(broker.appends, "replicated", replicated)
            log = broker.logs.logs[TopicPartition(OFFSETS_TOPIC, MOVED)]
            end, peers = log.log_end_offset, [await Peer.of(broker) for _ in range(3)]
            assert await asyncio.gather(*(commit(each, 8) for each in peers)) == [told] * 3
            assert log.log_end_offset == end + 3
            for each in peers:
                each.close()

    broker: Broker
    asyncio.run(work())
    assert sum(waits) == 3


async def test_nothing_is_appended_while_too_few_replicas_are_in_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Running(tmp_path, {**SETTINGS, "min.insync.replicas": "2"}) as broker:
        peer = await prepared(broker)  # a broker alone has no other replica to wait for
        log = broker.logs.logs[TopicPartition(OFFSETS_TOPIC, MOVED)]
        partition, end = await broker.replicas.opened(OFFSETS_TOPIC, MOVED), log.log_end_offset
        monkeypatch.setitem(partition.led().followers, 1, Follower(0, 0, 0))
        assert await commit(peer, 8) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert log.log_end_offset == end
        peer.close()
