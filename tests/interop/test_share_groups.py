"""Share groups of KIP-932 with Kafka's own share consumer and its tool, at our broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from interop import jvm, kafka_oracle
from interop.share_group_steps import conversation
from magicbyte.testing import Broker
from server.broker.test_share_consumers import fill

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

REAL, RELEASE = "4.3.1", "4.3"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "num.partitions": "2",
    "group.share.auto.offset.reset": "earliest",
    "as.version": RELEASE,
}
SECONDS = 120


def run(bootstrap: str, name: str, *arguments: str) -> str:
    """Return what a tool of `org.apache.kafka.tools.consumer` prints; fail unless it succeeds."""
    where = [f"org.apache.kafka.tools.consumer.{name}", ["--bootstrap-server", bootstrap, *arguments], []]
    command = kafka_oracle.tool_command(REAL, *where)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("release", "line"), [(REAL, RELEASE), pytest.param("4.4.0", "4.4", marks=pytest.mark.campaign)]
)
def test_a_real_broker_and_ours_answer_and_store_the_same(release: str, line: str, tmp_path: Path) -> None:
    settings = {
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    with Broker({**settings, "as.version": line}) as broker:
        ours = conversation(broker.bootstrap_servers)
    with jvm.broker(release, tmp_path, *map("=".join, settings.items())) as real:
        assert ours == conversation(real["bootstrap"])


def test_kafkas_share_consumer_reads_and_its_tool_describes_resets_and_deletes() -> None:
    kafka_oracle.fetch(REAL)
    values = [str(number) for number in range(40)]
    with Broker(SETTINGS) as broker:
        address = broker.bootstrap_servers
        fill(address, range(40))
        reading = ["--topic", "t", "--group", "g", "--max-messages", "40", "--timeout-ms", "60000"]
        assert sorted(run(address, "ConsoleShareConsumer", *reading).split()) == sorted(values)
        assert "g" in run(address, "group.ShareGroupCommand", "--list").split()
        assert "Empty" in run(address, "group.ShareGroupCommand", "--describe", "--group", "g", "--state")
        offsets = run(address, "group.ShareGroupCommand", "--describe", "--group", "g", "--offsets")
        assert offsets.split().count("t") == 2
        of_group = ("--group", "g", "--topic", "t")
        run(address, "group.ShareGroupCommand", "--reset-offsets", *of_group, "--to-earliest", "--execute")
        assert sorted(run(address, "ConsoleShareConsumer", *reading).split()) == sorted(values)
        run(address, "group.ShareGroupCommand", "--delete-offsets", *of_group)
        run(address, "group.ShareGroupCommand", "--delete", "--group", "g")
        assert broker.served.groups.coordinator.shares == {}
