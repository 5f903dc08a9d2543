"""Unpack the segments of a backup, and the small files beside them, from an archive or a folder of packed segments.

Archives are untrusted. Only files with Kafka's names are written, below the given folder, and never a link or a device.
Sizes are counted while unpacking, whatever headers contain. Of a truncated or damaged archive, the members before the
damage are unpacked. A member that cannot be written, such as one whose name is too long, costs only itself.
`Unpacked.damage` describes both.
"""

from __future__ import annotations

import errno
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
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, Self, cast

from magicbyte.engine.codecs.zstd import ZstdFile
from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.filesystem import make_directory
from magicbyte.engine.log.files.names import lone_segment
from magicbyte.engine.log.files.packed import UpToDamage, gunzipped, is_damage
from magicbyte.engine.ports import TopicPartition
from magicbyte.engine.printable import printable

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
_LARGEST_ZIP_DIRECTORY: Final = 32 << 20  # of some 240,000 files; the library reads it as a whole
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log(\.gz)?")
_TEXTS: Final = {*checkpoints.OFFSET_CHECKPOINTS, checkpoints.META_PROPERTIES, checkpoints.MESSAGE_DIALECT}
_DAMAGE: Final = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError,
                  OSError, CorruptRecordError)  # fmt: skip
"""Errors of the libraries for invalid or unsupported bytes; for OSError see `_is_damage`."""
_UNUSABLE_NAME: Final = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EILSEQ)
"""Errors of the operating system for a name that no file can have here, or that another file excludes."""


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
        return any(_is_packed_segment(each) for each in backup.rglob("*.log.gz"))
    return backup.name.endswith(KINDS)


def _is_packed_segment(path: Path) -> bool:
    if _SEGMENT.fullmatch(path.name):
        return True
    if lone_segment(path.name.removesuffix(".gz")) is None or not path.is_file():
        return False
    with path.open("rb") as packed:
        return _begins_like_segment(gunzipped(packed, _DAMAGE)[0])


def begins_like_segment(path: Path) -> bool:
    """Return whether a file named like a segment outside of its folder, such as `app-1.log`, is not a text."""
    with path.open("rb") as file:
        return _begins_like_segment(file)


def _begins_like_segment(content: IO[bytes]) -> bool:
    """Return whether `content`, of which nothing was read, begins with a byte that no text has.

    The first byte of an entry is the highest one of its offset: 0.
    """
    return cast("io.BufferedReader", content).peek(1)[:1] == b"\0"


