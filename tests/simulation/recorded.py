"""What writes to the file system of this machine alone, with a record of each fsync: no name is of something torn.

At each rename what is renamed is durable, and at the end all that was written. Of each file the content of its last
fsync is kept, of each directory the names; fsync itself is not called.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest.mock import patch

from engine.log.builders import write_topics
from engine.log.damaged_directories import NOW, made
from kraft_data import KraftNode
from magicbyte.engine.cluster.features import METADATA_VERSION
from magicbyte.engine.cluster.metadata_batches import QuorumVoter
from magicbyte.engine.log.files import checkpoints
from magicbyte.engine.log.files.directory import discover
from magicbyte.engine.log.files.filesystem import LocalFiles, put_file
from magicbyte.engine.log.files.outputs import SCRATCH, put_whole, whole_folder
from magicbyte.engine.log.live.log_directory import LOCK
from magicbyte.engine.records.encode import Format
from magicbyte.engine.releases import Release
from magicbyte.testing.disk import SimulatedDisk
from magicbyte.tools.offline.convert import (
    STATE,
    ConvertOptions,
    convert_part,
    convert_partitions,
    join_parts,
    partitions_to_convert,
)
from magicbyte.tools.offline.copies import copied_logs, lay_over
from magicbyte.tools.offline.materialize import materialize
from magicbyte.tools.offline.metadata_sources import read_metadata
from magicbyte.tools.offline.quorum_check import check_node
from magicbyte.tools.offline.quorum_export import ExportOptions, export_to_kraft
from magicbyte.tools.offline.quorum_format import NodeFormat, format_directory
from magicbyte.tools.offline.retain import RetentionLimits, held, retain_logs
from magicbyte.tools.rescue.kraft import KraftTarget
from magicbyte.tools.rescue.rescue import REMOVED, RescueOptions, rescue_into
from simulation.ledger import expect
from tools.rescue.builders import no_steps

RECORDED: dict[str, Callable[[Path], None]] = {}
SEALS = (checkpoints.CLEAN_SHUTDOWN, STATE)
"""Files that say of all others beside and below that they are complete."""
Key = tuple[int, int]


class Recorded:
    """Records while it is entered which files below `root` are durable; existing ones are. Raises BrokenError."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._contents: dict[Key, bytes] = {}
        self._names: dict[Key, dict[str, int]] = {}
        self._real = {name: getattr(os, name) for name in ("rename", "replace")}
        self._patches = [
            patch.object(os, "fsync", self._fsync),
            *(patch.object(os, name, self._renaming(real)) for name, real in self._real.items()),
        ]

    def __enter__(self) -> Self:
        for path in (self.root, *self.root.rglob("*")):
            self._note(path)
        for each in self._patches:
            each.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        for each in self._patches:
            each.stop()
        if kind is None:
            self.check(self.root, "the end")

    def check(self, path: Path, when: str, *, below: bool = True, but: Path | None = None) -> None:
        """See that a file, or a directory with all in it, is durable."""
        if path.is_dir():
            names = _names(path)
            expect(names == self._names.get(_key(path), {}), f"{when}: {path}: its names are not synced")
            for name in names:
                if (each := path / name) != but and (below or each.is_file()):
                    self.check(each, when)
        elif path.stat().st_size:
            expect(self._contents.get(_key(path)) == path.read_bytes(), f"{when}: {path} is not synced")

    def _note(self, path: Path) -> None:
        if path.is_dir():
            self._names[_key(path)] = _names(path)
        else:
            self._contents[_key(path)] = path.read_bytes()

    def _fsync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self._note(path)
        if path.name in SEALS and SCRATCH not in str(path):  # else its folder is looked at when that gets its name
            for each in (path.parent, *path.parent.glob(".*.part")):
                self.check(each, f"sync of {path.name}", but=path)

    def _renaming(self, real: Callable[..., None]) -> Callable[..., None]:
        def rename(source: str | Path, target: str | Path, **named: Any) -> None:
            source, target = Path(source), Path(target)
            what = f"rename to {target.name}"
            if target.name.endswith(REMOVED):  # it is deleted next
                return real(source, target, **named)
            self.check(source, what)
            if target.name in SEALS:
                self.check(target.parent, what)
            elif source.is_dir():
                self.check(target.parent, what, below=False)
            return real(source, target, **named)

        return rename


