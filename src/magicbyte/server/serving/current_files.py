"""Reload files that settings name: a renewed certificate or key needs no restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from magicbyte.access.security.settings import file_of, files_named
from magicbyte.engine.errors import InvalidConfigError
from magicbyte.engine.printable import logger
from magicbyte.server.settings.listener_settings import JWKS, is_of_security

if TYPE_CHECKING:
    from magicbyte.server.serving.runtime import Runtime
    from magicbyte.server.settings.config import BrokerConfig
    from magicbyte.server.settings.listeners import Listener

log = logger(__name__)
T = TypeVar("T")

_LOOK_MS: Final = 1000  # between two checks of the files


class CurrentFiles(Generic[T]):
    """The current value of a listener's settings: changed files apply to new authentications and connections."""

    def __init__(self, listener: Listener, runtime: Runtime, read: Callable[[Listener, BrokerConfig], T]) -> None:
        """Read the files. Raises InvalidConfigError."""
        config = runtime.config
        self._listener, self._runtime, self._config, self._read = listener, runtime, config, read
        self._looked_ms: int | None = None
        self._paths = _files_of(listener, config.static)
        self._stamp = self._look()
        self._now = read(listener, config)

    async def now(self) -> T:
        """Return the current value; files are checked once a second at most."""
        now_ms = self._runtime.clock.monotonic_ms()
        if self._paths and (self._looked_ms is None or now_ms - self._looked_ms >= _LOOK_MS):
            self._looked_ms = now_ms
            await self._runtime.reading.run(self._renew)
        return self._now

    def _renew(self) -> None:
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._now = self._read(self._listener, self._config)
        except InvalidConfigError as error:
            log.error("listener %s keeps its former files: %s", self._listener.name, error)  # noqa: TRY400 (not a bug)
        else:
            log.info("listener %s: files were reloaded", self._listener.name)

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_stamp_of(each) for each in self._paths]


def _files_of(listener: Listener, static: Mapping[str, str]) -> list[str]:
    """Return the files in the settings of a listener, including those for all listeners."""
    own = f"listener.name.{listener.name.lower()}."
    shortened = ((name.removeprefix(own), text) for name, text in static.items() if is_of_security(name))
    found = [(name, text) for name, text in shortened if not name.startswith("listener.name.")]
    paths = {text for name, text in found if name in ("ssl.keystore.location", "ssl.truststore.location")}
    paths |= {path for name, text in found if name == JWKS and (path := file_of(text)) is not None}
    return sorted(paths.union(*(files_named(text) for _, text in found)))


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
