"""Map offsets of the source to those of the target, with one run per gap.

A target assigns offsets without gaps. So an `OffsetRun` holds until the source has a gap: the record at `source`, or
the first one after it, is at `target`, the next at `target` + 1, and so on. If the records of a set were not counted,
because it stayed closed, or have gaps between them, its run is not `exact`: all of it maps to its first record.

On disk, a run is a line of JSON: {"topic": "t", "partition": 0, "source": 17, "target": 12, "exact": true}, in any
order; of two with the same source the later one counts. offset_topic.py stores the same in a topic.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from magicbyte.engine.errors import MirrorError


class OffsetRun(NamedTuple):
    """From the offset `source` on the records are at `target` and after it. `exact`: without gaps."""

    source: int
    target: int
    exact: bool = True


class Translation(NamedTuple):
    """Where a consumer continues at the target. Unless this is `exact` it may see records again there.

    `copied`: the record at its offset is there, or a later one.
    """

    offset: int
    exact: bool
    copied: bool


class MirrorOffsetMap:
    """The runs of one partition. `add` takes them in any order."""

    def __init__(self, runs: Iterable[OffsetRun] = ()) -> None:
        self._runs: dict[int, OffsetRun] = {}
        self._sources: list[int] | None = None
        for each in runs:
            self.add(each)

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: OffsetRun) -> None:
        """Add a run, replacing one with the same source."""
        self._runs[run.source] = run
        self._sources = None

    def remove(self, source: int) -> None:
        """Remove a run, if there is one with this source."""
        if self._runs.pop(source, None) is not None:
            self._sources = None

    def runs(self) -> list[OffsetRun]:
        """Return all runs in the order of the source."""
        return [self._runs[each] for each in self._sorted()]

    def translate(self, offset: int, end: OffsetRun) -> Translation:
        """Return where a consumer at `offset` of the source continues. `end`: the end of the copied records.

        Never after a record that the consumer has not seen. Offsets that are not copied yet map to the end.
        """
        if offset >= end.source:
            return Translation(end.target, exact=offset == end.source, copied=False)
        sources = self._sorted()
        at = bisect_right(sources, offset)
        limit = min(self._runs[sources[at]].target, end.target) if at < len(sources) else end.target
        if not at:  # records that the source deleted before they were copied
            return Translation(limit, exact=True, copied=True)
        run = self._runs[sources[at - 1]]
        if run.exact:
            return Translation(min(run.target + offset - run.source, limit), exact=True, copied=True)
        return Translation(min(run.target, limit), exact=offset == run.source, copied=True)

    def _sorted(self) -> list[int]:
        if self._sources is None:
            self._sources = sorted(self._runs)
        return self._sources


class Track:
    """Follow the copying of a partition, and collect the runs for its map.

    The first set always makes a run, because a mirror does not know the runs stored before its start.
    """

    def __init__(self) -> None:
        self._noted: list[OffsetRun] = []
        self._run: OffsetRun | None = None
        self._uncounted: OffsetRun | None = None  # the last set, if only the next one tells whether it has gaps
        self._doubted = False  # whether the map already says that it has

    def copied(self, first: int, following: int, records: int, target: int, *, together: bool = True) -> None:
        """Record that a set with offsets from `first` to before `following` is at `target`. `records` -1: not counted.

        `together`: its records are adjacent there; else others may be between them.
        """
        run, before = self._run, self._uncounted
        if run is not None and run.exact and run.target + first - run.source == target:
            if before is not None and self._doubted:
                self._note(before)
        else:
            if before is not None and not self._doubted:
                self._note(before._replace(exact=False))
            self._note(OffsetRun(first, target))
        self._uncounted, self._doubted = (OffsetRun(first, target) if records < 0 and together else None), False
        if not together:
            self._note(OffsetRun(first, target, exact=False))
        elif 0 <= records != following - first:
            self._note(OffsetRun(first, target, exact=False))
            self._note(OffsetRun(following, target + records))

    def take(self) -> list[OffsetRun]:
        """Return the runs since the last call; with them the map covers everything that was copied."""
        if self._uncounted is not None and not self._doubted:
            self._noted.append(self._uncounted._replace(exact=False))
            self._doubted = True
        noted, self._noted = self._noted, []
        return noted

    def _note(self, run: OffsetRun) -> None:
        if self._noted and self._noted[-1].source == run.source:
            self._noted.pop()
        self._noted.append(run)
        self._run = run


def line(topic: str, partition: int, run: OffsetRun) -> str:
    """Return a run as a line of a file, without the line end."""
    return json.dumps({"topic": topic, "partition": partition} | run._asdict())


def read_lines(lines: Iterable[str]) -> dict[tuple[str, int], MirrorOffsetMap]:
    """Parse the maps in the lines of a file, by topic and partition. Raises MirrorError for invalid lines."""
    maps: dict[tuple[str, int], MirrorOffsetMap] = {}
    for number, text in enumerate(lines, 1):
        try:
            told = json.loads(text)
            key = str(told["topic"]), int(told["partition"])
            run = run_told(told)
        except (ValueError, KeyError, TypeError) as error:
            raise MirrorError(f"line {number}: expected a run of an offset map, found {text[:80]!r}") from error
        maps.setdefault(key, MirrorOffsetMap()).add(run)
    return maps


def run_told(told: Mapping[str, Any]) -> OffsetRun:
    """Parse a run in JSON. Raises ValueError, KeyError and TypeError for another object."""
    source, target, exact = told["source"], told["target"], told["exact"]
    if type(source) is not int or type(target) is not int or type(exact) is not bool or min(source, target) < 0:
        raise ValueError(told)
    return OffsetRun(source, target, exact)
