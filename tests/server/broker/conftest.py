"""Folders for brokers."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the test's own, in memory where there is such a file system: hundreds of logs are synced."""
    made = Path(tempfile.mkdtemp(prefix="magicbyte-", dir=MEMORY if MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made)
