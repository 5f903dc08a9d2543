"""A folder in a store of objects, `s3://` and its like: things are put whole and read; nothing is renamed or locked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magicbyte.errors import LogDirectoryError
from magicbyte.log.files.filesystem import remote_of, store_errors

if TYPE_CHECKING:
    from pathlib import Path

_AT_ONCE = 1000
"""Names of one request to remove them: what S3 takes."""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """What lies below a URL that fsspec opens. Names are relative to it. Errors are OSErrors. May be pickled."""

    url: str

    @property
    def _remote(self) -> Any:
        return remote_of(self.url)  # fsspec keeps one for each store

    def path(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self.url}/{name}"

    def put_once(self, name: str, content: bytes) -> bool:
        """Put an object where none is; say whether it was this call that did.

        `content` is nobody else's: has a token of its own, say. For a store may have put it though it says that there
        was one, when its first answer was lost and the request came again. Raises LogDirectoryError where the installed
        package cannot put an object only where none is; a store that pays no attention to that is not noticed here.
        """
        try:
            with store_errors(self.url):
                self._remote.pipe_file(self.path(name), content, mode="create")
        except TypeError as error:
            raise LogDirectoryError(f"{self.url}: expected an object store with create-if-absent") from error
        except OSError:  # s3fs says FileExistsError of some stores, of others that a condition does not hold
            try:
                return self.read(name) == content
            except FileNotFoundError:
                pass
            raise
        return True

    def put(self, name: str, content: bytes) -> None:
        """Put an object, in place of the one that has the name."""
        with store_errors(self.url):
            self._remote.pipe_file(self.path(name), content)

    def upload(self, source: Path, name: str) -> None:
        """Put a file of this machine."""
        with store_errors(self.url):
            self._remote.put_file(str(source), self.path(name))

    def download(self, name: str, target: Path) -> None:
        """Write an object to a file of this machine."""
        with store_errors(self.url):
            self._remote.get_file(self.path(name), str(target))

    def read(self, name: str) -> bytes:
        """Return an object as it is now. Raises FileNotFoundError."""
        with store_errors(self.url):
            return bytes(self._remote.cat_file(self.path(name)))

    def read_all(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return objects by their names; many at once, where the store's package can."""
        paths = {self._remote._strip_protocol(self.path(name)): name for name in names}
        if not paths:
            return {}
        with store_errors(self.url):
            found = self._remote.cat(list(paths))
        return {paths[self._remote._strip_protocol(path)]: bytes(content) for path, content in found.items()}

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return all objects below a folder, as they are now, with their sizes in bytes."""
        remote = self._remote
        remote.invalidate_cache()
        own = remote._strip_protocol(self.url).rstrip("/") + "/"
        with store_errors(self.url):
            found = remote.find(self.path(folder).rstrip("/"), detail=True)
        return {name.removeprefix(own): int(info["size"]) for name, info in found.items() if name.startswith(own)}

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; one that is gone already is no error."""
        paths = [self.path(name) for name in names]
        for at in range(0, len(paths), _AT_ONCE):
            with contextlib.suppress(FileNotFoundError), store_errors(self.url):
                self._remote.rm(paths[at : at + _AT_ONCE])
