"""The machine bodies of primitives do what their Python bodies do."""

from __future__ import annotations

import numpy as np
import pytest

from magicbyte.engine.compiled.kernel import Bytes, MutableBytes, kernel
from magicbyte.engine.compiled.primitives import copy_bytes, copy_cell_ahead, load_pair, load_word


@kernel
def copy(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> int:
    copy_bytes(out, to, data, at, size)
    return to + size


@kernel
def copy_ahead(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> int:
    copy_cell_ahead(out, to, data, at, size)
    return to + size


@kernel
def word_and_pair(data: Bytes, at: int) -> tuple[int, int]:
    return load_word(data, at), load_pair(data, at)


def test_a_copy_ahead_is_exact_and_touches_nothing_in_front_or_beyond_its_reach() -> None:
    source = np.arange(1, 601).astype(np.uint8)
    source.flags.writeable = False
    for size in [*range(1, 140), 200, 257, 300]:
        for to, at in [(0, 0), (3, 7), (65, 33)]:
            reach = max(size, 128)
            out = np.full(to + reach + 9, 255, np.uint8)
            assert copy_ahead(out, to, source, at, size) == to + size
            assert (out[:to] == 255).all()
            assert (out[to : to + size] == source[at : at + size]).all()
            assert (out[to + reach :] == 255).all()


def test_words_and_pairs_are_little_endian_in_both_forms() -> None:
    data = bytes(range(250, 256)) + bytes([128, 1, 2, 254, 0, 255])
    for at in range(len(data) - 7):
        expected = int.from_bytes(data[at : at + 8], "little", signed=True), data[at] | data[at + 1] << 8
        assert word_and_pair(np.frombuffer(data, np.uint8), at) == expected
        assert word_and_pair.py_func(data, at) == expected


@pytest.mark.parametrize("spare", [0, 1, 31, 32, 40], ids=lambda spare: f"{spare} bytes after it")
def test_a_copy_of_any_size_is_exact_and_touches_nothing_in_front(spare: int) -> None:
    source = np.arange(1, 401).astype(np.uint8)
    for size in [*range(140), 200, 257, 300]:
        for to, at in [(0, 0), (3, 7), (65, 33)]:
            out = np.full(to + size + spare, 255, np.uint8)
            data = source[: at + size + spare].copy()
            data.flags.writeable = False
            assert copy(out, to, data, at, size) == to + size
            assert (out[:to] == 255).all()
            assert (out[to : to + size] == data[at : at + size]).all()
