"""Levels of features of a KRaft cluster: their names, those of a new cluster, and what each needs.

Source: Kafka's MetadataVersion and Feature, 3.3 to 4.4; the levels of new clusters are those that kafka-storage writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from magicbyte.engine.releases import Release


METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
"""The quorum's own: 1 if its voters are records in the log. Its level is in control records."""

_LINES_OF_LEVELS: Final = (
    ("3.0", 2), ("3.1", 1), ("3.2", 1), ("3.3", 4), ("3.4", 1), ("3.5", 3), ("3.6", 3), ("3.7", 5), ("3.8", 1),
    ("3.9", 1), ("4.0", 4), ("4.1", 2), ("4.2", 2), ("4.3", 1), ("4.4", 3),
)  # fmt: skip
LEVEL_NAMES: Final = tuple(f"{line}-IV{at}" for line, count in _LINES_OF_LEVELS for at in range(count))
"""The names of the levels of `metadata.version`. 0, 3.0-IV0, had no metadata log."""
FIRST_LEVEL: Final = 7
"""3.3-IV3, the first that a directory can be formatted with."""
LAST_LEVEL: Final = len(LEVEL_NAMES) - 1
FIRST_WITH_SCRAM: Final = 11
"""3.5-IV2: from this level on the metadata log holds the credentials of SCRAM users."""
FIRST_WITH_VOTERS: Final = 21
"""3.9-IV0: from this level on the voters can be records in the log, so that they can change (KIP-853)."""


class FeatureLevels(NamedTuple):
    """The levels of a feature, from 1 on.

    `since`: the first release line that has each. `usual`: the level of `metadata.version` from which on a new cluster
    has it. `needs`: the least level that allows the feature.
    """

    since: tuple[str, ...]
    usual: tuple[int, ...]
    needs: int = FIRST_LEVEL


FEATURES: Final[Mapping[str, FeatureLevels]] = MappingProxyType(
    {
        "eligible.leader.replicas.version": FeatureLevels(("4.0",), (26,), 23),
        "group.version": FeatureLevels(("4.0",), (22,)),
        "share.version": FeatureLevels(("4.1", "4.4"), (28, 31)),
        "streams.version": FeatureLevels(("4.2",), (29,)),
        "transaction.version": FeatureLevels(("4.0", "4.0"), (24, 24)),
    }
)
"""Features besides `metadata.version` that have their level in records, in the order of their names."""


def level_of(text: str) -> int:
    """Return a level of `metadata.version` by its number, such as 30, or its name, such as 4.3-IV0.

    Raises ValueError unless a directory can be formatted with it.
    """
    level = int(text) if text.isdigit() and len(text) < 4 else LEVEL_NAMES.index(text) if text in LEVEL_NAMES else 0
    if not FIRST_LEVEL <= level <= LAST_LEVEL:
        known = f"{FIRST_LEVEL} ({LEVEL_NAMES[FIRST_LEVEL]}) to {LAST_LEVEL} ({LEVEL_NAMES[LAST_LEVEL]})"
        raise ValueError(f"{METADATA_VERSION} {text!r}: expected a level from {known}")
    return level


def initial_levels(level: int, release: Release, chosen: Mapping[str, int]) -> dict[str, int]:
    """Return the levels of features with which a new cluster begins, `metadata.version` first; without those at 0.

    `level`: that of `metadata.version`. `chosen`: the levels of some features, others have their usual ones. Raises
    ValueError for what the release does not have, or the level does not allow.
    """
    newest = release.metadata_version
    if newest is None or level > newest:
        known = "none: it is before KRaft's 3.3" if newest is None else f"up to {newest} ({LEVEL_NAMES[newest]})"
        raise ValueError(f"{METADATA_VERSION} {level}: Kafka {release.version} has {known}")
    for name in chosen:
        if name not in FEATURES:
            raise ValueError(f"feature {name!r}: expected one of {', '.join(FEATURES)}")
    levels = {METADATA_VERSION: level}
    for name, feature in FEATURES.items():
        most = release.lines_reached(feature.since)
        wanted = chosen.get(name, min(most, sum(level >= each for each in feature.usual)))
        if not 0 <= wanted <= most:
            raise ValueError(f"{name} {wanted}: Kafka {release.version} has levels 0 to {most}")
        if wanted and level < feature.needs:
            raise ValueError(f"{name} {wanted}: expected {METADATA_VERSION} {feature.needs} or later, found {level}")
        if wanted:
            levels[name] = wanted
    return levels
