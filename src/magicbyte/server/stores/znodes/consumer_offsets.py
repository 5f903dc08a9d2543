"""The nodes of offsets that version 0 of OffsetCommit stores, as consumers before 0.9 did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.server.stores.znodes import layout

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore, TopicPartition


def commit(metadata: MetadataStore, group: str, key: TopicPartition, offset: int) -> None:
    """Store the offset of a group. Blocks. Raises NetworkError, MetadataError."""
    path, data = layout.consumer_offset_path(group, *key), str(offset).encode()
    if metadata.exists(path) is None:
        metadata.create(path, data, parents=True)
    else:
        metadata.set(path, data)


def committed(metadata: MetadataStore, group: str, key: TopicPartition) -> int | None:
    """Return the stored offset of a group, None if there is none. Blocks. Raises NetworkError, MetadataError."""
    node = metadata.exists(layout.consumer_offset_path(group, *key))
    return int(node.data) if node is not None and node.data.isdigit() else None
