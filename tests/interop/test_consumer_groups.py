"""Consumer groups of KIP-848: a real broker and ours are asked the same, and store the same records.

Both hear the same long conversation. What is compared: every answer and every record of `__consumer_offsets`, but for
ids of topics, dates, and texts of errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interop import jvm
from interop.consumer_group_steps import conversation
from interop.group_settings_steps import settings_conversation
from interop.migration_steps import mixed_conversation
from interop.test_admin_tools import Tools
from magicbyte.engine.groups.classic.rules import GroupState
from magicbyte.engine.groups.consumer.group import ConsumerGroup, ConsumerGroupState
from magicbyte.testing import Broker
from server.broker.test_consumer_groups import fill

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("needs_java")]

SETTINGS = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}


REAL, RELEASE = "4.3.1", "4.3"
BOTH = pytest.mark.parametrize(("real", "release"), [(REAL, RELEASE), ("4.4.0", "4.4")])


@BOTH
def test_a_real_broker_and_ours_answer_and_store_the_same(real: str, release: str, tmp_path: Path) -> None:
    with Broker({**SETTINGS, "as.version": release}) as broker:
        ours = conversation(broker.bootstrap_servers)
    with jvm.broker(real, tmp_path, *map("=".join, SETTINGS.items())) as kafka:
        assert ours == conversation(kafka["bootstrap"])


@BOTH
def test_groups_with_members_of_both_protocols_are_as_those_of_a_real_broker(
    real: str, release: str, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "group.initial.rebalance.delay.ms": "0"}
    with Broker({**settings, "as.version": release}) as broker:
        ours = mixed_conversation(broker.bootstrap_servers)
    with jvm.broker(real, tmp_path, *map("=".join, settings.items())) as kafka:
        assert ours == mixed_conversation(kafka["bootstrap"])


def test_java_consumers_of_both_protocols_share_a_group() -> None:
    """A classic group is shared with a member of the consumer protocol, and is classic again without that."""
    with Broker({**SETTINGS, "num.partitions": "4", "as.version": RELEASE}) as broker:
        fill(broker.bootstrap_servers, [b"first"] * 4)
        tools = Tools(REAL, broker.bootstrap_servers)
        tools.run("ConsumerGroupCommand", "--list")  # the broker has a coordinator from the first such request
        groups = broker.served.groups.coordinator
        reading = ["--topic", "t", "--group", "g", "--timeout-ms", "60000", "--from-beginning"]
        of_classic = [*reading, "--max-messages", "44", "--command-property", "group.protocol=classic"]
        of_consumer = [*reading, "--max-messages", "4", "--command-property", "group.protocol=consumer"]
        with ThreadPoolExecutor() as pool:
            classic = pool.submit(tools.run, "ConsoleConsumer", *of_classic)
            _until(lambda: "g" in groups.groups and groups.groups["g"].state is GroupState.STABLE)
            consumer = pool.submit(tools.run, "ConsoleConsumer", *of_consumer)
            _until(lambda: "g" in groups.consumers and _is_shared(groups.consumers["g"]))
            fill(broker.bootstrap_servers, [b"shared"] * 8)
            assert consumer.result().split() == ["shared"] * 4
            _until(lambda: "g" not in groups.consumers and groups.groups["g"].state is GroupState.STABLE)
            fill(broker.bootstrap_servers, [b"last"] * 36)
            assert sorted(classic.result().split()) == ["first"] * 4 + ["last"] * 36 + ["shared"] * 4


def _is_shared(group: ConsumerGroup) -> bool:
    return len(group.subscribers) == 2 and group.state is ConsumerGroupState.STABLE


def _until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@BOTH
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
