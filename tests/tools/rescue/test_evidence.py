"""What a receipt says is rescued, missing or not a user's: by the evidence of the backup."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.command import run
from magicbyte.engine.codecs import Codec
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.ports import TopicPartition
from magicbyte.testing import Broker
from magicbyte.tools.mirror.offset_topic import OFFSET_TOPIC
from simulation import damaged_logs
from tools.rescue.builders import by_partition, receipt_of

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 0)


def log_directory(
    folder: Path,
    logs: dict[str, int],
    marks: dict[TopicPartition, int] | None = None,
    cluster: str | None = None,
    seed: int = 1,
) -> Path:
    """Write partition folders with so many batches of one record, and the files beside them."""
    for name, count in logs.items():
        (folder / name).mkdir(parents=True)
        batches = [damaged_logs.batch(random.Random(seed + at), 1, Codec.NONE, None, at) for at in range(count)]
        (folder / name / f"{0:020}.log").write_bytes(b"".join(batches))
    (folder / checkpoints.HIGH_WATERMARK).write_bytes(checkpoints.format_offset_checkpoint(marks or {}))
    if cluster is not None:
        (folder / checkpoints.META_PROPERTIES).write_text(f"version=0\nbroker.id=1\ncluster.id={cluster * 22}\n")
    return folder


@pytest.mark.parametrize("is_cluster", [True, False])
def test_the_log_of_a_quorum_is_left_out_and_not_counted(is_cluster: bool, tmp_path: Path) -> None:
    backup = log_directory(tmp_path / "kr", {"orders-0": 10, "__cluster_metadata-0": 50}, {ORDERS: 10})
    with Broker() as broker:
        to = broker.bootstrap_servers if is_cluster else tmp_path / "out"
        dry = receipt_of(backup, "--to", to, "--work", tmp_path / "w", "--dry-run")
        receipt = receipt_of(backup, "--to", to, "--work", tmp_path / "w")
    assert list(by_partition(dry)) == list(by_partition(receipt)) == ["orders-0"]
    assert receipt["records"] == 10
    assert receipt["complete"]
    ((path, why),) = receipt["leftOut"].items()
    assert path.endswith("__cluster_metadata-0")
    assert "quorum" in why


@pytest.mark.parametrize("command", [("salvage",), ("convert", "--to", "v2")])
def test_the_log_of_a_quorum_is_no_topic_of_a_new_log_directory(command: tuple[str, ...], tmp_path: Path) -> None:
    backup = log_directory(tmp_path / "kr", {"orders-0": 10, "__cluster_metadata-0": 50}, {ORDERS: 10})
    done = run(*command, backup, "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert "quorum" in done.stderr
    assert [each.name for each in discover(tmp_path / "out")] == ["orders-0"]


def test_a_mirror_of_all_topics_does_not_plan_the_log_of_a_quorum(tmp_path: Path) -> None:
    backup = log_directory(tmp_path / "kr", {"orders-0": 10, "__cluster_metadata-0": 50})
    with Broker() as broker:
        done = run("mirror", "--from", backup, "--to", broker.bootstrap_servers, "--topics", ".*", "--explain")
    assert "orders" in done.stdout
    assert "__cluster_metadata" not in done.stdout


def missing_folder(backup: Path) -> None:
    shutil.rmtree(backup / "payments-0")


def missing_log(backup: Path) -> None:
    (backup / "payments-0" / f"{0:020}.log").unlink()
    (backup / "payments-0" / checkpoints.LEADER_EPOCHS).write_text("0\n1\n0 0\n")


def missing_end(backup: Path) -> None:
    path = backup / "payments-0" / f"{0:020}.log"
    data = path.read_bytes()
    path.write_bytes(data[: data.rindex((6).to_bytes(8, "big"))])


def dead_link(backup: Path) -> None:
    path = backup / "payments-0" / f"{0:020}.log"
    path.unlink()
    path.symlink_to("gone")


def only_stray(backup: Path) -> None:
    (backup / "payments-0").rename(backup / f"payments-0.{'0' * 32}-stray")


def only_future(backup: Path) -> None:
    (backup / "payments-0").rename(backup / f"payments-0.{'0' * 32}-future")


GAPS = {each.__name__: each for each in (missing_folder, missing_log, missing_end, dead_link, only_stray, only_future)}


@pytest.mark.parametrize("command", ["rescue", "salvage", "convert"])
@pytest.mark.parametrize("gap", GAPS)
def test_what_the_backup_proves_to_be_missing_makes_the_status_1(gap: str, command: str, tmp_path: Path) -> None:
    backup = log_directory(tmp_path / "b", {"orders-0": 10, "payments-0": 7}, {ORDERS: 10, PAYMENTS: 7})
    GAPS[gap](backup)
    if command == "rescue":
        receipt = receipt_of(backup, "--to", tmp_path / "out", status=1)
        assert not receipt["complete"]
        assert receipt["gaps"] or receipt["leftOut"]
        assert by_partition(receipt)["orders-0"]["same"]
    else:
        to = ("--to", "v2") if command == "convert" else ()
        done = run(command, *to, backup, "--out", tmp_path / "out")
        assert done.exit_code == 1
        assert "payments-0" in done.stderr


@pytest.mark.parametrize("gap", [only_stray, only_future], ids=["stray", "future"])
def test_a_folder_that_is_left_out_is_rescued_by_its_own_path(gap: Callable[[Path], None], tmp_path: Path) -> None:
    backup = log_directory(tmp_path / "b", {"orders-0": 10, "payments-0": 7}, {ORDERS: 10, PAYMENTS: 7})
    gap(backup)
    ((path, why),) = receipt_of(backup, "--to", tmp_path / "out", status=1)["leftOut"].items()
    assert "give this path itself to rescue it" in why
    receipt = receipt_of(path, "--to", tmp_path / "its")
    assert by_partition(receipt)["payments-0"]["same"]
    assert receipt["records"] == 7


def test_what_one_replica_lacks_and_the_chosen_one_has_is_not_missing(tmp_path: Path) -> None:
    log_directory(tmp_path / "b" / "1", {"orders-0": 5}, {ORDERS: 10})
    log_directory(tmp_path / "b" / "2", {"orders-0": 10}, {ORDERS: 10})
    receipt = receipt_of(tmp_path / "b", "--to", tmp_path / "out")
    assert receipt["records"] == 10
    assert receipt["gaps"] == []


def test_logs_of_two_clusters_are_no_replicas(tmp_path: Path) -> None:
    log_directory(tmp_path / "b" / "prod", {"orders-0": 10}, cluster="A")
    log_directory(tmp_path / "b" / "test", {"orders-0": 7}, cluster="B")
    done = run("rescue", tmp_path / "b", "--to", tmp_path / "out", "--work", tmp_path / "w")
    assert done.exit_code == 2
    assert "orders-0 is in two clusters" in done.stderr
    assert not (tmp_path / "out").exists()
    (tmp_path / "b" / "test" / checkpoints.META_PROPERTIES).unlink()
    shutil.copy(tmp_path / "b" / "prod" / checkpoints.META_PROPERTIES, tmp_path / "b" / "test")
    assert receipt_of(tmp_path / "b", "--to", tmp_path / "out")["records"] == 10


def test_replicas_with_other_content_at_the_same_offsets_are_reported(tmp_path: Path) -> None:
    log_directory(tmp_path / "b" / "1", {"orders-0": 10})
    log_directory(tmp_path / "b" / "2", {"orders-0": 9}, seed=1)
    log_directory(tmp_path / "b" / "3", {"orders-0": 4}, seed=77)
    receipt = receipt_of(tmp_path / "b", "--to", tmp_path / "out", status=1)
    replicas = by_partition(receipt)["orders-0"]["replicas"]
    assert {Path(each["path"]).parent.name: each["differing"] for each in replicas} == {"2": 0, "3": 4}
    assert not receipt["complete"]


def test_a_receipt_counts_the_records_that_the_cluster_got(tmp_path: Path) -> None:
    backup = log_directory(tmp_path / "b", {"orders-0": 10, "__consumer_offsets-0": 0})
    with Broker() as broker:
        done = run("rescue", backup, "--to", broker.bootstrap_servers, "--work", tmp_path / "w")
    assert "10 records of 1 partition, read back" in done.stdout
    assert OFFSET_TOPIC in done.stdout


@pytest.mark.parametrize("new_cluster", [True, False])
def test_a_log_for_a_new_cluster_has_no_topic_id_of_the_old_one(new_cluster: bool, tmp_path: Path) -> None:
    backup = log_directory(tmp_path / "b", {"orders-0": 3})
    (backup / "orders-0" / checkpoints.PARTITION_METADATA).write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    option = "--new-cluster" if new_cluster else "--same-cluster"
    for command in (("salvage",), ("convert", "--to", "v2")):
        out = tmp_path / command[0]
        assert run(*command, backup, "--out", out, option).exit_code == 0
        assert (out / "orders-0" / checkpoints.PARTITION_METADATA).exists() != new_cluster
