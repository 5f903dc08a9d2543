"""A simulated disk that, at a power cut, keeps only synced data for sure; reproducible from one seed.

Until a file is synced, each of its sectors may be on the disk in its old, its new, or any state in between; its length
likewise. Until a directory is synced, each change of a name in it may be durable or not, in any combination. Disk
errors are injected by the number of an operation.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Self

from magicbyte.engine.ports import Buffer, FileEntry

if TYPE_CHECKING:
    from magicbyte.engine.ports import Clock

SECTOR = 512  # bytes that are written atomically

Observer = Callable[[str, str], None]


class _Inode:
    """A file: its visible content, its durable content, and the changes in between."""

    def __init__(self, content: bytes = b"", modified_ms: int = 0) -> None:
        self.content = bytearray(content)
        self.stable = content
        self.changes: list[tuple[int, bytes | None]] = []  # a position and written bytes, or a size and None
        self.modified_ms = modified_ms
        self.failed = False  # a sync failed: unsynced data never becomes durable

    def write(self, position: int, data: bytes) -> None:
        _write(self.content, position, data)
        self.changes.append((position, data))

    def resize(self, size: int) -> None:
        _resize(self.content, size)
        self.changes.append((size, None))

    def sync(self) -> None:
        if not self.failed:
            self.stable = bytes(self.content)
            self.changes.clear()

    def after_a_cut(self, random: Random) -> bytes:
        """Return the content after a power cut now."""
        if not self.changes:
            return self.stable
        how = random.random()
        if how < 0.15:
            return self.stable
        if how < 0.3:
            return bytes(self.content)
        if how < 0.5:
            return self._replayed(random.randint(0, len(self.changes)))
        return self._torn(random)

    def _replayed(self, count: int) -> bytes:
        content = bytearray(self.stable)
        for position, data in self.changes[:count]:
            if data is None:
                _resize(content, position)
            else:
                _write(content, position, data)
        return bytes(content)

    def _torn(self, random: Random) -> bytes:
        """Choose the length, and each sector independently, among their states."""
        content = bytearray(self.stable)
        sizes = [len(content)]
        versions: dict[int, list[bytes]] = {}
        for position, data in self.changes:
            before = len(content)
            if data is None:
                _resize(content, position)
                touched = range(min(before, position), max(before, position))
            else:
                _write(content, position, data)
                touched = range(min(before, position), position + len(data))
            sizes.append(len(content))
            for sector in range(touched.start // SECTOR, -(-touched.stop // SECTOR)):
                was = bytes(self.stable[sector * SECTOR : (sector + 1) * SECTOR])
                now = bytes(content[sector * SECTOR : (sector + 1) * SECTOR])
                versions.setdefault(sector, [was]).append(now)
        bytes_left = bytearray(self.stable)
        _resize(bytes_left, random.choice(sizes))
        keep = random.choice((0.2, 0.5, 0.9))  # fraction of the newest writes that survive
        for sector, known in versions.items():
            chosen = known[-1] if random.random() < keep else random.choice(known)
            begin = sector * SECTOR
            room = max(min(len(bytes_left) - begin, SECTOR), 0)
            bytes_left[begin : begin + room] = chosen[:room].ljust(room, b"\0")
        return bytes(bytes_left)


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _write(content: bytearray, position: int, data: bytes) -> None:
    if position > len(content):
        _resize(content, position)
    content[position : position + len(data)] = data


class _Directory:
    """A directory: its visible names, its durable names, and the changes in between."""

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.stable: dict[str, _Inode | _Directory] = {}
        self.changes: list[tuple[str | None, str | None, _Inode | _Directory]] = []  # old name, new name, entry

    def change(self, old: str | None, new: str | None, node: _Inode | _Directory) -> None:
        _rename(self.names, old, new, node)
        self.changes.append((old, new, node))

    def sync(self) -> None:
        self.stable = dict(self.names)
        self.changes.clear()

    def after_a_cut(self, random: Random) -> dict[str, _Inode | _Directory]:
        names = dict(self.stable)
        how = random.random()
        kept = self.changes
        if how < 0.2:
            kept = []
        elif how < 0.4:
            kept = self.changes[: random.randint(0, len(self.changes))]
        elif how < 0.85:
            keep = random.choice((0.2, 0.5, 0.8))
            kept = [change for change in self.changes if random.random() < keep]
        for old, new, node in kept:
            _rename(names, old, new, node)
        return names


def _rename(names: dict[str, _Inode | _Directory], old: str | None, new: str | None, node: _Inode | _Directory) -> None:
    """Rename `node` to `new`; None: delete it. Its old name may belong to another by now."""
    for name in [name for name, each in names.items() if each is node and (new is not None or name == old)]:
        del names[name]
    if new is not None:
        names[new] = node


def _copied(directory: _Directory, _random: Random) -> _Directory:
    """Copy a directory with all changes that are not durable yet."""
    nodes: dict[int, _Inode | _Directory] = {}

    def copy(node: _Inode | _Directory) -> _Inode | _Directory:
        if id(node) not in nodes:
            nodes[id(node)] = made = _Inode() if isinstance(node, _Inode) else _Directory()
            if isinstance(node, _Inode) and isinstance(made, _Inode):
                made.content, made.stable = bytearray(node.content), node.stable
                made.changes, made.modified_ms, made.failed = list(node.changes), node.modified_ms, node.failed
            elif isinstance(node, _Directory) and isinstance(made, _Directory):
                made.names = {name: copy(each) for name, each in node.names.items()}
                made.stable = {name: copy(each) for name, each in node.stable.items()}
                made.changes = [(old, new, copy(each)) for old, new, each in node.changes]
        return nodes[id(node)]

    found = copy(directory)
    assert isinstance(found, _Directory)
    return found


class SimulatedFile:
    """An open file of a SimulatedDisk."""

    _is_open = False

    def __init__(self, disk: SimulatedDisk, path: str, inode: _Inode) -> None:
        self.path = path
        self._disk, self._inode = disk, inode
        disk.take_descriptor(path)
        self._is_open = True

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return len(self._inode.content)

    def fileno(self) -> None:
        """Return None: there is no descriptor."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`; fewer only at the end of the file."""
        return bytes(self._inode.content[position : position + length])

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at `position`; return their number."""
        content = self.read_at(position, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def write_at(self, position: int, *pieces: Buffer) -> None:
        """Write all of `pieces`; if the write must fail, a part."""
        data = b"".join(pieces)
        error = self._disk.error("write", self.path)
        if error is not None:
            data = data[: self._disk.random.randint(0, len(data))]
        self._inode.write(position, data)
        self._inode.modified_ms = self._disk.date_ms()
        self._disk.observe("write", self.path)
        if error is not None:
            raise error

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes, or extend it with zeros."""
        self._disk.may_fail("truncate", self.path)
        self._inode.resize(size)
        self._inode.modified_ms = self._disk.date_ms()
        self._disk.observe("truncate", self.path)

    def sync(self) -> None:
        """Make the content durable, after observing a power cut in the middle of the sync."""
        error = self._disk.error("sync", self.path)
        self._disk.observe("sync", self.path)
        if error is not None:
            self._inode.failed = True
            raise error
        if not self._disk.lies:
            self._inode.sync()

    def close(self) -> None:
        """Release the descriptor. A second call does nothing."""
        if self._is_open:
            self._is_open = False
            self._disk.descriptors -= 1

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SimulatedLock:
    """A lock of a SimulatedDisk."""

    def __init__(self, locked: set[str], path: str) -> None:
        self._locked, self._path = locked, path
        locked.add(path)

    def release(self) -> None:
        """Release the lock."""
        self._locked.discard(self._path)


