"""CRCs of parts, from CRCs of beginnings."""

import random

import pytest

from magicbyte.engine.compiled.running_crc import CRC32, CRC32C
from magicbyte.engine.wire.checksum import crc32, crc32c

DATA = random.Random(7).randbytes(3 << 20)


@pytest.mark.parametrize(
    ("start", "end"), [(0, 0), (0, 1), (5, 5), (17, 4000), (2048, 4096), (1, 3 << 20), (9, 70_001)]
)
@pytest.mark.parametrize(("kind", "direct"), [(CRC32, crc32), (CRC32C, crc32c)])
def test_the_crc_of_a_part_follows_from_those_of_two_beginnings(kind, direct, start, end):
    before = kind.resume(DATA[:start], 0)
    whole = kind.resume(DATA[start:end], before)
    assert whole == direct(DATA[:end])
    assert kind.part(before, whole, end - start) == direct(DATA[start:end])
