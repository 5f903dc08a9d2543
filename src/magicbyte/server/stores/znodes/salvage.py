"""Open the metadata of a log directory; salvage a damaged file into a new one, after copying the old one to quarantine.

SQLite has no checksums: it detects unreadable pages, while changed values are detected only by their meaning.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError, MetadataError
from magicbyte.engine.log.files.filesystem import LocalFiles, clone_file, is_locked
from magicbyte.engine.log.files.names import QUARANTINE
from magicbyte.engine.log.live.loading import move_to_quarantine
from magicbyte.engine.log.live.log_directory import LOCK
from magicbyte.engine.ports import CreateNode, SetNode
from magicbyte.server.metadata.pages import check_log, read_rows
from magicbyte.server.metadata.sqlite import FILE_NAME, FILES, READ_NODES, SqliteStore, keep_private
from magicbyte.server.metadata.tree import ROOT, StoredNode
from magicbyte.server.stores.znodes.layout import check_node

if TYPE_CHECKING:
    from magicbyte.engine.ports import Clock, MetadataStore, WritableFileSystem

_NEW: Final = ".new"
_SALVAGED: Final = ".salvaged"
_COPY: Final = re.compile(rf"(?:(?P<number>[1-9][0-9]*)\.)?{re.escape(FILE_NAME)}")


class Salvaged(Struct, frozen=True):
    """The result of a salvage: the reason, the path of the damaged file's copy, the number of kept nodes, and the nodes
    known to be lost. `kept` is None if an earlier start counted them.

    Others may be lost without a trace.
    """

    why: str
    quarantine: str
    kept: int | None
    lost: list[str]

    def __str__(self) -> str:
        kept = "what it salvaged is used" if self.kept is None else f"{self.kept} nodes of the metadata are kept"
        lost = f", {len(self.lost)} nodes are lost ({', '.join(self.lost[:10])})" if self.lost else ""
        return (
            f"{self.why}: {kept}{lost}; topics without settings keep all their "
            f"records until settings are given to them; the damaged file is {self.quarantine} now"
        )


def open_metadata(
    directory: Path,
    clock: Clock,
    complete: Callable[[MetadataStore], None] = lambda _: None,
    files: WritableFileSystem | None = None,
) -> tuple[SqliteStore, Salvaged | None]:
    """Open the metadata in a log directory, creating it if needed. Salvage it if it is damaged.

    If it is missing, and the quarantine has a copy, the latest copy is salvaged. `complete` adds nodes to salvaged
    metadata before that replaces the damaged one. Raises LogDirectoryError if another process has it, or if its format
    is from a later version.
    """
    path = directory / FILE_NAME
    copies = _quarantined(directory)
    for each in (path, *copies):
        keep_private(str(each))
    is_interrupted = os.path.lexists(f"{path}{_SALVAGED}")
    missing = not os.path.lexists(path)
    if not is_interrupted and not (missing and copies):
        try:
            _check_files(path)
            return SqliteStore(str(path), clock, check_node), None
        except CorruptRecordError as error:
            why = str(error)
    elif is_interrupted:
        why = f"{path}: an earlier start was interrupted when it salvaged the metadata"
    else:
        why = f"{path}: it is missing (deleted, or an earlier start was interrupted), and the quarantine has a copy"
    if is_locked(directory / LOCK):
        raise LogDirectoryError(f"{directory}: another process is using this log directory")
    files = LocalFiles() if files is None else files
    kept, lost = None, list[str]()
    if not is_interrupted:
        source = copies[-1] if missing and copies else path
        nodes, lost = _sound(_rows(source))
        kept = len(nodes)
        _write_new(files, path, nodes, clock, complete)
        _copy_aside(files, path)
        files.rename(f"{path}{_NEW}", f"{path}{_SALVAGED}")
        files.sync_directory(str(directory))
    _replace(files, path)
    aside = [directory / QUARANTINE, *_quarantined(directory)][-1]
    return SqliteStore(str(path), clock, check_node), Salvaged(why, str(aside), kept, lost)


def is_served(directory: Path) -> bool:
    """Return whether magicbyte has served a log directory: whether its metadata is there, or in the quarantine."""
    path = directory / FILE_NAME
    return os.path.lexists(path) or os.path.lexists(f"{path}{_SALVAGED}") or bool(_quarantined(directory))


def _check_files(path: Path) -> None:
    """Raise CorruptRecordError for damage of a database that SQLite does not report."""
    for ending in FILES:
        _check_type(Path(f"{path}{ending}"))
    log = Path(f"{path}-wal")
    check_log(log)
    is_empty = not path.exists() or not path.stat().st_size
    if is_empty and log.exists() and log.stat().st_size:  # SQLite deletes this log
        raise CorruptRecordError("file size", expected="> 0", found="0, beside a write-ahead log").locate(
            path=str(path)
        )


def _check_type(path: Path) -> None:
    """Raise CorruptRecordError for anything but a regular file:

    SQLite would wait for a pipe, and follow a dead link.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode) and not (path.is_symlink() and path.is_file()):
            raise CorruptRecordError("file", expected="a regular one", found="something else").locate(path=str(path))


