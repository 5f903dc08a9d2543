"""What functions that run in Spark's Python workers do before and after their work: kernels, descriptors, garbage."""

from __future__ import annotations

import gc

from magicbyte.compiled import kernel
from magicbyte.net.descriptors import raise_limit

_so_far = 0


def so_far() -> int:
    """Return how many bytes of records were announced in this worker process, in all its tasks."""
    return _so_far


def expect_bytes(size: int) -> None:
    """Have this worker ready for `size` bytes of records: before each piece of work.

    The kernels are loaded if that is much, or it had as much in small pieces. Its limit of descriptors is raised.
    """
    global _so_far
    raise_limit()
    _so_far += size
    kernel.expect(_so_far)


_frozen: bool | None = None  # whether kernels were loaded when it was done last


def settle() -> None:
    """Put all that is loaded now out of the garbage collector's sight: once in a process, and again with the kernels.

    For the end of functions that read logs in Spark's Python workers; the data source does it itself. A worker collects
    garbage after each task, and with all of Numba in sight that takes 20 to 100 ms, as long as reading 100 MB.
    """
    global _frozen
    loaded = kernel.worth_compiling(kernel.WORTH_CALLING)
    if _frozen is not loaded:
        gc.collect()
        gc.freeze()
        _frozen = loaded
