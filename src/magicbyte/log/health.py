"""Whether a log directory may still be written: the first failure of its disk ends that, for all of its logs."""

from __future__ import annotations

from types import TracebackType

from magicbyte.errors import LogDirectoryOfflineError


class Health:
    """Shared by the logs of one directory. As a context: an OSError inside takes the directory offline.

    Entering, and an error inside, raise LogDirectoryOfflineError: whatever was under way is not to be acknowledged,
    because after a failed write or sync nobody knows what the disk holds.
    """

    __slots__ = ("error", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.error: OSError | None = None

    def __enter__(self) -> None:
        if self.error is not None:
            raise LogDirectoryOfflineError(f"{self.path}: offline since {self.error}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if isinstance(error, OSError):
            self.error = self.error or error
            raise LogDirectoryOfflineError(f"{self.path}: taken offline by {error}") from error