def _key(path: Path) -> Key:
    found = path.stat()
    return found.st_dev, found.st_ino


def _names(path: Path) -> dict[str, int]:
    """Return the names in a directory that have to stay, and their inodes."""
    entries = {each.name: each.inode() for each in os.scandir(path)}
    passing = (".tmp", ".part", LOCK)
    return {name: inode for name, inode in entries.items() if not name.endswith(passing) and SCRATCH not in name}


def recorded(function: Callable[[Path], None]) -> Callable[[Path], None]:
    RECORDED[function.__name__] = function
    return function


def run(name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="recorded-") as folder:
        RECORDED[name](Path(folder))


@recorded
def a_small_file_that_is_replaced(folder: Path) -> None:
    with Recorded(folder):
        for content in (b"old", b"new content"):
            put_file(LocalFiles(), str(folder / "file"), content)
    expect((folder / "file").read_bytes() == b"new content", "the file has its new content")


@recorded
def whole_outputs(folder: Path) -> None:
    with Recorded(folder):
        for content in (b"old", b"new content"):
            put_whole(folder / "file", content)
    expect((folder / "file").read_bytes() == b"new content", "the file has its new content")
    (folder / "there").mkdir()
    for name in ("there", "new"):
        with whole_folder(folder / name) as fresh:
            (fresh / "one").write_bytes(b"1")
            (fresh / "two").write_bytes(b"2")
        expect(sorted(each.name for each in (folder / name).iterdir()) == ["one", "two"], f"{name} is filled")
    (folder / "mount").mkdir()
    with Recorded(folder):
        for name in ("mount", "durable"):
            with whole_folder(folder / name, is_durable=True, last=checkpoints.CLEAN_SHUTDOWN) as fresh:
                (fresh / "inside").mkdir()
                for each in ("inside/one", "two", checkpoints.CLEAN_SHUTDOWN):
                    (fresh / each).write_bytes(b"content")


@recorded
def a_log_directory_that_is_written(folder: Path) -> None:
    with Recorded(folder):
        write_topics(folder / "out")


@recorded
def a_conversion_and_one_in_parts(folder: Path) -> None:
    source, options = folder / "source", ConvertOptions(Format.V2)
    with patch.object(os, "fsync", lambda _: None):
        write_topics(source)
    with Recorded(folder):
        for done in convert_partitions(partitions_to_convert([str(source)]), folder / "out", options):
            expect(done.error is None, f"{done.error}")
    for partition in discover([str(source)]):
        assert partition.topic is not None
        assert partition.partition is not None
        key, name = checkpoints.TopicPartition(partition.topic, partition.partition), partition.name
        joined = folder / f"joined-{name}"
        joined.mkdir()
        with Recorded(joined):
            _, parts = convert_part(partition, key, folder / f"part-{name}", options)
            join_parts(partition, key, joined, options, parts)
        expect(_content(joined / name) == _content(folder / "out" / name), "in parts it is what it is at once")


