"""Backups of golden logs, and the receipts of their rescue."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import golden_data
from cli.command import run

Json = dict[str, Any]

OLD = ("0.8.2.2/basic-gzip", "0.9.0.1/compact-snappy.before", "0.10.0.1/logappend-lz4", "0.10.2.2/crash-flip.crashed",
       "0.11.0.3/txn-none")  # fmt: skip


def backup_of(cases: tuple[str, ...], folder: Path) -> Path:
    """Copy golden partitions into a log directory per version."""
    for name in cases:
        case = golden_data.log_case(name)
        target = folder / f"kafka-{case.version}" / f"{case.topic}-{case.partition}"
        shutil.copytree(case.partition_dir(), target)
    return folder


def receipt_of(*arguments: str | Path, status: int = 0) -> Json:
    """Run the command, and return its receipt."""
    result = run("rescue", *arguments, "--json")
    assert result.exit_code == status, result.stderr
    receipt: Json = json.loads(result.stdout)
    return receipt


def by_partition(receipt: Json) -> dict[str, Json]:
    """Return the entries of a receipt by partition."""
    return {each["partition"]: each for each in receipt["partitions"]}


@contextlib.contextmanager
def no_steps(_name: str, _size: int) -> Iterator[Callable[[int], None]]:
    """Begin a step without showing progress."""
    yield lambda _: None
