"""SCRAM users in the metadata tree, at Kafka's paths: /config/users/NAME."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from magicbyte.engine.cluster.scram import Credential
from magicbyte.engine.errors import MetadataError, NodeExistsError, SecurityError
from magicbyte.engine.ports import CreateNode, NodeChange, SetNode
from magicbyte.server.metadata import layout
from magicbyte.server.stores.topic_nodes import settings_in, settings_of
from magicbyte.server.stores.znodes.clients import USERS, sanitised

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore


def credential_of(metadata: MetadataStore, mechanism: str, tell: Callable[[str], None], user: str) -> Credential | None:
    """Return a user's credential, or None; `tell` is called with damage."""
    name = sanitised(user)
    try:
        text = settings_of(metadata, USERS, name).get(mechanism)
        return None if text is None else Credential.load(text)
    except (SecurityError, MetadataError) as error:
        tell(f"the {mechanism} credential of user {name}: {error}")
        return None


def secret_of_decoys(metadata: MetadataStore) -> bytes:
    """Return the cluster's secret for the challenges of unknown users; it is made at the first call.

    In the tree, so that all brokers give a name the same salt, before and after a restart. Raises MetadataError.
    """
    with suppress(NodeExistsError):
        metadata.create(layout.SCRAM_DECOYS, secrets.token_hex(32).encode(), parents=True)
    return metadata.get(layout.SCRAM_DECOYS).data


def change_of(metadata: MetadataStore, user: str, changes: Mapping[str, str | None]) -> NodeChange:
    """Return the change that sets a user's credentials, by mechanism, and deletes those that are None.

    A user's quotas are in the same node. A concurrent change of it makes this one fail.
    """
    path = layout.config_path(USERS, sanitised(user))
    node = metadata.exists(path)
    kept = {name: text for name, text in settings_in(path, node).items() if name not in changes}
    data = layout.dump_config(kept | {name: text for name, text in changes.items() if text is not None})
    return CreateNode(path, data) if node is None else SetNode(path, data, node.version)
