"""Read quotas from the tree into a running broker: all at its start, one after each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.server.stores import quota_nodes
from magicbyte.server.stores.znodes.clients import ADDRESSES, address_at, entity_at

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore
    from magicbyte.server.serving.runtime import Runtime


async def reread_all(runtime: Runtime, metadata: MetadataStore) -> None:
    """Apply all quotas in the tree. Raises MetadataError, NetworkError."""
    async with runtime.quotas.reading:
        runtime.quotas.replace_all(await runtime.reading.run(quota_nodes.read_all, metadata))


async def reread(runtime: Runtime, metadata: MetadataStore, kind: str, name: str) -> None:
    """Apply the quotas of one node. Raises MetadataError, NetworkError."""
    async with runtime.quotas.reading:
        values = await runtime.reading.run(quota_nodes.read_one, metadata, kind, name)
        if (entity := entity_at(kind, name)) is not None:
            runtime.quotas.replace(entity, values)
        elif kind == ADDRESSES:
            runtime.quotas.replace_address(address_at(name), values)
