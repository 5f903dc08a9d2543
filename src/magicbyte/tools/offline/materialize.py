"""Turn the output of a pipeline in an object store into a log directory."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from magicbyte.engine.errors import CorruptRecordError, LogDirectoryError
from magicbyte.engine.log.files.checkpoints import CLEAN_SHUTDOWN
from magicbyte.engine.log.files.filesystem import LocalFiles, make_directory, sync_directory
from magicbyte.engine.log.files.manifest import Output, read_stored
from magicbyte.engine.log.files.outputs import put_whole, refuse_overlap
from magicbyte.engine.log.files.store import ObjectStore
from magicbyte.engine.log.live.log_directory import LOCK


def materialize(url: str, to: Path, progress: Callable[[int], None] = lambda _: None) -> int:
    """Create a log directory (or a folder of tables) from a pipeline's output in a store; return the number of outputs.

    Each output is complete, and verified by SHA-256, when it gets its name; the files beside them come last, and the
    clean shutdown marker after all others. Existing outputs of the right sizes are kept: after a kill, repeat the same
    call. `progress` is called with completed bytes. Raises LogDirectoryError for a store without a manifest, and for a
    folder with other content or in use, CorruptRecordError for a changed object; OSError.
    """
    store = ObjectStore(url.rstrip("/"))
    refuse_overlap(to, [url])
    stored = read_stored(store)
    if stored is None:
        raise LogDirectoryError(f"{url}: expected the output of a pipeline in an object store, found no manifest")
    make_directory(to)
    try:
        lock = LocalFiles().lock(str(to / LOCK))
    except BlockingIOError as error:
        raise LogDirectoryError(f"{to}: another process, such as a broker, is using this folder") from error
    try:
        known = {output.name for output in stored.outputs} | {_part(output.name) for output in stored.outputs}
        beside = {} if stored.tables else {name.rpartition("/")[2]: name for name in store.sizes(stored.checkpoints)}
        if strangers := {each.name for each in to.iterdir()} - known - beside.keys() - {LOCK}:
            raise LogDirectoryError(f"{to}: expected nothing, or some of the same outputs; found {min(strangers)}")
        (to / CLEAN_SHUTDOWN).unlink(missing_ok=True)
        for output in stored.outputs:
            _fetch(store, output, to, is_table=stored.tables)
            progress(sum(size for _, size, _ in output.files))
        sync_directory(to)  # before the marker, which declares that all are complete
        for name, path in sorted(beside.items(), key=lambda pair: pair[0] == CLEAN_SHUTDOWN):
            put_whole(to / name, store.read(path))
    finally:
        lock.release()
    return len(stored.outputs)


def _part(name: str) -> str:
    return f".{name}.part"


def _fetch(store: ObjectStore, output: Output, to: Path, *, is_table: bool) -> None:
    """Download one output under its name, unless it exists."""
    target, unfinished = to / output.name, to / _part(output.name)
    if target.exists():
        there = {each.name: each.stat().st_size for each in ([target] if is_table else target.iterdir())}
        if there != {name: size for name, size, _ in output.files}:
            raise LogDirectoryError(f"{target}: expected nothing, or the same output; found another")
        return
    if unfinished.is_dir():
        shutil.rmtree(unfinished)
    if not is_table:
        unfinished.mkdir()
    for name, _, sha256 in output.files:
        source, path = (output.at, unfinished) if is_table else (f"{output.at}/{name}", unfinished / name)
        store.download(source, path)
        with path.open("r+b") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != sha256:
                raise CorruptRecordError("SHA-256", expected=sha256, found=found).locate(path=store.path(source))
            os.fsync(file.fileno())
    if not is_table:
        sync_directory(unfinished)
    unfinished.rename(target)
