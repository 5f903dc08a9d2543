"""Unpack the segments of a backup, and the small files beside them, from an archive or a folder of packed segments.

Archives are untrusted. Only files with Kafka's names are written, below the given folder, and never a link or a device.
Sizes are counted while unpacking, whatever headers contain. Of a truncated or damaged archive, the members before the
damage are unpacked, and `Unpacked.damage` describes the rest.
"""

from __future__ import annotations

import io
import lzma
import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, BinaryIO, Final, NamedTuple, Self, cast

from magicbyte.codecs.zstd import ZstdFile
from magicbyte.errors import CorruptRecordError, LogDirectoryError
from magicbyte.log.files import checkpoints
from magicbyte.log.files.filesystem import make_directory
from magicbyte.log.files.packed import UpToDamage, gunzipped, is_damage
from magicbyte.ports import TopicPartition

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

KINDS: Final = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".zip", ".log.gz")
LEAST_LIMIT: Final = 1 << 30
EXPANSION: Final = 100  # of an archive with Kafka's preallocated index files; a zip bomb expands more
MOST_FILES: Final = 1_000_000
_PIECE: Final = 1 << 20
_TAR_PIECE: Final = 16 << 10  # of a truncated file, tarfile drops the whole read: keep it small
_LARGEST_TEXT: Final = 1 << 20
_LARGEST_HEADER: Final = 1 << 20  # of the name and attributes of a member of a tar file
_LARGEST_HEADERS: Final = 8 * _LARGEST_HEADER  # all those before a member
_HEADERS: Final = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME,
                   tarfile.GNUTYPE_LONGLINK)  # fmt: skip
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log(\.gz)?")
_TEXTS: Final = {*checkpoints.OFFSET_CHECKPOINTS, checkpoints.META_PROPERTIES, checkpoints.MESSAGE_DIALECT}
_DAMAGE: Final = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError,
                  OSError, CorruptRecordError)  # fmt: skip
"""Errors of the libraries for invalid or unsupported bytes; for OSError see `_is_damage`."""


class UnpackLimits(NamedTuple):
    """Limits of an archive. `size`: uncompressed bytes of all files, including those that are skipped."""

    size: int
    files: int = MOST_FILES

    @classmethod
    def of(cls, backup: Path) -> Self:
        """Return plausible limits for an archive or a folder of this size."""
        files = [each for each in backup.rglob("*") if each.is_file()] if backup.is_dir() else [backup]
        return cls(max(EXPANSION * sum(each.stat().st_size for each in files), LEAST_LIMIT))


@dataclass(slots=True)
class Unpacked:
    """The result of unpacking: the number of segments, and messages about damage."""

    segments: int = 0
    damage: list[str] = field(default_factory=list)


class _PackedFile(NamedTuple):
    """A file in an archive. `open` is None for a member without content. `is_regular`: not a link or a device."""

    name: str
    open: Callable[[], IO[bytes] | None] | None
    is_regular: bool


def is_packed(backup: Path) -> bool:
    """Return whether a backup is an archive, by its name, or a folder with packed segments."""
    if backup.is_dir():
        return any(_SEGMENT.fullmatch(each.name) for each in backup.rglob("*.log.gz"))
    return backup.name.endswith(KINDS)


