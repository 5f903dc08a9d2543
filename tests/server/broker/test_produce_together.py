"""Sets of one Produce request that go to a thread together: one way there, and each is answered for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

import pytest

from builders import run
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import ErrorCode
from magicbyte.engine.log.append.rules import KEPT_SCRATCH
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import decode
from magicbyte.engine.records.encode import Format, encode_records
from magicbyte.server.broker.broker import Broker
from magicbyte.server.partitions import appends
from magicbyte.server.partitions.appends import SMALL_BYTES, NewSet
from magicbyte.server.serving import runtime
from magicbyte.server.serving.runtime import Runtime
from magicbyte.server.serving.threads import SystemThreads
from server.broker.serving import KEEP_ALL, Peer, Running

VERSION = 8
PARTITIONS = 10


def made(value: bytes, codec: Codec = Codec.NONE) -> bytes:
    return encode_records([Record(0, 1_700_000_000_000, 0, None, value)], Format.V2, codec)


async def produce(peer: Peer, sets: list[tuple[int, bytes]]) -> list[tuple[int, int]]:
    """Return error code and base offset of each."""
    parts = [PartitionProduceData(index=index, records=data) for index, data in sets]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="topic", partition_data=parts)]
    )
    found = (await peer.ask(request, VERSION, ProduceResponse)).responses[0].partition_responses
    assert [each.index for each in found] == [index for index, _ in sets]
    return [(each.error_code, each.base_offset) for each in found]


def values(broker: Broker, index: int) -> list[bytes | None]:
    """Return what the records of a partition hold, which readers may have."""
    log = broker.replicas.partition("topic", index).log
    assert log.high_watermark == log.log_end_offset
    found = log.read(0, 1 << 30)
    if found is None:
        return []
    return [record.value for columns in decode(memoryview(found.read())) for record in columns]


async def serving(folder: Path, work: Any, **settings: str) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    async with Running(folder, {"num.partitions": str(PARTITIONS), **KEEP_ALL, **named}) as broker:
        await broker.topics.create("topic")
        await work(broker, await Peer.of(broker))


def test_small_sets_of_a_request_are_one_work_of_a_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works: list[str] = []
    monkeypatch.setattr(runtime, "now_ns", lambda: 0)  # no disk is slow

    async def work(broker: Broker, peer: Peer) -> None:
        sets = [(index, made(b"%d" % index)) for index in range(PARTITIONS)]
        assert await produce(peer, sets) == [(0, 0)] * PARTITIONS  # their logs are made
        for name in ("run_short", "run"):
            does = getattr(SystemThreads, name)

            async def noted(self: SystemThreads, *arguments: Any, name: str = name, does: Any = does) -> Any:
                works.append(name)
                return await does(self, *arguments)

            monkeypatch.setattr(SystemThreads, name, noted)
        assert await produce(peer, sets) == [(0, 1)] * PARTITIONS
        monkeypatch.undo()
        assert [values(broker, index) for index in range(PARTITIONS)] == [
            [b"%d" % index] * 2 for index in range(PARTITIONS)
        ]

    run(serving(folder, work))
    assert works.count("run_short") == 1
    assert len(works) <= 2, "that one itself may go to another thread where the first is at work"


@pytest.mark.parametrize("policy", ["kafka", "group-commit"])
def test_each_set_is_answered_for_itself_and_those_of_a_partition_stay_in_order(folder: Path, policy: str) -> None:
    damaged = bytearray(made(b"damaged"))
    damaged[-1] ^= 1

    async def work(broker: Broker, peer: Peer) -> None:
        sets = [
            (0, made(b"first")), (1, bytes(damaged)), (0, made(b"second")), (99, made(b"nowhere")),
            (2, made(bytes(2 * SMALL_BYTES))), (2, made(b"behind")), (3, made(b"last")),
        ]  # fmt: skip
        assert await produce(peer, sets) == [
            (0, 0), (ErrorCode.CORRUPT_MESSAGE, -1), (0, 1), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (0, 0), (0, 1), (0, 0),
        ]  # fmt: skip
        assert values(broker, 0) == [b"first", b"second"]
        assert values(broker, 1) == []
        assert values(broker, 2) == [bytes(2 * SMALL_BYTES), b"behind"]
        assert values(broker, 3) == [b"last"]

    run(serving(folder, work, log_flush_policy=policy))


def test_a_set_for_which_numpy_is_loaded_is_not_overtaken_by_later_ones(folder: Path) -> None:
    async def work(broker: Broker, peer: Peer) -> None:
        assert not broker.runtime.has_numpy
        assert await produce(peer, [(0, made(b"first", Codec.GZIP)), (0, made(b"second"))]) == [(0, 0), (0, 1)]
        assert values(broker, 0) == [b"first", b"second"]

    run(serving(folder, work))


@pytest.mark.parametrize("size", [1, 2 * SMALL_BYTES], ids=["together", "alone"])
def test_a_bug_with_one_set_is_reported_and_the_others_are_stored(
    folder: Path, size: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = appends.write

    def store(log: PartitionLog, *arguments: Any) -> Any:
        if PurePath(log.folder).name == "topic-1":
            raise RuntimeError("this set is one too many")
        return real(log, *arguments)

    async def work(broker: Broker, peer: Peer) -> None:
        with pytest.raises(AssertionError, match="the broker closed the connection"):
            await produce(peer, [(index, made(bytes(size))) for index in range(3)])
        assert [values(broker, index) for index in range(3)] == [[bytes(size)], [], [bytes(size)]]

    monkeypatch.setattr(appends, "write", store)
    run(serving(folder, work))
    (told,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert "this set is one too many" in str(told.exc_text)


def test_a_bug_with_one_group_is_reported_when_the_other_groups_have_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, ended = appends.write_all, []

    async def written(process: Runtime, sets: Sequence[NewSet], *arguments: Any, **named: Any) -> Any:
        if sets[0].partition.index == 0:
            raise RuntimeError("this group is one too many")
        for _ in range(100):  # turns of the loop, in which the other's error could be returned
            await asyncio.sleep(0)
        found = await real(process, sets, *arguments, **named)
        ended.append(sets[0].partition.index)
        return found

    async def work(broker: Broker, peer: Peer) -> None:
        monkeypatch.setattr(appends, "write_all", written)
        monkeypatch.setattr(appends, "TOGETHER_BYTES", 2 * len(made(b"0")))
        with pytest.raises(AssertionError, match="the broker closed the connection"):
            await produce(peer, [(index, made(b"%d" % index)) for index in range(4)])
        assert ended == [2]
        assert [values(broker, index) for index in range(4)] == [[], [], [b"2"], [b"3"]]

    run(serving(folder, work))
    (told,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert "this group is one too many" in str(told.exc_text)


def test_a_small_set_that_holds_much_waits_for_memory_and_the_others_do_not(folder: Path) -> None:
    much = bytes(2 * KEPT_SCRATCH)
    assert len(made(much, Codec.GZIP)) < SMALL_BYTES

    async def work(broker: Broker, peer: Peer) -> None:
        sets = [(0, made(b"before")), (1, made(much, Codec.GZIP)), (2, made(b"behind"))]
        assert await produce(peer, sets) == [(0, 0)] * 3
        assert [values(broker, index) for index in range(3)] == [[b"before"], [much], [b"behind"]]

    run(serving(folder, work))


def test_two_requests_that_name_the_same_partitions_in_other_orders_both_end(folder: Path) -> None:
    async def work(broker: Broker, peer: Peer) -> None:
        peers = [peer, await Peer.of(broker)]
        orders = [range(PARTITIONS), range(PARTITIONS - 1, -1, -1)]
        for _ in range(20):
            await asyncio.gather(
                *(
                    produce(each, [(index, made(b"%d" % index)) for index in order])
                    for each, order in zip(peers, orders, strict=True)
                )
            )
        for index in range(PARTITIONS):
            assert values(broker, index) == [b"%d" % index] * 40

    run(serving(folder, work, log_flush_policy="group-commit"))
