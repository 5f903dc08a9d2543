"""What read_committed gives: small histories, and real logs against their index and a real consumer."""

import random
import struct
from collections.abc import Iterable

import pytest

from golden_data import Case, log_case, log_cases
from magicbyte.engine.codecs import decompress
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.control import ControlType
from magicbyte.engine.records.entry import entries
from magicbyte.engine.records.transactions import (
    AbortedRange,
    BatchFacts,
    CommittedFilter,
    batch_facts,
    scan_transactions,
)

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT


def data(producer: int, first: int, last: int, *, transactional: bool = True) -> BatchFacts:
    return BatchFacts(producer, first, last, transactional, False, None)


def marker(producer: int, offset: int, kind: ControlType | None) -> BatchFacts:
    return BatchFacts(producer, offset, offset, True, True, kind)


def plain(first: int, last: int) -> BatchFacts:
    return data(-1, first, last, transactional=False)


def delivered(batches: Iterable[BatchFacts], aborted: Iterable[AbortedRange], stable: int) -> list[int]:
    """First offsets of the batches that a reader is given."""
    committed = CommittedFilter(aborted, stable)
    return [batch.base_offset for batch in batches if committed.delivers(batch)]


HISTORY = [
    plain(0, 4),
    data(1, 5, 6),  # aborted at 12
    data(2, 7, 9),  # committed at 13
    data(1, 10, 11),
    marker(1, 12, ABORT),
    marker(2, 13, COMMIT),
    data(1, 14, 14),  # the same producer again, committed at 15
    marker(1, 15, COMMIT),
    data(3, 16, 17, transactional=False),
    data(2, 18, 19),  # open
    plain(20, 21),
    marker(4, 22, ABORT),  # nothing in it
]


def test_a_scan_finds_aborted_and_open_transactions_and_the_last_stable_offset() -> None:
    scan = scan_transactions(HISTORY)
    assert scan.aborted == [AbortedRange(1, 5, 12, 7)]
    assert scan.open == {2: 18}
    assert scan.last_stable_offset == 18


def test_a_reader_gets_committed_and_plain_data_below_the_last_stable_offset() -> None:
    scan = scan_transactions(HISTORY)
    assert delivered(HISTORY, scan.aborted, scan.last_stable_offset) == [0, 7, 14, 16]


def test_an_aborted_list_of_a_fetch_response_without_last_offsets_gives_the_same() -> None:
    assert delivered(HISTORY, [AbortedRange(1, 5)], 18) == [0, 7, 14, 16]


@pytest.mark.parametrize("start", range(len(HISTORY)))
def test_a_reader_that_starts_anywhere_gets_the_same_from_there_on(start: int) -> None:
    scan = scan_transactions(HISTORY)
    rest = HISTORY[start:]
    expected = [offset for offset in [0, 7, 14, 16] if offset >= rest[0].base_offset]
    assert delivered(rest, scan.aborted, scan.last_stable_offset) == expected


def test_two_aborted_transactions_of_one_producer_do_not_hide_what_it_committed_between() -> None:
    history = [
        data(1, 0, 0),
        marker(1, 1, ABORT),
        data(1, 2, 2),
        marker(1, 3, COMMIT),
        data(1, 4, 4),
        marker(1, 5, ABORT),
        data(1, 6, 6),
        marker(1, 7, COMMIT),
    ]
    scan = scan_transactions(history)
    assert scan == ([AbortedRange(1, 0, 1, 2), AbortedRange(1, 4, 5, 6)], 8, {})
    assert delivered(history, reversed(scan.aborted), 8) == [2, 6]
    assert delivered(history, [one._replace(last_offset=-1) for one in scan.aborted], 8) == [2, 6]


def test_an_index_whose_transactions_overlap_hides_what_lies_in_any_of_them() -> None:
    """No sound log has such an index: a producer has one transaction at a time."""
    rng = random.Random(5)
    for _ in range(200):
        spans = [(rng.randrange(2), rng.randrange(40), rng.randrange(40)) for _ in range(rng.randrange(6))]
        batches = [data(rng.randrange(2), first, first + rng.randrange(3)) for first in range(0, 40, 3)]
        expected = [
            each.base_offset
            for each in batches
            if not any(who == each.producer_id and first <= each.last_offset and last >= each.base_offset
                       for who, first, last in spans)
        ]  # fmt: skip
        assert delivered(batches, [AbortedRange(*span) for span in spans], 50) == expected, spans