def unpack(
    archive: Path,
    to: Path,
    limits: UnpackLimits,
    as_: TopicPartition | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Unpacked:
    """Extract Kafka's log files from `archive`, which may be a folder, into the folder `to`, which is emptied first.

    `as_` is the partition of a single `.log.gz`. `progress` receives the bytes of the archive that were read. Raises
    LogDirectoryError for an archive beyond `limits`, or with names outside of it; OSError.
    """
    if to.exists():
        shutil.rmtree(to)
    make_directory(to)
    unpacked = Unpacked()
    if archive.is_dir():
        _Unpacking(archive, to, limits, unpacked).run(_folder_members(archive))
        return unpacked
    with archive.open("rb") as raw:
        if archive.name.endswith(".zip"):
            members = _zip_members(archive, raw, limits)
        else:
            file = cast("BinaryIO", io.BufferedReader(_Watched(raw, progress)))
            members = _single(archive, file, as_) if archive.name.endswith(".log.gz") else _tar_members(archive, file)
        _Unpacking(archive, to, limits, unpacked).run(members)
    return unpacked


@dataclass(slots=True)
class _Unpacking:
    archive: Path
    to: Path
    limits: UnpackLimits
    found: Unpacked
    size: int = 0
    files: int = 0
    name: str = ""

    @property
    def _at(self) -> str:
        return f" in or after {self.name}" * bool(self.files)

    def run(self, members: Iterator[_PackedFile]) -> None:
        try:
            for member in members:
                self.files, self.name = self.files + 1, member.name
                if self.files > self.limits.files:
                    raise LogDirectoryError(f"{self.archive}: expected at most {self.limits.files} files, found more")
                self._take(member)
        except _DAMAGE as error:
            if not is_damage(error):
                raise
            self.found.damage.append(f"{self.archive}: damaged or cut off{self._at}: {_text(error)}")

    def _take(self, member: _PackedFile) -> None:
        path = _inside(self.archive, member.name)
        is_segment = _SEGMENT.fullmatch(path.name) is not None
        if not is_segment and path.name not in _TEXTS:
            self._pass_over(member)
        elif member.open is None or not member.is_regular:
            self.found.damage.append(f"{self.archive}: {member.name}: left out: a link, or not a regular file")
            self._pass_over(member)
        else:
            self._unpack(member.open, self.to / path, member.name, is_segment=is_segment)

    def _unpack(self, opened: Callable[[], IO[bytes] | None], target: Path, name: str, *, is_segment: bool) -> None:
        """Write a file. Its damage is recorded, and unpacking continues."""
        try:
            if (file := opened()) is not None:
                self._write(file, target, name, is_segment=is_segment)
        except _DAMAGE as error:
            if isinstance(error, tarfile.TarError) or not is_damage(error):
                raise  # nothing after it can be read
            self.found.damage.append(f"{self.archive}: {name}: {_text(error)}")

    def _write(self, file: IO[bytes], target: Path, name: str, *, is_segment: bool) -> None:
        packed: UpToDamage | None = None
        content = file
        if target.name.endswith(".gz"):
            target = target.with_suffix("")
            content, packed = gunzipped(file, _DAMAGE)
        make_directory(target.parent)
        again = target.exists()  # appended to a tar file again, or both packed and unpacked
        written = target.with_name(f"{target.name}.again") if again else target
        self.found.segments += is_segment and not again
        try:
            with file, written.open("wb") as out:
                for piece in self._pieces(content):
                    if not is_segment and out.tell() + len(piece) > _LARGEST_TEXT:
                        raise LogDirectoryError(f"{self.archive}: {name}: expected at most {_LARGEST_TEXT} bytes")
                    out.write(piece)
        finally:
            if again:
                self._keep_larger(written, target, name)
        if packed is not None and packed.damage is not None:
            raise packed.damage

    def _keep_larger(self, written: Path, target: Path, name: str) -> None:
        self.found.damage.append(f"{self.archive}: {name}: occurs twice: the larger file is used")
        if written.stat().st_size > target.stat().st_size:
            written.replace(target)
        else:
            written.unlink()

    def _pass_over(self, member: _PackedFile) -> None:
        """Count the bytes of an unneeded file. In a zip or a folder it is not read."""
        is_read = not self.archive.is_dir() and not self.archive.name.endswith(".zip")
        if is_read and member.open is not None and (file := member.open()) is not None:
            for _ in self._pieces(file):
                pass

    def _pieces(self, file: IO[bytes]) -> Iterator[bytes]:
        size = _TAR_PIECE if ".t" in "".join(self.archive.suffixes[-2:]) else _PIECE
        while piece := file.read(size):
            self.size += len(piece)
            if self.size > self.limits.size:
                raise LogDirectoryError(
                    f"{self.archive}: expected at most {self.limits.size} bytes inside, found more: "
                    "--max-unpacked allows it"
                )
            yield piece


def _inside(archive: Path, name: str) -> PurePosixPath:
    """Return a member's name as a path below a folder. Raises LogDirectoryError for one outside of it."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise LogDirectoryError(f"{archive}: {name!r}: expected names inside the archive, found one outside")
    return PurePosixPath(*parts)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


class _Watched(io.RawIOBase):
    """A file that reports the bytes read."""

    def __init__(self, file: io.BufferedReader, progress: Callable[[int], None]) -> None:
        self._file, self._progress = file, progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        size = self._file.readinto(buffer)
        self._progress(size)
        return size


class _BoundedHeader(tarfile.TarInfo):
    """A header of a tar file, with a limit on the headers that the library reads into memory as a whole.

    `ended`: whether the end-of-archive mark was read. Each archive has its own subclass.
    """

    ended = False

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        cls.ended = bool(buf) and not any(buf)
        found = super().frombuf(buf, encoding, errors)
        if found.type in _HEADERS and found.size > _LARGEST_HEADER:
            raise LogDirectoryError(f"archive: expected headers of at most {_LARGEST_HEADER} bytes, found {found.size}")
        return found


class _BoundedBetween:
    """The bytes of a tar file, with a limit on the headers between the contents of two files.

    The library reads maps of sparse files, and headers of headers, into memory without a limit. `between`: bytes read
    since the last content; None while content is read.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.between: int | None = 0

    def read(self, size: int, /) -> bytes:
        found = self._file.read(size)
        if self.between is not None:
            self.between += len(found)
            if self.between > _LARGEST_HEADERS:
                raise LogDirectoryError(f"archive: expected headers of at most {_LARGEST_HEADERS} bytes, found more")
        return found


def _tar_members(archive: Path, file: BinaryIO) -> Iterator[_PackedFile]:
    stream: IO[bytes] = file
    packed: UpToDamage | None = None
    if archive.name.endswith("gz"):
        stream, packed = gunzipped(file, _DAMAGE)
    elif archive.name.endswith("zst"):
        packed = UpToDamage(io.BufferedReader(ZstdFile(file), _PIECE), _DAMAGE)
        stream = cast("IO[bytes]", io.BufferedReader(packed))

    class Header(_BoundedHeader):
        pass

    bounded = _BoundedBetween(stream)
    with tarfile.open(fileobj=cast("IO[bytes]", bounded), mode="r|", tarinfo=Header) as tar:
        for each in tar:
            tar.members = []  # type: ignore[attr-defined]  # not in typeshed; of a stream it would only grow
            if not each.isdir():
                has_content = each.isreg() or each.type not in tarfile.SUPPORTED_TYPES
                bounded.between = None
                yield _PackedFile(each.name, partial(tar.extractfile, each) if has_content else None, each.isreg())
            bounded.between = 0
    if packed is not None and packed.damage is not None:
        raise packed.damage
    if not Header.ended:
        raise EOFError("it has no end-of-archive mark")


def _zip_members(archive: Path, file: BinaryIO, limits: UnpackLimits) -> Iterator[_PackedFile]:
    with zipfile.ZipFile(file) as contents:
        if len(contents.infolist()) > limits.files:
            raise LogDirectoryError(f"{archive}: expected at most {limits.files} files, found more")
        for each in contents.infolist():
            if each.is_dir():
                continue
            kind = each.external_attr >> 28  # file type of Unix: 8 is a regular file, 0 is unknown
            yield _PackedFile(each.filename, partial(contents.open, each), kind in (0, 8))


def _folder_members(folder: Path) -> Iterator[_PackedFile]:
    for place, _, names in os.walk(folder):
        for each in (Path(place, name) for name in names):
            yield _PackedFile(str(each.relative_to(folder)), partial(_open, each), each.is_file())


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


def _single(archive: Path, file: BinaryIO, as_: TopicPartition | None) -> Iterator[_PackedFile]:
    """Yield the single segment of a `.log.gz`. Its partition is named by `as_`, by the file or by its folder."""
    name = archive.name if _SEGMENT.fullmatch(archive.name) else f"{0:020}.log.gz"
    folder = archive.resolve().parent.name if name == archive.name else archive.name.removesuffix(".log.gz")
    yield _PackedFile(f"{folder if as_ is None else as_}/{name}", lambda: file, is_regular=True)
