"""What each request is refused with, by which rights: ours beside a real 2.8.2 and 3.9.1 with the same ACLs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from interop.rights_matrix import Codes, ask_all
from interop.secured import Stores, real_broker
from magicbyte.access.client.login import Credentials
from magicbyte.access.security.settings import ClientSecurity
from magicbyte.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("needs_java")]

SETTINGS: Final = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",  # who is on the plain listener, the broker itself among them
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}


def otherwise(release: str, keys: Iterable[tuple[str, str, int]]) -> set[tuple[str, str, int]]:
    """Return what is refused otherwise on purpose: a SyncGroup 5 without a protocol with 30, there with 23.

    3.9.1 has no place for the code of an OffsetFetch before version 2: it answers without partitions. With ZooKeeper it
    has no consumer groups, and says so before it looks at rights.
    """
    found = {key for key in keys if key[1].startswith("SyncGroup") and key[2] > 4}
    if release != "2.8.2":
        found |= {key for key in keys if key[1].startswith("OffsetFetch") and key[2] < 2}
        found |= {key for key in keys if key[1].startswith("ConsumerGroup")}
    return found


@pytest.mark.parametrize("release", ["2.8.2", "3.9.1"])
def test_each_request_is_refused_as_a_real_broker_does(release: str, tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    security = ClientSecurity.of(stores.java("SASL_SSL") | stores.login("Java", "PLAIN"))
    credentials = Credentials.of(security)
    settings = stores.broker_settings() | SETTINGS | {
        "listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_SSL",
    }  # fmt: skip

    def all_of(plain: str, secured: str) -> Codes:
        return asyncio.run(asyncio.wait_for(ask_all(plain, secured, credentials), 240))

    with Broker(settings) as broker:
        ours = all_of(broker.address("PLAINTEXT"), broker.address("LOGIN"))
    with real_broker(release, tmp_path, stores, *(f"{name}={value}" for name, value in SETTINGS.items())) as addresses:
        theirs = all_of(*addresses)
    both = ours.keys() & theirs.keys()
    assert len(both) > 1500
    unlike = {key: (ours[key], theirs[key]) for key in both - otherwise(release, both) if ours[key] != theirs[key]}
    assert unlike == {}
