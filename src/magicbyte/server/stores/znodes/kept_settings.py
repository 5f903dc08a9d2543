"""The nodes of settings that a log directory depends on: which format and protocol its content has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from magicbyte.server.stores.znodes import layout

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore

path_of = layout.directory_path


def kept_settings(metadata: MetadataStore, broker_id: int) -> dict[str, str] | None:
    """Return the settings that a broker has stored for its log directory, None if there are none.

    Raises MetadataError.
    """
    path = path_of(broker_id)
    node = metadata.exists(path)
    return None if node is None else layout.load_config(path, node.data)


def keep_settings(metadata: MetadataStore, broker_id: int, settings: Mapping[str, str]) -> None:
    """Store the settings of a broker's log directory."""
    path, data = path_of(broker_id), layout.dump_config(settings)
    node = metadata.exists(path)
    if node is None:
        metadata.create(path, data, parents=True)
    elif node.data != data:
        metadata.set(path, data)


def forget_settings(metadata: MetadataStore) -> None:
    """Forget the settings of all log directories."""
    parent = path_of(0).rpartition("/")[0]
    for name in metadata.children(parent) if metadata.exists(parent) is not None else []:
        metadata.delete(f"{parent}/{name}")
