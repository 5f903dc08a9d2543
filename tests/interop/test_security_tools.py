"""Kafka's own tools for ACLs and users against our broker: by its API, and through the ZooKeeper that both use."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, ScramMechanism

from interop import jvm, kafka_oracle
from interop.secured import USER, Stores, properties
from magicbyte.access.client import Client, admin
from magicbyte.access.security.settings import ClientSecurity
from magicbyte.engine.errors import BrokerError, SecurityError
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

PATIENCE_S: Final = 240
RIGHTS: Final = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": f"User:{USER}"}
BOB: Final = "bob-secret"
NEW_USER: Final = ("--entity-type", "users", "--entity-name", "bob")
ADD_USER: Final = ("--alter", *NEW_USER, "--add-config", f"SCRAM-SHA-512=[iterations=8192,password={BOB}]")
ALLOW: Final = (
    "--add", "--allow-principal", "User:bob", "--operation", "Create", "--topic", "made-",
    "--resource-pattern-type", "prefixed",
)  # fmt: skip


def tool(release: str, name: str, *words: str | Path) -> str:
    """Return what one of Kafka's tools prints that succeeds."""
    command = kafka_oracle.tool_command(release, f"kafka.admin.{name}", list(map(str, words)))
    done = subprocess.run(command, capture_output=True, text=True, timeout=jvm.SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error" not in done.stdout, done.stdout
    return done.stdout


def bob(stores: Stores) -> ClientSecurity:
    jaas = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="bob" password="{BOB}";'
    return ClientSecurity.of(stores.java("SASL_SSL") | {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas})


def make(address: str, security: ClientSecurity, topic: str) -> str:
    """Return what becomes of a topic that a user makes: "made", or the error."""

    async def work() -> str:
        try:
            async with Client(address, security=security) as client:
                await admin.create_topic(client, admin.NewTopic(topic))
        except (BrokerError, SecurityError) as error:
            return str(error)
        return "made"

    return asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def until(reached: Callable[[], str], says: str) -> None:
    """Wait until something says what it should: a broker reads changes in ZooKeeper after a notification."""
    end = time.monotonic() + PATIENCE_S
    while says not in (found := reached()):
        assert time.monotonic() < end, found
        time.sleep(0.1)


@pytest.mark.parametrize("release", ["2.8.2", "3.9.1"])
def test_acls_and_users_are_changed_by_the_api(release: str, tmp_path: Path) -> None:
    kafka_oracle.fetch(release)
    stores = Stores(tmp_path)
    login = properties(tmp_path / "admin", stores.java("SASL_SSL") | stores.login("Java", "PLAIN"))
    with Broker(stores.broker_settings() | RIGHTS) as broker:
        address = broker.address("LOGIN")
        reached = ("--bootstrap-server", address, "--command-config", login)
        tool(release, "ConfigCommand", *reached, *ADD_USER)
        assert "SCRAM-SHA-512=iterations=8192" in tool(release, "ConfigCommand", *reached, "--describe", *NEW_USER)
        told = AdminClient(
            {"bootstrap.servers": address, **stores.librdkafka("SASL_SSL"), **stores.login("librdkafka", "PLAIN")}
        )
        known = told.describe_user_scram_credentials(["bob"])["bob"].result(PATIENCE_S).scram_credential_infos
        assert [(each.mechanism, each.iterations) for each in known] == [(ScramMechanism.SCRAM_SHA_512, 8192)]
        assert "TOPIC_AUTHORIZATION_FAILED" in make(address, bob(stores), "made-1")
        assert "User:bob" in tool(release, "AclCommand", *reached, *ALLOW)
        assert make(address, bob(stores), "made-1") == "made"
        assert "TOPIC_AUTHORIZATION_FAILED" in make(address, bob(stores), "other")
        listed = tool(
            release, "AclCommand", *reached, "--list", "--topic", "made-1", "--resource-pattern-type", "match"
        )
        assert "name=made-, patternType=PREFIXED" in listed
        assert "(principal=User:bob, host=*, operation=CREATE, permissionType=ALLOW)" in listed
        tool(release, "AclCommand", *reached, "--remove", "--force", *ALLOW[1:])
        assert "TOPIC_AUTHORIZATION_FAILED" in make(address, bob(stores), "made-2")
        tool(release, "ConfigCommand", *reached, "--alter", *NEW_USER, "--delete-config", "SCRAM-SHA-512")
        assert "the SCRAM-SHA-512 login was refused" in make(address, bob(stores), "made-3")


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[str]:
    port, folder = jvm.free_port(), tmp_path / "zookeeper"
    folder.mkdir()
    pid = kafka_oracle.start_zookeeper("2.8.2", folder, port, jvm.SECONDS)
    yield f"127.0.0.1:{port}"
    kafka_oracle.stop_process(pid, folder, 15)


def test_acls_and_users_are_changed_through_zookeeper(zookeeper: str, tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    settings = stores.broker_settings() | RIGHTS | {
        "zookeeper.connect": zookeeper,
        "listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_SSL",
        "super.users": f"User:{USER};User:ANONYMOUS",
    }  # fmt: skip
    with Broker(settings) as broker:
        address = broker.address("LOGIN")
        tool("2.8.2", "ConfigCommand", "--zookeeper", zookeeper, *ADD_USER)
        until(lambda: make(address, bob(stores), "made-1"), "TOPIC_AUTHORIZATION_FAILED")
        where = ("--authorizer-properties", f"zookeeper.connect={zookeeper}")
        tool("2.8.2", "AclCommand", *where, *ALLOW)
        until(lambda: make(address, bob(stores), "made-1"), "made")
        tool("2.8.2", "AclCommand", *where, "--remove", "--force", *ALLOW[1:])
        until(lambda: make(address, bob(stores), "made-2"), "TOPIC_AUTHORIZATION_FAILED")
