"""What `magicbyte migrate canary` reports of a canary, compared with two other brokers under the same load.

Three `magicbyte serve` with a ZooKeeper; each leads a partition of a topic with three replicas. A producer of format 0
sends 100 sets of 10 records a second to each partition, two consumers read all of them. Broker 1 is the canary.

- before: all brokers store format 0.
- V1: the others have the old protocol, fetch in the old version, and get converted copies. `old`: both consumers know
  format 0 alone; `new`: both know format 1.
- V2: the others have the new protocol; copies are the canary's bytes. `old`, `new` as above.
- errors: V2 with new consumers, and the canary refuses sets (message.max.bytes=10).
- slow: V2 with new consumers, and each append of the canary takes 10 ms more, in its own process.

Run: python benchmarks/canary.py   (written to benchmarks/results/canary.json)
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
from broker import Server, free_port
from cluster import BROKERS, Cluster, cluster
from magicbyte.access.client import Client
from magicbyte.access.client.fetch import FetchOptions, fetch_sets
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import ProduceOptions, send
from magicbyte.engine.errors import ErrorCode, MagicbyteError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import Format

CANARY, TOPIC = 1, "orders"
PRODUCER = "producer"
CLIENTS = (PRODUCER, "consumer-0", "consumer-1")
WATCH_S, EVERY_S = 10, 0.01
OLD, NEW = range(2), range(2, 3)
SLOW = """
import time
from magicbyte.engine.log.live.partition_log import PartitionLog
appended = PartitionLog.append
def slowly(*arguments, **given):
    time.sleep(0.01)
    return appended(*arguments, **given)
PartitionLog.append = slowly
from magicbyte.cli.main import main
main()
"""


class Canaries(Cluster):
    """Our brokers, each with its own settings."""

    def __init__(self, folder: Path, zookeeper: int) -> None:
        super().__init__(folder, zookeeper)
        self.settings = dict.fromkeys(BROKERS, ("0.9.0", "0"))
        self.more = dict.fromkeys(BROKERS, ())
        self.slow = set[int]()
        self.http = {each: free_port() for each in BROKERS}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        protocol, form = self.settings[number]
        command = ["-c", SLOW] if number in self.slow else ["-m", "magicbyte"]
        settings = (
            f"broker.id={number}", f"zookeeper.connect={self.zookeeper}", "log.retention.ms=-1",
            f"inter.broker.protocol.version={protocol}", f"log.message.format.version={form}",
            "auto.leader.rebalance.enable=true", "leader.imbalance.check.interval.seconds=2",
            "leader.imbalance.per.broker.percentage=0", "zookeeper.session.timeout.ms=6000",
            "offsets.topic.replication.factor=3", *self.more[number],
        )  # fmt: skip
        where = ["--dir", str(self.folder / str(number)), "--listen", f"127.0.0.1:{self.ports[number]}"]
        log = (self.folder / f"{number}.out").open("ab")
        arguments = [sys.executable, *command, "serve", *where, "--http", f"127.0.0.1:{self.http[number]}", *settings]
        process = self._processes[number] = subprocess.Popen(arguments, stdout=log, stderr=log)
        self.servers[number] = Server(f"127.0.0.1:{self.ports[number]}", process.pid)

    def kill(self, number: int) -> None:
        del self.servers[number]
        process = self._processes.pop(number)
        process.terminate()
        process.wait(60)

    def restart(self, number: int, protocol: str, form: str) -> None:
        if self.settings[number] != (protocol, form) or self.more[number] or number in self.slow:
            self.kill(number)
            self.settings[number] = protocol, form
            self.start(number)
            self.until_led()

    def until_led(self) -> None:
        """Wait until each broker leads a partition and all replicas are in sync."""
        deadline = time.monotonic() + 120
        while True:
            self.until_in_sync(TOPIC)
            if {asyncio.run(self._leader(each)) for each in range(len(BROKERS))} == set(BROKERS):
                return
            assert time.monotonic() < deadline, "a broker leads nothing"
            time.sleep(0.2)

    async def _leader(self, partition: int) -> int | None:
        async with Client(self.bootstrap) as client:
            return (await client.topics([TOPIC]))[TOPIC].partitions[partition].leader


@contextlib.contextmanager
def load(bootstrap: str, fetches: range) -> Iterator[None]:
    """Produce and consume while the block runs. It begins once each client was answered about each partition."""
    begun, ended, sending = threading.Event(), threading.Event(), ProduceOptions(format=Format.V0)
    unanswered = {(name, partition) for name in CLIENTS for partition in range(len(BROKERS))}
    records = [Record(at, 1_700_000_000_000, 0, b"key", b"value" * 20) for at in range(10)]

    def answered(name: str, partition: int) -> None:
        unanswered.discard((name, partition))
        if not unanswered:
            begun.set()

    async def produce(client: Client, name: str, partition: int) -> None:
        while not ended.is_set():
            code = ErrorCode.NONE
            try:
                await send(client, TOPIC, partition, records, sending)
            except MagicbyteError as error:
                code = error.code
            if code in (ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE):  # the canary of `errors` refuses all sets
                answered(name, partition)
            await asyncio.sleep(EVERY_S)

    async def consume(client: Client, name: str, partition: int) -> None:
        _, offset = await bounds(client, TOPIC, partition)
        while not ended.is_set():
            with contextlib.suppress(MagicbyteError):
                options = FetchOptions(versions=fetches, max_wait_ms=20)
                offset = (await fetch_sets(client, TOPIC, partition, offset, options)).next_offset
                answered(name, partition)

    async def work() -> None:
        async with contextlib.AsyncExitStack() as opened, asyncio.TaskGroup() as tasks:
            for name in CLIENTS:
                client = await opened.enter_async_context(Client(bootstrap, client_id=name))
                for partition in range(len(BROKERS)):
                    tasks.create_task((produce if name == PRODUCER else consume)(client, name, partition))

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        assert begun.wait(60), f"not answered yet: {sorted(unanswered)}"
        yield
    finally:
        ended.set()
        thread.join()


def watched(made: Canaries, fetches: range) -> dict[str, Any]:
    """Return what the command prints of the canary under load."""
    command = [
        sys.executable, "-m", "magicbyte", "migrate", "canary", "-b", made.bootstrap,
        "--broker", str(CANARY),
        "--watch", str(WATCH_S), "--max-leaders", "50", "--format", "json",
    ]  # fmt: skip
    with load(made.bootstrap, fetches):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def canaries(folder: Path) -> dict[str, Any]:
    found = dict[str, Any]()
    with cluster(Canaries, folder / "cluster") as made:
        assert isinstance(made, Canaries)
        made.make(TOPIC)
        made.until_led()
        found["before"] = watched(made, OLD)
        made.restart(CANARY, "0.10.0", "1")
        found["V1 old"] = watched(made, OLD)
        found["V1 new"] = watched(made, NEW)
        for each in BROKERS[1:]:
            made.restart(each, "0.10.0", "0")
        found["V2 old"] = watched(made, OLD)
        found["V2 new"] = watched(made, NEW)
        made.more[CANARY] = ("message.max.bytes=10",)
        made.restart(CANARY, "0.10.0", "1")
        found["errors"] = watched(made, NEW)
        made.more[CANARY] = ()
        made.slow.add(CANARY)
        made.kill(CANARY)
        made.start(CANARY)
        made.until_led()
        found["slow"] = watched(made, NEW)
    for name, each in found.items():
        print(name, each["verdict"], *each["reasons"], sep="\n  ")
    return found


if __name__ == "__main__":
    harness.run_cases("canary", __doc__, {"canary": canaries})
