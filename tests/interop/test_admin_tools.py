"""Kafka's own command line tools of two eras against our broker.

Topics, settings, directories, records that are deleted, groups, offsets; producing and consuming, and the two tests of
performance, which are run here for what they say, not for how fast it is.
"""

import json
import subprocess
from pathlib import Path

import pytest

from interop import kafka_oracle
from interop.sweeps import cells
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SECONDS = 240
NEW = "org.apache.kafka.tools"
PLACES = {  # where the tools are
    "2.8.2": {
        "ConsoleProducer": "kafka.tools",
        "ConsoleConsumer": "kafka.tools",
        "ConsumerPerformance": "kafka.tools",
        "GetOffsetShell": "kafka.tools",
        "ProducerPerformance": NEW,
    },
    "3.9.1": {
        "ConfigCommand": "kafka.admin",
        "ConsoleProducer": "kafka.tools",
        "ConsoleConsumer": f"{NEW}.consumer",
        "ConsumerGroupCommand": f"{NEW}.consumer.group",
        "ReassignPartitionsCommand": f"{NEW}.reassign",
    },
    "4.3.1": {
        "ConfigCommand": "kafka.admin",
        "ConsoleConsumer": f"{NEW}.consumer",
        "ConsumerGroupCommand": f"{NEW}.consumer.group",
        "ReassignPartitionsCommand": f"{NEW}.reassign",
    },
}
VERSIONS = cells(("2.8.2", "3.9.1", "4.3.1"))
OTHERS = {"2.8.2": "kafka.admin", "3.9.1": NEW, "4.3.1": NEW}


class Tools:
    """The tools of one version."""

    def __init__(self, version: str, bootstrap: str) -> None:
        kafka_oracle.fetch(version)
        self.version, self.bootstrap = version, bootstrap

    def run(self, name: str, *arguments: str, text: str = "") -> str:
        """Return what a tool prints; fail unless it succeeds."""
        done = self._run(name, *arguments, text=text)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def complaint(self, name: str, *arguments: str) -> str:
        """Return what a tool prints that fails."""
        done = self._run(name, *arguments)
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def _run(self, name: str, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        place = PLACES[self.version].get(name, OTHERS[self.version])
        option = "--broker-list" if place == "kafka.tools" and name == "GetOffsetShell" else "--bootstrap-server"
        where = [] if name == "ProducerPerformance" else [option, self.bootstrap]
        if name == "ConsumerGroupCommand":  # its own is 5 s
            where += ["--timeout", "120000"]
        command = kafka_oracle.tool_command(self.version, f"{place}.{name}", [*where, *arguments], [])
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS)


@pytest.mark.parametrize("version", VERSIONS)
def test_kafkas_tools_do_their_work(version: str, tmp_path: Path) -> None:
    topic = ("--entity-type", "topics", "--entity-name", "t")
    broker = ("--entity-type", "brokers", "--entity-name", "0")
    offsets = tmp_path / "offsets.json"
    offsets.write_text('{"partitions":[{"topic":"t","partition":0,"offset":-1}],"version":1}')
    with Broker() as served:
        tools = Tools(version, served.bootstrap_servers)
        tools.run("TopicCommand", "--create", "--topic", "t", "--partitions", "3", "--config", "retention.ms=5")
        assert "topic t already exists" in tools.complaint("TopicCommand", "--create", "--topic", "t")
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


@pytest.mark.parametrize("version", VERSIONS)
def test_kafkas_tools_write_read_and_move_groups(version: str) -> None:
    lines = [f"line {number}" for number in range(50)]
    with Broker() as served:
        tools = Tools(version, served.bootstrap_servers)
        tools.run("ConsoleProducer", "--topic", "t", text="".join(f"{line}\n" for line in lines))
        assert "t:0:50" in tools.run("GetOffsetShell", "--topic", "t").split()
        reading = ["--topic", "t", "--from-beginning", "--group", "g", "--timeout-ms", "120000"]
        assert tools.run("ConsoleConsumer", *reading, "--max-messages", "50").splitlines() == lines
        assert "g" in tools.run("ConsumerGroupCommand", "--list").split()
        assert group_row(tools) == ["g", "t", "0", "50", "50", "0"]
        moving = ["--reset-offsets", "--group", "g", "--topic", "t", "--execute", "--to-offset", "48"]
        tools.run("ConsumerGroupCommand", *moving)
        assert group_row(tools) == ["g", "t", "0", "48", "50", "2"]
        assert tools.run("ConsoleConsumer", *reading, "--max-messages", "2").splitlines() == lines[48:]
        tools.run("ConsumerGroupCommand", "--delete", "--group", "g")
        assert "g" not in tools.run("ConsumerGroupCommand", "--list").split()


def group_row(tools: Tools) -> list[str]:
    """Return group, topic, partition, offset, end and lag of the one partition that the group reads."""
    printed = tools.run("ConsumerGroupCommand", "--describe", "--group", "g").splitlines()
    (row,) = [line.split()[:6] for line in printed if line.split()[:2] == ["g", "t"]]
    return row


@pytest.mark.parametrize("version", VERSIONS)
def test_kafkas_tests_of_performance_run_through(version: str) -> None:
    with Broker() as served:
        tools = Tools(version, served.bootstrap_servers)
        tools.run("TopicCommand", "--create", "--topic", "t")
        where = f"bootstrap.servers={served.bootstrap_servers}"
        sending = ["--topic", "t", "--num-records", "20000", "--record-size", "100", "--throughput", "-1"]
        assert "20000 records sent" in tools.run("ProducerPerformance", *sending, "--producer-props", where)
        printed = tools.run(
            "ConsumerPerformance", "--topic", "t", "--messages", "20000", "--timeout", "120000"
        ).splitlines()
        head = next(at for at, line in enumerate(printed) if line.startswith("start.time"))
        figures = dict(zip(*(line.split(", ") for line in printed[head : head + 2]), strict=True))
        assert int(figures["data.consumed.in.nMsg"]) == 20000
