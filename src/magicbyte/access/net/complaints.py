"""Rate-limited log lines about peers: few of each kind for each address, and the number of suppressed ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from magicbyte.access.clock import monotonic_s
from magicbyte.engine.printable import logger

BURST: Final = 10  # lines of one kind about one address in a window
WINDOW_S: Final = 60.0
MOST_ADDRESSES: Final = 100  # distinguished in a window; all further ones count as one
_OTHERS: Final = "other addresses"

log = logger(__name__)


class _Window:
    __slots__ = ("begun", "count")

    def __init__(self, begun: float) -> None:
        self.begun, self.count = begun, 0


class Complaints:
    """A limit on lines about peers. `now`: monotonic seconds."""

    def __init__(self, now: Callable[[], float] = monotonic_s) -> None:
        self._now = now
        self._windows: dict[tuple[str, str], _Window] = {}  # by kind and address, the oldest first

    def line(
        self,
        logger: logging.Logger,
        host: str,
        kind: str,
        message: str,
        *arguments: object,
        level: int = logging.WARNING,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Log a line about `host`, unless it had `BURST` of this kind within the window. `kind` is one of a few."""
        if not logger.isEnabledFor(level):
            return
        self.flush()
        window = self._windows.get((kind, host))
        if window is None:
            key = (kind, host if len(self._windows) < MOST_ADDRESSES else _OTHERS)
            window = self._windows.get(key)
            if window is None:
                window = self._windows[key] = _Window(self._now())
        window.count += 1
        if window.count <= BURST:
            logger.log(level, message, *arguments, extra=extra)

    def flush(self) -> None:
        """Log how many lines were suppressed in completed windows."""
        now = self._now()
        while self._windows:
            key = next(iter(self._windows))
            window = self._windows[key]
            if now - window.begun < WINDOW_S:
                return
            del self._windows[key]
            if (left_out := window.count - BURST) > 0:
                kind, host = key
                log.warning("%s: %d similar lines suppressed (%s)", host, left_out, kind)
