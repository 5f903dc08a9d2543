"""Build the image of container/Containerfile from dist/*.whl, and try it as docs/internals/release.md says.

Run: .venv/bin/python tools/check_container.py -o benchmarks/results/container.json [ARGUMENT...]
Needs podman, root, the port 9092, and the base image or a registry that has it. Further arguments are those of
`podman build`, such as a mount of pip's configuration.
"""

import argparse
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, libversion
from confluent_kafka.admin import AdminClient

ROOT = Path(__file__).resolve().parent.parent
IMAGE: Final = "localhost/magicbyte-check"
VOLUME: Final = "magicbyte-check"
CONTAINER: Final = "magicbyte-check"
USER: Final = "10001"
LIMIT_S: Final = 60.0
LOCKED: Final = ("--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges")
"""Nothing can be written but the volume, and no right can be gained."""


def podman(*arguments: str | Path, check: bool = True) -> str:
    """Run podman, and return what it prints. Its messages are this program's."""
    return subprocess.run(["podman", *arguments], check=check, stdout=subprocess.PIPE, text=True).stdout.strip()


def inspect(kind: str, name: str) -> Any:
    """Return the description of an image or a container."""
    return json.loads(podman(kind, "inspect", name))[0]


def build(arguments: list[str]) -> None:
    """Build the image. The format of OCI has no health check."""
    recipe = ROOT / "container/Containerfile"
    podman("build", "--format", "docker", "--file", recipe, "--tag", IMAGE, *arguments, ROOT)
    assert inspect("image", IMAGE)["Healthcheck"]["Test"][0] == "CMD"


@contextmanager
def container(*options: str, command: Sequence[str] = ()) -> Iterator[float]:
    """Run the image in the background, with the volume, and remove it at the end. Yields the time of the start."""
    started = time.monotonic()
    podman("run", "--detach", "--name", CONTAINER, f"--volume={VOLUME}:/data", *options, IMAGE, *command)
    try:
        yield started
    finally:
        podman("rm", "--force", "--time=0", CONTAINER)


def answers(address: str) -> None:
    """Wait until a client gets the cluster's metadata."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=2)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise


def stop() -> float:
    """Stop the container, and return after how many seconds its process has ended. It must end by itself."""
    process = os.pidfd_open(inspect("container", CONTAINER)["State"]["Pid"])
    try:
        began = time.monotonic()
        with subprocess.Popen(["podman", "stop", CONTAINER], stdout=subprocess.DEVNULL) as stopping:
            assert select.select([process], [], [], LIMIT_S)[0]
            took = time.monotonic() - began
        assert stopping.returncode == 0
    finally:
        os.close(process)
    assert inspect("container", CONTAINER)["State"]["ExitCode"] == 0
    return took


def produce(address: str, value: bytes) -> None:
    """Produce a record, acknowledged by all replicas."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": address, "acks": "all", "message.timeout.ms": 30000})
    producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(LIMIT_S) == 0
    assert errors == [None]


def consume(address: str, count: int) -> list[bytes | None]:
    """Return the values of `count` records, read by a new group."""
    settings = {"bootstrap.servers": address, "group.id": f"check-{count}", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["orders"])
        found = consumer.consume(count, LIMIT_S)
        assert [each.error() for each in found] == [None] * count
        return [each.value() for each in found]
    finally:
        consumer.close()


def healthy() -> None:
    """Wait until the health check of the image succeeds and podman says so."""
    deadline = time.monotonic() + LIMIT_S
    while subprocess.run(["podman", "healthcheck", "run", CONTAINER], check=False).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    state = inspect("container", CONTAINER)["State"]
    assert (state.get("Health") or state["Healthcheck"])["Status"] == "healthy"


