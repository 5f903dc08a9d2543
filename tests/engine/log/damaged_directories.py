"""A log directory with every file that there is, and every way in which one of them can be wrong."""

import os
import random
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from engine.log.appended import batch_of
from magicbyte.engine.log.append.record_set import record_set
from magicbyte.engine.log.files.checkpoints import OFFSET_CHECKPOINTS
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.engine.log.live.log_directory import Identity, LogDirectory, Settings
from magicbyte.engine.log.live.partition_log import PartitionLog
from magicbyte.engine.ports import Moment, TopicPartition, WritableFileSystem
from topic_settings import log_config

NOW: Final = 1_700_000_000_000
GOOD, BAD = TopicPartition("good", 0), TopicPartition("bad", 0)
COUNT: Final = 30  # offsets of each log
CONFIG: Final = log_config({"segment.bytes": "500", "segment.index.bytes": "240", "index.interval.bytes": "100"})
TOP_FILES: Final = (*OFFSET_CHECKPOINTS, "meta.properties", ".kafka_cleanshutdown", ".lock")
IN_FOLDER: Final = ("first.log", "last.log", "last.index", "last.timeindex", "first.index", "first.txnindex",
                    "last.snapshot", "leader-epoch-checkpoint", "partition.metadata")  # fmt: skip


def opened(path: Path, *, repairs: bool = False, files: WritableFileSystem | None = None) -> LogDirectory:
    settings = Settings(
        config_of=lambda _key: CONFIG, token=lambda: "0" * 32, identity=Identity(7, "cluster"), repairs=repairs
    )
    return LogDirectory.open(files or LocalFiles(), str(path), settings, monotonic_ms=NOW)


def fill(log: PartitionLog) -> None:
    for at in range(COUNT):
        log.append(
            record_set(
                batch_of(at, NOW + at, partition_leader_epoch=1, producer_id=5, producer_epoch=0, base_sequence=at),
                log.config.rules,
            ),
            Moment.fixed(NOW),
        )


def made(path: Path, *, closed: bool) -> Path:
    """Make the directory; `closed`: with the mark of a clean shutdown, else as a kill leaves it."""
    directory = opened(path)
    for key in (GOOD, BAD):
        fill(directory.create(key, monotonic_ms=NOW, topic_id=uuid.UUID(int=1)))
    directory[BAD].high_watermark = COUNT
    directory[BAD].delete_records(3)
    for key in (GOOD, BAD):
        directory[key].roll(NOW)
        directory[key].flush(NOW)
    directory.checkpoint_cleaner(BAD, 3)
    if closed:
        directory.close()
        return path
    directory.checkpoint_recovery_points()
    directory.checkpoint_high_watermarks()
    directory.checkpoint_log_starts()
    directory.release()
    return path


def the_file(directory: Path, name: str) -> Path:
    """Return where a file of TOP_FILES or IN_FOLDER is."""
    if name in TOP_FILES:
        return directory / name
    folder = directory / str(BAD)
    which, _, kind = name.partition(".")
    if which not in ("first", "last"):
        return folder / name
    logs = sorted(each.stem for each in folder.glob("*.log") if each.stat().st_size)
    if kind == "snapshot":
        return max(folder.glob("*.snapshot"))
    return folder / f"{logs[0 if which == 'first' else -1]}.{kind}"


def missing(path: Path) -> None:
    path.unlink(missing_ok=True)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def short(path: Path) -> None:
    content = path.read_bytes() if path.exists() else b""
    path.write_bytes(content[: len(content) * 2 // 3])


def garbled(path: Path) -> None:
    size = max(path.stat().st_size if path.exists() else 0, 40)
    path.write_bytes(random.Random(18).randbytes(size))


def huge(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(1 << 40)


def a_directory(path: Path) -> None:
    missing(path)
    path.mkdir()
    (path / "inside").write_bytes(b"kept")


def a_pipe(path: Path) -> None:
    missing(path)
    os.mkfifo(path)


def a_dead_link(path: Path) -> None:
    missing(path)
    path.symlink_to(path.parent / "gone" / "far")


Damage = Callable[[Path], None]
DAMAGES: Final[tuple[Damage, ...]] = (
    missing, empty, short, garbled, huge, a_directory, a_pipe, a_dead_link,
)  # fmt: skip


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True)
    return target
