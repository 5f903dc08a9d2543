"""Kafka's own Java classes and brokers, called from tests: bytes in, bytes out. Needs Java and Maven.

The sources lie in `java/`; each is compiled once per content. See `kafka_oracle` for where jars and classes are kept.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interop import kafka_oracle
from ports import free_port

HERE = Path(__file__).parent
ALL_FORMATS = "3.9.1"  # the last release whose classes write all three formats
LAUNCHER = [sys.executable, str(HERE / "kafka_oracle.py")]
FIELDS = ("offset", "timestamp", "timestampType", "key", "value")  # the first columns of java/Consume*.java
SECONDS = 240  # for a Java program, its compilation included; a broker may take as long to start
NOTED_BYTES = 3000  # of a broker's log
SHORT_SESSION = "zookeeper.session.timeout.ms=6000"  # of a broker that a test kills

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


def consumed(
    version: str, bootstrap: str, topics: Iterable[str], isolation: str = "read_uncommitted"
) -> dict[str, list[str]]:
    """Return the lines that a version's own consumer prints of partition 0 of each topic (java/Consume*.java)."""
    names = list(topics)
    if kafka_oracle.version_key(version) < (0, 10, 1):
        printed = run("ConsumeSimple", bootstrap, ",".join(names), version=version)
    else:
        printed = run("Consume", bootstrap, ",".join(names), isolation, version=version)
    return {topic: part.splitlines() for topic, part in zip(names, printed.decode().split("\f\n"), strict=True)}


def consumed_records(version: str, bootstrap: str, topics: Iterable[str], *fields: str) -> dict[str, list[Json]]:
    """Return the fields, some of `FIELDS`, of the records that `consumed` prints. Offsets are numbers, None is null."""
    return {
        topic: [_record(line, fields) for line in lines]
        for topic, lines in consumed(version, bootstrap, topics).items()
    }


def _record(line: str, fields: Iterable[str]) -> Json:
    cells: Json = {name: None if cell == "~" else cell for name, cell in zip(FIELDS, line.split("\t"), strict=False)}
    return {name: int(cells[name]) if name == "offset" else cells[name] for name in fields}


@contextmanager
def broker(
    version: str,
    folder: Path,
    *properties: str,
    kill: bool = False,
    scratch: bool = False,
    port: int | None = None,
) -> Iterator[Json]:
    """Run a broker (and its ZooKeeper) inside the block; yield the launcher's oracle.json. Nothing runs afterwards.

    `kill`: the broker ends as in a crash. `scratch`: the folder is not used afterwards, and it ends as fast as it can.
    """
    try:
        yield start(version, folder, *properties, port=port)
    except Exception as error:
        _note_log(folder, error)
        raise
    finally:
        stop(folder, kill=kill, scratch=scratch)


def _note_log(folder: Path, error: Exception) -> None:
    """Add the end of the broker's log to an error: who judges it later has no other trace of the broker."""
    log = folder / "broker.log"
    if log.exists():
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - NOTED_BYTES))
            error.add_note(f"the broker's log ends:\n{file.read(NOTED_BYTES).decode(errors='replace')}")


@contextmanager
def brokers(version: str, folder: Path, count: int, *properties: str, scratch: bool = False) -> Iterator[list[Json]]:
    """Run brokers 0 to `count` - 1 of one cluster inside the block, as `broker` does one; the folders are 0, 1, ...

    A broker but the first may be stopped with `stop`, and be started again with `restart`.
    """
    quorum = free_port()  # of KRaft's only controller, which is broker 0
    states: list[Json] = []
    try:
        states.append(start(version, folder / "0", *properties, controller_port=quorum))
        for number in range(1, count):
            port = free_port()
            voters = f"{kafka_oracle.LOOPBACK}:{quorum}"
            joining = [
                "--broker-id",
                str(number),
                "--join-zk",
                states[0]["zookeeper"] or voters,
                *_settings(properties),
            ]
            if states[0]["zookeeper"] is None:
                of_kraft = f"process.roles=broker controller.quorum.voters=0@{voters}"
                joining += _settings([*of_kraft.split(), f"listeners=PLAINTEXT://{kafka_oracle.LOOPBACK}:{port}"])
            states.append(_launch(version, folder / str(number), port, quorum, joining))
        yield states
    finally:
        for number in reversed(range(count)):
            stop(folder / str(number), scratch=scratch)


def start(
    version: str, folder: Path, *properties: str, port: int | None = None, controller_port: int | None = None
) -> Json:
    """Start a broker (and its ZooKeeper), and return the launcher's oracle.json."""
    return _launch(version, folder, port or free_port(), controller_port or free_port(), _settings(properties))


def _settings(properties: Iterable[str]) -> list[str]:
    return [part for setting in properties for part in ("--prop", setting)]


def _launch(version: str, folder: Path, port: int, second_port: int, more: list[str]) -> Json:
    command = [*LAUNCHER, "start", version, "--dir", folder, "--port", str(port), "--zk-port", str(second_port), *more]
    subprocess.run(command, check=True, timeout=SECONDS)
    (folder / "start.json").write_text(json.dumps(list(map(str, command))))
    state: Json = json.loads((folder / "oracle.json").read_text())
    return state


def restart(folder: Path) -> None:
    """Start a broker that was stopped again, as it was started."""
    subprocess.run(json.loads((folder / "start.json").read_text()), check=True, timeout=SECONDS)


def stop(folder: Path, *, kill: bool = False, scratch: bool = False) -> None:
    """Stop what was started in a folder, if anything was. `kill`, `scratch`: see `broker`."""
    if (folder / "oracle.json").exists():
        how = [option for option, is_given in (("--kill", kill), ("--scratch", scratch)) if is_given]
        subprocess.run([*LAUNCHER, "stop", folder, *how], check=True, timeout=SECONDS)