def _quarantined(directory: Path) -> list[Path]:
    """Return the quarantined databases of a log directory by path, in the order of their numbers."""
    found = [(_COPY.fullmatch(name), name) for name in _names(directory / QUARANTINE)]
    numbers = {int(match["number"] or 0): name for match, name in found if match is not None}
    return [directory / QUARANTINE / numbers[number] for number in sorted(numbers)]


def _names(directory: Path) -> list[str]:
    try:
        return [each.name for each in directory.iterdir()]
    except OSError:  # the log directory reports it
        return []


# Crash order of a salvage. Each step is durable before the next one:
# 1. the new database, complete, as `.new`; SQLite syncs it and its name (a crash up to here: it is made again)
# 2. copies of the damaged files in the quarantine (a crash up to here: they are copied again, under another number)
# 3. `.new` is renamed to `.salvaged`: from now on each start continues with 4
# 4. the damaged files are deleted: with a write-ahead log beside it, a new database would take over its pages
# 5. `.salvaged` gets the name of the database


def _write_new(
    files: WritableFileSystem,
    path: Path,
    nodes: Mapping[str, bytes],
    clock: Clock,
    complete: Callable[[MetadataStore], None],
) -> None:
    new = f"{path}{_NEW}"
    _delete(files, new)
    with closing(SqliteStore(new, clock, check_node)) as store:
        store.transaction(
            [SetNode(node, data) if node == ROOT else CreateNode(node, data) for node, data in nodes.items()]
        )
        complete(store)


def _delete(files: WritableFileSystem, path: str) -> None:
    """Delete all files of a database."""
    for ending in FILES:
        if os.path.lexists(f"{path}{ending}"):
            files.delete(f"{path}{ending}")


def _copy_aside(files: WritableFileSystem, path: Path) -> None:
    """Copy the regular files of a database into the quarantine, durably."""
    present = [ending for ending in FILES if Path(f"{path}{ending}").is_file()]
    if not present:
        return
    quarantine = path.parent / QUARANTINE
    if not quarantine.is_dir():
        files.make_directory(str(quarantine))
        files.sync_directory(str(path.parent))
    taken = _names(quarantine)
    names = (f"{number}.{path.name}" if number else path.name for number in count())
    target = quarantine / next(name for name in names if not any(f"{name}{ending}" in taken for ending in FILES))
    for ending in present:
        clone_file(Path(f"{path}{ending}"), Path(f"{target}{ending}"))
    files.sync_directory(str(quarantine))


def _replace(files: WritableFileSystem, path: Path) -> None:
    """Replace the database at `path` by the salvaged one. What is no file of a database goes to the quarantine."""
    for each in (f"{path}{ending}" for ending in FILES):
        if os.path.lexists(each) and not Path(each).is_file():
            move_to_quarantine(files, each, str(path.parent / QUARANTINE))
    _delete(files, str(path))
    files.sync_directory(str(path.parent))
    files.rename(f"{path}{_SALVAGED}", str(path))
    files.sync_directory(str(path.parent))


def _rows(path: Path) -> Iterator[tuple[str, StoredNode]]:
    """Yield the readable nodes of a damaged database."""
    for name, *values in read_rows(path, Path(f"{path}-wal"), READ_NODES):
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
