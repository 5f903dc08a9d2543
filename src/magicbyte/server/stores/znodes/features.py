"""The cluster's level of the feature `transaction.version`, which all brokers must support (KIP-584).

It is stored in the node /feature, where Kafka's brokers of 2.7 to 3.9 read it, too: those that do not support the level
stop. Protocol 2 of transactions needs every broker: partition leaders write records of that level for coordinators.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from magicbyte.engine.errors import BadVersionError, InvalidConfigError, NodeExistsError
from magicbyte.server.settings.offer import TRANSACTION_VERSION
from magicbyte.server.stores.znodes import layout

if TYPE_CHECKING:
    from magicbyte.server.metadata.on_loop import LoopStore


async def finalize(store: LoopStore, broker_id: int, level: int) -> None:
    """Ensure that the cluster has this level of `transaction.version`, 0 for none; store it if no broker has before.

    Call it before and after the broker registers: of two brokers starting at once with different levels at least one
    notices. Raises InvalidConfigError if other brokers have another level.
    """
    while True:
        with suppress(BadVersionError, NodeExistsError):  # another broker stored its level in between: retry
            await _finalize(store, broker_id, level)
            return


async def _finalize(store: LoopStore, broker_id: int, level: int) -> None:
    node = await store.exists(layout.FEATURES)
    levels = {} if node is None else layout.load_features(node.data)
    finalized = levels.get(TRANSACTION_VERSION, 0)
    if finalized > level:
        raise InvalidConfigError(
            f"as.version: this broker has {TRANSACTION_VERSION} {level}, its cluster {finalized}: set as.version to "
            "4.0 or later, as at the other brokers"
        )
    if not level:
        return
    for other, supported in (await _supported(store)).items():
        if other != broker_id and supported < level:
            raise InvalidConfigError(
                f"as.version: this broker has {TRANSACTION_VERSION} {level}, "
                f"broker {other} of its cluster another level: stop all brokers, and start all with the same as.version"
            )
    if finalized == level:
        return
    data = layout.dump_features({**levels, TRANSACTION_VERSION: level})
    if node is None:
        await store.create(layout.FEATURES, data)
    else:
        await store.set(layout.FEATURES, data, node.version)


async def _supported(store: LoopStore) -> dict[int, int]:
    """Return the latest level that each registered broker supports."""
    ids = [int(name) for name in await store.children(layout.BROKER_IDS) if name.isdigit()]
    paths = [layout.broker_path(each) for each in ids]
    nodes = await store.get_many(paths)
    return {
        broker_id: layout.load_broker(path, node.data).features.get(TRANSACTION_VERSION, 0)
        for broker_id, path, node in zip(ids, paths, nodes, strict=True)
        if node is not None
    }
