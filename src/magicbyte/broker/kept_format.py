"""The format that a log directory is kept in, so that the Kafka broker it came from can have it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from magicbyte.broker.config import FORMAT, FORMAT_NAMES, PROTOCOL, SETTINGS
from magicbyte.printable import logger
from magicbyte.records.encode import Format
from magicbyte.releases import line_of

if TYPE_CHECKING:
    from magicbyte.broker.config import BrokerConfig

log = logger(__name__)


class Kept(NamedTuple):
    """The format of a directory's records, and the protocol version that decides on those of internal topics."""

    stored: Format
    protocol: tuple[int, ...]

    def settings(self) -> dict[str, str]:
        """Return the settings that stand for it."""
        return {FORMAT: FORMAT_NAMES[self.stored], PROTOCOL: ".".join(map(str, self.protocol))}

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Kept:
        """Return what settings stand for, and the defaults of those that are not given. Raises InvalidConfigError."""
        stored, spoken = (
            SETTINGS[each].parse(settings.get(each, SETTINGS[each].default)) for each in (FORMAT, PROTOCOL)
        )
        return cls(stored, line_of(spoken))


def warn_beyond(config: BrokerConfig, who: str, stored: Format) -> None:
    """Log it when a format that was set while the broker runs goes beyond the one that its directory is kept in."""
    kept = Kept.of(config.remembered)
    if stored.magic > kept.stored.magic:
        log.warning("%s stores format %s from now on: Kafka %s can no longer read the directory",
                    who, stored.value, FORMAT_NAMES[kept.stored])  # fmt: skip
