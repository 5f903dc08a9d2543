"""The two forms in which kernels run: plain twins take lists, machine code takes numpy arrays.

Both have the same methods, so that whoever calls kernels is written once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from magicbyte.wire.kernel import Kernel
from magicbyte.wire.primitives import crc32_table


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
    def sum(values: list[int]) -> int:
        """Return the sum of integers in this form."""
        return sum(values)

    @staticmethod
    def outputs(wanted: list[tuple[int, str]]) -> list[Any]:
        """Return room for (count, type code): lists of zeros, and a bytearray for code B."""
        return [bytearray(count) if code == "B" else [0] * count for count, code in wanted]

    @staticmethod
    def crc_table() -> Any:
        """Return what the kernels that compute a CRC-32 want as `table`."""
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
        """Return arrays of (count, type code), not cleared. One allocation: several large ones are paged in anew."""
        import numpy as np

        sizes = [-(-count * np.dtype(code).itemsize // 64) * 64 for count, code in wanted]
        arena, at, arrays = np.empty(sum(sizes), np.uint8), 0, []
        for (count, code), size in zip(wanted, sizes, strict=True):
            arrays.append(arena[at : at + count * np.dtype(code).itemsize].view(code))
            at += size
        return arrays

    @staticmethod
    @cache
    def crc_table() -> Any:
        """Return what the kernels that compute a CRC-32 want as `table`."""
        import numpy as np

        return np.array(crc32_table(), np.int32)


Form = type[Lists] | type[Arrays]


def form_for(*, compiled: bool) -> Form:
    """Return the form to use."""
    return Arrays if compiled else Lists
