"""Says what decoding gives for any bytes, so that the forms of the kernels can be compared.

As a program it prints a digest of that for each input of the corpus: tests run it with NUMBA_BOUNDSCHECK=1.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from fuzz import targets
from magicbyte.engine.records.decode import DecodeOptions
from magicbyte.engine.records.layout import Dialect

CORPUS = Path(__file__).parent / "corpus.zip"
LOGS = ("decode", "reader", "scan", "views", "anatomy")  # targets whose inputs are one byte of flags and a log


@functools.cache
def stored() -> tuple[tuple[str, bytes], ...]:
    """Target and content of all inputs that fuzzing kept, unpacked once a process."""
    with zipfile.ZipFile(CORPUS) as archive:
        return tuple((name.partition("/")[0], archive.read(name)) for name in archive.namelist())


def corpus(*names: str) -> Iterator[tuple[str, bytes]]:
    """Yield target and content of the inputs that fuzzing kept, of the given targets or of all."""
    return ((target, content) for target, content in stored() if not names or target in names)


@contextlib.contextmanager
def kernels(form: str) -> Iterator[None]:
    """Make everything inside use the `plain` or the `compiled` form of the kernels."""
    before = os.environ.get("MAGICBYTE_KERNELS")
    os.environ["MAGICBYTE_KERNELS"] = form
    try:
        yield
    finally:
        del os.environ["MAGICBYTE_KERNELS"]
        if before is not None:
            os.environ["MAGICBYTE_KERNELS"] = before


def told(error: Exception | None) -> str:
    """Return an error's text, but not what the zstd library says: that depends on the room it had."""
    return str(error).partition("found zstd")[0]


def outcome(log: bytes, options: DecodeOptions, dialect: Dialect) -> tuple[object, str, object]:
    """Return the records, and what ended the decoding with its position."""
    records, error = targets.decoded(log, options, dialect)
    return [tuple(record) for record in records], told(error), getattr(error, "position", None)


def assert_agreement(log: bytes, options: DecodeOptions, dialect: Dialect) -> None:
    """Fail unless twins and compiled kernels give the same, referring and packed."""
    with kernels("plain"):
        plain = outcome(log, options, dialect)
    with kernels("compiled"):
        assert outcome(log, options, dialect) == plain
        assert outcome(log, replace(options, packed=True), dialect) == plain


def digest(data: bytes) -> str:
    """Return a digest of the outcomes for one input, flags and a log: referring and packed."""
    options, dialect = targets.options_of(data[0] if data else 0)
    outcomes = [outcome(data[1:], replace(options, packed=packed), dialect) for packed in (False, True)]
    return hashlib.sha256(repr(outcomes).encode()).hexdigest()[:16]


if __name__ == "__main__":
    for _, content in corpus(*LOGS):
        print(digest(content))
