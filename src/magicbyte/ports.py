"""The outside world as small interfaces. What lies behind them is real, or simulated by a test.

Today the reading half of FileSystem; `log/files.py` has the local one and the one of fsspec URLs.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What a directory says of one thing in it. `size` is in bytes, 0 for a directory."""

    path: str
    size: int
    is_directory: bool

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]


class ReadableFile(Protocol):
    """An open file, read by ranges, from any number of threads at once. Nothing remembers a position."""

    @property
    def path(self) -> str:
        """Where the file is, for messages."""

    @property
    def size(self) -> int:
        """Bytes in the file when it was opened."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`, fewer only where the file ends."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at `position`; return how many there were, fewer only where the file ends."""

    def close(self) -> None:
        """Give back what the open file holds."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class FileSystem(Protocol):
    """A tree of files. Paths are whole: what `list` gives goes into every other call. Errors are OSErrors."""

    def list(self, path: str) -> list[FileEntry]:
        """Return what the directory `path` holds, by name."""

    def entry(self, path: str) -> FileEntry:
        """Return what is at `path`."""

    def open(self, path: str) -> ReadableFile:
        """Open the file at `path` for reading."""
