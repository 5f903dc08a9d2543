"""Index files: vectors measured with Kafka's storage jar, look-ups, damage, junk."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files import indexes
from magicbyte.engine.log.files.indexes import (
    AbortedTransaction,
    EnrichedIndex,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
)

OFFSETS = bytes.fromhex("00000003000000000000001400001068")
TIMES = bytes.fromhex("00000000000003e80000000300000000000007d000000013")
ABORTED = bytes.fromhex("0000000000000000000900000000000000690000000000000076000000000000006e")


def offset_index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def time_index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def aborted_index(*entries: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)


def test_the_offset_index_of_the_storage_jar_reads_as_it_was_written() -> None:
    index = OffsetIndex.parse(OFFSETS, 100)
    index.verify(log_size=5000)
    assert (index.offsets.tolist(), index.positions.tolist()) == ([103, 120], [0, 4200])


def test_the_time_index_of_the_storage_jar_reads_as_it_was_written() -> None:
    index = TimeIndex.parse(TIMES, 100)
    index.verify()
    assert (index.timestamps.tolist(), index.offsets.tolist()) == ([1000, 2000], [103, 119])


def test_the_transaction_index_of_the_storage_jar_reads_as_it_was_written() -> None:
    index = TransactionIndex.parse(ABORTED)
    index.verify()
    assert index.entries == (AbortedTransaction(0, 9, 105, 118, 110),)


def test_six_sets_at_an_interval_of_100_bytes_leave_these_entries() -> None:
    offsets = OffsetIndex.parse(bytes.fromhex("00000005000000c20000000900000184"), 0)
    times = TimeIndex.parse(
        bytes.fromhex("000000000000001e00000003000000000000002800000007000000000000003200" + "00000b"), 0
    )
    assert list(zip(offsets.offsets.tolist(), offsets.positions.tolist(), strict=True)) == [(5, 194), (9, 388)]
    assert list(zip(times.timestamps.tolist(), times.offsets.tolist(), strict=True)) == [(30, 3), (40, 7), (50, 11)]


def test_the_zeros_of_a_file_that_was_not_closed_are_no_entries() -> None:
    index = OffsetIndex.parse(OFFSETS + bytes(8 * 100), 100)
    index.verify()
    assert len(index) == 2
    assert len(OffsetIndex.parse(bytes(8 * 100), 100)) == 0
    assert len(TimeIndex.parse(TIMES + bytes(12 * 100), 100)) == 2


def test_an_entry_that_ends_in_zero_bytes_is_not_taken_for_room() -> None:
    assert OffsetIndex.parse(offset_index((1, 256 << 16)) + bytes(16), 0).positions.tolist() == [256 << 16]


@pytest.mark.parametrize(
    ("offset", "found"),
    [(99, (100, 0)), (102, (100, 0)), (103, (103, 0)), (119, (103, 0)), (120, (120, 4200)), (10**12, (120, 4200))],
)
def test_the_floor_of_an_offset_is_the_last_entry_at_or_before_it(offset: int, found: tuple[int, int]) -> None:
    assert OffsetIndex.parse(OFFSETS, 100).floor(offset) == found


def test_the_floor_of_a_timestamp_is_the_last_entry_at_or_before_it() -> None:
    index = TimeIndex.parse(TIMES, 100)
    assert [index.floor(at) for at in (999, 1000, 1999, 2000)] == [(-1, 100), (1000, 103), (1000, 103), (2000, 119)]


def test_a_last_entry_beyond_the_log_is_damage() -> None:
    with pytest.raises(CorruptRecordError, match=r"position 8: index position: expected < 4200, found 4200"):
        OffsetIndex.parse(OFFSETS, 100).verify(log_size=4200)


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (offset_index((5, 100), (5, 200)), 8),
        (offset_index((5, 100), (4, 200)), 8),
        (offset_index((5, 100), (6, 200), (7, 200)), 16),
        (offset_index((-1, 100)), 0),
        (offset_index((1, -1)), 0),
        (offset_index((1, 100), (0, 0), (3, 300)), 8),
    ],
    ids=[
        "same offset",
        "offset falls",
        "same position",
        "offset below base",
        "position below 0",
        "zeros in the middle",
    ],
)
def test_a_damaged_offset_index_names_the_position_of_its_entry(content: bytes, position: int) -> None:
    index = OffsetIndex.parse(content, 100)
    with pytest.raises(CorruptRecordError) as raised:
        index.verify()
    assert raised.value.position == position


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (time_index((1000, 3), (1000, 4)), 12),
        (time_index((1000, 3), (2000, 2)), 12),
        (time_index((-5, 3)), 0),
        (time_index((5, -3)), 0),
    ],
    ids=["same timestamp", "offset falls", "negative timestamp", "offset below base"],
)
def test_a_damaged_time_index_names_the_position_of_its_entry(content: bytes, position: int) -> None:
    index = TimeIndex.parse(content, 100)
    with pytest.raises(CorruptRecordError) as raised:
        index.verify()
    assert raised.value.position == position


@pytest.mark.parametrize(
    ("content", "position"),
    [
        (aborted_index((9, 105, 118, 110), (9, 100, 118, 110)), 34),
        (aborted_index((9, 119, 118, 110)), 0),
        (aborted_index((9, -1, 118, 110)), 0),
    ],
    ids=["marker before the last one", "begins after its marker", "negative offset"],
)
def test_a_damaged_transaction_index_names_the_position_of_its_entry(content: bytes, position: int) -> None:
    index = TransactionIndex.parse(content)
    with pytest.raises(CorruptRecordError) as raised:
        index.verify()
    assert raised.value.position == position


def test_a_transaction_index_of_a_later_version_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="position 34: transaction index version: expected 0, found 1"):
        TransactionIndex.parse(ABORTED + b"\0\1" + ABORTED[2:])


@pytest.mark.parametrize("index", [OffsetIndex, TimeIndex, EnrichedIndex])
def test_bytes_after_the_last_whole_entry_are_damage(
    index: type[OffsetIndex] | type[TimeIndex] | type[EnrichedIndex],
) -> None:
    with pytest.raises(CorruptRecordError) as raised:
        index.parse(bytes([1]) * (2 * index.ENTRY_SIZE + 3), 0)
    assert raised.value.position == 2 * index.ENTRY_SIZE


def test_aborted_transactions_are_those_that_touch_the_range() -> None:
    entries = ((1, 0, 29, 8), (2, 8, 74, 36), (1, 80, 90, 91))
    index = TransactionIndex.parse(aborted_index(*entries))
    index.verify()
    assert [entry.producer_id for entry in index.aborted(0, 5)] == [1]
    assert [entry.last_offset for entry in index.aborted(29, 80)] == [29, 74]
    assert [entry.last_offset for entry in index.aborted(30, 81)] == [74, 90]
    assert index.aborted(91, 1000) == []


@pytest.mark.parametrize("block", [2, 16, 128])
def test_a_search_for_aborted_transactions_finds_the_same_and_reads_the_relevant_entries_only(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Each entry has the first offset that was open when it ended: transactions that end later begin there or after."""
    monkeypatch.setattr(indexes, "BLOCK_ENTRIES", block)
    entries = [(at % 3, at * 10, at * 10 + 15, (at + 1) * 10) for at in range(50)]
    total = list[int]()

    def search(content: bytes, first: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        def read(position: int, length: int) -> bytes:
            total.append(length)
            return content[position : position + length]

        total.clear()
        return TransactionIndex.search(read, len(content), first, end)

    content = aborted_index(*entries)
    index = TransactionIndex.parse(content)
    for first in range(0, 520, 7):
        for end in range(first, 530, 11):
            found, is_complete = search(content, first, end)
            most = len(index.aborted(first, end)) + 2 * block + 8
            assert sum(total) <= most * index.ENTRY_SIZE
            assert found == index.aborted(first, end)
            assert is_complete == any(
                each.last_stable_offset >= end and each.last_offset >= first for each in index.entries
            )
    damaged = bytearray(content)
    damaged[45 * index.ENTRY_SIZE] ^= 1  # the version of one
    assert search(bytes(damaged), 100, 130) == (index.aborted(100, 130), True)
    with pytest.raises(CorruptRecordError, match="transaction index version"):
        search(bytes(damaged), 440, 470)


def test_an_index_of_aborted_transactions_is_verified_in_pieces_however_large_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexes, "PIECE_ENTRIES", 7)
    content = aborted_index(*((at % 3, at * 10, at * 10 + 5, (at + 1) * 10) for at in range(50)))
    size, index, lengths = TransactionIndex.ENTRY_SIZE, TransactionIndex.parse(content), list[int]()

    def all_in(data: bytes, first: int, end: int) -> list[AbortedTransaction]:
        def read(position: int, length: int) -> bytes:
            lengths.append(length)
            return data[position : position + length]

        return TransactionIndex.all_in(read, len(data), first, end)

    for first in range(0, 520, 7):
        assert all_in(content, first, first + 100) == index.aborted(first, first + 100)
    assert max(lengths) == 7 * size
    assert all_in(b"", 0, 100) == []
    repeated = content[: 21 * size] + content[20 * size :]  # the second one is the first of a piece
    for damaged, place in ((repeated, 21 * size), (content[:-1], 49 * size)):
        with pytest.raises(CorruptRecordError) as raised:
            all_in(damaged, 0, 0)
        assert raised.value.position == place


