"""The power goes at every file operation of a compaction: afterwards each key has its latest record, and no other."""

import pytest

from engine.log.compacted import Cleaned, latest
from magicbyte.engine.log.live.lookups import offset_for_timestamp
from magicbyte.engine.records.encode import Format
from magicbyte.testing.disk import SimulatedDisk
from simulation.ledger import keyed, latest_values


@pytest.mark.parametrize("seed", range(3))
def test_after_a_cut_at_any_operation_no_record_is_lost_changed_or_twice_there(seed: int) -> None:
    log = Cleaned(segment_index_bytes=480)
    for round_ in range(3):
        log.append([1, 2, 3, round_ + 10])
        log.append([2], deletes=round_ == 2)
        log.roll()
    log = log.reopened()
    before = log.records()
    cuts: list[SimulatedDisk] = []
    log.disk.observer = lambda _kind, _path: cuts.append(log.disk.after_a_cut(seed * 1000 + len(cuts)))
    log.clean()
    log.disk.observer = None
    compacted = log.records()
    assert len(cuts) > 25
    assert len(compacted) < len(before)
    outcomes = set()
    for cut in cuts:
        found = Cleaned(cut, segment_index_bytes=480).records()
        assert set(found) <= set(before)
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        assert latest(found) == latest(before)
        outcomes.add(len(found))
    assert {len(before), len(compacted)} <= outcomes


def test_no_cut_brings_back_what_a_tombstone_deleted_that_goes_with_its_whole_segment() -> None:
    """The new segment ends before the last of the old ones begin, so that only their own names tell that they went."""
    log = Cleaned(segment_index_bytes=240)
    for deletes in (False, False, True):
        log.append([1 if log.log.log_end_offset else 2], deletes=deletes, target=Format.V1)
        log.roll()
    cuts: list[SimulatedDisk] = []
    log.disk.observer = lambda _kind, _path: cuts.extend(log.disk.after_a_cut(len(cuts) + at) for at in range(8))
    log.clean(1, delete_retention_ms=0)
    log.disk.observer = None
    assert log.keys() == [2]
    for cut in cuts:
        found = Cleaned(cut, segment_index_bytes=240)
        assert set(latest_values(keyed(found.records()))) == {b"2"}
        assert all(offset_for_timestamp(found.log, each.timestamp) for each in found.records())
