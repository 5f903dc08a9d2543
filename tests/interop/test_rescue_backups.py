"""Golden logs of 0.8 to 0.11, whole, damaged and doubled, packed in each way, are rescued; Kafka's consumer judges."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import golden_data
from cli.command import run
from interop import jvm, kafka_oracle
from magicbyte.access.client import Client, admin
from magicbyte.engine.log.files.checkpoints import PARTITION_METADATA
from tools.rescue.old_backups import OldLog, Row, old_backups, rows

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SETTINGS = ("log.cleaner.enable=false", "offsets.topic.replication.factor=1", "group.initial.rebalance.delay.ms=0",
            "offsets.topic.num.partitions=1", "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1")  # fmt: skip
TARGETS = ("3.9.1", "4.3.1")
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUP = "group-shared"
WITH_GROUPS = {"0.9.0.1": False, "0.10.0.1": True, "0.10.2.2": False, "0.11.0.3": True}
"""Releases whose logs of a group are rescued; whether the topic is damaged."""
LOST = 5  # a record that the group has read, and that a damaged topic lacks

Json = dict[str, Any]


def consumed(bootstrap: str, topics: Iterable[str], version: str) -> dict[str, list[Row]]:
    """Return what the release's own consumer of committed records gets of partition 0 of each topic."""
    printed = jvm.consumed(version, bootstrap, topics, "read_committed")
    return {topic: [_row(line) for line in lines] for topic, lines in printed.items()}


def _row(line: str) -> Row:
    offset, timestamp, _, *cells = line.split("\t")
    key, value, *headers = (None if cell == "~" else cell for cell in cells)
    return Row(int(offset), int(timestamp), key, value, tuple(headers))


def numbered(records: Iterable[Row]) -> list[Row]:
    """Return records with the offsets that a cluster gives them."""
    return [row._replace(offset=number) for number, row in enumerate(records)]


def rescued(backup: Path, *arguments: str | Path) -> dict[str, Json]:
    """Rescue a backup; return the partitions of the receipt by topic."""
    result = run("rescue", backup, *arguments, "--json")
    assert result.exit_code == 1, result.stderr  # something is damaged in each of them
    receipt = json.loads(result.stdout)
    assert not receipt["complete"]
    assert (receipt["archive"], receipt["leftOut"], receipt["missing"]) == ([], {}, [])
    return {each["partition"].removesuffix("-0"): each for each in receipt["partitions"]}


def says_what_it_did(log: OldLog, said: Json) -> None:
    """Assert that a receipt names the damage, and only that; and of replicas the whole one."""
    assert (said["error"], said["same"], said["records"]) == (None, True, len(log.expected)), log.topic
    assert len(said["replicas"]) == (log.form == "doubled")
    if log.form == "doubled":
        assert "/broker-2/" in said["source"]
        assert said["replicas"][0]["bytes"] < said["bytesWhole"]
        assert said["replicas"][0]["why"]
    if log.damaged is not None:
        segment, position, _ = log.damaged
        places = [each for each in said["lost"] if each["path"].endswith(segment)]
        assert any(each["position"] <= position + 1 and position < each["end"] for each in places), (log, said["lost"])
    elif log.case.state != "crashed":
        assert said["lost"] == said["leftOut"] == []


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        (TARGETS[-1], ("folder", "backup.tar.zst", "packed-segments")),
        *(pytest.param(each, None, marks=pytest.mark.campaign) for each in TARGETS),
    ],
    ids=lambda value: value if isinstance(value, str) else "three" if value else "all",
)
def test_every_old_log_comes_into_a_real_broker_with_each_record_that_was_whole(
    version: str, kinds: tuple[str, ...] | None, tmp_path: Path
) -> None:
    made = old_backups(tmp_path / "backups")
    backups = {backup: logs for backup, logs in made.items() if kinds is None or backup.name in kinds}
    expected = {log.topic: numbered(log.expected) for logs in backups.values() for log in logs}
    with jvm.broker(version, tmp_path / "broker", *SETTINGS) as state:
        for backup, logs in backups.items():
            said = rescued(backup, "--to", state["bootstrap"], "--work", tmp_path / "work")
            assert said.keys() == {log.topic for log in logs}
            for log in logs:
                says_what_it_did(log, said[log.topic])
                assert said[log.topic]["atTarget"]["records"] == len(log.expected)
        differs(consumed(state["bootstrap"], expected, version), expected)
        for case in golden_data.log_case("0.8.2.2/basic-gzip"), golden_data.log_case("0.10.0.1/stored-v0-gzip"):
            topic, packed = f"single.{case.version}", tmp_path / f"{case.version}.log.gz"
            (segment,) = case.segments().values()
            packed.write_bytes(gzip.compress(segment))
            arguments = ("--to", state["bootstrap"], "--work", tmp_path / "work", "--as", f"{topic}-0")
            assert run("rescue", packed, *arguments).exit_code == 0
            differs(consumed(state["bootstrap"], [topic], version), {topic: numbered(rows(case))})


