"""What a leader remembers while it asks a transaction's coordinator about the first records of a producer.

Numbers in names are those of checks that were run against real brokers.
"""

from __future__ import annotations

import pytest

from magicbyte.engine.errors import AppendRefusedError, ErrorCode
from magicbyte.engine.log.append.producer_check import OPEN, Guard, ProducerChecks
from magicbyte.engine.records.batch import RecordBatch
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import BatchHeader, Format, encode_records
from magicbyte.engine.records.layout import TimestampType

P = 1000
GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def batch(sequence: int, epoch: int = 0, *, producer_id: int = P, transactional: bool = True) -> RecordBatch:
    header = BatchHeader(
        is_transactional=transactional, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    data = encode_records([Record(0, 1, TimestampType.CREATE_TIME, None, b"v")], Format.V2, header=header)
    found = RecordBatch.parse(memoryview(data))
    assert found is not None
    return found


def written(checks: ProducerChecks, each: RecordBatch, guard: Guard, offset: int = 0) -> None:
    assert checks.check(each, guard) is None
    checks.appended(each, offset, offset, 1)


def refusal(checks: ProducerChecks, each: RecordBatch, guard: Guard) -> ErrorCode:
    with pytest.raises(AppendRefusedError) as refused:
        checks.check(each, guard)
    return refused.value.code


def test_an_open_transaction_needs_no_guard_until_it_ends() -> None:
    checks = ProducerChecks()
    written(checks, batch(0), checks.guard(P, 0, 0, joins=False))
    assert checks.guard(P, 0, 1, joins=False) is OPEN
    written(checks, batch(1), OPEN, 1)
    checks.ended(P, 0, 0, 1)
    assert refusal(checks, batch(2), OPEN) is ErrorCode.INVALID_TXN_STATE
    assert checks.guard(P, 0, 2, joins=False) is not OPEN


def test_57_a_marker_between_the_answer_and_the_append_voids_the_answer() -> None:
    checks = ProducerChecks()
    guard = checks.guard(P, 0, 0, joins=False)
    checks.ended(P, 0, 0, 1)
    assert refusal(checks, batch(0), guard) is ErrorCode.INVALID_TXN_STATE
    other = checks.guard(P, 0, 0, joins=False)
    assert refusal(checks, batch(0), guard) is ErrorCode.INVALID_TXN_STATE
    written(checks, batch(0), other)


def test_a_marker_of_the_transaction_before_leaves_the_guard_of_the_next_one_which_has_its_epoch() -> None:
    """Protocol 2: EndTxn is answered with the next epoch before the marker of that epoch is written."""
    checks = ProducerChecks()
    written(checks, batch(0), checks.guard(P, 0, 0, joins=True))
    first = checks.guard(P, 1, 0, joins=True)
    checks.ended(P, 1, 0, 1)
    written(checks, batch(0, 1), first)
    late = checks.guard(P, 2, 0, joins=True)
    checks.ended(P, 3, 0, 1)  # of the transaction that they joined, which ran out of time
    assert refusal(checks, batch(0, 2), late) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_58_a_later_batch_does_not_pass_a_first_one_that_failed() -> None:
    checks = ProducerChecks()
    guard = checks.guard(P, 0, 0, joins=False)
    assert checks.guard(P, 0, 5, joins=False) is guard
    assert refusal(checks, batch(5), guard) is GAP
    written(checks, batch(0), guard)
    assert refusal(checks, batch(5), OPEN) is GAP


def test_a_batch_that_is_there_is_found_before_its_guard_is_looked_at() -> None:
    checks = ProducerChecks()
    written(checks, batch(0), checks.guard(P, 0, 0, joins=False))
    checks.ended(P, 0, 0, 1)
    known = checks.check(batch(0), OPEN)
    assert known is not None
    assert known.first_offset == 0


def test_an_unknown_producer_begins_with_sequence_0_where_partitions_join() -> None:
    checks = ProducerChecks()
    assert refusal(checks, batch(3), checks.guard(P, 0, 3, joins=True)) is GAP
    written(checks, batch(3, producer_id=P + 1), checks.guard(P + 1, 0, 3, joins=False))


def test_an_old_epoch_is_refused_before_the_guard_and_a_newer_one_is_not_open() -> None:
    checks = ProducerChecks()
    written(checks, batch(0, 1), checks.guard(P, 1, 0, joins=False))
    old, newer = checks.guard(P, 0, 1, joins=False), checks.guard(P, 2, 0, joins=False)
    assert OPEN not in (old, newer)
    assert refusal(checks, batch(1, 0), old) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_plain_records_need_no_guard() -> None:
    assert ProducerChecks().check(batch(0, transactional=False), OPEN) is None


def test_guards_are_bounded_and_the_oldest_goes() -> None:
    checks = ProducerChecks(most_guards=2)
    guards = [checks.guard(each, 0, 0, joins=False) for each in range(3)]
    assert refusal(checks, batch(0, producer_id=0), guards[0]) is ErrorCode.INVALID_TXN_STATE
    written(checks, batch(0, producer_id=2), guards[2])
