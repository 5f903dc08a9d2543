"""What real brokers wrote into their ZooKeeper: we read it, and write the same bytes."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from interop import jvm, kafka_oracle
from interop.sweeps import cells
from magicbyte.access.client import Client, admin
from magicbyte.engine.cluster.brokers import BrokerEndpoint
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.layout import TopicNode
from magicbyte.tools.offline.metadata_sources import read_metadata

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SETTINGS = {"cleanup.policy": "compact", "retention.ms": "5000"}
SECONDS = 240


class Tree:
    """The ZooKeeper of a running broker, read with its own command."""

    def __init__(self, version: str, address: str) -> None:
        self.version, self.address = version, address

    def get(self, path: str) -> bytes:
        """Return a node's data, which is the only line with a JSON object in it, or the only number."""
        arguments = ["-server", self.address, "get", path]
        command = kafka_oracle.tool_command(self.version, "org.apache.zookeeper.ZooKeeperMain", arguments, [])
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
        (found,) = [line for line in done.stdout.splitlines() if line.startswith(b"{") or line.isdigit()]
        return found


async def make_topic(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        await admin.create_topic(client, admin.NewTopic("t", 3, 1, SETTINGS))


@pytest.mark.parametrize("version", cells(("0.10.2.2", "2.8.2", "3.9.1")))
def test_the_nodes_of_a_real_broker_are_read_and_written_as_it_does(version: str, tmp_path: Path) -> None:
    with jvm.broker(version, tmp_path) as state:
        asyncio.run(asyncio.wait_for(make_topic(state["bootstrap"]), SECONDS))
        tree = Tree(version, state["zookeeper"])
        has_ids = version != "0.10.2.2"

        source = read_metadata(f"zookeeper://{state['zookeeper']}")
        files = read_metadata(str(tmp_path / "zookeeper"))
        assert (files.image, files.notes) == (source.image, ())
        shown = source.to_json(["t"])
        (told,) = shown["topics"]
        assert [(each["leader"], each["isr"]) for each in told["partitions"]] == [(0, [0])] * 3
        assert shown["settings"] == [{"type": "topics", "name": "t", "settings": SETTINGS}]
        assert [each["id"] for each in shown["brokers"]] == [0]

        data = tree.get(layout.topic_path("t"))
        topic = TopicNode.load("t", data)
        assert topic.replicas == {0: [0], 1: [0], 2: [0]}
        assert (topic.topic_id is not None) == has_ids
        if has_ids:
            assert layout.load("t", topic.dump()) == layout.load("t", data)
            assert sorted(topic.dump()) == sorted(data)  # but for the order of its members

        data = tree.get(layout.state_path("t", 2))
        found = layout.load_state("t", data)
        assert (found.leader, found.leader_epoch, list(found.isr), found.controller_epoch) == (0, 0, [0], 1)
        assert layout.dump_state(found) == data

        data = tree.get(layout.config_path("topics", "t"))
        assert layout.load_config("t", data) == SETTINGS
        assert layout.load("t", layout.dump_config(SETTINGS)) == layout.load("t", data)

        data = tree.get(layout.CLUSTER_ID)
        assert layout.dump_cluster_id(layout.load_cluster_id(data)) == data
        data = tree.get(layout.CONTROLLER)
        said = layout.load("controller", data)
        ours = layout.load("controller", layout.dump_controller(said["brokerid"], int(said["timestamp"])))
        assert ours.items() <= {**said, "version": 1}.items()
        assert tree.get(layout.CONTROLLER_EPOCH) == b"1"

        data = tree.get(layout.broker_path(0))
        said = layout.load("broker", data)
        endpoint = BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", state["port"])
        ours = layout.load("broker", layout.dump_broker([endpoint], None, int(said["timestamp"]), said["version"]))
        assert ours == said
        if version == "2.8.2":
            data = tree.get(layout.PRODUCER_IDS)
            last = layout.load_last_producer_id(data)
            assert last is not None
            assert layout.dump_producer_ids(0, last - 999) == data
