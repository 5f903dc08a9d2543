"""Three of our brokers and ZooKeeper as processes, each in a network namespace of its own where that is possible.

The process that uses this calls `own_network` before it starts a thread: it is then in a network of its own, in which
nothing is but what it starts, and which is gone when it ends. Brokers are `10.77.0.1` and so on; ZooKeeper and clients
have two addresses of one side, so that a broker is cut off from the one without the other. A cut is a route to nowhere:
packets are lost without an error. Without the right to do so all are on the loopback, and nothing can be cut.
"""

from __future__ import annotations

import asyncio
import ctypes
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from interop import kafka_oracle
from ports import free_port

RELEASE = "2.8.2"  # whose ZooKeeper it is
BROKERS = (1, 2, 3)
ZOOKEEPER = 0  # in place of a broker's number
HERE, TREE = "10.77.0.253", "10.77.0.254"
SESSION_MS = 4000
PATIENCE_S = 120.0
_TICK_S, _STILL_S = 0.05, 1.0
FAULT = "because of a bug"  # in the line of what should not be
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
    "replica.fetch.backoff.ms": "200",
    "controlled.shutdown.retry.backoff.ms": "500",
    "leader.imbalance.check.interval.seconds": "5",
    "log.initial.task.delay.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "unclean.leader.election.enable": "false",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
}


class Pauses:
    """Measures for how long this process, and so probably the machine, stood still inside the block, at most."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    @property
    def were_long(self) -> bool:
        """Whether one took so long that it alone may explain a missed deadline of seconds."""
        return self.longest_s > _STILL_S

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._ended.wait(_TICK_S):
            now = time.monotonic()
            self.longest_s, last = max(self.longest_s, now - last - _TICK_S), now

    def __enter__(self) -> Pauses:
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watcher.join()


class BadDayError(AssertionError):
    """A broker ended by itself, or something does not heal."""


def own_network() -> bool:
    """Move this process into a network of its own; return whether that is allowed. Call it before any thread begins."""
    if any(shutil.which(program) is None for program in ("ip", "nsenter", "unshare")):
        return False
    if subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL).returncode:
        return False
    if ctypes.CDLL(None).unshare(NEW_NETWORK):  # os.unshare is there from Python 3.12 on
        return False
    for command in (
        "link set lo up",
        "link add hub type bridge",
        f"addr add {HERE}/24 dev hub",
        f"addr add {TREE}/24 dev hub",
        "link set hub up",
    ):
        _ip(command)
    return True


def _ip(command: str, inside: Sequence[str] = ()) -> None:
    done = subprocess.run([*inside, "ip", *command.split()], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {command}: {done.stderr}"


class Member:
    """One broker: one process after another, on one address. `settings`: beside those of all brokers."""

    def __init__(
        self, number: int, folder: Path, *, has_network: bool, settings: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.number, self.folder, self._settings = number, folder / str(number), settings
        self.process: asyncio.subprocess.Process | None = None
        self.host, self.inside = "127.0.0.1", list[str]()
        self._log = folder / f"broker-{number}.log"
        self._holder: subprocess.Popen[bytes] | None = None
        if has_network:
            self._make_network()
        self.port = 9092 if has_network else free_port()

    def _make_network(self) -> None:
        self.host = f"10.77.0.{self.number}"
        # It lasts as long as this process: its input ends with us.
        holder = self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert holder.stdout is not None
        holder.stdout.readline()
        self.inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]
        _ip(f"link add to{self.number} type veth peer name eth0 netns {holder.pid}")
        _ip(f"link set to{self.number} master hub up")
        for command in ("link set lo up", f"addr add {self.host}/24 dev eth0", "link set eth0 up"):
            _ip(command, self.inside)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def start(self, zookeeper: str) -> None:
        """Start it; return when it listens."""
        given = {"broker.id": str(self.number), "zookeeper.connect": zookeeper}
        settings = {**SETTINGS, **self._settings, **given}
        serve = [sys.executable, "-m", "magicbyte", "serve", "-v", "--dir", str(self.folder), "--listen", self.address]
        with self._log.open("ab") as errors:
            self.process = await asyncio.create_subprocess_exec(
                *DIES_WITH_US, *self.inside, *serve, *(f"{name}={value}" for name, value in settings.items()),
                stdout=asyncio.subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while self.address.encode() not in (line := await self.process.stdout.readline()):
                if not line:
                    raise BadDayError(f"broker {self.number} did not start: see {self._log}")

    def signal(self, which: signal.Signals) -> None:
        assert self.process is not None
        if self.process.returncode is not None:
            raise BadDayError(f"broker {self.number} ended by itself with {self.process.returncode}: see {self._log}")
        self.process.send_signal(which)

    async def end(self, how: signal.Signals) -> int:
        """End the process with a signal; return its status."""
        self.signal(how)
        assert self.process is not None
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    def check_log(self) -> None:
        """Raise BadDayError if the broker told of a fault of its own."""
        if FAULT in self._log.read_text(errors="replace"):
            raise BadDayError(f"broker {self.number} has a fault: see {self._log}")

    def cut(self, host: str) -> None:
        """Send nothing more to an address, answers included."""
        _ip(f"route add blackhole {host}/32", self.inside)

    def mend(self, host: str) -> None:
        _ip(f"route del blackhole {host}/32", self.inside)

    async def close(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        if self._holder is not None:
            self._holder.communicate()


DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL", "--"]


class Tree:
    """ZooKeeper, in a process."""

    def __init__(self, folder: Path, *, has_network: bool) -> None:
        self.folder, self.host = folder, TREE if has_network else kafka_oracle.LOOPBACK
        self.port = 2181 if has_network else free_port()
        self.process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def start(self) -> None:
        settings = self.folder / "zookeeper.properties"
        kafka_oracle.write_properties(
            settings,
            {
                "dataDir": self.folder / "zookeeper",
                "clientPort": self.port,
                "clientPortAddress": self.host,
                "tickTime": 500,
                "maxSessionTimeout": 60_000,
                "maxClientCnxns": 0,
                "admin.enableServer": "false",
            },
        )
        command = kafka_oracle.java_command(RELEASE, "128m", self.folder / "zookeeper.log")
        with (self.folder / "zookeeper.out").open("ab") as said:
            self.process = await asyncio.create_subprocess_exec(
                *DIES_WITH_US, *command, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings),
                stdout=said, stderr=said,
            )  # fmt: skip
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await asyncio.to_thread(kafka_oracle.zookeeper_answers, self.address):
                    return
                await asyncio.sleep(0.1)

    def signal(self, which: signal.Signals) -> None:
        assert self.process is not None
        assert self.process.returncode is None, "ZooKeeper ended by itself"
        self.process.send_signal(which)

    async def close(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
