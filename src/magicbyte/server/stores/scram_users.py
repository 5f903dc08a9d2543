"""SCRAM users, as logins ask for them; and the secret behind the challenges of unknown users."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from magicbyte.engine.cluster.image import credential_part
from magicbyte.engine.errors import NodeExistsError
from magicbyte.server.metadata import layout
from magicbyte.server.stores.znodes.clients import sanitised

if TYPE_CHECKING:
    from magicbyte.engine.cluster.image import ClusterImage
    from magicbyte.engine.cluster.scram import Credential
    from magicbyte.engine.ports import MetadataStore


def credential_of(
    image: Callable[[], ClusterImage], mechanism: str, tell: Callable[[str], None], user: str
) -> Credential | None:
    """Return a user's credential in the latest image, or None; `tell` is called with damage."""
    now = image()
    credential = now.scram_users.get(user, {}).get(mechanism)
    if credential is None and (why := now.damage.get(credential_part(user, mechanism))) is not None:
        tell(f"the {mechanism} credential of user {sanitised(user)}: {why}")
    return credential


def secret_of_decoys(metadata: MetadataStore) -> bytes:
    """Return the cluster's secret for the challenges of unknown users; it is made at the first call.

    In the tree, so that all brokers give a name the same salt, before and after a restart. Raises MetadataError.
    """
    with suppress(NodeExistsError):
        metadata.create(layout.SCRAM_DECOYS, secrets.token_hex(32).encode(), parents=True)
    return metadata.get(layout.SCRAM_DECOYS).data
