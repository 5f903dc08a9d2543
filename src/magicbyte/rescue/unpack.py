"""Unpacks the segments of a backup, and the small files that say something about them.

An archive is somebody else's bytes. Only files of names that Kafka gives are written, below the folder that is given,
never a link or a device; sizes are counted while they are unpacked, whatever headers say. An archive that is cut or
damaged gives what is in front of that; `Unpacked.damage` has the rest.
"""

from __future__ import annotations

import errno
import gzip
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
from magicbyte.ports import TopicPartition

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

KINDS: Final = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".zip", ".log.gz")
LEAST_LIMIT: Final = 1 << 30
EXPANSION: Final = 100  # of an archive with Kafka's preallocated index files; a bomb has more
MOST_FILES: Final = 1_000_000
_PIECE: Final = 1 << 20
_TAR_PIECE: Final = 16 << 10  # of a file that is cut, tarfile keeps back what it was asked for
_LARGEST_TEXT: Final = 1 << 20
_LARGEST_HEADER: Final = 1 << 20  # of a member's name and attributes in a tar file
_LARGEST_HEADERS: Final = 8 * _LARGEST_HEADER  # all that are in front of a member
_HEADERS: Final = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME,
                   tarfile.GNUTYPE_LONGLINK)  # fmt: skip
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log(\.gz)?")
_TEXTS: Final = {*checkpoints.OFFSET_CHECKPOINTS, checkpoints.META_PROPERTIES, checkpoints.MESSAGE_DIALECT}
_DAMAGE: Final = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError,
                  OSError, CorruptRecordError)  # fmt: skip
"""What the libraries raise for bytes that make no sense, or that they do not know; of OSError see `_is_damage`."""


class UnpackLimits(NamedTuple):
    """`size`: bytes that an archive may have inside, all files together, those too that are passed over."""

    size: int
    files: int = MOST_FILES

    @classmethod
    def of(cls, backup: Path) -> Self:
        """Return what is plausible for an archive, or a folder, of this size."""
        files = [each for each in backup.rglob("*") if each.is_file()] if backup.is_dir() else [backup]
        return cls(max(EXPANSION * sum(each.stat().st_size for each in files), LEAST_LIMIT))


@dataclass(slots=True)
class Unpacked:
    """What came out of an archive: how many segments, and why some, or parts of some, did not."""

    segments: int = 0
    damage: list[str] = field(default_factory=list)


class _PackedFile(NamedTuple):
    """A file of an archive. `open` is None for what has no content; `is_regular` is false for a link or a device."""

    name: str
    open: Callable[[], IO[bytes] | None] | None
    is_regular: bool


