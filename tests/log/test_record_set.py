"""The parts of a set that index entries may be due at: many small messages are looked at once, not one by one."""

import random
from dataclasses import replace

import pytest

from magicbyte.log.index_writer import LATEST_RULES
from magicbyte.log.record_set import Part, PlainRows, record_set
from magicbyte.records.message import build_message


def messages(rng: random.Random, magic: int) -> bytes:
    count, offset, found = rng.randrange(1, 60), 0, []
    for _ in range(count):
        offset += rng.choice((1, 1, 1, 7))
        value = bytes(rng.choice((0, 3, 40, 400, 5000)))
        found.append(build_message(magic, offset, rng.randrange(5) if magic else -1, None, value))
    return b"".join(found)


def entries(
    parts: list[Part], since: int, interval: int
) -> tuple[list[tuple[int, int, int, int]], int, tuple[int, int]]:
    """Return what a segment makes of the parts: index entries with their times, bytes behind the last, largest time."""
    largest, found = (-1, -1), []
    for part in parts:
        if part.max_timestamp > largest[0]:
            largest = part.max_timestamp, part.time_offset
        if since > interval:
            found.append((part.last_offset, part.position, *largest))
            since = 0
        since += part.size
    return found, since, largest


@pytest.mark.parametrize("magic", [0, 1])
def test_many_messages_get_the_entries_that_each_by_itself_would_get(magic: int) -> None:
    rng, merged = random.Random(magic), 0
    for _ in range(200):
        made = record_set(messages(rng, magic), LATEST_RULES)
        assert isinstance(made.parts, PlainRows)
        each = list(made.parts_since(1, 0))
        assert len(each) == len(made.parts.position), "an entry is due at every message"
        for since, interval in ((0, 4096), (5000, 4096), (4096, 4096), (100, 300), (0, 0), (0, 1 << 30)):
            parts = list(made.parts_since(since, interval))
            assert entries(parts, since, interval) == entries(each, since, interval)
            assert sum(part.size for part in parts) == made.size
            assert parts[0].first_offset == made.first_offset
            assert parts[-1].last_offset == made.last_offset
            merged += len(parts) < len(each)
    assert merged > 100


def test_before_3_9_1_a_set_is_one_part() -> None:
    made = record_set(messages(random.Random(5), 1), replace(LATEST_RULES, entry_per_batch=False))
    (part,) = made.parts_since(1, 0)
    assert (part.first_offset, part.last_offset, part.size) == (made.first_offset, made.last_offset, made.size)
