"""A damaged byte anywhere in a log: either it is reported, with its position, or it is one that no checksum covers.

What no checksum covers: the offset field of every format (the record's offset, or the shift of those inside), and the
leader epoch of magic 2. A wrong size field or magic byte loses what follows, and is always told.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import golden_data
from fuzz import agreement, seeds, targets
from fuzz.mutations import split
from magicbyte.engine.errors import CorruptRecordError, TruncatedLogError
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.decode import DecodeOptions
from magicbyte.engine.records.layout import Dialect

OFFSET, SIZE, EPOCH, MAGIC = range(8), range(8, 12), range(12, 16), 16
OPTIONS = DecodeOptions(limit=1 << 20)
LOGS = {
    **{name: (log, Dialect.KAFKA) for name, log in seeds.golden_logs().items() if name.endswith("-row")},
    **{name: (log, Dialect.ENRICHED) for name, log in seeds.enriched_logs().items()},
}
CODECS_ALONE = tuple(f"-{codec:02x}-row" for codec in range(5))  # no other attribute is set
ATTRIBUTES = ("magic1-08-row", "magic2-08-row", "magic2-10-row", "magic2-30-row", "magic2-40-row")
NAMES = [
    pytest.param(
        name,
        marks=()
        if name.startswith("enriched") or name.endswith(CODECS_ALONE) or name in ATTRIBUTES
        else pytest.mark.slow,
    )
    for name in sorted(LOGS)
]
"""In every run each magic with each codec, and each other attribute without one; their combinations are slow."""


def read(log: bytes, dialect: Dialect) -> tuple[list[Record], list[CorruptRecordError]]:
    return targets.read_log(log, OPTIONS, dialect)


def by_entry(log: bytes, dialect: Dialect) -> Iterator[tuple[int, bytes, list[Record]]]:
    """Yield position, bytes and records of each entry."""
    position = 0
    for entry in split(log)[0]:
        records, damage = read(entry, dialect)
        assert not damage
        yield position, entry, records
        position += len(entry)


def but_offsets(records: list[Record]) -> list[object]:
    return [record[1:] for record in records]


def check(log: bytes, dialect: Dialect, entries: list[tuple[int, bytes, list[Record]]], at: int, flip: int) -> None:
    """Change one byte of a sound log; fail if a reader that skips damage hides it, or loses or changes more.

    `entries` are those of the log, by `by_entry`.
    """
    number = max(i for i, (position, _, _) in enumerate(entries) if position <= at)
    position, entry, own = entries[number]
    before = [record for _, _, records in entries[:number] for record in records]
    behind = [record for _, _, records in entries[number + 1 :] for record in records]
    place = at - position
    damaged = bytearray(log)
    damaged[at] ^= flip
    found, damage = read(bytes(damaged), dialect)

    assert found[: len(before)] == before
    if damage:
        first = damage[0]
        assert (first.path, first.position) == (targets.MemoryFile.path, position)
        claimed = int.from_bytes(damaged[position : position + 8], "big", signed=True)
        assert first.offsets is not None
        assert first.offsets[0] == claimed
    if place in OFFSET:
        magic, wrapped = entry[16], entry[16] < 2 and len(own) != 1
        if damage:  # a wrapper of magic 1 whose offset is below that of the last message inside
            assert (magic, damage[0].what) == (1, "wrapper offset")
            assert found == before + behind
        else:
            assert but_offsets(found) == but_offsets(before + own + behind)
            middle = found[len(before) : len(before) + len(own)]
            shifts = {(new.offset - old.offset) & (1 << 64) - 1 for new, old in zip(middle, own, strict=True)}
            assert len(shifts) <= 1 or wrapped
            assert found[len(before) + len(own) :] == behind
    elif place in EPOCH and entry[16] == 2:
        assert (found, damage) == (before + own + behind, [])
    elif place in SIZE or place == MAGIC:
        assert damage
        assert all(record in behind for record in found[len(before) :])
    else:
        assert len(damage) == 1
        assert not isinstance(damage[0], TruncatedLogError)
        assert found == before + behind


@pytest.mark.parametrize("form", ["plain", "compiled"])
@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_byte_is_reported_with_its_position_or_no_checksum_covers_it(name: str, form: str) -> None:
    log, dialect = LOGS[name]
    rnd = random.Random(name)
    whole = sum(map(len, split(log)[0]))
    with agreement.kernels(form):
        sound = list(by_entry(log[:whole], dialect))
        headers = [position + i for position, entry, _ in sound for i in range(min(len(entry), 62))]
        for at in sorted({*headers, *(rnd.randrange(whole) for _ in range(100))}):
            check(log[:whole], dialect, sound, at, 1 << rnd.randrange(8))


@pytest.mark.parametrize("name", ["magic0-00-row", "magic1-03-row", "magic2-00-row", "magic2-04-row", "enriched-lz4-1"])
def test_every_bit_pattern_of_a_header_byte_is_reported_or_uncovered(name: str) -> None:
    log, dialect = LOGS[name]
    entry = split(log)[0]
    whole = b"".join(entry)
    with agreement.kernels("plain"):
        sound = list(by_entry(whole, dialect))
        for at in range(len(entry[0]), len(entry[0]) + 30):
            for flip in (0x01, 0x02, 0x04, 0x80, 0xFF):
                check(whole, dialect, sound, at, flip)


@pytest.mark.parametrize("name", NAMES)
def test_a_log_that_is_cut_anywhere_is_truncated_not_damaged(name: str) -> None:
    log, dialect = LOGS[name]
    entries = list(by_entry(log, dialect))
    ends = [position + len(entry) for position, entry, _ in entries]
    with agreement.kernels("plain"):
        for cut in range(ends[-1] + 1):
            found, damage = read(log[:cut], dialect)
            whole = sum(end <= cut for end in ends)
            assert found == [record for _, _, records in entries[:whole] for record in records]
            if cut in (0, *ends):
                assert not damage
            else:
                assert [type(error) for error in damage] == [TruncatedLogError]
                assert damage[0].position == (0, *ends)[whole]


@pytest.mark.parametrize("zeros", [1, 11, 12, 17, 61, 5000])
@pytest.mark.parametrize("name", ["magic0-00-row", "magic1-00-row", "magic2-00-row"])
def test_zeros_after_the_last_entry_are_a_truncated_tail(name: str, zeros: int) -> None:
    log, dialect = LOGS[name]
    sound = b"".join(split(log)[0])
    found, damage = read(sound + bytes(zeros), dialect)
    assert [type(error) for error in damage] == [TruncatedLogError]
    assert damage[0].position == len(sound)
    assert found == read(sound, dialect)[0]


@pytest.mark.parametrize("case", golden_data.log_cases(state="crashed"), ids=str)
def test_a_sampled_byte_of_a_real_segment_is_reported_or_uncovered(case: golden_data.Case) -> None:
    rnd = random.Random(case.id)
    for segment in case.segments().values():
        sound = b"".join(split(segment)[0][:40])
        if sound and not read(sound, Dialect.KAFKA)[1]:
            own = list(by_entry(sound, Dialect.KAFKA))
            for _ in range(10):
                check(sound, Dialect.KAFKA, own, rnd.randrange(len(sound)), rnd.randrange(1, 256))
