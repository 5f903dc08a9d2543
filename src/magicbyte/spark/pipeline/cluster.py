"""Run a standalone Spark cluster on this machine from the installed PySpark: a master and workers as processes.

For tests, and to try a pipeline before it runs on many machines. Loopback only.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from magicbyte.spark import SparkUnavailableError, check_installed

_START_SECONDS, _STOP_SECONDS, _POLL_SECONDS = 120.0, 20.0, 0.1
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_LISTEN = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile(r"Successfully registered with master (\S+)")


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A running cluster. `url`: the master for `pipeline run`. `pids`: of the master and its workers."""

    url: str
    pids: tuple[int, ...]


@contextlib.contextmanager
def cluster(workers: int = 2, *, cores: int = 1, memory: str = "1g") -> Iterator[SparkCluster]:
    """Start a master and `workers` workers, with `cores` and `memory` each for executors; stop them at the end.

    Raises SparkUnavailableError, with the last output of the process, if one does not start.
    """
    check_installed()
    with tempfile.TemporaryDirectory(prefix="magicbyte-cluster-") as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        master, url = stack.enter_context(_process(home, "master", [_MASTER, *_LISTEN], _URL))
        started = [
            stack.enter_context(worker(home, number, url, cores=cores, memory=memory)) for number in range(workers)
        ]
        yield SparkCluster(url, (master.pid, *started))


@contextlib.contextmanager
def worker(home: Path, number: int, url: str, *, cores: int = 1, memory: str = "1g") -> Iterator[int]:
    """Start another worker for the master at `url`, with files in `home`; yield its pid. Raises as `cluster` does."""
    share = ["--cores", str(cores), "--memory", memory, "--work-dir", str(home / f"work-{number}"), url]
    with _process(home, f"worker-{number}", [_WORKER, *_LISTEN, *share], _REGISTERED) as (process, _):
        yield process.pid


@contextlib.contextmanager
def _process(
    home: Path, name: str, arguments: list[str], sign: re.Pattern[str]
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start one of Spark's daemons, wait until its output matches `sign`, and stop it at the end."""
    import pyspark

    spark = Path(pyspark.__file__).parent
    log = home / f"{name}.log"
    environment = os.environ | {
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_DIRS": str(home / "local"),
    }
    with log.open("wb") as output:
        command = [str(spark / "bin" / "spark-class"), *arguments]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    try:
        yield process, _wait_for(process, log, sign, name)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], said: Path, sign: re.Pattern[str], name: str) -> str:
    """Wait until the output matches `sign`, and return the match's group. Raises SparkUnavailableError."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        text = said.read_text(errors="replace")
        if found := sign.search(text):
            return found[1]
        if process.poll() is not None or time.monotonic() > deadline:
            last = next((line for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
            raise SparkUnavailableError(f"the cluster's {name} did not start: {last}")
        time.sleep(_POLL_SECONDS)
