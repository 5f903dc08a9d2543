"""The three checksums of Kafka's formats, each from the fastest available library."""

import zlib
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any, Protocol, TypeAlias

import xxhash as _xxhash

Buffer: TypeAlias = bytes | bytearray | memoryview

try:  # twice as fast where it has wheels
    from isal.isal_zlib import crc32 as _crc32
except ImportError:  # pragma: no cover
    _crc32 = zlib.crc32


class Crc(Protocol):
    """Compute the CRC of `data`, or continue the CRC `value` of a prefix over `data`."""

    def __call__(self, data: Buffer, value: int = 0, /) -> int:
        """Return the CRC."""


def _crc32c_library() -> Any:
    """Return the extension module of the package crc32c.

    The package itself imports `importlib.metadata` and `argparse`, which takes longer than all of this room.
    """
    package = PathFinder.find_spec("crc32c")
    found = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if not found or not found.loader or (module := found.loader.create_module(found)) is None:
        import crc32c as whole_package  # of another form, or not in a folder

        return whole_package
    found.loader.exec_module(module)
    return module


crc32: Crc = _crc32
"""CRC-32 (IEEE, zlib), of magic 0, magic 1 and enriched messages."""

crc32c: Crc = _crc32c_library().crc32c
"""CRC-32C (Castagnoli), of record batches and producer snapshots."""

xxh32: Callable[[Buffer], int] = _xxhash.xxh32_intdigest
"""XXH32 with seed 0, of LZ4 frames."""

xxh3_64: Callable[[Buffer], int] = _xxhash.xxh3_64_intdigest
"""XXH3 of 64 bits with seed 0, of the topics of consumer groups."""
