"""Histories of transactions are sound, and repeat exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders import first_of
from magicbyte.access.client import Client
from magicbyte.engine.ports import TopicPartition
from simulation.run_transaction_histories import OPERATIONS, TRANSACTIONS, add, figures_of
from simulation.transaction_histories import INPUTS, OUTPUTS, Fetched, TransactionHistory

FIGURES = Path(__file__).with_name("transaction_figures.json")


@pytest.mark.parametrize(("protocol", "seed"), [pytest.param("0.11.0", 5, marks=pytest.mark.slow), ("2.8", 6)])
def test_transactions_are_whole_and_offsets_count_once_whatever_happens(protocol: str, seed: int) -> None:
    history = TransactionHistory(seed, transactions=40, protocol=protocol)
    history.run()
    assert history.outcomes["committed"] > 20
    assert len(history.events) >= 5


def test_transactions_of_protocol_2_are_whole_too() -> None:
    history = TransactionHistory(1, transactions=40, transaction_protocol=2)
    history.run()
    assert history.outcomes["committed"] > 20
    assert len(history.events) >= 5


class _NewLeaders(TransactionHistory):
    """At the end, a client's first fetch from each partition returns nothing: its leader was elected a moment ago."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, transactions=10)
        self.asked = set[tuple[Client, TopicPartition]]()

    async def _fetched(self, client: Client, place: TopicPartition, position: int) -> Fetched | None:
        if self._is_draining and (client, place) not in self.asked:
            self.asked.add((client, place))
            return Fetched([], position, position)
        return await super()._fetched(client, place, position)


def test_the_end_of_a_log_counts_where_leaders_let_read_less() -> None:
    history = _NewLeaders(1)
    history.run()
    assert {place for _, place in history.asked} == {*INPUTS, *OUTPUTS}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("first_seed", first_of(range(0, 100, 5)))
def test_more_histories_of_transactions(first_seed: int, protocol: int) -> None:
    for seed in range(first_seed, first_seed + 5):
        history = TransactionHistory(
            seed, transactions=TRANSACTIONS, operations=OPERATIONS, transaction_protocol=protocol
        )
        history.run()
        assert len(history.recorder.history) >= OPERATIONS


@pytest.mark.parametrize("size", ["", ", one broker"])
@pytest.mark.parametrize("protocol", ["protocol 1", "protocol 1, groups", "protocol 2", "protocol 2, groups"])
def test_recorded_histories_are_long_and_none_failed(protocol: str, size: str) -> None:
    found = json.loads(FIGURES.read_text())[protocol + size]
    assert found["failed"] == {}
    assert found["histories"] == found["historiesOf300"]
    seeds = [tuple(map(int, each["seeds"].split("-"))) for each in found["runs"]]
    assert found["histories"] == sum(last - first + 1 for first, last in seeds)
    states = " ".join(found["faultsByState"])
    assert "Ongoing" in states
    if "groups" not in protocol:  # whose transactional ids are used by few transactions each
        assert "PrepareCommit to CompleteCommit" in states
        assert "CompleteAbort to Ongoing" in states


def test_figures_grow_over_runs(tmp_path: Path) -> None:
    history = TransactionHistory(3, transactions=5)
    history.run()
    one, path = figures_of([history], {3: "wrong"}, 1.4), tmp_path / "figures.json"
    for commit, seed in (("a", 3), ("a", 4), ("b", 9)):
        add(path, "protocol 1", one, commit, range(seed, seed + 1))
    add(path, "protocol 2", one, "b", range(1))
    with pytest.raises(ValueError, match="protocol 1: seeds 3-4 are recorded already"):
        add(path, "protocol 1", one, "c", range(4, 6))
    found = json.loads(path.read_text())
    assert [each["histories"] for each in found.values()] == [3, 1]
    grown = found["protocol 1"]
    assert grown["runs"] == [{"commit": "a", "seeds": "3-4"}, {"commit": "b", "seeds": "9-9"}]
    assert grown["operations"] == 3 * one["operations"]
    assert grown["leastOperations"] == one["leastOperations"]
    assert grown["failed"] == {"3": "wrong"}
    assert grown["faultsByState"] == {name: 3 * count for name, count in one["faultsByState"].items()}


def test_a_history_of_transactions_repeats_exactly() -> None:
    digests = []
    for _ in range(2):
        history = TransactionHistory(5, transactions=25)
        history.run()
        digests.append((history.world.digest(), history.events, history.outcomes, len(history.recorder.history)))
    assert digests[0] == digests[1]
