"""Let several attempts at one task work in one folder, one after the other.

Spark may run a second attempt while the first one still runs: with speculation, or after an executor was lost that
lives on. The attempts that finish a shared stage use the same folder, so each holds a lock there. The result of the
first attempt is stored beside its files, and later attempts return it and change nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.log.files.filesystem import LocalFiles
from magicbyte.spark.pipeline.sink import put_once

_LOCK = ".lock"
_POLL_SECONDS = 0.2
_SIGNATURE_BYTES = 32


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; wait while another attempt holds it, at most until its process ends. Raises OSError."""
    while True:
        try:
            lock = LocalFiles().lock(str(folder / _LOCK))
            break
        except BlockingIOError:
            time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()


def store_result(folder: Path, key: bytes, result: object) -> None:
    """Store the result of the task with this secret key."""
    content = pickle.dumps(result)
    put_once(_path(folder, key), _signature(key, content) + content)


def stored_result(folder: Path, key: bytes) -> Any | None:
    """Return the stored result of the task, None if there is none.

    Only a file signed with the key is unpickled. Raises LogDirectoryError for another one.
    """
    path = _path(folder, key)
    if not path.exists():
        return None
    data = path.read_bytes()
    content = data[_SIGNATURE_BYTES:]
    if not hmac.compare_digest(data[:_SIGNATURE_BYTES], _signature(key, content)):
        raise LogDirectoryError(f"{path}: expected the result of an earlier attempt, found a file with other content")
    return pickle.loads(content)


def _path(folder: Path, key: bytes) -> Path:
    return folder / f"{hashlib.sha256(key).hexdigest()}.result"


def _signature(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")
