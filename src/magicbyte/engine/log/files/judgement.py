"""Decide where a log continues after damage: which of the sound entries is its next one.

A sound entry may be the content of a record, or a page written to the wrong place. The rules are those of
docs/internals/salvage.md: the fields of the damaged entry itself take precedence, then candidates are searched.
"""

from __future__ import annotations

import enum
from collections import deque

from magicbyte.engine.log.files.entry_search import HEAD_BYTES, Entry, EntrySearch
from magicbyte.engine.log.files.names import MAX_RELATIVE
from magicbyte.engine.log.files.reader import MAX_OFFSET
from magicbyte.engine.records import search_kernels as search
from magicbyte.engine.records.kernels import batches
from magicbyte.engine.records.layout import (
    ATTRIBUTES,
    CODEC_MASK,
    ENRICHED_TAGS_LENGTH,
    ENRICHED_TAGS_START,
    HEADER_TO_MAGIC,
    INT32,
    LOG_OVERHEAD,
    MAGIC,
    MESSAGE_ATTRIBUTES,
    OFFSET,
    RECORD_BATCH_OVERHEAD,
    RECORD_COUNT,
    SIZE,
    V0_KEY_LENGTH,
    V0_MINIMUM,
    V0_OVERHEAD,
    V1_KEY_LENGTH,
)

_LOOK_BACK = 1024  # bytes searched back for the record that contains a candidate
_LOOK_BACK_PLAIN = 64  # the same for a message
_LOOK_AHEAD = 64 << 10
RUN = 32  # adjacent entries that prove each other
_SHORT_RUN = 6  # adjacent entries that contradict others
_LOOK_ON = 256 << 10  # bytes searched for those
_HOLES = 4
_CLOSE = 64  # in offsets
_MESSAGE_ATTRIBUTES = 15  # the largest valid attributes
_ZEROS = bytes(HEADER_TO_MAGIC)


class Resumption(enum.Enum):
    """How the next entry was determined: by the bytes before it, by a search, or among misplaced bytes.

    BACK: it has offsets that were missing before.
    """

    SURE = "sure"
    SEARCHED = "searched"
    STRAY = "stray"
    BACK = "back"


