"""Interfaces to the outside world, implemented by the real one or by a simulation for tests.

`log/files/filesystem.py` has the local file system and, for reading, those of fsspec URLs; `testing/disk.py` one that
loses unsynced data. `metadata/` has the trees of nodes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, ParamSpec, Protocol, Self, TypeAlias, TypeVar

from msgspec import Struct

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class FileEntry(Struct, frozen=True):
    """An entry of a directory. `size` is in bytes, 0 for a directory."""

    path: str
    size: int
    is_directory: bool

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]


class ReadableFile(Protocol):
    """An open file, read by ranges. Any number of threads may read at once: there is no current position."""

    @property
    def path(self) -> str:
        """Where the file is, for messages."""

    @property
    def size(self) -> int:
        """Bytes in the file when it was opened."""

    def fileno(self) -> int | None:
        """Return the system's descriptor of the open file, or None if it has none that `sendfile` could use."""

    def read_at(self, position: int, length: int) -> bytes:
        """Return the `length` bytes at `position`; fewer only at the end of the file."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes at `position` and return their number; fewer only at the end of the file."""

    def close(self) -> None:
        """Close the file. It is also closed when it is no longer referenced."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class FileSystem(Protocol):
    """A tree of files. Paths are whole: the paths in the result of `list` can be passed to every other call. Errors are
    OSErrors.
    """

    def list(self, path: str) -> list[FileEntry]:
        """Return the entries of the directory `path`, by name."""

    def entry(self, path: str) -> FileEntry:
        """Return the entry of the file or directory at `path`."""

    def open(self, path: str) -> ReadableFile:
        """Open the file at `path` for reading."""


Buffer: TypeAlias = bytes | bytearray | memoryview


class Task(Protocol[T_co]):
    """Work that runs in a thread."""

    def result(self) -> T_co:
        """Wait for its end; return its result or raise its exception."""

    def exception(self) -> BaseException | None:
        """Wait for its end; return its exception, or None."""


class Executor(Protocol):
    """The caller's threads, such as a pool of `concurrent.futures`."""

    def submit(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Task[T]:
        """Run `work` in a thread."""


class Many(Protocol):
    """`map`, or an equivalent that uses several threads."""

    def __call__(self, work: Callable[[A], T], items: Iterable[A], /) -> Iterable[T]:
        """Yield the result of `work` for each item, in their order; raise the exception of the first that fails."""


class WritableFile(ReadableFile, Protocol):
    """An open file that can be changed. `size` follows each change. Unsynced changes may be lost in a crash."""

    def write_at(self, position: int, *pieces: Buffer) -> None:
        """Write all of `pieces`, one after the other, from `position` on; a gap before them is filled with zeros."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes, or extend it with zeros."""

    def sync(self) -> None:
        """Make the content durable, but not the name, which belongs to the directory.

        After an error the content is undefined.
        """


class Lock(Protocol):
    """A lock file, held by this process."""

    def release(self) -> None:
        """Release the lock. The file stays."""


class Held(Protocol):
    """A reserved file descriptor."""

    def close(self) -> None:
        """Release it."""


class WritableFileSystem(FileSystem, Protocol):
    """A tree of files that can be changed. Changes of names are durable once their directory is synced."""

    def names(self, path: str) -> Sequence[str]:
        """Return all names in the directory `path`, sorted, including those of special files."""

    def create(self, path: str) -> WritableFile:
        """Open an empty file at `path`; an existing file is truncated."""

    def edit(self, path: str) -> WritableFile:
        """Open the file at `path` for reading and writing."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory atomically, replacing the file of that name."""

    def delete(self, path: str) -> None:
        """Remove the name of a file, or an empty directory."""

    def make_directory(self, path: str) -> None:
        """Create a directory in an existing one."""

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory `path` durable."""

    def lock(self, path: str) -> Lock:
        """Lock the file at `path`, creating it if needed.

        Raises BlockingIOError while another process holds the lock.
        """

    def modified_ms(self, path: str) -> int:
        """Return the modification time of the file, in ms since 1970."""

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        """Set the modification time of the file."""

    def hold_descriptor(self) -> Held:
        """Reserve one of the process's file descriptors until it is closed."""


class Clock(Protocol):
    """The only source of time: a wall clock for dates, and a monotonic clock for intervals and deadlines."""

    def now_ms(self) -> int:
        """Return the date in ms since 1970.

        It may jump in either direction: use it for dates that are stored or compared.
        """

    def monotonic_ms(self) -> int:
        """Return ms since an arbitrary start. It never jumps: use it for intervals, timeouts and deadlines."""


class Moment(Struct, frozen=True):
    """One reading of both clocks: store `date_ms`, and count deadlines from `monotonic_ms`."""

    date_ms: int
    monotonic_ms: int

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        """Return a reading of both clocks."""
        return cls(clock.now_ms(), clock.monotonic_ms())

    @classmethod
    def fixed(cls, now_ms: int) -> Moment:
        """Return the same time for both clocks, for work on closed logs, during which no time passes."""
        return cls(now_ms, now_ms)


class Node(Struct, frozen=True):
    """A node of the metadata tree: its data, and the fields of ZooKeeper's Stat.

    `version` counts the changes of its data, `cversion` the changes of its children. `czxid`, `mzxid` and `pzxid` are
    the transactions that created it, last changed its data, and last changed its children; `ctime_ms` and `mtime_ms`
    are the times of the first two. `ephemeral_owner` is the session of an ephemeral node, else 0.
    """

    data: bytes
    version: int
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    cversion: int
    ephemeral_owner: int
    child_count: int


class CreateNode(Struct, frozen=True):
    """Create a node; its parent must exist. `sequence`: append ten digits to its name, increasing per parent."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class SetNode(Struct, frozen=True):
    """Change a node's data, if it has this version; -1 matches any version."""

    path: str
    data: bytes
    version: int = -1


class DeleteNode(Struct, frozen=True):
    """Delete a node without children, if it has this version; -1 matches any version."""

    path: str
    version: int = -1


class CheckNode(Struct, frozen=True):
    """Fail unless the node has this version; -1 matches any version."""

    path: str
    version: int = -1


NodeChange: TypeAlias = CreateNode | SetNode | DeleteNode | CheckNode


class NodeEvent(enum.Enum):
    """An event of a watch, with ZooKeeper's name."""

    CREATED = "created"
    DELETED = "deleted"
    DATA_CHANGED = "data changed"
    CHILDREN_CHANGED = "children changed"
    WATCH_LOST = "watch lost"
    """The connection was lost and is back: changes in between are not reported. Read the node again."""


Watch: TypeAlias = Callable[[NodeEvent, str], None]


class SessionEvent(enum.Enum):
    """A change of a session's state."""

    SUSPENDED = "suspended"
    """The connection is lost. Calls raise NetworkError; ephemeral nodes remain until the session times out."""
    RECONNECTED = "reconnected"
    """The connection was restored within the session timeout; watches set before are then called with WATCH_LOST."""
    EXPIRED = "expired"
    """The session has ended, and its ephemeral nodes and watches are gone. A new session is needed."""


SessionListener: TypeAlias = Callable[[SessionEvent], None]


class MetadataStore(Protocol):
    """A tree of small nodes with ZooKeeper's semantics, as seen by one session. Paths are whole: `/brokers/ids/0`.

    A change is durable when the call returns. A watch is called once, at the first change after it was set, with the
    event and the path. It is called before a later read returns that change. A session may have a listener of
    `SessionEvent`s, called in the same order. Errors are `MetadataError`s, and NetworkErrors if there is a network. A
    change that failed with UnknownOutcomeError may have been made: before a retry, read the node again, and compare its
    `ephemeral_owner` with `session_id` or its data with the written data.
    """

    @property
    def session_id(self) -> int:
        """The session's number, which is the `ephemeral_owner` of its ephemeral nodes."""

    def get(self, path: str, watch: Watch | None = None) -> Node:
        """Return a node, and watch its data. Raises NoNodeError."""

    def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """Return a node or None, and watch its creation, change and deletion."""

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names of a node's children, sorted, and watch their creation and deletion. Raises NoNodeError."""

    def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Return nodes (None for those that do not exist) and watch those that exist, in one round trip."""

    def children_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[list[str] | None]:
        """Return the names of the children of nodes, None for nodes that do not exist, in one round trip."""

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False, parents: bool = False
    ) -> str:
        """Create a node, and with `parents` the missing nodes above it; return its path.

        Raises NodeExistsError, NoNodeError, NoChildrenForEphemeralsError.
        """

    def set(self, path: str, data: bytes, version: int = -1) -> Node:
        """Change a node's data; return the node. Raises NoNodeError, BadVersionError."""

    def delete(self, path: str, version: int = -1) -> None:
        """Delete a node. Raises NoNodeError, NotEmptyError, BadVersionError."""

    def transaction(self, changes: Sequence[NodeChange]) -> list[str]:
        """Make all changes or none: raise the error of the first impossible one; return the path of each.

        Raises MetadataError for more bytes than the store accepts in one request: the caller must split the changes.
        """

    def close(self) -> None:
        """End the session: its ephemeral nodes are deleted."""
