"""The folders that readers of a guide have, and that its commands cannot make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from cli.command import run
from kraft_data import FOLDER, KraftNode
from magicbyte.access.clock import SystemClock
from magicbyte.engine.ports import MetadataStore
from magicbyte.server.metadata.sqlite import FILE_NAME
from magicbyte.server.metadata.tree import ROOT
from magicbyte.server.stores.znodes.salvage import open_metadata
from magicbyte.testing import Broker
from server.metadata.zookeeper_builders import CREATE, created, log_of, put, transaction


def _kafka_4(here: Path) -> None:
    """A damaged directory of a KRaft node; the data directory of a ZooKeeper, and the logs of its only broker."""
    node = KraftNode("4.3.1/clean-a", "node").unpacked(here / "kraft-logs")
    newest = max((node / FOLDER).glob("*.log"))
    newest.write_bytes(newest.read_bytes()[:-5])
    (node / "alpha-one-0" / "partition.metadata").unlink()
    settings = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1"}
    with Broker(settings, directory=here / "kafka-logs") as broker:
        made = run("topics", "create", "-b", broker.bootstrap_servers, "orders", "retention.ms=-1", "--partitions", "2")
        assert made.exit_code == 0, made.stderr
    store, _ = open_metadata(here / "kafka-logs", SystemClock())
    nodes = list[tuple[str, bytes]]()
    _walk(store, ROOT, nodes)
    store.close()
    for path in (here / "kafka-logs").glob(f"{FILE_NAME}*"):
        path.unlink()
    written = (transaction(1 + at, CREATE, created(path, data)) for at, (path, data) in enumerate(nodes))
    put(here / "zookeeper", {"log.1": log_of(*written)})


def _walk(store: MetadataStore, path: str, nodes: list[tuple[str, bytes]]) -> None:
    """Collect the nodes below a path, parents first."""
    for name in store.children(path):
        below = f"{path.rstrip('/')}/{name}"
        nodes.append((below, store.get(below).data))
        _walk(store, below, nodes)


PREPARED: Final[dict[str, Callable[[Path], None]]] = {"guides/kafka-4.md": _kafka_4}
"""What makes the folders of a page in the current one."""