class SimulatedDisk:
    """A WritableFileSystem in memory, used by one process.

    `operations` counts changing operations; `counted` does so by kind and `phase`, which its user sets. `observer`,
    called in each of them with kind and path, may examine the result of `after_a_cut` there. `failures` maps the
    numbers of failing operations to their errno. `now_ms` is the time of files without a `clock`. `descriptors` are in
    use; beyond `most_descriptors` EMFILE is raised, which is not counted as an operation. A disk that `lies`
    acknowledges syncs and does not do them.
    """

    def __init__(self, seed: int = 0, clock: Clock | None = None) -> None:
        self.random = Random(seed)
        self._clock = clock
        self.operations = 0
        self.phase = ""
        self.counted: Counter[tuple[str, str]] = Counter()
        self.failures: dict[int, int] = {}
        self.observer: Observer | None = None
        self.now_ms = 0
        self.descriptors, self.most_descriptors = 0, 1 << 30
        self.lies = False
        self._root = _Directory()
        self._locked: set[str] = set()

    # ---- faults

    def after_a_cut(self, seed: int) -> SimulatedDisk:
        """Return a disk as found after a power cut now; this one continues unaffected."""
        return self._with(self._survived, seed)

    def after_a_kill(self, seed: int) -> SimulatedDisk:
        """Return the disk as the next process finds it; the killed process keeps this one."""
        return self._with(_copied, seed)

    def _with(self, content: Callable[[_Directory, Random], _Directory], seed: int) -> SimulatedDisk:
        disk = SimulatedDisk(seed, self._clock)
        disk.now_ms, disk.lies = self.now_ms, self.lies
        disk._root = content(self._root, disk.random)
        return disk

    def _survived(self, directory: _Directory, random: Random) -> _Directory:
        survived = _Directory()
        for name, node in sorted(directory.after_a_cut(random).items()):
            if isinstance(node, _Directory):
                survived.names[name] = self._survived(node, random)
            else:
                survived.names[name] = _Inode(node.after_a_cut(random), node.modified_ms)
        survived.stable = dict(survived.names)
        return survived

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Flip a bit of a file, on the platter and for readers."""
        inode = self._inode(path)
        stable = bytearray(inode.stable)
        for content in (inode.content, stable):
            if position < len(content):
                content[position] ^= 1 << bit
        inode.stable = bytes(stable)

    def date_ms(self) -> int:
        """Return the modification time of a write now."""
        return self.now_ms if self._clock is None else self._clock.now_ms()

    def error(self, kind: str, path: str) -> OSError | None:
        """Count an operation; return its injected error, or None."""
        self.operations += 1
        self.counted[kind, self.phase] += 1
        number = self.failures.get(self.operations)
        return None if number is None else OSError(number, os.strerror(number), path)

    def may_fail(self, kind: str, path: str) -> None:
        """Count an operation; raise its injected error."""
        error = self.error(kind, path)
        if error is not None:
            raise error

    def observe(self, kind: str, path: str) -> None:
        """Let the observer examine an operation that is not durable yet."""
        if self.observer is not None:
            self.observer(kind, path)

    def check_descriptors(self, path: str) -> None:
        """Raise EMFILE if no descriptor is left."""
        if self.descriptors >= self.most_descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def take_descriptor(self, path: str) -> None:
        """Count an opened file. Raises EMFILE."""
        self.check_descriptors(path)
        self.descriptors += 1

    # ---- the interface of ports.WritableFileSystem

    def list(self, path: str) -> list[FileEntry]:
        """Return the entries of the directory `path`, by name."""
        self.check_descriptors(path)
        names = sorted(self._directory(path).names)
        return [self.entry(f"{path.rstrip('/')}/{name}") for name in names]

    def names(self, path: str) -> Sequence[str]:
        """Return all names in the directory `path`, sorted."""
        self.check_descriptors(path)
        return sorted(self._directory(path).names)

    def entry(self, path: str) -> FileEntry:
        """Return the entry of the file or directory at `path`."""
        node = self._node(path)
        is_directory = isinstance(node, _Directory)
        return FileEntry(path, 0 if isinstance(node, _Directory) else len(node.content), is_directory)

    def open(self, path: str) -> SimulatedFile:
        """Open the file at `path` for reading."""
        return SimulatedFile(self, path, self._inode(path))

    def edit(self, path: str) -> SimulatedFile:
        """Open the file at `path` for reading and writing."""
        return SimulatedFile(self, path, self._inode(path))

    def create(self, path: str) -> SimulatedFile:
        """Open a new, empty file at `path`; an existing file is truncated."""
        self.check_descriptors(path)
        self.may_fail("create", path)
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if isinstance(node, _Inode):
            node.resize(0)
        else:
            node = _Inode(modified_ms=self.date_ms())
            directory.change(None, name, node)
        self.observe("create", path)
        return SimulatedFile(self, path, node)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, replacing the file of that name.

        Between directories, the new name and the removal of the old one become durable independently.
        """
        node = self._node(source)
        self.may_fail("rename", source)
        directory, name = self._parent(target)
        before, old_name = self._parent(source)
        if before is directory:
            directory.change(old_name, name, node)
        else:
            directory.change(None, name, node)
            before.change(old_name, None, node)
        self.observe("rename", source)

    def delete(self, path: str) -> None:
        """Remove the name of a file, or an empty directory."""
        node = self._node(path)
        if isinstance(node, _Directory) and node.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self.may_fail("delete", path)
        directory, name = self._parent(path)
        directory.change(name, None, node)
        self.observe("delete", path)

    def make_directory(self, path: str) -> None:
        """Create a directory in an existing one."""
        directory, name = self._parent(path)
        if name in directory.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self.may_fail("make directory", path)
        directory.change(None, name, _Directory())
        self.observe("make directory", path)

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable, after observing a power cut in the middle of the sync."""
        directory = self._directory(path)
        self.check_descriptors(path)
        self.may_fail("sync directory", path)
        self.observe("sync directory", path)
        if not self.lies:
            directory.sync()

    def lock(self, path: str) -> SimulatedLock:
        """Lock the file at `path`, creating it if needed. Raises BlockingIOError while it is locked."""
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        directory, name = self._parent(path)
        if name not in directory.names:
            self.create(path)
        return SimulatedLock(self._locked, path)

    def modified_ms(self, path: str) -> int:
        """Return the modification time of the file."""
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the modification time of the file."""
        self._inode(path).modified_ms = time_ms

    def hold_descriptor(self) -> SimulatedFile:
        """Reserve a descriptor until the result is closed."""
        return SimulatedFile(self, "", _Inode())

    def walk(self) -> Iterator[tuple[str, bytes]]:
        """Yield path and visible content of all files."""
        yield from _walk(self._root, "")

    def _node(self, path: str) -> _Inode | _Directory:
        node: _Inode | _Directory = self._root
        for name in filter(None, path.split("/")):
            if not isinstance(node, _Directory) or name not in node.names:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = node.names[name]
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._node(path)
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _inode(self, path: str) -> _Inode:
        node = self._node(path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        folder, _, name = path.rstrip("/").rpartition("/")
        return self._directory(folder), name


def _walk(directory: _Directory, folder: str) -> Iterator[tuple[str, bytes]]:
    for name, node in sorted(directory.names.items()):
        if isinstance(node, _Directory):
            yield from _walk(node, f"{folder}/{name}")
        else:
            yield f"{folder}/{name}", bytes(node.content)
