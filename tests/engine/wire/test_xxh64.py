"""XXH64: the form inside compiled kernels gives what the xxhash library gives."""

import random

import numpy as np
import pytest
import xxhash

from magicbyte.engine.compiled.xxh64 import xxh64_of
from magicbyte.engine.records.digest_kernels import BAD_CELL, DONE, hash_cells

BYTES = random.Random(64).randbytes(5000)
NULL = 99


def test_the_plain_form_is_the_librarys_hash_as_a_signed_number() -> None:
    for size in (0, 3, 31, 32, 1000):
        assert xxh64_of(BYTES, 7, 7 + size, 5) % 2**64 == xxhash.xxh64_intdigest(BYTES[7 : 7 + size], 5)


@pytest.mark.parametrize("seed", [0, 3])
def test_the_compiled_form_agrees_for_every_length(seed: int) -> None:
    lengths = [-1, *range(200), 1000, 3000]
    starts = [(7 * at) % 1500 for at in range(len(lengths))]
    plain = [0] * len(lengths)
    assert hash_cells.py_func(BYTES, starts, lengths, seed, NULL, plain) == DONE
    compiled = np.empty(len(lengths), np.int64)
    data = np.frombuffer(BYTES, np.uint8)
    start, length = np.array(starts, np.int32), np.array(lengths, np.int32)
    assert hash_cells(data, start, length, seed, NULL, compiled) == DONE
    assert compiled.tolist() == plain
    assert plain[0] == NULL
    assert len(set(plain)) == len(plain)


@pytest.mark.parametrize(("start", "length"), [(4999, 2), (-1, 1), (2**31 - 1, 2**31 - 1)])
def test_a_cell_beyond_the_data_is_refused_in_both_forms(start: int, length: int) -> None:
    assert hash_cells.py_func(BYTES, [start], [length], 0, NULL, [0]) == BAD_CELL
    data, cell = np.frombuffer(BYTES, np.uint8), (np.array([start], np.int32), np.array([length], np.int32))
    assert hash_cells(data, *cell, 0, NULL, np.zeros(1, np.int64)) == BAD_CELL