def differs(found: Mapping[str, list[Row]], expected: Mapping[str, list[Row]]) -> None:
    """Fail with the names of the topics whose records are not the expected ones."""
    wrong = {name: (len(found[name]), len(expected[name])) for name in expected if found[name] != expected[name]}
    assert not wrong


@pytest.mark.campaign
def test_every_old_log_comes_into_a_directory_that_a_real_broker_opens_at_the_same_offsets(tmp_path: Path) -> None:
    version = TARGETS[-1]
    backups = old_backups(tmp_path / "backups")
    expected = {log.topic: log.expected for logs in backups.values() for log in logs}
    folder = tmp_path / "broker"
    with jvm.broker(version, folder, *SETTINGS) as state:
        asyncio.run(make_topics(state["bootstrap"], expected))
    for backup, logs in backups.items():
        out = tmp_path / "out"
        said = rescued(backup, "--to", out)
        for log in logs:
            says_what_it_did(log, said[log.topic])
            replace_log(out / f"{log.topic}-0", folder / "data" / f"{log.topic}-0")
        shutil.rmtree(out)
    with jvm.broker(version, folder, *SETTINGS) as state:
        differs(consumed(state["bootstrap"], expected, version), expected)


async def make_topics(bootstrap: str, topics: Iterable[str]) -> None:
    async with Client(bootstrap) as client:
        await client.topics()
        for topic in topics:
            await admin.create_topic(client, admin.NewTopic(topic, configs={"retention.ms": "-1"}))


def replace_log(source: Path, target: Path) -> None:
    """Put a partition's files in the place of a broker's, which keeps its topic's id (docs/commands/rescue.md)."""
    for each in target.iterdir():
        if each.name != PARTITION_METADATA:
            each.unlink()
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(PARTITION_METADATA))


@pytest.mark.parametrize("version", [pytest.param("3.9.1", marks=pytest.mark.campaign), "4.3.1"])
def test_groups_of_old_logs_continue_after_the_record_they_had_read(version: str, tmp_path: Path) -> None:
    with jvm.broker(version, tmp_path / "broker", *SETTINGS) as state:
        for release, is_damaged in WITH_GROUPS.items():
            log, offsets = (golden_data.log_case(f"{release}/{name}") for name in ("basic-none", "consumer-offsets"))
            backup = tmp_path / release
            shutil.copytree(log.partition_dir(), backup / "basic-none-0")
            shutil.copytree(offsets.partition_dir(), backup / f"__consumer_offsets-{offsets.partition}")
            lost = damage(backup / "basic-none-0", log) if is_damaged else 0
            result = run("rescue", backup, "--to", state["bootstrap"], "--work", tmp_path / "work", "--json")
            assert result.exit_code == is_damaged, result.stderr
            read = committed_in(offsets)
            (said,) = json.loads(result.stdout)["groups"]
            assert (said["group"], said["offset"]) == (GROUP, read)
            assert said["atTarget"] == group_at(version, state["bootstrap"])
            if said["exact"]:
                assert said["atTarget"] == read - lost
            else:  # a batch with a hole is read again from its first record on
                assert is_damaged
                assert said["atTarget"] < read - lost
            asyncio.run(delete_topic(state["bootstrap"], "basic-none"))


def damage(folder: Path, case: golden_data.Case) -> int:
    """Change a byte of the batch that holds the record LOST; return how many records that are."""
    batch = next(each for each in case.batches() if each["baseOffset"] <= LOST <= each["lastOffset"])
    segment = folder / batch["segment"]
    data = bytearray(segment.read_bytes())
    data[batch["position"] + batch["size"] - 1] ^= 1
    segment.write_bytes(data)
    return int(batch["recordCount"])


def committed_in(case: golden_data.Case) -> int:
    """Return the last offset of the group in a log of offsets, as Kafka's decoder prints it."""
    printed = [re.search(r'"type":"1".*"topic":"basic-none".*"data":\{"offset":(\d+)', line) for line in case.decoded()]
    return int([found[1] for found in printed if found][-1])


def group_at(version: str, bootstrap: str) -> int:
    """Return the offset of the group that Kafka's tool shows."""
    arguments = ("--bootstrap-server", bootstrap, "--describe", "--group", GROUP, "--timeout", "60000")
    command = kafka_oracle.tool_command(version, GROUPS_TOOL, arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=jvm.SECONDS)
    (row,) = [line.split() for line in done.stdout.splitlines() if line.split()[:2] == [GROUP, "basic-none"]]
    return int(row[3])


async def delete_topic(bootstrap: str, topic: str) -> None:
    async with Client(bootstrap) as client:
        await client.topics()
        await admin.delete_topic(client, topic)
