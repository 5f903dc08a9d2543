"""Scores salvage and verify against logs whose damage is known."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from magicbyte.tools.offline.findings import Finding
from magicbyte.tools.offline.salvage import SegmentPlan
from simulation.damaged_logs import DamagedLog, offset_field

_IN_FRONT = 64 << 10  # of an entry, in which the record or message begins that seems to hold it


@dataclass
class Salvaged:
    """Entries: `whole` ones, `hidden` of them (see `is_hidden`), other ones `missed`.

    Taken, and no entries of the log: those that are `alike` (see `is_alike`), and `wrong` ones.
    """

    whole: int
    hidden: list[int] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    alike: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)


def of_salvage(log: DamagedLog, plan: SegmentPlan) -> Salvaged:
    """Compare the entries of `plan` with the log's: positions of those that should not be missing, or not be there."""
    scored = Salvaged(len(log.whole))
    taken: dict[int, int] = {}
    places: list[tuple[int, int]] = []
    others: list[int] = []
    view = memoryview(log.content)
    last = -1
    for extent in plan.extents:
        at = extent.position
        while at < extent.end:
            end = at + 12 + int.from_bytes(view[at + 8 : at + 12], "big")
            offset = offset_field(view[at : at + 8])
            assert offset > last, "offsets rise in what is salvaged"
            last = offset
            original = log.originals.get(offset)
            if original is None or bytes(view[at:end]) != original.content:
                others.append(len(places))
            else:
                taken[offset] = at
            places.append((at, end))
            at = end
    assert plan.entries == len(places)
    for index in others:
        (scored.alike if is_alike(log, places, index) else scored.wrong).append(places[index][0])
    for offset in sorted(log.whole.keys() - taken.keys()):
        position = log.whole[offset]
        size = len(log.originals[offset].content)
        (scored.hidden if is_hidden(log, position, position + size) else scored.missed).append(position)
    return scored


def is_alike(log: DamagedLog, places: list[tuple[int, int]], index: int) -> bool:
    """Say whether the content at `places[index]`, of all that was taken by offsets, is like a whole entry in its place.

    Its record no longer begins before it: that page lies elsewhere. The entries taken before and after it by offsets
    lie before and after it in the file. A log that had an entry there would have these same bytes.
    """
    start, end = places[index]
    in_front = index == 0 or places[index - 1][1] <= start
    behind = index == len(places) - 1 or end <= places[index + 1][0]
    changed = any(what == "offset" and first < end and start < last for first, last, what in log.regions)
    return in_front and behind and not changed and not is_hidden(log, start, end)


def is_hidden(log: DamagedLog, start: int, end: int) -> bool:
    """Say whether the entry from `start` to `end` lies in what looks like the value of a record or message.

    A page that was moved before it holds the beginning of a record that was really written, and by that record's own
    lengths it ends after the entry, exactly where another record or entry begins. The same bytes come about when the
    record was there, and anything else of its batch was changed: the cases are indistinguishable.
    (docs/internals/salvage.md)
    """
    content = log.content
    for at in range(max(start - _IN_FRONT, 0), start):
        for (head, stop), written in ((_record(content, at), at), (_message(content, at), at + 8)):
            if stop >= end and head <= start and _written(log, content[written:head]) and _continues(log, stop):
                return True
    return False


def _continues(log: DamagedLog, position: int) -> bool:
    """Say whether an entry, or a record, begins at `position`, which may also be the file's end."""
    offset = offset_field(log.content[position : position + 8])
    return position == len(log.content) or log.whole.get(offset) == position or _record(log.content, position)[1] > 0


def _written(log: DamagedLog, head: bytearray) -> bool:
    return any(head in original.content for original in log.originals.values())


def _varint(content: bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(content) and shift < 35:
        value |= (content[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if content[at - 1] < 128:
            return value >> 1 ^ -(value & 1), at
    return -2, at


def _record(content: bytearray, at: int) -> tuple[int, int]:
    """Return where the value of the record at `at` begins and where the record ends; (0, 0) if it is none."""
    size, place = _varint(content, at)
    stop = place + size
    if size < 6 or stop > len(content) or content[place] != 0:
        return 0, 0
    _, place = _varint(content, place + 1)
    _, place = _varint(content, place)
    length, place = _varint(content, place)
    if not -1 <= length <= size:
        return 0, 0
    length, head = _varint(content, place + max(length, 0))
    if not -1 <= length <= size or head + length >= stop:
        return 0, 0
    return (head, stop) if head + max(length, 0) + 1 == stop and content[stop - 1] == 0 else (0, 0)


def _message(content: bytearray, at: int) -> tuple[int, int]:
    """Return where the value of the message at `at` begins and where it ends, which its size says, too; else (0, 0)."""
    stop = at + 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    if stop > len(content) or content[at + 16] > 1:
        return 0, 0
    place = at + (26 if content[at + 16] else 18)
    for _ in range(2):
        length = int.from_bytes(content[place : place + 4], "big", signed=True)
        if length < -1 or place + 4 + length > stop:
            return 0, 0
        head, place = place + 4, place + 4 + max(length, 0)
    return (head, stop) if place == stop else (0, 0)


@dataclass
class Verified:
    """Damaged `regions`, those that no finding touches, and findings of damage that touch an untouched entry."""

    regions: int
    unreported: list[tuple[int, int, str]] = field(default_factory=list)
    blamed: list[Finding] = field(default_factory=list)


def of_verify(log: DamagedLog, findings: Iterable[Finding]) -> Verified:
    """Compare findings with the log's damage.

    Where blocks were moved, which entries are called out of order, and which not, is a matter of view. A hidden entry
    cannot be recognized as whole.
    """
    found = [(each.position, each.end, each) for each in findings if each.position is not None and each.end is not None]
    scored = Verified(len(log.regions))
    for region in log.regions:
        if not any(position < region[1] and region[0] < end for position, end, _ in found):
            scored.unreported.append(region)
    starts = [start for start, _ in log.untouched]
    for position, end, each in found:
        at = bisect.bisect_left(starts, end)
        touched = []
        while each.what != "offset" and at > 0 and log.untouched[at - 1][1] > position:
            at -= 1
            touched.append(log.untouched[at])
        if not all(is_hidden(log, *entry) for entry in touched):
            scored.blamed.append(each)
    return scored


def figures(salvaged: Salvaged, verified: Verified) -> dict[str, Any]:
    """Return the counts of both."""
    counted = {name: len(value) if isinstance(value, list) else value for name, value in asdict(salvaged).items()}
    regions = {"regions": verified.regions, "unreported": len(verified.unreported), "blamed": len(verified.blamed)}
    return counted | regions
