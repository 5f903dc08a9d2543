"""`magicbyte inventory` of 1 GiB as a whole process, and Kafka's dump tool printing headers only.

One segment of 1 GiB (v2, lz4, records of 1000 bytes; see data.py) that the page cache holds. The dump tool
(DumpLogSegments --files, without --print-data-log) prints a line for each batch and verifies its checksum; inventory
reads the headers, sums up and prints the table; neither decompresses. Both start from nothing, on one core, print to
/dev/null and take turns. Target: ratio = rival's time / ours.

Run: python benchmarks/inventory.py   (written to benchmarks/results/inventory.json)
"""

import statistics
import subprocess
import sys
import time

import data
import harness
import ours
from data import kafka_oracle

TARGETS = {"java": 5.0}


def seconds(command: list[str]) -> float:
    """Return how long a process runs."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def compare() -> dict[str, object]:
    """Run both, alternating."""
    folder = data.gibibyte_segment()
    segment = next(folder.glob("*/*.log"))
    with segment.open("rb") as file:  # into the page cache
        while file.read(1 << 24):
            pass
    java = [
        kafka_oracle.jdk_program("java"),
        "-Xmx2g",
        "-XX:+UseSerialGC",
        "-cp",
        f"{kafka_oracle.fetch(data.KAFKA)}/*",
    ]
    commands = {
        "magicbyte": harness.pinned([sys.executable, "-c", ours.PROGRAM, "inventory", folder]),
        "java": harness.pinned([*java, "kafka.tools.DumpLogSegments", "--files", segment]),
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():  # class files and bytecode come into the page cache too
        seconds(command)
    for _ in range(harness.ROUNDS):
        for name, command in commands.items():
            times[name].append(seconds(command))
    results = {
        name: {"seconds": statistics.median(runs), "lowest": min(runs), "highest": max(runs), "runs": len(runs)}
        for name, runs in times.items()
    }
    ratios = harness.ratios(results, TARGETS, "seconds")
    return {"bytes": segment.stat().st_size, "results": results, "ratios": ratios}


if __name__ == "__main__":
    harness.save("inventory", __doc__, {"1 GiB": compare()})
