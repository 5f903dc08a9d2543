"""The cleaner's map beside a dictionary, in both forms; its marks; when it is full."""

import numpy as np
import pytest

from magicbyte.engine.log.cleaning.offset_map import OffsetMap
from magicbyte.engine.records.columns import Record
from magicbyte.engine.records.encode import columns_of

FORMS = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])


def offset_map(end: int, *, compiled: bool, dedupe_bytes: int = 1 << 20) -> OffsetMap:
    return OffsetMap(10, end, dedupe_bytes=dedupe_bytes, load_factor=0.9, secret=bytes(16), compiled=compiled)


@FORMS
def test_it_knows_what_a_dictionary_knows(compiled: bool) -> None:
    random = np.random.default_rng(3)
    keys = [None if key == 0 else b"k" * (key % 40) + b"%d" % key for key in random.integers(0, 300, 2000).tolist()]
    records = [Record(10 + at, -1, 0, key, None if at % 7 == 0 else b"v") for at, key in enumerate(keys)]
    found = offset_map(3000, compiled=compiled)
    for first in range(0, 2000, 333):
        assert found.put(columns_of(records[first : first + 333]))
    known: dict[bytes, int] = {}
    superseded = np.zeros(2000, np.uint8)
    for record in records:
        if record.key is not None:
            if record.key in known:
                superseded[known[record.key] - 10] = 1
            known[record.key] = record.offset
    assert (found.keys, found.latest) == (len(known), 2009)
    assert found.superseded(10, 2010).tolist() == superseded.tolist()
    assert found.superseded(517, 1203).tolist() == superseded[507:1193].tolist()
    odd = [int(record.key is None or record.value is None) for record in records]
    assert found.odd(10, 2010).tolist() == odd
    asked = columns_of([Record(0, -1, 0, key, b"") for key in [*known, b"unknown", None]]).key
    assert asked is not None
    assert found.latest_of(asked).tolist() == [*known.values(), -1, -1]


@FORMS
def test_a_full_map_ends_before_the_next_key(compiled: bool) -> None:
    found = offset_map(100, compiled=compiled, dedupe_bytes=24 * 4)
    records = [Record(10 + at, -1, 0, b"%d" % (at % 3), b"v") for at in range(20)]
    assert found.limit == 3
    assert not found.put(columns_of(records))
    assert (found.keys, found.latest) == (3, 12)


@FORMS
def test_what_lies_before_its_beginning_is_not_put_in(compiled: bool) -> None:
    found = offset_map(100, compiled=compiled)
    assert found.put(columns_of([Record(at, -1, 0, b"%d" % at, b"v") for at in range(5, 15)]))
    assert (found.keys, found.latest) == (5, 14)
