"""Trees of a cluster: new ones, and those that real brokers wrote."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Final

from magicbyte.engine.ports import MetadataStore
from magicbyte.server.metadata.memory import MemoryStore
from magicbyte.server.metadata.tree import StoredNode, Tree
from magicbyte.server.stores.znodes import acl_nodes, layout
from server.broker.serving import Clock

RECORDED: Final = ("1.1.1", "2.8.2", "3.9.1")
TREES: Final = Path(__file__).parents[3] / "golden" / "trees"


def recorded(version: str) -> MetadataStore:
    """The tree of one broker's cluster, as ZooKeeper restored it."""
    with gzip.open(TREES / f"{version}.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    children = [row["path"].rpartition("/")[0] or "/" for row in rows if row["path"] != "/"]
    nodes = {
        row["path"]: StoredNode(
            base64.b64decode(row["data"] or ""),
            *(row[name] for name in ("version", "czxid", "mzxid", "pzxid", "ctime", "mtime")),
            (row["cversion"] + children.count(row["path"])) // 2,
            row["ephemeralOwner"],
        )
        for row in rows
    }
    return Tree(Clock(), lambda _nodes, _zxid: None, nodes, max(row["pzxid"] for row in rows)).session()


def new_tree() -> MemoryStore:
    """The tree of a new cluster."""
    store = MemoryStore(Clock())
    for path in (*layout.ALWAYS_THERE, acl_nodes.LITERAL_CHANGES, acl_nodes.PREFIXED_CHANGES):
        store.create(path, parents=True)
    return store
