"""Kafka's own Java classes and brokers, called from tests: bytes in, bytes out. Needs Java and Maven.

The sources lie in `java/`; each is compiled once per content. See `kafka_oracle` for where jars and classes are kept.
"""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interop import kafka_oracle

HERE = Path(__file__).parent
ALL_FORMATS = "3.9.1"  # the last release whose classes write all three formats
SECONDS = 240  # for a Java program, its compilation included; a broker may take as long to start

Json = dict[str, Any]


def missing() -> str | None:
    """Say in one line what is missing to run Kafka, or return None."""
    programs = (kafka_oracle.jdk_program("java"), kafka_oracle.jdk_program("javac"), "mvn")
    lacking = [Path(program).name for program in programs if shutil.which(program) is None]
    return f"needs {', '.join(lacking)}: apt-get install openjdk-17-jdk-headless maven" if lacking else None


def run(source: str, *arguments: str, stdin: bytes = b"", version: str = ALL_FORMATS) -> bytes:
    """Run java/SOURCE.java against one version's jars and return its standard output; fail with its complaint."""
    classes = kafka_oracle.compile_source(version, HERE / "java" / f"{source}.java")
    command = kafka_oracle.tool_command(version, source, arguments, [classes])
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    return done.stdout


def decode(data: bytes) -> list[Json]:
    """Return what a Java consumer sees in log bytes, as in records.jsonl, up to {"error": ...} if there is damage."""
    return [json.loads(line) for line in run("Decode", stdin=data).splitlines()]


def encode(batches: Iterable[Json]) -> bytes:
    """Return the log bytes that Kafka's builders make of batches described as java/Encode.java says."""
    return run("Encode", stdin="".join(json.dumps(batch) + "\n" for batch in batches).encode())


def convert(direction: str, magic: int, data: bytes) -> bytes:
    """Return log bytes converted "up" or "down" to a magic value as a broker does it."""
    return run("Convert", direction, str(magic), stdin=data)


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((kafka_oracle.LOOPBACK, 0))
        return int(probe.getsockname()[1])


@contextmanager
def broker(version: str, folder: Path, *properties: str, kill: bool = False, port: int | None = None) -> Iterator[Json]:
    """Run a broker (and its ZooKeeper) inside the block; yield the launcher's oracle.json. Nothing runs afterwards.

    `kill`: the broker ends as in a crash.
    """
    launcher = [sys.executable, str(HERE / "kafka_oracle.py")]
    settings = [part for setting in properties for part in ("--prop", setting)]
    ports = ["--port", str(port or free_port()), "--zk-port", str(free_port())]
    try:
        subprocess.run([*launcher, "start", version, "--dir", folder, *ports, *settings], check=True, timeout=SECONDS)
        yield json.loads((folder / "oracle.json").read_text())
    finally:
        if (folder / "oracle.json").exists():
            command = [*launcher, "stop", folder, *(["--kill"] if kill else [])]
            subprocess.run(command, check=True, timeout=SECONDS)
