"""A file system that forgets at a power failure the data that were not synced. Run: python lossy_disk.py FOLDER MOUNT

It passes everything on to FOLDER/live. At each fsync the ranges that were written since are copied to FOLDER/durable,
which is what a power failure leaves: kill this process, unmount, and take `durable` as the next `live`. Names are
durable at once, as of a file system whose journal is written in order; the content of files is not.

It needs /dev/fuse, Debian's fuse3 and the package mfusepy.
"""

# ruff: noqa: ARG002, PTH101, PTH102, PTH104, PTH106, PTH108, PTH208 (the operations of a file system have the arguments and calls of the system)

import os
import sys
from pathlib import Path
from typing import Any

import mfusepy


class LossyDisk(mfusepy.Operations):  # type: ignore[misc, name-defined, unused-ignore]
    """Operations by path; handles are descriptors of files in `live`."""

    use_ns = True

    def __init__(self, folder: Path) -> None:
        self.live, self.durable = folder / "live", folder / "durable"
        self.live.mkdir(exist_ok=True)
        self.durable.mkdir(exist_ok=True)
        self.written: dict[str, list[tuple[int, int]]] = {}

    def both(self, path: str) -> tuple[str, str]:
        return f"{self.live}{path}", f"{self.durable}{path}"

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.lstat(self.both(path)[0])
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_ino")
        times = {f"st_{each}": getattr(found, f"st_{each}_ns") for each in ("atime", "mtime", "ctime")}
        return {each: getattr(found, each) for each in names} | times

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self.both(path)[0])]

    def open(self, path: str, flags: int) -> int:
        return os.open(self.both(path)[0], (flags & ~os.O_APPEND & ~os.O_WRONLY) | os.O_RDWR)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        live, durable = self.both(path)
        os.close(os.open(durable, os.O_CREAT | os.O_RDWR, mode))
        return os.open(live, os.O_CREAT | os.O_RDWR, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self.written.setdefault(path, []).append((offset, len(data)))
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        os.truncate(self.both(path)[0], length)
        self.written.setdefault(path, [])

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        live, durable = self.both(path)
        with open(live, "rb") as source, open(durable, "r+b") as target:
            for offset, size in self.written.pop(path, []):
                target.seek(offset)
                target.write(os.pread(source.fileno(), size, offset))
            target.truncate(os.fstat(source.fileno()).st_size)

    def fsyncdir(self, path: str, datasync: int, fh: int) -> None:
        """Do nothing: names are durable."""

    def flush(self, path: str, fh: int) -> None:
        """Do nothing: closing a file does not sync it."""

    def release(self, path: str, fh: int) -> None:
        os.close(fh)

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        for source, target in zip(self.both(old), self.both(new), strict=True):
            os.rename(source, target)
        self.written.pop(new, None)
        for path in [each for each in self.written if each == old or each.startswith(f"{old}/")]:
            self.written[new + path[len(old) :]] = self.written.pop(path)

    def unlink(self, path: str) -> None:
        for each in self.both(path):
            os.unlink(each)
        self.written.pop(path, None)

    def mkdir(self, path: str, mode: int) -> None:
        for each in self.both(path):
            os.mkdir(each, mode)

    def rmdir(self, path: str) -> None:
        for each in self.both(path):
            os.rmdir(each)

    def chmod(self, path: str, mode: int) -> None:
        for each in self.both(path):
            os.chmod(each, mode)

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        os.utime(self.both(path)[0], ns=times)

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self.live)
        names = (
            "f_bsize",
            "f_frsize",
            "f_blocks",
            "f_bfree",
            "f_bavail",
            "f_files",
            "f_ffree",
            "f_favail",
            "f_namemax",
        )
        return {each: getattr(found, each) for each in names}


if __name__ == "__main__":
    mfusepy.FUSE(LossyDisk(Path(sys.argv[1])), sys.argv[2], foreground=True, nothreads=True)
