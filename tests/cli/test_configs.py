"""`magicbyte configs` against our broker, and against brokers of other eras."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from access.client.broker import ScriptedBroker, scripted
from cli.command import run
from magicbyte.access.client import Client, admin
from magicbyte.engine.errors import UnsupportedVersionError
from magicbyte.engine.protocol.messages import alter_configs
from magicbyte.engine.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from magicbyte.engine.protocol.messages.metadata import MetadataRequest
from magicbyte.testing import Broker

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44


@pytest.fixture(scope="module")
def shared() -> Iterator[str]:
    async def work(address: str) -> None:
        async with Client(address) as client:
            await admin.create_topic(client, admin.NewTopic("orders"))

    with Broker() as broker:
        asyncio.run(work(broker.bootstrap_servers))
        yield broker.bootstrap_servers


@pytest.fixture
def bootstrap(shared: str) -> Iterator[str]:
    """A broker with a topic `orders` that has one setting of its own, and none itself."""
    assert run("configs", "set", "-b", shared, "-t", "orders", "retention.ms=1000").exit_code == 0
    yield shared
    for whose in (["-t", "orders"], ["--broker", "0"], ["--entity-default"]):
        left = list(settings(shared, *whose))
        if left:
            assert run("configs", "unset", "-b", shared, *whose, *left).exit_code == 0


def settings(bootstrap: str, *options: str) -> dict[str, Any]:
    result = run("configs", "describe", "-b", bootstrap, *options, "--format", "json")
    assert result.exit_code == 0, result.stderr
    (found,) = json.loads(result.stdout)
    return {each["name"]: each for each in found["settings"]}


def test_settings_of_a_topic_are_described_set_and_taken_back(bootstrap: str) -> None:
    command = ["-b", bootstrap, "-t", "orders"]
    assert run("configs", "set", *command, "cleanup.policy=compact,delete", "segment.bytes=9999").stderr == ""
    assert run("configs", "describe", *command).stdout == (
        "of      setting         value           set for\n"
        "orders  cleanup.policy  compact,delete  topic\n"
        "orders  retention.ms    1000            topic\n"
        "orders  segment.bytes   9999            topic\n"
    )
    assert run("configs", "unset", *command, "cleanup.policy", "retention.ms").exit_code == 0
    assert list(settings(bootstrap, "-t", "orders")) == ["segment.bytes"]


def test_all_settings_say_where_their_values_are_from(bootstrap: str) -> None:
    found = settings(bootstrap, "-t", "orders", "--all")
    assert len(found) > 10
    assert found["retention.ms"] | {"name": ""} == {
        "name": "", "value": "1000", "source": "topic", "own": True, "readOnly": False, "sensitive": False,
    }  # fmt: skip
    assert found["cleanup.policy"]["source"] == "default"


def test_settings_of_a_broker_are_changed_while_it_runs(bootstrap: str) -> None:
    assert settings(bootstrap, "--broker", "0") == {}
    assert run("configs", "set", "-b", bootstrap, "--broker", "0", "log.retention.ms=77777").exit_code == 0
    (found,) = settings(bootstrap, "--broker", "0").values()
    assert (found["name"], found["value"], found["source"]) == ("log.retention.ms", "77777", "broker while it ran")
    assert settings(bootstrap, "--broker", "0", "--all")["listeners"]["source"] == "server.properties"


def test_settings_of_all_brokers_are_changed_together_and_yield_to_those_of_one(bootstrap: str) -> None:
    assert run("configs", "set", "-b", bootstrap, "--entity-default", "log.retention.ms=5000").stderr == ""
    assert run("configs", "describe", "-b", bootstrap, "--entity-default").stdout == (
        "of           setting           value  set for\n"
        "all brokers  log.retention.ms  5000   all brokers while they ran\n"
    )
    assert settings(bootstrap, "--broker", "0") == {}
    one = settings(bootstrap, "--broker", "0", "--all")["log.retention.ms"]
    assert (one["value"], one["source"]) == ("5000", "all brokers while they ran")
    run("configs", "set", "-b", bootstrap, "--broker", "0", "log.retention.ms=6000")
    assert settings(bootstrap, "--broker", "0", "--all")["log.retention.ms"]["value"] == "6000"
    (found,) = json.loads(run("configs", "describe", "-b", bootstrap, "--entity-default", "--format", "json").stdout)
    assert (found["topic"], found["broker"], found["settings"][0]["own"]) == (None, None, True)
    assert run("configs", "unset", "-b", bootstrap, "--entity-default", "log.retention.ms").stderr == ""
    assert settings(bootstrap, "--entity-default") == {}


def test_a_dry_run_lets_the_broker_check_and_changes_nothing(bootstrap: str) -> None:
    command = ["-b", bootstrap, "-t", "orders", "--dry-run"]
    assert run("configs", "set", *command, "retention.ms=5").exit_code == 0
    assert "INVALID_CONFIG (40)" in run("configs", "set", *command, "cleanup.policy=burn").stderr
    assert run("configs", "unset", *command, "retention.ms").exit_code == 0
    assert settings(bootstrap, "-t", "orders")["retention.ms"]["value"] == "1000"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["describe", "-t", "order"],
            "topic 'order': expected on the brokers, found none of that name: is it 'orders'",
        ),
        (["describe", "--broker", "9"], "broker 9: expected one of 0"),
        (["set", "retention.ms=5"], "expected one of -t TOPIC, --broker ID, --entity-default"),
        (["set", "-t", "orders", "--broker", "0", "retention.ms=5"], "expected one of -t TOPIC, --broker ID"),
        (["unset", "-t", "orders", "--entity-default", "retention.ms"], "expected one of -t TOPIC, --broker ID"),
        (["describe"], "expected -t TOPIC, --broker ID or --entity-default"),
        (["set", "--entity-default", "num.partitions=2"], "it cannot be changed while the broker runs"),
        (["set", "-t", "orders", "retention.ms"], "'retention.ms': expected KEY=VALUE"),
        (["set", "-t", "nowhere", "retention.ms=1"], "topic 'nowhere': expected on the brokers"),
        (["set", "-t", "orders", "retention.ms=long"], "INVALID_CONFIG (40)"),
        (["set", "--broker", "0", "num.partitions=2"], "it cannot be changed while the broker runs"),
        (["unset", "-t", "orders", "retention.ms=1"], "expected the name of a setting alone"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_cannot_be_done_is_one_line_that_says_why(arguments: list[str], said: str, bootstrap: str) -> None:
    result = run("configs", arguments[0], "-b", bootstrap, *arguments[1:])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert said in result.stderr


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("manner", ["0.8.2", "0.9"])
def test_old_brokers_have_no_such_requests_and_that_is_said(manner: str) -> None:
    with scripted(ScriptedBroker(manner)) as address:
        for command in (["describe"], ["set", "retention.ms=1"], ["unset", "retention.ms"]):
            result = run("configs", command[0], "-b", address, "-t", "topic", *command[1:])
            assert result.exit_code == 2
            assert "UNSUPPORTED_VERSION (35): brokers from 0.11 on can do it" in result.stderr


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("manner", ["0.8.2", "0.9"])
def test_old_brokers_are_not_asked_again_and_again_who_the_controller_is(manner: str) -> None:
    async def ask(address: str) -> None:
        async with Client(address) as client:
            await admin.describe_configs(client, admin.ConfigResource.TOPIC, "topic")

    broker = ScriptedBroker(manner)
    with scripted(broker) as address, pytest.raises(UnsupportedVersionError):
        asyncio.run(ask(address))
    assert len(broker.asked(MetadataRequest)) == 1


def described(*found: DescribeConfigsResourceResult) -> Any:
    return lambda *_: DescribeConfigsResponse(results=[DescribeConfigsResult(configs=list(found))])


def test_brokers_before_2_3_get_all_settings_again_with_a_warning() -> None:
    broker = ScriptedBroker(versions={DESCRIBE: range(1), ALTER: range(1), INCREMENTAL: range(0)})
    broker.answers[DESCRIBE] = described(
        DescribeConfigsResourceResult(name="retention.ms", value="5"),
        DescribeConfigsResourceResult(name="segment.bytes", value="9", is_default=True),
    )
    broker.answers[ALTER] = lambda *_: alter_configs.AlterConfigsResponse(
        responses=[alter_configs.AlterConfigsResourceResponse()]
    )
    with scripted(broker) as address:
        shown = run("configs", "describe", "-b", address, "-t", "topic", "--all").stdout.splitlines()
        changed = run("configs", "set", "-b", address, "-t", "topic", "cleanup.policy=compact")
    assert [line.split() for line in shown[1:]] == [
        ["topic", "retention.ms", "5", "-"],
        ["topic", "segment.bytes", "9", "default"],
    ]
    assert changed.exit_code == 0
    assert "warning: brokers before 2.3 replace all settings at once" in changed.stderr
    (request,) = broker.asked(alter_configs.AlterConfigsRequest)
    assert {each.name: each.value for each in request.resources[0].configs} == {
        "retention.ms": "5", "cleanup.policy": "compact",
    }  # fmt: skip


def test_a_secret_that_would_have_to_be_sent_again_is_an_error_before_anything_is_changed() -> None:
    broker = ScriptedBroker(versions={DESCRIBE: range(2), ALTER: range(1), INCREMENTAL: range(0)})
    secret = DescribeConfigsResourceResult(name="ssl.key.password", value=None, is_sensitive=True, config_source=2)
    broker.answers[DESCRIBE] = described(secret)
    with scripted(broker) as address:
        shown = run("configs", "describe", "-b", address, "--broker", "7").stdout.splitlines()
        changed = run("configs", "set", "-b", address, "--broker", "7", "log.retention.ms=5")
    assert shown[1].split() == ["broker", "7", "ssl.key.password", "(hidden)", "broker", "while", "it", "ran"]
    assert changed.exit_code == 2
    assert "brokers do not return the value of ssl.key.password" in changed.stderr
    assert not broker.asked(alter_configs.AlterConfigsRequest)
