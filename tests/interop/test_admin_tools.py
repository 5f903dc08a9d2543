"""Kafka's own command line tools for topics, settings, directories and records, of two eras, against our broker."""

import json
import subprocess
from pathlib import Path

import pytest

from interop import kafka_oracle
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SECONDS = 60
PLACES = {"2.8.2": "kafka.admin", "4.3.1": "org.apache.kafka.tools"}  # of all but ConfigCommand, which stayed


class Tools:
    """The tools of one version."""

    def __init__(self, version: str, bootstrap: str) -> None:
        kafka_oracle.fetch(version)
        self.version, self.bootstrap = version, bootstrap

    def run(self, name: str, *arguments: str) -> str:
        """Return what a tool prints; fail unless it succeeds."""
        done = self._run(name, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def complaint(self, name: str, *arguments: str) -> str:
        """Return what a tool prints that fails."""
        done = self._run(name, *arguments)
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def _run(self, name: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        place = "kafka.admin" if name == "ConfigCommand" else PLACES[self.version]
        given = ["--bootstrap-server", self.bootstrap, *arguments]
        command = kafka_oracle.tool_command(self.version, f"{place}.{name}", given, [])
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.parametrize("version", PLACES)
def test_kafkas_tools_do_their_work(version: str, tmp_path: Path) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "t")
    broker = ("--entity-type", "brokers", "--entity-name", "0")
    offsets = tmp_path / "offsets.json"
    offsets.write_text('{"partitions":[{"topic":"t","partition":0,"offset":-1}],"version":1}')
    with Broker() as served:
        tools = Tools(version, served.bootstrap_servers)
        tools.run("TopicCommand", "--create", "--topic", "t", "--partitions", "3", "--config", "retention.ms=5")
        assert "topic t is there already" in tools.complaint("TopicCommand", "--create", "--topic", "t")
        tools.run("TopicCommand", "--alter", "--topic", "t", "--partitions", "4")
        described = tools.run("TopicCommand", "--describe", "--topic", "t")
        assert "PartitionCount: 4\tReplicationFactor: 1\tConfigs: retention.ms=5" in described
        tools.run(
            *(
                "ConfigCommand",
                "--alter",
                *topic,
                "--add-config",
                "segment.bytes=9999",
                "--delete-config",
                "retention.ms",
            )
        )
        found = tools.run("ConfigCommand", "--describe", *topic)
        assert "segment.bytes=9999 sensitive=false" in found
        assert "retention.ms" not in found
        tools.run("ConfigCommand", "--alter", *broker, "--add-config", "log.retention.ms=77777")
        assert "log.retention.ms=77777" in tools.run("ConfigCommand", "--describe", *broker)
        complaint = tools.complaint("ConfigCommand", "--alter", *broker, "--add-config", "num.partitions=2")
        assert "num.partitions: it cannot be changed while the broker runs" in complaint
        directories = json.loads(tools.run("LogDirsCommand", "--describe").splitlines()[-1])
        (directory,) = directories["brokers"][0]["logDirs"]
        assert {each["partition"] for each in directory["partitions"]} == {f"t-{number}" for number in range(4)}
        erased = tools.run("DeleteRecordsCommand", "--offset-json-file", str(offsets))
        assert "partition: t-0\tlow_watermark: 0" in erased
        tools.run("TopicCommand", "--delete", "--topic", "t")
        assert "t" not in tools.run("TopicCommand", "--list").split()
