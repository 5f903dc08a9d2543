"""What lies in a log directory beside the logs, or is missing there, and every reader of folders: none passes it over.

Each case of BORDER is made in a directory of three sound segments and read by each command of READERS. The output must
name what is wrong, by the words of the case. A case without words must not disturb a reader. `serve` is asked by
`test_serve_says_before_it_starts_what_is_missing`; Spark's planner uses the same rule in the driver.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from cli.command import run
from engine.log.appended import batch_of
from magicbyte.cli.serve import _say_missing
from magicbyte.engine.log.files.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER,
    HIGH_WATERMARK,
    RECOVERY_POINT,
    format_offset_checkpoint,
)
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.index_writer import LATEST_RULES
from magicbyte.engine.ports import TopicPartition
from magicbyte.tools.offline.rebuild import put, rebuild

ORDERS: Final = TopicPartition("orders", 0)
ID: Final = "0123456789abcdef0123456789abcdef"
NOW: Final = 1_700_000_000_000


def second(directory: Path) -> Path:
    """The log of the second of three segments."""
    return directory / "orders-0" / f"{5:020}.log"


def in_place_of(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def case(directory: Path) -> None:
        second(directory).unlink()
        make(second(directory))

    return case


def moved_away(directory: Path) -> None:
    second(directory).rename(directory.parent / "kept")
    second(directory).symlink_to(directory.parent / "kept")


def as_state(state: str) -> Callable[[Path], None]:
    return lambda directory: shutil.copytree(directory / "orders-0", directory / f"bills-0.{ID}-{state}") and None


def with_suffix(suffix: str) -> Callable[[Path], None]:
    return lambda directory: (directory / "orders-0" / f"{5:020}.log{suffix}").write_bytes(b"x") and None


def quorum(directory: Path) -> None:
    shutil.copytree(directory / "orders-0", directory / "__cluster_metadata-0")


def high_watermark(offsets: dict[TopicPartition, int]) -> Callable[[Path], None]:
    return lambda directory: (directory / HIGH_WATERMARK).write_bytes(format_offset_checkpoint(offsets)) and None


def logless(directory: Path) -> None:
    for path in (directory / "orders-0").glob("*.log"):
        path.unlink()


def emptied(directory: Path) -> None:
    (directory / "orders-0" / f"{10:020}.log").write_bytes(b"")


BORDER: Final[dict[str, tuple[Callable[[Path], object], tuple[str, ...]]]] = {
    "dead link": (in_place_of(lambda path: path.symlink_to("/nowhere")), (f"{5:020}.log", "a dead link", "5..9")),
    "link to a file": (moved_away, ()),
    "link to itself": (in_place_of(lambda path: path.symlink_to(path)), (f"{5:020}.log", "5..9")),
    "FIFO": (in_place_of(os.mkfifo), (f"{5:020}.log", "a FIFO", "5..9")),
    "device": (in_place_of(lambda path: path.symlink_to("/dev/zero")), (f"{5:020}.log", "device", "5..9")),
    "folder named as a segment": (in_place_of(Path.mkdir), (f"{5:020}.log", "a folder", "5..9")),
    "empty file": (emptied, ("10..14",)),
    "no .log": (logless, ("orders-0", "no .log file", "0..14")),
    "no .log of one segment": (lambda directory: second(directory).unlink(), (f"{5:020}.log", "5..9")),
    "-delete": (as_state("delete"), ("-delete", "had not removed")),
    "-stray": (as_state("stray"), ("-stray", "not to be its own")),
    "-future": (as_state("future"), ("-future", "had not finished")),
    "__cluster_metadata": (quorum, ("__cluster_metadata-0", "quorum")),
    "absent partition": (high_watermark({ORDERS: 15, TopicPartition("gone", 3): 57}), ("gone-3", "0..56")),
    "high watermark above the end": (high_watermark({ORDERS: 40}), ("orders-0", "15..39")),
    "folder that links to itself": (
        lambda directory: (directory / "bills-0").symlink_to(directory / "bills-0"), (),
    ),
    "partition folder that is a dead link, with checkpoint": (
        lambda directory: (
            (directory / "bills-0").symlink_to("/nowhere"),
            high_watermark({ORDERS: 15, TopicPartition("bills", 0): 3})(directory),
        ),
        ("bills-0", "dead link", "0..2"),
    ),
    **{suffix: (with_suffix(suffix), ()) for suffix in (".swap", ".cleaned", ".deleted")},
    "foreign name": (lambda directory: (directory / "orders-0" / "notes.txt").write_bytes(b"x"), ()),
}  # fmt: skip

READERS: Final[dict[str, Callable[[Path, Path], list[str | Path]]]] = {
    "inventory": lambda directory, _: ["inventory", directory],
    "space": lambda directory, _: ["space", directory],
    "verify": lambda directory, _: ["verify", directory],
    "verify --quick": lambda directory, _: ["verify", directory, "--quick"],
    "cat": lambda directory, _: ["cat", directory],
    "convert": lambda directory, out: ["convert", directory, "--out", out, "--to", "v2"],
    "salvage": lambda directory, out: ["salvage", directory, "--out", out],
    "rescue": lambda directory, out: ["rescue", directory, "--to", out, "--work", f"{out}-work", "--dry-run"],
    "retain": lambda directory, _: ["retain", directory, "--older-than", "1d", "--dry-run"],
    "compact": lambda directory, _: ["compact", directory, "--dry-run"],
    "rebuild-index": lambda directory, _: ["rebuild-index", directory],
}

CHECKS_ALL: Final = ("verify", "verify --quick", "rebuild-index", "inventory", "space")
"""Readers that include the quorum's own log: their answer is its name among the others."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log directory after a clean shutdown: segments of offsets 0..4, 5..9 and 10..14."""
    folder = tmp_path / "data" / str(ORDERS)
    folder.mkdir(parents=True)
    for base in (0, 5, 10):
        (folder / f"{base:020}.log").write_bytes(batch_of(base, NOW, 5))
    (partition,) = discover(folder)
    for segment in rebuild(partition, LATEST_RULES):
        put(folder, segment, all_files=True)
    for name in (HIGH_WATERMARK, RECOVERY_POINT):
        (folder.parent / name).write_bytes(format_offset_checkpoint({ORDERS: 15}))
    (folder.parent / CLEANER).write_bytes(format_offset_checkpoint({ORDERS: 0}))
    (folder.parent / CLEAN_SHUTDOWN).write_bytes(b"")
    return folder.parent


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("border", BORDER)
def test_no_reader_passes_over_what_is_no_log_or_missing(
    directory: Path, tmp_path: Path, border: str, reader: str
) -> None:
    make, words = BORDER[border]
    make(directory)
    done = run(*READERS[reader](directory, tmp_path / "out"))
    said = done.stdout + done.stderr
    assert done.exception is None or isinstance(done.exception, SystemExit), said
    if border == "__cluster_metadata" and reader in CHECKS_ALL:
        words = ("2 partitions",) if reader != "rebuild-index" else ("__cluster_metadata-0",)
    if border in ("-delete", "-stray", "-future") and reader == "inventory":
        words = (f"the folder's name says: {border[1:]}",)
    assert [word for word in words if word not in said] == [], said


MISSING: Final = [name for name, (_, words) in BORDER.items() if any(".." in word for word in words)]


@pytest.mark.parametrize("border", MISSING)
def test_serve_says_before_it_starts_what_is_missing(
    directory: Path, border: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make, words = BORDER[border]
    make(directory)
    _say_missing(directory)
    said = capsys.readouterr().err
    assert [word for word in words if word not in said] == [], said
