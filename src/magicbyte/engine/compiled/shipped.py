"""Machine code of all kernels that comes with the package, so that no compiler is needed.

A wheel has a shared object for each processor level, made by `tools/images.py`. Its functions are those of an image
(`image.py`), and ctypes alone loads it. Only files in the package's own folder are used, and only if they were made of
the kernels there: their names end in a digest of the sources. A clone has none. A file ends in a checksum, which
loaders ignore, because the system ends a process that maps a truncated shared object.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from magicbyte.engine.compiled import image


class Level(NamedTuple):
    """Processors that can run the same machine code."""

    name: str
    machine: str
    """The name of `uname -m`."""
    needs: frozenset[str]
    """The flags that /proc/cpuinfo must list."""
    cpu: str
    """LLVM's name of the processor."""
    features: str
    """Additional features that LLVM may use."""
    carry_less: int
    """The number of 128-bit lanes of its carry-less multiplication."""


_V2 = frozenset(["cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3", "pclmulqdq"])
_V3 = _V2 | frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "vpclmulqdq"])

LEVELS: Final = (
    Level("x86-64-v4", "x86_64", _V4, "x86-64-v4", "+pclmul,+vpclmulqdq", 4),
    Level("x86-64-v3", "x86_64", _V3, "x86-64-v3", "+pclmul", 1),
    Level("x86-64-v2", "x86_64", _V2, "x86-64-v2", "+pclmul", 1),
    Level("aarch64", "aarch64", frozenset(), "generic", "", 0),
)
"""The levels for which a wheel has code; the fastest first for each machine."""

FOLDER: Final = Path(__file__).parent / "images"

_CHECKSUM: Final = struct.Struct("<I")  # CRC-32 of the shared object, stored after it

made_for: Level | None = None
"""The level for which this process makes code: set by `tools/images.py` only, None for the machine's own."""


def file_name(level: Level) -> str:
    """Return the name of a level's file, which contains the digest of its sources."""
    return f"{level.name}.{sources_digest()}.so"


def symbol(module: str, name: str) -> str:
    """Return the name of a kernel's function in these files."""
    return f"{module}.{name}"


def load(module: str, name: str) -> int | None:
    """Return the address of a kernel's code, or None if none came with the package."""
    code = library()
    if code is None:
        return None
    try:
        return ctypes.cast(code[symbol(module, name)], ctypes.c_void_p).value
    except AttributeError:
        return None


def with_checksum(code: bytes) -> bytes:
    """Return the content of the file for this shared object."""
    return code + _CHECKSUM.pack(zlib.crc32(code))


@cache
def library() -> Any:
    """Return the shipped code for this processor; None if there is none, or none that loads."""
    if not FOLDER.is_dir() or not sys.platform.startswith("linux"):
        return None
    level = next(iter(levels_here()), None)
    if level is None or not image.supported():
        return None
    path = FOLDER / file_name(level)
    try:
        content = path.read_bytes()
        code, checksum = memoryview(content)[: -_CHECKSUM.size], content[-_CHECKSUM.size :]
        return ctypes.CDLL(str(path)) if checksum == _CHECKSUM.pack(zlib.crc32(code)) else None
    except OSError:  # no file for these sources, or a file system mounted noexec
        return None


def levels_here() -> list[Level]:
    """Return the levels whose code this processor runs, the fastest first."""
    import platform

    machine, flags = platform.machine(), processor_flags()
    return [level for level in LEVELS if level.machine == machine and level.needs <= flags]


def processor_flags() -> frozenset[str]:
    """Return the processor's flags as the system lists them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == "flags":
                    return frozenset(value.split())
    except OSError:  # no /proc: no flags are known
        pass
    return frozenset()


@cache
def sources_digest() -> str:
    """Return a digest of all sources on which machine code depends: of every kernel, and of the code that compiles
    it.
    """
    import hashlib  # imported here because small commands do not need it, and it takes 7 ms

    digest = hashlib.blake2b(digest_size=8)
    package = Path(__file__).parent.parent
    kernels = [*package.rglob("*kernels.py"), *package.rglob("kernels/*.py")]
    for source in sorted([*package.glob("compiled/*.py"), package / "records/layout.py", *kernels]):
        digest.update(source.read_bytes())
    return digest.hexdigest()
