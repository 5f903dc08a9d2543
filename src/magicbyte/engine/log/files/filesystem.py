"""Files by path: on this machine, or in any store that fsspec knows (`s3://`, `hdfs://`, `memory://` …)."""

import contextlib
import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, Self

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.extras import require
from magicbyte.engine.ports import (
    Buffer,
    FileEntry,
    FileSystem,
    Held,
    Lock,
    ReadableFile,
    WritableFile,
    WritableFileSystem,
)

if TYPE_CHECKING:
    from types import TracebackType

_PIECE_BYTES = 64 << 10
_PIECES_AT_ONCE = 1024  # of one system call: IOV_MAX
_COPIED_BYTES = 1 << 20
_FICLONE = 0x40049409  # Linux's ioctl that lets files share blocks
SMALL_FILE_LIMIT = 64 << 20  # bytes; Kafka's largest small file is an index, of 10 MiB unless configured otherwise


MOST_BYTES: Final = 16 << 20
"""The size limit of a file that an option or setting names, unless it has its own."""

_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
"""Without O_NONBLOCK, opening a FIFO would wait for a writer."""
_NEW_FILE = os.O_CREAT | os.O_EXCL | _FLAGS
_OWNERS = 0o600  # permissions
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def _special(mode: int) -> str | None:
    """Return the kind of file with this mode, if it is neither a regular file nor a directory."""
    return _KINDS.get(stat.S_IFMT(mode))


class SpecialEntry(NamedTuple):
    """An entry of a directory that is neither a file nor a directory. `kind`: for messages, such as "a FIFO"."""

    path: str
    kind: str

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


def _kind_of(path: str) -> str:
    """Return the kind of a special entry."""
    try:
        return _special(os.stat(path).st_mode) or "a file of an unknown kind"  # noqa: PTH116 (no Path in a hot loop)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            return f"a dead link to {os.readlink(path)}"  # noqa: PTH115
        return "an entry that has just gone"


def _not_regular(path: str, kind: str) -> LogDirectoryError:
    return LogDirectoryError(f"{path}: expected a regular file, found {kind}: copy its content to a file first")


def _opened(path: str, flags: int) -> tuple[int, int]:
    """Return descriptor and size of a regular file. Raises LogDirectoryError or IsADirectoryError for others."""
    descriptor = os.open(path, flags | _FLAGS, 0o644)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        return descriptor, status.st_size
    os.close(descriptor)
    if (kind := _special(status.st_mode)) is not None:
        raise _not_regular(path, kind)
    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to be read from its beginning. Raises LogDirectoryError or IsADirectoryError for others."""
    descriptor, _ = _opened(str(path), os.O_RDONLY)
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path | str, *, most: int = MOST_BYTES) -> bytes:
    """Return the content of a file that an option or setting names. Raises as `read_bounded` and `open_regular` do."""
    with open_regular(Path(path)) as file:
        return read_bounded(file, str(path), most=most)


def read_bounded(file: BinaryIO, name: str, *, most: int = MOST_BYTES) -> bytes:
    """Return the rest of an open file. Raises LogDirectoryError if it has more than `most` bytes, and OSError."""
    content = file.read(most + 1)
    if len(content) > most:
        raise LogDirectoryError(f"{name}: expected at most {most} bytes, found more")
    return content


class LocalFile:
    """A file of this machine: `pread`, so no position is shared, and no copy but into the caller's buffer.

    Raises LogDirectoryError for a FIFO, a socket or a device: nothing can be read at a position of one.
    """

    _descriptor = -1

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor, self.size = _opened(path, os.O_RDONLY)

    def fileno(self) -> int:
        """Return the descriptor, -1 when the file is closed."""
        return self._descriptor

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`; fewer only at the end of the file."""
        content = os.pread(self._descriptor, length, position)
        if len(content) == length or not content:
            return content
        pieces, found = [content], len(content)
        while found < length and (piece := os.pread(self._descriptor, length - found, position + found)):
            pieces.append(piece)
            found += len(piece)
        return b"".join(pieces)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at `position` and return their number; fewer only at the end of the file."""
        filled = 0
        while filled < len(buffer):
            count = _pread_into(self._descriptor, buffer[filled:], position + filled)
            if not count:
                break
            filled += count
        return filled

    def close(self) -> None:
        """Close the descriptor. A second time does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None", /
    ) -> None:
        self.close()


def _pread_into(descriptor: int, buffer: memoryview, position: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], position)
    content = os.pread(descriptor, len(buffer), position)  # macOS before 11
    buffer[: len(content)] = content
    return len(content)