def unpack(
    archive: Path,
    to: Path,
    limits: UnpackLimits,
    as_: TopicPartition | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Unpacked:
    """Extract Kafka's log files from `archive`, which may be a folder, into the folder `to`, which is emptied first.

    `as_` is the partition of a single `.log.gz`. `progress` receives the bytes of the archive that were read. Raises
    LogDirectoryError for an archive beyond `limits`; OSError.
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
        path = _relative(member.name)
        target = _target_of(path)
        if target is None:
            self._pass_over(member)
        elif ".." in path.parts:
            self._leave_out(member.name, "expected a name inside the archive, found one outside")
            self._pass_over(member)
        elif member.open is None or not member.is_regular:
            self._leave_out(member.name, "a link, or not a regular file")
            self._pass_over(member)
        else:
            self._unpack(member.open, target, member.name)

    def _leave_out(self, name: str, why: str) -> None:
        self.found.damage.append(f"{self.archive}: {printable(name)}: left out: {why}")

    def _unpack(self, opened: Callable[[], IO[bytes] | None], target: _Target, name: str) -> None:
        """Write a file. Its damage is recorded, and unpacking continues."""
        try:
            if (file := opened()) is not None:
                with file:
                    self._write(file, target, name)
        except _DAMAGE as error:
            if isinstance(error, tarfile.TarError) or not is_damage(error):
                raise  # nothing after it can be read
            self.found.damage.append(f"{self.archive}: {printable(name)}: {_text(error)}")

    def _write(self, file: IO[bytes], target: _Target, name: str) -> None:
        packed: UpToDamage | None = None
        content = file
        if target.is_packed:
            content, packed = gunzipped(file, _DAMAGE)
        if target.may_be_text and not _begins_like_segment(content):
            self._drain(file)
            return
        path = self.to / target.path
        try:
            make_directory(path.parent)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "a folder has it")
            again = path.exists()  # appended to a tar file again, or both packed and unpacked
            written = path.with_name(f"{path.name}.again") if again else path
            out = written.open("wb")
        except OSError as error:
            if error.errno not in _UNUSABLE_NAME:
                raise
            self._leave_out(name, f"no file can have this name beside the others: {error.strerror}")
            self._drain(file)
            return
        self.found.segments += target.is_segment and not again
        try:
            with out:
                is_whole = self._copy(content, out, limit=None if target.is_segment else _LARGEST_TEXT)
            if not is_whole:
                written.unlink()
                self._leave_out(name, f"expected at most {_LARGEST_TEXT} bytes")
                self._drain(file)
        finally:
            if again and written.exists():
                self._keep_larger(written, path, name)
        if packed is not None and packed.damage is not None:
            raise packed.damage

    def _copy(self, content: IO[bytes], out: IO[bytes], limit: int | None) -> bool:
        """Copy a file; return whether it is within the limit, beyond which nothing is written."""
        for piece in self._pieces(content):
            if limit is not None and out.tell() + len(piece) > limit:
                return False
            out.write(piece)
        return True

    def _keep_larger(self, written: Path, target: Path, name: str) -> None:
        self.found.damage.append(f"{self.archive}: {printable(name)}: occurs twice: the larger file is used")
        if written.stat().st_size > target.stat().st_size:
            written.replace(target)
        else:
            written.unlink()

    def _pass_over(self, member: _PackedFile) -> None:
        """Count the bytes of an unneeded file. In a zip or a folder it is not read."""
        if self._is_stream and member.open is not None and (file := member.open()) is not None:
            self._drain(file)

    def _drain(self, file: IO[bytes]) -> None:
        """Count the remaining bytes of an unneeded file. In a zip or a folder they are not read."""
        if self._is_stream:
            for _ in self._pieces(file):
                pass

    @property
    def _is_stream(self) -> bool:
        return not self.archive.is_dir() and not self.archive.name.endswith(".zip")

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


def _relative(name: str) -> PurePosixPath:
    """Return a member's name as a relative path, which may have `..`. Unsafe characters are escaped."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    return PurePosixPath(*map(printable, parts))


class _Target(NamedTuple):
    """The file to write. `may_be_text`: its name is also that of a text log, such as `app-1.log`."""

    path: PurePosixPath
    is_packed: bool
    is_segment: bool = True
    may_be_text: bool = False


def _target_of(path: PurePosixPath) -> _Target | None:
    """Return where to write a member; None if it has not the name of one of Kafka's files."""
    if not path.name.removesuffix(".gz"):
        return None
    plain = path.with_name(path.name.removesuffix(".gz"))
    if _SEGMENT.fullmatch(path.name):
        return _Target(plain, plain != path)
    if path.name in _TEXTS:
        return _Target(path, is_packed=False, is_segment=False)
    if lone_segment(plain.name) is not None:
        return _Target(plain.with_suffix("") / f"{0:020}.log", plain != path, may_be_text=True)
    return None


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


class _BoundedDirectory:
    """The bytes of a zip file, of which no single read may be larger than the largest directory."""

    def __init__(self, archive: Path, file: BinaryIO) -> None:
        self._archive, self._file = archive, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1, /) -> bytes:
        if size > _LARGEST_ZIP_DIRECTORY:
            raise LogDirectoryError(
                f"{self._archive}: expected a list of files of at most {_LARGEST_ZIP_DIRECTORY} bytes, found {size}: "
                "unpack it, and give the folder"
            )
        return self._file.read(size)


def _zip_members(archive: Path, file: BinaryIO, limits: UnpackLimits) -> Iterator[_PackedFile]:
    with zipfile.ZipFile(cast("IO[bytes]", _BoundedDirectory(archive, file))) as contents:
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