def rights() -> dict[str, str]:
    """Return the IDs and capabilities of the broker's process, from the kernel. It must not be root."""
    status = Path(f"/proc/{inspect('container', CONTAINER)['State']['Pid']}/status").read_text(encoding="utf-8")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == fields["Gid"].split() == [USER] * 4
    assert int(fields["CapEff"], 16) == 0
    return {name: fields[name].split()[0] for name in ("Uid", "Gid", "CapEff")}


def serve(port: int) -> list[str]:
    """Return the command of the recipe for clients that reach the broker at another port."""
    words: list[str] = inspect("image", IMAGE)["Config"]["Cmd"]
    return [word.replace("//localhost:9092", f"//127.0.0.1:{port}") for word in words]


def free_port() -> int:
    """Return a port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def read_backup() -> None:
    """Read logs of the host that are mounted read-only."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # another user reads it
        unpack = [sys.executable, "-m", "magicbyte", "tour", "--unpack", folder / "tour"]
        subprocess.run(unpack, check=True, stdout=subprocess.DEVNULL)
        run = ("run", "--rm", *LOCKED, f"--volume={folder}/tour/logs/kafka-4.3.1:/backup:ro", IMAGE)
        assert "basic-zstd" in podman(*run, "inventory", "/backup")
        podman(*run, "verify", "/backup/basic-zstd-0", "--deep")


def trial() -> dict[str, Any]:
    """Try the recipe's command, then a locked container at another port on the same volume, started four times."""
    starts, stops = [], []
    with container("--publish=9092:9092") as started:
        answers("localhost:9092")
        starts.append(time.monotonic() - started)
        produce("localhost:9092", b"first")
        assert consume("localhost:9092", 1) == [b"first"]
        healthy()
        user = rights()
        stops.append(stop())

    port = free_port()
    address = f"127.0.0.1:{port}"
    with container(f"--publish={address}:9092", *LOCKED, command=serve(port)) as started:
        answers(address)
        starts.append(time.monotonic() - started)
        produce(address, b"second")
        assert consume(address, 2) == [b"first", b"second"]
        stops.append(stop())
        for _ in range(3):
            started = time.monotonic()
            podman("start", CONTAINER)
            answers(address)
            starts.append(time.monotonic() - started)
            stops.append(stop())
    return {
        "start_seconds": [round(each, 2) for each in starts],
        "stop_seconds": [round(each, 2) for each in stops],
        **user,
    }


def versions() -> dict[str, str]:
    """Return the versions of what was tried, and the processor's name."""
    inside = 'import platform; print(platform.python_version(), platform.freedesktop_os_release()["PRETTY_NAME"])'
    python, _, system = podman("run", "--rm", "--entrypoint=python", IMAGE, "-c", inside).partition(" ")
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("model name\t: ")[2].partition("\n")[0]
    runtime = json.loads(podman("info", "--format=json"))["host"]["ociRuntime"]
    return {
        "magicbyte": podman("run", "--rm", IMAGE, "--version").split()[-1],
        "image": f"Python {python}, {system}",
        "podman": podman("--version").split()[-1],
        "runtime": " ".join(runtime["version"].split()[:3]),
        "librdkafka": libversion()[0],
        "cpu": f"{cpu}, {os.cpu_count()} cores",
    }


def main() -> None:
    """Build, try, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given, arguments = parser.parse_known_args()
    if shutil.which("podman") is None:
        raise SystemExit("tools/check_container.py: needs podman; on Debian or Ubuntu: sudo apt install podman")
    build(arguments)
    base = inspect(
        "image", (ROOT / "container/Containerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2].split()[0]
    )
    podman("volume", "create", VOLUME)
    try:
        measured = trial()
    finally:
        podman("volume", "rm", VOLUME)
    read_backup()
    size = inspect("image", IMAGE)["Size"]
    report = {
        "what": "tools/check_container.py: the image of container/Containerfile, built, started and stopped by podman",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": versions(),
        "image_bytes": size,
        "above_base_bytes": size - base["Size"],
        **measured,
        "load_average": round(os.getloadavg()[0], 1),
    }
    given.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
