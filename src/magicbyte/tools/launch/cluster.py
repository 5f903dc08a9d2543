"""A cluster in a folder of this machine: its processes and settings, start and stop.

`cluster.json` in the folder lists the processes of the cluster. It is written before a process is needed and after each
start, so that every process is always known.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from magicbyte.access.client import Client
from magicbyte.engine.errors import InvalidConfigError, LogDirectoryError, MagicbyteError, NetworkError
from magicbyte.tools.launch import zookeeper
from magicbyte.tools.launch.processes import ProcessId, spawn

STATE: Final = "cluster.json"
LOOPBACK: Final = "127.0.0.1"
DEFAULT_BROKERS, DEFAULT_PORT = 3, 9092
PATIENCE_S: Final = 60.0  # for a process to become ready, or to end
_OWN_PORTS: Final = range(10_000, 32_000)
_LOCK: Final = "cluster.lock"
_ZOOKEEPER: Final = "zookeeper"
_LISTENING: Final = b"listening on "
_POLL_S: Final = 0.05
_OFFSETS_FACTOR: Final = "offsets.topic.replication.factor"
_SHUTDOWN_TRIES: Final = "controlled.shutdown.max.retries"
_MOST_REPLICAS: Final = 3  # of internal topics, as Kafka's default


@dataclass(slots=True)
class LaunchedBroker:
    """A broker of the cluster. `process` is the last one started for it."""

    id: int
    port: int
    http: int | None = None
    process: ProcessId | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its process is running."""
        return self.process is not None and self.process.is_alive

    @property
    def address(self) -> str:
        """Its address for clients."""
        return f"{LOOPBACK}:{self.port}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without the id of a process that has ended."""
        pid = self.process.pid if self.process is not None and self.is_alive else None
        return {"broker": self.id, "address": self.address, "alive": self.is_alive, "pid": pid}


