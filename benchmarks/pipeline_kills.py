"""A pipeline whose parts are killed at 50 random moments each: is the output that of an undisturbed run?

A small archive (archive.py; four partitions damaged, one torn) is verified in depth, converted to v2 zstd and
compacted, with `on-damage = "salvage"`, on a standalone cluster of a master and two workers, real processes of this
machine. The undisturbed run is one at local[2]. In each round the sink is a new one, and one process
gets SIGKILL:

driver   the process of `pipeline run`; then the same with --resume
worker   one of Spark's workers; another one takes its place for the next round. Its executor sometimes continues
         its task, though the driver has given it up, and is killed when the run is over
python   the daemon of an executor's Python processes, or one of them
executor the executor's Java process

Moments are seeded and lie evenly between the first attempt at a partition (0) and the end of an undisturbed run (1). A
kill that comes too late, when all is done, is reported and not counted. Compared after each round: SHA-256 of all
files of all partitions; that nothing else is left in the sink; that all processes below the killed one are gone.

Run: python benchmarks/pipeline_kills.py [CASE...]   (written to benchmarks/results/pipeline_kills.json; a round takes
10 to 30 s; a case at most MAGICBYTE_KILL_SECONDS, 3000, and the next run continues where it ended)
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import archive
import data
import harness

sys.path.append(str(data.HERE.parent / "tests"))

from magicbyte.spark.pipeline import driver, load
from magicbyte.spark.pipeline.cluster import SparkCluster, cluster, worker
from stage_proof import contents

KILLS = 50
SIZE, TINY = 1_500_000, 6
SECONDS = float(os.environ.get("MAGICBYTE_KILL_SECONDS", "3000"))  # of a case: the next run continues after it
RESULT = data.HERE / "results" / "pipeline_kills.json"
WAIT_SECONDS, POLL_SECONDS = 240, 0.05
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # of all its processes here: they live for seconds
PIPELINE = """\
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
[source]
path = "logs"
[sink]
path = "SINK"
[spark]
"spark.local.dir" = "FOLDER/spark"
"""

Figures = dict[str, Any]


def beside(sink: Path) -> set[str]:
    """Return what else is in a sink."""
    return {path.name for path in sink.iterdir()} - {path.parent.name for path in sink.glob("*-[0-9]*/*.log")}


def below(pids: Iterable[int]) -> dict[int, str]:
    """Return pid and command line of all processes below some."""
    parents, lines = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            lines[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    first = set(pids)
    ours = set(first)
    while more := {each for each, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return {each: lines[each] for each in ours - first if each in lines}


def wait_until(holds: Callable[[], bool], what: str) -> None:
    assert happens(holds), what


def happens(holds: Callable[[], bool]) -> bool:
    """Wait for something; return whether it came about."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not (found := holds()) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return found


def outliving(processes: dict[int, str]) -> Figures:
    """Wait until processes are gone; return what is wrong if some stay."""
    if happens(lambda: all(map(is_gone, processes))):
        return {}
    return {"wrong": f"still there: {[line[-200:] for pid, line in processes.items() if not is_gone(pid)]}"}


