"""Segments that a log has no more, whose files stay for `file.delete.delay.ms`: readers may still be at them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.log.live.segment_names import DELETED

if TYPE_CHECKING:
    from magicbyte.log.live.segment import Segment


class DeletedSegments:
    """Segments whose files are renamed to be deleted, each with the time from which on they may go."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Segment]] = []

    def keep(self, segment: Segment, until_ms: int) -> None:
        """Keep the files of a renamed segment until then, by the monotonic clock."""
        self._waiting.append((until_ms, segment))

    def remove_due(self, monotonic_ms: int) -> int:
        """Delete the files of segments whose time has come; return how many segments there were."""
        due = [segment for time, segment in self._waiting if time <= monotonic_ms]
        self._waiting = [(time, segment) for time, segment in self._waiting if time > monotonic_ms]
        for segment in due:
            segment.release()
            segment.names.delete_renamed()
        return len(due)

    def release(self) -> None:
        """Give back the open files; what waits is deleted when the log is opened next."""
        for _, segment in self._waiting:
            segment.release()
        self._waiting.clear()


def delete_now(segment: Segment) -> None:
    """Delete a segment's files, of which the names may come back in a crash, but never the log's alone."""
    segment.release()
    segment.names.rename(DELETED, snapshot=True, log_first=True)
    segment.names.delete_renamed()
