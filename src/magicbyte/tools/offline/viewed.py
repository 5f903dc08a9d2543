"""Open a log read-only as a broker's log, for the plan of a change and for dry runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files.directory import LOG
from magicbyte.engine.log.files.filesystem import ViewedFiles
from magicbyte.engine.log.files.health import Health
from magicbyte.engine.log.files.open_files import bounded
from magicbyte.engine.log.files.producer_state import LeaderEpochs
from magicbyte.engine.log.live.loading import Loaded
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.log.live.producers import producers_at
from magicbyte.engine.log.live.segment import Segment
from magicbyte.engine.log.live.segment_names import segment_bases

if TYPE_CHECKING:
    from magicbyte.engine.log.live.config import LogConfig
    from magicbyte.engine.ports import WritableFileSystem


@contextlib.contextmanager
def viewed_log(
    files: WritableFileSystem, folder: str, config: LogConfig, *, log_start_offset: int = 0, is_closed: bool = True
) -> Iterator[PartitionLog]:
    """Yield a log, opened read-only: nothing is changed, created or repaired.

    Missing or wrong indexes are made in memory. Unless it `is_closed`, the log ends before a torn end, as its broker
    would leave it. Raises LogDirectoryError for a folder without segments, CorruptRecordError for other damage.
    """
    viewed = bounded(ViewedFiles(files), health := Health(folder))
    loaded = Loaded([], 0, config.rules.producer_states(), LeaderEpochs())

    def cut(kept: int, error: CorruptRecordError | None) -> None:
        if is_closed:
            found = f"{segment.log.size - kept} bytes that are none"
            why = error or CorruptRecordError("end of the log", expected="a whole batch", found=found, position=kept)
            raise why.locate(path=segment.path(LOG))

    try:
        for base in segment_bases(viewed, folder):
            segment = Segment.of_log(viewed, folder, base, config)
            loaded.segments.append(segment)
            try:
                segment.open_indexes()
                loaded.end_offset = segment.end_offset()
            except CorruptRecordError:
                before = producers_at(viewed, folder, config, loaded.segments[:-1], base, replays=True)
                loaded.end_offset = segment.recover(before, None, cut, durable=False).end_offset
        if not loaded.segments:
            raise LogDirectoryError(f"{folder}: expected a .log file")
        log = PartitionLog(viewed, folder, config, loaded, health, lambda: None, lambda _most: 0)
        log.log_start_offset = max(log_start_offset, log.log_start_offset)
        yield log
    finally:
        for segment in loaded.segments:
            segment.release()
