"""Producer snapshots: the vector of Kafka's storage jar, damage, junk."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.engine.log.files.producer_snapshot import ENTRY, ProducerEntry, ProducerSnapshot
from magicbyte.engine.wire.checksum import crc32c

SNAPSHOT = bytes.fromhex(
    "00011d97e01400000001000000000000000900010000002c0000000000000066000000020000000000001388ffffffff0000000000000064"
)


def sealed(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


def test_the_snapshot_of_the_storage_jar_reads_as_it_was_written() -> None:
    (entry,) = ProducerSnapshot.parse(SNAPSHOT).producers
    assert entry == ProducerEntry(9, 1, 44, 102, 2, 5000, -1, 100)
    assert entry.first_sequence == 42


def test_the_first_sequence_wraps_and_is_none_without_a_batch() -> None:
    assert ProducerEntry(9, 1, 1, 102, 2, 5000, -1, -1).first_sequence == 2**31 - 1
    assert ProducerEntry(9, 1, -1, -1, 0, 5000, 0, -1).first_sequence == -1


@given(at=st.integers(0, len(SNAPSHOT) - 1), flip=st.integers(1, 255))
def test_any_changed_byte_is_noticed(at: int, flip: int) -> None:
    damaged = bytearray(SNAPSHOT)
    damaged[at] ^= flip
    with pytest.raises(CorruptRecordError):
        ProducerSnapshot.parse(bytes(damaged))


@pytest.mark.parametrize("cut", range(len(SNAPSHOT)))
def test_a_cut_snapshot_is_corrupt(cut: int) -> None:
    with pytest.raises(CorruptRecordError):
        ProducerSnapshot.parse(SNAPSHOT[:cut])


@pytest.mark.parametrize("count", [0, 2, -1, 2**31 - 1])
def test_a_count_that_is_not_the_number_of_producers_is_corrupt_even_under_a_right_crc(count: int) -> None:
    with pytest.raises(CorruptRecordError, match="snapshot size"):
        ProducerSnapshot.parse(sealed(struct.pack(">i", count) + SNAPSHOT[10:]))


def test_a_later_version_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match="snapshot version: expected 1, found 2"):
        ProducerSnapshot.parse(sealed(SNAPSHOT[6:], version=2))


@given(junk=st.binary(max_size=3 * ENTRY.size))
def test_junk_is_a_snapshot_or_corrupt_and_nothing_else(junk: bytes) -> None:
    for content in (junk, sealed(junk)):
        with contextlib.suppress(CorruptRecordError):
            ProducerSnapshot.parse(content)
