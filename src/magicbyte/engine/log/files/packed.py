"""Read compressed files up to damage in them."""

from __future__ import annotations

import errno
import gzip
import io
import zlib
from typing import IO, TYPE_CHECKING, BinaryIO, Final, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_DAMAGES: Final = (zlib.error, EOFError, ValueError, OSError)


class UpToDamage(io.RawIOBase):
    """The content of a packed file up to damage, which `damage` holds. `damages`: the errors of its library for it.

    A read that fails raises OSError: one with a number.
    """

    def __init__(self, file: gzip.GzipFile | io.BufferedReader, damages: tuple[type[Exception], ...]) -> None:
        self._file, self._damages = file, damages
        self.damage: Exception | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the start of `buffer`. Return the number of bytes, 0 at the end or at damage."""
        if self.damage is not None:
            return 0
        try:
            piece = self._file.read1(len(memoryview(buffer)))  # one step, so that bytes before the damage are returned
        except self._damages as error:
            if not is_damage(error):
                raise
            self.damage = error
            return 0
        memoryview(buffer)[: len(piece)] = piece
        return len(piece)


def is_damage(error: Exception) -> bool:
    """Return whether an error is damage: OSErrors of gzip and bz2 have no errno, bad seeks of zipfile have EINVAL."""
    return not isinstance(error, OSError) or error.errno in (None, errno.EINVAL)


def gunzipped(file: IO[bytes], damages: tuple[type[Exception], ...] = GZIP_DAMAGES) -> tuple[BinaryIO, UpToDamage]:
    """Return the content of a gzip file up to damage, and the object that stores the damage.

    `damages`: errors that mean damage, of gzip and of what `file` is taken from.
    """
    packed = UpToDamage(gzip.GzipFile(fileobj=file), damages)
    return cast("BinaryIO", io.BufferedReader(packed)), packed
