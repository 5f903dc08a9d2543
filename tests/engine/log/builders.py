"""Fill logs in tests, and read their segments."""

from pathlib import Path

from engine.log.appended import batch_of
from golden_data import log_case
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.files.index_writer import IndexRules
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.tools.offline.writer import LogDirectoryWriter


def fill(log: PartitionLog, count: int, now_ms: int) -> None:
    """Append `count` batches with the same timestamp."""
    for _ in range(count):
        log.append(record_set(batch_of(log.log_end_offset, now_ms), log.config.rules), Moment.fixed(now_ms))


def bases(log: PartitionLog) -> list[int]:
    """Return the base offsets of a log's segments."""
    return [each.base_offset for each in log.segments]


TOPICS_RULES = IndexRules.of("3.9.1")
TOPICS = {"orders": log_case("3.9.1/idempotent-gzip"), "paid": log_case("2.8.2/idempotent-gzip")}


def write_topics(out: Path) -> None:
    """What a command does that writes a log directory, in its first run or a later one."""
    directory = LogDirectoryWriter(out, TOPICS_RULES)
    for topic, case in TOPICS.items():
        if not directory.is_finished(topic, 0):
            with directory.partition(topic, 0, segment_bytes=6_000) as writer:
                for log in case.segments().values():
                    writer.append(log)
                writer.finish()
    directory.finish(b"version=0\nbroker.id=1\n")