def _pwritev(descriptor: int, pieces: Sequence[Buffer], position: int) -> int:
    """Write the first of `pieces`, or as many as one system call takes; return the bytes written."""
    if not hasattr(os, "pwritev"):
        return os.pwrite(descriptor, pieces[0], position)
    return os.pwritev(descriptor, pieces[:_PIECES_AT_ONCE], position)


def _after(pieces: Sequence[Buffer], written: int) -> Sequence[Buffer]:
    """Return the pieces after the first `written` bytes."""
    for at, piece in enumerate(pieces):
        if written < len(piece):
            return [memoryview(piece)[written:], *pieces[at + 1 :]]
        written -= len(piece)
    return ()


class LocalWritableFile(LocalFile):
    """A local file for reading and writing. One thread writes, any number read."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        flags = os.O_RDWR | (os.O_CREAT | os.O_TRUNC if create else 0)
        self.path = path
        self._descriptor, self.size = _opened(path, flags)

    def write_at(self, position: int, *pieces: Buffer) -> None:
        """Write `pieces` without gaps from `position` on."""
        try:
            left: Sequence[Buffer] = pieces
            while left:
                if len(left) == 1:
                    written = os.pwrite(self._descriptor, left[0], position)
                else:
                    written = _pwritev(self._descriptor, left, position)
                position += written
                left = () if len(left) == 1 and written == len(left[0]) else _after(left, written)
        except OSError as error:  # for a full disk the system does not name the file
            raise OSError(error.errno, error.strerror, self.path) from error
        self.size = max(self.size, position)

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes, or extend it with zeros."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error
        self.size = size

    def sync(self) -> None:
        """Make the content durable."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error


_locked: "dict[str, LocalLock]" = {}
"""Files that this process holds locked. POSIX locks belong to the process, and closing any descriptor of the file
releases them.
"""


class LocalLock:
    """A lock file of this machine, as Kafka's `.lock`. Without POSIX locks (Windows), only this process is excluded."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        if _locked.setdefault(self._path, self) is not self:  # one step: POSIX locks do not exclude threads
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by this process", path)
        try:
            self._file = Path(path).open("a+b")  # noqa: SIM115 (open while it is locked)
            try:
                _lock(self._file)
            except OSError:
                self._file.close()
                raise
        except BaseException:
            del _locked[self._path]
            raise

    def release(self) -> None:
        """Release the lock."""
        self._file.close()
        if _locked.get(self._path) is self:
            del _locked[self._path]


def _lock(file: IO[bytes], *, shared: bool = False) -> None:
    """Lock an open file, exclusively or shared. Raises BlockingIOError while another process holds the lock."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    fcntl.lockf(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


