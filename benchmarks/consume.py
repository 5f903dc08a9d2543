"""`magicbyte consume` and kcat: a topic of 1 GB as lines and as JSON, from the same broker, alternating.

The topic has one partition of values of 100 or 1000 bytes of text, without keys, uncompressed, in batches of 512 KiB;
it was written just before, so it is in the page cache. Each turn is a process of its own, from its start to its end,
with its output to /dev/null: `kcat -C -e -q` and `magicbyte consume -e`, and both with `-J`, where each prints JSON
lines with its own members; ours has its bytecode on the disk. As it is set up by itself kcat waits a second whenever
its queue is full; kcat-ahead may hold the whole topic in memory, so that it never waits. Ours is compared with the
faster of the two. Broker and client share the machine's cores. The figure is the best of three turns, as JSON of one.
`load_before` is the machine's load average before a case, of two cores. That all print the same lines is checked
before on the first 100,000 records.

Run: python benchmarks/consume.py [CASE...]   (written to benchmarks/results/consume.json; a case takes about a minute)
"""

import asyncio
import fnmatch
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import broker
import data
import harness
from magicbyte.access.client import Client, admin
from magicbyte.access.client.produce import send
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import columns_of

ROUNDS = {"text": 3, "json": 1}
BYTES = 1_000_000_000
KAFKA = "3.9.1"
BROKERS = {"ours": broker.ours, f"kafka-{KAFKA}": lambda folder: broker.kafka(KAFKA, folder)}
FORMS: dict[str, list[str]] = {"text": [], "json": ["-J"]}
TARGET = 0.8
CASES = [f"{name}-{size}-{form}" for name in BROKERS for size in broker.RECORDS for form in FORMS]
COMPARED = 100_000
AHEAD = ["-X", "queued.min.messages=10000000", "-X", "queued.max.messages.kbytes=2000000"]


def commands(bootstrap: str) -> dict[str, list[str]]:
    """Return the command of each client, up to its options."""
    where = ["-b", bootstrap, "-t", "topic", "-o", "beginning", "-e"]
    return {
        "magicbyte": [sys.executable, "-m", "magicbyte", "consume", *where],
        "kcat": ["kcat", "-C", "-q", *where],
        "kcat-ahead": ["kcat", "-C", "-q", *where, *AHEAD],
    }


async def fill(bootstrap: str, size: int) -> None:
    """Write the topic."""
    values = broker.values(size)
    columns = columns_of([Record(0, 1_700_000_000_000 + at, 0, None, value) for at, value in enumerate(values)])
    async with Client(bootstrap) as client:
        await admin.create_topic(client, admin.NewTopic("topic"))
        for _ in range(BYTES // size // len(values)):
            await send(client, "topic", 0, columns)


def environment() -> dict[str, str]:
    """Return what processes are started with: Python keeps its bytecode, as after an installation."""
    found = os.environ | {"PYTHONPYCACHEPREFIX": str(data.folder() / "bytecode")}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def check_same(bootstrap: str) -> None:
    """Fail unless both print the same first lines."""
    found = set()
    for command in commands(bootstrap).values():
        done = subprocess.run([*command, "-c", str(COMPARED)], capture_output=True, check=True, env=environment())
        assert done.stdout.count(b"\n") == COMPARED
        found.add(hashlib.sha256(done.stdout).digest())
    assert len(found) == 1, "the two print different lines"


def seconds(command: list[str]) -> tuple[float, float]:
    """Run a command; return the seconds that it took, and those of CPU that it used."""
    before, begin = os.times(), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=120, env=environment())
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - begin, used


def measure(name: str, size: int, form: str, folder: Path) -> dict[str, Any]:
    """Fill a topic and read it with both, alternating."""
    count, load = BYTES // size, os.getloadavg()[0]
    with BROKERS[name](folder / name) as start:
        server = start()
        broker.first_records(server)
        asyncio.run(fill(server.bootstrap, size))
        check_same(server.bootstrap)
        times: dict[str, list[tuple[float, float]]] = {each: [] for each in commands(server.bootstrap)}
        for _ in range(ROUNDS[form]):
            for each, command in commands(server.bootstrap).items():
                times[each].append(seconds([*command, *FORMS[form]]))
    found: dict[str, Any] = {each: figures(taken, count) for each, taken in times.items()}
    ratio = min(found["kcat"]["seconds"], found["kcat-ahead"]["seconds"]) / found["magicbyte"]["seconds"]
    found["ratio"] = {"of": round(ratio, 3), "target": TARGET, "reached": ratio >= TARGET}
    return found | {"records": count, "bytes": BYTES, "load_before": load}


def figures(taken: list[tuple[float, float]], count: int) -> dict[str, float]:
    best, used = min(taken)
    return {
        "seconds": round(best, 2),
        "highest": round(max(taken)[0], 2),
        "cpu_seconds": round(used, 2),
        "records_per_second": round(count / best),
        "MB_per_second": round(BYTES / best / 1e6),
    }


def main() -> None:
    wanted = sys.argv[1:] or ["*"]
    for case in (each for each in CASES if any(fnmatch.fnmatch(each, f"{pattern}*") for pattern in wanted)):
        name, size, form = case.rsplit("-", 2)
        with tempfile.TemporaryDirectory(prefix="consume-") as folder:
            harness.save("consume", __doc__, {case: measure(name, int(size), form, Path(folder))})


if __name__ == "__main__":
    main()
