"""Outputs of commands: outside of the inputs, and under the final name only when complete and on the disk.

`refuse_overlap` compares outputs with inputs, for every command and for the pipeline. `whole_file` and `whole_folder`
make an output under a random name, readable by its owner alone, and rename it when it is complete.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.filesystem import local_path, remote_of, sync_directory

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from magicbyte.engine.log.files.directory import PartitionDirectory

SCRATCH = ".magicbyte-"
"""Prefix of the names of unfinished outputs; random characters follow."""
_DEVICES = ("/dev", "/proc")


# ---- outputs beside inputs


class _Identity(NamedTuple):
    """A file or folder by device and inode: the same for each path to it, link or mount, in either case of letters."""

    device: int
    inode: int


def local_output(location: str, *, folder: bool) -> Path:
    """Return the local path of an output, given as a path or a file: URL.

    Raises ValueError for the URL of another store and, if a `folder` is to be written, for an existing file.
    """
    local = local_path(location)
    if local is None:
        raise ValueError(f"{location!r}: expected a local path")
    path = Path(local)
    if folder and path.exists() and not path.is_dir():
        raise ValueError(f"{location!r}: expected a folder, found a file")
    return path


def inputs_of(
    paths: Iterable[str], partitions: Iterable[PartitionDirectory], others: Iterable[str | Path] = ()
) -> list[str]:
    """Return the inputs of a command, for `refuse_overlap`: the given paths, and the partitions found there.

    For a path to a single segment this is its folder, if the folder has a partition's name. In other folders, such as a
    download folder, it is only the log and its companions.
    """
    from magicbyte.engine.log.files.directory import LOG
    from magicbyte.engine.log.files.names import folder_name

    inputs = {*paths, *map(str, others)}
    alone = {os.path.dirname(os.path.realpath(path)) for path in inputs if path.endswith(LOG)}  # noqa: PTH120
    for partition in partitions:
        if folder_name(partition.path) is not None or os.path.realpath(partition.path) not in alone:
            inputs.add(partition.path)
        for segment in partition.segments:  # each may be a link to elsewhere
            inputs.update(each.path for each in (segment.log, *segment.companions.values()))
        if partition.log_directory is not None:
            inputs.add(partition.log_directory)
    return sorted(inputs)


def refuse_overlap(output: str | Path, inputs: Iterable[str | Path], *, fills: bool = True) -> None:
    """Raise LogDirectoryError if `output` is an input, lies in one, or contains one.

    Both may be local paths or URLs; the output need not exist. Symbolic links, `..`, mounts and file systems that
    ignore case are followed to the file itself. Files are also compared by their hard links. `fills`: the command owns
    everything below `output`; without it an input inside of `output` is allowed.
    """
    places: dict[str, str] = {}  # local paths, with the names by which they were given
    urls = []
    for each in map(str, inputs):
        if (path := _local(each)) is None:
            urls.append(each)
        else:
            places[path] = each
    target = _local(str(output))
    if target is None:
        _refuse_in_store(str(output), urls, fills=fills)
        return
    above, own = _chain(target), _identity(target)
    seen: set[str] = set()
    for path, name in places.items():
        if _identity(path) in above:
            raise _inside(output, name)
        if fills and own is not None:
            is_known = os.path.dirname(path) in seen and not os.path.islink(path)  # noqa: PTH114, PTH120
            if not is_known and own in _chain(path):
                raise _above(output, name)
            seen.add(path)
    if own is not None and _links(target) > 1:
        for path in places:
            if (same := _same_file(own, path)) is not None:
                raise LogDirectoryError(
                    f"{output}: expected a file of its own, found a hard link to {same}, which is an input"
                )


def refuse_used(output: Path) -> None:
    """Raise LogDirectoryError for anything but an empty folder or a free name."""
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise LogDirectoryError(f"{output}: expected a new directory, found one that is in use")


def refuse_overlaps(out: Path, names: Iterable[str], inputs: Iterable[str]) -> None:
    """As `refuse_overlap`, for a folder, and for links in it by `names` of its future content."""
    inputs = list(inputs)
    for place in (out, *(out / name for name in names)):
        if place == out or place.is_symlink():
            refuse_overlap(place, inputs)


def _inside(output: str | Path, source: str) -> LogDirectoryError:
    return LogDirectoryError(f"{output}: expected a path outside of {source}, which is an input")


def _above(output: str | Path, source: str) -> LogDirectoryError:
    return LogDirectoryError(f"{output}: expected a path that does not contain {source}, which is an input")


def _local(location: str) -> str | None:
    """Return the local path of a path or URL, None for that of another store."""
    if (path := local_path(location)) is not None:
        return path
    from fsspec.implementations.local import LocalFileSystem

    try:
        remote = remote_of(location)
    except LogDirectoryError:
        return None
    while not isinstance(remote, LocalFileSystem):
        inner = getattr(remote, "fs", None)
        if inner is None:
            return None
        remote, location = inner, location.rpartition("::")[2]
    return str(remote._strip_protocol(location))


def _identity(path: str) -> _Identity | None:
    """Return the identity of the file at `path`, None if there is none or it is inaccessible."""
    try:
        found = os.stat(path)  # noqa: PTH116 (no Path is needed)
    except (OSError, ValueError):
        return None
    return _Identity(found.st_dev, found.st_ino)


def _chain(path: str) -> set[_Identity]:
    """Return the identities of `path` and of all folders above it, as far as they exist."""
    real = Path(os.path.realpath(path))
    found = (_identity(str(each)) for each in (real, *real.parents))
    return {each for each in found if each is not None}


def _links(path: str) -> int:
    """Return the number of hard links of the file at `path`, 0 for anything but a file."""
    found = os.stat(path)  # noqa: PTH116
    return found.st_nlink if stat.S_ISREG(found.st_mode) else 0


def _same_file(own: _Identity, path: str) -> str | None:
    """Return the file at or below `path` that is the given one."""
    if _identity(path) == own:
        return path
    for folder, _, names in os.walk(path):
        for name in names:
            if _identity(each := os.path.join(folder, name)) == own:  # noqa: PTH118
                return each
    return None


def _refuse_in_store(output: str, inputs: Iterable[str], *, fills: bool) -> None:
    target = _store_name(output)
    for each in inputs:
        source = _store_name(each)
        if target[: len(source)] == source:
            raise _inside(output, each)
        if fills and source[: len(target)] == target:
            raise _above(output, each)


def _store_name(url: str) -> tuple[str, ...]:
    """Return store and path components of a URL, the same for each spelling of it."""
    remote = remote_of(url)
    protocol = remote.protocol if isinstance(remote.protocol, str) else remote.protocol[0]
    path = os.path.normpath(str(remote._strip_protocol(url)).strip("/")).replace(os.sep, "/")
    return (protocol, *(part for part in path.split("/") if part not in ("", ".")))


# ---- outputs that are whole


@contextlib.contextmanager
def whole_file(path: str | Path, *, keeps: tuple[type[Exception], ...] = ()) -> Iterator[BinaryIO]:
    """Yield a file to write. At the end of the block it gets the name `path`, complete and durable.

    A symbolic link stays, and its target file is replaced. After an error in the block, and after Ctrl-C, `path` is
    unchanged. After an error of a type in `keeps` the file is put, with the data written before it. A path that is no
    regular file (a FIFO, a terminal, /dev/stdout) is written directly. An OSError of a write names `path`.
    """
    if is_written_directly(path):
        with _output(path, str(path)) as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise LogDirectoryError(f"{path}: expected the name of a file, found a folder")
    with _named_errors(str(path)):
        descriptor, name = tempfile.mkstemp(prefix=SCRATCH, dir=target.parent)
    scratch, kept = Path(name), None
    try:
        with _output(descriptor, str(path)) as file:
            try:
                yield file
            except keeps as error:
                kept = error
            file.flush()
            with _named_errors(str(path)):
                os.fsync(descriptor)
        with _named_errors(str(path)):
            scratch.chmod(_mode(target, 0o666))
            scratch.replace(target)
            sync_directory(target.parent)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    if kept is not None:
        raise kept


def _output(file: str | Path | int, told: str) -> BinaryIO:
    """Open an output by its path or descriptor. Errors name it `told`."""
    with _named_errors(told):
        return cast("BinaryIO", io.BufferedWriter(cast("io.FileIO", _Output(file, told))))


class _Output(io.FileIO):
    """A file that is written. Its errors, such as that of a full disk, name the output."""

    def __init__(self, file: str | Path | int, told: str) -> None:
        super().__init__(file, "wb")
        self._name = told

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of `data`; return the number of bytes."""
        with _named_errors(self._name):
            return super().write(data)


