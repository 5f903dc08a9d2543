"""TLS to a ZooKeeper, and the ACLs of the nodes that brokers make there. Source: ZkData of Kafka 2.8."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from magicbyte.server.stores.znodes import layout

_OF_OLD_CONSUMERS: Final = "/consumers"
_SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens", layout.SCRAM_DECOYS)


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """How a session is secured. `sets_acls`: only clients with the same certificate change its nodes.

    Files are PEM; `keystore` has a certificate and its key.
    """

    keystore: str
    truststore: str | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_host: bool = True
    sets_acls: bool = False

    def of_client(self) -> dict[str, Any]:
        """Return the arguments of a client of kazoo."""
        return {
            "use_ssl": True,
            "certfile": self.keystore,
            "keyfile": self.keystore,
            "keyfile_password": self.key_password,
            "ca": self.truststore,
            "check_hostname": self.checks_host,
        }

    def acl_of(self, path: str) -> list[ACL]:
        """Return the ACL of a node below the root of the cluster: others read it, unless secrets may be in it."""
        if not self.sets_acls or path.startswith(_OF_OLD_CONSUMERS):
            return list(OPEN_ACL_UNSAFE)
        return [*CREATOR_ALL_ACL, *(() if path.startswith(_SENSITIVE) else READ_ACL_UNSAFE)]
