"""The same changes to a real ZooKeeper and to our tree: the same answers, versions and transaction numbers."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from interop import jvm, kafka_oracle
from magicbyte.engine.errors import (
    BadVersionError,
    MetadataError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from magicbyte.engine.ports import Node
from magicbyte.server.metadata.memory import MemoryStore

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

VERSION = "3.9.1"
SCRIPT = [
    "create /m",
    "create /m/a one",
    "create /m/a again",
    "create /m/x/y none-above",
    "set /m/a two",
    "set -v 0 /m/a stale",
    "set -v 1 /m/a three",
    "create -s /m/n",
    "create -s /m/n",
    "delete /m/n0000000001",
    "create -s /m/n",
    "create /m/a/b",
    "create -s /m/a/",
    "delete /m/a",
    "delete -v 3 /m/a/b",
    "delete -v 0 /m/a/b",
    "delete /m/gone",
    "set /m/gone x",
    "create -e /m/e mine",
    "create /m/e/child no",
    "create -s -e /m/e",
]
LOOK_AT = ["/m", "/m/a", "/m/n0000000002", "/m/e"]
NAMES = ("cZxid", "mZxid", "pZxid", "cversion", "dataVersion", "ephemeralOwner", "numChildren")
STAT = re.compile(rf"({'|'.join(NAMES)}) = (0x[0-9a-f]+|[0-9]+)".encode())


KINDS = {  # how the shell begins to say it
    "Node already exists": NodeExistsError,
    "Node does not exist": NoNodeError,
    "version No is not valid": BadVersionError,
    "Node not empty": NotEmptyError,
    "Ephemerals cannot have children": NoChildrenForEphemeralsError,
}


class Found(NamedTuple):
    """What is said of all nodes and changes: which node or error each creation gives, errors of other changes, stats.

    Transactions are numbered by their order: a real ZooKeeper has numbers for those that fail, too.
    """

    answers: list[str]
    stats: list[dict[str, int]]


class Clock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


def in_zookeeper(address: str) -> Found:
    """Run the script in ZooKeeper's own shell, in one session."""
    lines = [*SCRIPT, *(f"stat {path}" for path in LOOK_AT), "quit"]
    command = kafka_oracle.tool_command(VERSION, "org.apache.zookeeper.ZooKeeperMain", ["-server", address], [])
    done = subprocess.run(command, input="\n".join(lines).encode(), capture_output=True, timeout=240, check=True)
    answers = []
    for line in done.stderr.decode().splitlines():
        said = [error.__name__ for start, error in KINDS.items() if line.startswith(start)]
        answers += [line] if line.startswith("Created ") else said
    fields = [(name.decode(), int(value, 0)) for name, value in STAT.findall(done.stdout)]
    assert len(fields) == len(NAMES) * len(LOOK_AT)
    return Found(answers, [dict(fields[at : at + len(NAMES)]) for at in range(0, len(fields), len(NAMES))])


def in_ours() -> Found:
    """Do the same with our tree."""
    store = MemoryStore(Clock())
    answers = []
    for line in SCRIPT:
        verb, *words = line.split()
        options = {word for word in words if word in ("-s", "-e")}
        version = int(words[words.index("-v") + 1]) if "-v" in words else -1
        path, *data = [word for word in words[2 * ("-v" in words) :] if word not in options]
        given = data[0].encode() if data else b""
        try:
            if verb == "create":
                answers.append(
                    "Created " + store.create(path, given, sequence="-s" in options, ephemeral="-e" in options)
                )
            elif verb == "set":
                store.set(path, given, version)
            else:
                store.delete(path, version)
        except MetadataError as error:
            answers.append(type(error).__name__)
    return Found(answers, [stat(store.get(path)) for path in LOOK_AT])


def stat(node: Node) -> dict[str, int]:
    values = (
        *(node.czxid, node.mzxid, node.pzxid),
        *(node.cversion, node.version, node.ephemeral_owner, node.child_count),
    )
    return dict(zip(NAMES, values, strict=True))


def ranked(found: Found) -> list[dict[str, int]]:
    """Return the stats with transactions by their order, and whether a node is ephemeral."""
    order = sorted({each[name] for each in found.stats for name in NAMES[:3]})
    return [
        {**each, **{name: order.index(each[name]) for name in NAMES[:3]}, "ephemeralOwner": each["ephemeralOwner"] != 0}
        for each in found.stats
    ]


def test_our_tree_follows_zookeepers_rules(tmp_path: Path) -> None:
    with jvm.broker(VERSION, tmp_path) as state:
        theirs = in_zookeeper(state["zookeeper"])
    ours = in_ours()
    assert ours.answers == theirs.answers
    assert ranked(ours) == ranked(theirs)
    assert len(ours.answers) == 17
