"""Which entries of a block may hold selected records."""

from pathlib import Path

import numpy as np
from msgspec.structs import replace

from engine.log.appended import batch_of
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.reader import Isolation, SegmentReader, Selection, select_rows
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.layout import TRANSACTIONAL_BIT
from magicbyte.engine.records.scan import scan
from magicbyte.engine.records.transactions import AbortedRange, CommittedFilter, table_facts

PRODUCER = 7


def data(offset: int, timestamp: int) -> bytes:
    return batch_of(
        offset, timestamp, producer_id=PRODUCER, producer_epoch=0, base_sequence=offset, attributes=TRANSACTIONAL_BIT
    )


def marker(kind: ControlType, offset: int, timestamp: int) -> bytes:
    return build_marker(
        kind, base_offset=offset, timestamp=timestamp, producer_id=PRODUCER, producer_epoch=0, coordinator_epoch=0
    )


def test_a_marker_older_than_what_is_wanted_ends_its_transaction() -> None:
    """As in a fetch response, which names where an aborted transaction begins and not where it ends."""
    sets = [
        data(0, 90),
        marker(ControlType.ABORT, 1, 50),
        data(2, 90),
        marker(ControlType.COMMIT, 3, 50),
        data(4, 40),
        marker(ControlType.COMMIT, 5, 50),
    ]
    table = scan(memoryview(b"".join(sets)))
    selection = Selection(since=80, isolation=Isolation.READ_COMMITTED)
    for last in (-1, 1):
        committed = CommittedFilter([AbortedRange(PRODUCER, 0, last)], 6)
        assert select_rows(table, selection, committed.delivered(table_facts(table))) == ([2], True)


def test_facts_of_a_small_and_of_a_large_table_are_the_same_up_to_the_last_offset_of_64_bits() -> None:
    most = (1 << 63) - 1
    sets = [data(0, 90), marker(ControlType.ABORT, 1, 50)]
    sets += [batch_of(base, 1, 3, producer_id=PRODUCER, attributes=TRANSACTIONAL_BIT) for base in (most - 2, most - 1)]
    sets += [marker(ControlType.COMMIT, most, 50)]
    small = scan(memoryview(b"".join(sets)))
    names = ("position", "size", "magic", "attributes", "offset", "count")
    large = replace(small, **{name: np.array(getattr(small, name), np.int64) for name in names})
    facts = table_facts(small)
    assert [each.last_offset for each in facts if each is not None] == [0, 1, most, most + 1, most]
    assert table_facts(large) == facts


def test_a_folder_without_segments_has_no_committed_records(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "00000000000000000000.index").touch()
    (partition,) = discover(tmp_path)
    assert not partition.segments
    for first in (0, 5):
        assert not list(SegmentReader(partition).records(Selection(first, isolation=Isolation.READ_COMMITTED)))
