"""A migration between formats at any speed and under faults: no reader is sent what it cannot read."""

from __future__ import annotations

import asyncio

import pytest

from builders import first_of
from magicbyte.engine.log.live.segment import FileSlice
from magicbyte.engine.records.encode import Format
from magicbyte.server.apis import fetch
from magicbyte.server.apis.broker_parts import BrokerParts
from magicbyte.server.partitions.partition import ServedPartition
from simulation.cluster_faults import UnsoundError
from simulation.migration_histories import STEPS, FormatStep, MigrationHistory


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 1 + len(STEPS)))]
)
def test_every_reader_reads_at_any_point_of_a_migration(seed: int) -> None:
    history = MigrationHistory(seed)
    history.run()
    assert len(history.acknowledged) > 20
    assert len(history.steps_taken) >= 6
    assert sum(history.faults.values()) > len(history.steps_taken)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_every_reader_reads_where_a_fetch_names_the_last_epoch(seed: int) -> None:
    """From 2.7 on the leader compares it with its own."""
    history = MigrationHistory(seed, step=FormatStep(("0.10.2", "2.8"), (Format.V1, Format.V2), 3))
    history.run()
    assert len(history.acknowledged) > 20


@pytest.mark.slow
def test_a_history_is_the_same_whatever_ran_before_it_in_the_process() -> None:
    digests = []
    for seed in (1, 2, 1):
        history = MigrationHistory(seed, sends=20)
        history.run()
        digests.append((history.world.digest(), history.world.loop.turns, history.steps_taken))
    assert digests[0] == digests[2] != digests[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_of(range(100, 140), len(STEPS)))
def test_more_of_them(seed: int) -> None:
    MigrationHistory(seed).run()


class RolledBackHistory(MigrationHistory):
    """All brokers store the new format for a while, and the old one again."""

    async def _migrate(self) -> None:
        for form in (0, 1, 0):
            for each in self.brokers:
                await self._bounce(each, 1, form)
        await asyncio.sleep(20)


@pytest.mark.slow
def test_brokers_that_go_by_the_setting_as_kafkas_do_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a roll-back they give old readers the new format, which is there still."""
    read = fetch._newest

    async def by_setting(
        broker: BrokerParts, partition: ServedPartition, found: FileSlice, target: int
    ) -> tuple[int, FileSlice]:
        newest, found = await read(broker, partition, found, target)
        setting = broker.runtime.config.log_message_format_version
        return (min(newest, target) if setting.magic <= target else newest), found

    monkeypatch.setattr(fetch, "_newest", by_setting)
    with pytest.raises(UnsoundError, match="was sent magic"):
        RolledBackHistory(2).run()