@dataclass(frozen=True, slots=True)
class WantedCluster:
    """The requested settings of a cluster. None: the existing one, or the default of a new cluster.

    `zookeeper`: an external one; `jars`: the class path of one that is started here. `port` is the first broker's, the
    others have the following ones; 0: any free ones. `http` is the same for metrics.
    """

    brokers: int | None = None
    zookeeper: str | None = None
    jars: str | None = None
    port: int | None = None
    http: int | None = None
    as_version: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class LocalCluster:
    """The cluster in a folder. `zookeeper_port` is that of its own ZooKeeper, None if it has none.

    `say` is called with a line for each step.
    """

    directory: Path
    zookeeper: str | None = None
    zookeeper_port: int | None = None
    zookeeper_process: ProcessId | None = None
    members: list[LaunchedBroker] = field(default_factory=list)
    as_version: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = print

    # ---- the file

    @classmethod
    def load(cls, directory: Path, say: Callable[[str], None]) -> LocalCluster:
        """Return the cluster of a folder. Raises LogDirectoryError if there is none."""
        path = directory / STATE
        try:
            state = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            why = "`magicbyte cluster up` makes one"
            raise LogDirectoryError(
                f"{directory}: expected the folder of a cluster, found no {STATE}: {why}"
            ) from error
        except ValueError as error:
            raise LogDirectoryError(f"{path} is damaged: {error}") from error
        try:
            return cls._of(directory, state, say)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LogDirectoryError(f"{path} is damaged: {error!r}") from error

    @classmethod
    def _of(cls, directory: Path, state: Any, say: Callable[[str], None]) -> LocalCluster:
        def process(entry: Any) -> ProcessId | None:
            return None if entry is None else ProcessId(int(entry["pid"]), str(entry["birth"]))

        return cls(
            directory,
            state["zookeeper"],
            state["zookeeperPort"],
            process(state["zookeeperProcess"]),
            [LaunchedBroker(int(each["id"]), int(each["port"]), each["http"], process(each["process"]))
             for each in state["brokers"]],
            state["asVersion"],
            {str(name): str(value) for name, value in state["settings"].items()},
            say,
        )  # fmt: skip

    def save(self) -> None:
        """Write the file: after a crash a reader finds the old or the new one."""
        content = {
            "zookeeper": self.zookeeper,
            "zookeeperPort": self.zookeeper_port,
            "zookeeperProcess": None if self.zookeeper_process is None else asdict(self.zookeeper_process),
            "brokers": [asdict(each) for each in self.members],
            "asVersion": self.as_version,
            "settings": self.settings,
        }
        made = self.directory / f"{STATE}.tmp"
        with made.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        made.replace(self.directory / STATE)

    @property
    def bootstrap(self) -> str:
        """The bootstrap addresses of the cluster."""
        return ",".join(each.address for each in self.members)

    def log(self, member: LaunchedBroker) -> Path:
        """Return the output file of a broker."""
        return self.directory / f"broker-{member.id}.log"

    # ---- start

    def up(self, wanted: WantedCluster, environment: Mapping[str, str]) -> None:
        """Start the processes that are not running; return when all brokers are members of the cluster.

        Raises InvalidConfigError, NetworkError, MagicbyteError; then the processes started here are stopped.
        """
        starting = self._take(wanted)
        begun: list[ProcessId] = []
        try:
            if self.zookeeper_port is not None and not (self.zookeeper_process and self.zookeeper_process.is_alive):
                begun.append(self._start_zookeeper(wanted.jars, environment))
            offsets = {each.id: self._start_broker(each, begun) for each in starting}
            for each in starting:
                self._wait_for(each, offsets[each.id])
            asyncio.run(self._joined())
        except BaseException:
            for process in reversed(begun):
                process.send(signal.SIGTERM)
                process.wait(PATIENCE_S)
            raise

    def _take(self, wanted: WantedCluster) -> list[LaunchedBroker]:
        """Apply the requested settings, if they fit the existing cluster; return the brokers to start."""
        while self.members and not (self.directory / f"broker-{self.members[-1].id}").exists():
            self.members.pop()  # its start had failed
        count = wanted.brokers or len(self.members) or DEFAULT_BROKERS
        if count < len(self.members):
            why = "move their partitions to the others and leave them stopped, or start with an empty folder"
            raise InvalidConfigError(f"{self.directory} has {len(self.members)} brokers, not {count}: {why}")
        if self.members and wanted.zookeeper not in (None, self.zookeeper):
            raise InvalidConfigError(
                f"the metadata of {self.directory} is in the ZooKeeper at {self.zookeeper}: expected this one or none, "
                f"found {wanted.zookeeper}"
            )
        if not self.members:
            self.zookeeper = wanted.zookeeper
            if wanted.zookeeper is None:
                (self.zookeeper_port,) = _free_ports(1)
                self.zookeeper = f"{LOOPBACK}:{self.zookeeper_port}"
        self._number(count, wanted)
        self.settings |= wanted.settings
        self.as_version = wanted.as_version or self.as_version
        starting = [each for each in self.members if not each.is_alive]
        for port in (port for each in starting for port in (each.port, each.http) if port is not None):
            _check_free(port)
        self.save()
        return starting

    def _number(self, count: int, wanted: WantedCluster) -> None:
        """Assign ports to each broker: its earlier ones, or the requested ones."""
        running = [each for each in self.members if each.is_alive]
        for name, first in (("port", wanted.port), ("http", wanted.http)):
            if first is not None and any(getattr(each, name) != first + each.id - 1 for each in running):
                why = "`cluster down` first to change ports"
                raise InvalidConfigError(f"--{name} {first}: broker {running[0].id} runs with another one: {why}")
        fresh = [LaunchedBroker(number, -1) for number in range(len(self.members) + 1, count + 1)]
        changed = fresh if wanted.port is None else [*self.members, *fresh]
        first = wanted.port
        if first is None:
            first = self.members[0].port if self.members else DEFAULT_PORT
        ports = _free_ports(len(changed)) if first == 0 else [first + each.id - 1 for each in changed]
        self.members += fresh
        for member, port in zip(changed, ports, strict=True):
            member.port = port
        if wanted.http is not None:
            more = _free_ports(count) if wanted.http == 0 else range(wanted.http, wanted.http + count)
            for member, port in zip(self.members, more, strict=True):
                member.http = port

    def _start_zookeeper(self, jars: str | None, environment: Mapping[str, str]) -> ProcessId:
        assert self.zookeeper_port is not None
        _check_free(self.zookeeper_port)
        directory, output = self.directory / _ZOOKEEPER, self.directory / f"{_ZOOKEEPER}.log"
        found = zookeeper.classpath(jars, environment)
        command = zookeeper.command(directory.absolute(), self.zookeeper_port, found, environment)
        self.say(f"starting ZooKeeper on {self.zookeeper} ({found})")
        process = self.zookeeper_process = spawn(command, output)
        self.save()
        end = time.monotonic() + PATIENCE_S
        while not _accepts(self.zookeeper_port):
            _check_alive("ZooKeeper", process, output, end)
            time.sleep(_POLL_S)
        return process

    def _start_broker(self, member: LaunchedBroker, begun: list[ProcessId]) -> int:
        """Start a broker; return the previous size of its output file."""
        output = self.log(member)
        said = output.stat().st_size if output.exists() else 0
        self.say(f"starting broker {member.id} on {member.address}")
        member.process = spawn(self._command(member), output)
        begun.append(member.process)
        self.save()
        return said

    def _command(self, member: LaunchedBroker) -> list[str]:
        settings = {
            _OFFSETS_FACTOR: str(min(len(self.members), _MOST_REPLICAS)),
            _SHUTDOWN_TRIES: "1",  # the last brokers of a stopping cluster cannot hand over leadership
            **self.settings,
            "broker.id": str(member.id),
            "zookeeper.connect": str(self.zookeeper),
        }
        command = [sys.executable, "-P", "-m", "magicbyte", "serve", "--listen", member.address]
        command += ["--dir", str(self.directory.absolute() / f"broker-{member.id}")]
        command += [] if member.http is None else ["--http", f"{LOOPBACK}:{member.http}"]
        command += [] if self.as_version is None else ["--as-version", self.as_version]
        return [*command, *(f"{name}={value}" for name, value in settings.items())]

    def _wait_for(self, member: LaunchedBroker, start: int) -> None:
        """Wait until a broker listens. Raises NetworkError."""
        assert member.process is not None
        output, end = self.log(member), time.monotonic() + PATIENCE_S
        while _LISTENING not in _text_from(output, start):
            _check_alive(f"broker {member.id}", member.process, output, end)
            time.sleep(_POLL_S)

    async def _joined(self) -> None:
        """Wait until all running brokers are in the cluster. Raises NetworkError."""
        expected = {each.id for each in self.members}
        end = time.monotonic() + PATIENCE_S
        async with Client(self.bootstrap, retry_ms=0) as client:
            while True:
                with contextlib.suppress(MagicbyteError):
                    await client.topics([])
                if (found := set(client.cluster.brokers)) == expected and client.cluster.controller is not None:
                    return
                if time.monotonic() > end:
                    what = f"expected brokers {sorted(expected)} and a controller in the cluster, found {sorted(found)}"
                    raise NetworkError(f"{what} after {PATIENCE_S:.0f} s: see {self.directory}/broker-*.log")
                await asyncio.sleep(_POLL_S)

    # ---- stop

    def down(self) -> None:
        """Stop the brokers one by one, so that each hands over its partitions; then the ZooKeeper.

        Raises NetworkError for a process that does not end; the others keep running.
        """
        for member in self.members:
            if member.process is not None:
                self._stop(f"broker {member.id}", member.process)
                member.process = None
                self.save()
        if self.zookeeper_process is not None:
            self._stop("ZooKeeper", self.zookeeper_process)
            self.zookeeper_process = None
            self.save()

    def _stop(self, name: str, process: ProcessId) -> None:
        if not process.is_alive:
            return
        self.say(f"stopping {name}")
        process.send(signal.SIGTERM)
        if not process.wait(PATIENCE_S):
            raise NetworkError(
                f"{name} (process {process.pid}) has not ended {PATIENCE_S:.0f} s after SIGTERM: see its log in "
                f"{self.directory}; kill -9 {process.pid} ends it without a clean shutdown"
            )

    def delete(self) -> None:
        """Delete the files of `up` in the folder, and the folder if it is empty then. No process may run."""
        assert not any(each.is_alive for each in self.members), "the brokers have been stopped"
        for name in (*(f"broker-{each.id}" for each in self.members), _ZOOKEEPER):
            shutil.rmtree(self.directory / name, ignore_errors=True)
            (self.directory / f"{name}.log").unlink(missing_ok=True)
        (self.directory / STATE).unlink()
        (self.directory / _LOCK).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.directory.rmdir()


