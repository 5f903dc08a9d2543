"""The health of a log directory: the first I/O error takes it offline, with all of its logs."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import TracebackType
from typing import Final

from magicbyte.engine.errors import LogDirectoryOfflineError
from magicbyte.engine.printable import logger

log = logger(__name__)

_ADVICE: Final = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "raise the quota, or free some space",
    errno.EROFS: "mount it writable",
    errno.EACCES: "give this user write permission there",
    errno.EPERM: "give this user write permission there",
    errno.ENOENT: "restore the files that were removed while the broker ran",
    errno.EIO: "check the disk; the system log has details",
}


class Health:
    """The state shared by the logs of one directory. As a context manager: an OSError inside takes the directory
    offline.

    Entering it while offline, and an error inside, raise LogDirectoryOfflineError: the operation must not be
    acknowledged, because after a failed write or sync the content of the disk is unknown. `before_change` is called on
    entering; it may raise an error to prevent the change, which takes nothing offline. Without `tells` no line is
    logged.
    """

    __slots__ = ("before_change", "error", "path", "tells")

    def __init__(self, path: str, *, tells: bool = True) -> None:
        self.path, self.tells = path, tells
        self.before_change: Callable[[], None] = lambda: None
        self.error: OSError | None = None

    def fail(self, error: OSError) -> None:
        """Take the directory offline, and log one line with the reason: all later failures follow from it."""
        if self.error is not None:
            return
        self.error = error
        if not self.tells:
            return
        name = errno.errorcode.get(error.errno or 0, "no errno")
        log.critical(
            "log directory %s is offline: %s (%s)%s; nothing in it is read or written from now on. "
            "What to do: %s, then start again",
            self.path,
            error.strerror or error,
            name,
            "" if error.filename is None else f", at {error.filename}",
            _ADVICE.get(error.errno or 0, "check the system log for errors of the disk"),
        )

    def __enter__(self) -> None:
        if self.error is not None:
            raise LogDirectoryOfflineError(f"{self.path}: offline since {self.error}")
        self.before_change()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if isinstance(error, OSError):
            self.fail(error)
            raise LogDirectoryOfflineError(f"{self.path}: taken offline by {error}") from error
