"""SipHash-2-4-128: the vectors of its reference implementation, and both forms alike for every length."""

import numpy as np
import pytest

from magicbyte.engine.compiled.siphash import siphash128
from magicbyte.engine.log.cleaning import offset_map_kernels as kernels

KEY = tuple(int.from_bytes(bytes(range(at, at + 8)), "little") for at in (0, 8))
VECTORS = ["a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45"]


@pytest.mark.parametrize(("length", "expected"), list(enumerate(VECTORS)))
def test_the_reference_vectors(length: int, expected: str) -> None:
    found = siphash128(bytes(range(length)), 0, length, *KEY)
    assert b"".join((half & (2**64 - 1)).to_bytes(8, "little") for half in found).hex() == expected


def test_the_compiled_form_agrees_with_the_plain_one_for_every_length() -> None:
    data = bytes(np.random.default_rng(5).integers(0, 256, 3000, np.uint8))
    start = np.cumsum(np.arange(70), dtype=np.int32)
    length = np.arange(70, dtype=np.int32)
    length[7] = -1
    out, plain = np.zeros(140, np.int64), [0] * 140
    assert kernels.hash_keys(np.frombuffer(data, np.uint8), start, length, *KEY, out) == kernels.DONE
    assert kernels.hash_keys.py_func(data, start.tolist(), length.tolist(), *KEY, plain) == kernels.DONE
    assert out.tolist() == plain
    assert len(set(plain)) == 139  # a null has no hash


def test_a_cell_beyond_its_data_is_refused() -> None:
    for start, length in ((3, 3), (-1, 1)):
        assert kernels.hash_keys.py_func(b"12345", [start], [length], *KEY, [0, 0]) == kernels.BAD_CELL