@contextlib.contextmanager
def held(directory: Path, say: Callable[[str], None], *, makes: bool = False) -> Iterator[LocalCluster]:
    """Yield the cluster of a folder, locked against other commands during the block.

    `makes`: allow a new one in an empty or missing folder. Raises LogDirectoryError.
    """
    if not (directory / STATE).exists():
        _check_makes(directory, makes=makes)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LogDirectoryError(f"{directory}: another command is starting or stopping this cluster") from error
        if (directory / STATE).exists():
            found = LocalCluster.load(directory, say)
            if not makes or any((directory / f"broker-{each.id}").exists() for each in found.members):
                yield found
                return
        yield LocalCluster(directory, say=say)  # a new cluster, or one whose start had failed


def _check_makes(directory: Path, *, makes: bool) -> None:
    """Raise LogDirectoryError unless a new cluster may be created in the folder."""
    if not makes:
        why = "`magicbyte cluster up` makes one"
        raise LogDirectoryError(f"{directory}: expected the folder of a cluster, found no {STATE}: {why}")
    found = sorted(each.name for each in directory.iterdir() if each.name != _LOCK) if directory.exists() else []
    if found:
        what = f"found {', '.join(found[:3])} in it"
        raise LogDirectoryError(
            f"{directory}: expected an empty folder or the folder of a cluster, {what}: give another folder"
        )


def _text_from(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read()


def _check_alive(name: str, process: ProcessId, output: Path, end: float) -> None:
    """Raise NetworkError for a process that has ended, or is not ready in time."""
    if process.is_alive and time.monotonic() < end:
        return
    lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    what = f"was not ready after {PATIENCE_S:.0f} s" if process.is_alive else "ended at its start"
    raise NetworkError(f"{name} {what}: {lines[-1] if lines else 'it printed nothing'} (full output: {output})")


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), 1).close()
    except OSError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    """Return free ports.

    A port is kept for the life of the cluster, even while it is stopped. So it is below the range of ephemeral ports
    (32768 to 60999 on Linux), of which a connection might use it at a later start.
    """
    ports = list[int]()
    for port in random.sample(_OWN_PORTS, len(_OWN_PORTS)):
        if len(ports) == count:
            break
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            ports.append(port)
    return ports


def _check_free(port: int) -> None:
    """Raise InvalidConfigError for a port in use."""
    if port > 65535:
        raise InvalidConfigError(f"port {port}: expected at most 65535: choose a smaller one with --port or --http")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            why = "choose another with --port or --http (0: any that are free), or end what listens there"
            raise InvalidConfigError(f"port {port} is taken ({error.strerror}): {why}") from error
