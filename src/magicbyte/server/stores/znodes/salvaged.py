"""Complete salvaged metadata, so that no records are deleted because settings were lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.engine.cluster.topics import entity_of
from magicbyte.engine.internal_topics import COMPACTED
from magicbyte.server.settings import topic_config
from magicbyte.server.stores.znodes import layout
from magicbyte.server.stores.znodes.reading import image_of

if TYPE_CHECKING:
    from magicbyte.engine.ports import MetadataStore


def keep_all(metadata: MetadataStore) -> None:
    """Give topics whose settings were lost settings with which nothing is deleted."""
    image = image_of(metadata)
    for name in image.topics:
        if entity_of(name) not in image.settings:
            own = {"cleanup.policy": "compact"} if name in COMPACTED else topic_config.KEEPS_ALL
            metadata.create(layout.config_path("topics", name), layout.dump_config(own), parents=True)
