"""Two threads on two cores beside one thread on one: `cat`, `inventory --deep`, `verify --deep`.

A partition of four segments (v2, records of 100 bytes, no codec, lz4 and zstd; see data.py) with consecutive offsets,
in the page cache. `cat`: SegmentReader.records, checksums verified, keys and values packed. `verify` with one thread
decodes in one and walks in another: so one thread is held on one core in all cases. Beside it, as what the machine
gives: two processes, each with a thread and a core of its own, and half of the segments. All take turns. `ratio` is
one thread's time over that of two threads, `machine` over that of two processes. Target: 1.8.

Run: python benchmarks/threads.py [CASE...]   (written to benchmarks/results/threads.json)
"""

import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import data
import harness
from magicbyte.engine.log.files.directory import PartitionDirectory, discover
from magicbyte.engine.log.files.reader import EVERYTHING, SegmentReader, stop_at_damage
from magicbyte.engine.records.decode import DecodeOptions
from magicbyte.tools.offline.blocks import read_records
from magicbyte.tools.offline.findings import Depth
from magicbyte.tools.offline.inventory import take_inventory
from magicbyte.tools.offline.verify import verify

TARGET = 1.8
COPIES = 4  # segments in the partition, so that a run takes long enough
CODECS = ("none", "lz4", "zstd")
CORES = sorted(os.sched_getaffinity(0))[:2]


def cat(partition: PartitionDirectory, threads: int) -> None:
    """Decode all records."""
    packed = DecodeOptions(packed=True)
    for _ in read_records(SegmentReader(partition), EVERYTHING, packed, threads=threads, on_damage=stop_at_damage):
        pass


def inventory(partition: PartitionDirectory, threads: int) -> None:
    """Take a deep inventory."""
    assert not take_inventory(partition, deep=True, threads=threads).damage


def verify_deep(partition: PartitionDirectory, threads: int) -> None:
    """Verify every record."""
    assert all(each.what == "offset index" for each in verify([partition], depth=Depth.DEEP, threads=threads))


WORK: dict[str, Callable[[PartitionDirectory, int], None]] = {
    "cat": cat,
    "inventory --deep": inventory,
    "verify --deep": verify_deep,
}


def partition_of(codec: str) -> Path:
    """Return the folder of a partition, beside it two with half of its segments each."""
    home = data.folder() / f"threads-{codec}"
    if not home.exists():
        draft = home.with_suffix(".draft")
        folders = [draft / name / "benchmark-0" for name in ("whole", "first", "second")]
        for folder in folders:
            folder.mkdir(parents=True)
        content, base = bytearray(data.log(100, 2, codec).read_bytes()), 0
        for copy in range(COPIES):
            name, at = f"{base:020}.log", 0
            while at < len(content):
                struct.pack_into(">q", content, at, base)  # no checksum covers the offset
                base += data.LENGTH.unpack_from(content, at + 57)[0]
                at += 12 + data.LENGTH.unpack_from(content, at + 8)[0]
            (folders[0] / name).write_bytes(content)
            (folders[1 + 2 * copy // COPIES] / name).hardlink_to(folders[0] / name)
        draft.rename(home)
    return home


def seconds(work: str, partition: PartitionDirectory, threads: int) -> float:
    """Return how long so many threads take, on as many cores."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, CORES[:threads])
    try:
        start = time.perf_counter()
        WORK[work](partition, threads)
        return time.perf_counter() - start
    finally:
        os.sched_setaffinity(0, everywhere)


def be_process(folder: str) -> None:
    """Do each work that is named on standard input with one thread."""
    (partition,) = discover([folder])
    for line in sys.stdin:
        WORK[line.strip()](partition, 1)
        print("done", flush=True)


def run(processes: list[subprocess.Popen[str]], work: str) -> float:
    """Return how long both processes take, at the same time."""
    start = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{work}\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
    return time.perf_counter() - start


def compare(work: str, codec: str) -> dict[str, object]:
    """Run one thread, two threads and two processes alternately."""
    home = partition_of(codec)
    (partition,) = discover([str(home / "whole")])
    processes = [
        subprocess.Popen(
            ["taskset", "-c", str(core), sys.executable, __file__, "--worker", str(home / half)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for core, half in zip(CORES, ("first", "second"), strict=True)
    ]
    turns: dict[str, Callable[[], float]] = {
        "1 thread": lambda: seconds(work, partition, 1),
        "2 threads": lambda: seconds(work, partition, 2),
        "2 processes": lambda: run(processes, work),
    }
    try:
        for turn in turns.values():
            turn()
        times: dict[str, list[float]] = {name: [] for name in turns}
        for _ in range(harness.ROUNDS):
            for name, turn in turns.items():
                times[name].append(turn())
    finally:
        for process in processes:
            process.kill()
            process.wait()
    results = {
        name: {
            "seconds": round(statistics.median(runs), 4),
            "lowest": round(min(runs), 4),
            "highest": round(max(runs), 4),
        }
        for name, runs in times.items()
    }
    one, two, apart = (each["seconds"] for each in results.values())
    return {
        "load_average": round(os.getloadavg()[0], 1),
        "results": results,
        "ratio": round(one / two, 3),
        "machine": round(one / apart, 3),
        "target": TARGET,
        "reached": one / two >= TARGET,
    }


if __name__ == "__main__":
    if "--worker" in sys.argv:
        be_process(sys.argv[-1])
    else:
        cases = {f"{work}, v2 {codec} 100": (work, codec) for codec in CODECS for work in WORK}
        chosen = sys.argv[1:] or list(cases)
        harness.save("threads", __doc__, {name: compare(*cases[name]) for name in chosen})
