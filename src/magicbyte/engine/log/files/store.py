"""A folder in an object store such as `s3://`: objects are put whole and read, without renames or locks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.filesystem import remote_of, store_errors

if TYPE_CHECKING:
    from pathlib import Path

_AT_ONCE = 1000
"""Names in one delete request: the maximum of S3."""


class ObjectStore(Struct, frozen=True):
    """The objects below a URL that fsspec opens. Names are relative to it. Errors are OSErrors. It can be pickled."""

    url: str

    @property
    def _remote(self) -> Any:
        return remote_of(self.url)  # fsspec keeps one instance for each store

    def path(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self.url}/{name}"

    def put_once(self, name: str, content: bytes) -> bool:
        """Put an object if none has this name; return whether this call created it.

        `content` must be unique, for instance by a token. A store may have created the object although it reports an
        existing one, if its first response was lost and the request was repeated. Raises LogDirectoryError if the
        installed package has no conditional put; a store that ignores the condition is not detected.
        """
        try:
            with store_errors(self.url):
                self._remote.pipe_file(self.path(name), content, mode="create")
        except TypeError as error:
            raise LogDirectoryError(f"{self.url}: expected an object store with create-if-absent") from error
        except OSError:  # s3fs raises FileExistsError for some stores, and a failed precondition for others
            try:
                return self.read(name) == content
            except FileNotFoundError:
                pass
            raise
        return True

    def put(self, name: str, content: bytes) -> None:
        """Put an object, replacing an existing one."""
        with store_errors(self.url):
            self._remote.pipe_file(self.path(name), content)

    def upload(self, source: Path, name: str) -> None:
        """Put a local file."""
        with store_errors(self.url):
            self._remote.put_file(str(source), self.path(name))

    def download(self, name: str, target: Path) -> None:
        """Write an object to a local file."""
        with store_errors(self.url):
            self._remote.get_file(self.path(name), str(target))

    def read(self, name: str) -> bytes:
        """Return the current content of an object. Raises FileNotFoundError."""
        with store_errors(self.url):
            return bytes(self._remote.cat_file(self.path(name)))

    def read_all(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return objects by name, concurrently if the store's package can."""
        paths = {self._remote._strip_protocol(self.path(name)): name for name in names}
        if not paths:
            return {}
        with store_errors(self.url):
            found = self._remote.cat(list(paths))
        return {paths[self._remote._strip_protocol(path)]: bytes(content) for path, content in found.items()}

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return all current objects below a folder, with their sizes in bytes."""
        remote = self._remote
        remote.invalidate_cache()
        own = remote._strip_protocol(self.url).rstrip("/") + "/"
        with store_errors(self.url):
            found = remote.find(self.path(folder).rstrip("/"), detail=True)
        return {name.removeprefix(own): int(info["size"]) for name, info in found.items() if name.startswith(own)}

    def remove(self, names: Iterable[str]) -> None:
        """Delete objects; missing ones are ignored."""
        paths = [self.path(name) for name in names]
        for at in range(0, len(paths), _AT_ONCE):
            with contextlib.suppress(FileNotFoundError), store_errors(self.url):
                self._remote.rm(paths[at : at + _AT_ONCE])
