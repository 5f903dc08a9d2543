"""Real brokers of a new cluster open logs of an old one: no transaction is open, producers with old ids are let in."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from golden_data import log_case
from interop import jvm
from interop.test_transactional_clients import until_ended
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.entry import entries
from magicbyte.tools.offline.convert import ConvertOptions, convert_partitions, partitions_to_convert
from magicbyte.tools.offline.new_cluster import FIRST_OLD_ID
from magicbyte.tools.offline.salvage import SalvageOptions, salvage_logs

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SETTINGS = ("log.cleaner.enable=false", "log.retention.ms=-1", "transaction.state.log.replication.factor=1",
            "offsets.topic.replication.factor=1", "group.initial.rebalance.delay.ms=0")  # fmt: skip
OPEN, CUT = "open", "cut"
SOURCES = {OPEN: "txn-open-none", CUT: "txn-none"}
"""Topics: a transaction that the old cluster left open; one whose marker, and all after it, was lost."""


def batches(path: Path) -> list[tuple[int, RecordBatch]]:
    return [(at, each) for at, each in entries(path.read_bytes()) if isinstance(each, RecordBatch)]


def producer_ids(folder: Path) -> set[int]:
    """Return the producers of a partition's batches."""
    return {each.producer_id for path in folder.glob("*.log") for _, each in batches(path)} - {-1}


def written(version: str, folder: Path) -> dict[str, Path]:
    """Write both logs for a new cluster; return their folders."""
    case = log_case(f"{version}/{SOURCES[OPEN]}")
    (done,) = convert_partitions(
        partitions_to_convert([str(case.partition_dir())], as_=TopicPartition(OPEN, 0)),
        folder / "converted",
        ConvertOptions(Format.V2, version=version, new_cluster=True),
    )
    assert done.ended_transactions > 0
    source = folder / "old" / f"{CUT}-0"
    shutil.copytree(log_case(f"{version}/{SOURCES[CUT]}").partition_dir(), source)
    last = max(source.glob("*.log"))
    marker = next(at for at, each in reversed(batches(last)) if each.is_control)
    with last.open("r+b") as file:
        file.truncate(marker)
    for path in source.iterdir():
        if path.suffix != ".log":
            path.unlink()
    (salvaged,) = salvage_logs(
        {TopicPartition(CUT, 0): discover([str(source)])[0]},
        folder / "salvaged",
        SalvageOptions(version=version, new_cluster=True),
    )
    assert salvaged.report.ended_transactions == 1
    return {OPEN: done.folder, CUT: salvaged.folder}


def place(data: Path, topic: str, source: Path) -> None:
    """Make the log the topic's partition; the topic's id stays."""
    folder = data / f"{topic}-0"
    known = folder / checkpoints.PARTITION_METADATA
    kept = known.read_bytes() if known.exists() else None
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(checkpoints.PARTITION_METADATA))
    if kept is not None:
        (folder / checkpoints.PARTITION_METADATA).write_bytes(kept)


def read_committed(bootstrap: str, topic: str) -> list[Any]:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": "read_committed",
         "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True}
    )  # fmt: skip
    found = []
    try:
        consumer.assign([Place(topic, 0, 0)])
        while True:
            (message,) = consumer.consume(1, 120) or pytest.fail("the consumer got nothing for 120 seconds")
            if message.error() is not None:
                return found
            found.append(message)
    finally:
        consumer.close()


def produce(bootstrap: str, transactional_id: str | None = None) -> None:
    """Send a record to each topic by a producer that is new to the cluster."""
    from confluent_kafka import Producer

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    producer, refused = Producer(settings), []
    if transactional_id is not None:
        producer.init_transactions(120)
        producer.begin_transaction()
    for topic in SOURCES:
        producer.produce(topic, b"appended", partition=0, on_delivery=lambda error, _: refused.append(error))
    assert producer.flush(120) == 0
    if transactional_id is not None:
        producer.commit_transaction(120)
    assert refused == [None, None]


@pytest.mark.parametrize(
    ("version", "recovers"),
    [
        ("2.8.2", False),
        pytest.param("2.8.2", True, marks=pytest.mark.campaign),
        pytest.param("3.9.1", False, marks=pytest.mark.campaign),
        pytest.param("3.9.1", True, marks=pytest.mark.campaign),
        pytest.param("4.3.1", False, marks=pytest.mark.campaign),
        ("4.3.1", True),
    ],
    ids=[f"{version}-{how}" for version in ("2.8.2", "3.9.1", "4.3.1") for how in ("clean", "recovers")],
)
def test_a_new_cluster_takes_the_logs_of_an_old_one(version: str, recovers: bool, tmp_path: Path) -> None:
    logs = written(version, tmp_path)
    folder = tmp_path / "broker"
    data = folder / "data"
    if version.startswith("4."):  # only topics that the metadata log knows are taken
        with jvm.broker(version, folder, *SETTINGS) as state:
            produce(state["bootstrap"])
    for topic, source in logs.items():
        place(data, topic, source)
        if recovers:  # from the log alone: what it says of producers is what the broker knows
            for path in (data / f"{topic}-0").iterdir():
                if path.suffix not in (".log", "") and path.name != checkpoints.PARTITION_METADATA:
                    path.unlink()
    if recovers:
        for name in (checkpoints.CLEAN_SHUTDOWN, checkpoints.RECOVERY_POINT):
            (data / name).unlink(missing_ok=True)
    old_ids = {topic: producer_ids(log_case(f"{version}/{name}").partition_dir()) for topic, name in SOURCES.items()}
    count = max(max(each) for each in old_ids.values()) + 2  # ids are given from 0 on: by then each was given once more
    with jvm.broker(version, folder, *SETTINGS) as state:
        produce(state["bootstrap"])  # before KRaft this makes the topics, of what was loaded
        before = {topic: read_committed(state["bootstrap"], topic) for topic in logs}
        for transactional_id in (*[None] * count, "new", "newer"):
            produce(state["bootstrap"], transactional_id)
        for topic in logs:
            until_ended(state["bootstrap"], topic)
            after = read_committed(state["bootstrap"], topic)
            first = len(before[topic])
            assert [each.value() for each in after[first:]] == [b"appended"] * (count + 2)
            assert [(each.offset(), each.value()) for each in after[:first]] == [
                (each.offset(), each.value()) for each in before[topic]
            ]
            kept = [each["offset"] for each in log_case(f"{version}/{SOURCES[topic]}").committed()]
            *found, _ = [each.offset() for each in before[topic]]
            assert after[first - 1].value() == b"appended"
            assert found
            if topic == OPEN:  # and what the open transaction held back
                assert found[: len(kept)] == kept
            else:  # without the transaction that was cut
                assert found == [each for each in kept if each in found]
    said = (folder / "broker.log").read_text()
    for topic in logs:
        assert "truncat" not in "".join(
            line.lower() for line in said.splitlines() if f"{topic}-0" in line and "epoch" in line
        )
    for topic, ids in old_ids.items():
        known = producer_ids(data / f"{topic}-0")
        assert {FIRST_OLD_ID + each for each in ids} & known
        if not version.startswith("4."):  # which took the next block of ids when it started again
            assert ids & known, "a new producer was given the id of an old one"
