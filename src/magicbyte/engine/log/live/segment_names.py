"""The names of a log's files: of one segment, with its renames into and out of the log, and of a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magicbyte.engine.log.files.directory import (
    ENRICHED_INDEX,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
)
from magicbyte.engine.log.files.filesystem import exists
from magicbyte.engine.log.files.names import offset_file

if TYPE_CHECKING:
    from magicbyte.engine.log.files.open_files import OpenFiles
    from magicbyte.engine.ports import WritableFileSystem

DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"
COMPANIONS = (OFFSET_INDEX, TIME_INDEX, ENRICHED_INDEX, TRANSACTION_INDEX)


class SegmentNames:
    """The files of one segment, by kind (`.log`, `.index`). `suffix` follows the kind; it is "" within the log."""

    __slots__ = ("base_offset", "files", "folder", "suffix")

    def __init__(self, files: OpenFiles, folder: str, base_offset: int, suffix: str) -> None:
        self.files, self.folder, self.base_offset, self.suffix = files, folder, base_offset, suffix

    def path(self, kind: str) -> str:
        """Return where a file of the segment is."""
        return f"{self.folder}/{self.base_offset:020}{kind}{self.suffix}"

    def has(self, kind: str) -> bool:
        """Return whether there is a file of this kind."""
        return exists(self.files, self.path(kind))

    def rename(self, suffix: str, *, snapshot: bool = False, log_first: bool = False) -> None:
        """Replace the suffix in the names of all files by `suffix`, that of the log first.

        `snapshot`: also that of the producer snapshot at the base offset. `log_first`: the log's new name is durable
        before any other name changes, so that it is never found without an index that it had.
        """
        for kind in (LOG, *COMPANIONS, *([SNAPSHOT] if snapshot else [])):
            if not self.has(kind):
                continue
            self.files.rename(self.path(kind), f"{self.path(kind).removesuffix(self.suffix)}{suffix}")
            if kind == LOG and log_first:
                self.files.sync_directory(self.folder)
        self.suffix = suffix

    def delete(self) -> None:
        """Delete the log and its indexes."""
        for kind in (LOG, *COMPANIONS):
            if self.has(kind):
                self.files.delete(self.path(kind))

    def delete_renamed(self) -> None:
        """Delete all files whose names end with DELETED, the producer snapshot included."""
        for entry in self.files.list(self.folder):
            if entry.name.startswith(f"{self.base_offset:020}.") and entry.name.endswith(DELETED):
                self.files.delete(entry.path)


def offset_files(files: WritableFileSystem, folder: str) -> list[tuple[int, str, str]]:
    """Return base offset, kind and suffix of the files in a folder that are named by an offset."""
    return [
        (found.offset, found.kind, found.suffix)
        for entry in files.list(folder)
        if not entry.is_directory and (found := offset_file(entry.name)) is not None
    ]


def segment_bases(files: WritableFileSystem, folder: str) -> list[int]:
    """Return the base offsets of the segments in a folder, ascending."""
    return sorted(base for base, kind, suffix in offset_files(files, folder) if kind == LOG and not suffix)


def snapshot_offsets(files: WritableFileSystem, folder: str) -> list[int]:
    """Return the offsets of the producer snapshots, ascending."""
    return sorted(base for base, kind, suffix in offset_files(files, folder) if kind == SNAPSHOT and not suffix)
