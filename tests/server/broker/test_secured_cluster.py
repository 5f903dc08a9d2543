"""Brokers that reach each other through TLS and logins."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from magicbyte.access.client import Client, admin
from magicbyte.access.client.fetch import read_records
from magicbyte.access.client.offsets import bounds
from magicbyte.access.client.produce import send
from magicbyte.engine.errors import InvalidConfigError, NetworkError
from magicbyte.engine.records.columns import Record
from magicbyte.server.broker.broker import Broker as Served
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.links import Links
from magicbyte.testing import Broker, Cluster
from server.broker.serving import Clock

ACLS = "kafka.security.authorizer.AclAuthorizer"
WRITTEN = [Record(at, 1_500_000_000_000 + at, 0, b"%d" % at, b"v" * 1000) for at in range(20)]


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_brokers_that_log_in_at_each_other_replicate_and_elect(protocol: str) -> None:
    """Where ACLs count, no other principal than the brokers' could lead, follow or control."""
    users = {"alice": "secret"} if protocol.startswith("SASL") else None
    settings = {"authorizer.class.name": ACLS} if users else {}
    with Cluster(2, settings, security=protocol, users=users) as cluster:
        assert cluster.security is not None
        security = cluster.security.client("broker" if users else None)

        async def write() -> None:
            async with Client(cluster.bootstrap_servers, security=security) as client:
                await admin.create_topic(client, admin.NewTopic("t", replication_factor=2))
                await send(client, "t", 0, WRITTEN)

        async def read() -> list[bytes | None]:
            async with Client(cluster.bootstrap_servers, security=security) as client:
                _, end = await bounds(client, "t", 0)
                return [each.key async for columns in read_records(client, "t", 0, 0, end) for each in columns]

        asyncio.run(write())
        cluster.wait(lambda: cluster.isr("t", 0) == {1, 2})
        leader = cluster.leader("t", 0)
        assert leader is not None
        cluster.move_leader("t", 0, 3 - leader)
        cluster.stop(leader)
        cluster.wait(lambda: cluster.leader("t", 0) == 3 - leader)
        assert asyncio.run(read()) == [each.key for each in WRITTEN]


def test_logins_of_brokers_that_end_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magicbyte.access.client.connection.RENEWED_AT", 0.0)  # before every request
    settings = {"connections.max.reauth.ms": "3600000"}
    with Cluster(2, settings, security="SASL_PLAINTEXT", users={"alice": "secret"}) as cluster:
        assert cluster.security is not None
        security = cluster.security.client("alice")

        async def write() -> None:
            async with Client(cluster.bootstrap_servers, security=security) as client:
                await admin.create_topic(client, admin.NewTopic("t", replication_factor=2))
                for each in WRITTEN:
                    await send(client, "t", 0, [each])

        asyncio.run(write())
        cluster.wait(lambda: cluster.isr("t", 0) == {1, 2})


@pytest.mark.parametrize(
    ("protocol", "security"),
    [("0.9.0", "SSL"), ("0.10.0", "SASL_PLAINTEXT"), ("0.10.1", "SASL_SSL"), ("0.10.2", "SSL")],
)
def test_the_metadata_of_old_protocols_names_secured_listeners_by_their_protocol(protocol: str, security: str) -> None:
    """UpdateMetadata has names of listeners from version 3 on (0.10.2)."""
    settings = {"inter.broker.protocol.version": protocol, "log.message.format.version": protocol}
    users = {"alice": "secret"} if security.startswith("SASL") else None
    with Cluster(2, settings, security=security, users=users) as cluster:
        assert cluster.security is not None
        secured = cluster.security.client()

        async def write() -> None:
            async with Client(cluster.bootstrap_servers, security=secured) as client:
                await admin.create_topic(client, admin.NewTopic("t", replication_factor=2))
                await send(client, "t", 0, WRITTEN)

        asyncio.run(write())
        cluster.wait(lambda: cluster.isr("t", 0) == {1, 2})


LOGIN = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
JAAS = 'm required username="broker" password="x" user_broker="x";'
BETWEEN = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN", LOGIN: JAAS,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"inter.broker.listener.name": "SASL_PLAINTEXT"}, "found both"),  # check 83
        ({"security.inter.broker.protocol": "SSL"}, "there is no listener SSL"),
        ({"security.inter.broker.protocol": "TLS"}, "one of PLAINTEXT, SSL"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "not among the sasl.enabled"),  # check 84
        ({LOGIN: 'm required user_broker="x";'}, "needs a username"),
        ({"inter.broker.protocol.version": "0.9.0", "log.message.format.version": "0.9.0"}, "expected 0.10.0 or later"),
    ],
)
def test_settings_between_brokers_that_cannot_be_are_refused(changed: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfigError, match=says):
        Links.of(Served(BrokerConfig(BETWEEN | changed)).runtime)


def test_a_member_of_a_cluster_needs_a_listener_for_the_others() -> None:
    alone = {name: value for name, value in BETWEEN.items() if name != "security.inter.broker.protocol"}
    BrokerConfig(alone)
    with pytest.raises(InvalidConfigError, match="no listener is PLAINTEXT"):
        BrokerConfig(alone | {"zookeeper.connect": "localhost:2181"})
    two = alone | {"listeners": "SASL_PLAINTEXT://:0,PLAINTEXT://:0", "zookeeper.connect": "localhost:2181"}
    assert BrokerConfig(two).inter_broker_listener.name == "PLAINTEXT"


@pytest.mark.parametrize("protocol", [(0, 10, 0), (1, 0), (2, 8, 1)])
async def test_brokers_of_every_protocol_version_log_in_and_a_wrong_password_is_a_fault_of_the_network(
    protocol: tuple[int, ...],
) -> None:
    async with Broker({LOGIN: JAAS}, security="SASL_PLAINTEXT", users={"broker": "x"}) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        for jaas in (JAAS, JAAS.replace('password="x"', 'password="hunter2!"')):
            links = Links.of(Served(BrokerConfig(BETWEEN | {LOGIN: jaas})).runtime)
            connecting = links.connect(1, host, int(port), protocol=protocol, client_id="2", timeout_ms=30_000)
            if jaas == JAAS:
                await (await connecting).aclose()
            else:
                with pytest.raises(NetworkError, match="PLAIN login") as refused:
                    await connecting
                assert "hunter2!" not in str(refused.value)


async def test_a_login_between_brokers_that_changes_in_its_file_counts_for_the_next_connection(tmp_path: Path) -> None:
    login = tmp_path / "login"
    login.write_text("jaas=" + JAAS.replace('password="x"', 'password="old"'))
    config = BrokerConfig(BETWEEN | {LOGIN: f"${{file:{login}:jaas}}"})

    clock = Clock()
    links = Links.of(Served(config, clock=clock).runtime)
    async with Broker({LOGIN: JAAS}, security="SASL_PLAINTEXT", users={"broker": "x"}) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        for is_right in (False, True):
            connecting = links.connect(1, host, int(port), protocol=(2, 8), client_id="2", timeout_ms=30_000)
            if is_right:
                await (await connecting).aclose()
            else:
                with pytest.raises(NetworkError, match="PLAIN login"):
                    await connecting
            login.write_text(f"jaas={JAAS}")
            clock.advance(1000)