class HeldDescriptor:
    """A reserved descriptor of this process."""

    def __init__(self) -> None:
        self._descriptor = os.open(os.devnull, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def close(self) -> None:
        """Release the descriptor. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class LocalFiles:
    """The file system of this machine."""

    def list(self, path: str) -> list[FileEntry]:
        """Return the entries of the directory `path` by name. Links are followed; `scan` has the special entries."""
        return [*self.scan(path)[0]]

    def scan(self, path: str) -> tuple[Sequence[FileEntry], Sequence[SpecialEntry]]:
        """Return the files and directories in `path`, and everything else there, both by name.

        Links are followed. A link that leads nowhere is a special entry.
        """
        entries, special = [], []
        with os.scandir(path) as found:
            for item in found:
                try:
                    is_directory = item.is_dir()
                    if is_directory or item.is_file():
                        size = 0 if is_directory else item.stat().st_size
                        entries.append(FileEntry(item.path, size, is_directory))
                    else:
                        special.append(SpecialEntry(item.path, _kind_of(item.path)))
                except OSError as error:  # such as a link to itself: the fault of this entry alone
                    special.append(SpecialEntry(item.path, f"a link that cannot be followed ({error.strerror})"))
        return sorted(entries, key=lambda entry: entry.path), sorted(special)

    def names(self, path: str) -> Sequence[str]:
        """Return all names in the directory `path`, sorted, also those of dead links, pipes and devices."""
        return sorted(os.listdir(path))  # noqa: PTH208 (a path object for each takes ten times as long)

    def entry(self, path: str) -> FileEntry:
        """Return the entry of the file or directory at `path`.

        Raises LogDirectoryError for a FIFO, a socket or a device.
        """
        status = os.stat(path)  # noqa: PTH116 (each file that is made is looked for first)
        is_directory = stat.S_ISDIR(status.st_mode)
        if (kind := _special(status.st_mode)) is not None:
            raise _not_regular(path, kind)
        return FileEntry(path, 0 if is_directory else status.st_size, is_directory)

    def open(self, path: str) -> LocalFile:
        """Open the file at `path` for reading."""
        return LocalFile(path)

    def create(self, path: str) -> LocalWritableFile:
        """Open a new, empty file at `path`. An existing file is truncated."""
        return LocalWritableFile(path, create=True)

    def edit(self, path: str) -> LocalWritableFile:
        """Open the file at `path` for reading and writing."""
        return LocalWritableFile(path)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory atomically. It replaces a file of the new name."""
        Path(source).replace(target)

    def delete(self, path: str) -> None:
        """Remove the name of a file, or an empty directory."""
        if (found := Path(path)).is_dir():
            found.rmdir()
        else:
            found.unlink()

    def make_directory(self, path: str) -> None:
        """Make a directory in an existing one."""
        Path(path).mkdir()

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory `path` durable."""
        sync_directory(Path(path))

    def lock(self, path: str) -> LocalLock:
        """Lock the file at `path`, made if need be. Raises BlockingIOError while another process has it."""
        return LocalLock(path)

    def modified_ms(self, path: str) -> int:
        """Return when the file was last written, in ms since 1970."""
        return Path(path).stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the modification time of the file."""
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def hold_descriptor(self) -> HeldDescriptor:
        """Reserve one of the process's descriptors until the result is closed."""
        return HeldDescriptor()


class _Viewed:
    """A read-only file for callers that take a WritableFile. Only its view can be truncated."""

    def __init__(self, path: str, file: ReadableFile) -> None:
        self.path, self._file, self.size = path, file, file.size

    def fileno(self) -> int | None:
        return self._file.fileno()

    def read_at(self, position: int, length: int) -> bytes:
        return self._file.read_at(position, min(length, max(self.size - position, 0)))

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._file.read_into(position, buffer[: max(self.size - position, 0)])

    def close(self) -> None:
        self._file.close()

    def write_at(self, position: int, *pieces: Buffer) -> None:  # noqa: ARG002 (a WritableFile's)
        raise _only_viewed(self.path)

    def truncate(self, size: int) -> None:
        if size > self.size:
            raise _only_viewed(self.path)
        self.size = size

    def sync(self) -> None:
        raise _only_viewed(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None", /
    ) -> None:
        self.close()


class _InMemory:
    """A file of a view, in memory."""

    def __init__(self, path: str, content: bytearray) -> None:
        self.path, self._content = path, content

    @property
    def size(self) -> int:
        return len(self._content)

    def fileno(self) -> int | None:
        return None

    def read_at(self, position: int, length: int) -> bytes:
        return bytes(self._content[position : position + length])

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write_at(self, position: int, *pieces: Buffer) -> None:
        data = b"".join(pieces)
        self._content[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        del self._content[size:]
        self._content.extend(bytes(size - len(self._content)))

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None", /
    ) -> None:
        pass


def _only_viewed(path: str) -> OSError:
    return OSError(errno.EROFS, "is only looked at", path)


class ViewedFiles:
    """A read-only view of another file system. Files to edit are opened for reading, new files are in memory.

    It needs no permission to write. Of operations that would change anything, deletions are in this view only, and the
    others raise OSError.
    """

    def __init__(self, files: WritableFileSystem) -> None:
        self._files = files
        self._made: dict[str, bytearray] = {}
        self._deleted: set[str] = set()

    def list(self, path: str) -> list[FileEntry]:
        """Return the entries of the directory `path`, by name."""
        return self._files.list(path)

    def names(self, path: str) -> Sequence[str]:
        """Return all names in the directory `path`, sorted."""
        return self._files.names(path)

    def entry(self, path: str) -> FileEntry:
        """Return the entry of the file or directory at `path`."""
        if path in self._made:
            return FileEntry(path, len(self._made[path]), is_directory=False)
        if path in self._deleted:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._files.entry(path)

    def open(self, path: str) -> ReadableFile:
        """Open the file at `path` for reading."""
        return self.edit(path)

    def create(self, path: str) -> WritableFile:
        """Return an empty file in memory. Nothing is made at `path`."""
        self._made[path] = bytearray()
        return self.edit(path)

    def edit(self, path: str) -> WritableFile:
        """Open the file at `path` for reading, or one that was created here."""
        if path in self._made:
            return _InMemory(path, self._made[path])
        return _Viewed(path, self._files.open(path))

    def rename(self, source: str, target: str) -> None:  # noqa: ARG002 (a WritableFileSystem's)
        """Raise OSError."""
        raise _only_viewed(source)

    def delete(self, path: str) -> None:
        """Delete the file at `path` in this view."""
        self._made.pop(path, None)
        self._deleted.add(path)

    def make_directory(self, path: str) -> None:
        """Raise OSError."""
        raise _only_viewed(path)

    def sync_directory(self, path: str) -> None:
        """Raise OSError."""
        raise _only_viewed(path)

    def lock(self, path: str) -> Lock:
        """Raise OSError."""
        raise _only_viewed(path)

    def modified_ms(self, path: str) -> int:
        """Return the modification time of the file, in ms since 1970."""
        return self._files.modified_ms(path)

    def set_modified_ms(self, path: str, time_ms: int) -> None:  # noqa: ARG002
        """Raise OSError."""
        raise _only_viewed(path)

    def hold_descriptor(self) -> Held:
        """Reserve one of the process's descriptors until the result is closed."""
        return self._files.hold_descriptor()


class RemoteFile:
    """A file of an fsspec file system. Each read is one ranged request, so ask for blocks, not for fields."""

    def __init__(self, remote: Any, path: str, size: int) -> None:
        self._remote = remote
        self.path = path
        self.size = size

    def fileno(self) -> None:
        """Return None: there is no descriptor."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`; fewer only at the end of the file."""
        end = min(position + length, self.size)
        if position >= end:  # stores respond to an empty range with an error
            return b""
        with store_errors(self.path):
            return bytes(self._remote.cat_file(self.path, start=position, end=end))

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at `position` and return their number; fewer only at the end of the file."""
        content = self.read_at(position, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        """Do nothing: no connection stays open between reads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None", /
    ) -> None:
        self.close()


