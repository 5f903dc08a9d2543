"""Brokers that are not left, interrupted starts, forked children, and clocks that a test has frozen."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from magicbyte.access.clock import SystemClock
from magicbyte.testing import Broker, Cluster
from magicbyte.testing.loop_thread import LoopThread, _local_port

SOURCE = Path(__file__).parents[2] / "src"
_REAL_MONOTONIC = time.monotonic


def script(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program whose temporary files are in `folder`. Raises TimeoutExpired if it does not end."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, timeout=60
    )


NEVER_LEFT = {
    "a broker": ("Broker().__enter__()", 0),
    "an exception after it": ("broker = Broker().__enter__(); raise SystemExit(3)", 3),
    "one with a directory": ("broker = Broker(directory='kept').__enter__()", 0),
    "a cluster": ("cluster = Cluster(1).__enter__()", 0),
}


@pytest.mark.parametrize("case", NEVER_LEFT)
def test_a_broker_that_is_never_left_stops_cleanly_when_the_process_exits(case: str, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    code, status = NEVER_LEFT[case]
    program = f"import os; os.chdir({str(tmp_path)!r})\nfrom magicbyte.testing import Broker, Cluster\n{code}"
    done = script(program, tmp_path / "temporary")
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
    assert list((tmp_path / "temporary").iterdir()) == []
    if "directory" in case:
        assert (tmp_path / "kept/.kafka_cleanshutdown").exists()


def test_an_interrupted_start_stops_what_had_been_started() -> None:
    stopped = threading.Event()

    async def serve(started: Callable[[], None], ended: asyncio.Event) -> None:
        try:
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)  # `start` waits there
            await asyncio.sleep(60)
        finally:
            stopped.set()

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        LoopThread("test", serve).start()
    assert stopped.is_set()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def child(work: Callable[[], None]) -> int:
    """Run `work` in a forked child; return its process id."""
    if process := os.fork():
        return process
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


@pytest.mark.filterwarnings(
    "ignore:.*fork.*:DeprecationWarning"
)  # Python warns where there are threads: here it is meant
def test_a_forked_child_leaves_the_block_without_stopping_the_parents_broker() -> None:
    with Broker() as broker, Cluster(1) as cluster:

        def leave() -> None:
            broker.__exit__(None, None, None)
            cluster.__exit__(None, None, None)
            with pytest.raises(RuntimeError, match="runs in the process"):
                cluster.stop(1)

        assert os.waitpid(child(leave), 0)[1] == 0
        host, port = broker.bootstrap_servers.split(":")
        socket.create_connection((host, int(port))).close()
        assert cluster.running == {1}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_that_lives_on_keeps_neither_address_nor_connections() -> None:
    """The child looks at its own descriptors: the port may be another process's as soon as it is free."""
    living, end = os.pipe()
    with Broker() as broker:
        host, port = broker.bootstrap_servers.split(":")
        client = socket.create_connection((host, int(port)), timeout=30)

        def live() -> None:
            os.close(end)
            assert int(port) not in {_local_port(int(path.name)) for path in Path("/dev/fd").iterdir()}
            os.read(living, 1)

        child_id = child(live)
    try:
        assert client.recv(1) == b""  # the broker's end is closed, although the child lives
    finally:
        os.close(end)
        assert os.waitpid(child_id, 0)[1] == 0
        os.close(living)
        client.close()


def test_timers_of_a_broker_run_while_a_test_has_frozen_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(started: Callable[[], None], ended: asyncio.Event) -> None:
        started()
        await ended.wait()

    frozen_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: frozen_s)
    monkeypatch.setattr(time, "monotonic_ns", lambda: int(frozen_s * 1e9))
    thread = LoopThread("test", serve)
    thread.start()
    clock, end_s = SystemClock(), _REAL_MONOTONIC() + 10
    begin_ms = clock.monotonic_ms()
    slept = asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01, "slept"), thread._running.result())
    while not slept.done() and _REAL_MONOTONIC() < end_s:
        time.sleep(0.001)
    thread.stop()
    assert slept.result(0) == "slept"
    assert clock.monotonic_ms() > begin_ms


def test_the_folder_of_a_broker_that_cannot_start_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="security: expected"), Broker(security="TLS", users={}):
        pass
    assert list(tmp_path.iterdir()) == []
