"""How long a broker in a test suite takes to be ready, and to be gone, beside a fake one and Kafka's own.

`first`: a new Python process, from its start until a broker of `magicbyte.testing` has answered a request (and of that,
from its first import on), and from the end of the block until broker, thread and folder are gone. `again`: the same in
a process that has had one, without any import. `parallel`: 20 brokers in one process, from the first start until all
have answered, and until all are gone. `kfake`, of franz-go, and `kafka`, 3.9.1: a process from its start until it
answers the same request; Kafka's ZooKeeper runs already. Medians of 20, of 5 for the last two. Python's bytecode is on
the disk. `load_average` is the machine's, of two cores, at the end of a case.

Run: python benchmarks/fixture.py [CASE...]   (written to benchmarks/results/fixture.json; all take about two minutes)
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import broker
import data
import harness

STARTS: Final = 20
RIVALS_STARTS: Final = 5
TARGET_SECONDS: Final = 0.5

WORKER: Final = """
import json, socket, sys, time
begin = time.monotonic()
from contextlib import ExitStack
from magicbyte.testing import Broker

def answered(address):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(REQUEST)
        assert len(connection.recv(4)) == 4

REQUEST = bytes.fromhex("0000000a" "0012" "0000" "00000007" "ffff")  # ApiVersions 0

def times(count, begin):
    with ExitStack() as stack:
        for broker in [stack.enter_context(Broker()) for _ in range(count)]:
            answered(broker.bootstrap_servers)
        ready = time.monotonic()
    return {"ready": ready - begin, "gone": time.monotonic() - ready}

started, again, parallel = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
first = times(1, started)
found = {"first": first | {"since_import": first["ready"] + started - begin}}
found["again"] = [times(1, time.monotonic()) for _ in range(again)]
found["parallel"] = [times(20, time.monotonic()) for _ in range(parallel)]
print(json.dumps(found))
"""


def worker(again: int = 0, parallel: int = 0) -> Any:
    """Return what a new process says of its brokers."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(data.folder() / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", WORKER, str(time.monotonic()), str(again), str(parallel)]
    done = subprocess.run(command, capture_output=True, check=True, env=environment, text=True, timeout=120)
    return json.loads(done.stdout)


def of_all(found: list[dict[str, float]]) -> dict[str, Any]:
    """Return median and spread of each time, in seconds."""
    result: dict[str, Any] = {}
    for name in found[0]:
        taken = [each[name] for each in found]
        result[name] = {
            "seconds": round(statistics.median(taken), 3),
            "lowest": round(min(taken), 3),
            "highest": round(max(taken), 3),
        }
    return result


def first(_: Path) -> dict[str, Any]:
    worker()  # which writes the bytecode
    found = of_all([worker()["first"] for _ in range(STARTS)])
    return found | {"target": TARGET_SECONDS, "reached": found["ready"]["seconds"] <= TARGET_SECONDS}


def again(_: Path) -> dict[str, Any]:
    return of_all(worker(again=STARTS)["again"])


def parallel(_: Path) -> dict[str, Any]:
    return of_all(worker(parallel=STARTS)["parallel"])


def answers(server: broker.Server) -> None:
    """Return when a broker answers, asking all the time, for a minute at most."""
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), broker.Peer(server).socket:
            return
        assert time.monotonic() < deadline, f"{server.bootstrap} does not answer"
        time.sleep(0.002)


def rival(make: Callable[[Path], Any]) -> Callable[[Path], dict[str, Any]]:
    """Return a case: starts of another broker, each in a folder of its own."""

    def case(folder: Path) -> dict[str, Any]:
        found = []
        for number in range(RIVALS_STARTS):
            with make(folder / str(number)) as start:
                begin = time.monotonic()
                server = start()
                answers(server)
                found.append({"ready": time.monotonic() - begin})
        return of_all(found)

    return case


CASES: Final = {
    "first": first,
    "again": again,
    "parallel": parallel,
    "kfake": rival(broker.kfake),
    "kafka": rival(lambda folder: broker.kafka(data.KAFKA, folder)),
}

if __name__ == "__main__":
    harness.run_cases("fixture", __doc__, CASES)
