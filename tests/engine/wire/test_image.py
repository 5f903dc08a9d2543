"""Machine code that was kept as a file does what the kernel does, and needs no Numba."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from magicbyte.engine.compiled import image
from magicbyte.engine.compiled.kernel import Bytes, Int64s, MutableBytes, kernel

pytestmark = pytest.mark.skipif(not image.supported(), reason="images are for Linux")

PROGRAM = """
import sys
import numpy as np
from magicbyte.engine.records.kernels.batches import skip_headers
print(skip_headers(np.frombuffer(bytes([2, 97, 4, 98, 99, 2, 100, 1]), np.uint8), 0, 8, 2), "numba" in sys.modules)
"""


def run(cache: Path) -> str:
    environment = {"MAGICBYTE_CACHE_DIR": str(cache), "PYTHONPATH": ":".join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_second_process_loads_the_code_without_numba_and_makes_a_damaged_image_again(tmp_path: Path) -> None:
    assert run(tmp_path) == "8 True"
    assert run(tmp_path) == "8 False"
    (made,) = tmp_path.glob("*/*.skip_headers.*.o")
    content = bytearray(made.read_bytes())
    content[len(content) // 2] ^= 1
    made.write_bytes(content)
    assert run(tmp_path) == "8 True"
    assert run(tmp_path) == "8 False"
    made.write_bytes(b"")
    assert run(tmp_path) == "8 True"


@kernel
def first_and_sum(data: Bytes, add: int, out: MutableBytes, sums: Int64s) -> tuple[int, int]:
    total = add
    for i in range(len(data)):
        total += data[i]
        out[i] = data[i]
    sums[0] = total
    return data[0], total


def test_results_and_arrays_come_back() -> None:
    data, out, sums = np.arange(1, 10, dtype=np.uint8), np.zeros(9, np.uint8), np.zeros(1, np.int64)
    assert isinstance(first_and_sum.compiled(), image.Image)
    assert first_and_sum(data, -(1 << 62), out, sums) == (1, 45 - (1 << 62))
    assert out.tolist() == data.tolist()
    assert sums.tolist() == [45 - (1 << 62)]


BYTES, LONGS = np.zeros(4, np.uint8), np.zeros(4, np.int64)
READ_ONLY = np.frombuffer(b"read", np.uint8)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((LONGS, 0, BYTES, LONGS), id="another type"),
        pytest.param((BYTES.reshape(2, 2), 0, BYTES, LONGS), id="two dimensions"),
        pytest.param((BYTES[::2], 0, BYTES, LONGS), id="not contiguous"),
        pytest.param((BYTES, 0, READ_ONLY, LONGS), id="not to be written to"),
        pytest.param((BYTES, 0, BYTES, LONGS[::2]), id="not contiguous, written to"),
    ],
)
def test_arrays_of_another_kind_are_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        first_and_sum(*arguments)
