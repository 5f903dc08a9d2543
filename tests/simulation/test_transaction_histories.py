"""Histories of transactions are sound, and repeat exactly."""

from __future__ import annotations

import pytest

from simulation.transaction_histories import TransactionHistory


@pytest.mark.parametrize(("protocol", "seed"), [("0.11.0", 2), ("2.8", 4)])
def test_transactions_are_whole_and_offsets_count_once_whatever_happens(protocol: str, seed: int) -> None:
    history = TransactionHistory(seed, transactions=40, protocol=protocol)
    history.run()
    assert history.outcomes["committed"] > 20
    assert len(history.events) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_more_histories_of_transactions(seed: int) -> None:
    history = TransactionHistory(seed)
    history.run()
    assert len(history.recorder.history) >= 250


def test_a_history_of_transactions_repeats_exactly() -> None:
    digests = []
    for _ in range(2):
        history = TransactionHistory(5, transactions=25)
        history.run()
        digests.append((history.world.digest(), history.events, history.outcomes, len(history.recorder.history)))
    assert digests[0] == digests[1]
