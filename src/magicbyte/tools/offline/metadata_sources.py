"""The metadata of a cluster, by its source: a KRaft node's log, a broker's own tree beside its logs, a ZooKeeper, or
the data directory of one.

Nothing is changed. A tree in SQLite is read from a copy, because SQLite writes even to read a database.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magicbyte.engine.errors import LogDirectoryError
from magicbyte.engine.extras import require
from magicbyte.engine.internal_topics import CLUSTER_METADATA
from magicbyte.engine.log.files.directory import LOG, discover
from magicbyte.engine.log.files.filesystem import is_locked
from magicbyte.engine.log.live.log_directory import LOCK
from magicbyte.server.metadata.tree import ROOT
from magicbyte.server.metadata.zookeeper_files import data_folder, restore
from magicbyte.tools.offline.quorum import DescribedCluster, Note, quorum_folder, read_bootstrap, read_quorum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magicbyte.engine.ports import MetadataStore

ZOOKEEPER: Final = "zookeeper://"
_CHROOT: Final = "@/"


def read_metadata(given: str, at: int | None = None) -> DescribedCluster:
    """Return the cluster at a path, or at `zookeeper://HOST:PORT[/PATH]`; `at`: an offset of a metadata log.

    The path may be a data directory of a ZooKeeper; with `@/PATH` the chroot path of the cluster in it. Raises
    LogDirectoryError for a path without metadata, that of a running broker, and an offset of a tree;
    CorruptRecordError for damage, NetworkError, and MissingExtraError without a client for ZooKeeper.
    """
    if not given.startswith(ZOOKEEPER):
        path, at_sign, chroot = given.rpartition(_CHROOT)
        if not at_sign or Path(given).exists():
            path, chroot = given, ""
        if (data := data_folder(path)) is not None:
            return _of_data_directory(path, data, at, f"/{chroot.strip('/')}" if at_sign and chroot else None)
    directory = Path(given)
    folder = directory / f"{CLUSTER_METADATA}-0"
    has_log = folder.exists() and (any(folder.glob(f"*{LOG}")) or not any(folder.glob("*.checkpoint")))
    if not given.startswith(ZOOKEEPER) and (has_log or not _has_tree(directory)):
        formatted = None if has_log else read_bootstrap(given)
        if formatted is None and not has_log:
            _refuse_logs_alone(given)
        return read_quorum(quorum_folder(given), at) if formatted is None else formatted
    _refuse_offset(given, at)
    return _of_zookeeper(given) if given.startswith(ZOOKEEPER) else _of_directory(directory)


def _refuse_logs_alone(given: str) -> None:
    """Raise LogDirectoryError for logs of topics without metadata, with what makes some."""
    found = discover(given)
    if found and all(each.topic not in (None, CLUSTER_METADATA) for each in found):
        raise LogDirectoryError(
            f"{given}: no metadata log of a KRaft node, only logs of topics: `magicbyte rescue {given} --to-kraft DIR` "
            "makes a directory with new metadata"
        )


def _refuse_offset(given: str, at: int | None) -> None:
    if at is not None:
        raise LogDirectoryError(f"{given}: expected a metadata log for an offset, found a tree: it has no history")


def _of_data_directory(path: str, folder: str, at: int | None, chroot: str | None) -> DescribedCluster:
    from magicbyte.access.clock import SystemClock
    from magicbyte.server.stores.znodes.reading import cluster_paths

    _refuse_offset(path, at)
    restored = restore(folder)
    places = cluster_paths(restored.nodes)
    if chroot is not None and chroot not in places:
        raise LogDirectoryError(f"{path}: no cluster of Kafka at {chroot}, {_places(places)}")
    if chroot is None and len(places) != 1:
        raise LogDirectoryError(f"{path}: expected one cluster of Kafka, {_places(places)}")
    top = places[0] if chroot is None else chroot
    notes = [Note(f"{each}: the snapshot is passed over", is_damage=True) for each in restored.passed_over]
    notes += [Note(f"{name}: compressed snapshots are not read", is_damage=True) for name in restored.compressed]
    if restored.torn is not None:
        notes.append(Note(f"{restored.torn}: the log ends before it", is_damage=True))
    if not restored.has_logs:
        notes.append(Note(f"{folder}: no log.* files: those of a dataLogDir belong here, too", is_damage=True))
    if chroot is None and top != ROOT:
        notes.append(Note(f"the cluster is at {top}"))
    with contextlib.closing(restored.session(SystemClock(), top)) as store:
        found = _of_tree(path, store)
    return DescribedCluster(path, found.image, None, None, (*notes, *found.notes))


def _places(paths: Sequence[str]) -> str:
    return f"found those at {', '.join(paths)}: name one, such as PATH@{paths[0]}" if paths else "found none"


def _has_tree(directory: Path) -> bool:
    from magicbyte.server.metadata.sqlite import FILE_NAME

    return (directory / FILE_NAME).is_file()


def _of_zookeeper(given: str) -> DescribedCluster:
    require("cluster", "ZooKeeper")
    from magicbyte.server.metadata.zookeeper import ZooKeeperStore

    with contextlib.closing(ZooKeeperStore(given.removeprefix(ZOOKEEPER))) as store:
        return _of_tree(given, store)


def _of_directory(directory: Path) -> DescribedCluster:
    from magicbyte.access.clock import SystemClock
    from magicbyte.server.metadata.sqlite import FILE_NAME
    from magicbyte.server.stores.znodes.salvage import open_metadata

    if is_locked(directory / LOCK):
        raise LogDirectoryError(f"{directory}: a running broker has it: stop that, or ask it")
    with tempfile.TemporaryDirectory(prefix="magicbyte-") as folder:
        for file in directory.glob(f"{FILE_NAME}*"):
            shutil.copy2(file, folder)
        store, salvaged = open_metadata(Path(folder), SystemClock())
        with contextlib.closing(store):
            found = _of_tree(str(directory), store)
        if salvaged is None:
            return found
        note = Note(f"{FILE_NAME} is damaged: only its readable parts are here", is_damage=True)
        return DescribedCluster(found.path, found.image, found.start, found.end, (note, *found.notes))


def _of_tree(given: str, store: MetadataStore) -> DescribedCluster:
    from magicbyte.server.stores.znodes.reading import image_of

    image = image_of(store)
    notes = [
        Note(f"cannot be read: {part.section.value}: {part.name}: {why}", is_damage=True)
        for part, why in image.damage.items()
    ]
    return DescribedCluster(given, image, None, None, notes)
