"""The open files of a log directory: as many descriptors as are allowed, whatever the number of segments.

An `OpenFile` stands for a file of a segment as long as the segment lives; its descriptor comes and goes. `OpenFiles`
closes those that were used least recently when there are more than `limit`, or when the process has none left, and
opens them again when they are used. Whoever reads from a descriptor at that moment, or sends from it, keeps it: it is
closed when nobody refers to it any more.

**A file that was written and not synced is synced before it is closed.** The system reports a failed write-back once,
to descriptors that were open then; closed and opened again, a file could look durable that is not. A sync that fails
here takes the directory offline, as every failed sync does.

Running out of descriptors is a fault that passes, and raises OutOfDescriptorsError, never an OSError. A change begins
only while the reserve is whole (`Health`), so that it does not stop halfway: inside a change the reserve may be spent.
No lock: one thread at a time writes to a handle, while any others read, sync or close it. What they share are two
tables, of open files and of those that are being closed; each step is a single `setdefault` or `pop` on one of them.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar

from magicbyte.errors import OutOfDescriptorsError

if TYPE_CHECKING:
    from types import TracebackType

    from magicbyte.log.files.health import Health
    from magicbyte.ports import Buffer, FileEntry, Held, Lock, ReadableFile, WritableFile, WritableFileSystem

P = ParamSpec("P")
T = TypeVar("T")

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
DEFAULT_LIMIT: Final = 256
RESERVE: Final = 8
"""Descriptors that are held for nothing, so that a change that has begun finds some: a roll takes six at a time."""
_SHARE_CLOSED: Final = 16  # one of so many is closed when there are too many, at least one
_FREED_AT_ONCE: Final = 8  # when the process has none left
_MOVES: Final = 100  # times that a name may change while its file is opened


class OpenFile:
    """A file of a log: always usable, with a descriptor or without. One thread writes; any number read and sync.

    `size` follows each change. `path` follows the file when it is renamed through `OpenFiles`. `is_closed`: it was let
    go of for good. `is_nameless`: its name is gone, or another file's, so that it could not be opened again.
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
        self.moving_to: str | None = None  # its name in a moment, or already
        self.used = next(files.ticks)
        self.is_closed = self.is_nameless = False
        self._files = files
        self._is_written = False  # since the last sync, by this handle
        self._is_unknown = not is_new  # whether what others wrote was synced
        self._is_pinned = False
        self._fault: OSError | None = None  # of a sync: the system reports it once

    def opened(self) -> WritableFile:
        """Return the open file, which stays open as long as the caller refers to it. Raises OutOfDescriptorsError."""
        self.used = next(self._files.ticks)
        file = self._files.open_now(self)
        return self._files.open_again(self) if file is None else file

    def opened_now(self) -> WritableFile | None:
        """Return the open file, None where it would have to be opened first."""
        self.used = next(self._files.ticks)
        return self._files.open_now(self)

    def pin(self) -> bool:
        """Have the file open until `unpin`, which is given what this returns. For the thread that writes."""
        was, self._is_pinned = self._is_pinned, True
        try:
            self.opened()
        except BaseException:
            self._is_pinned = was
            raise
        return was

    def unpin(self, before: bool) -> None:
        """Let the file be closed again, unless it was pinned before."""
        self._is_pinned = before

    # ---- what ports.WritableFile has

    def fileno(self) -> None:
        """There is none to rely on, as it may go at any time: `opened()` has one."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`, fewer only where the file ends."""
        return self.opened().read_at(position, length)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at `position`; return how many there were, fewer only where the file ends."""
        return self.opened().read_into(position, buffer)

    def write_at(self, position: int, *pieces: Buffer) -> None:
        """Write all of `pieces`, one behind the other, from `position` on."""
        was, self._is_pinned = self._is_pinned, True
        try:
            file = self.opened()
            try:
                file.write_at(position, *pieces)
                self.size = file.size
            finally:
                self._is_written = True  # behind the write: a sync that began before it does not cover it
        finally:
            self._is_pinned = was

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes, or lengthen it with zeros."""
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
        """Make the content durable. Of a file that was closed for room this was done before, or failed: then again.

        Of a file that was let go of meanwhile nothing is made durable: its log has another `generation` then.
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
        """Make durable what was written until now, through one of its descriptors."""
        self._is_written = False  # before the sync: what is written meanwhile is not known to be part of it
        try:
            file.sync()
        except OSError as error:
            self._is_written, self._fault = True, error
            raise
        self._check()  # it may have been reported to another thread that syncs

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        """Let go of the file for good. Nothing is synced."""
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
        """Whether it would have to be synced to be closed."""
        return self._is_written

    @property
    def is_kept(self) -> bool:
        """Whether it is not to be closed for room now."""
        return self._is_pinned or self.is_nameless


class _Names:
    """Which file has which name now, by folder and name."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, OpenFile]] = {}

    def find(self, path: str) -> OpenFile | None:
        """Return the file of a name."""
        folder, _, name = path.rpartition("/")
        return self._named.get(folder, {}).get(name)

    def inside(self, folder: str) -> Mapping[str, OpenFile]:
        """Return the files in a folder, by name."""
        return self._named.get(folder, {})

    def give(self, handle: OpenFile, path: str) -> None:
        """Let a file have a name; another that has it is nameless then."""
        folder, _, name = path.rpartition("/")
        names = self._named.setdefault(folder, {})
        if (other := names.get(name)) is not None:
            other.is_nameless = True
        names[name] = handle

    def take(self, handle: OpenFile) -> None:
        """Take the name of a file away."""
        folder, _, name = handle.path.rpartition("/")
        self._named.get(folder, {}).pop(name, None)

    def orphan(self, path: str) -> None:
        """Have a file nameless, and so kept open, whose name goes to another, or away."""
        if (handle := self.find(path)) is not None:
            handle.is_nameless = True
            self.take(handle)

    def drop(self, folder: str) -> None:
        """Forget a folder, which is not there any more."""
        self._named.pop(folder, None)


