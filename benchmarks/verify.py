"""`magicbyte verify` of 1 GiB as a whole process: --deep and Kafka's dump tool, --quick and reading with CRC-32C.

One segment of 1 GiB (v2, lz4, records of 1000 bytes; see data.py) in the page cache, with the indexes that
rebuild-index makes for it. Deep: DumpLogSegments --deep-iteration, which decompresses each batch and prints a line for
each record, to /dev/null; both have all cores. Quick: a Python process that reads the file in pieces of 4 MiB and
computes their CRC-32C with the crc32c package; on one core. All start from nothing, with bytecode and machine code on
the disk as an earlier run left them, and take turns. Quick is measured a second time with no bytecode on the disk for
either side, as before 2026-11-21: `compiled again`. Deep is also compared with the least that any reader does: `lz4
alone`, a Python process on one core that reads the file and decompresses its blocks with the lz4 package. Targets:
deep, rival's time / ours >= 10; quick, rival's time / ours >= 0.6. `peak_mib` is resident memory at its highest.

Run: python benchmarks/verify.py [quick|deep]   (written to benchmarks/results/verify.json)
"""

import mmap
import os
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

import crc32c
import lz4.block

import data
import harness
import ours
from data import kafka_oracle

TARGETS = {"deep": 10.0, "quick": 0.6}
ROUNDS = {"deep": 5, "quick": 7}
PIECE = 4 << 20
BATCH_HEADER, FRAME_HEADER = 61, 7
BLOCK = struct.Struct("<I")  # its size, before it


def read_with_crc(path: str) -> None:
    """Be the rival of --quick."""
    buffer = bytearray(PIECE)
    crc = 0
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(buffer):
            crc = crc32c.crc32c(memoryview(buffer)[:size], crc)


def read_with_lz4(path: str) -> None:
    """Decompress each block of each batch, and look at nothing else."""
    with Path(path).open("rb") as file:
        content, at = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), 0
    while at < len(content):
        end = at + 12 + data.LENGTH.unpack_from(content, at + 8)[0]
        place = at + BATCH_HEADER + FRAME_HEADER
        while word := BLOCK.unpack_from(content, place)[0]:
            place += BLOCK.size
            size = word & 0x7FFFFFFF
            if word == size:  # else it is stored as it is
                lz4.block.decompress(content[place : place + size], uncompressed_size=1 << 16)
            place += size
        at = end


def measure(command: list[str], *, bytecode: bool = True) -> dict[str, float]:
    """Run a process, with bytecode on the disk or without; return how long it runs and its peak memory."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(data.folder() / ("bytecode" if bytecode else "none"))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if not bytecode:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return {"seconds": time.perf_counter() - start, "peak_mib": used.ru_maxrss / 1024}


COMPILED_AGAIN = ", compiled again"


def turns(commands: dict[str, list[str]], rounds: int) -> dict[str, dict[str, float]]:
    """Run the commands alternately, after a first run that compiles and fills the page cache."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    measure(commands["magicbyte"])
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(measure(command, bytecode=not name.endswith(COMPILED_AGAIN)))
    return {name: summary(runs) for name, runs in found.items()}


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return median and spread of some runs."""
    seconds = [each["seconds"] for each in runs]
    return {
        "seconds": round(statistics.median(seconds), 3),
        "lowest": round(min(seconds), 3),
        "highest": round(max(seconds), 3),
        "peak_mib": round(max(each["peak_mib"] for each in runs)),
        "runs": len(runs),
    }


def indexed() -> Path:
    """Return a log directory with the segment, and indexes of it."""
    (segment,) = data.gibibyte_segment().glob("*/*.log")
    folder = data.folder() / "verify" / "benchmark-0"
    if not (folder / segment.with_suffix(".index").name).exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / segment.name).hardlink_to(segment)
        command = [sys.executable, "-c", ours.PROGRAM, "rebuild-index", str(folder), "--write"]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)  # status 1: there was none
    return folder.parent


def load() -> float:
    """Return how many processes wanted a core in the last minute: what else ran beside."""
    return round(os.getloadavg()[0], 1)


def compare(depth: str) -> dict[str, object]:
    """Run both sides of one depth alternately."""
    before = load()
    folder = indexed()
    (segment,) = folder.glob("*/*.log")
    with segment.open("rb") as file:  # into the page cache
        while file.read(1 << 24):
            pass
    verify = [sys.executable, "-c", ours.PROGRAM, "verify", f"--{depth}", str(folder)]
    if depth == "quick":
        rival = harness.python(__file__, str(segment))
        both = {"magicbyte": harness.pinned(verify), "read and crc32c": rival}
        results = turns(both | {f"{name}{COMPILED_AGAIN}": command for name, command in both.items()}, ROUNDS[depth])
        other = "read and crc32c"
    else:
        libs = kafka_oracle.fetch(data.KAFKA)
        java = [kafka_oracle.jdk_program("java"), "-Xmx2g", "-cp", f"{libs}/*", "kafka.tools.DumpLogSegments"]
        results = turns(
            {
                "magicbyte": verify,
                "java": [*java, "--deep-iteration", "--files", str(segment)],
                "lz4 alone": harness.python(__file__, "--lz4", str(segment)),
            },
            ROUNDS[depth],
        )
        other = "java"
    ratios = harness.ratios(results, {other: TARGETS[depth]}, "seconds")
    if depth == "quick":
        again = {each: results[each] for each in (f"magicbyte{COMPILED_AGAIN}", f"{other}{COMPILED_AGAIN}")}
        ratios |= harness.ratios(again, {f"{other}{COMPILED_AGAIN}": TARGETS[depth]}, "seconds")
    loads = [before, load()]
    return {"bytes": segment.stat().st_size, "load_average": loads, "results": results, "ratios": ratios}


if __name__ == "__main__":
    if "--worker" in sys.argv:
        (read_with_lz4 if "--lz4" in sys.argv else read_with_crc)(sys.argv[-1])
    else:
        wanted = sys.argv[1:] or list(TARGETS)
        harness.save("verify", __doc__, {f"{depth}, 1 GiB": compare(depth) for depth in wanted})
