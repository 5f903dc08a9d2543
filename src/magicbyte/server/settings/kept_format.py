"""The format in which a log directory is kept, so that its original Kafka broker can use it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.engine.printable import logger
from magicbyte.engine.records.encode import Format
from magicbyte.engine.releases import line_of
from magicbyte.server.settings.config import FORMAT, FORMAT_NAMES, PROTOCOL, SETTINGS

if TYPE_CHECKING:
    from magicbyte.server.settings.config import BrokerConfig

log = logger(__name__)


class Kept(NamedTuple):
    """The format of a directory's records, and the protocol version, which determines those of internal topics."""

    stored: Format
    protocol: tuple[int, ...]

    def settings(self) -> dict[str, str]:
        """Return the corresponding settings."""
        return {FORMAT: FORMAT_NAMES[self.stored], PROTOCOL: ".".join(map(str, self.protocol))}

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Kept:
        """Parse settings, with defaults for missing ones. Raises InvalidConfigError."""
        stored, spoken = (
            SETTINGS[each].parse(settings.get(each, SETTINGS[each].default)) for each in (FORMAT, PROTOCOL)
        )
        return cls(stored, line_of(spoken))


def warn_beyond(config: BrokerConfig, who: str, stored: Format) -> None:
    """Log a warning if a dynamically set format is newer than the one in which the directory is kept."""
    kept = Kept.of(config.remembered)
    if stored.magic > kept.stored.magic:
        log.warning("%s stores format %s from now on: Kafka %s can no longer read the directory",
                    who, stored.value, FORMAT_NAMES[kept.stored])  # fmt: skip
