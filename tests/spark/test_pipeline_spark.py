"""Pipelines on Spark itself: local, on a cluster of real processes, and while parts of it are killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from magicbyte.engine.codecs import Codec
from magicbyte.engine.records.encode import Format
from magicbyte.spark.pipeline import driver
from magicbyte.spark.pipeline.cluster import SparkCluster, cluster
from magicbyte.spark.pipeline.config import load
from spark.builders import below
from spark.conftest import GoldenLogs
from spark.in_process import InProcess
from spark.logs import some_records, write_partition
from stage_proof import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STAGES = """\
now = 2026-01-07T00:00:00Z
on-damage = "salvage"
[[stage]]
do = "verify"
depth = "deep"
[[stage]]
do = "convert"
format = "v2"
codec = "zstd"
[[stage]]
do = "compact"
topics = ["*"]
"""
PARTITIONS = 12
WAIT_SECONDS = 120


def written(folder: Path, source: Path, sink: str) -> Path:
    path = folder / f"{sink}.toml"
    path.write_text(f'{STAGES}[source]\npath = "{source}"\n[sink]\npath = "{sink}"\n')
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `logs`: partitions of three formats, one of them damaged; and `alone`: the output of no Spark."""
    folder = tmp_path_factory.mktemp("archive")
    kinds = [(Format.V0, Codec.GZIP), (Format.V1, Codec.SNAPPY), (Format.V2, Codec.NONE)]
    for number in range(PARTITIONS):
        target, codec = kinds[number % 3]
        magic = int(target.value)
        parts = [some_records(1500, first=first, magic=magic) for first in range(0, 4500, 1500)]
        write_partition(folder / "logs", f"orders-{number}", *parts, target=target, codec=codec, per_batch=100)
    path = folder / "logs/orders-2" / f"{1500:020}.log"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    done = driver.run(load(written(folder, folder / "logs", "alone")), context=InProcess())
    assert done.status == 0
    return folder


@pytest.fixture(scope="module")
def workers() -> Iterator[SparkCluster]:
    with cluster(2) as running:
        yield running


def test_local_spark_gives_what_one_process_gives(spark: "SparkSession", archive: Path) -> None:
    told: dict[str, tuple[int, int]] = {}

    def tell(stage: str, size: int, units: int) -> None:
        before = told.get(stage, (0, 0))
        told[stage] = before[0] + size, before[1] + units

    given = load(written(archive, archive / "logs", "local"))
    done = driver.run(given, context=spark.sparkContext, progress=tell)
    assert done.status == 0
    assert contents(archive / "local") == contents(archive / "alone")
    whole = sum(unit["bytes"] for unit in done.units)
    assert told == dict.fromkeys(["", "verify", "convert", "compact"], (whole, PARTITIONS)) | {
        "salvage": told["salvage"]
    }
    assert told["salvage"][1] == 1


def test_a_partition_that_is_converted_by_all_workers_is_as_from_one(
    spark: "SparkSession", archive: Path, tmp_path: Path
) -> None:
    for sink, above in (("whole", 1 << 30), ("parted", 1)):
        stage = f'[[stage]]\ndo = "convert"\nformat = "v2"\ncodec = "zstd"\npart-above = {above}\n'
        source = f'[source]\npath = "{archive / "logs"}"\ntopics = ["orders"]\npartitions = [1]\n'
        (tmp_path / f"{sink}.toml").write_text(f'{stage}{source}[sink]\npath = "{sink}"\n')
        done = driver.run(load(tmp_path / f"{sink}.toml"), context=spark.sparkContext)
        assert (done.status, done.units[0]["stages"][0].get("parts")) == (0, 3 if above == 1 else None)
    assert contents(tmp_path / "parted") == contents(tmp_path / "whole")


def test_golden_logs_go_through_spark_as_through_one_process(
    spark: "SparkSession", golden: GoldenLogs, tmp_path: Path
) -> None:
    runs = {}
    for sink, context in (("alone", InProcess()), ("local", spark.sparkContext)):
        path = tmp_path / f"{sink}.toml"
        stages = '[[stage]]\ndo = "digest"\n[[stage]]\ndo = "convert"\nformat = "v1"\ncodec = "gzip"\n'
        path.write_text(
            f'{stages}[source]\npath = "{golden.path}"\ntopics = ["g3.9.1.basic-*"]\n[sink]\npath = "{sink}"\n'
        )
        runs[sink] = driver.run(load(path), context=context)
    assert contents(tmp_path / "alone") == contents(tmp_path / "local")
    digests = [[(unit["unit"], unit["stages"][0]["digest"]) for unit in each.units] for each in runs.values()]
    assert digests[0] == digests[1]


def test_a_cluster_gives_what_one_process_gives(workers: SparkCluster, archive: Path) -> None:
    command = start(written(archive, archive / "logs", "cluster"), workers)
    _, said = command.communicate(timeout=WAIT_SECONDS)
    assert command.returncode == 0, said
    assert contents(archive / "cluster") == contents(archive / "alone")
    assert not (archive / "cluster/.pipeline").exists()


def start(path: Path, workers: SparkCluster, *options: str) -> subprocess.Popen[str]:
    """Start `magicbyte pipeline run` on the cluster."""
    arguments = ["pipeline", "run", str(path), "--master", workers.url, *options]
    return subprocess.Popen(
        [sys.executable, "-m", "magicbyte", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def python_worker(workers: SparkCluster) -> int | None:
    """Return an executor's Python process."""
    found = {pid: line for worker in workers.pids[1:] for pid, line in below(worker).items()}
    return next((pid for pid, line in found.items() if "pyspark.daemon" in line), None)


def executor(workers: SparkCluster) -> int | None:
    """Return an executor."""
    found = {pid: line for worker in workers.pids[1:] for pid, line in below(worker).items()}
    return next((pid for pid, line in found.items() if "ExecutorBackend" in line), None)


def wait_until(holds: Callable[[], bool], running: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("victim", "finished"),
    [("driver", 3), ("executor", 2), ("python", 2), pytest.param("driver", 0, marks=pytest.mark.campaign)],
)
def test_whichever_process_is_killed_the_output_is_that_of_an_undisturbed_run(
    workers: SparkCluster, archive: Path, victim: str, finished: int
) -> None:
    sink = f"killed-{victim}-{finished}"
    path, folder = written(archive, archive / "logs", sink), archive / sink / ".pipeline"
    running = start(path, workers)
    wait_until(lambda: len(list(folder.glob("orders-*.json"))) >= finished and any(folder.glob("orders-*")), running)
    pid = running.pid if victim == "driver" else executor(workers) if victim == "executor" else python_worker(workers)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    _, said = running.communicate(timeout=WAIT_SECONDS)
    if victim == "driver":
        assert running.returncode == -signal.SIGKILL
        again = start(path, workers, "--resume")
        _, said = again.communicate(timeout=WAIT_SECONDS)
        assert again.returncode == 0, said
    else:
        assert running.returncode == 0, said
    assert contents(archive / sink) == contents(archive / "alone")
    assert not folder.exists()
