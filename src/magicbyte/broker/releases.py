"""What each Kafka release offers: requests and their versions, formats, and how it turns down what it does not know.

For `as.version`, with which a broker offers what that release would, as far as it can. Source: what ApiVersions answers
in brokers of each release from 0.10.0.1 on, and what 0.8.2.2 and 0.9.0.1 answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magicbyte.broker.versions import SERVED
from magicbyte.log.index_writer import LINES
from magicbyte.records.encode import Format

_FIRST, _LATEST, _WITHOUT_OLD = (0, 8, 2), (4, 1), (4, 0)
_OWN_PROTOCOL: Final = (2, 8)

_GREW: Final[Mapping[int, Mapping[str, int]]] = {
    0: {"0.8.2": 0, "0.9.0": 1, "0.10.0": 2, "0.11.0": 3, "1.0": 5, "2.0": 6, "2.1": 7, "2.4": 8, "2.8": 9, "3.7": 10,
        "3.8": 11, "4.0": 12, "4.1": 13},
    1: {"0.8.2": 0, "0.9.0": 1, "0.10.0": 2, "0.10.1": 3, "0.11.0": 5, "1.0": 6, "1.1": 7, "2.0": 8, "2.1": 10,
        "2.3": 11, "2.7": 12, "3.1": 13, "3.5": 15, "3.7": 16, "3.9": 17, "4.1": 18},
    2: {"0.8.2": 0, "0.10.1": 1, "0.11.0": 2, "2.0": 3, "2.1": 4, "2.2": 5, "2.8": 6, "3.0": 7, "3.5": 8, "3.9": 9,
        "4.0": 10},
    3: {"0.8.2": 0, "0.10.0": 1, "0.10.1": 2, "0.11.0": 4, "1.0": 5, "2.0": 6, "2.1": 7, "2.3": 8, "2.4": 9, "2.8": 11,
        "3.1": 12, "4.0": 13},
    8: {"0.8.2": 1, "0.9.0": 2, "0.11.0": 3, "2.0": 4, "2.1": 6, "2.3": 7, "2.4": 8, "3.7": 9},
    9: {"0.8.2": 1, "0.10.2": 2, "0.11.0": 3, "2.0": 4, "2.1": 5, "2.4": 6, "2.5": 7, "3.0": 8,
        "3.7": 9},
    10: {"0.8.2": 0, "0.11.0": 1, "2.0": 2, "2.4": 3, "3.0": 4, "3.8": 5, "3.9": 6},
    11: {"0.9.0": 0, "0.10.1": 1, "0.11.0": 2, "2.0": 3, "2.2": 4, "2.3": 5, "2.4": 6, "2.5": 7, "3.2": 9},
    12: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.3": 3, "2.4": 4},
    13: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.4": 4, "3.2": 5},
    14: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.3": 3, "2.4": 4, "2.5": 5},
    15: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.3": 3, "2.4": 5, "4.0": 6},
    16: {"0.9.0": 0, "0.11.0": 1, "2.0": 2, "2.4": 3, "2.6": 4, "3.8": 5},
    18: {"0.10.0": 0, "0.11.0": 1, "2.0": 2, "2.4": 3, "3.9": 4},
    19: {"0.10.1": 0, "0.10.2": 1, "0.11.0": 2, "2.0": 3, "2.4": 5, "2.7": 6, "2.8": 7},
    20: {"0.10.1": 0, "0.11.0": 1, "2.0": 2, "2.1": 3, "2.4": 4, "2.7": 5, "2.8": 6},
    21: {"0.11.0": 0, "2.0": 1, "2.6": 2},
    22: {"0.11.0": 0, "2.0": 1, "2.4": 2, "2.5": 3, "2.7": 4, "3.8": 5},
    23: {"0.11.0": 0, "2.0": 1, "2.1": 2, "2.3": 3, "2.8": 4},
    29: {"0.11.0": 0, "2.0": 1, "2.5": 2, "3.3": 3},
    30: {"0.11.0": 0, "2.0": 1, "2.5": 2, "3.3": 3},
    31: {"0.11.0": 0, "2.0": 1, "2.5": 2, "3.3": 3},
    32: {"0.11.0": 0, "1.1": 1, "2.0": 2, "2.6": 3, "2.8": 4},
    33: {"0.11.0": 0, "2.0": 1, "2.8": 2},
    35: {"1.0": 0, "2.0": 1, "2.6": 2, "3.2": 3, "3.3": 4},
    37: {"1.0": 0, "2.0": 1, "2.5": 2, "2.7": 3},
    42: {"1.1": 0, "2.0": 1, "2.4": 2},
    44: {"2.3": 0, "2.4": 1},
    47: {"2.4": 0},
    60: {"2.8": 0, "3.7": 1, "4.0": 2},
    61: {"2.8": 0},
}  # fmt: skip
"""By API key: from which release line on the latest version is which."""

_LEAST: Final[Mapping[int, int]] = {
    0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 11: 2, 19: 2, 20: 1, 23: 2, 29: 1, 30: 1, 31: 1, 32: 1, 35: 1
}  # fmt: skip
"""From 4.0 on: the first version that is still known, by API key (KIP-896)."""
_PRODUCE: Final = 0
_JOIN_GROUP: Final = 11
_OFFSET_COMMIT: Final = 8  # the one request whose version was looked at before 0.10


@dataclass(frozen=True, slots=True)
class Release:
    """What a broker offers: versions by API key, those that it answers and those that ApiVersions lists.

    `newest_format` and `protocol` (`inter.broker.protocol.version`) decide on what it stores.

    `tells_range`: ApiVersions in a version that is too new is told which ones there are. `reads_any_version`: requests
    in versions that are too new are read and answered in the latest one that is known. `ignores_unknown`: requests that
    are not known at all get no answer, and their connections stay open.
    """

    answered: Mapping[int, range]
    listed: Mapping[int, range]
    newest_format: Format = Format.V2
    protocol: tuple[int, ...] = _OWN_PROTOCOL
    tells_range: bool = True
    reads_any_version: bool = False
    ignores_unknown: bool = False

    def answers(self, key: int, version: int) -> int | None:
        """Return the version in which a request is read and answered, None if it is not."""
        versions = self.answered.get(key)
        if versions is None:
            return None
        if version in versions:
            return version
        return versions[-1] if self.reads_any_version and key != _OFFSET_COMMIT else None


def _place(line: str) -> tuple[int, ...]:
    return tuple(map(int, line.split(".")))


def _own() -> Release:
    versions = {key: served.versions for key, served in SERVED.items()}
    return Release(versions, versions)


OWN: Final = _own()
"""This broker, as itself."""


def release(name: str) -> Release:
    """Return what a release offers of what is served here. `name` is one such as 0.10.2, 2.8 or 3.9.1.

    Raises ValueError for a release that is not known.
    """
    line = next((each for each in LINES if re.fullmatch(rf"{re.escape(each)}(\.[0-9]{{1,3}})*", name)), None)
    if line is None or not _FIRST <= _place(line) <= _LATEST:
        raise ValueError(name)
    place = _place(line)
    answered, listed = dict[int, range](), dict[int, range]()
    for key, grew in _GREW.items():
        known = [latest for since, latest in grew.items() if _place(since) <= place]
        if known:
            least = _LEAST.get(key, 0) if place >= _WITHOUT_OLD else 0
            if key == _JOIN_GROUP and place > _WITHOUT_OLD:
                least = 0  # it came back in 4.1
            end = min(known[-1] + 1, SERVED[key].versions.stop)
            answered[key] = range(least, end)
            listed[key] = range(0 if key == _PRODUCE else least, end)  # librdkafka takes codecs from version 0
    return Release(
        answered,
        listed,
        newest_format=Format.V0 if place < (0, 10) else Format.V1 if place < (0, 11) else Format.V2,
        protocol=min(place, _OWN_PROTOCOL),
        tells_range=place >= (2, 4),
        reads_any_version=place < (0, 10),
        ignores_unknown=(0, 9) <= place < (0, 10),
    )
