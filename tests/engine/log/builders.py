"""Fill logs in tests, and read their segments."""

from engine.log.appended import batch_of
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment


def fill(log: PartitionLog, count: int, now_ms: int) -> None:
    """Append `count` batches with the same timestamp."""
    for _ in range(count):
        log.append(record_set(batch_of(log.log_end_offset, now_ms), log.config.rules), Moment.fixed(now_ms))


def bases(log: PartitionLog) -> list[int]:
    """Return the base offsets of a log's segments."""
    return [each.base_offset for each in log.segments]
