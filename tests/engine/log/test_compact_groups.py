"""A segment's effect on transactions before it, found from the segment alone, equals that of a walk over the log."""

import random

from magicbyte.engine.log.cleaning.cleaned_transactions import CleanedTransactions, Passage, SegmentTransactions
from magicbyte.engine.log.files.indexes import AbortedTransaction
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.control import ControlType, build_marker
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records


def data(offset: int, producer: int) -> RecordBatch:
    header = BatchHeader(producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)
    batch = RecordBatch.parse(memoryview(encode_records([Record(offset, 1, 0, b"k", b"v")], Format.V2, header=header)))
    assert batch is not None
    return batch


def marker(kind: ControlType, offset: int, producer: int) -> RecordBatch:
    epochs = {"producer_epoch": 0, "coordinator_epoch": 0}
    batch = RecordBatch.parse(
        memoryview(build_marker(kind, base_offset=offset, timestamp=1, producer_id=producer, **epochs))
    )
    assert batch is not None
    return batch


def history(seed: int, count: int) -> tuple[list[RecordBatch], list[AbortedTransaction]]:
    """Return one batch for each offset, of six producers, and the transactions of them that were aborted."""
    rng = random.Random(seed)
    batches, aborted, first = [], [], dict[int, int]()
    for offset in range(count):
        producer = rng.randrange(6)
        if producer not in first or rng.random() < 0.6:
            first.setdefault(producer, offset)
            batches.append(data(offset, producer))
            continue
        kind = rng.choice((ControlType.COMMIT, ControlType.ABORT))
        batches.append(marker(kind, offset, producer))
        if kind is ControlType.ABORT:
            aborted.append(AbortedTransaction(0, producer, first[producer], offset, 0))
        del first[producer]
    return batches, aborted


def verdicts(transactions: CleanedTransactions, batches: list[RecordBatch]) -> list[bool]:
    return [
        transactions.is_needless(each) if each.is_control else transactions.is_aborted(each)
        for each in batches
    ]  # fmt: skip


def overlapping(aborted: list[AbortedTransaction], first: int, end: int) -> list[AbortedTransaction]:
    return [each for each in aborted if each.first_offset < end and each.last_offset >= first]


def passage_of(batches: list[RecordBatch], aborted: list[AbortedTransaction], first: int, end: int) -> Passage:
    transactions = SegmentTransactions()
    transactions.add_aborted(overlapping(aborted, first, end))
    verdicts(transactions, batches[first:end])
    return transactions.passage(end)


def test_segments_one_by_one_are_judged_as_in_one_walk() -> None:
    for seed in range(40):
        batches, aborted = history(seed, 60)
        whole = CleanedTransactions()
        whole.add_aborted(aborted)
        expected, found, retained = verdicts(whole, batches), [], []
        seen, committed = frozenset[int](), frozenset[int]()
        for first in range(0, 60, 7):
            end = min(first + 7, 60)
            alone = CleanedTransactions(seen, committed)
            alone.add_aborted(overlapping(aborted, first, end))
            found += verdicts(alone, batches[first:end])
            retained += alone.retained
            passage = passage_of(batches, aborted, first, end)
            assert passage.fits
            assert Passage.of_pairs(passage.to_pairs()) == passage, "as a file holds it"
            seen, committed = passage.behind(seen, committed)
        assert (found, retained) == (expected, whole.retained), f"seed {seed}"


def test_a_marker_elsewhere_than_the_index_says_is_noticed() -> None:
    batches = [data(0, 1), data(1, 1), marker(ControlType.ABORT, 2, 1), data(3, 1)]
    right = AbortedTransaction(0, 1, 0, 2, 0)
    assert passage_of(batches, [right], 0, 4).fits
    for wrong in (
        [right._replace(last_offset=1)],
        [right._replace(last_offset=3)],
        [right, right._replace(first_offset=2, last_offset=9)],
        [right, right._replace(producer_id=2, last_offset=3)],
    ):
        passage = passage_of(batches, wrong, 0, 4)
        assert not passage.fits, wrong
        assert Passage.of_pairs(passage.to_pairs()) == passage
