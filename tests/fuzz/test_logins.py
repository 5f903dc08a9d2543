"""Bytes before a login: what fuzzing begins with, changed at random, and cut anywhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import tries
from fuzz.logins import PASSWORD, fuzz_login, login_inputs, place

INPUTS = dict(login_inputs())


@pytest.fixture(autouse=True, scope="module")
def _no_lines_about_refused_logins() -> Iterator[None]:
    logger = logging.getLogger("magicbyte")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


def test_the_logins_that_are_changed_are_logins() -> None:
    came_in = {name for name, data in INPUTS.items() if _enters(data)}
    assert came_in == {name for name in INPUTS if name.startswith(("plain", "old-plain", "whole"))}


def _enters(data: bytes) -> bool:
    entered = []
    before = place().enter

    def noted(*sent: bytes | int) -> tuple[object, int]:
        found = before(*sent)  # type: ignore[arg-type]
        entered.append(found[0])
        return found

    place().enter = noted  # type: ignore[assignment, method-assign]
    try:
        fuzz_login(data)
    finally:
        place().enter = before  # type: ignore[method-assign]
    return entered[0] is not None


def test_a_login_that_is_cut_anywhere_admits_no_user() -> None:
    for data in INPUTS.values():
        for end in range(len(data) - 1):
            fuzz_login(data[:end].replace(PASSWORD.encode(), b"x" * len(PASSWORD)))


@tries(500)
@given(
    name=st.sampled_from(sorted(INPUTS)), at=st.integers(0, 400), flip=st.integers(1, 255), more=st.binary(max_size=9)
)
def test_a_login_with_a_changed_byte_ends_as_one_or_with_a_fault_of_the_peers(
    name: str, at: int, flip: int, more: bytes
) -> None:
    data = bytearray(INPUTS[name] + more)
    data[at % len(data)] ^= flip
    fuzz_login(bytes(data))


@tries(500)
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_admit_no_user(data: bytes) -> None:
    fuzz_login(data)