def test_the_enriched_index_holds_offset_timestamp_and_position() -> None:
    content = b"".join(struct.pack(">iqi", *entry) for entry in [(0, -1, 0), (40, 1000, 4200), (90, 1000, 9000)])
    index = EnrichedIndex.parse(content, 100)
    index.verify(log_size=9100)
    assert index.offsets.tolist() == [100, 140, 190]
    assert [index.floor(offset) for offset in (100, 139, 140, 500)] == [(100, 0), (100, 0), (140, 4200), (190, 9000)]


def test_an_enriched_index_whose_timestamps_fall_is_damaged() -> None:
    content = struct.pack(">iqiiqi", 1, 1000, 50, 2, 999, 100)
    with pytest.raises(CorruptRecordError, match="position 16: index timestamp: expected >= 1000, found 999"):
        EnrichedIndex.parse(content, 100).verify()


@given(junk=st.binary(max_size=400), base=st.integers(0, 2**62))
def test_junk_is_an_index_or_corrupt_and_nothing_else(junk: bytes, base: int) -> None:
    for index in (OffsetIndex, TimeIndex, EnrichedIndex):
        for content in (junk, junk[: len(junk) - len(junk) % index.ENTRY_SIZE]):
            with contextlib.suppress(CorruptRecordError):
                index.parse(content, base).verify()
    with contextlib.suppress(CorruptRecordError):
        TransactionIndex.parse(junk[: len(junk) - len(junk) % TransactionIndex.ENTRY_SIZE]).verify()


@given(
    steps=st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), min_size=1, max_size=50),
    probe=st.integers(0, 60_000),
)
def test_a_floor_is_what_a_scan_of_the_entries_finds(steps: list[tuple[int, int]], probe: int) -> None:
    entries: list[tuple[int, int]] = []
    for offset, position in steps:
        last = entries[-1] if entries else (0, 0)
        entries.append((last[0] + offset, last[1] + position))
    index = OffsetIndex.parse(offset_index(*entries), 0)
    index.verify()
    assert index.floor(probe) == max([(0, 0), *(entry for entry in entries if entry[0] <= probe)])
