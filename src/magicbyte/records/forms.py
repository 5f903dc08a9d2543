"""The two forms in which kernels run: plain twins take lists, machine code takes numpy arrays.

Both have the same methods, so that callers of kernels need one version only.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from magicbyte.compiled.kernel import Kernel

if TYPE_CHECKING:
    from magicbyte.records.arrays import Arrays


class Lists:
    """Inputs and outputs of the plain twins: lists, and anything with bytes in it."""

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
        """Return the `table` argument of kernels that compute a CRC."""
        return ()


Form = type[Lists] | type["Arrays"]


def form_for(*, compiled: bool) -> Form:
    """Return the form to use."""
    return _arrays() if compiled else Lists


@cache
def _arrays() -> type[Arrays]:
    from magicbyte.records.arrays import Arrays  # which needs numpy

    return Arrays
