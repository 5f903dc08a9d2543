"""Version ranges, the values of `versions`, `nullableVersions`, the keys of an `encoding` and others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

HIGHEST: Final = 32767
"""The highest possible version, because versions are int16. `N+` means N to this."""

_TEXT = re.compile(r"([0-9]{1,5})(?:(\+)|-([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions from `lowest` to `highest`, both included; none if `lowest` is above `highest`."""

    NONE: ClassVar[Versions]

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse `none`, `N`, `N-M` or `N+`, with optional whitespace around it.

        Raises ValueError, with the expected form, for anything else, and for a reversed range: Kafka's own generator
        takes `5-3` as an empty one.
        """
        stripped = text.strip()
        if stripped == "none":
            return cls.NONE
        match = _TEXT.fullmatch(stripped)
        if match is None:
            raise ValueError(f"a version range: none, N, N-M or N+, with numbers up to {HIGHEST}")
        lowest = int(match[1])
        highest = HIGHEST if match[2] else int(match[3] or match[1])
        if lowest > HIGHEST or highest > HIGHEST:
            raise ValueError(f"versions up to {HIGHEST}")
        if lowest > highest:
            raise ValueError(f"a range from the lower version to the higher: {highest}-{lowest}")
        return cls(lowest, highest)

    @property
    def is_empty(self) -> bool:
        """Whether it contains no version."""
        return self.lowest > self.highest

    @property
    def open_ended(self) -> bool:
        """Whether it has no upper end: `N+`."""
        return self.highest == HIGHEST

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.lowest, self.highest + 1))

    def __and__(self, other: Versions) -> Versions:
        lowest, highest = max(self.lowest, other.lowest), min(self.highest, other.highest)
        return Versions(lowest, highest) if lowest <= highest else Versions.NONE

    def issubset(self, other: Versions) -> bool:
        """Return whether every version of it is one of `other`, too."""
        return self.is_empty or (other.lowest <= self.lowest and self.highest <= other.highest)

    def without(self, others: Iterable[Versions]) -> list[Versions]:
        """Return the remaining versions, as ranges in ascending order, without those of `others`."""
        left, lowest = [], self.lowest
        for other in sorted((other & self for other in others), key=lambda each: each.lowest):
            if other.is_empty:
                continue
            if other.lowest > lowest:
                left.append(Versions(lowest, other.lowest - 1))
            lowest = max(lowest, other.highest + 1)
        if lowest <= self.highest:
            left.append(Versions(lowest, self.highest))
        return left

    def __str__(self) -> str:
        if self.is_empty:
            return "none"
        if self.open_ended:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


Versions.NONE = Versions(0, -1)
