"""Basics of the cluster in the metadata tree: its id, and this broker's registration.

See also `election.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from magicbyte.engine.errors import LogDirectoryError, NodeExistsError, UnknownOutcomeError
from magicbyte.engine.ports import CreateNode, NodeChange
from magicbyte.engine.printable import logger
from magicbyte.engine.protocol.fields import id_text
from magicbyte.server.stores.znodes import layout

if TYPE_CHECKING:
    from magicbyte.engine.cluster.brokers import Registration
    from magicbyte.engine.ports import MetadataStore, Node, NodeEvent
    from magicbyte.server.metadata.on_loop import LoopStore

log = logger(__name__)

PATIENCE_MS: Final = 30_000
"""How long to wait for a registration to expire: longer than the default of `zookeeper.session.timeout.ms`."""


def found_cluster(metadata: MetadataStore, known_id: str | None, new_id: Callable[[], uuid.UUID]) -> str:
    """Return the cluster's id; in a new tree, create it, and the nodes that a broker expects.

    `known_id` is that of the log directory. Raises LogDirectoryError if the tree belongs to another cluster.
    """
    while True:
        with contextlib.suppress(NodeExistsError):  # another broker created a node in between: retry
            return _found_cluster(metadata, known_id, new_id)


def _found_cluster(metadata: MetadataStore, known_id: str | None, new_id: Callable[[], uuid.UUID]) -> str:
    node = metadata.exists(layout.CLUSTER_ID)
    cluster_id = known_id or id_text(new_id()) if node is None else _id_of(node, known_id)
    wanted = dict.fromkeys(layout.ALWAYS_THERE, b"")
    wanted[layout.CLUSTER_ID] = layout.dump_cluster_id(cluster_id)
    changes = list(_missing(metadata, wanted))
    if changes:
        metadata.transaction(changes)
    return _id_of(metadata.get(layout.CLUSTER_ID), known_id)  # another broker may have created it meanwhile


def _id_of(node: Node, known_id: str | None) -> str:
    """Return the cluster's id in the tree. Raises LogDirectoryError if the log directory has another one."""
    cluster_id = layout.load_cluster_id(node.data)
    if known_id not in (None, cluster_id):
        raise LogDirectoryError(
            f"the metadata is of cluster {cluster_id}, the log directory of {known_id}: restore the "
            "matching one, or move the metadata or meta.properties away to continue without it"
        )
    return cluster_id


def _missing(metadata: MetadataStore, wanted: dict[str, bytes]) -> Iterable[NodeChange]:
    """Yield the creations of missing nodes, parents first."""
    made: set[str] = set()
    for path, data in wanted.items():
        parts = path.split("/")[1:]
        for depth in range(1, len(parts) + 1):
            each = "/" + "/".join(parts[:depth])
            if each not in made and metadata.exists(each) is None:
                made.add(each)
                yield CreateNode(each, data if each == path else b"")


class OwnRegistration(NamedTuple):
    """A broker's registration, the date, and the version of its node: `releases.registration_version`."""

    content: Registration
    now_ms: int
    version: int


async def register(
    store: LoopStore, broker_id: int, registration: OwnRegistration, patience_ms: int = PATIENCE_MS
) -> int:
    """Register this broker in the tree; return its epoch.

    Waits for the end of an earlier session and raises as `wait_for_earlier_session` does.
    """
    path, (content, now_ms, version) = layout.broker_path(broker_id), registration
    data = layout.dump_broker(content.endpoints, content.rack, now_ms, version, content.features)
    while True:
        node = await wait_for_earlier_session(store, broker_id, patience_ms)
        if node is not None:
            return node.czxid
        with contextlib.suppress(NodeExistsError, UnknownOutcomeError):  # the next look shows the owner
            await store.create(path, data, ephemeral=True)


async def wait_for_earlier_session(store: LoopStore, broker_id: int, patience_ms: int = PATIENCE_MS) -> Node | None:
    """Wait until no other session has this broker registered; return the node if this session has.

    The other session may be that of this broker before a crash. Raises NodeExistsError if it has not expired after
    `patience_ms`: another broker runs with this id.
    """
    path = layout.broker_path(broker_id)
    try:
        async with asyncio.timeout(patience_ms / 1000):
            is_reported = False
            while True:
                changed = asyncio.Event()
                node = await store.exists(path, partial(_set, changed))
                if node is None or node.ephemeral_owner == store.session_id:
                    return node
                if not is_reported:
                    log.warning(
                        "broker %d is already registered, by another broker with this id or by this one before a "
                        "crash: waiting up to %d ms for that session to end",
                        broker_id,
                        patience_ms,
                    )
                    is_reported = True
                await changed.wait()
    except TimeoutError:
        raise NodeExistsError(
            path,
            f"another session has registered broker {broker_id} and has not ended for {patience_ms} ms: "
            "stop the other broker, or give this one another broker.id",
        ) from None


def _set(changed: asyncio.Event, _event: NodeEvent, _path: str) -> None:
    changed.set()