def put_whole(path: str | Path, content: bytes) -> None:
    """Put `content` at `path` as `whole_file` does."""
    with whole_file(path) as file:
        file.write(content)


@contextlib.contextmanager
def whole_folder(path: Path, *, is_durable: bool = False, last: str = "") -> Iterator[Path]:
    """Yield a folder to fill. At the end of the block it gets the name `path`; a folder there gets its content.

    After any error in the block `path` is unchanged. With `is_durable` all of it is on the disk before it gets its
    name. Into a folder that is there, the entry named `last` goes last.
    """
    target = Path(os.path.realpath(path))
    is_there = target.exists()
    if not is_there:
        target.parent.mkdir(parents=True, exist_ok=True)
    above = target if is_there else target.parent
    scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=above))
    try:
        yield scratch
        if is_durable:
            sync_tree(scratch)
        if is_there:  # it may be the current folder of a process, or a mount, so it stays the same
            for each in sorted(scratch.iterdir(), key=lambda entry: (entry.name == last, entry.name)):
                if is_durable and each.name == last:
                    sync_directory(target)
                each.rename(target / each.name)
            scratch.rmdir()
        else:
            scratch.chmod(_mode(target, 0o777))
            scratch.rename(target)
        if is_durable:
            sync_directory(target if is_there else target.parent)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def sync_tree(folder: Path) -> None:
    """Make a folder durable, with all files and folders in it."""
    for path, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(f"{path}/{name}", os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(Path(path))


def is_written_directly(path: str | Path) -> bool:
    """Return whether `path` cannot be replaced by a file: a FIFO, a device, a descriptor."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return False
    whole = Path(os.path.abspath(path))  # noqa: PTH100 (links such as /dev/stdout are not to be followed)
    is_descriptor = any(str(above) in _DEVICES for above in whole.parents) and not _is_shared_memory(whole)
    return is_descriptor or not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode))


def _is_shared_memory(path: Path) -> bool:
    return path.parts[1:3] == ("dev", "shm")


def _mode(target: Path, most: int) -> int:
    """Return the permissions of `target`; for a new name `most` without the bits of the umask."""
    with contextlib.suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0o077)
    os.umask(mask)
    return most & ~mask


@contextlib.contextmanager
def _named_errors(path: str) -> Iterator[None]:
    """Name the output in OSErrors raised inside the block."""
    try:
        yield
    except BrokenPipeError:  # the reader closed the pipe: not an error of the command
        raise
    except OSError as error:
        parent, reason = Path(path).parent, error.strerror
        if isinstance(error, FileNotFoundError) and not parent.exists():
            reason = f"the folder {parent} does not exist"
        raise OSError(error.errno, f"cannot write: {reason}", path) from error


def refuse_unwritable(folder: Path) -> None:
    """Raise LogDirectoryError if this process cannot make `folder`, or files in it. Nothing is written."""
    existing = Path(os.path.realpath(folder))
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise LogDirectoryError(f"{folder}: cannot be written: {existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        why = (
            "is on a disk that is mounted read-only"
            if _is_read_only(existing)
            else "may not be written to by this user"
        )
        raise LogDirectoryError(f"{folder}: cannot be written: {existing} {why}")


def _is_read_only(folder: Path) -> bool:
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY) if hasattr(os, "statvfs") else False
