"""The two forms in which kernels run: plain twins take lists, machine code takes numpy arrays.

Both have the same methods, so that whoever calls kernels is written once.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from functools import cache
from typing import Any

from magicbyte.wire.kernel import Kernel
from magicbyte.wire.primitives import crc_table

_ITEM_SIZE = {"q": 8, "i": 4, "b": 1, "B": 1}
_KEPT = 96 << 20  # bytes of memory that may wait for their next use
_idle: defaultdict[int, list[bytearray]] = defaultdict(list)  # by size


def _arena(size: int) -> Any:
    """Return an array of at least `size` bytes with anything in it, from memory that was used before where possible.

    Fresh memory of the system costs more to page in than the kernels take to fill it. When the last array or Arrow
    buffer that refers to an arena is gone, in whatever thread, its memory waits here for the next one.
    """
    import numpy as np

    room = 1 << max(size - 1, 0xFFF).bit_length()
    try:
        memory = _idle[room].pop()
    except IndexError:
        memory = bytearray(room)
    arena = np.frombuffer(memory, np.uint8)
    weakref.finalize(arena, _give_back, memory).atexit = False
    return arena


def _give_back(memory: bytearray) -> None:
    if sum(room * len(waiting) for room, waiting in list(_idle.items())) + len(memory) <= _KEPT:
        _idle[len(memory)].append(memory)


class Lists:
    """Inputs and outputs of the plain twins: lists, and anything with bytes in it."""

    @staticmethod
    def form(kernel: Kernel) -> Any:
        """Return what to call."""
        return kernel.py_func

    @staticmethod
    def bytes_of(source: Any) -> Any:
        """Return `source` as bytes to read."""
        return memoryview(source)

    @staticmethod
    def int64(values: Any) -> Any:
        """Return integers for an argument of type Int64s; not copied if they are in that form already."""
        return values if isinstance(values, list) else values.tolist()

    int32 = int8 = int64

    @staticmethod
    def zeros(count: int) -> Any:
        """Return zeros for an argument of type Int64s."""
        return [0] * count

    @staticmethod
    def sum(values: list[int]) -> int:
        """Return the sum of integers in this form."""
        return sum(values)

    @staticmethod
    def outputs(wanted: list[tuple[int, str]]) -> list[Any]:
        """Return room for (count, type code): lists of zeros, and a bytearray for code B."""
        return [bytearray(count) if code == "B" else [0] * count for count, code in wanted]

    @staticmethod
    def crc_table(_polynomial: int) -> Any:
        """Return what the kernels that compute a CRC want as `table`."""
        return ()


class Arrays:
    """Inputs and outputs of the compiled kernels: numpy arrays."""

    @staticmethod
    def form(kernel: Kernel) -> Any:
        """Return what to call."""
        return kernel

    @staticmethod
    def bytes_of(source: Any) -> Any:
        """Return `source` as bytes to read."""
        import numpy as np

        return np.frombuffer(source, np.uint8)

    @staticmethod
    def int64(values: Any) -> Any:
        """Return integers for an argument of type Int64s; not copied if they are in that form already."""
        import numpy as np

        return np.ascontiguousarray(values, np.int64)

    @staticmethod
    def zeros(count: int) -> Any:
        """Return zeros for an argument of type Int64s."""
        import numpy as np

        return np.zeros(count, np.int64)

    @staticmethod
    def int32(values: Any) -> Any:
        """As `int64`, for Int32s."""
        import numpy as np

        return np.ascontiguousarray(values, np.int32)

    @staticmethod
    def int8(values: Any) -> Any:
        """As `int64`, for Int8s."""
        import numpy as np

        return np.ascontiguousarray(values, np.int8)

    @staticmethod
    def sum(values: Any) -> int:
        """Return the sum of integers in this form."""
        return int(values.sum(dtype="q"))

    @staticmethod
    def outputs(wanted: list[tuple[int, str]]) -> list[Any]:
        """Return arrays of (count, type code), not cleared: parts of one arena."""
        import numpy as np

        places, size = [], 0
        for count, code in wanted:
            places.append(size)
            size += -(-count * _ITEM_SIZE[code] // 64) * 64
        arena = _arena(size)
        return [np.ndarray(count, code, arena, at) for (count, code), at in zip(wanted, places, strict=True)]

    @staticmethod
    @cache
    def crc_table(polynomial: int) -> Any:
        """Return what the kernels that compute a CRC want as `table`."""
        import numpy as np

        return np.array(crc_table(polynomial), np.int32)


Form = type[Lists] | type[Arrays]


def form_for(*, compiled: bool) -> Form:
    """Return the form to use."""
    return Arrays if compiled else Lists
