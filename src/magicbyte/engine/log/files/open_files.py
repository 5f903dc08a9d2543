"""Bound the number of open files of a log directory, independent of the number of segments.

An `OpenFile` represents a segment's file for the life of the segment; its descriptor is opened and closed on demand.
`OpenFiles` closes the least recently used ones if there are more than `limit`, or if the process has none left, and
reopens them at their next use. A reader that currently uses a descriptor, or sends from it, keeps it open: it is closed
with its last reference.

**A file that was written and not synced is synced before it is closed.** The system reports a failed write-back once,
to descriptors that were open then; a file closed and reopened could seem durable without being so. A sync that fails
here takes the directory offline, as every failed sync does.

Running out of descriptors is transient, and raises OutOfDescriptorsError, never an OSError. A change begins only while
the reserve is whole (`Health`), so that it does not stop halfway: a change may use up the reserve. There is no lock:
one thread at a time writes to a handle, while any others read, sync or close it. They share two tables, of open files
and of files being closed; each step is a single atomic `setdefault` or `pop` on one of them.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar

from magicbyte.engine.errors import OutOfDescriptorsError

if TYPE_CHECKING:
    from types import TracebackType

    from magicbyte.engine.log.files.health import Health
    from magicbyte.engine.ports import Buffer, FileEntry, Held, Lock, ReadableFile, WritableFile, WritableFileSystem

P = ParamSpec("P")
T = TypeVar("T")

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
DEFAULT_LIMIT: Final = 256
RESERVE: Final = 8
"""Reserved descriptors, so that a change that has begun does not fail: a roll takes six at a time."""
_SHARE_CLOSED: Final = 16  # the fraction closed when there are too many open files, at least one
_FREED_AT_ONCE: Final = 8  # files closed when the process has no descriptor left
_MOVES: Final = 100  # how often a file's name may change while it is being opened


class OpenFile:
    """A file of a log that is always usable, with or without a descriptor. One thread writes; any number read and sync.

    `size` follows each change. `path` follows renames through `OpenFiles`. `is_closed`: it was released for good.
    `is_nameless`: its name was deleted or given to another file, so that it cannot be reopened.
    """

    __slots__ = (
        "_fault",
        "_files",
        "_is_pinned",
        "_is_unknown",
        "_is_written",
        "is_closed",
        "is_nameless",
        "moving_to",
        "path",
        "size",
        "used",
    )

    def __init__(self, files: OpenFiles, path: str, size: int, *, is_new: bool) -> None:
        self.path, self.size = path, size
        self.moving_to: str | None = None  # its next name, while it is being renamed
        self.used = next(files.ticks)
        self.is_closed = self.is_nameless = False
        self._files = files
        self._is_written = False  # by this handle, since the last sync
        self._is_unknown = not is_new  # whether earlier writes may be unsynced
        self._is_pinned = False
        self._fault: OSError | None = None  # of a sync: the system reports it only once

    def opened(self) -> WritableFile:
        """Return the open file, which stays open while the caller refers to it. Raises OutOfDescriptorsError."""
        self.used = next(self._files.ticks)
        file = self._files.open_now(self)
        return self._files.open_again(self) if file is None else file

    def opened_now(self) -> WritableFile | None:
        """Return the open file, or None if it would have to be opened."""
        self.used = next(self._files.ticks)
        return self._files.open_now(self)

    def pin(self) -> bool:
        """Keep the file open until `unpin`, to which the result must be passed. For the thread that writes."""
        was, self._is_pinned = self._is_pinned, True
        try:
            self.opened()
        except BaseException:
            self._is_pinned = was
            raise
        return was

    def unpin(self, before: bool) -> None:
        """Allow the file to be closed, unless it was pinned before."""
        self._is_pinned = before

    # ---- the interface of ports.WritableFile

    def fileno(self) -> None:
        """Return None, because the descriptor may be closed at any time: use that of `opened()`."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`; fewer only at the end of the file."""
        return self.opened().read_at(position, length)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at `position` and return their number; fewer only at the end of the file."""
        return self.opened().read_into(position, buffer)

    def write_at(self, position: int, *pieces: Buffer) -> None:
        """Write all of `pieces`, one after the other, from `position` on."""
        was, self._is_pinned = self._is_pinned, True
        try:
            file = self.opened()
            try:
                file.write_at(position, *pieces)
                self.size = file.size
            finally:
                self._is_written = True  # after the write: a sync that began earlier does not cover it
        finally:
            self._is_pinned = was

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes, or extend it with zeros."""
        was, self._is_pinned = self._is_pinned, True
        try:
            file = self.opened()
            try:
                file.truncate(size)
                self.size = size
            finally:
                self._is_written = True
        finally:
            self._is_pinned = was

    def sync(self) -> None:
        """Make the content durable. A file whose descriptor was closed was synced then; if that failed, it is raised
        again.

        For a file that was released meanwhile nothing is synced: then its log has another `generation`.
        """
        if self.is_closed:
            return
        file = self._files.open_now(self) or self._files.closing(self)
        self._check()
        if file is None:
            if not (self._is_written or self._is_unknown) or self.is_closed:
                return
            file = self.opened()
        self.sync_by(file)
        self._is_unknown = False

    def sync_by(self, file: WritableFile) -> None:
        """Sync all writes up to now through one of its descriptors."""
        self._is_written = False  # before the sync: it may not cover writes made meanwhile
        try:
            file.sync()
        except OSError as error:
            self._is_written, self._fault = True, error
            raise
        self._check()  # the system may have reported the error to another syncing thread

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        """Release the file for good, without a sync."""
        self.is_closed = True
        self._files.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    # ---- for OpenFiles

    @property
    def is_open(self) -> bool:
        """Whether it has a descriptor."""
        return self._files.open_now(self) is not None

    @property
    def is_dirty(self) -> bool:
        """Whether it must be synced before it is closed."""
        return self._is_written

    @property
    def is_kept(self) -> bool:
        """Whether it must not be closed now."""
        return self._is_pinned or self.is_nameless


