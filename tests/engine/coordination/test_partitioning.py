"""The hash by which groups and transactional ids get their partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magicbyte.engine.coordination.partitioning import java_hash


@pytest.mark.parametrize(
    ("text", "found"),
    [("", 0), ("a", 97), ("hello", 99_162_322), ("polygenelubricants", -(1 << 31)), ("é漢", 31 * 0xE9 + 0x6F22)],
)
def test_the_hash_is_that_of_a_string_of_java(text: str, found: int) -> None:
    assert java_hash(text) == found


@given(st.text(st.characters(), max_size=300))  # with surrogates
def test_the_hash_follows_from_the_units_of_utf_16_one_after_the_other(text: str) -> None:
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[at : at + 2])) % (1 << 32)
    assert java_hash(text) % (1 << 32) == found
    assert -(1 << 31) <= java_hash(text) < 1 << 31