class Judgement:
    """Decide where the log continues after each damage.

    `holes`: recent gaps in the offsets (last before, first after).
    """

    def __init__(self, entries: EntrySearch) -> None:
        self.entries, self.file, self.limits = entries, entries.file, entries.limits
        self.holes: deque[tuple[int, int]] = deque(maxlen=_HOLES)
        self._last = -1  # offset before the current damage
        self._holder_end = 0  # end of the record or message that contained the last rejected candidate

    # ---- where the log continues

    def resume(self, position: int, last: int) -> tuple[int, Resumption]:
        """Return where the log continues after the damage at `position`; `last` is the last offset before it.

        This is the position of a sound entry, or of a damaged one whose position is certain, or the end of the file.
        """
        self.entries.begin(position)
        self._last, self._holder_end = last, 0
        head = memoryview(self.file.read_at(position, HEAD_BYTES))
        claimed, framed = self._claimed_end(position, head), self._framed_end(position, head)
        least = last
        if self._like_wrapper(position, head, last, claimed):
            least = OFFSET.read(head)  # of the wrapper's last message
        for end in (framed, claimed):
            if end == self.file.size:
                return self._within(end, least, MAX_OFFSET)
            if end is not None and (behind := self.entries.sound_at(end)) is not None:
                found, how = self._within(end, least, behind.first)
                out_of_order = found == end and behind.first <= last and not self._fills(behind)
                return found, Resumption.SEARCHED if out_of_order else how
        for end in (claimed, framed):
            if end is not None and self._like_header(end, last):
                return self._within(end, least, OFFSET.read(memoryview(self.file.read_at(end, LOG_OVERHEAD))))
        return self._searched(position, last, least)

    def _like_wrapper(self, position: int, head: memoryview, last: int, claimed: int | None) -> bool:
        """Return whether the damaged entry at `position` is a wrapper: by its magic byte, or because its size is
        right.
        """
        if not self._header_marks(position, last) or not head[MESSAGE_ATTRIBUTES.start] & CODEC_MASK:
            return False
        magic = head[MAGIC.start]
        return magic < 2 or (magic > 2 and claimed is not None and self.entries.sound_at(claimed) is not None)

    def _claimed_end(self, position: int, head: memoryview) -> int | None:
        """Return where the entry ends by its size field, if that is possible."""
        if len(head) < HEADER_TO_MAGIC or SIZE.read(head) < V0_MINIMUM:
            return None
        end = position + LOG_OVERHEAD + SIZE.read(head)
        return end if end <= self.file.size else None

    def _framed_end(self, position: int, head: memoryview) -> int | None:
        """Return where the entry ends by its inner lengths, if they are consistent.

        A message states its end a second time by the lengths of key and value, an uncompressed batch by its records.
        """
        if len(head) < RECORD_BATCH_OVERHEAD or head[MAGIC.start] < 2:
            return self._message_end(position, head) if len(head) >= V0_OVERHEAD else None
        if head[MAGIC.start] == 2 and ATTRIBUTES.read(head) & CODEC_MASK:
            return None
        end, found = self.entries.records_end(position + RECORD_BATCH_OVERHEAD, max(RECORD_COUNT.read(head), 0))
        return end if found and (found == RECORD_COUNT.read(head) or self.entries.sound_at(end) is not None) else None

    def _message_end(self, position: int, head: memoryview) -> int | None:
        if self.entries.enriched:
            at = ENRICHED_TAGS_START + max(ENRICHED_TAGS_LENGTH.read(head), 0)
        else:
            at = (V1_KEY_LENGTH if head[MAGIC.start] == 1 else V0_KEY_LENGTH).start
        for _ in range(2):
            raw = self.file.read_at(position + at, 4)
            length = int.from_bytes(raw, "big", signed=True)
            if len(raw) < 4 or length < -1 or length > self.file.size - position - at - 4:
                return None
            at += 4 + max(length, 0)
        return position + at

    def _within(self, end: int, least: int, most: int) -> tuple[int, Resumption]:
        """Return where the log continues if not at `end`, the next entry's position by the damaged one's size field.

        A run of entries may end exactly there. Content never ends where its batch does, because a record's header count
        follows it: then the size field is wrong, and skips sound entries. (Content of a message may end with it, but
        messages state their end twice, and messages in a wrapper have offsets up to its own: those of the run are above
        `least` and below `most`.) Or a run leads to another damaged entry: bytes of another place, written here.
        """
        row_end = highest = -1
        own = self._own_offset(least)
        candidates = self.entries.candidates(self.entries.start + 1, end)
        for candidate in candidates:
            held = self._held_until(candidate)
            if candidate.end > row_end:
                row_end, highest, _ = self.entries.row_of(candidate, MAX_OFFSET, end)
            if held is None:
                between = candidate.first > least and highest < most
                if self._fills(candidate):
                    return candidate.position, Resumption.BACK
                if row_end == end and between:
                    return candidate.position, Resumption.SURE
                across = row_end > end and candidate.first > least  # an entry lies across the claimed end
                in_front = least < candidate.first <= highest < own  # before the damaged one, by its own offset
                if across or in_front or (row_end < end and self._like_header(row_end, highest)):
                    stray = candidate.first <= least or self._contradicted(row_end, least, highest)
                    return candidate.position, Resumption.STRAY if stray else Resumption.SEARCHED
            candidates.skip_to = candidate.end if held is None or held < row_end else row_end
        return end, Resumption.SURE

    def _searched(self, position: int, last: int, least: int) -> tuple[int, Resumption]:
        """Return the position of the first candidate after the damage that is an entry, not the content of a record.

        An entry that is cut off by the file's end contains all the rest, unless that is a long run.
        """
        cut = self._claims(position, self.file.size, last) and not self._contradicted(position + 1, last, MAX_OFFSET)
        candidates = self.entries.candidates(position + 1, self.file.size)
        for candidate in candidates:
            held = self._held_until(candidate)
            if held is None and self._fills(candidate):
                return candidate.position, Resumption.BACK
            end, highest, count = self.entries.row_of(candidate, RUN, self.file.size)
            rises = self.entries.rises_later(candidate, least, RUN)
            if held is None and not rises:
                if count == RUN or (end == self.file.size and not cut):
                    return candidate.position, Resumption.SEARCHED
                rising, goes_on = candidate.first > least, self._like_header(end, highest)
                contradicted = rising and self._contradicted(end, least, highest)
                if count >= _SHORT_RUN and rising and not contradicted:
                    return candidate.position, Resumption.SEARCHED
                if not cut and (goes_on or not (self._tail_of_record(end) or self._claims(position, end, last))):
                    too_far = highest > min(self.limits.high, last + MAX_RELATIVE)
                    stray = contradicted or (not rising and count == 1 and not goes_on) or too_far
                    return candidate.position, Resumption.STRAY if stray else Resumption.SEARCHED
            candidates.skip_to = candidate.end if held is None or held < end else end
        return self.file.size, Resumption.SURE

    def _fills(self, entry: Entry) -> bool:
        """Return whether `entry` has offsets that were missing earlier: then another page was written over its
        place.
        """
        return any(before < entry.first and entry.last < behind for before, behind in self.holes)

    def _own_offset(self, last: int) -> int:
        """Return the offset in the damaged entry, 0 if it is not plausible after `last`."""
        if self._header_marks(self.entries.start, last) < 2:
            return 0
        return OFFSET.read(memoryview(self.file.read_at(self.entries.start, LOG_OVERHEAD)))

    def _contradicted(self, start: int, last: int, highest: int) -> bool:
        """Return whether the log continues after `start` with offsets above `last` but not above `highest`.

        Only a run of several entries in the next bytes is evidence for it.
        """
        candidates = self.entries.candidates(start, min(start + _LOOK_ON, self.file.size))
        for found in candidates:
            end, _, count = self.entries.row_of(found, _SHORT_RUN, self.file.size)
            if count == _SHORT_RUN and found.first > last:
                return found.first <= highest
            candidates.skip_to = end
        return False

    # ---- recognizing entries

    def _like_header(self, position: int, last: int) -> bool:
        """Return whether a damaged entry begins at `position`: its offset follows `last`, and two of its fields are
        plausible.

        With exactly the next offset, one other field is enough.
        """
        marks = self._header_marks(position, last)
        return marks >= 2 or (marks > 0 and OFFSET.read(memoryview(self.file.read_at(position, 8))) == last + 1)

    def _header_marks(self, position: int, last: int) -> int:
        """Return how many of size, magic byte and attributes are plausible at `position`; 0 if the offset is not."""
        head = memoryview(self.file.read_at(position, RECORD_BATCH_OVERHEAD))
        if len(head) < V0_OVERHEAD or head[:HEADER_TO_MAGIC] == _ZEROS:
            return 0
        offset = OFFSET.read(head)
        if not last < offset <= min(last + MAX_RELATIVE, self.limits.high):
            return 0
        size = V0_MINIMUM <= SIZE.read(head) <= self.limits.entry_bytes
        magic = head[MAGIC.start] == 1 if self.entries.enriched else head[MAGIC.start] <= 2
        flags = MESSAGE_ATTRIBUTES.read(head) if head[MAGIC.start] < 2 else ATTRIBUTES.read(head)
        return size + magic + (0 <= flags <= search.LARGEST_ATTRIBUTES)

    def _claims(self, position: int, end: int, last: int) -> bool:
        """Return whether the header of the damaged entry at `position` seems whole, and the entry seems to extend to
        `end`.
        """
        if self._header_marks(position, last) < 3:
            return False
        return end <= position + LOG_OVERHEAD + SIZE.read(memoryview(self.file.read_at(position, LOG_OVERHEAD)))

    def _held_until(self, entry: Entry) -> int | None:
        """Return the end of the record or message that seems to contain `entry`; None if there is none.

        Its own lengths must add up exactly, so that bytes before an entry do not look like a record by chance.
        """
        if entry.end > self._holder_end:
            self._holder_end = self._holder(entry) or 0
        if not self._holder_end or self.entries.straddled(entry, self._holder_end, RUN):
            return None
        fits = self._fills(entry) or self._last < entry.first <= self._last + _CLOSE
        return None if fits and self._refuted(self._holder_end) else self._holder_end

    def _holder(self, entry: Entry) -> int | None:
        """Search the bytes around `entry` for a record or message that contains it."""
        low = max(self.entries.start, entry.position - _LOOK_BACK)
        ahead = _LOOK_AHEAD if self.entries.credit > _LOOK_AHEAD else HEAD_BYTES
        self.entries.credit -= ahead
        data = self.file.read_at(low, entry.end - low + ahead)
        start, stop = entry.position - low, entry.end - low
        end = int(
            self.entries.make.form(search.held_by_record)(self.entries.make.bytes_of(data), 0, start, stop, len(data))
        )
        if end >= 0:
            return low + end
        for at in range(start - 4, max(start - 4 - _LOOK_BACK_PLAIN, -1), -1):
            length = int.from_bytes(data[at : at + 4], "big", signed=True)
            ends = low + at + 4 + length
            if length <= 0 or not entry.end <= ends <= self.file.size:
                continue
            if at == start - 4 and (ends in (entry.end, self.file.size) or self.entries.sound_at(ends) is not None):
                return ends
            if _is_message(data, at, ends - low, self.entries.enriched) and self.entries.sound_at(ends) is not None:
                return ends
        return None

    def _refuted(self, position: int) -> bool:
        """Return whether no record ends at `position`: nothing valid follows, or a sound entry lies across it."""
        if not self._continues(position):
            return True
        low = max(position - _LOOK_BACK, 0)
        return any(found.end > position for found in self.entries.candidates(low, position))

    def _continues(self, position: int) -> bool:
        """Return whether a record or a sound entry begins at `position`."""
        if self.entries.sound_at(position) is not None:
            return True
        data = self.file.read_at(position, _LOOK_AHEAD)
        return int(search.record_end.py_func(data, 0, len(data))) >= 0

    def _tail_of_record(self, position: int) -> bool:
        """Return whether the end of a record is at `position`: its headers, and then another record or a sound
        entry.
        """
        data = self.file.read_at(position, HEAD_BYTES)
        count, at = batches.long_varint.py_func(data, 0, len(data))
        if at < 0 or count < 0 or count > len(data):
            return False
        at = batches.skip_headers.py_func(data, at, len(data), count)
        return at >= 0 and self._continues(position + at)


def _is_message(data: bytes, at: int, end: int, enriched: int) -> bool:
    """Return whether a message's null or short key, with its length, ends at `at`, and its header is before that.

    Either the size field of that header leads to `end`, or magic byte and attributes are valid; in an enriched message
    they have no fixed position.
    """
    keys = [at - 4] if data[max(at - 4, 0) : at] == b"\xff\xff\xff\xff" else []
    sizes = range(1, min(_LOOK_BACK_PLAIN, at - 3))
    keys += [at - 4 - size for size in sizes if data[at - 4 - size : at - size] == INT32.pack(size)]
    for key in keys:
        if enriched:
            return True
        for magic, place in ((0, V0_KEY_LENGTH), (1, V1_KEY_LENGTH)):
            start = key - place.start
            if start < 0:
                continue
            size = data[start + SIZE.start : start + SIZE.start + 4] == INT32.pack(end - start - LOG_OVERHEAD)
            attributes = data[start + MESSAGE_ATTRIBUTES.start]
            if size or (data[start + MAGIC.start] == magic and attributes <= _MESSAGE_ATTRIBUTES):
                return True
    return False
