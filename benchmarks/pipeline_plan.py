"""What it costs a driver to plan a pipeline over 100,000 segments: time, memory, calls of the file system.

A log directory of 10,000 partitions with 10 segments each (a `.log` and an `.index`, empty: planning opens none), and
checkpoints that name them all, on a file system in memory. The plan is that of `pipeline run`: a conversion and a
compaction into a sink. Targets: 10 s, 1 GB of memory of the whole process.

Run: python benchmarks/pipeline_plan.py   (written to benchmarks/results/pipeline_plan.json)
"""

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import harness

PARTITIONS, SEGMENTS = 10_000, 10
RESULT = Path(__file__).parent / "results" / "pipeline_plan.json"
CHECKPOINTS = ("log-start-offset", "cleaner-offset", "recovery-point-offset", "replication-offset")
PIPELINE = """\
[source]
path = "logs"
[[stage]]
do = "convert"
format = "v2"
[[stage]]
do = "compact"
[sink]
path = "out"
"""


def lay_out(folder: Path) -> None:
    """Write the log directory."""
    names = [(f"topic-{number % 100}", number) for number in range(PARTITIONS)]
    for topic, number in names:
        partition = folder / f"{topic}-{number}"
        partition.mkdir(parents=True)
        for segment in range(SEGMENTS):
            for suffix in (".log", ".index"):
                (partition / f"{1000 * segment:020}{suffix}").touch()
    lines = "".join(f"{topic} {number} 5\n" for topic, number in names)
    for name in CHECKPOINTS:
        (folder / f"{name}-checkpoint").write_text(f"0\n{PARTITIONS}\n{lines}")


def main() -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.exists() else None) as name:
        lay_out(Path(name) / "logs")
        (Path(name) / "p.toml").write_text(PIPELINE)
        calls = 0

        def count(event: str, _arguments: tuple[Any, ...]) -> None:
            nonlocal calls
            calls += event in ("os.scandir", "os.listdir", "open")

        from magicbyte.spark.pipeline import load, plan

        sys.addaudithook(count)
        wall, cpu = time.perf_counter(), time.process_time()
        planned = plan(load(Path(name) / "p.toml"))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    row = {
        "partitions": len(planned.due),
        "segments": sum(len(unit.partition.segments) for unit in planned.due),
        "seconds": round(wall, 2),
        "cpuSeconds": round(cpu, 2),
        "maxResidentMB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "listingsAndOpens": calls,
    }
    print(row)
    about = {"machine": harness.machine(), "load": os.getloadavg(), "targets": {"seconds": 10, "maxResidentMB": 1000}}
    RESULT.write_text(json.dumps({**about, "row": row}, indent=2) + "\n")


if __name__ == "__main__":
    main()
