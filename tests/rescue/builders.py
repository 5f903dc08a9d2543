"""Backups made of the golden logs, and what a rescue of them does."""

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
    """Lay out partition folders as brokers have them, a log directory for each version."""
    for name in cases:
        case = golden_data.log_case(name)
        target = folder / f"kafka-{case.version}" / f"{case.topic}-{case.partition}"
        shutil.copytree(case.partition_dir(), target)
    return folder


def receipt_of(*arguments: str | Path, status: int = 0) -> Json:
    """Return the receipt that the command prints as JSON."""
    result = run("rescue", *arguments, "--json")
    assert result.exit_code == status, result.stderr
    receipt: Json = json.loads(result.stdout)
    return receipt


def by_partition(receipt: Json) -> dict[str, Json]:
    return {each["partition"]: each for each in receipt["partitions"]}


@contextlib.contextmanager
def no_steps(_name: str, _size: int) -> Iterator[Callable[[int], None]]:
    """Show nothing of how far a rescue is."""
    yield lambda _: None
