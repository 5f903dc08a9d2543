"""The compiled checksums against the libraries', in each of their forms."""

import zlib
from collections.abc import Callable

import numpy as np
import pytest

from magicbyte.engine.compiled import checksums
from magicbyte.engine.compiled.kernel import Kernel
from magicbyte.engine.wire.checksum import crc32c

DATA = np.random.default_rng(7).integers(0, 256, 70_000, dtype=np.uint8)
CASES = [
    (checksums._crc_tables_only, checksums.IEEE, zlib.crc32),
    (checksums._crc_tables_only, checksums.CASTAGNOLI, crc32c),
    (checksums._crc32_folded, checksums.IEEE, zlib.crc32),
    (checksums._crc32c_folded, checksums.CASTAGNOLI, crc32c),
]
pclmul = pytest.mark.skipif(not checksums._carry_less_parts(), reason="this machine has no carry-less multiplication")
FORMS = [
    pytest.param(*case, id=f"{case[0].__name__}-{case[1]:x}", marks=[pclmul] * (i > 1)) for i, case in enumerate(CASES)
]


@pytest.mark.parametrize(("form", "polynomial", "reference"), FORMS)
def test_every_length_and_alignment_gives_the_librarys_crc(
    form: Kernel, polynomial: int, reference: Callable[[bytes], int]
) -> None:
    content, table = DATA.tobytes(), np.array(checksums.crc_table(polynomial), np.int32)
    for size in [*range(600), 1000, 4096, 65_537]:
        start = size % 83
        assert form(DATA, start, start + size, table) == reference(content[start : start + size]), size


@pytest.mark.parametrize(("form", "polynomial", "reference"), FORMS)
def test_the_plain_twin_gives_the_same(form: Kernel, polynomial: int, reference: Callable[[bytes], int]) -> None:
    content, table = DATA.tobytes(), checksums.crc_table(polynomial)
    for size in (0, 1, 15, 64, 79, 200):
        assert form.py_func(content, 3, 3 + size, table) == reference(content[3 : 3 + size])


@pclmul
@pytest.mark.parametrize("parts", [parts for parts in (1, 2, 4) if parts <= checksums._carry_less_parts()])
@pytest.mark.parametrize(("polynomial", "reference"), [(checksums.IEEE, zlib.crc32), (checksums.CASTAGNOLI, crc32c)])
def test_vectors_of_every_width_give_the_librarys_crc(
    parts: int, polynomial: int, reference: Callable[[bytes], int]
) -> None:
    import numba

    body, content = checksums._fold_body(polynomial, parts), DATA.tobytes()
    form = numba.njit(lambda data, start, end: body(data, start, end))
    for start in range(64, 130):
        for size in [*range(4, 300, 7), 511, 512, 513, 16_384]:
            assert form(DATA, start, start + size) == reference(content[start : start + size]), (start, size)


def test_the_folding_constants_are_those_that_the_paper_prints() -> None:
    distances = [*checksums._folding(checksums.IEEE, 512), *checksums._folding(checksums.IEEE, 128)]
    assert distances == [0x154442BD4, 0x1C6E41596, 0x1751997D0, 0x0CCAA009E]
    assert checksums._reduction(checksums.IEEE) == (0x163CD6124, 0x1DB710641, 0x1F7011641)