def is_packed(backup: Path) -> bool:
    """Say whether a backup is an archive, by its name, or a folder with packed segments."""
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
    """Write what is of Kafka's logs in `archive`, or a folder, below the folder `to`, which is emptied first.

    `as_` is the partition of a single `.log.gz`. `progress` is told the bytes of the archive that were read. Raises
    LogDirectoryError for an archive that holds more than `limits`, or names that lead out of it; OSError.
    """
    if to.exists():
        shutil.rmtree(to)
    make_directory(to)
    found = Unpacked()
    if archive.is_dir():
        _Unpacking(archive, to, limits, found).run(_folder_members(archive))
        return found
    with archive.open("rb") as raw:
        if archive.name.endswith(".zip"):
            members = _zip_members(archive, raw, limits)
        else:
            file = cast("BinaryIO", io.BufferedReader(_Watched(raw, progress)))
            members = _single(archive, file, as_) if archive.name.endswith(".log.gz") else _tar_members(archive, file)
        _Unpacking(archive, to, limits, found).run(members)
    return found


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
        return f" in or behind {self.name}" * bool(self.files)

    def run(self, members: Iterator[_PackedFile]) -> None:
        try:
            for member in members:
                self.files, self.name = self.files + 1, member.name
                if self.files > self.limits.files:
                    raise LogDirectoryError(f"{self.archive}: expected at most {self.limits.files} files, found more")
                self._take(member)
        except _DAMAGE as error:
            if not _is_damage(error):
                raise
            self.found.damage.append(f"{self.archive}: damaged or cut off{self._at}: {_text(error)}")

    def _take(self, member: _PackedFile) -> None:
        place = _inside(self.archive, member.name)
        is_segment = _SEGMENT.fullmatch(place.name) is not None
        if not is_segment and place.name not in _TEXTS:
            self._pass_over(member)
        elif member.open is None or not member.is_regular:
            self.found.damage.append(f"{self.archive}: {member.name}: a link or no file: left out")
            self._pass_over(member)
        else:
            self._unpack(member.open, self.to / place, member.name, is_segment=is_segment)

    def _unpack(self, opened: Callable[[], IO[bytes] | None], target: Path, name: str, *, is_segment: bool) -> None:
        """Write a file; what is damaged of it is noted, and others may still follow."""
        try:
            if (file := opened()) is not None:
                self._write(file, target, name, is_segment=is_segment)
        except _DAMAGE as error:
            if isinstance(error, tarfile.TarError) or not _is_damage(error):
                raise  # nothing behind it can be read
            self.found.damage.append(f"{self.archive}: {name}: {_text(error)}")

    def _write(self, file: IO[bytes], target: Path, name: str, *, is_segment: bool) -> None:
        packed: _UpToDamage | None = None
        content = file
        if target.name.endswith(".gz"):
            target = target.with_suffix("")
            content, packed = _gunzipped(file)
        make_directory(target.parent)
        again = target.exists()  # appended to a tar file, or both packed and not
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
        self.found.damage.append(f"{self.archive}: {name}: is there twice: the larger one is taken")
        if written.stat().st_size > target.stat().st_size:
            written.replace(target)
        else:
            written.unlink()

    def _pass_over(self, member: _PackedFile) -> None:
        """Count what lies between the files that are wanted; of a zip or a folder it is not even read."""
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
    """Return a member's name as a path below a folder. Raises LogDirectoryError for one that leads out of it."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise LogDirectoryError(f"{archive}: {name!r}: expected names inside the archive, found one outside")
    return PurePosixPath(*parts)


def _gunzipped(file: IO[bytes]) -> tuple[IO[bytes], _UpToDamage]:
    """Return the content of a gzip file up to damage, and who keeps that."""
    packed = _UpToDamage(gzip.GzipFile(fileobj=file))
    return cast("IO[bytes]", io.BufferedReader(packed)), packed


def _is_damage(error: Exception) -> bool:
    """Say whether an error is about bytes: the OSErrors of gzip and bz2 have no number, zipfile seeks to nowhere."""
    return not isinstance(error, OSError) or error.errno in (None, errno.EINVAL)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


class _Watched(io.RawIOBase):
    """A file whose reader is watched."""

    def __init__(self, file: io.BufferedReader, progress: Callable[[int], None]) -> None:
        self._file, self._progress = file, progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        size = self._file.readinto(buffer)
        self._progress(size)
        return size


class _UpToDamage(io.RawIOBase):
    """What can be read of a packed file: it ends where damage is met, which is kept."""

    def __init__(self, file: gzip.GzipFile | io.BufferedReader) -> None:
        self._file = file
        self.damage: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self.damage is not None:
            return 0
        try:
            found = self._file.read1(len(memoryview(buffer)))  # one step: what is in front of damage comes first
        except _DAMAGE as error:
            self.damage = error
            return 0
        memoryview(buffer)[: len(found)] = found
        return len(found)


class _BoundedHeader(tarfile.TarInfo):
    """A header of a tar file; those that the library reads into memory as a whole have a limit.

    `ended` says whether the mark at the end of the archive was met: of each archive there is a class of its own.
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
    """The bytes of a tar file. Between the contents of two files there are only headers, which have a limit together.

    The library reads maps of sparse files, and headers of headers, into memory as far as they go. `between`: bytes that
    were read since the last content; None while one is read.
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
    packed: _UpToDamage | None = None
    if archive.name.endswith("gz"):
        stream, packed = _gunzipped(file)
    elif archive.name.endswith("zst"):
        packed = _UpToDamage(io.BufferedReader(ZstdFile(file), _PIECE))
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
    with zipfile.ZipFile(file) as found:
        if len(found.infolist()) > limits.files:
            raise LogDirectoryError(f"{archive}: expected at most {limits.files} files, found more")
        for each in found.infolist():
            if each.is_dir():
                continue
            kind = each.external_attr >> 28  # of Unix: 8 is a file, 0 is not told
            yield _PackedFile(each.filename, partial(found.open, each), kind in (0, 8))


def _folder_members(folder: Path) -> Iterator[_PackedFile]:
    for place, _, names in os.walk(folder):
        for each in (Path(place, name) for name in names):
            yield _PackedFile(str(each.relative_to(folder)), partial(_open, each), each.is_file())


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


def _single(archive: Path, file: BinaryIO, as_: TopicPartition | None) -> Iterator[_PackedFile]:
    """Yield the one segment that a `.log.gz` is; the partition is named by `as_`, by the file or by its folder."""
    name = archive.name if _SEGMENT.fullmatch(archive.name) else f"{0:020}.log.gz"
    folder = archive.resolve().parent.name if name == archive.name else archive.name.removesuffix(".log.gz")
    yield _PackedFile(f"{folder if as_ is None else as_}/{name}", lambda: file, is_regular=True)
