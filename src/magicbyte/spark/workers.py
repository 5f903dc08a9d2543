"""Prepare Spark's Python workers before and after their work: kernels, file descriptors, garbage collection."""

from __future__ import annotations

import gc

from magicbyte.access.net.descriptors import raise_limit
from magicbyte.engine.compiled import kernel

_so_far = 0


def announced_bytes() -> int:
    """Return the bytes of records announced in this worker process so far, over all its tasks."""
    return _so_far


def expect_bytes(size: int) -> None:
    """Prepare this worker for `size` bytes of records. Call it before each piece of work.

    Loads the kernels once the total of all pieces is large enough, and raises the limit of open files.
    """
    global _so_far
    raise_limit()
    _so_far += size
    kernel.expect(_so_far)


_frozen: bool | None = None  # whether the kernels were loaded at the last freeze


def settle() -> None:
    """Hide all loaded objects from the garbage collector: once per process, and again once the kernels are loaded.

    Call it at the end of functions that read logs in Spark's Python workers; the data source does so itself. A worker
    collects garbage after each task, and with Numba's objects that takes 20 to 100 ms, as long as reading 100 MB.
    """
    global _frozen
    loaded = kernel.worth_compiling(kernel.WORTH_CALLING)
    if _frozen is not loaded:
        gc.collect()
        gc.freeze()
        _frozen = loaded
