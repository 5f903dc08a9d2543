"""Stored states: the records of real brokers byte for byte, and the merging of batches."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.sharing.records import decode, encode
from magicbyte.engine.sharing.states import StateBatch, StateKey, StateSnapshot, StateUpdate, StoredState

TOPIC = "1810ed756560407883212f62cb050282"
KEY = StateKey("vs", uuid.UUID(TOPIC), 0)
ROWS = (StateBatch(0, 0, 2, 1), StateBatch(1, 1, 0, 1), StateBatch(2, 2, 4, 1))
UPDATE_KEY = "000100027673" + TOPIC + "00000000"
UPDATE = (
    "000000000000000000000000000000000000040000000000000000000000000000000002000100000000000000000100"
    "00000000000001000001000000000000000002000000000000000204000100"
)


@pytest.mark.parametrize(
    ("value", "with_counts", "key", "data"),
    [
        (
            StateSnapshot(0, 2, 0, -1, 0x1A22715C6AE, 0x1A22715C6AE),
            True,
            "000000027673" + TOPIC + "00000000",
            "0000000000000000000200000000ffffffffffffffff000001a22715c6ae000001a22715c6ae0100",
        ),
        (StateUpdate(0, 0, 0, ROWS, 2), True, UPDATE_KEY, UPDATE + "01000400000002"),
        (StateUpdate(0, 0, 0, ROWS), False, UPDATE_KEY, UPDATE + "00"),
    ],
)
def test_records_are_those_of_real_brokers(
    value: StateSnapshot | StateUpdate, with_counts: bool, key: str, data: str
) -> None:
    encoded = encode(KEY, value, with_counts=with_counts)
    assert encoded == (bytes.fromhex(key), bytes.fromhex(data))
    assert decode(*encoded) == (KEY, value)


def test_a_deleted_state_and_unknown_records() -> None:
    key, _ = encode(KEY, None, with_counts=True)
    assert decode(key, None) == (KEY, None)
    assert decode(b"\0\x05abc", b"") is None
    assert decode(key, b"\0\x09") is None


def test_the_key_has_the_text_of_kafka() -> None:
    assert KEY.text == "vs:GBDtdWVgQHiDIS9iywUCgg:0"


def test_of_two_batches_the_one_of_more_deliveries_counts() -> None:
    state = StoredState(start=0)
    state.put([StateBatch(0, 9, 0, 2), StateBatch(3, 5, 2, 2), StateBatch(4, 12, 0, 1)])
    assert state.batches == [
        StateBatch(0, 2, 0, 2), StateBatch(3, 5, 2, 2), StateBatch(6, 9, 0, 2), StateBatch(10, 12, 0, 1),
    ]  # fmt: skip
    state.put([StateBatch(10, 12, 0, 2)])
    assert state.batches[-1] == StateBatch(6, 12, 0, 2)
    state.update(StateUpdate(0, -1, 4, [], 1))
    assert state.batches[0] == StateBatch(4, 5, 2, 2)


@given(st.lists(st.tuples(*(st.integers(0, 12),) * 2, st.sampled_from([0, 2, 4]), st.integers(1, 3)), max_size=12))
def test_merged_batches_are_as_if_each_record_was_stored(rows: list[tuple[int, int, int, int]]) -> None:
    state, each_record = StoredState(start=2), dict[int, tuple[int, int]]()
    for first, size, kind, count in rows:
        state.put([StateBatch(first, first + size, kind, count)])
        for offset in range(first, first + size + 1):
            each_record[offset] = max(each_record.get(offset, (0, -1)), (count, kind))
        found = {
            offset: (batch.deliveries, batch.state)
            for batch in state.batches
            for offset in range(batch.first, batch.last + 1)
        }
        assert found == {offset: value for offset, value in each_record.items() if offset >= 2}
        for before, after in zip(state.batches, state.batches[1:], strict=False):
            assert before.last < after.first
            assert before.last + 1 < after.first or before[2:] != after[2:]
