"""A metadata tree in an SQLite file: each transaction is atomic, and durable when it returns.

The tree itself is in memory (`tree.py`); the file has one row per node, and is read when it is opened. One process has
it open at a time. Ephemeral nodes are deleted when the next process opens it.

Invariants:
1. The file has every transaction that returned, and each as a whole (write-ahead log, synchronous=FULL;
   `test_a_killed_process_leaves_every_transaction_whole_and_none_that_returned_is_lost`).
2. After a failed write nothing more is written. Whether the failed transaction is in the file is unknown, and it was
   not acknowledged; the next start shows it.
3. One process has the file, by SQLite's exclusive lock. Threads share the connection under the lock of the tree.
4. A file of a later format is refused before anything in it is changed.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, LogDirectoryOfflineError, MetadataError
from magicbyte.engine.printable import logger
from magicbyte.server.metadata.tree import ROOT, Session, StoredNode, Tree, check_stored

if TYPE_CHECKING:
    from magicbyte.engine.ports import Clock

log = logger(__name__)
Check: TypeAlias = Callable[[str, StoredNode], None]

FILE_NAME: Final = "magicbyte-metadata.sqlite"
"""The file's name in a log directory."""

_FORMAT: Final = 1  # the file's user_version
_FIELDS: Final = StoredNode.__struct_fields__
_VALUES: Final = attrgetter(*_FIELDS)
_CREATE: Final = (
    f"CREATE TABLE nodes (path TEXT PRIMARY KEY, {', '.join(_FIELDS)}) WITHOUT ROWID",
    "CREATE TABLE last (id INTEGER PRIMARY KEY, zxid INTEGER NOT NULL)",
)
READ_NODES: Final = f"SELECT path, {', '.join(_FIELDS)} FROM nodes"
_PUT: Final = f"INSERT OR REPLACE INTO nodes VALUES ({', '.join('?' * (len(_FIELDS) + 1))})"
_DELETE: Final = "DELETE FROM nodes WHERE path = ?"
_PUT_LAST: Final = "INSERT OR REPLACE INTO last VALUES (0, ?)"


_NOT_OF_THE_FILE: Final = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM}
)
"""Errors that do not indicate a damaged file."""

FILES: Final = ("", "-wal", "-shm", "-journal")
"""The endings of the files of one database."""

_PRIVATE: Final = 0o600  # secrets of users (SCRAM) and settings of listeners (passwords) are in it


def keep_private(path: str) -> None:
    """Let only the owner read and write the files of the database at `path`. Log a warning if that is impossible."""
    for file in (Path(f"{path}{ending}") for ending in FILES):
        try:
            if stat.S_IMODE(file.stat().st_mode) & ~_PRIVATE:
                file.chmod(_PRIVATE)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("%s may be readable for others, and holds secrets: %s", file, error.strerror)


def create_tables(database: sqlite3.Connection) -> None:
    """Create the tables in a new database: the first one has its root in page 2, the second one in page 3."""
    for statement in _CREATE:
        database.execute(statement)


def _damaged(path: str, error: Exception) -> CorruptRecordError:
    return CorruptRecordError("metadata", expected="nodes in an SQLite database", found=str(error)).locate(path=path)


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code of an error; an error of the Python module alone is that of a damaged
    file.
    """
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)) & 0xFF


class SqliteTree(Tree):
    """A tree in the file at `path`, created if needed. `check` raises MetadataError for an impossible node.

    Raises LogDirectoryError if another process has it open, CorruptRecordError if it cannot be read, or contains an
    impossible tree.

    After a failed write each further change raises LogDirectoryOfflineError, too.
    """

    def __init__(self, path: str, clock: Clock, check: Check = check_stored) -> None:
        self.path, self._check = path, check
        self._error: sqlite3.Error | None = None
        try:
            with contextlib.suppress(FileExistsError):  # SQLite gives the mode of the file to its write-ahead log, too
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE))
            self._database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except (sqlite3.Error, OSError) as error:
            raise LogDirectoryError(f"{path}: {error}") from error
        try:
            nodes, last_zxid = self._load()
        except sqlite3.Error as error:
            self._database.close()
            if (code := _code(error)) in _NOT_OF_THE_FILE:
                locked = code == sqlite3.SQLITE_BUSY
                raise LogDirectoryError(f"{path}: {'another process is using it' if locked else error}") from error
            raise _damaged(path, error) from error
        except (UnicodeDecodeError, OverflowError, TypeError, MetadataError) as error:
            self._database.close()
            raise _damaged(path, error) from error
        except LogDirectoryError:
            self._database.close()
            raise
        super().__init__(clock, self._write, nodes, last_zxid)
        self.expire_all()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _load(self) -> tuple[dict[str, StoredNode], int]:
        run = self._database.execute
        run("PRAGMA locking_mode = EXCLUSIVE")  # also avoids the shared memory file
        version = run("PRAGMA user_version").fetchone()[0]
        if version not in (0, _FORMAT):  # before anything is written
            raise LogDirectoryError(
                f"{self.path}: cannot open the metadata: this magicbyte reads format {_FORMAT}, the file has format "
                f"{version}: start the later magicbyte that wrote it; if none did, the header of the file is damaged: "
                f"copy the file, then `sqlite3 {self.path} 'PRAGMA user_version = {_FORMAT}'`"
            )
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        run("BEGIN EXCLUSIVE")
        if version == 0:
            create_tables(self._database)
            run(_PUT, (ROOT, *_VALUES(StoredNode(b"", 0, 0, 0, 0, 0, 0, 0, 0))))
            run(_PUT_LAST, (0,))
            run(f"PRAGMA user_version = {_FORMAT}")
        run("COMMIT")
        nodes = {path: StoredNode(*values) for path, *values in run(READ_NODES)}
        last = run("SELECT zxid FROM last").fetchone()
        if ROOT not in nodes or last is None or not isinstance(last[0], int):
            raise MetadataError(ROOT, "the root, or the number of the last transaction, is missing")
        for path, node in nodes.items():
            self._check(path, node)
            if path != ROOT and (path.rpartition("/")[0] or ROOT) not in nodes:
                raise MetadataError(path, "its parent node is missing")
        return nodes, last[0]

    def _write(self, nodes: Mapping[str, StoredNode | None], zxid: int) -> None:
        if self._error is not None:
            raise LogDirectoryOfflineError(f"{self.path}: {self._error}") from self._error
        run = self._database.execute
        try:
            run("BEGIN")
            for path, node in nodes.items():
                if node is None:
                    run(_DELETE, (path,))
                else:
                    run(_PUT, (path, *_VALUES(node)))
            run(_PUT_LAST, (zxid,))
            run("COMMIT")
        except sqlite3.Error as error:
            self._error = error
            with contextlib.suppress(sqlite3.Error):
                run("ROLLBACK")
            log.critical(
                "metadata in %s cannot be written: %s; topics and settings cannot be changed from now on. "
                "What to do: %s, then start again",
                self.path,
                error,
                "free some space" if _code(error) == sqlite3.SQLITE_FULL else "check the disk and its permissions",
            )
            raise LogDirectoryOfflineError(f"{self.path}: {error}") from error


class SqliteStore(Session):
    """The session of the only process that has the file at `path` open. `close` also closes the file."""

    def __init__(self, path: str, clock: Clock, check: Check = check_stored) -> None:
        self._file = SqliteTree(path, clock, check)
        super().__init__(self._file, self._file.session().session_id)

    def close(self) -> None:
        """End the session and close the file."""
        try:
            super().close()
        finally:
            self._file.close()
