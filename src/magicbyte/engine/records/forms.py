"""The two forms in which kernels run: plain twins take lists, machine code takes NumPy arrays.

Both classes have the same methods, so that callers of kernels are written once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from magicbyte.engine.compiled.kernel import Kernel

if TYPE_CHECKING:
    from magicbyte.engine.records.arrays import Arrays


class Lists:
    """Lists, and any buffers, as inputs and outputs of the plain twins."""

    @staticmethod
    def form(kernel: Kernel) -> Any:
        """Return the callable form of a kernel."""
        return kernel.py_func

    @staticmethod
    def bytes_of(source: Any) -> Any:
        """Return `source` as bytes to read."""
        return memoryview(source)

    @staticmethod
    def int64(values: Any) -> Any:
        """Return values as an Int64s argument, without a copy if they are a list already."""
        return values if isinstance(values, list) else values.tolist()

    int32 = int8 = int64

    @staticmethod
    def zeros(count: int) -> Any:
        """Return `count` zeros as an Int64s argument."""
        return [0] * count

    @staticmethod
    def sum(values: list[int]) -> int:
        """Return the sum of integers in this form."""
        return sum(values)

    @staticmethod
    def outputs(wanted: list[tuple[int, str]]) -> list[Any]:
        """Return zeros for each pair of count and type code: lists, and a bytearray for code B."""
        return [bytearray(count) if code == "B" else [0] * count for count, code in wanted]

    @staticmethod
    def crc_table(_polynomial: int) -> Any:
        """Return the `table` argument of kernels that compute a CRC."""
        return ()


Form = type[Lists] | type["Arrays"]


def form_for(*, compiled: bool) -> Form:
    """Return the form for compiled kernels or for plain twins."""
    return _arrays() if compiled else Lists


@cache
def _arrays() -> type[Arrays]:
    from magicbyte.engine.records.arrays import Arrays  # it imports NumPy

    return Arrays
