"""Read the nodes of a damaged SQLite file: its pages, with those of its write-ahead log, behind a new first page.

The first page has the header and the schema. They are the same in each file of magicbyte: those of a new database are
used, and damage there loses no nodes. The files are only read. Source: SQLite's "Database File Format", sections 1.3
(header) and 4 (write-ahead log).
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from magicbyte.engine.errors import CorruptRecordError
from magicbyte.server.metadata.sqlite import create_tables

_PAGE_SIZE: Final = struct.Struct(">16xH")
_PAGE_COUNT: Final = struct.Struct(">I")
_PAGE_COUNT_AT: Final = 28
_MOST_BYTES: Final = 1 << 30  # SQLite's own limit for a database in memory

_LOG_HEADER: Final = struct.Struct(">IIIIIIII")  # magic, version, page size, checkpoints, two salts, two checksums
_LOG_MAGIC: Final = 0x377F0682  # its last bit: checksums are of big-endian words
_FRAME_HEADER: Final = struct.Struct(">IIIIII")  # page, pages after a commit or 0, two salts, two checksums
_CHECKED_BYTES: Final = 8  # of a frame's header
_HEADER_CHECKED_BYTES: Final = 24  # of the log's header
_DEFAULT_PAGE_SIZE: Final = 4096
_STALE_FRAMES: Final = 16  # frames in a row of an earlier log, or never written: the end of this one


class _Frame(Struct, frozen=True):
    """A page in a write-ahead log. `pages`: the size of the database if a transaction ends here, or 0.

    `is_sound`: it and all frames before it have the right checksums.
    """

    page: int
    pages: int
    content: bytes
    is_sound: bool


def check_log(path: Path) -> None:
    """Raise CorruptRecordError if a write-ahead log is damaged before the last transaction that began.

    A transaction is durable before the next one begins, so a crash damages only the last one. SQLite ignores all frames
    after the first with a wrong checksum, and deletes them, without a message.
    """
    frames = list(_frames(path))
    lost = sum(frame.pages > 0 for frame in frames[:-1] if not frame.is_sound)
    if lost:  # the header is durable before the first frame is written
        raise CorruptRecordError(
            "write-ahead log", expected="checksums that hold", found=f"{lost} transactions after a damaged frame"
        ).locate(path=str(path))


def read_rows(database: Path, log: Path, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query as far as they can be read, in ascending order and again in descending order.

    Text is bytes. A file that is missing, or is not a regular file, is read as an empty one.
    """
    image = _image(_content(database), list(_frames(log)))
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.Error, OverflowError), closing(sqlite3.connect(":memory:")) as connection:
            connection.text_factory = bytes
            connection.deserialize(image)
            yield from connection.execute(f"{query} ORDER BY 1 {order}")


def _content(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(_MOST_BYTES)


def _image(content: bytes, frames: list[_Frame]) -> bytes:
    """Return the pages of a database as of its last transaction, after the first page of a new database."""
    with closing(sqlite3.connect(":memory:")) as new:
        if frames:
            new.execute(f"PRAGMA page_size = {len(frames[0].content)}")
        elif len(content) >= _PAGE_SIZE.size:
            new.execute(f"PRAGMA page_size = {_PAGE_SIZE.unpack_from(content)[0]}")  # an invalid one is ignored
        create_tables(new)
        size = new.execute("PRAGMA page_size").fetchone()[0]
        first = new.serialize()[:size]
    pages = {at // size + 1: content[at : at + size] for at in range(0, len(content) - size + 1, size)}
    commits = [at for at, frame in enumerate(frames) if frame.pages]
    if commits:
        most = len(pages) + len(frames)  # a damaged page number is larger
        written = frames[: commits[-1] + 1]
        pages |= {frame.page: frame.content for frame in written if frame.page <= min(most, written[-1].pages)}
    pages[1] = first
    empty = bytes(size)
    image = bytearray(b"".join(pages.get(number, empty) for number in range(1, max(pages) + 1)))
    _PAGE_COUNT.pack_into(image, _PAGE_COUNT_AT, max(pages))
    return bytes(image)


def _frames(path: Path) -> Iterator[_Frame]:
    """Yield the frames of a write-ahead log that belong to it; the file may have later ones of an earlier log."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        header = file.read(_LOG_HEADER.size)
        if len(header) < _LOG_HEADER.size:
            return
        magic, _, size, _, *salts, first, second = _LOG_HEADER.unpack(header)
        if magic & ~1 != _LOG_MAGIC or not 512 <= size <= 65536:
            magic, size = _LOG_MAGIC, _DEFAULT_PAGE_SIZE
        words, checksum = ">" if magic & 1 else "<", (first, second)
        is_sound = _checksum(words, header[:_HEADER_CHECKED_BYTES], (0, 0)) == checksum
        if not is_sound:
            peeked = file.read(_FRAME_HEADER.size).ljust(_FRAME_HEADER.size, b"\0")
            salts = list(_FRAME_HEADER.unpack(peeked)[2:4])  # those of the header may be damaged
            file.seek(_LOG_HEADER.size)
        stale = 0
        while stale < _STALE_FRAMES and len(frame := file.read(_FRAME_HEADER.size + size)) == _FRAME_HEADER.size + size:
            page, pages, *rest = _FRAME_HEADER.unpack_from(frame)
            content = frame[_FRAME_HEADER.size :]
            if rest[:2] != salts or not page:
                stale, is_sound = stale + 1, False
                continue
            if is_sound:
                checksum = _checksum(words, frame[:_CHECKED_BYTES] + content, checksum)
                is_sound = checksum == (rest[2], rest[3])
            stale = 0
            yield _Frame(page, pages, content, is_sound)


def _checksum(words: str, data: bytes, checksum: tuple[int, int]) -> tuple[int, int]:
    first, second = checksum
    for one, other in struct.iter_unpack(f"{words}II", data):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second