class RemoteFiles:
    """A file system of fsspec. Paths keep their protocol, so that messages and other processes can use them."""

    def __init__(self, remote: Any) -> None:
        self._remote = remote

    def list(self, path: str) -> list[FileEntry]:
        """Return the current entries of the directory `path`, by name."""
        self._remote.invalidate_cache(path)
        own = self._remote._strip_protocol(path).rstrip("/")
        with store_errors(path):
            entries = [self._entry(info) for info in self._remote.ls(path, detail=True)]
        entries = [entry for entry in entries if self._remote._strip_protocol(entry.path).rstrip("/") != own]
        return sorted(entries, key=lambda entry: entry.path)

    def entry(self, path: str) -> FileEntry:
        """Return the entry of the file or directory at `path`."""
        with store_errors(path):
            return self._entry(self._remote.info(path))

    def open(self, path: str) -> RemoteFile:
        """Open the file at `path` for reading."""
        return RemoteFile(self._remote, path, self.entry(path).size)

    def _entry(self, info: dict[str, Any]) -> FileEntry:
        is_directory = info["type"] == "directory"
        path = str(self._remote.unstrip_protocol(info["name"]))
        size = 0 if is_directory else info["size"]
        if size is None:
            raise LogDirectoryError(f"{path}: expected a file system that reports file sizes")
        return FileEntry(path, int(size), is_directory)


def file_system(path: str) -> tuple[FileSystem, str]:
    """Return the file system that `path` names, and the path to use in it.

    Raises LogDirectoryError for a URL whose protocol is unknown, or needs a package that is not installed.
    """
    inside = local_path(path)
    return (RemoteFiles(remote_of(path)), path) if inside is None else (LocalFiles(), inside)


def local_path(location: str) -> str | None:
    """Return the local path of a path or file: URL; None for the URL of another store."""
    if location.startswith("file:///"):
        return location.removeprefix("file://")
    if location.startswith("file://"):
        host, slash, rest = location.removeprefix("file://").partition("/")
        return f"{slash}{rest}" if host == "localhost" else f"{host}{slash}{rest}"
    if location.startswith("file:/"):
        return location.removeprefix("file:")
    return None if "://" in location else location


def path_exists(path: str) -> bool:
    """Return whether a path or URL names a file or folder. Raises as `file_system` does."""
    files, inside = file_system(path)
    try:
        files.entry(inside)
    except (OSError, ValueError):  # ValueError: no valid path
        return False
    return True


def listed_paths(text: str) -> list[str]:
    """Return the paths of a list that is separated by commas.

    A comma may also be part of a name: a path that exists as a whole is one path.
    """
    with contextlib.suppress(LogDirectoryError):  # as a whole it is not a path that can be opened
        if (text != text.strip() or "," in text) and path_exists(text):
            return [text]
    return [path.strip() for path in text.split(",") if path.strip()]


_FOREIGN_ERRORS = (("botocore.exceptions", "BotoCoreError"), ("aiohttp", "ClientError"))


def _foreign_errors() -> tuple[type[Exception], ...]:
    """Return exceptions of stores' packages that are no OSError, such as those for credentials and connections."""
    return tuple(getattr(sys.modules[module], name) for module, name in _FOREIGN_ERRORS if module in sys.modules)


