"""Determine the format and protocol in which a log directory is kept: by its records, or remembered settings.

A directory is kept as by the oldest broker that can have written its content, so that this broker can take it back.
Given settings take precedence; they are remembered for starts without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import CorruptRecordError, InvalidConfigError, LogDirectoryError
from magicbyte.engine.groups.config import LATEST, needed_protocol
from magicbyte.engine.internal_topics import OFFSETS_TOPIC
from magicbyte.engine.log.files.checkpoints import PARTITION_METADATA
from magicbyte.engine.log.files.filesystem import exists
from magicbyte.engine.log.files.names import folder_name, is_named_by_offset
from magicbyte.engine.printable import logger
from magicbyte.engine.records.encode import Format
from magicbyte.engine.records.layout import Dialect
from magicbyte.engine.releases import TOPIC_IDS, line_of
from magicbyte.server.metadata.sqlite import FILE_NAME
from magicbyte.server.settings.kept_format import Kept
from magicbyte.server.stores.znodes.kept_settings import keep_settings, kept_settings, path_of
from magicbyte.server.stores.znodes.salvage import is_served

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from magicbyte.engine.log.live.log_directory import LogDirectory
    from magicbyte.engine.log.live.partition_log import PartitionLog
    from magicbyte.engine.ports import MetadataStore
    from magicbyte.server.settings.config import BrokerConfig

log = logger(__name__)

_LATEST_GROUPS: Final = needed_protocol(LATEST.group_value, LATEST.offset_value)


_WRITTEN_BY: Final = (Kept(Format.V0, (0, 9, 0)), Kept(Format.V1, (0, 10, 0)), Kept(Format.V2, (0, 11, 0)))
"""By magic byte: the oldest brokers that write it, from the first with groups on."""


def foreign_partitions(directory: Path) -> list[str]:
    """Return the partition folders of a directory without magicbyte's metadata: no magicbyte broker has served it."""
    if not directory.is_dir() or is_served(directory):
        return []
    folders = [each for each in directory.iterdir() if each.is_dir() and folder_name(each.name) is not None]
    return sorted(each.name for each in folders if any(is_named_by_offset(file.name) for file in each.iterdir()))


def adopt(config: BrokerConfig, metadata: MetadataStore, logs: LogDirectory) -> None:
    """Put the directory's settings in force, and remember them; log deviations from the default.

    Raises InvalidConfigError if they contradict given settings.
    """
    kept = kept_settings(metadata, config.broker_id)
    before = _shown_by_records(logs) if kept is None else _kept_of(kept, config.broker_id, logs)
    stored, spoken = config.adopt({} if before is None else before.settings())
    now = Kept(stored, line_of(spoken))
    names = ", ".join(f"{name}={text}" for name, text in config.of_directory.items())
    if before is not None and names:
        log.warning(
            "%s stays readable for Kafka %s: %s; set them to use later formats", logs.path, _line(before), names
        )
    if before is not None and (now.stored.magic > before.stored.magic or now.protocol > before.protocol):
        log.warning("%s was readable for Kafka %s, and no longer is: the settings require %s",
                    logs.path, _line(before), _line(now))  # fmt: skip
    config.adopt(now.settings())  # the same values, which `warn_beyond` uses
    keep_settings(metadata, config.broker_id, now.settings())


def _kept_of(settings: Mapping[str, str], broker_id: int, logs: LogDirectory) -> Kept:
    """Return the stored format and protocol. Raises LogDirectoryError for values that this version does not know."""
    try:
        return Kept.of(settings)
    except InvalidConfigError as error:
        raise LogDirectoryError(
            f"{logs.path}: node {path_of(broker_id)} of the metadata ({FILE_NAME}, without a cluster): {error}: it is "
            "damaged, or a later version of magicbyte wrote it: start that version, or restore the metadata"
        ) from error


def _line(kept: Kept) -> str:
    return ".".join(map(str, kept.protocol))


def _shown_by_records(logs: LogDirectory) -> Kept | None:
    """Return the format and protocol shown by the records of a directory; None if it has none."""
    magics, protocols = list[int](), list[tuple[int, ...]]()
    for key, each in logs.logs.items():
        if each.config.dialect is Dialect.ENRICHED:
            continue
        magics += _magics(each)
        if key.topic == OFFSETS_TOPIC and each.size:
            protocols.append(_protocol_of_groups(each))
    if not magics:
        return None
    stored, protocol = _WRITTEN_BY[min(max(magics), 2)]
    protocol = max([protocol, *protocols])
    has_ids = any(exists(logs.files, f"{each.folder}/{PARTITION_METADATA}") for each in logs.logs.values())
    # Brokers that write the latest group records can read everything that brokers with topic ids write.
    if stored is Format.V2 and (has_ids or protocol >= _LATEST_GROUPS):
        protocol = TOPIC_IDS
    return Kept(stored, protocol)


def _magics(each: PartitionLog) -> list[int]:
    magics = []
    for segment in each.segments:
        try:
            magic = segment.newest_magic()
        except (CorruptRecordError, OSError) as error:  # reported to the readers there
            log.warning("%s: the format of its records is not known: %s", segment.log.path, error)
            continue
        magics += [] if magic is None else [magic]
    return magics


def _protocol_of_groups(each: PartitionLog) -> tuple[int, ...]:
    """Return the first protocol version that writes group records as they are in a log."""
    from magicbyte.server.coordinating.groups import read_groups

    try:
        found = read_groups(each)
    except (CorruptRecordError, LogDirectoryError, OSError):  # reported when the groups are loaded
        return ()
    groups = [value.version for value in found.groups.values()]
    offsets = [value.version for places in found.offsets.values() for value in places.values()]
    return needed_protocol(max(groups, default=0), max(offsets, default=0))
