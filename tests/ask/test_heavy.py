"""The heaviest items of a stream: exact while all fit, else within the bound of Misra and Gries."""

from collections import Counter

import numpy as np
import pytest

from magicbyte.ask.heavy import HeavyItems


def stream(seed: int, rows: int, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Items with a few heavy ones, and the sizes of the rows."""
    random = np.random.default_rng(seed)
    return (random.zipf(1.3, rows) % items).astype(np.uint64), random.integers(0, 2000, rows)


def exact(hashes: np.ndarray, sizes: np.ndarray) -> tuple[Counter[int], Counter[int]]:
    sums, counts = Counter[int](), Counter[int]()
    for item, size in zip(hashes.tolist(), sizes.tolist(), strict=True):
        sums[item] += size
        counts[item] += 1
    return sums, counts


def added(items: HeavyItems, hashes: np.ndarray, sizes: np.ndarray, rows: int) -> None:
    for at in range(0, len(hashes), rows):
        part = hashes[at : at + rows]
        items.add(part, sizes[at : at + rows], lambda row, part=part: f"item {part[row]}")  # type: ignore[misc]


@pytest.mark.parametrize(("seed", "rows", "kept"), [(1, 1000, 10), (2, 333, 50), (3, 5000, 200), (4, 50, 1)])
def test_no_item_is_off_by_more_than_what_is_missed(seed: int, rows: int, kept: int) -> None:
    hashes, sizes = stream(seed, 20_000, 100_000)
    sums, _ = exact(hashes, sizes)
    items = HeavyItems(kept)
    added(items, hashes, sizes, rows)
    found = {each.label: each for each in items.heaviest(len(items))}
    assert items.total_bytes == sizes.sum()
    assert items.missed_bytes <= items.total_bytes / (kept + 1)
    assert len(found) <= 2 * kept
    for item, true in sums.items():
        heavy = found.get(f"item {item}")
        if heavy is None:
            assert true <= items.missed_bytes
        else:
            assert heavy.bytes <= true <= heavy.bytes + heavy.missed_bytes
            assert heavy.missed_bytes <= items.missed_bytes


def test_without_a_limit_every_sum_is_exact() -> None:
    hashes, sizes = stream(5, 20_000, 100_000)
    sums, counts = exact(hashes, sizes)
    items = HeavyItems(None)
    added(items, hashes, sizes, 700)
    assert items.missed_bytes == 0
    assert {each.label: (each.bytes, each.count) for each in items.heaviest(len(items))} == {
        f"item {item}": (sums[item], counts[item]) for item in sums
    }


def test_the_heaviest_come_first() -> None:
    items = HeavyItems(10)
    items.add(np.array([1, 2, 3, 2], np.uint64), np.array([5, 7, 9, 1]), "abcd".__getitem__)
    assert [(each.label, each.bytes, each.count) for each in items.heaviest(2)] == [("c", 9, 1), ("b", 8, 2)]


def test_no_rows_change_nothing() -> None:
    items = HeavyItems(10)
    items.add(np.empty(0, np.uint64), np.empty(0, np.int64), str)
    assert items.heaviest(3) == []


@pytest.mark.slow
def test_ten_million_items_are_within_the_bound_of_ten_thousand() -> None:
    random = np.random.default_rng(6)
    items = HeavyItems(10_000)
    sums = np.zeros(10_000_000, np.int64)
    for _ in range(200):
        hashes = np.concatenate([random.integers(0, 10_000_000, 90_000), random.zipf(1.2, 10_000) % 10_000_000])
        sizes = random.integers(0, 2000, len(hashes))
        np.add.at(sums, hashes, sizes)
        items.add(hashes.astype(np.uint64), sizes, lambda row, hashes=hashes: int(hashes[row]))  # type: ignore[misc]
    assert len(items) <= 20_000
    assert items.missed_bytes <= items.total_bytes / 10_001
    found = {each.label: each for each in items.heaviest(len(items))}
    assert set(np.flatnonzero(sums > items.missed_bytes).tolist()) <= found.keys()
    for item, heavy in found.items():
        assert heavy.bytes <= sums[item] <= heavy.bytes + heavy.missed_bytes
