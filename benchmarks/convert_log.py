"""`magicbyte convert` of 1 GiB, v1 gzip to v2 zstd, as a whole process, and the compression libraries alone.

A log of one segment of 1 GiB of gzip wrappers as Kafka's Java builder makes them (see data.py; records of 1000 bytes),
in the page cache. The rivals walk the wrappers by their size fields, decompress each payload with ISA-L, which is what
magicbyte reads gzip with, and compress the result with zstandard at the same level, to throw it away: no checksum,
no record is looked at, nothing is written. magicbyte verifies all checksums, rebuilds each record and batch, writes
the log with its indexes, and makes it durable. Alternating; CPU seconds (user and system) of the whole processes, with
what starting them takes, and the peak of resident memory. Target: ours / theirs <= 1.3. The same with 64 MiB shows
what of time and memory does not grow with the log.

Run: python benchmarks/convert_log.py [CASE...]   (written to benchmarks/results/convert_log.json)
"""

import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import zstandard
from isal import isal_zlib

import data
import harness
import ours

TARGET = 1.3
LEVEL = 3
ROUNDS = 3
SIZES = {"": 2**30, " 64 MiB": 2**26}
PIECE = 16 << 20
PAYLOAD = 34  # of a v1 wrapper without a key


def segment(size: int) -> Path:
    """Return the partition folder of a segment of `size` bytes of gzip wrappers, with consecutive offsets."""
    folder = data.folder() / f"v1-gzip-{size}" / "benchmark-0"
    path = folder / "00000000000000000000.log"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        source = memoryview(data.log(1000, 1, "gzip").read_bytes())
        draft = path.with_suffix(".draft")
        base = written = 0
        with draft.open("wb") as file:
            while written < size:
                at, last = 0, 0
                while at < len(source) and written < size:
                    end = at + 12 + struct.unpack_from(">i", source, at + 8)[0]
                    (last,) = struct.unpack_from(">q", source, at)
                    file.write(struct.pack(">q", base + last))  # no checksum covers the offset
                    file.write(source[at + 8 : end])
                    written += end - at
                    at = end
                base += last + 1
        draft.rename(path)
    return folder


def payloads(path: Path) -> Iterator[memoryview]:
    """Yield the compressed bytes of each wrapper, from a file that is read a piece at a time."""
    with path.open("rb", buffering=0) as file:
        rest = b""
        while piece := file.read(PIECE):
            view, at = memoryview(rest + piece), 0
            while at + 12 <= len(view):
                end = at + 12 + struct.unpack_from(">i", view, at + 8)[0]
                if end > len(view):
                    break
                yield view[at + PAYLOAD : end]
                at = end
            rest = bytes(view[at:])


def libraries(path: Path) -> None:
    """Be the rival."""
    compressor = zstandard.ZstdCompressor(level=LEVEL)
    for payload in payloads(path):
        compressor.compress(isal_zlib.decompress(payload, 31, 1 << 16))


def measure(command: list[str]) -> dict[str, float]:
    """Run a process; return its CPU seconds, its time and its peak memory."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return {"cpu_seconds": used.ru_utime + used.ru_stime, "peak_mib": used.ru_maxrss / 1024}


def compare(size: int) -> dict[str, object]:
    """Run both, alternating."""
    folder = segment(size)
    (log,) = folder.glob("*.log")
    runs: dict[str, list[dict[str, float]]] = {"magicbyte": [], "libraries": []}
    out = Path(tempfile.mkdtemp(prefix="magicbyte-convert-"))
    convert = [sys.executable, "-c", ours.PROGRAM, "convert", folder, "--to", "v2", "--codec", "zstd"]
    try:
        for number in range(ROUNDS):
            command = [*convert, "--threads", "1", "--out", out / str(number)]
            runs["magicbyte"].append(measure(harness.pinned(command)))
            written = sum(path.stat().st_size for path in (out / str(number)).rglob("*.log"))
            shutil.rmtree(out / str(number))
            runs["libraries"].append(measure(harness.python(__file__, str(log))))
    finally:
        shutil.rmtree(out)
    results = {
        name: {
            "cpu_seconds": round(statistics.median(each["cpu_seconds"] for each in found), 3),
            "lowest": round(min(each["cpu_seconds"] for each in found), 3),
            "highest": round(max(each["cpu_seconds"] for each in found), 3),
            "peak_mib": round(max(each["peak_mib"] for each in found)),
            "runs": len(found),
        }
        for name, found in runs.items()
    }
    ratio = results["magicbyte"]["cpu_seconds"] / results["libraries"]["cpu_seconds"]
    return {
        "bytes_in": log.stat().st_size,
        "bytes_out": written,
        "results": results,
        "ratio": round(ratio, 3),
        **({"target": TARGET, "reached": ratio <= TARGET} if size == SIZES[""] else {}),
    }


CASES = {f"v1 gzip to v2 zstd{name}": size for name, size in SIZES.items()}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        libraries(Path(sys.argv[2]))
    else:
        for name in sys.argv[1:] or CASES:
            harness.save("convert_log", __doc__, {name: compare(CASES[name])})
