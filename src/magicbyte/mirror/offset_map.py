"""Which offset of the source became which at the target, in as few numbers as say it: a run for each hole.

A target numbers what it gets without holes. So an `OffsetRun` holds until the source has a hole: the record at
`source`, or the first one behind it, is at `target`, the next at `target` + 1, and so on. Where the records of a set
were not counted, because it stayed closed, or have holes between them, its run is not `exact`: all of it stands at its
first record.

On the disk, a run is a line of JSON: {"topic": "t", "partition": 0, "source": 17, "target": 12, "exact": true}, in
any order; of two with the same source the later one holds. offset_topic.py keeps the same in a topic.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from magicbyte.errors import MirrorError


class OffsetRun(NamedTuple):
    """From the offset `source` on the records are at `target` and behind it. `exact`: one behind the other."""

    source: int
    target: int
    exact: bool = True


class Translation(NamedTuple):
    """Where a reader goes on at the target. Unless this is `exact` it may see records again there.

    `copied`: the record that it wants is there, or there is a later one.
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
        """Take a run, in place of one with the same source."""
        self._runs[run.source] = run
        self._sources = None

    def remove(self, source: int) -> None:
        """Take a run away, if there is one with this source."""
        if self._runs.pop(source, None) is not None:
            self._sources = None

    def runs(self) -> list[OffsetRun]:
        """Return all runs in the order of the source."""
        return [self._runs[each] for each in self._sorted()]

    def translate(self, offset: int, end: OffsetRun) -> Translation:
        """Return where a reader that wants `offset` of the source next goes on. `end`: how far all is copied.

        Never behind a record that the reader has not seen. What is not copied yet becomes the end.
        """
        if offset >= end.source:
            return Translation(end.target, exact=offset == end.source, copied=False)
        sources = self._sorted()
        at = bisect_right(sources, offset)
        limit = min(self._runs[sources[at]].target, end.target) if at < len(sources) else end.target
        if not at:  # what was deleted at the source before it was copied
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
    """Follows what is copied of a partition, and finds the runs that its map needs.

    The first set gives one in any case: a mirror need not know what was noted before it was started.
    """

    def __init__(self) -> None:
        self._noted: list[OffsetRun] = []
        self._run: OffsetRun | None = None
        self._uncounted: OffsetRun | None = None  # the last set, if the one behind it is to tell whether it has holes
        self._doubted = False  # whether the map says that it has

    def copied(self, first: int, following: int, records: int, target: int, *, together: bool = True) -> None:
        """Hear that a set with offsets from `first` to before `following` is at `target`. `records` -1: not counted.

        `together`: its records follow each other there; else more may be between them.
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
        """Return the runs that were found since the last call; with them the map holds for all that was copied."""
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
    """Return a run as a line of a file, without its end."""
    return json.dumps({"topic": topic, "partition": partition} | run._asdict())


def read_lines(lines: Iterable[str]) -> dict[tuple[str, int], MirrorOffsetMap]:
    """Return the maps in the lines of a file, by topic and partition. Raises MirrorError for other lines."""
    found: dict[tuple[str, int], MirrorOffsetMap] = {}
    for number, each in enumerate(lines, 1):
        try:
            told = json.loads(each)
            key = str(told["topic"]), int(told["partition"])
            run = run_told(told)
        except (ValueError, KeyError, TypeError) as error:
            raise MirrorError(f"line {number}: expected a run of an offset map, found {each[:80]!r}") from error
        found.setdefault(key, MirrorOffsetMap()).add(run)
    return found


def run_told(told: Mapping[str, Any]) -> OffsetRun:
    """Return the run that an object of JSON is. Raises ValueError, KeyError and TypeError for another one."""
    source, target, exact = told["source"], told["target"], told["exact"]
    if type(source) is not int or type(target) is not int or type(exact) is not bool or min(source, target) < 0:
        raise ValueError(told)
    return OffsetRun(source, target, exact)