def _content(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@recorded
def copies_of_a_log_directory(folder: Path) -> None:
    source = folder / "source"
    with patch.object(os, "fsync", lambda _: None):
        write_topics(source)
    with Recorded(folder):
        with copied_logs(discover([str(source)]), folder / "out") as copies:
            expect(len(copies.partitions) > 0, "there are copies")
            (copies.folder / "made-in-the-block").touch()
        lay_over(source, folder / "over")
    for partition in discover([str(source)]):
        for copy in ("out", "over"):
            expect(_content(folder / copy / partition.name) == _content(Path(partition.path)), f"{copy} is a copy")


@recorded
def directories_of_a_kraft_node(folder: Path) -> None:
    """One that is formatted, in a folder that is there; one with logs; a repaired and a rescued one."""
    release, directory = Release.of("4.3"), uuid.UUID(int=1 << 100)
    source = KraftNode("4.3.1/clean-a", "node").unpacked(folder / "source")
    out = folder / "out"
    (out / "formatted").mkdir(parents=True)
    wanted = NodeFormat(
        node_id=1,
        cluster_id=uuid.UUID(int=1 << 90),
        directory_id=directory,
        release=release,
        roles=frozenset({"controller"}),
        levels={METADATA_VERSION: 30},
        users={},
        voters=[QuorumVoter(1, directory, "CONTROLLER", "localhost", 9093)],
    )
    described, options = read_metadata(str(source)), ExportOptions(release, logs=[source])
    renamed = list[str]()

    def rename(self: Path, target: Path) -> Path:
        renamed.append(target.name)
        os.rename(self, target)  # noqa: PTH104 (which is recorded)
        return target

    with Recorded(out):  # the working folder of a rescue need not be gone for sure
        with patch.object(Path, "rename", rename):
            format_directory(out / "formatted", wanted, NOW)
        export_to_kraft(described, out / "exported", options, NOW)
        export_to_kraft(described, out / "repaired", options._replace(repairs=True), NOW)
        rescue_into(
            source, out / "rescued", folder / "work", RescueOptions(no_steps, kraft=KraftTarget(1, release, NOW))
        )
    expect(renamed[-1] == checkpoints.META_PROPERTIES, "a formatted directory is whole before it has its owner")
    for name in ("formatted", "exported", "repaired", "rescued"):
        expect(check_node([str(out / name)]).is_sound, f"the node starts on what is {name}")


@recorded
def what_a_pipeline_left_in_a_store(folder: Path) -> None:
    """The mark is all that lies beside the partitions, so that nothing else makes their names durable before it."""
    store = folder / "store"
    for tables in (False, True):
        files = {"a-0/x.log": b"some log", "a-0/x.index": b"its index"} if not tables else {"a.parquet": b"a table"}
        for name, content in {**files, f"beside/{checkpoints.CLEAN_SHUTDOWN}": b"{}"}.items():
            (store / name).parent.mkdir(parents=True, exist_ok=True)
            (store / name).write_bytes(content)
        listed = [
            {"name": name.rpartition("/")[2], "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        ]
        at = "a.parquet" if tables else "a-0"
        manifest = {
            "units": {"a": {"outputs": [{"name": at, "at": at, "files": listed}]}},
            "checkpoints": "beside",
            "tables": tables,
        }
        (store / "pipeline-00000001.json").write_text(json.dumps(manifest))
        with Recorded(folder):
            materialize(f"file://{store}", folder / f"plain-{tables}")
        found = {str(each.relative_to(folder / f"plain-{tables}")) for each in (folder / f"plain-{tables}").rglob("*")}
        expect(files.keys() <= found, "all of it is there")


@recorded
def a_retention(folder: Path) -> None:
    """The mark of the clean shutdown is durably away while anything changes, and there at the end."""
    made(folder / "logs", closed=True)
    with Recorded(folder):
        expect(
            any(each.removed for each in retain_logs(discover([str(folder)]), RetentionLimits(NOW + 1_000_000, 0))),
            "something went",
        )
    disk, mark = SimulatedDisk(1), f"/logs/{checkpoints.CLEAN_SHUTDOWN}"
    disk.make_directory("/logs")
    disk.sync_directory("/")
    for name in (checkpoints.RECOVERY_POINT, checkpoints.CLEAN_SHUTDOWN):
        put_file(disk, f"/logs/{name}", b"")
    with held(disk, "/logs") as changing:
        changing()
        left = [disk.after_a_cut(seed) for seed in range(20)]
    expect(not any(mark in dict(each.walk()) for each in left), "the mark is away for sure")
    expect(all(mark in dict(disk.after_a_cut(seed).walk()) for seed in range(20)), "the mark is there again for sure")
