"""`magicbyte salvage` of a sound log of 1 GiB as a whole process, beside copying the file with a CRC of it.

One segment of 1 GiB (v2, lz4, records of 1000 bytes; see data.py) in the page cache. The rival is a Python process that
reads it in pieces of 4 MiB, computes their CRC-32C with the crc32c package, writes them to a new file and makes it
durable (fsync). salvage verifies every batch, writes the same bytes with their indexes, snapshot and checkpoints, and
makes all of it durable. On one core, alternating. Target: ours / theirs <= 2, that is rival's time / ours >= 0.5.

Run: python benchmarks/salvage.py   (written to benchmarks/results/salvage.json)
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import crc32c

import data
import harness
import ours
import verify

TARGET = 0.5
ROUNDS = 5
PIECE = 4 << 20


def copy_with_crc(source: str, target: str) -> None:
    """Be the rival."""
    buffer = bytearray(PIECE)
    crc = 0
    with open(source, "rb", buffering=0) as file, open(target, "wb", buffering=0) as out:
        while size := file.readinto(buffer):
            view = memoryview(buffer)[:size]
            crc = crc32c.crc32c(view, crc)
            out.write(view)
        os.fsync(out.fileno())


def compare() -> dict[str, object]:
    """Run both, alternating, each into a folder of its own that is removed at once."""
    before = verify.load()
    folder = data.gibibyte_segment()
    (segment,) = folder.glob("*/*.log")
    runs: dict[str, list[dict[str, float]]] = {"magicbyte": [], "copy and crc32c": []}
    scratch = Path(tempfile.mkdtemp(prefix="magicbyte-salvage-"))
    try:
        for _ in range(ROUNDS + 1):
            out = scratch / "out"
            command = [sys.executable, "-c", ours.PROGRAM, "salvage", str(folder), "--out", str(out)]
            runs["magicbyte"].append(verify.measure(harness.pinned(command)))
            assert sum(path.stat().st_size for path in out.rglob("*.log")) == segment.stat().st_size
            shutil.rmtree(out)
            copy = scratch / "copy"
            runs["copy and crc32c"].append(verify.measure(harness.python(__file__, str(segment), str(copy))))
            copy.unlink()
    finally:
        shutil.rmtree(scratch)
    results = {name: verify.summary(found[1:]) for name, found in runs.items()}  # the first one warms up
    ratios = harness.ratios(results, {"copy and crc32c": TARGET}, "seconds")
    loads = [before, verify.load()]
    return {"bytes": segment.stat().st_size, "load_average": loads, "results": results, "ratios": ratios}


if __name__ == "__main__":
    if "--worker" in sys.argv:
        copy_with_crc(*sys.argv[-2:])
    else:
        harness.save("salvage", __doc__, {"1 GiB, sound": compare()})
