"""The power goes at every file operation of a retention that cuts a head: the old head or the new one, never a gap."""

from __future__ import annotations

import pytest

from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment
from magicbyte.engine.records.enriched import Tag, build_enriched_message, encode_tags
from magicbyte.testing.disk import SimulatedDisk
from simulation.ledger import content_of, plain_batch
from topic_settings import log_config

NOW = 1_700_000_000_000
FOLDER = "/logs/orders-0"
SMALL = {
    "segment.bytes": "900",
    "segment.index.bytes": "240",
    "index.interval.bytes": "100",
    "retention.ms": "1000",
    "log.head.truncation": "true",
}


def opened(disk: SimulatedDisk, dialect: str) -> PartitionLog:
    config = log_config({**SMALL, "message.format.version": "2" if dialect == "kafka" else dialect})
    return PartitionLog.open(disk, FOLDER, config, monotonic_ms=NOW)


@pytest.mark.parametrize("dialect", ["kafka", "enriched"])
@pytest.mark.parametrize("old", [7, 20, 38, 40], ids=["first", "middle", "active", "all"])
def test_enriched_14_a_crash_at_any_step_leaves_the_old_head_or_the_new_one(dialect: str, old: int) -> None:
    disk = SimulatedDisk(1)
    disk.make_directory("/logs")
    disk.sync_directory("/")
    log = opened(disk, dialect)
    for at in range(40):
        timestamp = NOW - 5000 if at < old else NOW
        log.append(record_set(made(at, timestamp, dialect), log.config.rules, log.config.dialect), Moment.fixed(NOW))
    log.flush(NOW)
    log.high_watermark = 40
    before = content_of(log)
    cuts: list[SimulatedDisk] = []
    disk.observer = lambda _kind, _path: cuts.extend(disk.after_a_cut(5 * len(cuts) + at) for at in range(3))
    log.delete_old_segments(Moment.fixed(NOW))
    log.remove_deleted(NOW + 10**6)
    disk.observer = None
    assert (content_of(log), log.log_start_offset, log.log_end_offset) == (before[old:], old, 40)
    starts = set()
    for cut in cuts:
        again = opened(cut, dialect)
        found = content_of(again)
        start = again.segments[0].base_offset
        assert found == before[start:]
        assert again.log_end_offset == 40
        starts.add(start)
    assert {min(starts), max(starts)} == {0, old}


def made(offset: int, timestamp: int, dialect: str) -> bytes:
    if dialect == "kafka":
        return plain_batch(offset, 0, timestamp, 1, 20).content
    tags = encode_tags({Tag.TIMESTAMP: timestamp})
    return build_enriched_message(offset, b"k", b"value" * 8, seconds=timestamp // 1000, tags=tags)
