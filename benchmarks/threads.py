"""Decoding a log with two threads beside one, on a machine with two free cores.

The same segment files (v2, records of 100 bytes, no codec, lz4 and zstd; see data.py) through SegmentReader.records,
checksums verified, keys and values packed; one and two threads take turns. Target: two do 1.7 times the work of one.

Run: python benchmarks/threads.py   (written to benchmarks/results/threads.json)
"""

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import data
import harness
from magicbyte.log.directory import discover
from magicbyte.log.reader import SegmentReader
from magicbyte.records.decode import DecodeOptions

TARGET = 1.7
COPIES = 4  # segments in the partition, so that a run takes long enough


def seconds(reader: SegmentReader, threads: int) -> float:
    """Return how long it takes to decode the whole partition."""
    start = time.perf_counter()
    for _ in reader.records(options=DecodeOptions(packed=True), threads=threads):
        pass
    return time.perf_counter() - start


def compare(codec: str) -> dict[str, object]:
    """Run one thread and two in turns."""
    with tempfile.TemporaryDirectory() as folder:
        for copy in range(COPIES):
            shutil.copy(data.log(100, 2, codec), Path(folder) / f"{copy * 10**9:020}.log")
        (partition,) = discover([folder])
        reader = SegmentReader(partition)
        seconds(reader, 1)
        times: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(harness.ROUNDS):
            for threads, runs in times.items():
                runs.append(seconds(reader, threads))
    one, two = statistics.median(times[1]), statistics.median(times[2])
    results = {
        f"{threads} threads": {"seconds": statistics.median(runs), "lowest": min(runs), "highest": max(runs)}
        for threads, runs in times.items()
    }
    return {"results": results, "ratio": round(one / two, 3), "target": TARGET, "reached": one / two >= TARGET}


if __name__ == "__main__":
    harness.save("threads", __doc__, {f"v2 {codec} 100": compare(codec) for codec in ("none", "lz4", "zstd")})
