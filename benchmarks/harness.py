"""Rivals side by side: each is a process of its own on the same core, warmed up, and they take turns.

A rival prints one line {"ready": VERSION, ...} when it is warm, then does its work once per line of its standard input
and prints {"seconds": S, "records": N}. All rivals of a comparison are started first; then round after round each gets
one turn, so that a change of the machine's speed meets all of them. The figure of a rival is the median of its rounds.
"""

import contextlib
import fnmatch
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import data
from data import kafka_oracle

HERE = Path(__file__).parent
CORE = "1" if (os.cpu_count() or 1) > 1 else "0"
ROUNDS = 7
RUN_SECONDS = 1.0  # a turn repeats the work until it takes about that long
WARM_UP_SECONDS = 2.0  # for Python; the Java rivals take 10 s, for the C2 compiler

Figures = dict[str, float | str]


def pinned(command: Iterable[str | Path]) -> list[str]:
    """Return the command line that runs a command on the one core that all rivals use."""
    return ["taskset", "-c", CORE, *map(str, command)]


def java(*arguments: str | Path) -> list[str]:
    """Return the command of the Java rival: a server VM with both compilers and two gigabytes."""
    classes = kafka_oracle.compile_source(data.KAFKA, HERE / "java/Rival.java")
    libs = kafka_oracle.fetch(data.KAFKA)
    program = [kafka_oracle.jdk_program("java"), "-Xms2g", "-Xmx2g", "-XX:+UseSerialGC", "-cp", f"{classes}:{libs}/*"]
    return pinned([*program, "Rival", *arguments])


def python(script: str, *arguments: str | Path) -> list[str]:
    """Return the command of a rival in Python: `script --worker ARGUMENTS`, which ends in `serve`."""
    return pinned([sys.executable, script, "--worker", *arguments])


def serve(work: Callable[[], int], ready: str) -> None:
    """Be a rival: warm `work` up (it returns how many records it went through), then run it once per line of stdin."""
    shortest, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < WARM_UP_SECONDS:
        start = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - start)
    passes = max(1, round(RUN_SECONDS / shortest))
    print(json.dumps({"ready": ready, "passes": passes}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        records = sum(work() for _ in range(passes))
        print(json.dumps({"seconds": time.perf_counter() - start, "records": records}), flush=True)


def compare(rivals: dict[str, list[str]]) -> dict[str, Figures]:
    """Run the rivals alternately; return, by name, nanoseconds per record (median, lowest, highest) and records/s."""
    processes: dict[str, subprocess.Popen[str]] = {}
    ready = {}
    try:
        for name, command in rivals.items():  # one after the other: they share a core
            processes[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
            ready[name] = answer(name, processes[name])
        rounds: dict[str, list[float]] = {name: [] for name in rivals}
        for _ in range(ROUNDS):
            for name, process in processes.items():
                assert process.stdin is not None
                process.stdin.write("run\n")
                process.stdin.flush()
                result = answer(name, process)
                rounds[name].append(1e9 * float(result["seconds"]) / int(result["records"]))
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    return {name: figures(times) | {"version": ready[name]["ready"]} for name, times in rounds.items()}


def answer(name: str, process: subprocess.Popen[str]) -> dict[str, str]:
    """Return the next line of a rival, which is JSON."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        sys.exit(f"rival {name!r} ended with status {process.wait()}: {' '.join(map(str, process.args))}")
    found: dict[str, str] = json.loads(line)
    return found


def figures(times: list[float]) -> Figures:
    """Return median and spread of some nanoseconds per record."""
    median = statistics.median(times)
    return {
        "ns_per_record": round(median, 2),
        "lowest": round(min(times), 2),
        "highest": round(max(times), 2),
        "runs": len(times),
        "records_per_second": round(1e9 / median),
    }


def ratios(
    results: dict[str, Figures], targets: dict[str, float], unit: str = "ns_per_record"
) -> dict[str, dict[str, float | bool]]:
    """Return how many times faster magicbyte was than each rival that has a target, and whether that reaches it."""
    found: dict[str, dict[str, float | bool]] = {}
    for rival, target in targets.items():
        ratio = float(results[rival][unit]) / float(results["magicbyte"][unit])
        found[rival] = {"ratio": round(ratio, 3), "target": round(target, 3), "reached": ratio >= target}
    return found


def machine() -> dict[str, str]:
    """Return the CPU model and what runs on it."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = models[0] if models else cpu
    packages = (
        "numpy",
        "numba",
        "pyarrow",
        "aiokafka",
        "kafka-python",
        "cramjam",
        "lz4",
        "zstandard",
        "isal",
        "crc32c",
    )
    return {
        "cpu": cpu,
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "kafka": data.KAFKA,
        **{name: version(name) for name in packages},
    }


def save(name: str, what: str | None, cases: dict[str, object]) -> None:
    """Write benchmarks/results/NAME.json and print it. Cases that were not run this time keep their earlier result."""
    path = HERE / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        cases = json.loads(path.read_text())["cases"] | cases
    content = {
        "what": (what or "").splitlines(),
        "command": f"python benchmarks/{name}.py",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "cases": cases,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(path.read_text())


def run_cases(name: str, what: str | None, cases: Mapping[str, Callable[[Path], dict[str, Any]]]) -> None:
    """Run the cases that the arguments name, all without any, each in a folder of its own; keep what they give."""
    wanted = sys.argv[1:] or list(cases)
    for case in (case for pattern in wanted for case in fnmatch.filter(cases, pattern)):
        folder = Path(tempfile.mkdtemp(prefix="magicbyte-benchmark-"))
        try:
            result = cases[case](folder)
        finally:
            shutil.rmtree(folder)
        save(name, what, {case: result | {"load_average": os.getloadavg()[0]}})


class Serving(NamedTuple):
    """A broker that runs: HOST:PORT of its listener, and of its pages."""

    bootstrap: str
    http: str


@contextlib.contextmanager
def serving() -> Iterator[Serving]:
    """Run `magicbyte serve --http` in a folder of its own inside the block."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "magicbyte", "serve", "--dir", folder, "--listen", "127.0.0.1:0"]
        process = subprocess.Popen([*command, "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            bootstrap = re.findall(r"listening on (\S+)", process.stdout.readline())[0]
            yield Serving(bootstrap, re.findall(r"http://(\S+)/metrics", process.stdout.readline())[0])
        finally:
            process.terminate()
            process.wait(30)