@contextlib.contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Raise the exceptions of a store's own package as OSError."""
    try:
        yield
    except _foreign_errors() as error:
        raise OSError(f"{url}: {error}") from error


def remote_of(url: str) -> Any:
    """Return fsspec's file system for a URL. Raises LogDirectoryError for one that it cannot open."""
    from fsspec.core import url_to_fs

    if url.startswith(("s3://", "s3a://")):
        require("s3", url)
    try:
        remote, _ = url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:  # OSError: some connect already here
        raise LogDirectoryError(f"{url}: expected a path or a URL that fsspec can open: {error}") from error
    return remote


def read_whole(files: FileSystem, path: str, *, limit: int = SMALL_FILE_LIMIT) -> bytes:
    """Return the content of a small file. Raises CorruptRecordError when it holds more than `limit` bytes."""
    with files.open(path) as file:
        return read_small(file, limit=limit)


def read_small(file: ReadableFile, *, limit: int = SMALL_FILE_LIMIT) -> bytes:
    """Return the content of an open small file. Raises CorruptRecordError when it holds more than `limit` bytes."""
    if file.size > limit:
        raise CorruptRecordError("file size", expected=f"<= {limit}", found=file.size).locate(path=file.path)
    return file.read_at(0, file.size)


def data_pieces(file: ReadableFile, position: int) -> Iterator[tuple[int, bytes]]:
    """Yield the data of a file from `position` on, without longer runs of zeros: pieces with their positions.

    Holes are not read if the system reports them. Memory does not grow with the file.
    """
    while (position := _behind_hole(file, position)) < file.size:
        piece = file.read_at(position, _PIECE_BYTES)
        if not piece:
            return
        begin = len(piece) - len(piece.lstrip(b"\0"))
        if begin < len(piece):
            yield position + begin, piece.strip(b"\0")
        position += len(piece)


def _behind_hole(file: ReadableFile, position: int) -> int:
    """Return the first position from `position` on that may hold data, or the file's size."""
    descriptor = file.fileno()
    if descriptor is None or position >= file.size or not hasattr(os, "SEEK_DATA"):
        return position
    try:
        # it moves the file position, which nothing uses: every read and write has its own
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return file.size
        return position  # a file system without SEEK_DATA


def sync_directory(path: Path) -> None:
    """Make the names in the directory `path` durable. If directories cannot be opened (Windows), do nothing."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and its missing parents; their names are durable. An existing directory is no error."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_directory(each.parent)


def exists(files: FileSystem, path: str) -> bool:
    """Return whether `path` exists."""
    try:
        files.entry(path)
    except FileNotFoundError:
        return False
    return True


def put_file(files: WritableFileSystem, path: str, content: bytes) -> None:
    """Put `content` at `path`: after a crash a reader finds the old content or the new, never a mix.

    Durable once it returns. A crash or a full disk may leave a `.tmp` file beside it, which the next call replaces.
    """
    fresh = f"{path}.tmp"
    with files.create(fresh) as file:
        file.write_at(0, content)
        file.sync()
    files.rename(fresh, path)
    files.sync_directory(path.rpartition("/")[0] or "/")


def replace_file(path: Path, content: bytes) -> None:
    """As `put_file`, on this machine."""
    put_file(LocalFiles(), str(path.absolute()), content)


def clone_file(source: Path, target: Path) -> None:
    """Make `target` a durable copy of a file, with its times and permissions; its owner may write to it.

    The two share blocks if the file system supports it.

    Both may be written to afterwards: the file system (XFS, Btrfs) copies a changed block. Raises OSError.
    """
    with source.open("rb") as file, os.fdopen(os.open(target, os.O_WRONLY | _NEW_FILE, _OWNERS), "wb") as out:
        if not _shares_blocks(file, out):
            shutil.copyfileobj(file, out, _COPIED_BYTES)
        out.flush()
        found = source.stat()
        target.chmod(stat.S_IMODE(found.st_mode) | _OWNERS)
        os.fsync(out.fileno())
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def _shares_blocks(file: IO[bytes], out: IO[bytes]) -> bool:
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.ioctl(out.fileno(), _FICLONE, file.fileno())
    except OSError:  # another file system, or one without reflinks
        return False
    return True


def is_locked(path: Path) -> bool:
    """Return whether anyone holds the lock file at `path`, as a running broker holds `.lock`. Unknown: False."""
    if os.path.realpath(path) in _locked:
        return True
    try:
        with path.open("rb") as file:  # a shared lock needs only read permission
            _lock(file, shared=True)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
