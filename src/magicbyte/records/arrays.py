"""The form of the compiled kernels' inputs and outputs: numpy arrays. Apart from forms.py, as it needs numpy."""

from __future__ import annotations

import weakref
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np

from magicbyte.compiled.checksums import crc_table
from magicbyte.compiled.kernel import Kernel

_ITEM_SIZE = {"q": 8, "i": 4, "b": 1, "B": 1}
_KEPT = 96 << 20  # bytes of memory that may wait for their next use
_UINT8, _INT64 = np.dtype(np.uint8), np.dtype(np.int64)
_idle: defaultdict[int, list[bytearray]] = defaultdict(list)  # by size


def arena(size: int) -> Any:
    """Return an array of at least `size` bytes with anything in it, from memory that was used before where possible.

    Fresh memory of the system costs more to page in than the kernels take to fill it. When the last array or Arrow
    buffer that refers to an arena is gone, in whatever thread, its memory waits here for the next one.
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
    """Return what `buffer` holds of a numpy type at each of its positions from `start` on, as a view: item i at byte i.

    So the headers of many entries, which lie anywhere, are one index operation. Bytes are of the type `V` and a length.
    """
    items = len(buffer) - start - np.dtype(kind).itemsize + 1
    return np.ndarray(max(items, 0), kind, buffer, start, (1,))


class Arrays:
    """Inputs and outputs of the compiled kernels: numpy arrays."""

    @staticmethod
    def form(kernel: Kernel) -> Any:
        """Return what to call."""
        return kernel

    @staticmethod
    def bytes_of(source: Any) -> Any:
        """Return `source` as bytes to read."""
        return np.frombuffer(source, _UINT8)

    @staticmethod
    def int64(values: Any) -> Any:
        """Return integers for an argument of type Int64s; not copied if they are in that form already."""
        return np.ascontiguousarray(values, np.int64)

    @staticmethod
    def zeros(count: int) -> Any:
        """Return zeros for an argument of type Int64s."""
        return np.zeros(count, _INT64)

    @staticmethod
    def int32(values: Any) -> Any:
        """As `int64`, for Int32s."""
        return np.ascontiguousarray(values, np.int32)

    @staticmethod
    def int8(values: Any) -> Any:
        """As `int64`, for Int8s."""
        return np.ascontiguousarray(values, np.int8)

    @staticmethod
    def sum(values: Any) -> int:
        """Return the sum of integers in this form."""
        return int(values.sum(dtype="q"))

    @staticmethod
    def outputs(wanted: list[tuple[int, str]]) -> list[Any]:
        """Return arrays of (count, type code), not cleared: parts of one arena."""
        places, size = [], 0
        for count, code in wanted:
            places.append(size)
            size += -(-count * _ITEM_SIZE[code] // 64) * 64
        room = arena(size)
        return [np.ndarray(count, code, room, at) for (count, code), at in zip(wanted, places, strict=True)]

    @staticmethod
    @cache
    def crc_table(polynomial: int) -> Any:
        """Return what the kernels that compute a CRC want as `table`."""
        return np.array(crc_table(polynomial), np.int32)
