"""Consumer groups of KIP-848: a real broker and ours are asked the same, and store the same records.

Both hear the same long conversation. What is compared: every answer and every record of `__consumer_offsets`, but for
ids of topics, dates, and texts of errors.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from interop import jvm
from interop.consumer_group_steps import conversation
from interop.group_settings_steps import settings_conversation
from interop.test_admin_tools import Tools
from magicbyte.testing import Broker
from server.broker.test_consumer_groups import fill

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

SETTINGS = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


REAL, RELEASE = "4.3.1", "4.3"


def test_a_real_broker_and_ours_answer_and_store_the_same(tmp_path: Path) -> None:
    with Broker({**SETTINGS, "as.version": RELEASE}) as broker:
        ours = conversation(broker.bootstrap_servers)
    with jvm.broker(REAL, tmp_path, *map("=".join, SETTINGS.items())) as real:
        assert ours == conversation(real["bootstrap"])


@pytest.mark.parametrize(("real", "release"), [(REAL, RELEASE), ("4.4.0", "4.4")])
def test_settings_of_groups_are_as_those_of_a_real_broker(real: str, release: str, tmp_path: Path) -> None:
    with Broker({"as.version": release}) as broker:
        ours = settings_conversation(broker.bootstrap_servers)
    with jvm.broker(real, tmp_path) as kafka:
        assert ours == settings_conversation(kafka["bootstrap"])


def test_kafkas_tool_changes_and_describes_settings_of_groups() -> None:
    with Broker({"as.version": RELEASE}) as broker:
        tools, group = Tools(REAL, broker.bootstrap_servers), ("--entity-type", "groups", "--entity-name", "g")
        tools.run("ConfigCommand", "--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
        shown = tools.run("ConfigCommand", "--describe", *group)
        assert "consumer.session.timeout.ms=50000" in shown
        assert "g" in tools.run("ConfigCommand", "--describe", "--entity-type", "groups")
        tools.run("ConfigCommand", "--alter", *group, "--delete-config", "consumer.session.timeout.ms")
        assert "50000" not in tools.run("ConfigCommand", "--describe", *group)


def test_a_java_consumer_reads_in_a_group_and_kafkas_tools_describe_reset_and_delete_it() -> None:
    values = [str(number) for number in range(40)]
    with Broker({**SETTINGS, "num.partitions": "4", "as.version": RELEASE}) as broker:
        fill(broker.bootstrap_servers, map(str.encode, values))
        tools = Tools(REAL, broker.bootstrap_servers)
        reading = ["--topic", "t", "--group", "g", "--max-messages", "40", "--timeout-ms", "60000"]
        reading += ["--command-property", "group.protocol=consumer"]
        assert sorted(tools.run("ConsoleConsumer", *reading, "--from-beginning").split()) == sorted(values)
        of_group = ("--group", "g", "--topic", "t")
        assert "Consumer" in tools.run("ConsumerGroupCommand", "--list", "--type", "consumer")
        assert "uniform" in tools.run("ConsumerGroupCommand", "--describe", "--group", "g", "--state")
        tools.run("ConsumerGroupCommand", "--reset-offsets", *of_group, "--to-earliest", "--execute")
        assert sorted(tools.run("ConsoleConsumer", *reading).split()) == sorted(values)
        tools.run("ConsumerGroupCommand", "--delete-offsets", *of_group)
        tools.run("ConsumerGroupCommand", "--delete", "--group", "g")
        assert "g" not in tools.run("ConsumerGroupCommand", "--list").split()
        assert broker.served.groups.coordinator.consumers == {}
