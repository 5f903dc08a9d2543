"""The machine bodies of primitives do what their Python bodies do."""

from __future__ import annotations

import numpy as np
import pytest

from magicbyte.wire.kernel import Bytes, MutableBytes, kernel
from magicbyte.wire.primitives import copy_bytes


@kernel
def copy(out: MutableBytes, to: int, data: Bytes, at: int, size: int) -> int:
    copy_bytes(out, to, data, at, size)
    return to + size


@pytest.mark.parametrize("spare", [0, 1, 31, 32, 40], ids=lambda spare: f"{spare} bytes behind it")
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
