"""NumPy arrays as inputs and outputs of the compiled kernels. Separate from forms.py, which must not import NumPy."""

from __future__ import annotations

import weakref
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np

from magicbyte.engine.compiled.checksums import crc_table
from magicbyte.engine.compiled.kernel import Kernel

_ITEM_SIZE = {"q": 8, "i": 4, "b": 1, "B": 1}
_KEPT = 96 << 20  # the most bytes of free memory kept for reuse
_UINT8, _INT64 = np.dtype(np.uint8), np.dtype(np.int64)
_idle: defaultdict[int, list[bytearray]] = defaultdict(list)  # by size


def arena(size: int) -> Any:
    """Return an uninitialized array of at least `size` bytes, reusing memory where possible.

    Page faults of new memory cost more than the kernels need to fill it. When the last array or Arrow buffer that
    refers to an arena is released, in any thread, its memory returns to the free list.
    """
    room = 1 << max(size - 1, 0xFFF).bit_length()
    try:
        memory = _idle[room].pop()
    except IndexError:
        memory = bytearray(room)
    found = np.frombuffer(memory, np.uint8)
    weakref.finalize(found, _give_back, memory).atexit = False
    return found


def _give_back(memory: bytearray) -> None:
    if sum(room * len(waiting) for room, waiting in list(_idle.items())) + len(memory) <= _KEPT:
        _idle[len(memory)].append(memory)


def at_each_byte(buffer: Any, kind: str, start: int = 0) -> Any:
    """Return a view whose item i is the value of NumPy type `kind` at byte `start` + i of `buffer`.

    With this view, one index operation gathers the headers of many entries at arbitrary positions. For byte strings,
    `kind` is `V` and a length.
    """
    items = len(buffer) - start - np.dtype(kind).itemsize + 1
    return np.ndarray(max(items, 0), kind, buffer, start, (1,))


class Arrays:
    """Inputs and outputs of the compiled kernels: numpy arrays."""

    @staticmethod
    def form(kernel: Kernel) -> Any:
        """Return the callable form of a kernel."""
        return kernel

    @staticmethod
    def bytes_of(source: Any) -> Any:
        """Return `source` as bytes to read."""
        return np.frombuffer(source, _UINT8)

    @staticmethod
    def int64(values: Any) -> Any:
        """Return values as an Int64s argument, without a copy if they are an int64 array already."""
        return np.ascontiguousarray(values, np.int64)

    @staticmethod
    def zeros(count: int) -> Any:
        """Return `count` zeros as an Int64s argument."""
        return np.zeros(count, _INT64)

    @staticmethod
    def int32(values: Any) -> Any:
        """Return values as an Int32s argument, as `int64` does."""
        return np.ascontiguousarray(values, np.int32)

    @staticmethod
    def int8(values: Any) -> Any:
        """Return values as an Int8s argument, as `int64` does."""
        return np.ascontiguousarray(values, np.int8)

    @staticmethod
    def sum(values: Any) -> int:
        """Return the sum of an array."""
        return int(values.sum(dtype="q"))

    @staticmethod
    def outputs(wanted: list[tuple[int, str]]) -> list[Any]:
        """Return one uninitialized array for each pair of count and type code, all in one arena."""
        places, size = [], 0
        for count, code in wanted:
            places.append(size)
            size += -(-count * _ITEM_SIZE[code] // 64) * 64
        room = arena(size)
        return [np.ndarray(count, code, room, at) for (count, code), at in zip(wanted, places, strict=True)]

    @staticmethod
    @cache
    def crc_table(polynomial: int) -> Any:
        """Return the `table` argument of kernels that compute a CRC."""
        return np.array(crc_table(polynomial), np.int32)
