"""Open a closed log read-only as a broker's log, for the plan of a dry run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from magicbyte.errors import LogDirectoryError
from magicbyte.log.files.filesystem import ViewedFiles
from magicbyte.log.files.health import Health
from magicbyte.log.files.open_files import bounded
from magicbyte.log.files.producer_state import LeaderEpochs
from magicbyte.log.live.loading import Loaded
from magicbyte.log.live.partition_log import PartitionLog
from magicbyte.log.live.segment import Segment
from magicbyte.log.live.segment_names import segment_bases

if TYPE_CHECKING:
    from magicbyte.log.live.config import LogConfig
    from magicbyte.ports import WritableFileSystem


@contextlib.contextmanager
def viewed_log(
    files: WritableFileSystem, folder: str, config: LogConfig, *, log_start_offset: int = 0
) -> Iterator[PartitionLog]:
    """Yield a closed log, opened read-only: nothing is changed, created or repaired.

    Raises LogDirectoryError for a folder without segments, CorruptRecordError for a missing or wrong index: then the
    log would need recovery.
    """
    viewed = bounded(ViewedFiles(files), health := Health(folder))
    loaded = Loaded([], 0, config.rules.producer_states(), LeaderEpochs())
    try:
        for base in segment_bases(viewed, folder):
            segment = Segment.of_log(viewed, folder, base, config)
            loaded.segments.append(segment)
            segment.open_indexes()
        if not loaded.segments:
            raise LogDirectoryError(f"{folder}: expected a .log file")
        loaded.end_offset = segment.end_offset()
        log = PartitionLog(viewed, folder, config, loaded, health, lambda: None, lambda _most: 0)
        log.log_start_offset = max(log_start_offset, log.log_start_offset)
        yield log
    finally:
        for segment in loaded.segments:
            segment.release()