def end(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_gone(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Campaign:
    """A cluster, an archive, and what an undisturbed run makes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        archive.make(folder / "logs", SIZE, tiny=TINY)
        archive.harm(folder / "logs", data.SEED)
        alone = driver.run(load(self.written("alone")), master="local[2]")
        assert alone.status == 0, [unit["error"] for unit in alone.units]
        self.units = len(alone.units)
        self.expected, self.beside = contents(folder / "alone"), beside(folder / "alone")

    def written(self, sink: str) -> Path:
        """Return the file of the pipeline into a sink."""
        path = self.folder / f"{sink}.toml"
        path.write_text(PIPELINE.replace("SINK", sink).replace("FOLDER", str(self.folder)))
        return path

    def begun(self, sink: str) -> bool:
        """Whether the first attempt at a partition was begun, or finished."""
        return any((self.folder / sink).glob(".pipeline/*-[0-9]*"))

    def finished(self, sink: str) -> int:
        """Return how many partitions are finished, and not yet committed."""
        return len(list((self.folder / sink).glob(".pipeline/*-[0-9]*.json")))

    def difference(self, sink: str) -> str | None:
        """Say in what a sink differs from that of the undisturbed run, and remove it if it does not."""
        where = self.folder / sink
        found = contents(where)
        if found != self.expected:
            return f"files differ: {sorted(found.items() ^ self.expected.items())[:4]}"
        reports = {"pipeline-report.html", "pipeline-report.json"}
        if (left := beside(where) - reports) != self.beside:
            return f"left in the sink: {sorted(left ^ self.beside)}"
        shutil.rmtree(where)
        return None


def rounds(campaign: Campaign, case: str, span: float, one: Callable[[str, float], Figures | None]) -> Figures:
    """Go on with a case until KILLS came in time, or its time is over. `span`: seconds of undisturbed work."""
    before = json.loads(RESULT.read_text())["cases"].get(case, {}) if RESULT.exists() else {}
    found: list[Figures] = before.get("rounds", [])
    late, begun = before.get("late", 0), time.monotonic()
    while len(found) < KILLS and time.monotonic() - begun < SECONDS:
        number = len(found) + late
        sink, part = f"{case}-{number}", random.Random(f"{data.SEED} {case} {number}").random()
        said = one(sink, part * span)
        if said is not None and "wrong" not in said and (wrong := campaign.difference(sink)) is not None:
            said["wrong"] = wrong
        if said is None:
            late += 1
        else:
            found.append({"moment": round(part, 3), "span_seconds": round(span, 2), **said})
        print(case, number, "late" if said is None else found[-1], round(time.monotonic() - begun), flush=True)
    return {
        "kills": len(found),
        "wanted": KILLS,
        "wrong": sum("wrong" in each for each in found),
        "late": late,
        "partitions": campaign.units,
        "rounds": found,
    }


# ---- the driver


def command(path: Path, running: SparkCluster, *options: str) -> "subprocess.Popen[str]":
    arguments = ["pipeline", "run", str(path), "--master", running.url, *options]
    return subprocess.Popen(
        [sys.executable, "-m", "magicbyte", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_driver(folder: Path) -> Figures:
    campaign = Campaign(folder)
    with cluster(2) as running:

        def start(sink: str) -> "subprocess.Popen[str]":
            started = command(campaign.written(sink), running)
            wait_until(lambda: campaign.begun(sink) or started.poll() is not None, "no attempt at a partition")
            return started

        started, begun = start("undisturbed"), time.monotonic()
        said = started.communicate(timeout=WAIT_SECONDS)[1]
        span = time.monotonic() - begun
        assert (started.returncode, campaign.difference("undisturbed")) == (0, None), said

        def one(sink: str, moment: float) -> Figures | None:
            started = start(sink)
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(moment)
            finished = campaign.finished(sink)
            if started.poll() is not None:
                said = started.communicate()[1]
                return {"wrong": said[-300:]} if started.returncode else None
            workers = below(running.pids[1:])
            started.send_signal(signal.SIGKILL)
            started.communicate()
            again = command(campaign.written(sink), running, "--resume")
            said = again.communicate(timeout=WAIT_SECONDS)[1]
            outcome = {"finished": finished, "status": again.returncode, **outliving(workers)}
            return outcome if again.returncode == 0 else outcome | {"wrong": said[-300:]}

        return rounds(campaign, "driver", span, one)


# ---- the others: the driver is this process, and lives


class Workers:
    """The workers of a cluster, of which those that are killed are replaced."""

    def __init__(self, stack: contextlib.ExitStack, running: SparkCluster, folder: Path) -> None:
        self.stack, self.url, self.folder = stack, running.url, folder
        self.pids = list(running.pids[1:])
        self.count = len(self.pids)

    def who(self, case: str) -> list[int]:
        """Return whom a case may kill now."""
        if case == "worker":
            return self.pids
        sign = "ExecutorBackend" if case == "executor" else "pyspark.daemon"
        return sorted(pid for pid, line in below(self.pids).items() if sign in line)

    def replace(self, pid: int) -> None:
        """Start another worker in the place of one."""
        self.pids.remove(pid)
        self.pids.append(self.stack.enter_context(worker(self.folder, self.count, self.url)))
        self.count += 1


def kill_of(case: str) -> Callable[[Path], Figures]:
    """Return the campaign in which a worker, an executor or its Python processes are killed."""

    def campaign_of(folder: Path) -> Figures:
        campaign, rng = Campaign(folder), random.Random(f"{data.SEED} {case} victims")
        with contextlib.ExitStack() as stack:
            running = stack.enter_context(cluster(2))
            workers = Workers(stack, running, folder)
            given = load(campaign.written("undisturbed"))
            context = stack.enter_context(driver.started_context(running.url, given))
            pool = stack.enter_context(ThreadPoolExecutor(1))
            span = 0.0
            for sink in ("warm", "undisturbed"):
                running_job = pool.submit(driver.run, load(campaign.written(sink)), context=context)
                wait_until(lambda sink=sink: campaign.begun(sink), "no attempt at a partition")
                begun = time.monotonic()
                assert running_job.result(WAIT_SECONDS).status == 0
                span = time.monotonic() - begun
                assert campaign.difference(sink) is None

            def one(sink: str, moment: float) -> Figures | None:
                wait_until(lambda: len(workers.who("executor")) == 2, "no two executors")
                job = pool.submit(driver.run, load(campaign.written(sink)), context=context)
                wait_until(lambda: campaign.begun(sink) or job.done(), "no attempt at a partition")
                with contextlib.suppress(TimeoutError):
                    job.exception(moment)
                finished, victims = campaign.finished(sink), workers.who(case)
                if job.done() or not victims:
                    job.result(WAIT_SECONDS)
                    return None
                pid = rng.choice(victims)
                orphans = below([pid])
                os.kill(pid, signal.SIGKILL)
                done = job.result(WAIT_SECONDS)
                if case == "worker":  # Spark leaves it running, and whatever it is at, until the driver ends
                    end([pid for pid, line in orphans.items() if "ExecutorBackend" in line])
                    workers.replace(pid)
                return {"finished": finished, "status": done.status, **outliving(orphans)}

            return rounds(campaign, case, span, one)

    return campaign_of


CASES = {"driver": kill_driver, **{case: kill_of(case) for case in ("worker", "python", "executor")}}

if __name__ == "__main__":
    os.environ["JAVA_TOOL_OPTIONS"] = JAVA
    harness.run_cases("pipeline_kills", __doc__, CASES)
