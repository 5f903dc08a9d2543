"""Real KRaft nodes over directories that Kafka did not write: each is a broker and the only controller."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from interop import kafka_oracle
from ports import free_port

SECONDS: Final = 240
_HEAP: Final = "512m"
_TROUBLE: Final = re.compile(
    r"stray|\b(ERROR|FATAL)\b|truncat|corrupt|[Rr]ecovering unflushed|Could not find|UncleanShutdown: changing",
    re.IGNORECASE,
)
_USUAL: Final = re.compile(r"partition=__cluster_metadata-0|apiKey=CONTROLLER_REGISTRATION")
"""The metadata log is recovered at each start. A controller registers before it is active, and repeats that."""


@contextmanager
def kraft_node(
    release: str, folder: Path, node_id: int, *, controller_port: int | None = None, is_dynamic: bool = False,
    properties: dict[str, str] | None = None,
) -> Iterator[str]:  # fmt: skip
    """Run a node over FOLDER/data inside the block; yield its address. Its log is FOLDER/broker.log."""
    folder.mkdir(parents=True, exist_ok=True)
    port, quorum = free_port(), controller_port or free_port()
    voter = (
        {"controller.quorum.bootstrap.servers": f"127.0.0.1:{quorum}"}
        if is_dynamic
        else {"controller.quorum.voters": f"{node_id}@127.0.0.1:{quorum}"}
    )
    settings = kafka_oracle.BROKER_DEFAULTS | voter | {
        "log.dirs": folder / "data",
        "node.id": node_id,
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{quorum}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "auto.create.topics.enable": "false",
        **(properties or {}),
    }  # fmt: skip
    config = folder / "server.properties"
    kafka_oracle.write_properties(config, settings)
    command = [*kafka_oracle.java_command(release, _HEAP, folder / "broker.log"), "kafka.Kafka", str(config)]
    pid = kafka_oracle.spawn(command, folder / "broker.out")
    try:
        kafka_oracle.wait_until(lambda: kafka_oracle.broker_answers("4.0.0", port), pid, folder, SECONDS, "the node")
        yield f"127.0.0.1:{port}"
    finally:
        kafka_oracle.stop_process(pid, folder, signal.SIGTERM)


def troubles(folder: Path, *, has_indexes: bool = True) -> list[str]:
    """The lines of a node's log that a sound directory gives no reason for, and folders that it renamed.

    `has_indexes`: False for golden directories, which lack some, and whose logs are then recovered.
    """
    lines = (folder / "broker.log").read_text(errors="replace").splitlines()
    found = [each for each in lines if _TROUBLE.search(each) and not _USUAL.search(each)]
    if not has_indexes:
        found = [each for each in found if "Could not find offset index file" not in each]
    return found + [each.name for each in (folder / "data").iterdir() if "stray" in each.name]
