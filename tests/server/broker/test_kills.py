"""A broker that is killed under producers and the cleaner loses nothing that it acknowledged."""

import asyncio
import json
from pathlib import Path

import pytest

from server.broker.run_kills import KINDS, Found, Kind, Ledger, LostError, campaign, verify

FIGURES = Path(__file__).with_name("kill_figures.json")


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_by_a_few_kills(tmp_path: Path) -> None:
    figures = asyncio.run(asyncio.wait_for(campaign(tmp_path, 3, seed=7), 300))
    assert figures["kills"] == 3
    assert all(each["acknowledged"] for each in figures["topics"].values())


@pytest.mark.parametrize("kind", [Kind("2"), Kind("2", compacted=True), Kind("2", idempotent=True)], ids=str)
def test_a_record_that_is_missing_or_twice_there_is_noticed(kind: Kind) -> None:
    ledger = Ledger(kind, sent=5, acknowledged={number: number for number in range(5)})
    whole = [(number, number) for number in range(5)]
    verify(ledger, Found(whole), ledger.acknowledged)
    with pytest.raises(LostError):
        verify(ledger, Found(whole[:-1]), ledger.acknowledged)
    if kind.idempotent:
        with pytest.raises(LostError):
            verify(ledger, Found([*whole, (5, 4)]), ledger.acknowledged)


def test_in_a_recorded_run_of_two_hundred_kills_every_acknowledged_record_was_there() -> None:
    runs = json.loads(FIGURES.read_text())
    assert sum(each["kills"] + each["killsOfAStart"] for each in runs) >= 200
    for each in runs:
        assert each["descriptors"] == 256
        assert each["topics"].keys() == {kind.name for kind in KINDS}
        for kind in KINDS:
            topic = each["topics"][kind.name]
            assert 0 < topic["acknowledged"] <= topic["sent"]
            if not kind.compacted:
                assert topic["kept"] >= topic["acknowledged"]
                assert not kind.idempotent or topic["kept"] <= topic["sent"]


def test_twelve_topics_of_all_formats_are_written_to_by_plain_and_idempotent_producers() -> None:
    assert len({each.name for each in KINDS}) == 12
    assert {each.format for each in KINDS} == {"0", "1", "2", "enriched"}
    assert {each.format for each in KINDS if each.compacted} == {"0", "1", "2", "enriched"}
    assert {(each.idempotent, each.compacted) for each in KINDS} == {
        (a, b) for a in (True, False) for b in (True, False)
    }