def test_an_emptied_marker_or_one_of_another_type_ends_nothing() -> None:
    history = [data(1, 0, 0), marker(1, 1, None), marker(1, 2, ControlType.LEADER_CHANGE)]
    assert scan_transactions(history) == ([], 0, {1: 0})


def test_a_log_without_batches_is_stable_up_to_its_start() -> None:
    assert scan_transactions([], log_start_offset=77) == ([], 77, {})


def test_the_last_stable_offset_is_held_back_by_the_oldest_open_transaction() -> None:
    history = [data(1, 0, 0), data(2, 1, 1), marker(2, 2, ABORT), marker(1, 3, COMMIT)]
    assert scan_transactions(history).aborted == [AbortedRange(2, 1, 2, 0)]
    assert scan_transactions(history[:3]).last_stable_offset == 0


def test_the_record_at_the_last_stable_offset_is_held_back_and_the_one_before_it_given() -> None:
    history = [plain(0, 0), data(1, 1, 1), plain(2, 2)]
    scan = scan_transactions(history)
    assert scan.last_stable_offset == 1
    assert delivered(history, scan.aborted, scan.last_stable_offset) == [0]


# ---- logs of real brokers

TXN_INDEX_ENTRY = struct.Struct(">hqqqq")  # version, then the fields of AbortedTransaction
TRANSACTIONAL = [case for case in log_cases() if case.has_committed]


def batches_of(case: Case) -> list[RecordBatch]:
    return [
        entry for content in case.segments().values() for _, entry in entries(content) if isinstance(entry, RecordBatch)
    ]


def offsets_in(batch: RecordBatch) -> list[int]:
    """Offsets of the records inside, by the format's own rules and none of our code but the codecs."""
    section = bytes(batch.records_section)
    if batch.codec:
        section = bytes(decompress(batch.codec, section, limit=1 << 24))
    offsets, at = [], 0
    for _ in range(batch.record_count):
        length, body = varint(section, at)
        _, delta_at = varint(section, body + 1)
        offsets.append(batch.base_offset + varint(section, delta_at)[0])
        at = body + length
    return offsets


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] >= 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    value |= data[at] << shift
    return (value >> 1) ^ -(value & 1), at + 1


def txn_index(case: Case) -> list[AbortedRange]:
    files = [case.read(f"partition/{name}") for name in case.partition_names() if name.endswith(".txnindex")]
    return [AbortedRange(*row[1:]) for file in files for row in TXN_INDEX_ENTRY.iter_unpack(file)]


def test_there_are_transactional_logs_among_the_golden_data() -> None:
    assert len(TRANSACTIONAL) >= 10


@pytest.mark.parametrize("case", [case for case in TRANSACTIONAL if "compact" not in case.name], ids=str)
def test_a_scan_finds_exactly_what_the_brokers_index_lists(case: Case) -> None:
    assert scan_transactions(map(batch_facts, batches_of(case))).aborted == txn_index(case)


@pytest.mark.parametrize("source", ["index", "scan"])
@pytest.mark.parametrize("case", TRANSACTIONAL, ids=str)
def test_a_reader_gets_what_a_real_consumer_with_read_committed_got(case: Case, source: str) -> None:
    batches = batches_of(case)
    scan = scan_transactions(map(batch_facts, batches))
    committed = CommittedFilter(scan.aborted if source == "scan" else txn_index(case), scan.last_stable_offset)
    found = [offset for batch in batches if committed.delivers(batch_facts(batch)) for offset in offsets_in(batch)]
    assert found == [record["offset"] for record in case.committed()]


@pytest.mark.parametrize("case", TRANSACTIONAL, ids=str)
def test_batches_may_be_asked_about_in_any_order_where_the_ends_of_transactions_are_known(case: Case) -> None:
    facts = [*map(batch_facts, batches_of(case))]
    scan = scan_transactions(facts)
    in_order = delivered(facts, scan.aborted, scan.last_stable_offset)
    shuffled = random.Random(0).sample(facts, len(facts))
    for order in (facts[::-1], shuffled):
        assert sorted(delivered(order, scan.aborted, scan.last_stable_offset)) == in_order


def test_a_log_with_an_open_transaction_ends_for_readers_where_that_begins() -> None:
    case = log_case("3.9.1/txn-open-none")
    scan = scan_transactions(map(batch_facts, batches_of(case)))
    assert len(scan.open) == 1
    assert scan.last_stable_offset == min(scan.open.values()) > max(record["offset"] for record in case.committed())
