"""Report what log directories prove to be missing, before the other partitions are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magicbyte.engine.log.files.directory import FoundLogs, PartitionDirectory, log_directories
from magicbyte.engine.log.files.missing import missing_in
from magicbyte.engine.printable import logger

_log = logger("magicbyte.spark")


def report_missing(found: Sequence[PartitionDirectory], is_wanted: Callable[[str | None, int | None], bool]) -> None:
    """Log a warning for each missing partition or segment. Reads names and checkpoints, no logs.

    `found`: all partition folders at the given paths. `is_wanted`: whether a topic and partition would be read.
    """
    for missing in missing_in(FoundLogs(list(found), log_directories(found)), reads=False):
        if missing.is_loss and is_wanted(missing.topic, missing.partition):
            _log.warning("missing: %s", missing)
