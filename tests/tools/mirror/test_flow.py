"""Sets of many partitions on their way at a time: requests that fail, sets that are refused, one set of each in one."""

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from magicbyte.access.client import Client, admin
from magicbyte.access.client.client import BrokerNode
from magicbyte.access.client.produce import Addressed, ProduceOptions, send, send_together
from magicbyte.access.client.produce_frames import Produced
from magicbyte.engine.codecs import Codec
from magicbyte.engine.errors import BrokerError, CorruptRecordError, ErrorCode, NetworkError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format
from magicbyte.testing import Broker
from magicbyte.tools.mirror import outbox
from tools.mirror.pair import Pair, records
from tools.mirror.sets import START, some

PARTITIONS = 3
KIND = range(3)


class Faults:
    """Stands in for `send_together`: the second request, and as a seed says others, fail, in one of three ways."""

    def __init__(self, seed: int, share: float) -> None:
        self.chance = random.Random(seed)
        self.share = share
        self.failed = 0
        self.under_way = 0
        self.most_under_way = 0
        self.rows: list[list[tuple[str, int]]] = []

    async def send(self, client: Client, node: BrokerNode, sets: list[Addressed], kind: range) -> list[Any]:
        self.rows.append([(each.topic, each.partition) for each in sets])
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            return await self.fail(client, node, sets, kind)
        finally:
            self.under_way -= 1

    async def fail(self, client: Client, node: BrokerNode, sets: list[Addressed], kind: range) -> list[Any]:
        fails = self.share and (len(self.rows) == 2 or self.chance.random() < self.share)
        fault = self.chance.choice(["before", "after", "refused"]) if fails else None
        self.failed += fault is not None
        if fault == "before":
            raise NetworkError("the request was lost")
        answers: list[Any] = await send_together(client, node, sets, kind)
        if fault == "after":
            raise NetworkError("the answer was lost")
        if fault == "refused":
            refused = BrokerError("produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, broker=str(node))
            answers[self.chance.randrange(len(answers))] = refused
        return answers


@pytest.mark.parametrize("form", [Format.V2, Format.V1])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_fails_on_the_way_all_arrives_in_order(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, form: Format, seed: int
) -> None:
    """Exactly once where the target gives producer ids; elsewhere a set whose answer was lost is there again."""

    async def fill(here: Client, _: Client) -> None:
        configs = {"message.format.version": form.value}
        await admin.create_topic(here, admin.NewTopic("topic", PARTITIONS, configs=configs))
        for turn in range(10 * PARTITIONS):
            made = [Record(0, START + at, 0, None, b"%d" % at) for at in range(10 * turn, 10 * turn + 10)]
            options = ProduceOptions(codec=(Codec.GZIP, Codec.NONE)[turn % 2], format=form)
            await send(here, "topic", turn % PARTITIONS, made, options)

    pair.run(fill)
    faults = Faults(seed, 0.25)
    monkeypatch.setattr(outbox, "send_together", faults.send)
    pair.mirror()
    assert faults.failed > 0

    async def compare(here: Client, there: Client) -> None:
        for partition in range(PARTITIONS):
            source = [each[1:] for each in await records(here, "topic", partition)]
            target = [each[1:] for each in await records(there, "topic", partition)]
            order = [source.index(each) for each in target]
            assert all(each <= before + 1 for before, each in zip([-1, *order], order, strict=False))
            assert len(set(order)) == len(source) == 100
            if form is Format.V2:
                assert target == source

    pair.run(compare)


def test_a_request_holds_a_set_of_each_partition_and_five_are_under_way_at_most(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.fill("topic", [Codec.GZIP], partitions=PARTITIONS)
    faults = Faults(0, 0.0)
    monkeypatch.setattr(outbox, "send_together", faults.send)
    pair.mirror()
    assert all(len(set(row)) == len(row) for row in faults.rows)
    assert len(faults.rows) < 10 * PARTITIONS
    assert 1 < faults.most_under_way <= outbox.AT_ONCE


@pytest.mark.parametrize("kernels", ["plain", "compiled"])
def test_closed_and_opened_sets_and_markers_arrive_in_their_order_by_both_kernels(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, kernels: str
) -> None:
    """The headers of those that stay closed are made many at a time, of the others one by one."""
    monkeypatch.setenv("MAGICBYTE_KERNELS", kernels)
    pair.fill("topic", [Codec.LZ4, Codec.ZSTD, Codec.NONE], partitions=PARTITIONS)

    async def more(here: Client, _: Client) -> None:
        for form in (Format.V1, Format.V2):
            await admin.alter_configs(here, admin.ConfigResource.TOPIC, "topic", {"message.format.version": form.value})
            for partition in range(PARTITIONS):
                await send(here, "topic", partition, some(100, 10), ProduceOptions(codec=Codec.GZIP, format=form))

    pair.run(more)
    copied = pair.mirror()["topic"]
    assert (copied.closed_sets, copied.opened_sets) == (11 * PARTITIONS, PARTITIONS)

    async def compare(here: Client, there: Client) -> None:
        for partition in range(PARTITIONS):
            assert await records(there, "topic", partition) == await records(here, "topic", partition)

    pair.run(compare)


def test_requests_go_out_in_the_order_they_were_filled_in_whichever_is_answered_first() -> None:
    asked: dict[int, list[int]] = {}
    chance = random.Random(4)

    class Each:
        def __init__(self, partition: int) -> None:
            self.partition = partition
            self.next = 0
            self.under_way = 0

        def waiting(self) -> outbox.Sending | None:
            if self.next == 50 or self.under_way == outbox.AT_ONCE:
                return None
            source = memoryview(bytes(outbox.MOST_BYTES // 2))
            return outbox.Sending("t", self.partition, b"", KIND, 1, source, self.next, 0, 0, None)

        def sent(self) -> None:
            self.next += 1
            self.under_way += 1

        def answered(self, answer: Any) -> None:
            self.under_way -= 1

    async def fake(client: Any, node: Any, sets: list[outbox.Sending], kind: range) -> list[Produced]:
        for each in sets:
            asked.setdefault(each.partition, []).append(each.first)
        for _ in range(chance.randrange(5)):
            await asyncio.sleep(0)
        return [Produced(0, -1, -1)] * len(sets)

    async def work() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(outbox, "send_together", fake)
            async with asyncio.TaskGroup() as tasks:
                box = outbox.Outbox(Client("localhost:1"), BrokerNode(0, "localhost", 1), tasks)
                for partition in range(4):
                    box.offer(Each(partition))

    asyncio.run(work())
    assert asked == {partition: list(range(50)) for partition in range(4)}


def test_without_producer_ids_a_set_waits_for_the_one_in_front(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.fill("topic", [Codec.GZIP], Format.V1)
    faults = Faults(0, 0.0)
    monkeypatch.setattr(outbox, "send_together", faults.send)
    pair.mirror()
    assert faults.most_under_way == 1


def test_before_damage_all_that_is_sound_arrives_whatever_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(directory=tmp_path) as source, Broker() as target:
        pair = Pair(source, target)
        pair.fill("topic", [Codec.GZIP])
        with (tmp_path / "topic-0" / f"{0:020}.log").open("r+b") as log:
            log.seek(-1, os.SEEK_END)
            log.write(b"\xff")
        monkeypatch.setattr(outbox, "send_together", Faults(1, 0.5).send)
        with pytest.raises(CorruptRecordError, match=r"topic-0, position 0, offsets 90\.\.99: crc"):
            pair.mirror()
        assert len(pair.run(lambda _, there: records(there, "topic"))) == 90


def test_what_a_sender_hears_is_in_the_order_of_what_it_gave() -> None:
    """Also when a set does not fit into the request that is being filled."""
    heard: list[tuple[str, int]] = []
    rows: list[list[int]] = []

    class Each:
        def __init__(self, partition: int, sizes: list[int]) -> None:
            self.partition = partition
            self.sizes = sizes

        def waiting(self) -> outbox.Sending | None:
            if not self.sizes:
                return None
            source = memoryview(bytes(self.sizes[0]))
            return outbox.Sending("t", self.partition, b"", KIND, 1, source, 0, 1, 1, None)

        def sent(self) -> None:
            heard.append(("sent", self.partition))
            self.sizes.pop(0)

        def answered(self, answer: Any) -> None:
            heard.append(("answered", self.partition))

    async def fake(client: Any, node: Any, sets: list[Addressed], kind: range) -> list[Produced]:
        rows.append([each.partition for each in sets])
        return [Produced(0, -1, -1)] * len(sets)

    async def work() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(outbox, "send_together", fake)
            async with asyncio.TaskGroup() as tasks:
                box = outbox.Outbox(Client("localhost:1"), BrokerNode(0, "localhost", 1), tasks)
                senders = [Each(0, [outbox.MOST_BYTES, 5]), Each(1, [5, 5, 5])]
                for each in senders:
                    box.offer(each)

    asyncio.run(work())
    assert sorted(partition for row in rows for partition in row) == [0, 0, 1, 1, 1]
    assert all(len(set(row)) == len(row) for row in rows)
    for partition, count in ((0, 2), (1, 3)):
        assert [what for what, each in heard if each == partition].count("answered") == count
