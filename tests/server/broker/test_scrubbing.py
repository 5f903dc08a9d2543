"""Brokers of a cluster find damaged batches of their logs, and repair them from each other."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from magicbyte.access.client.produce import send
from magicbyte.engine.ports import TopicPartition
from magicbyte.server.broker.broker import Broker
from magicbyte.server.partitions import scrubbing
from server.broker.builders import records
from server.broker.clusters import Members, replicated, until, values

SCRUBBED = {"replica_scrub_interval_ms": "50"}
KEY = TopicPartition("t", 0)


def log_file(broker: Broker) -> Path:
    return Path(broker.logs.path) / "t-0" / f"{0:020}.log"


def flip(broker: Broker, position: int) -> bytes:
    """Flip a bit of a replica; return the whole log as it was."""
    before = log_file(broker).read_bytes()
    with log_file(broker).open("r+b") as file:
        file.seek(position)
        file.write(bytes([before[position] ^ 4]))
    return before


async def filled(members: Members) -> None:
    await until(lambda: members.is_settled("t"))


@pytest.mark.parametrize("leads", [True, False])
async def test_a_flipped_bit_is_repaired_on_leaders_and_followers(
    folder: Path, caplog: pytest.LogCaptureFixture, leads: bool
) -> None:
    async with replicated(folder, 3, **SCRUBBED) as (members, client):
        for _ in range(5):
            await send(client, "t", 0, records(4))
        await filled(members)
        leader = members.leader("t")
        broker = leader if leads else next(each for each in members.brokers.values() if each is not leader)
        size = log_file(broker).stat().st_size // 5
        before = flip(broker, 2 * size + 70)
        await until(lambda: broker.metrics.scrub_repaired == 1)
        assert log_file(broker).read_bytes() == before
        (copy,) = (Path(broker.logs.path) / "quarantine").iterdir()
        assert copy.stat().st_size == size
        assert f"positions {2 * size} to {3 * size}, offsets 8 to 11" in caplog.text
        assert copy.name in caplog.text
        await send(client, "t", 0, records(4))
        assert len(await values(client, "t")) == 24
        await filled(members)
        for each in members.brokers.values():
            assert len(each.logs[KEY].segments) == (2 if each is broker else 1)


async def test_damage_on_which_no_majority_agrees_is_reported_and_left(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with replicated(folder, 3, **SCRUBBED) as (members, client):
        await send(client, "t", 0, records(4))
        await filled(members)
        one, other, _ = members.brokers.values()
        for broker, position in ((one, 70), (other, 71)):
            flip(broker, position)
        damaged = [log_file(each).read_bytes() for each in (one, other)]
        await until(lambda: one.metrics.scrub_unrepaired == other.metrics.scrub_unrepaired == 1)
        await asyncio.sleep(0.2)
        assert [log_file(each).read_bytes() for each in (one, other)] == damaged
        assert not (Path(one.logs.path) / "quarantine").exists()
        assert f"damaged batches in {log_file(one)}, positions 0 to" in caplog.text
        assert "at most 1 of 3 replicas have the same sound bytes" in caplog.text


async def test_a_range_that_is_too_large_for_memory_is_reported_and_left(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "MOST_REPLACED_BYTES", 100)
    async with replicated(folder, 3, **SCRUBBED) as (members, client):
        await send(client, "t", 0, records(4))
        await filled(members)
        broker = members.leader("t")
        before = log_file(broker).read_bytes()
        assert len(before) > 100
        flip(broker, 70)
        await until(lambda: broker.metrics.scrub_unrepaired == 1)
        assert log_file(broker).read_bytes() != before
        assert f"expected a range of up to 100 bytes, found {len(before)}" in caplog.text


async def test_two_replicas_are_no_majority_for_the_bytes_of_one(folder: Path) -> None:
    async with replicated(folder, 2, **SCRUBBED) as (members, client):
        await send(client, "t", 0, records(4))
        await filled(members)
        broker = members.leader("t")
        flip(broker, 70)
        await until(lambda: broker.metrics.scrub_unrepaired == 1)
        assert broker.metrics.scrub_repaired == 0


async def test_without_the_setting_nothing_is_checked(folder: Path) -> None:
    async with replicated(folder, 1) as (members, client):
        await send(client, "t", 0, records(4))
        await asyncio.sleep(0.2)
        assert members.leader("t").metrics.scrubbed_bytes == 0
