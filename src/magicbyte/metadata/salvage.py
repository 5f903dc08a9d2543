"""Open the metadata of a log directory; salvage a damaged file into a new one, and quarantine the old one.

SQLite has no checksums: it detects unreadable pages, while changed values are detected only by their meaning.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from magicbyte.errors import CorruptRecordError, LogDirectoryError, MetadataError
from magicbyte.log.files.filesystem import is_locked, sync_directory
from magicbyte.log.files.names import QUARANTINE
from magicbyte.log.live.log_directory import LOCK
from magicbyte.metadata.layout import check_node
from magicbyte.metadata.sqlite import FILE_NAME, READ_NODES, SqliteStore
from magicbyte.metadata.tree import ROOT, StoredNode
from magicbyte.ports import CreateNode, SetNode

if TYPE_CHECKING:
    from magicbyte.ports import Clock

_FILES = ("", "-wal", "-shm", "-journal")  # the files of one database, by suffix


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The result for a damaged file: the reason, its new path, the number of kept nodes, and those known to be lost.

    Others may be lost without a trace.
    """

    why: str
    quarantine: str
    kept: int
    lost: list[str]

    def __str__(self) -> str:
        lost = f", {len(self.lost)} nodes are lost ({', '.join(self.lost[:10])})" if self.lost else ""
        return (
            f"{self.why}: {self.kept} nodes of the metadata are kept{lost}; topics without settings keep all their "
            f"records until settings are given to them; the damaged file is {self.quarantine} now"
        )


def open_metadata(directory: Path, clock: Clock) -> tuple[SqliteStore, Salvaged | None]:
    """Open the metadata in a log directory, creating it if needed.

    Raises LogDirectoryError if another process has it, or if its format is from a later version.
    """
    path = directory / FILE_NAME
    try:
        for ending in _FILES:
            _check_type(Path(f"{path}{ending}"))
        return SqliteStore(str(path), clock), None
    except CorruptRecordError as error:
        why = str(error)
    if is_locked(directory / LOCK):
        raise LogDirectoryError(f"{directory}: another process is using this log directory")
    aside = _put_aside(path)
    nodes, lost = _sound(_rows(aside))
    store = SqliteStore(str(path), clock)
    try:
        store.transaction(
            [SetNode(node, data) if node == ROOT else CreateNode(node, data) for node, data in nodes.items()]
        )
    except BaseException:
        store.close()
        raise
    return store, Salvaged(why, str(aside), len(nodes), lost)


def _check_type(path: Path) -> None:
    """Raise CorruptRecordError for anything but a regular file:

    SQLite would wait for a pipe, and follow a dead link.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode) and not (path.is_symlink() and path.is_file()):
            raise CorruptRecordError("file", expected="a regular one", found="something else").locate(path=str(path))


def _put_aside(path: Path) -> Path:
    """Move all files of a database into the quarantine, durably; return the new path."""
    quarantine = path.parent / QUARANTINE
    quarantine.mkdir(exist_ok=True)
    targets = (quarantine / (f"{number}.{path.name}" if number else path.name) for number in count())
    target = next(each for each in targets if not any(os.path.lexists(f"{each}{ending}") for ending in _FILES))
    for ending in _FILES:
        if os.path.lexists(f"{path}{ending}"):
            Path(f"{path}{ending}").rename(f"{target}{ending}")
    sync_directory(quarantine)
    sync_directory(path.parent)
    return target


def _rows(path: Path) -> Iterator[tuple[str, StoredNode]]:
    """Yield the readable nodes of a damaged file, from both ends."""
    try:
        for ending in _FILES:
            _check_type(Path(f"{path}{ending}"))
    except CorruptRecordError:
        return
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.Error, OverflowError), closing(sqlite3.connect(path, timeout=0)) as database:
            database.text_factory = bytes
            for name, *values in database.execute(f"{READ_NODES} ORDER BY path {order}"):
                with suppress(UnicodeDecodeError, AttributeError):
                    yield name.decode(), StoredNode(*values)


def _sound(rows: Iterator[tuple[str, StoredNode]]) -> tuple[dict[str, bytes], list[str]]:
    """Return the data of the valid nodes, parents first, and the paths of all others."""
    sound, lost = dict[str, bytes](), list[str]()
    for path, node in rows:
        try:
            check_node(path, node)
        except MetadataError:
            lost.append(path)
            continue
        if not node.ephemeral_owner:
            sound[path] = node.data
    kept = {ROOT: sound.get(ROOT, b"")}
    for path in sorted(sound):
        if path == ROOT:
            continue
        if (path.rpartition("/")[0] or ROOT) in kept:
            kept[path] = sound[path]
        else:
            lost.append(path)
    return kept, sorted(set(lost) - kept.keys())
