"""The power goes at every file operation of a compaction: afterwards each key has its latest record, and no other."""

import pytest

from log.compacted import Cleaned, latest
from magicbyte.testing.disk import SimulatedDisk


@pytest.mark.parametrize("seed", range(3))
def test_after_a_cut_at_any_operation_no_record_is_lost_changed_or_twice_there(seed: int) -> None:
    log = Cleaned()
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
        found = Cleaned(cut).records()
        assert set(found) <= set(before)
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        assert latest(found) == latest(before)
        outcomes.add(len(found))
    assert {len(before), len(compacted)} <= outcomes