class _Names:
    """The files by their current folder and name."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, OpenFile]] = {}

    def find(self, path: str) -> OpenFile | None:
        """Return the file with a name."""
        folder, _, name = path.rpartition("/")
        return self._named.get(folder, {}).get(name)

    def inside(self, folder: str) -> Mapping[str, OpenFile]:
        """Return the files in a folder, by name."""
        return self._named.get(folder, {})

    def give(self, handle: OpenFile, path: str) -> None:
        """Give a file a name; another file with that name becomes nameless."""
        folder, _, name = path.rpartition("/")
        names = self._named.setdefault(folder, {})
        if (other := names.get(name)) is not None:
            other.is_nameless = True
        names[name] = handle

    def take(self, handle: OpenFile) -> None:
        """Remove the name of a file."""
        folder, _, name = handle.path.rpartition("/")
        self._named.get(folder, {}).pop(name, None)

    def orphan(self, path: str) -> None:
        """Make the file of a name nameless, and so keep it open, because the name is deleted or given to another
        file.
        """
        if (handle := self.find(path)) is not None:
            handle.is_nameless = True
            self.take(handle)

    def drop(self, folder: str) -> None:
        """Forget a folder that no longer exists."""
        self._named.pop(folder, None)


class OpenFiles:
    """A WritableFileSystem over another one, whose writable files hold at most about `limit` descriptors.

    `health` of the directory checks the descriptor reserve before each change. `close` releases the reserve.
    """

    def __init__(
        self, files: WritableFileSystem, health: Health, limit: int = DEFAULT_LIMIT, reserve: int = RESERVE
    ) -> None:
        self.health, self.limit, self._wanted = health, max(limit, 1), reserve
        self.ticks = itertools.count()
        self.refused = 0  # how often no descriptor was available
        self._files = files
        self._open: dict[OpenFile, WritableFile] = {}
        self.open_now: Callable[[OpenFile], WritableFile | None] = self._open.get
        """Returns a handle's open file, or None."""
        self._closing: dict[OpenFile, list[WritableFile]] = {}  # one for each thread that is closing it
        self._names = _Names()
        self._reserve: list[Held] = []
        health.before_change = self.check_reserve
        while len(self._reserve) < reserve and self._reserve_one():
            pass

    @property
    def descriptors(self) -> int:
        """The number of open files, without the reserve."""
        return len(self._open)

    # ---- descriptors

    def closing(self, handle: OpenFile) -> WritableFile | None:
        """Return a handle's file that is being closed. Must be called after `open_now`, not before."""
        return next(iter(self._closing.get(handle, ())), None)

    def check_reserve(self) -> None:
        """Ensure that the reserve is whole. Raises OutOfDescriptorsError."""
        while len(self._reserve) < self._wanted:
            if not (self._reserve_one() or (self.shrink(_FREED_AT_ONCE) and self._reserve_one())):
                self.refused += 1
                raise OutOfDescriptorsError(f"{self.health.path}: {os.strerror(errno.EMFILE)}: nothing was changed")

    def _reserve_one(self) -> bool:
        try:
            self._reserve.append(self._files.hold_descriptor())
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
            return False
        return True

    def _with_descriptors(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call `work`, which needs a descriptor; if none is left, free those of unused files, or of the reserve."""
        while True:
            try:
                return work(*arguments, **named)
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                if not self.shrink(_FREED_AT_ONCE):
                    try:
                        self._reserve.pop().close()
                    except IndexError:
                        self.refused += 1
                        raise OutOfDescriptorsError(f"{self.health.path}: {error}") from error

    def shrink(self, count: int) -> int:
        """Close up to `count` files and return how many: the least recently used ones, clean ones first."""
        by_age = sorted(list(self._open), key=_used)  # noqa: C414 (the table changes under the sort's feet)
        old = by_age[: max(len(by_age) * 3 // 4, 1)]
        old.sort(key=_is_dirty)
        closed = 0
        for each in itertools.chain(old, by_age[len(old) :]):
            if closed >= count:
                break
            closed += self._give_up(each)
        return closed

    def _give_up(self, handle: OpenFile) -> bool:
        """Close a handle's descriptor, after a sync if needed; return whether that freed a descriptor.

        A writer pins the handle before it takes the file, and marks it as written before it unpins. Here the file is
        removed first, then the pin is checked, then the mark. So there are three cases: the pin is seen, and the file
        is put back; or the write is covered by the sync here; or it goes to a reopened file, and its mark is set after
        the check here. A concurrent sync finds the file among those that are being closed.
        """
        mine: list[WritableFile] = []
        # `setdefault` is the lock: it is atomic under the interpreter lock, so of several threads one gets its own list
        # back and owns the closing. A real lock would be held during the sync below, and a reader that only wants to
        # know whether the file is open would wait for the disk.
        if handle.is_kept or self._closing.setdefault(handle, mine) is not mine:
            return False
        try:
            file = self._open.get(handle)
            if file is None:
                return False
            mine.append(file)
            self._open.pop(handle, None)
            if handle.is_kept:
                self._have(handle, file)
                return False
            if handle.is_dirty and not handle.is_closed:
                try:
                    handle.sync_by(file)
                except OSError as error:
                    self.health.fail(OSError(error.errno, error.strerror, handle.path))
            return True
        finally:
            del self._closing[handle]

    def _have(self, handle: OpenFile, file: WritableFile) -> WritableFile:
        """Set a handle's open file, unless it has one; return the one that it has."""
        file = self._open.setdefault(handle, file)
        if handle.is_closed:  # closed at this moment: this file would never be closed
            self._open.pop(handle, None)
        return file

    def _took(self, handle: OpenFile, file: WritableFile) -> WritableFile:
        file = self._have(handle, file)
        if len(self._open) > self.limit:
            self.shrink(len(self._open) - self.limit + max(self.limit // _SHARE_CLOSED, 1) - 1)
        return file

    def open_again(self, handle: OpenFile) -> WritableFile:
        """Reopen a handle's file.

        The name is checked again afterwards, because it may have been given to another file.
        """
        for _ in range(_MOVES):
            if handle.is_closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), handle.path)
            if handle.is_nameless:
                break
            path, moving_to = handle.path, handle.moving_to
            for name in (path, *([] if moving_to is None else [moving_to])):
                try:
                    file = self._with_descriptors(self._files.edit, name)
                except FileNotFoundError:
                    continue
                if handle.path in (path, name) and not handle.is_nameless:
                    return self._took(handle, file)
            if handle.path == path and handle.moving_to is None and moving_to is None:
                break
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), handle.path)

    def forget(self, handle: OpenFile) -> None:
        """Release a handle."""
        self._open.pop(handle, None)
        if self._names.find(handle.path) is handle:
            self._names.take(handle)

    def close(self) -> None:
        """Release the reserve."""
        while self._reserve:
            self._reserve.pop().close()

    # ---- the interface of ports.WritableFileSystem

    def list(self, path: str) -> list[FileEntry]:
        """Return the entries of the directory `path`, by name."""
        return self._with_descriptors(self._files.list, path)

    def names(self, path: str) -> Sequence[str]:
        """Return all names in the directory `path`, sorted, including those of special files."""
        return self._with_descriptors(self._files.names, path)

    def entry(self, path: str) -> FileEntry:
        """Return the entry of the file or directory at `path`."""
        return self._files.entry(path)

    def open(self, path: str) -> ReadableFile:
        """Open the file at `path` for reading; it stays open until it is closed."""
        return self._with_descriptors(self._files.open, path)

    def create(self, path: str) -> OpenFile:
        """Open a new, empty file at `path`; an existing file is truncated."""
        return self._handle(path, self._with_descriptors(self._files.create, path), is_new=True)

    def edit(self, path: str) -> OpenFile:
        """Open the file at `path` for reading and writing."""
        return self._handle(path, self._with_descriptors(self._files.edit, path), is_new=False)

    def _handle(self, path: str, file: WritableFile, *, is_new: bool) -> OpenFile:
        handle = OpenFile(self, path, file.size, is_new=is_new)
        self._names.give(handle, path)
        self._took(handle, file)
        return handle

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory atomically, replacing the file of that name."""
        inside, handle = self._names.inside(source), self._names.find(source)
        moved = {each: f"{target}/{own}" for own, each in inside.items()}
        if handle is not None:
            moved[handle] = target
        for each, path in moved.items():
            each.moving_to = path
        try:
            self._files.rename(source, target)
        except OSError:
            for each in moved:
                each.moving_to = None
            raise
        for each, path in moved.items():
            self._names.take(each)
            each.path, each.moving_to = path, None
            self._names.give(each, path)
        self._names.drop(source)
        if handle is None:
            self._names.orphan(target)

    def delete(self, path: str) -> None:
        """Remove the name of a file, or an empty directory."""
        self._names.orphan(path)
        self._files.delete(path)
        self._names.drop(path)

    def make_directory(self, path: str) -> None:
        """Create a directory in an existing one."""
        self._files.make_directory(path)

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory `path` durable."""
        self._with_descriptors(self._files.sync_directory, path)

    def lock(self, path: str) -> Lock:
        """Lock the file at `path`, creating it if needed.

        Raises BlockingIOError while another process holds the lock.
        """
        return self._with_descriptors(self._files.lock, path)

    def modified_ms(self, path: str) -> int:
        """Return the modification time of the file, in ms since 1970."""
        return self._files.modified_ms(path)

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the modification time of the file."""
        self._files.set_modified_ms(path, time_ms)

    def hold_descriptor(self) -> Held:
        """Reserve one of the process's descriptors until the result is closed."""
        return self._with_descriptors(self._files.hold_descriptor)


def bounded(files: WritableFileSystem, health: Health) -> OpenFiles:
    """Return a file system with bounded open files: `files` itself if it is one, else one without a reserve."""
    return files if isinstance(files, OpenFiles) else OpenFiles(files, health, reserve=0)


def _used(handle: OpenFile) -> int:
    return handle.used


def _is_dirty(handle: OpenFile) -> bool:
    return handle.is_dirty
