"""Deleted segments, whose files remain for `file.delete.delay.ms` because readers may still use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.engine.log.live.segment_names import DELETED

if TYPE_CHECKING:
    from magicbyte.engine.log.live.segment import Segment


class DeletedSegments:
    """Segments whose files are renamed to `.deleted`, each with the time from which they may be deleted."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Segment]] = []

    def keep(self, segment: Segment, until_ms: int) -> None:
        """Keep the files of a renamed segment until `until_ms` of the monotonic clock."""
        self._waiting.append((until_ms, segment))

    def remove_due(self, monotonic_ms: int) -> int:
        """Delete the files of segments that are due; return the number of segments."""
        due = [segment for time, segment in self._waiting if time <= monotonic_ms]
        self._waiting = [(time, segment) for time, segment in self._waiting if time > monotonic_ms]
        for segment in due:
            segment.release()
            segment.names.delete_renamed()
        return len(due)

    def release(self) -> None:
        """Close the open files; the remaining segments are deleted when the log is opened next."""
        for _, segment in self._waiting:
            segment.release()
        self._waiting.clear()


def delete_now(segment: Segment) -> None:
    """Delete a segment's files. A crash may bring back names, but never that of the log alone."""
    segment.release()
    segment.names.rename(DELETED, snapshot=True, log_first=True)
    segment.names.delete_renamed()
