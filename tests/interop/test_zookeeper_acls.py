"""ACLs of ZooKeeper's nodes under `zookeeper.set.acl`: ours beside those of a real broker, over mutual TLS."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from interop import jvm, kafka_oracle
from interop.secured import Stores
from magicbyte.server.broker.broker import Broker
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.znodes.zookeeper_security import ZooKeeperSecurity

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]
AUTHORIZER = ("authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:ANONYMOUS")


@contextmanager
def zookeeper(version: str, folder: Path, stores: Stores) -> Iterator[tuple[str, str]]:
    """Run a ZooKeeper that wants certificates at one port, and none at another; yield both addresses."""
    folder.mkdir()
    secure, plain = jvm.free_port(), jvm.free_port()
    kafka_oracle.write_properties(
        folder / "zookeeper.properties",
        {
            "dataDir": folder / "zookeeper",
            "clientPort": plain,
            "clientPortAddress": kafka_oracle.LOOPBACK,
            "secureClientPort": secure,
            "secureClientPortAddress": kafka_oracle.LOOPBACK,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": stores.broker,
            "ssl.trustStore.location": stores.ca,
            "tickTime": 2000,
            "admin.enableServer": "false",
        },
    )
    command = kafka_oracle.java_command(version, "128m", folder / "zookeeper.log")
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zookeeper.properties")]
    pid = kafka_oracle.spawn(command, folder / "zookeeper.out")
    try:
        address = f"{kafka_oracle.LOOPBACK}:{plain}"
        serves = partial(kafka_oracle.zookeeper_answers, address), partial(kafka_oracle.port_is_open, secure)
        for condition in serves:
            kafka_oracle.wait_until(condition, pid, folder, jvm.SECONDS, "ZooKeeper")
        yield f"{kafka_oracle.LOOPBACK}:{secure}", address
    finally:
        kafka_oracle.stop_process(pid, folder, 15)


def work(bootstrap: str) -> None:
    """Make one of each kind of node that a broker makes."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 2, 1, config={"retention.ms": "-1"})])["orders"].result(60)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("alice", credential, b"wonderland")
    admin.alter_user_scram_credentials([change])["alice"].result(60)
    entry = ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
    admin.incremental_alter_configs([broker])[broker].result(60)
    for pattern in (ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED):
        allowed = AclPermissionType.ALLOW
        binding = AclBinding(ResourceType.TOPIC, "orders", pattern, "User:bob", "*", AclOperation.READ, allowed)
        admin.create_acls([binding])[binding].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("orders", b"one")
    assert not producer.flush(60)


def acls_in(secure: str, plain: str, root: str, stores: Stores) -> dict[str, list[str]]:
    """Return the ACL of each node below a root, by its path without numbers that differ from run to run.

    Who shows no certificate reads what is not secret, and changes nothing.
    """
    client = KazooClient(secure, **ZooKeeperSecurity(str(stores.broker), str(stores.ca)).of_client())
    client.start(60)
    found: dict[str, list[str]] = {}

    def look(path: str) -> None:
        acls, _ = client.get_acls(path)
        name = re.sub(r"\d{10}$", "N", path.removeprefix(root)) or "/"
        found[name] = sorted(f"{each.id.scheme}:{each.id.id}:{each.perms}" for each in acls)
        for child in client.get_children(path):
            look(f"{path}/{child}")

    look(root)
    stranger = KazooClient(plain)
    stranger.start(60)
    assert stranger.get(f"{root}/brokers/topics/orders")[0]
    with pytest.raises(NoAuthError):
        stranger.get(f"{root}/config/users/alice")
    with pytest.raises(NoAuthError):
        stranger.set(f"{root}/brokers/topics/orders", b"")
    for each in (client, stranger):
        each.stop()
        each.close()
    return found


def test_nodes_have_the_acls_of_a_real_brokers(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    with zookeeper("2.8.2", tmp_path / "zookeeper", stores) as (secure, plain):
        theirs = [
            *AUTHORIZER,
            "zookeeper.set.acl=true",
            "zookeeper.ssl.client.enable=true",
            "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
            f"zookeeper.ssl.keystore.location={stores.broker}",
            "zookeeper.ssl.keystore.type=PEM",
            f"zookeeper.ssl.truststore.location={stores.ca}",
            "zookeeper.ssl.truststore.type=PEM",
        ]
        try:
            joining = ["--broker-id", "0", "--join-zk", f"{secure}/theirs", *jvm._settings(theirs)]
            state = jvm._launch("2.8.2", tmp_path / "theirs", jvm.free_port(), jvm.free_port(), joining)
            work(state["bootstrap"])
            expected = acls_in(secure, plain, "/theirs", stores)
        finally:
            jvm.stop(tmp_path / "theirs")
        found = asyncio.run(ours(tmp_path / "ours", secure, plain, stores))
    assert "x509:CN=broker:31" in str(expected["/config/users/alice"])
    common = expected.keys() & found.keys()
    assert {path: found[path] for path in common} == {path: expected[path] for path in common}
    assert expected.keys() - found.keys() <= {"/config/ips", "/feature"}
    assert {"/config/users/alice", "/config/brokers/0", "/brokers/ids/0", "/controller"} <= common
    assert {"/kafka-acl/Topic/orders", "/kafka-acl-extended/prefixed/Topic/orders"} <= common


async def ours(folder: Path, secure: str, plain: str, stores: Stores) -> dict[str, list[str]]:
    settings: dict[str, Any] = {
        "log.dirs": str(folder),
        "broker.id": "0",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "zookeeper.connect": f"{secure}/ours",
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(stores.broker),
        "zookeeper.ssl.truststore.location": str(stores.ca),
        **dict(each.split("=", 1) for each in AUTHORIZER),
    }
    broker = Broker(BrokerConfig(settings))
    await broker.start()
    try:
        host, port = broker.address_of(broker.config.listeners[0])
        await asyncio.to_thread(work, f"{host}:{port}")
        return await asyncio.to_thread(acls_in, secure, plain, "/ours", stores)
    finally:
        await broker.stop()
