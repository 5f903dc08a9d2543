"""What the tests of index files share: golden segments, and the smallest batches that a log can be made of."""

import numpy as np
from msgspec.structs import replace

from golden_data import Case
from magicbyte.engine.log.files.index_writer import IndexRules, SegmentIndexer, SegmentIndexes
from magicbyte.engine.log.files.producer_state import ProducerStates
from magicbyte.engine.records.batch import build_batch
from magicbyte.engine.records.scan import scan


def batch_of(base_offset: int, timestamp: int, records: int = 1, **header: int) -> bytes:
    """A batch of records without key, value and headers."""
    section = b"".join(bytes((12, 0, 0, 2 * delta, 1, 1, 0)) for delta in range(records))
    return build_batch(
        section,
        base_offset=base_offset,
        last_offset_delta=records - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=records,
        **header,
    )


def batch_of_two(base_offset: int, timestamp: int) -> bytes:
    """97 bytes, as in Kafka's vector of index entries; the second record has a value to that end."""
    section = bytes((12, 0, 0, 0, 1, 1, 0)) + bytes((56, 0, 0, 2, 1, 44)) + bytes(23)
    return build_batch(
        section,
        base_offset=base_offset,
        last_offset_delta=1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        record_count=2,
    )


def rules_of(case: Case) -> IndexRules:
    """The rules of the broker, with the interval that the topic was given."""
    interval = case.topic_config.get("index.interval.bytes", 4096)
    return replace(IndexRules.of(case.version), interval_bytes=interval)


def indexes_of(
    log: bytes, base_offset: int, rules: IndexRules, producers: ProducerStates | None = None, chunk: int = 1 << 30
) -> SegmentIndexes:
    """The index files of a sound segment, read in chunks of about so many bytes."""
    indexer = SegmentIndexer(base_offset, rules, producers=producers)
    position, size = 0, chunk
    while position < len(log):
        table = scan(memoryview(log)[position : position + size])
        assert table.damage is None
        indexer.append(table, position)
        position, size = position + table.end, chunk if table.end else 2 * size
    return indexer.finish()


def is_plain(log: bytes) -> bool:
    """Whether there are uncompressed messages of magic 0 or 1: those of one append cannot be distinguished."""
    table = scan(memoryview(log))
    return bool(((np.asarray(table.magic) < 2) & (np.asarray(table.count) >= 0)).any())
