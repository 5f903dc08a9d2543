"""Old backups into a real Kafka 4, and into our directory that one opens."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import golden_data
from cli.command import run
from interop import jvm
from magicbyte.access.client import Client, admin
from magicbyte.engine.log.files.checkpoints import PARTITION_METADATA
from magicbyte.tools.rescue import rescue as steps
from tools.mirror.pair import Seen, dies, records
from tools.rescue.builders import backup_of, by_partition, no_steps, receipt_of

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SETTINGS = ("log.cleaner.enable=false", "offsets.topic.replication.factor=1", "group.initial.rebalance.delay.ms=0",
            "offsets.topic.num.partitions=1", "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1")  # fmt: skip
CASES = ("0.8.2.2/basic-gzip", "0.9.0.1/compact-snappy.before", "0.10.2.2/crash-flip.crashed", "0.11.0.3/txn-none",
         "1.1.1/consumer-offsets")  # fmt: skip
PLACED = "0.10.2.2/basic-lz4"


def values(found: Seen) -> list[bytes | None]:
    return [each[3] for each in found]


def seen(bootstrap: str, topic: str) -> Seen:
    async def work() -> Seen:
        async with Client(bootstrap) as client:
            return await records(client, topic)

    return asyncio.run(work())


def made(bootstrap: str, topic: str) -> None:
    async def work() -> None:
        async with Client(bootstrap) as client:
            await client.topics()
            await admin.create_topic(client, admin.NewTopic(topic, configs={"retention.ms": "-1"}))

    asyncio.run(work())


def test_a_real_broker_gets_an_old_backup_once_and_opens_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, folder = backup_of(CASES, tmp_path / "backup"), tmp_path / "broker"
    with jvm.broker("4.3.1", folder, *SETTINGS) as state:
        bootstrap, work = state["bootstrap"], tmp_path / "work"
        target = steps.ClusterTarget(bootstrap, lambda: Client(bootstrap))

        def once() -> None:
            steps.rescue_into(backup, target, work, steps.RescueOptions(no_steps))

        for at, arrives in ((1, True), (3, False)):
            assert dies(once, monkeypatch, at, arrives=arrives)
        found = by_partition(receipt_of(backup, "--to", bootstrap, "--work", work, status=1))
        for name in CASES[:-1]:
            case = golden_data.log_case(name)
            arrived = values(seen(bootstrap, case.topic))
            said = found[f"{case.topic}-0"]
            assert said["same"]
            assert said["records"] == len(arrived)
            recovered = golden_data.values(name.replace(".crashed", ".recovered"))
            assert arrived[: len(recovered)] == recovered
            assert len(arrived) == len(recovered) or not case.has_records
        made(bootstrap, "placed")
    out = tmp_path / "out"
    source = golden_data.log_case(PLACED).partition_dir()
    assert run("rescue", source, "--as", "placed-0", "--to", out).exit_code == 0
    placed = folder / "data" / "placed-0"
    for each in placed.iterdir():
        if each.name != PARTITION_METADATA:
            each.unlink()
    shutil.copytree(out / "placed-0", placed, dirs_exist_ok=True)
    with jvm.broker("4.3.1", folder, *SETTINGS) as state:
        assert values(seen(state["bootstrap"], "placed")) == golden_data.values(PLACED)
