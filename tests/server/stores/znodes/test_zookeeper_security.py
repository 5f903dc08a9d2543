"""Which ACL a node of ZooKeeper gets, and which settings of a broker ask for that."""

from __future__ import annotations

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from magicbyte.engine.errors import InvalidConfigError
from magicbyte.server.broker.broker import Broker
from magicbyte.server.settings.config import BrokerConfig
from magicbyte.server.stores.znodes.zookeeper_security import ZooKeeperSecurity

MUTUAL = {"zookeeper.connect": "127.0.0.1:1", "zookeeper.ssl.client.enable": "true"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/brokers/topics/orders", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/controller", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/config/topics/orders", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/config/users/alice", CREATOR_ALL_ACL),
        ("/config/brokers/0", CREATOR_ALL_ACL),
        ("/consumers/old/offsets", OPEN_ACL_UNSAFE),
    ],
)
def test_nodes_are_changed_by_their_maker_and_read_by_others_unless_they_have_secrets(
    path: str, expected: list[object]
) -> None:
    assert ZooKeeperSecurity("own.pem", sets_acls=True).acl_of(path) == expected
    assert ZooKeeperSecurity("own.pem").acl_of(path) == OPEN_ACL_UNSAFE


def test_a_password_is_not_shown() -> None:
    assert "hunter2" not in repr(ZooKeeperSecurity("own.pem", key_password="hunter2"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"zookeeper.connect": "127.0.0.1:1", "zookeeper.set.acl": "true"}, r"zookeeper\.ssl\.client\.enable=true"),
        (MUTUAL, r"zookeeper\.ssl\.keystore\.location: expected a PEM file"),
    ],
)
def test_settings_that_secure_nothing_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        Broker(BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", **settings}))