class OpenFiles:
    """A WritableFileSystem over another one, whose files that are written hold about `limit` descriptors at most.

    `health`: of the directory; it asks for the reserve of so many descriptors before each change. `close` gives that
    back.
    """

    def __init__(
        self, files: WritableFileSystem, health: Health, limit: int = DEFAULT_LIMIT, reserve: int = RESERVE
    ) -> None:
        self.health, self.limit, self._wanted = health, max(limit, 1), reserve
        self.ticks = itertools.count()
        self.refused = 0  # how often there was no descriptor
        self._files = files
        self._open: dict[OpenFile, WritableFile] = {}
        self._closing: dict[OpenFile, list[WritableFile]] = {}  # one each, of the thread that closes it
        self._names = _Names()
        self._reserve: list[Held] = []
        health.before_change = self.check_reserve
        while len(self._reserve) < reserve and self._reserve_one():
            pass

    @property
    def descriptors(self) -> int:
        """How many files are open at the moment, those in the reserve not counted."""
        return len(self._open)

    # ---- descriptors

    def open_now(self, handle: OpenFile) -> WritableFile | None:
        """Return a handle's open file, None where it has none."""
        return self._open.get(handle)

    def closing(self, handle: OpenFile) -> WritableFile | None:
        """Return a handle's file that is being closed: to be asked for behind `open_now`."""
        return next(iter(self._closing.get(handle, ())), None)

    def check_reserve(self) -> None:
        """Have the reserve whole. Raises OutOfDescriptorsError."""
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
        """Do what needs a descriptor; where there is none, with those of files that are not used, or of the reserve."""
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
        """Close up to `count` files; return how many. Those used least recently, of the older ones first clean ones."""
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
        """Close a handle's descriptor, synced where it has to be; return whether there is one more for others.

        A writer pins the handle before it takes the file, and marks it as written before it lets go of the pin. Here
        the file is taken away first, then the pin is looked at, then the mark: so either the pin is seen, and the file
        comes back, or the write is part of the sync here, or it goes to a file that was opened again, and its mark
        comes behind this one. A sync meanwhile finds the file among those that are being closed.
        """
        mine: list[WritableFile] = []
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
        """Let a handle have an open file, unless it has one; return the one it has."""
        file = self._open.setdefault(handle, file)
        if handle.is_closed:  # in this moment: nobody would take it out any more
            self._open.pop(handle, None)
        return file

    def _took(self, handle: OpenFile, file: WritableFile) -> WritableFile:
        file = self._have(handle, file)
        if len(self._open) > self.limit:
            self.shrink(len(self._open) - self.limit + max(self.limit // _SHARE_CLOSED, 1) - 1)
        return file

    def open_again(self, handle: OpenFile) -> WritableFile:
        """Open a handle's file. Its name may change meanwhile, and then be another's: it is looked at again."""
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
        """Let go of a handle."""
        self._open.pop(handle, None)
        if self._names.find(handle.path) is handle:
            self._names.take(handle)

    def close(self) -> None:
        """Give back the reserve."""
        while self._reserve:
            self._reserve.pop().close()

    # ---- what ports.WritableFileSystem has

    def list(self, path: str) -> list[FileEntry]:
        """Return what the directory `path` holds, by name."""
        return self._with_descriptors(self._files.list, path)

    def names(self, path: str) -> Sequence[str]:
        """Return all names in the directory `path`, sorted, also those of what is neither file nor directory."""
        return self._with_descriptors(self._files.names, path)

    def entry(self, path: str) -> FileEntry:
        """Return what is at `path`."""
        return self._files.entry(path)

    def open(self, path: str) -> ReadableFile:
        """Open the file at `path` for reading; it is open until it is closed."""
        return self._with_descriptors(self._files.open, path)

    def create(self, path: str) -> OpenFile:
        """Open a new, empty file at `path`; what was there is emptied."""
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
        """Give a file or directory another name, at once, in place of the file that has it."""
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
        """Make a directory in one that is there."""
        self._files.make_directory(path)

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory `path` durable."""
        self._with_descriptors(self._files.sync_directory, path)

    def lock(self, path: str) -> Lock:
        """Lock the file at `path`, made if need be. Raises BlockingIOError while another process has it."""
        return self._with_descriptors(self._files.lock, path)

    def modified_ms(self, path: str) -> int:
        """Return when the file was last written, in ms since 1970."""
        return self._files.modified_ms(path)

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Let the file have been written at `time_ms`."""
        self._files.set_modified_ms(path, time_ms)

    def hold_descriptor(self) -> Held:
        """Return one of the process's descriptors, which is good for nothing else until it is closed."""
        return self._with_descriptors(self._files.hold_descriptor)


def bounded(files: WritableFileSystem, health: Health) -> OpenFiles:
    """Return a file system whose open files are bounded: `files` itself where it is one, else one without a reserve."""
    return files if isinstance(files, OpenFiles) else OpenFiles(files, health, reserve=0)


def _used(handle: OpenFile) -> int:
    return handle.used


def _is_dirty(handle: OpenFile) -> bool:
    return handle.is_dirty
